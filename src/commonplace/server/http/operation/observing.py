"""Around every request: its id, its line in the log, its place in the metrics, and an answer where a route failed.

The log and the metrics know the route's template, never the address, a query or a body: those are what people remember.
"""

from __future__ import annotations

import logging
import os
import re
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.server.http.access.hosts import GUARDS
from commonplace.server.http.operation.metrics import Metrics, Seen
from commonplace.server.http.operation.refusals import Refusal
from commonplace.server.http.operation.work import Work

UNMATCHED = "unmatched"
"""The route of what has none: one word, however many addresses are tried."""

QUIET_ROUTES = frozenset(("/healthz", "/readyz", "/metrics"))
"""Asked every few seconds by machines: logged at debug only, unless they fail."""

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_GUARDS = [(name.lower().encode(), value.encode()) for name, value in GUARDS.items()]
_log = logging.getLogger("commonplace.http")


class Observing:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, work: Work) -> None:
        self._app = app
        self._metrics = metrics
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        bytes_sent = 0
        has_left = False

        async def received() -> Message:
            nonlocal has_left
            message = await receive()
            # Once the answer has begun, this is how a stream ends.
            has_left = has_left or (message["type"] == "http.disconnect" and not status)
            return message

        async def observed(message: Message) -> None:
            nonlocal status, bytes_sent
            if message["type"] == "http.response.start":
                # An answer that nobody is there to hear was not given.
                status = 0 if has_left else message["status"]
                headers = [*message.get("headers", ()), *_GUARDS, (b"x-request-id", request_id.encode())]
                if self._work.is_stopping:
                    # The client ends the connection itself: one that we end could be carrying its next request.
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            else:
                bytes_sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, received, observed)
        except ClientDisconnect:
            pass  # It left while it was sending: nobody waits for an answer, and nothing has failed.
        finally:
            seconds = time.perf_counter() - started
            route = route_of(scope)
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            self._metrics.count(Seen(method, route, status, seconds))
            level = _level(route, status)
            if _log.isEnabledFor(level):
                principal = scope["state"].get("principal")
                fields = {
                    "request_id": request_id,
                    "principal": getattr(principal, "name", None),
                    "method": method,
                    "route": route,
                    "status": status or None,
                    "ms": round(seconds * 1_000, 2),
                    "bytes": bytes_sent,
                }
                _log.log(level, "request", extra={"fields": fields})


class Failing:
    """ASGI middleware that logs why a route failed, and answers in its place."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except ClientDisconnect:
            raise
        except Exception:
            request_id = scope["state"]["request_id"]
            _log.exception("a request failed", extra={"fields": {"request_id": request_id, "route": route_of(scope)}})
            if has_begun:
                raise
            detail = "the server failed; its log says why, under this request_id"
            await Refusal("internal", detail).send(send, request_id=request_id)


def _request_id(scope: Scope) -> str:
    """The caller's own id, where it is short and plain; otherwise a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return str(value, "ascii")
    return os.urandom(12).hex()


def route_of(scope: Scope) -> str:
    """The template of the route that was taken, such as `/v1/records/{id}`."""
    # A route of an included router does not know its prefix; the context that FastAPI leaves in the scope does.
    context = scope.get("fastapi", {}).get("effective_route_context")
    template = getattr(context, "path_format", None)
    if template is None:
        route = scope.get("route")
        template = getattr(route, "path_format", None) or getattr(route, "path", None)
    return template or UNMATCHED


def _level(route: str, status: int) -> int:
    if status >= 500:
        return logging.WARNING
    return logging.DEBUG if route in QUIET_ROUTES else logging.INFO
