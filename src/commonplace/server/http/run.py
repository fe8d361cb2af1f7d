"""`commonplace serve`: uvicorn on a socket, with limits on request heads and a stop that loses no request."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from sse_starlette.sse import AppStatus
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from commonplace.api.problems import BY_CODE, MEDIA_TYPE, problem
from commonplace.errors import ConfigurationError, Unavailable
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import make_gate
from commonplace.server.http.origins import SECURITY_HEADERS
from commonplace.server.http.service import Service
from commonplace.server.logs import configure_service_logging
from commonplace.settings import Settings, open_from_settings

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 75
MAX_HEADER_BYTES = 64_000
MAX_HEAD_BYTES = 64_000
HEAD_SECONDS = 20.0
LINGER_SECONDS = 2.0
"""How long a refused request is still read and dropped. If we closed at once, the client would lose our answer."""

IDLE_SECONDS = 0.5
"""How long an idle connection stays open during a stop, so that a request already on its way is not cut off."""

LOOK_SECONDS = 0.02


def run(settings: Settings, *, key_command: str, ready: Callable[[Service, str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. Calls `ready` with the address; `key_command` is shown to those who need a key."""
    configure_service_logging(settings.log_level)
    with open_from_settings(settings, background=True) as book:
        service = Service(book, make_gate(book, settings, key_command), settings)

        def report() -> None:
            address = settings.public_url or _address(settings.host, listening)
            ready(service, address.rstrip("/"))

        server = GracefulServer(_config(service), report)
        with _signals_to(server), _listening(settings) as listening:
            server.run(sockets=[listening])


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    host, port = settings.host.strip("[]"), settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(f"port {port} of {host} is in use; choose another with --port") from error
        if error.errno == errno.EACCES:
            raise ConfigurationError(f"port {port} needs root; choose a port above 1023 with --port") from error
        raise ConfigurationError(f"cannot listen on {host} port {port}: {error.strerror}; see --host") from error
    with listening:
        yield listening


def _address(host: str, listening: socket.socket) -> str:
    named = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    return f"http://{f'[{named}]' if ':' in named else named}:{listening.getsockname()[1]}"


def _config(service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(service),
        **UVICORN,  # type: ignore[arg-type]
        lifespan="on",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=service.settings.stop_seconds,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


@contextmanager
def _signals_to(server: uvicorn.Server) -> Iterator[None]:
    """Send SIGTERM and SIGINT to the server, also before and after it handles signals itself.

    After it has stopped, uvicorn raises the signal again. That arrives here too, and the program exits with 0.
    """
    former = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class GracefulServer(uvicorn.Server):
    """Answers all requests that were sent to it before it stops; for the app of `build_app`. Calls `ready` once."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] | None = None) -> None:
        super().__init__(config)
        self._ready = ready
        # Otherwise every event stream is cut within half a second, also an MCP call's. `LimitsMiddleware` ends those
        # that listen.
        AppStatus.enable_automatic_graceful_drain = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._ready is not None:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no new connections, answer on the open ones, closing each after its answer, then close the idle ones.

        uvicorn closes idle connections at once and loses a request that a client has just sent on one.
        """
        app = self.config.app
        assert isinstance(app, FastAPI)
        app.state.work.stop()
        for listener in self.servers:
            listener.close()
        for listening in sockets or ():
            listening.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + IDLE_SECONDS
        while self.server_state.connections and loop.time() < deadline and not self.force_exit:
            await asyncio.sleep(LOOK_SECONDS)
        await super().shutdown(sockets)


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a limit on the head of a request and on the trailers after its body.

    A head that is too long is answered with a problem. A head that does not arrive in time, or trailers that are too
    long, close the connection.
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
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_length()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_head = False
        self._begin_counting()
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head it is a trailer. Nobody reads those, so they are not collected.
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_counting = False
        self._has_head = True
        self._stop_head_timer()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self._refuse_head()
            return
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        # Before every chunk. After the last one no body ends the counting, and trailers may follow.
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
        # From the next piece on: this one may also hold a body, and is limited by the buffer of the socket.
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
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_head(self) -> None:
        detail = f"the headers and the URL are longer than {MAX_HEAD_BYTES:,} bytes; send less, or send it as a body"
        self._write("headers_too_large", "Request Header Fields Too Large", detail)
        self.transport.write_eof()
        self._is_refused = True
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this for a request that is not HTTP. Answer with a problem."""
        self._write("invalid_request", "Bad Request", "this is not an HTTP/1.1 request; check the client")
        self.transport.close()

    def _write(self, code: str, reason: str, detail: str) -> None:
        kind = BY_CODE[code]
        body = json.dumps(problem(kind, detail)).encode()
        headers = {"Content-Type": MEDIA_TYPE, "Content-Length": len(body), "Connection": "close", **SECURITY_HEADERS}
        head = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 {kind.status} {reason}\r\n{head}\r\n".encode() + body)


UVICORN = {"http": BoundedHttpProtocol, "log_config": None, "access_log": False}
"""Options for `uvicorn.Config`: our protocol, our loggers, and not its access log, which shows queries."""
