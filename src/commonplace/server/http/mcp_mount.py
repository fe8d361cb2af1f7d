"""MCP within the service: `/mcp`, and `/mcp/PROFILE` for each profile, each caller in rooms of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from commonplace.checks import Namespace
from commonplace.server.http.access.middleware import share_of
from commonplace.server.http.mcp_rooms import Rooms
from commonplace.server.http.operation.threads import StoreThreads
from commonplace.server.http.principal import Principal
from commonplace.server.http.service import Service
from commonplace.server.mcp.app import ToolCalls
from commonplace.server.mcp.http import session_manager
from commonplace.server.mcp.memory import ACTOR, CLIENT, Memory
from commonplace.server.mcp.profiles import PROFILES, Profile
from commonplace.space.space import Space

PLAIN = "/mcp"
WITH_PROFILE = "/mcp/{profile}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who shares a room: the same credentials, the same namespace, the same profile."""

    principal: Principal
    namespace: Namespace
    profile: Profile


class McpMount:
    """An ASGI endpoint. `?namespace=` names another namespace within the caller's reach."""

    def __init__(
        self, service: Service, threads: StoreThreads, tool_calls: ToolCalls, *, is_stateless: bool = False
    ) -> None:
        self._service = service
        self._threads = threads
        self._tool_calls = tool_calls
        self._is_stateless = is_stateless
        self.rooms: Rooms[Caller] = Rooms(self._sessions, owner=lambda caller: caller.principal)

        # Clients differ in whether they write the last slash; a redirect would lose their headers.
        paths = (PLAIN, f"{PLAIN}/", WITH_PROFILE, f"{WITH_PROFILE}/")
        self._routes = {path: Route(path, endpoint=self, include_in_schema=False) for path in paths}

    def routes(self) -> list[BaseRoute]:
        return [*self._routes.values()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        # The log and the metrics read it there, and only FastAPI's own routes put themselves in.
        scope["route"] = self._routes[WITH_PROFILE if "profile" in request.path_params else PLAIN]
        principal: Principal = request.state.principal
        namespace = principal.resolve(request.query_params.get("namespace"))
        profile = _profile(request.path_params.get("profile", "records"))
        await self.rooms.serve(Caller(principal, namespace, profile), scope, receive, send)

    def _sessions(self, caller: Caller) -> StreamableHTTPSessionManager:
        def open_space() -> Space:
            place = "/".join(caller.namespace)
            return caller.principal.space(self._service.book, place, face=ACTOR, client=CLIENT.get())

        settings = self._service.settings
        memory = Memory(
            open_space,
            default_limit=settings.search_default_limit,
            max_limit=settings.search_max_limit,
            is_per_client=True,
            wraps_results=settings.wrap_results,
        )
        run = partial(self._threads.run, share_of(caller.principal))
        return session_manager(
            memory, caller.profile, is_stateless=self._is_stateless, run=run, tool_calls=self._tool_calls
        )


def _profile(name: str) -> Profile:
    for profile in PROFILES:
        if profile == name:
            return profile
    raise HTTPException(404, f"there is no profile {name[:50]!r}; there are {', '.join(PROFILES)}")
