"""Limits before any route: the size of a body, the time until an answer, the number of requests and streams at once.

A request over a limit is answered with a problem, and its connection stays usable. Work in a worker thread cannot be
interrupted: after a timeout the caller gets its answer, and the request still counts until the work has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.api.problems import BY_CODE, MEDIA_TYPE, problem
from commonplace.server.http.error_answers import is_mcp, mcp_error

UNLIMITED_BODIES = frozenset(("/v1/import", "/v1/import-memory", "/ui/import"))
"""Read as a stream, never held in memory as a whole."""

UNLIMITED = frozenset(("/healthz", "/readyz", "/metrics"))
"""Monitoring must work on an overloaded server. These take no body and answer in bounded time."""

DISCONNECT: Message = {"type": "http.disconnect"}
_EVENT_STREAM = b"text/event-stream"
_LISTENING = (b"mcp-method", b"subscriptions/listen")
_SHARE = "this caller already has its share"


# What the server is doing now


class Shares:
    """Places of which one caller may hold as many as are still free: one caller half of them, two callers two thirds.

    So there is a place for the next caller. The caller None has no limit.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._held: Counter[str] = Counter()

    def take(self, caller: str | None) -> bool:
        """Take a place; False if there is none for this caller."""
        free = self.most - self.taken
        if free <= 0 or (caller is not None and self._held[caller] >= free):
            return False
        self.taken += 1
        if caller is not None:
            self._held[caller] += 1
        return True

    def give(self, caller: str | None) -> None:
        """Return a place."""
        self.taken -= 1
        if caller is not None:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]


@dataclass
class Work:
    """Requests in progress, open streams, and whether the server is stopping. Used on the event loop only."""

    requests: Shares
    """Requests without an answer yet; a stream counts only until it begins."""
    streams: Shares
    is_stopping: bool = False
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """From now on the server is not ready, every answer closes its connection, and streams end."""
        self.is_stopping = True
        self._stop.set()

    async def until_stop(self) -> None:
        await self._stop.wait()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A problem that is sent before or instead of a route's answer. `retry_after_seconds` becomes the header.

    With `over_mcp`, one that may be retried is sent as a JSON-RPC error, which MCP clients show.
    """

    code: str
    detail: str
    retry_after_seconds: int | None = None

    async def send(self, send: Send, *, request_id: str | None = None, over_mcp: bool = False) -> None:
        kind = BY_CODE[self.code]
        form = problem(kind, self.detail, None if request_id is None else {"request_id": request_id})
        is_rpc = over_mcp and self.retry_after_seconds is not None
        body = json.dumps(mcp_error(form) if is_rpc else form).encode()
        media_type = b"application/json" if is_rpc else MEDIA_TYPE.encode()
        headers = [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
        if self.retry_after_seconds is not None:
            headers.append((b"retry-after", str(self.retry_after_seconds).encode()))
        await send({"type": "http.response.start", "status": kind.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


# The middleware


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """`seconds` count until the answer begins, and restart with every piece of the body."""

    body_bytes: int = 32_000_000
    seconds: float = 60.0


def claim(scope: Scope, caller: str | None) -> Refusal | None:
    """Count a request against its caller's share, once the caller is known; a refusal if the share is used up."""
    exchange = scope.get("state", {}).get("exchange")
    return exchange.claim(caller) if isinstance(exchange, _Exchange) else None


def is_event_stream(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(_EVENT_STREAM) for name, value in start["headers"])


class LimitsMiddleware:
    """ASGI middleware that enforces the limits, and ends streams when the server stops."""

    def __init__(self, app: ASGIApp, *, limits: RequestLimits, work: Work, count: Callable[[str], None]) -> None:
        self._app = app
        self.limits = limits
        self.work = work
        self.count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNLIMITED:
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, receive, send)
        refusal = exchange.admission(scope)
        if refusal is not None:
            await exchange.refuse(refusal)
            return
        scope.setdefault("state", {})["exchange"] = exchange
        exchange.begin()
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            # The route failed because we cut its body short; the caller has its answer.
            if not exchange.is_refused:
                raise
        finally:
            exchange.end()
        await exchange.complete()


class _Exchange:
    """One request and its answer."""

    __slots__ = (
        "_answering",
        "_body_left",
        "_caller",
        "_count",
        "_ends_by_itself",
        "_has_all",
        "_has_begun",
        "_has_ended",
        "_is_mcp",
        "_is_stream",
        "_limits",
        "_receive",
        "_send",
        "_timer",
        "_work",
        "is_refused",
    )

    def __init__(self, within: LimitsMiddleware, receive: Receive, send: Send) -> None:
        self._limits = within.limits
        self._work = within.work
        self._count = within.count
        self._receive = receive
        self._send = send
        self._body_left: float = within.limits.body_bytes
        self._caller: str | None = None
        self._has_all = False
        self._has_begun = False
        self._has_ended = False
        self._is_mcp = False
        self._is_stream = False
        self._ends_by_itself = False
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self.is_refused = False

    def admission(self, scope: Scope) -> Refusal | None:
        # An MCP call is also answered as an event stream, but it is a normal request unless it listens.
        self._ends_by_itself = scope["method"] == "POST" and _LISTENING not in scope["headers"]
        self._is_mcp = is_mcp(scope["path"])
        requests = self._work.requests
        if requests.taken >= requests.most:
            return Refusal("overloaded", f"{requests.most:,} requests are in progress; try again soon", 1)
        if scope["path"] in UNLIMITED_BODIES:
            self._body_left = float("inf")
            return None
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._body_left:
                return self._too_large()
        return None

    def _too_large(self) -> Refusal:
        most = self._limits.body_bytes
        return Refusal("too_large", f"the body is larger than {most:,} bytes, the limit; send less")

    async def refuse(self, refusal: Refusal) -> None:
        """Answer instead of the route; what the route still sends is dropped."""
        self._stop_timer()
        self.is_refused = True
        if refusal.code != "too_large":  # counted by its status
            self._count(refusal.code)
        await refusal.send(self._send, over_mcp=self._is_mcp)

    # The time and the share that a request uses

    def begin(self) -> None:
        self._work.requests.take(None)
        self._restart_timer()

    def claim(self, caller: str | None) -> Refusal | None:
        """Count the request against its caller's share, or refuse it."""
        requests = self._work.requests
        requests.give(self._caller)
        if requests.take(caller):
            self._caller = caller
            return None
        self._caller = None
        requests.take(None)
        self._count("overloaded")
        return Refusal("overloaded", f"{_SHARE} of the requests in progress; try again soon", 1)

    def end(self) -> None:
        self._stop_timer()
        (self._work.streams if self._is_stream else self._work.requests).give(self._caller)

    def _restart_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._limits.seconds, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        detail = (
            f"there was no answer within {self._limits.seconds:g} s, but the request may still complete; "
            "check before you repeat it, or repeat it with the same Idempotency-Key"
        )
        self.is_refused = True
        self._answering = asyncio.ensure_future(self.refuse(Refusal("timeout", detail)))

    async def complete(self) -> None:
        """After the route: wait for the refusal, and end a stream that the stop of the server has cut short."""
        if self._answering is not None:
            await self._answering
        if self._is_stream and self._work.is_stopping and not self._has_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    # Messages in and out

    async def receive(self) -> Message:
        if self.is_refused:
            return DISCONNECT
        if self._has_all:
            return await self._gone_or_stopping()
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        self._has_all = not message.get("more_body", False)
        self._body_left -= len(message.get("body", b""))
        if self._body_left < 0 and not self._has_begun:
            await self.refuse(self._too_large())
            return DISCONNECT
        if self._timer is not None:
            self._restart_timer()
        return message

    async def _gone_or_stopping(self) -> Message:
        """After the body, wait for the end of the connection or the stop of the server."""
        gone = asyncio.ensure_future(self._receive())
        stopping = asyncio.ensure_future(self._work.until_stop())
        try:
            await asyncio.wait((gone, stopping), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                return gone.result()
            if self._is_stream:
                return DISCONNECT
            return await gone
        finally:
            gone.cancel()
            stopping.cancel()

    async def send(self, message: Message) -> None:
        if self.is_refused:
            return
        if message["type"] == "http.response.start":
            self._stop_timer()
            self._has_begun = True
            if is_event_stream(message) and not self._ends_by_itself and not await self._begin_stream():
                return
        elif not message.get("more_body", False):
            self._has_ended = True
        await self._send(message)

    async def _begin_stream(self) -> bool:
        """A stream stays open for hours, so it counts as a stream and no longer as a request."""
        streams = self._work.streams
        if self._work.is_stopping:
            await self.refuse(Refusal("overloaded", "this server is stopping; connect again", 1))
            return False
        if not streams.take(self._caller):
            full = f"all {streams.most:,} streams are in use; try again later"
            detail = full if streams.taken >= streams.most else f"{_SHARE} of the streams; close one of yours first"
            await self.refuse(Refusal("overloaded", detail, 10))
            return False
        self._is_stream = True
        self._work.requests.give(self._caller)
        return True
