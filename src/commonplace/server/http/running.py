"""`commonplace serve`, put together: who may call, the socket, and a server that stops in good order."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from commonplace.book import Book
from commonplace.errors import ConfigurationError, Unavailable
from commonplace.server.http.access.gate import Defaults, Gate
from commonplace.server.http.access.hosts import is_loopback
from commonplace.server.http.access.keys import LOCAL, Keys
from commonplace.server.http.access.rates import Rate
from commonplace.server.http.access.tokens import Tokens, TokenSettings
from commonplace.server.http.app import build_app
from commonplace.server.http.operation import UVICORN, configure_service_logging
from commonplace.server.http.operation.stopping import GracefulServer
from commonplace.server.http.principal import Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings, open_from_settings
from commonplace.space.rules import Rules

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 75
MAX_HEADER_BYTES = 64_000


def run(settings: Settings, *, key_command: str, ready: Callable[[Service, str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `ready` is told the address. `key_command` makes a key, for whoever needs one."""
    configure_service_logging(settings.log_level)
    with open_from_settings(settings, background=True) as book:
        service = Service(book, make_gate(book, settings, key_command), settings)

        def tell() -> None:
            address = settings.public_url or _address(settings.host, listening)
            ready(service, address.rstrip("/"))

        server = _Server(_config(service), tell)
        with _signals_to(server), _listening(settings) as listening:
            server.run(sockets=[listening])


def make_gate(book: Book, settings: Settings, key_command: str = "commonplace keys create NAME") -> Gate:
    """Who may call, by the settings; refuses a service that would be open to other computers."""
    keys, tokens = Keys(book.store), _tokens(settings)
    defaults = Defaults(
        rate=None if settings.rate is None else Rate.parse(settings.rate),
        max_entries=settings.max_entries,
        max_bytes=settings.max_bytes,
    )
    has_keys = keys.any()
    if is_loopback(settings.host):
        rules = Rules(max_entries=defaults.max_entries, max_bytes=defaults.max_bytes)
        return Gate(keys, Principal(LOCAL, settings.namespace_labels, "all", rules), tokens, defaults)
    if tokens is None and not has_keys:
        raise ConfigurationError(
            f"other computers could reach {settings.host}, and the book has no keys: make one first with "
            f"`{key_command}`, or listen on 127.0.0.1"
        )
    return Gate(keys, None, tokens, defaults)


def _tokens(settings: Settings) -> Tokens | None:
    if settings.jwt_jwks is None:
        others = (settings.jwt_audience, settings.jwt_issuer, settings.jwt_actions_claim)
        if any(others) or settings.jwt_namespace != Settings.jwt_namespace:
            raise ConfigurationError("tokens need the issuer's keys too: give --jwt-jwks FILE or an https:// address")
        return None
    if settings.jwt_audience is None or settings.jwt_issuer is None:
        # Without them a token that was made for another service of the same issuer would open this one.
        raise ConfigurationError("tokens need --jwt-audience and --jwt-issuer beside --jwt-jwks")
    return Tokens(
        TokenSettings(
            settings.jwt_jwks,
            settings.jwt_audience,
            settings.jwt_issuer,
            settings.jwt_namespace,
            settings.jwt_actions_claim,
        )
    )


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
            raise ConfigurationError(f"port {port} is not for you; choose one above 1023 with --port") from error
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


class _Server(GracefulServer):
    """Tells when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


@contextmanager
def _signals_to(server: uvicorn.Server) -> Iterator[None]:
    """A stop is the server's to obey, from before it takes its own hold of signals until after it gives that up.

    Once it has stopped, it raises again what it was sent: that comes here too, and the program ends well.
    """
    former = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
