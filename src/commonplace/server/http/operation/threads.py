"""Threads for what touches the store: some to read and some to write, and of both a fair share for each caller.

A write waits for whoever writes before it, in another program too. With threads of their own, waiting writes hold up no
read; and since one caller may use only as many threads as are still free, its slow calls leave some to all others.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi.routing import APIRoute

from commonplace.server.http.operation.work import Shares
from commonplace.store import Store

T = TypeVar("T")

READING_POSTS = frozenset(("/v1/search", "/v1/recall", "/v1/context", "/v1/thread-search"))
"""Routes that change nothing and have a body all the same: a query may be too long for an address."""


class Threads:
    """So many threads, used on one event loop. Who has to wait is served in turn with the other callers."""

    def __init__(self, most: int) -> None:
        self._shares = Shares(most)
        self._unlimited = CapacityLimiter(math.inf)
        self._waiting: OrderedDict[str | None, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, caller: str | None, work: Callable[[], T]) -> T:
        """Do work in a thread as soon as the caller may have one; None stands for nobody in particular."""
        if caller in self._waiting or not self._shares.take(caller):
            await self._wait(caller)
        try:
            # Not left when the caller goes away: work that has begun keeps its thread until it ends.
            return await run_sync(work, limiter=self._unlimited)
        finally:
            self._shares.give(caller)
            self._wake()

    async def _wait(self, caller: str | None) -> None:
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(caller, deque())
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._shares.give(caller)
                self._wake()
            elif turn in queue:
                queue.remove(turn)
                if not queue and self._waiting.get(caller) is queue:
                    del self._waiting[caller]
            raise

    def _wake(self) -> None:
        """Give free threads to those that wait, one caller after another."""
        for caller in [*self._waiting]:
            queue = self._waiting[caller]
            while queue and queue[0].done():  # cancelled just now; whoever waited for it has not run since
                queue.popleft()
            if queue and self._shares.take(caller):
                queue.popleft().set_result(None)
                self._waiting.move_to_end(caller)
            if not queue:
                del self._waiting[caller]


class StoreThreads:
    """The threads of one service: as many as its store has use for."""

    def __init__(self, store: Store) -> None:
        self.reads = Threads(store.parallel_reads)
        self.writes = Threads(store.parallel_writes)

    async def run(self, caller: str | None, work: Callable[[], T], writes: bool) -> T:
        return await (self.writes if writes else self.reads).run(caller, work)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose request is being answered, and the threads for it."""

    threads: StoreThreads
    caller: str | None


PLACE: ContextVar[Place | None] = ContextVar("place", default=None)


async def in_thread(work: Callable[..., T], *args: Any, writes: bool = False) -> T:
    """Call something that touches the store, in a thread of the caller whose request this is."""
    place = PLACE.get()
    if place is None:
        return await run_sync(work, *args)
    return await place.threads.run(place.caller, partial(work, *args), writes)


class ThreadedRoute(APIRoute):
    """A route whose plain function runs in the caller's threads: to read for a GET, else to write."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not inspect.iscoroutinefunction(endpoint):
            is_read = "GET" in (options.get("methods") or ()) or path in READING_POSTS
            endpoint = _threaded(endpoint, writes=not is_read)
        super().__init__(path, endpoint, **options)


def _threaded(endpoint: Callable[..., T], *, writes: bool) -> Callable[..., Awaitable[T]]:
    @wraps(endpoint)
    async def run(**arguments: Any) -> T:
        return await in_thread(partial(endpoint, **arguments), writes=writes)

    return run
