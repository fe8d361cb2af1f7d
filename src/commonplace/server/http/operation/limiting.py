"""Limits that hold before any route: how large a body, how long an answer takes, how many requests at once.

A request that passes one is answered with a problem, completely, and the connection stays usable. Work that has begun
in a worker thread cannot be taken back: where its time is over, the caller is told, and its place stays taken until it
has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.server.http.operation.refusals import Refusal
from commonplace.server.http.operation.work import Work
from commonplace.server.http.problems import is_mcp

UNLIMITED_BODIES = frozenset(("/v1/import",))
"""Read as a stream and never held whole."""

UNLIMITED = frozenset(("/healthz", "/readyz", "/metrics"))
"""Whoever watches an overloaded server must still see it; these take no body and answer in bounded time."""

DISCONNECT: Message = {"type": "http.disconnect"}
_EVENT_STREAM = b"text/event-stream"
_LISTENING = (b"mcp-method", b"subscriptions/listen")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """`seconds` count until the answer begins, and anew with every piece of the body that comes in."""

    body_bytes: int = 32_000_000
    seconds: float = 60.0


_SHARE = "this access has its share"


def claim(scope: Scope, caller: str | None) -> Refusal | None:
    """Count a request under the name of its caller, or tell why it is one too many; for whoever knows the caller."""
    exchange = scope.get("state", {}).get("exchange")
    return exchange.claim(caller) if isinstance(exchange, _Exchange) else None


class Limiting:
    """ASGI middleware that keeps the limits, and ends streams when the server stops."""

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
            # What a route makes of a body that we cut short; the caller has its answer.
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

    def __init__(self, within: Limiting, receive: Receive, send: Send) -> None:
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
        # An MCP call is answered as a stream of events as well; it is a request like others, unless it listens.
        self._ends_by_itself = scope["method"] == "POST" and _LISTENING not in scope["headers"]
        self._is_mcp = is_mcp(scope["path"])
        requests = self._work.requests
        if requests.taken >= requests.most:
            return Refusal("overloaded", f"{requests.most:,} requests are under way; try again soon", 1)
        if scope["path"] in UNLIMITED_BODIES:
            self._body_left = float("inf")
            return None
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._body_left:
                return self._too_large()
        return None

    def _too_large(self) -> Refusal:
        most = self._limits.body_bytes
        return Refusal("too_large", f"the body is larger than {most:,} bytes, the most that is taken; send less")

    async def refuse(self, refusal: Refusal) -> None:
        """Answer in the route's place; what it still sends goes nowhere."""
        self._stop_timer()
        self.is_refused = True
        if refusal.code != "too_large":  # counted by its status
            self._count(refusal.code)
        await refusal.send(self._send, over_mcp=self._is_mcp)

    # The time and the place that a request takes

    def begin(self) -> None:
        self._work.requests.take(None)
        self._restart_timer()

    def claim(self, caller: str | None) -> Refusal | None:
        """Now that it is known whose the request is: count it as this caller's, or refuse it as one too many."""
        requests = self._work.requests
        requests.give(self._caller)
        if requests.take(caller):
            self._caller = caller
            return None
        self._caller = None
        requests.take(None)
        self._count("overloaded")
        return Refusal("overloaded", f"{_SHARE} of the requests that may be under way; try again soon", 1)

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
            f"there was no answer within {self._limits.seconds:g} s; what was asked for may still be done: "
            "look before you send it again, or send it again with the same Idempotency-Key"
        )
        self.is_refused = True
        self._answering = asyncio.ensure_future(self.refuse(Refusal("timeout", detail)))

    async def complete(self) -> None:
        """The route has returned: the answer is out, and a stream that was cut short for a stop has a proper end."""
        if self._answering is not None:
            await self._answering
        if self._is_stream and self._work.is_stopping and not self._has_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    # What passes in and out

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
        """Asked for after the body, receiving waits for the end of the connection, or for that of the server."""
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
            if _is_event_stream(message) and not self._ends_by_itself and not await self._begin_stream():
                return
        elif not message.get("more_body", False):
            self._has_ended = True
        await self._send(message)

    async def _begin_stream(self) -> bool:
        """A stream stays open for hours: it leaves its place among the requests and takes one among the streams."""
        streams = self._work.streams
        if self._work.is_stopping:
            await self.refuse(Refusal("overloaded", "this server is stopping; connect again", 1))
            return False
        if not streams.take(self._caller):
            full = f"all {streams.most:,} places for streams are taken; try again later"
            detail = full if streams.taken >= streams.most else f"{_SHARE} of the streams; end one of yours first"
            await self.refuse(Refusal("overloaded", detail, 10))
            return False
        self._is_stream = True
        self._work.requests.give(self._caller)
        return True


def _is_event_stream(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(_EVENT_STREAM) for name, value in start["headers"])
