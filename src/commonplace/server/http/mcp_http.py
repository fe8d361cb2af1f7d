"""MCP over HTTP: `/mcp`, and `/mcp/PROFILE` for each profile, with separate sessions for each caller.

A caller cannot use the session id of another one, because each caller, namespace and profile has its own session
manager. It starts with the first request. It ends when it was idle for longer than a session lives, or when there are
too many: then an idle one of the caller that has the most is evicted. Subscriptions belong to it as well.

A body is parsed by the same rules as a line on stdio before the SDK reads it, and every request gets an answer. The SDK
accepts JSON that can be read in two ways, takes a request whose id is null or 1.5 for a notification, and does not know
batches. Of several requests with the same id, it answers only the last one.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.to_thread import run_sync
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.api.encoding import on_one_line
from commonplace.checks import Namespace
from commonplace.errors import CommonplaceError, Unavailable
from commonplace.server.http.auth import Principal
from commonplace.server.http.service import Service
from commonplace.server.http.worker_threads import StoreThreads
from commonplace.server.mcp.jsonrpc import (
    MAX_LINE_BYTES,
    Refusal,
    check_envelope,
    completed_initialize,
    has_batches,
    parse_json,
)
from commonplace.server.mcp.lazy_memory import ACTOR, CLIENT, Memory
from commonplace.server.mcp.profiles import PROFILES, Profile
from commonplace.server.mcp.server import Run, ToolCalls, build_server, run_in_thread
from commonplace.space.space import Space

K = TypeVar("K", bound=Hashable)

PLAIN = "/mcp"
WITH_PROFILE = "/mcp/{profile}"
MAX_CALLERS = 1_000
LOOK_SECONDS = 60.0
MAX_BATCH = 50
TOO_OFTEN = -32000
_EVENT_STREAM = b"text/event-stream"
_NO_BATCHES = "Invalid Request: only revision 2025-03-26 has batches; send one message at a time"
_BATCH_LENGTH = f"Invalid Request: a batch holds 1 to {MAX_BATCH} messages; send several batches"
_ALONE = "Invalid Request: initialize may not be part of a batch; send it alone, and first"
_IN_PROGRESS = "Invalid Request: a request with this id is in progress in this session; use another id"
MAX_SESSIONS = 1_000
"""Of one caller with one profile."""

IDLE_SECONDS = 30 * 60
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
            return key.principal.space(self._service.book, namespace, interface=ACTOR, client=CLIENT.get())

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


def session_manager(
    memory: Memory,
    profile: Profile,
    *,
    is_stateless: bool = False,
    run: Run = run_in_thread,
    tool_calls: ToolCalls | None = None,
) -> StreamableHTTPSessionManager:
    """The sessions of one memory and one profile. Enter its `run()` before the first request."""
    manager = StreamableHTTPSessionManager(
        build_server(memory, profile, run=run, tool_calls=tool_calls),
        stateless=is_stateless,
        session_idle_timeout=IDLE_SECONDS,
        max_request_body_size=MAX_LINE_BYTES,  # the service has a lower limit
        max_sessions=MAX_SESSIONS,
    )
    manager.asgi_app.app = MessageMiddleware(manager.asgi_app.app)  # inside of its limit on bodies
    return manager


# Sessions by caller


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


# What clients post


class MessageMiddleware:
    """ASGI middleware that checks what a client posts, before the SDK reads it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._in_progress: set[tuple[str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = _with_whole_lines(send)
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        received = await receive()
        if received["type"] != "http.request":
            return
        body: bytes = received.get("body", b"")
        posted = parse_json(body)
        if isinstance(posted, list):
            await self._answer_batch(posted, scope, receive, send)
            return
        message = posted if isinstance(posted, Refusal) else check_envelope(posted)
        if isinstance(message, Refusal):
            await _response(message)(scope, receive, send)
            return
        if message.get("method") == "initialize":
            body = to_json({**message, "params": completed_initialize(message.get("params"))})
        await self._answer(message, body, scope, receive, send)

    async def _answer(self, message: dict[str, Any], body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer one message, unless a request with the same id is in progress."""
        received: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return received.pop() if received else await receive()

        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        if session is None or "id" not in message or "method" not in message:
            await self._app(scope, replay, send)
            return
        key = session, str(message["id"])
        if key in self._in_progress:
            # Without the id, because a client would take it for the answer to the request in progress.
            await _response(Refusal(None, INVALID_REQUEST, _IN_PROGRESS), 409)(scope, replay, send)
            return
        self._in_progress.add(key)
        with ExitStack() as held:
            held.callback(self._in_progress.discard, key)

            async def send_and_release(message: Message) -> None:
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    held.close()  # before the client has the whole answer and can use the id again
                await send(message)

            await self._app(scope, replay, send_and_release)

    async def _answer_batch(self, posted: list[Any], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer each message in turn, as if it came alone, and send the answers together."""
        version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER)
        if not has_batches(version) or not 1 <= len(posted) <= MAX_BATCH:
            text = _BATCH_LENGTH if has_batches(version) else _NO_BATCHES
            await _response(Refusal(None, INVALID_REQUEST, text))(scope, receive, send)
            return
        answers: list[dict[str, Any]] = []
        has_done = False
        for number, one in enumerate(posted):
            message = check_envelope(one)
            if number and isinstance(message, dict):
                message = await _counted(message, scope)
            if isinstance(message, dict) and message.get("method") == "initialize":
                message = Refusal(message.get("id"), INVALID_REQUEST, _ALONE)
            if isinstance(message, Refusal):
                answers.append(_error(message))
                continue
            captured = _Captured()
            await self._answer(message, to_json(message), scope, receive, captured.send)
            if captured.status >= 400 and not has_done:
                # What they have in common is wrong: the session, or a header.
                await captured.response()(scope, receive, send)
                return
            has_done = True
            answers += captured.answers()
        response = Response(to_json(answers), media_type="application/json") if answers else Response(status_code=202)
        await response(scope, receive, send)


async def _counted(message: dict[str, Any], scope: Scope) -> dict[str, Any] | Refusal:
    """Count a further message of a batch against the caller's rate; the request itself has counted for the first."""
    count_call = scope.get("state", {}).get("count_call")
    if count_call is None:
        return message
    try:
        await run_sync(count_call)
    except CommonplaceError as error:
        return Refusal(message.get("id"), TOO_OFTEN, str(error))
    return message


class _Captured:
    """An answer that is kept instead of being sent."""

    def __init__(self) -> None:
        self.status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._headers = message["status"], list(message["headers"])
        else:
            self._body += message.get("body", b"")

    def answers(self) -> list[dict[str, Any]]:
        """The JSON-RPC answers in it, from events or from plain JSON."""
        if dict(self._headers).get(b"content-type", b"").startswith(_EVENT_STREAM):
            lines = [line[5:].strip() for line in self._body.splitlines() if line.startswith(b"data:")]
        else:
            lines = [self._body]
        found = [json.loads(line) for line in lines if line]
        return [one for one in found if isinstance(one, dict) and ("result" in one or "error" in one)]

    def response(self) -> Response:
        response = Response(self._body, self.status)
        response.raw_headers = self._headers
        return response


def _with_whole_lines(send: Send) -> Send:
    """Escape the characters that some readers take for the end of a line. The SDK sends each event in one piece."""
    is_events = False

    async def sending(message: Message) -> None:
        nonlocal is_events
        if message["type"] == "http.response.start":
            is_events = dict(message["headers"]).get(b"content-type", b"").startswith(_EVENT_STREAM)
        elif is_events:
            message = {**message, "body": on_one_line(message.get("body", b""))}
        await send(message)

    return sending


def _error(refusal: Refusal) -> dict[str, Any]:
    error = ErrorData(code=refusal.code, message=refusal.message)
    return JSONRPCError(jsonrpc="2.0", id=refusal.id, error=error).model_dump(by_alias=True, exclude_unset=True)


def _response(refusal: Refusal, status: int = 400) -> Response:
    return Response(to_json(_error(refusal)), status, media_type="application/json")
