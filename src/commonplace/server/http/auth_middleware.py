"""The authentication middleware: it checks the origin, the caller and the URL of a request before any route runs.

With it come what a refused MCP client reads to learn about tokens (OAuth protected-resource metadata, RFC 9728), the
end of event streams whose caller has lost access, and the record of when keys were last used.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.api.problems import BY_CODE
from commonplace.errors import CommonplaceError, InvalidInput, Unauthorized
from commonplace.server.http.api_keys import Keys
from commonplace.server.http.auth import CREDENTIAL_HEADERS, Gate, Principal
from commonplace.server.http.error_answers import is_mcp, problem_response
from commonplace.server.http.observability import HEALTH_PATHS
from commonplace.server.http.origins import base_url, check_own_page
from commonplace.server.http.request_limits import Refusal, claim, is_event_stream
from commonplace.server.http.sessions import is_page, session_of
from commonplace.server.http.worker_threads import CALLER, CallerThreads, StoreThreads
from commonplace.settings import Settings

WELL_KNOWN = "/.well-known/oauth-protected-resource"
LOOK_SECONDS = 2.0
RECORD_USES_SECONDS = 60.0
_TOKEN_THREADS = 8
_UNVERIFIED_TOKENS = ":tokens"
"""The share of all requests whose token is not verified yet. No caller has this name."""

_MCP = re.compile(r"/mcp(/[a-z]+)?")
_log = logging.getLogger(__name__)


class _TooMany(Exception):
    """The caller already has its share of the requests in progress."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


class AuthMiddleware:
    """ASGI middleware: sets `request.state.principal`, or answers with a refusal.

    `open_paths` need no credentials; a path that ends with `/*` includes all paths below it. An event stream ends when
    its caller loses access.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        within: FastAPI,
        gate: Gate,
        streams: EventStreams,
        threads: StoreThreads,
        open_paths: Collection[str],
        origins: Collection[str] = (),
        public_url: str | None = None,
    ) -> None:
        self._app = app
        self._within = within
        self._gate = gate
        self._streams = streams
        self._threads = threads
        self._token_threads = anyio.CapacityLimiter(_TOKEN_THREADS)
        self._open_paths = frozenset(path for path in open_paths if not path.endswith("/*"))
        self._open_below = tuple(path[:-1] for path in open_paths if path.endswith("/*"))
        self._origins = frozenset(origins)
        self._public_url = public_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _with_session(scope, Headers(scope=scope))
        if len(headers.getlist("host")) > 1:
            # We would check the first one, and a proxy may use the last one.
            error = InvalidInput("the request has several Host headers; send one")
            await problem_response(error, BY_CODE["invalid_request"])(scope, receive, send)
            return
        try:
            principal = await self._caller(scope, headers)
            _check_url(scope)
        except _TooMany as many:
            await many.refusal.send(send, over_mcp=is_mcp(scope["path"]))
            return
        except (CommonplaceError, HTTPException) as error:
            response = await self._error_response(Request(scope, receive), error)
            await response(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["principal"] = principal
        state["count_call"] = partial(self._gate.principal, headers)  # for a body with several calls
        caller = CALLER.set(CallerThreads(self._threads, None if principal is None else principal.share))
        try:
            await self._served(scope, receive, send, headers)
        finally:
            CALLER.reset(caller)

    async def _served(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        has_ended = False

        async def watched(message: Message) -> None:
            nonlocal has_ended
            if message["type"] == "http.response.start" and is_event_stream(message):
                self._streams.add(life, headers)
            has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with anyio.CancelScope() as life:
            try:
                await self._app(scope, receive, watched)
            finally:
                self._streams.remove(life)
        if life.cancelled_caught and not has_ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _caller(self, scope: Scope, headers: Headers) -> Principal | None:
        """The caller. The request now counts against its share."""
        principal = await self._found(scope, headers)
        if principal is not None:
            _claim(scope, principal.share)
        return principal

    async def _found(self, scope: Scope, headers: Headers) -> Principal | None:
        path = scope["path"]
        if path in HEALTH_PATHS:
            # A probe must work while the store fails, so nothing is read for it.
            if self._gate.checks_pages and self._gate.was_open():
                check_own_page(headers, self._origins, may_be_linked=True)
            return None
        if self._gate.is_quick(headers):
            return self._decide(path, headers)
        if self._is_for_all(path) or not self._gate.is_token(headers):
            return await run_sync(self._decide, path, headers)
        # A token may have to wait for its issuer, so it uses neither the share nor the threads of API keys.
        _claim(scope, _UNVERIFIED_TOKENS)
        reading = self._gate.pending(headers)
        if reading is not None:
            await asyncio.wait((asyncio.wrap_future(reading.done),), timeout=reading.seconds_left(time.monotonic))
        return await run_sync(self._decide, path, headers, limiter=self._token_threads)

    def _is_for_all(self, path: str) -> bool:
        return path in self._open_paths or path.startswith(self._open_below)

    def _decide(self, path: str, headers: Headers) -> Principal | None:
        is_for_all = self._is_for_all(path)
        if self._gate.checks_pages and self._gate.is_open():
            check_own_page(headers, self._origins, may_be_linked=is_for_all or is_page(path))
        if is_for_all:
            return None
        return self._gate.principal(headers, path)

    async def _error_response(self, request: Request, error: Exception) -> Response:
        """The answer of the app's own exception handlers, which Starlette calls only for errors inside its routes."""
        handlers = self._within.exception_handlers
        handler = next(handlers[kind] for kind in type(error).__mro__ if kind in handlers)
        response: Response = await handler(request, error)  # type: ignore[misc]
        if isinstance(error, Unauthorized):
            response.headers["WWW-Authenticate"] = challenge(request, self._public_url)
        return response


def _with_session(scope: Scope, headers: Headers) -> Headers:
    """The headers with the session of a browser as the credential. Only the page accepts it, not the other routes."""
    session = session_of(headers) if is_page(scope["path"]) else None
    if session is None or any(name in headers for name in CREDENTIAL_HEADERS):
        return headers
    return Headers(raw=[*headers.raw, (b"authorization", f"Bearer {session}".encode())])


def _claim(scope: Scope, caller: str | None) -> None:
    refusal = claim(scope, caller)
    if refusal is not None:
        raise _TooMany(refusal)


def _check_url(scope: Scope) -> None:
    """Refuse a URL that is not UTF-8: with replacement characters, several names would become one."""
    for raw in (scope["raw_path"], scope["query_string"]):
        if b"%" in raw:
            try:
                unquote_to_bytes(raw).decode()
            except UnicodeDecodeError as error:
                raise InvalidInput("the URL is not valid UTF-8; percent-encode it as UTF-8") from error


# OAuth protected-resource metadata


def challenge(request: Request, public_url: str | None) -> str:
    """The WWW-Authenticate header of a refusal."""
    words = []
    path = request.url.path.rstrip("/")
    if _MCP.fullmatch(path):
        words.append(f'resource_metadata="{base_url(request, public_url)}{WELL_KNOWN}{path}"')
    if "authorization" in request.headers or "x-api-key" in request.headers:
        words.append('error="invalid_token"')
    return "Bearer " + ", ".join(words) if words else "Bearer"


def metadata_router(settings: Settings) -> APIRouter:
    router = APIRouter()

    def answer(request: Request, path: str) -> Response:
        described: dict[str, Any] = {
            "resource": base_url(request, settings.public_url) + path,
            "resource_name": "commonplace",
            "bearer_methods_supported": ["header"],
        }
        issuer = base_url(request, settings.public_url) if settings.oauth else settings.jwt_issuer
        if issuer is not None:
            described["authorization_servers"] = [issuer]
        return JSONResponse(described, headers={"Cache-Control": "max-age=300"})

    @router.get(WELL_KNOWN, include_in_schema=False)
    def of_the_service(request: Request) -> Response:
        return answer(request, "")

    @router.get(WELL_KNOWN + "/{path:path}", include_in_schema=False)
    def of_a_path(request: Request, path: str) -> Response:
        if not _MCP.fullmatch(f"/{path}"):
            raise HTTPException(404)
        return answer(request, f"/{path}")

    return router


# In the background


class EventStreams:
    """The open event streams. A stream ends soon after a new call with its credentials would be refused.

    Used on the event loop only. Streams with the same credentials are checked together.
    """

    def __init__(self, gate: Gate, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._gate = gate
        self._look_seconds = look_seconds
        self._open: dict[anyio.CancelScope, Mapping[str, str]] = {}

    def add(self, scope: anyio.CancelScope, headers: Mapping[str, str]) -> None:
        self._open[scope] = headers

    def remove(self, scope: anyio.CancelScope) -> None:
        self._open.pop(scope, None)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._check_now_and_then)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _check_now_and_then(self) -> None:
        while True:
            await anyio.sleep(self._look_seconds)
            held: dict[tuple[str | None, ...], list[anyio.CancelScope]] = {}
            for scope, headers in self._open.items():
                held.setdefault(tuple(headers.get(name) for name in CREDENTIAL_HEADERS), []).append(scope)
            for credential, scopes in held.items():
                shown = {
                    name: text for name, text in zip(CREDENTIAL_HEADERS, credential, strict=True) if text is not None
                }
                if not await run_sync(self._is_known, shown):
                    for scope in scopes:
                        scope.cancel()

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        try:
            self._gate.check(headers)
        except Unauthorized:
            return False
        except CommonplaceError as error:
            _log.warning("cannot check the credentials of an open stream now: %s", error)
        return True


@asynccontextmanager
async def recorded_key_uses(keys: Keys) -> AsyncIterator[None]:
    """Record when keys were last used, once a minute and at the end. No request waits for it or fails with it."""
    async with anyio.create_task_group() as group:
        group.start_soon(_record_now_and_then, keys)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
    await run_sync(_record_uses, keys)


async def _record_now_and_then(keys: Keys) -> None:
    while True:
        await anyio.sleep(RECORD_USES_SECONDS)
        await run_sync(_record_uses, keys)


def _record_uses(keys: Keys) -> None:
    try:
        keys.record_uses()
    except CommonplaceError as error:
        _log.warning("cannot record now when keys were last used: %s", error)
