"""The service put together: limits and logs outside, then who may call, then the routes, all on one book."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI

from commonplace import __version__
from commonplace.server.http import mastra, operation, page, problems, reference, rest
from commonplace.server.http.access.metadata import metadata_router
from commonplace.server.http.access.middleware import Callers
from commonplace.server.http.access.noting import noting_uses
from commonplace.server.http.access.streams import Streams
from commonplace.server.http.bodiless import HeadAsGet
from commonplace.server.http.mcp_mount import McpMount
from commonplace.server.http.operation.threads import StoreThreads
from commonplace.server.http.service import Service
from commonplace.server.mcp.app import ToolCalls

OPEN_PATHS = ("/", "/openapi.json", "/docs", "/.well-known/*")
"""What anybody may ask for: nothing that a memory holds."""

_SECURITY: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `commonplace keys create`, or a token."},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key."},
}


def build_app(service: Service, *, is_only_mcp: bool = False, is_stateless: bool = False) -> FastAPI:
    """The ASGI app of a service. It does not close the book.

    With `is_only_mcp` it has no routes but those of MCP, behind the same checks and limits. `is_stateless` keeps no MCP
    sessions.
    """
    settings = service.settings
    threads = StoreThreads(service.book.store)
    tool_calls: ToolCalls = Counter()
    mcp = McpMount(service, threads, tool_calls, is_stateless=is_stateless)
    streams = Streams(service.access)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with noting_uses(service.access.keys), streams.run(), mcp.rooms.run():
            yield
        if (bells := getattr(app.state, "bells", None)) is not None:
            await run_sync(bells.close)

    app = FastAPI(
        title="commonplace",
        version=__version__,
        openapi_url=None if is_only_mcp else "/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would send the caller, with its key, to http:// and to whatever Host it named
        lifespan=lifespan,
        telemetry=operation.WITHOUT_TELEMETRY,
    )
    app.state.service = service
    problems.install(app)
    if not is_only_mcp:
        # As they are: the routes of an included router are looked through twice before each request.
        app.router.routes += rest.router.routes
        app.include_router(mastra.router)
        app.include_router(page.router)
        app.include_router(reference.router)
        app.include_router(metadata_router(settings))
        _describe_access(app)
    app.router.routes += mcp.routes()
    app.add_middleware(HeadAsGet)
    app.add_middleware(
        Callers,
        within=app,
        gate=service.access,
        streams=streams,
        threads=threads,
        open_paths=(*OPEN_PATHS, *operation.open_paths(settings)),
        origins=settings.cors_origins,
        public_url=settings.public_url,
    )
    operation.install(app, service, tool_calls, has_routes=not is_only_mcp)
    return app


def _describe_access(app: FastAPI) -> None:
    """Add to the description how a caller shows who it is; a book without keys needs neither."""
    describe = app.openapi

    def described() -> dict[str, Any]:
        form = describe()
        form["components"]["securitySchemes"] = _SECURITY
        form["security"] = [{}, *({name: []} for name in _SECURITY)]
        return form

    app.openapi = described  # type: ignore[method-assign]
