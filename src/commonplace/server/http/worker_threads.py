"""Worker threads for calls of the store: some for reads and some for writes, each with a fair share per caller.

A write waits for the writes before it, also for those of other processes. Reads have their own threads, so waiting
writes do not delay them. One caller may use at most as many threads as are still free, so its slow calls leave threads
for others.
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

from commonplace.api.operations import OPERATIONS
from commonplace.server.http.request_limits import Shares
from commonplace.store import Store

T = TypeVar("T")

READING_POSTS = frozenset(
    operation.address for operation in OPERATIONS if operation.is_read and operation.method == "POST"
)
"""Routes that change nothing, but have a body because a query may be too long for a URL."""


class FairThreads:
    """A limited number of threads, used on one event loop. Waiting callers are served in turn."""

    def __init__(self, most: int) -> None:
        self._shares = Shares(most)
        self._unlimited = CapacityLimiter(math.inf)
        self._waiting: OrderedDict[str | None, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, caller: str | None, work: Callable[[], T]) -> T:
        """Run work in a thread as soon as the caller's share allows it; the caller None has no limit."""
        if caller in self._waiting or not self._shares.take(caller):
            await self._wait(caller)
        try:
            # Not abandoned when the client disconnects: work in progress occupies its thread until it ends.
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
        """Give free threads to waiting callers, one caller after another."""
        for caller in [*self._waiting]:
            queue = self._waiting[caller]
            while queue and queue[0].done():  # just cancelled; its task has not run since
                queue.popleft()
            if queue and self._shares.take(caller):
                queue.popleft().set_result(None)
                self._waiting.move_to_end(caller)
            if not queue:
                del self._waiting[caller]


class StoreThreads:
    """The threads of one service, as many as its store can use."""

    def __init__(self, store: Store) -> None:
        self.reads = FairThreads(store.parallel_reads)
        self.writes = FairThreads(store.parallel_writes)

    async def run(self, caller: str | None, work: Callable[[], T], writes: bool) -> T:
        return await (self.writes if writes else self.reads).run(caller, work)


@dataclass(frozen=True, slots=True)
class CallerThreads:
    """The threads for a request, and the caller whose share it uses."""

    threads: StoreThreads
    caller: str | None


CALLER: ContextVar[CallerThreads | None] = ContextVar("caller", default=None)


async def in_thread(work: Callable[..., T], *args: Any, writes: bool = False) -> T:
    """Call a function that uses the store, in a thread of the current request's caller."""
    caller = CALLER.get()
    if caller is None:
        return await run_sync(work, *args)
    return await caller.threads.run(caller.caller, partial(work, *args), writes)


class ThreadedRoute(APIRoute):
    """A route that runs a plain function in the caller's threads: for reads if it is a GET, else for writes."""

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
