"""The server over streamable HTTP, as an ASGI app: `/mcp`, and `/mcp/PROFILE` for each profile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route

from commonplace.book import Book
from commonplace.server.mcp.app import Run, build_server, run_in_thread
from commonplace.server.mcp.framing import MAX_LINE_BYTES
from commonplace.server.mcp.memory import ACTOR, Memory
from commonplace.server.mcp.posts import Posts
from commonplace.server.mcp.profiles import PROFILES, Profile

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_SESSIONS = 10_000
IDLE_SECONDS = 30 * 60


def build_app(
    book: Book, namespace: Sequence[str], *, limits: tuple[int, int], host: str, is_stateless: bool
) -> Starlette:
    memory = Memory(lambda: book.space(*namespace, actor=ACTOR), default_limit=limits[0], max_limit=limits[1])
    addresses: dict[str, Profile] = {"/mcp": "records", **{f"/mcp/{profile}": profile for profile in PROFILES}}
    security = _own_pages_only() if host in LOOPBACK else None
    managers = {
        path: session_manager(memory, profile, security=security, is_stateless=is_stateless)
        for path, profile in addresses.items()
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as running:
            for manager in managers.values():
                await running.enter_async_context(manager.run())
            yield

    routes = [Route(path, endpoint=StreamableHTTPASGIApp(manager)) for path, manager in managers.items()]
    return Starlette(routes=routes, lifespan=lifespan)


def session_manager(
    memory: Memory,
    profile: Profile,
    *,
    security: TransportSecuritySettings | None = None,
    is_stateless: bool = False,
    max_sessions: int = MAX_SESSIONS,
    run: Run = run_in_thread,
) -> StreamableHTTPSessionManager:
    """The sessions of one memory and one profile, and nobody else's. `run` it before the first request."""
    manager = StreamableHTTPSessionManager(
        build_server(memory, profile, run=run),
        stateless=is_stateless,
        security_settings=security,
        session_idle_timeout=IDLE_SECONDS,
        max_request_body_size=MAX_LINE_BYTES,  # the service's own limit comes before
        max_sessions=max_sessions,
    )
    manager.asgi_app.app = Posts(manager.asgi_app.app)  # within its limit on bodies
    return manager


def _own_pages_only() -> TransportSecuritySettings:
    """A web page may send requests to this computer's own address; its Origin, or a rebound Host, gives it away."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[pattern for name in names for pattern in (name, f"{name}:*")],
        allowed_origins=[pattern for name in names for pattern in (f"http://{name}", f"http://{name}:*")],
    )
