"""The first thing that a request meets: whether a web page sent it, who calls, and whether its address can be read.

Nothing is routed before that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from functools import partial
from urllib.parse import unquote_to_bytes

import anyio
from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.errors import CommonplaceError, InvalidInput, Unauthorized
from commonplace.server.http.access.gate import Gate
from commonplace.server.http.access.hosts import check_own_page
from commonplace.server.http.access.keys import LOCAL
from commonplace.server.http.access.metadata import challenge
from commonplace.server.http.access.streams import Streams
from commonplace.server.http.operation.health import HEALTH_PATHS
from commonplace.server.http.operation.limiting import claim
from commonplace.server.http.operation.refusals import Refusal
from commonplace.server.http.operation.threads import PLACE, Place, StoreThreads
from commonplace.server.http.principal import Principal
from commonplace.server.http.problems import is_mcp, problem_response
from commonplace.wire.problems import BY_CODE

_EVENT_STREAM = b"text/event-stream"
_TOKEN_THREADS = 8
_WITH_TOKENS = ":tokens"
"""Stands for all that show a token until it is checked: no caller is called so."""


class _TooMany(Exception):
    """The caller has its share of the requests under way."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


def _claim(scope: Scope, caller: str | None) -> None:
    refusal = claim(scope, caller)
    if refusal is not None:
        raise _TooMany(refusal)


def share_of(principal: Principal | None) -> str | None:
    """Under which name a caller's share is counted; a book without keys has one caller, who may have all."""
    return None if principal is None or principal.name == LOCAL else principal.name


class Callers:
    """ASGI middleware: puts the caller into `request.state.principal`, or answers in its place.

    `open_paths` need no credentials; a path that ends with `/*` stands for all below it. A stream of events whose
    caller loses its access is ended.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        within: FastAPI,
        gate: Gate,
        streams: Streams,
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
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) > 1:
            # The first is the one that we would check; another program on the way may go by the last.
            error = InvalidInput("the request has several Host headers; send one")
            await problem_response(error, BY_CODE["invalid_request"])(scope, receive, send)
            return
        try:
            principal = await self._caller(scope, headers)
            _check_address(scope)
        except _TooMany as many:
            await many.refusal.send(send, over_mcp=is_mcp(scope["path"]))
            return
        except (CommonplaceError, HTTPException) as error:
            response = await self._worded(Request(scope, receive), error)
            await response(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["principal"] = principal
        state["count_call"] = partial(self._gate.principal, headers)  # for bodies that hold several calls
        place = PLACE.set(Place(self._threads, share_of(principal)))
        try:
            await self._served(scope, receive, send, headers)
        finally:
            PLACE.reset(place)

    async def _served(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        has_ended = False

        async def watched(message: Message) -> None:
            nonlocal has_ended
            if message["type"] == "http.response.start" and _is_event_stream(message):
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
        """Who calls, counted among the requests under its name."""
        principal = await self._found(scope, headers)
        if principal is not None:
            _claim(scope, share_of(principal))
        return principal

    async def _found(self, scope: Scope, headers: Headers) -> Principal | None:
        path = scope["path"]
        if path in HEALTH_PATHS:
            # Asked of a service whose store fails as well: nothing is read for it.
            if self._gate.checks_pages and self._gate.was_open():
                check_own_page(headers, self._origins, may_be_linked=True)
            return None
        if self._gate.is_quick(headers):
            return self._decide(path, headers)
        if self._is_for_all(path) or not self._gate.is_token(headers):
            return await run_sync(self._decide, path, headers)
        # A token may have to wait for its issuer, which keys never do: not among them, and not in their threads.
        _claim(scope, _WITH_TOKENS)
        reading = self._gate.pending(headers)
        if reading is not None:
            await asyncio.wait((asyncio.wrap_future(reading.done),), timeout=reading.seconds_left(time.monotonic))
        return await run_sync(self._decide, path, headers, limiter=self._token_threads)

    def _is_for_all(self, path: str) -> bool:
        return path in self._open_paths or path.startswith(self._open_below)

    def _decide(self, path: str, headers: Headers) -> Principal | None:
        is_for_all = self._is_for_all(path)
        if self._gate.checks_pages and self._gate.is_open():
            check_own_page(headers, self._origins, may_be_linked=is_for_all)
        if is_for_all:
            return None
        return self._gate.principal(headers)

    async def _worded(self, request: Request, error: Exception) -> Response:
        """The answer that the app's own handlers give to an error: outside of its routes it does not ask them."""
        handlers = self._within.exception_handlers
        handler = next(handlers[kind] for kind in type(error).__mro__ if kind in handlers)
        response: Response = await handler(request, error)  # type: ignore[misc]
        if isinstance(error, Unauthorized):
            response.headers["WWW-Authenticate"] = challenge(request, self._public_url)
        return response


def _check_address(scope: Scope) -> None:
    """Refuse an address that is no UTF-8: replacement characters where its bytes were make one name of several."""
    for raw in (scope["raw_path"], scope["query_string"]):
        if b"%" in raw:
            try:
                unquote_to_bytes(raw).decode()
            except UnicodeDecodeError as error:
                detail = "the address is no UTF-8; encode its characters as UTF-8, then in percent"
                raise InvalidInput(detail) from error


def _is_event_stream(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(_EVENT_STREAM) for name, value in start["headers"])
