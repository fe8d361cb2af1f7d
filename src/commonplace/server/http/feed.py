"""The feed of changes as server-sent events that resume where they were interrupted.

An event is a whole commit, and its id is the number of the commit, so that a reader that reconnects misses and repeats
nothing. One thread waits for commits for all streams of the process. Streams survive a store that is unavailable.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from itertools import groupby
from operator import attrgetter
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from commonplace.api.encoding import dumps, on_one_line
from commonplace.api.forms import CHANGE
from commonplace.api.problems import BY_CODE, problem_of
from commonplace.checks import Namespace
from commonplace.entry import Change
from commonplace.errors import Conflict, InvalidInput, Unavailable
from commonplace.server.http.service import service_of
from commonplace.server.http.worker_threads import in_thread
from commonplace.space.space import Space
from commonplace.store import Store, Waker

HEARTBEAT_SECONDS = 15.0
HEARTBEATS_A_LOOK = 4
"""A stream that was not signalled looks for commits after this many heartbeats, in case a signal was lost."""

STREAM_SECONDS = 600.0
"""A stream ends after this time, and its reader reconnects. `EventStreams` ends it before if its key is revoked."""

AWAY_SECONDS = 1.0
"""How long a stream waits before it tries an unavailable store again."""

PAGE = 1_000
_WAIT_SECONDS = 5.0


Write = Callable[[int, list[Change]], bytes]
"""Writes the event of a commit from its number and its changes."""


async def stream_changes(request: Request, space: Space, after: int, write: Write) -> Response:
    """An event for each commit after a number, without an end. Raises Conflict if the feed cannot be followed."""
    await in_thread(space.changes, after, 1)
    signals = CommitSignals.of(request.app, service_of(request).book.store)
    return StreamingResponse(
        _events(space, signals, after, write), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


def start_of(space: Space, after: int | None, last_event_id: str | None) -> int:
    if last_event_id is not None:
        if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
            raise InvalidInput("Last-Event-ID must be the id of an event, a commit's number")
        return int(last_event_id)
    return space.stats().commit if after is None else after


async def _events(space: Space, signals: CommitSignals, after: int, write: Write) -> AsyncIterator[bytes]:
    ends = time.monotonic() + STREAM_SECONDS
    yield b"retry: 1000\n\n"
    loop = asyncio.get_running_loop()
    signal: asyncio.Event | None = None
    try:
        while time.monotonic() < ends:
            try:
                if signal is None:
                    signal = await in_thread(signals.subscribe, loop, space.namespace)
                signal.clear()  # cleared before reading, so that a commit in the meantime sets it again
                found = await in_thread(space.changes, after, PAGE)
            except Conflict as error:
                yield event("resync", after, problem_of(error, BY_CODE["resync"]))
                return
            except Unavailable:
                yield b": not available now\n\n"
                await asyncio.sleep(AWAY_SECONDS)
                continue
            for commit, changes in groupby(found, attrgetter("commit")):
                yield write(commit, list(changes))
                after = commit
            for _ in range(0 if found else HEARTBEATS_A_LOOK):
                if await _is_set_in_time(signal) or time.monotonic() >= ends:
                    break
                yield b": still here\n\n"
    finally:
        if signal is not None:
            signals.unsubscribe(signal)


async def _is_set_in_time(signal: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            await signal.wait()
    except TimeoutError:
        return False
    return True


def commit_event(commit: int, changes: list[Change]) -> bytes:
    return event("commit", commit, {"commit": commit, "changes": [CHANGE.write(change) for change in changes]})


def event(name: str, id: int, data: Any) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), id, on_one_line(dumps(data)))


class CommitSignals:
    """Signals the waiting streams of an app whose namespaces have changed. Its thread runs while there are any.

    If the store does not say which namespaces have changed, all streams are signalled.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._waiting: dict[asyncio.Event, tuple[asyncio.AbstractEventLoop, Namespace]] = {}
        self._by_namespace: dict[Namespace, set[asyncio.Event]] = {}
        self._waker: Waker | None = None

    @classmethod
    def of(cls, app: Any, store: Store) -> CommitSignals:
        known = getattr(app.state, "signals", None)
        if known is None or known._store is not store:
            known = app.state.signals = cls(store)
        assert isinstance(known, CommitSignals)
        return known

    def subscribe(self, loop: asyncio.AbstractEventLoop, namespace: Namespace) -> asyncio.Event:
        """An event that is set on this loop after each commit in a namespace, until `unsubscribe`."""
        signal = asyncio.Event()
        with self._mutex:
            if self._waker is None:
                self._waker = self._store.waker()
                threading.Thread(target=self._watch, args=(self._waker,), name="commonplace-feed", daemon=True).start()
            self._waiting[signal] = loop, namespace
            self._by_namespace.setdefault(namespace, set()).add(signal)
        return signal

    def unsubscribe(self, signal: asyncio.Event) -> None:
        with self._mutex:
            known = self._waiting.pop(signal, None)
            if known is not None:
                others = self._by_namespace[known[1]]
                others.discard(signal)
                if not others:
                    del self._by_namespace[known[1]]
            if self._waiting or self._waker is None:
                return
            waker, self._waker = self._waker, None
        waker.close()

    def close(self) -> None:
        """Stop the thread, because the app is ending and the store may be closed next."""
        with self._mutex:
            self._waiting.clear()
            self._by_namespace.clear()
            waker, self._waker = self._waker, None
        if waker is not None:
            waker.close()

    def _watch(self, waker: Waker) -> None:
        while self._waker is waker:
            if waker.wait(_WAIT_SECONDS):
                self._notify(waker.changed)

    def _notify(self, changed: frozenset[Namespace] | None) -> None:
        with self._mutex:
            signals = (
                list(self._waiting)
                if changed is None
                else [signal for namespace in changed for signal in self._by_namespace.get(namespace, ())]
            )
            waiting = [(signal, self._waiting[signal][0]) for signal in signals]
        for signal, loop in waiting:
            try:
                loop.call_soon_threadsafe(signal.set)
            except RuntimeError:  # the loop has ended with its streams
                continue
