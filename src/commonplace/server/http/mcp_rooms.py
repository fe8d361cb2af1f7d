"""Rooms: each caller's MCP sessions apart from everybody else's, so that another's session id does not exist for it.

A room is made when its first request comes and ends when it was quiet for longer than a session lives, or when there
are too many: then one of whoever has the most makes way. What is subscribed to lives in the room as well: its own
watcher on its own namespace.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from commonplace.errors import Unavailable
from commonplace.server.mcp.http import IDLE_SECONDS

K = TypeVar("K", bound=Hashable)

MAX_ROOMS = 1_000
LOOK_SECONDS = 60.0
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Room:
    manager: StreamableHTTPSessionManager
    used_at: float
    requests: int = 0
    is_ready: anyio.Event = field(default_factory=anyio.Event)
    is_over: anyio.Event = field(default_factory=anyio.Event)


class Rooms(Generic[K]):
    """`make` makes the session manager behind a key: whoever has an equal key shares its sessions.

    `owner` tells whose a key is: nobody gets more rooms at the cost of an owner who has no more than it has.
    """

    def __init__(
        self,
        make: Callable[[K], StreamableHTTPSessionManager],
        *,
        owner: Callable[[K], Hashable] = lambda key: key,
        max_rooms: int = MAX_ROOMS,
        idle_seconds: float = IDLE_SECONDS + LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._owner = owner
        self._max_rooms = max_rooms
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._rooms: OrderedDict[K, _Room] = OrderedDict()
        self._group: TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._rooms)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Rooms exist within this; what is still open at its end is ended."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._look_after)
            try:
                yield
            finally:
                self._group = None
                self._rooms.clear()
                group.cancel_scope.cancel()

    async def serve(self, key: K, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request in the room of a key."""
        room = await self._enter(key)
        room.requests += 1
        try:
            await room.manager.asgi_app(scope, receive, send)
        finally:
            room.requests -= 1
            room.used_at = self._clock()

    async def _enter(self, key: K) -> _Room:
        while True:
            if self._group is None:
                raise Unavailable("the service is stopping; try again in a moment")
            room = self._rooms.get(key)
            if room is None or room.is_over.is_set():
                room = await self._open(self._group, key)
            room.used_at = self._clock()
            self._rooms.move_to_end(key)
            await room.is_ready.wait()
            # Whoever was opening it may have gone away meanwhile, and the room with it.
            if not room.is_over.is_set():
                return room

    async def _open(self, group: TaskGroup, key: K) -> _Room:
        self._make_way(key)
        room = self._rooms[key] = _Room(self._make(key), self._clock())
        try:
            await group.start(self._keep, key, room)
        except BaseException:
            room.is_over.set()
            raise
        finally:
            room.is_ready.set()
        return room

    def _make_way(self, key: K) -> None:
        if len(self._rooms) < self._max_rooms:
            return
        held = Counter(map(self._owner, self._rooms))
        owner = self._owner(key)

        def may_go(other: K) -> bool:
            whose = self._owner(other)
            return not self._rooms[other].requests and (whose == owner or held[whose] > held[owner])

        # Of equals the first, which was quiet longest.
        going = max(filter(may_go, self._rooms), key=lambda other: held[self._owner(other)], default=None)
        if going is None:
            raise Unavailable(f"{self._max_rooms:,} callers are connected over MCP already; try again later")
        self._rooms.pop(going).is_over.set()

    async def _keep(self, key: K, room: _Room, *, task_status: TaskStatus[None]) -> None:
        # A session manager must be left by the task that entered it, so each has a task of its own.
        has_begun = False
        try:
            async with room.manager.run():
                has_begun = True
                task_status.started()
                await room.is_over.wait()
        except Exception:
            if not has_begun:
                raise
            # One caller's trouble is not to end the rooms of the others.
            _log.exception("the MCP sessions of a caller ended with an error")
        room.is_over.set()
        if self._rooms.get(key) is room:
            del self._rooms[key]

    async def _look_after(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            self.end_quiet()

    def end_quiet(self) -> None:
        """End the rooms that nobody has used for long; their sessions have ended before."""
        now = self._clock()
        for room in self._rooms.values():
            if not room.requests and now - room.used_at > self._idle_seconds:
                room.is_over.set()
