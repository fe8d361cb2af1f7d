"""A bound on a request's head and on the trailers behind its body. Without it a header could grow for ever.

A head has a time as well, until it is whole.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from commonplace.server.http.access.hosts import GUARDS
from commonplace.wire.problems import BY_CODE, MEDIA_TYPE, problem

MAX_BYTES = 64_000
SECONDS = 20.0
LINGER_SECONDS = 2.0
"""How long what still comes is thrown away before the connection ends: to end it at once would undo our answer."""


class BoundedHeads(HttpToolsProtocol):
    """For `uvicorn.Config(http=…)`. A head that is too long is answered; one that does not come is not.

    Trailers that are too long end the connection: the answer may be out already.
    """

    _head_bytes = 0
    _piece_bytes = 0
    _is_counting = False
    _has_head = False
    _is_refused = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._piece_bytes = len(data)
        super().data_received(data)
        if self._is_counting and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_BYTES:
                self._refuse_length()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_head = False
        self._begin_counting()
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head it is a trailer, which nobody reads: kept, they would add up.
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_counting = False
        self._has_head = True
        self._stop_head_timer()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_BYTES:
            self._refuse_head()
            return
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        # Before every chunk, also before the last one: after that no body ends the counting, and trailers may come.
        self._begin_counting()

    def on_body(self, body: bytes) -> None:
        self._is_counting = False
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_counting = False
        if not self._is_refused:
            super().on_message_complete()

    def _begin_counting(self) -> None:
        # From the next piece on: this one may hold a body as well, and is bounded by the socket's buffer.
        self._is_counting = True
        self._head_bytes = -self._piece_bytes

    def _refuse_length(self) -> None:
        if self._has_head:
            self._is_refused = True
            self.transport.close()
        else:
            self._refuse_head()

    def _await_head(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(SECONDS, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_head(self) -> None:
        detail = f"the headers and the address are longer than {MAX_BYTES:,} bytes; send less, or send it as a body"
        self._write("headers_too_large", "Request Header Fields Too Large", detail)
        self.transport.write_eof()
        self._is_refused = True
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """What the server underneath says of a request that is not HTTP, as a problem like others."""
        self._write("invalid_request", "Bad Request", "this is not a request of HTTP/1.1; check what sends it")
        self.transport.close()

    def _write(self, code: str, reason: str, detail: str) -> None:
        kind = BY_CODE[code]
        body = json.dumps(problem(kind, detail)).encode()
        headers = {"Content-Type": MEDIA_TYPE, "Content-Length": len(body), "Connection": "close", **GUARDS}
        head = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 {kind.status} {reason}\r\n{head}\r\n".encode() + body)
