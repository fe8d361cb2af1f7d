"""MCP over HTTP: `/mcp`, and `/mcp/PROFILE` for each profile, with separate sessions for each caller.

A caller cannot use the session id of another one, because each caller, namespace and profile has its own session
manager. It starts with the first request. It ends when it was idle for longer than a session lives, or when there are
too many: then an idle one of the caller that has the most is evicted. Subscriptions belong to it as well.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from commonplace.checks import Namespace
from commonplace.errors import Unavailable
from commonplace.server.http.auth import Principal
from commonplace.server.http.service import Service
from commonplace.server.http.worker_threads import StoreThreads
from commonplace.server.mcp.lazy_memory import ACTOR, CLIENT, Memory
from commonplace.server.mcp.profiles import PROFILES, Profile
from commonplace.server.mcp.server import ToolCalls
from commonplace.server.mcp.streamable_http import IDLE_SECONDS, session_manager
from commonplace.space.space import Space

K = TypeVar("K", bound=Hashable)

PLAIN = "/mcp"
WITH_PROFILE = "/mcp/{profile}"
MAX_CALLERS = 1_000
LOOK_SECONDS = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Requests with the same credentials, namespace and profile share their sessions."""

    principal: Principal
    namespace: Namespace
    profile: Profile


class McpEndpoint:
    """The ASGI endpoint. `?namespace=` names another namespace within the caller's reach."""

    def __init__(
        self, service: Service, threads: StoreThreads, tool_calls: ToolCalls, *, is_stateless: bool = False
    ) -> None:
        self._service = service
        self._threads = threads
        self._tool_calls = tool_calls
        self._is_stateless = is_stateless
        self.sessions: Sessions[SessionKey] = Sessions(self._manager, owner=lambda key: key.principal)
        # Some clients write the last slash. A redirect would lose their headers.
        paths = (PLAIN, f"{PLAIN}/", WITH_PROFILE, f"{WITH_PROFILE}/")
        self._routes = {path: Route(path, endpoint=self, include_in_schema=False) for path in paths}

    def routes(self) -> list[BaseRoute]:
        return [*self._routes.values()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        # The log and the metrics read it, and only FastAPI's own routes set it.
        scope["route"] = self._routes[WITH_PROFILE if "profile" in request.path_params else PLAIN]
        principal: Principal = request.state.principal
        namespace = principal.resolve(request.query_params.get("namespace"))
        profile = _profile(request.path_params.get("profile", "records"))
        await self.sessions.serve(SessionKey(principal, namespace, profile), scope, receive, send)

    def _manager(self, key: SessionKey) -> StreamableHTTPSessionManager:
        def open_space() -> Space:
            namespace = "/".join(key.namespace)
            return key.principal.space(self._service.book, namespace, face=ACTOR, client=CLIENT.get())

        settings = self._service.settings
        memory = Memory(
            open_space,
            default_limit=settings.search_default_limit,
            max_limit=settings.search_max_limit,
            is_per_client=True,
            wraps_results=settings.wrap_results,
        )
        run = partial(self._threads.run, key.principal.share)
        return session_manager(
            memory, key.profile, is_stateless=self._is_stateless, run=run, tool_calls=self._tool_calls
        )


def _profile(name: str) -> Profile:
    for profile in PROFILES:
        if profile == name:
            return profile
    raise HTTPException(404, f"there is no profile {name[:50]!r}; there are {', '.join(PROFILES)}")


@dataclass(eq=False)
class _Managed:
    manager: StreamableHTTPSessionManager
    used_at: float
    requests: int = 0
    is_ready: anyio.Event = field(default_factory=anyio.Event)
    is_over: anyio.Event = field(default_factory=anyio.Event)


class Sessions(Generic[K]):
    """Session managers by key; requests with an equal key share the sessions. `make` makes the manager of a key.

    `owner` gives the owner of a key. When full, an idle manager of the same owner, or of one that has more, is evicted.
    """

    def __init__(
        self,
        make: Callable[[K], StreamableHTTPSessionManager],
        *,
        owner: Callable[[K], Hashable] = lambda key: key,
        max_callers: int = MAX_CALLERS,
        idle_seconds: float = IDLE_SECONDS + LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._owner = owner
        self._max_callers = max_callers
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._managers: OrderedDict[K, _Managed] = OrderedDict()
        self._group: TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._managers)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Sessions live inside of this context."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._end_idle_now_and_then)
            try:
                yield
            finally:
                self._group = None
                self._managers.clear()
                group.cancel_scope.cancel()

    async def serve(self, key: K, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request with the session manager of a key."""
        managed = await self._get(key)
        managed.requests += 1
        try:
            await managed.manager.asgi_app(scope, receive, send)
        finally:
            managed.requests -= 1
            managed.used_at = self._clock()

    async def _get(self, key: K) -> _Managed:
        while True:
            if self._group is None:
                raise Unavailable("the service is stopping; try again in a moment")
            managed = self._managers.get(key)
            if managed is None or managed.is_over.is_set():
                managed = await self._open(self._group, key)
            managed.used_at = self._clock()
            self._managers.move_to_end(key)
            await managed.is_ready.wait()
            # The request that opened it may have been cancelled meanwhile, and the manager with it.
            if not managed.is_over.is_set():
                return managed

    async def _open(self, group: TaskGroup, key: K) -> _Managed:
        self._evict(key)
        managed = self._managers[key] = _Managed(self._make(key), self._clock())
        try:
            await group.start(self._run, key, managed)
        except BaseException:
            managed.is_over.set()
            raise
        finally:
            managed.is_ready.set()
        return managed

    def _evict(self, key: K) -> None:
        if len(self._managers) < self._max_callers:
            return
        counts = Counter(map(self._owner, self._managers))
        owner = self._owner(key)

        def may_go(other: K) -> bool:
            whose = self._owner(other)
            return not self._managers[other].requests and (whose == owner or counts[whose] > counts[owner])

        # Of equals the first, which was idle longest.
        going = max(filter(may_go, self._managers), key=lambda other: counts[self._owner(other)], default=None)
        if going is None:
            raise Unavailable(f"{self._max_callers:,} callers are connected over MCP already; try again later")
        self._managers.pop(going).is_over.set()

    async def _run(self, key: K, managed: _Managed, *, task_status: TaskStatus[None]) -> None:
        # The task that enters a session manager must also leave it, so each has its own task.
        has_begun = False
        try:
            async with managed.manager.run():
                has_begun = True
                task_status.started()
                await managed.is_over.wait()
        except Exception:
            if not has_begun:
                raise
            # An error of one caller must not end the sessions of others.
            _log.exception("the MCP sessions of a caller ended with an error")
        managed.is_over.set()
        if self._managers.get(key) is managed:
            del self._managers[key]

    async def _end_idle_now_and_then(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            self.end_idle()

    def end_idle(self) -> None:
        """End the managers that nobody has used for long. Their sessions have ended before."""
        now = self._clock()
        for managed in self._managers.values():
            if not managed.requests and now - managed.used_at > self._idle_seconds:
                managed.is_over.set()
