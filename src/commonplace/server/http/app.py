"""The ASGI app of `commonplace serve`: its routes, and the middleware around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace import __version__
from commonplace.server import page
from commonplace.server.http import error_answers, mastra_routes, memory_store_routes, rest
from commonplace.server.http import html_pages as pages
from commonplace.server.http.answers import describe_parameters, documented
from commonplace.server.http.auth_middleware import AuthMiddleware, EventStreams, metadata_router, recorded_key_uses
from commonplace.server.http.error_answers import is_mcp
from commonplace.server.http.mcp_http import McpEndpoint
from commonplace.server.http.oauth import PATH as OAUTH_PATH
from commonplace.server.http.oauth import oauth_router
from commonplace.server.http.observability import (
    ErrorMiddleware,
    Metrics,
    Readiness,
    RequestLogMiddleware,
    TracingMiddleware,
    health_router,
    make_provider,
    metrics_router,
    trace_store,
)
from commonplace.server.http.request_limits import LimitsMiddleware, RequestLimits, Shares, Work
from commonplace.server.http.service import Service
from commonplace.server.http.worker_threads import StoreThreads
from commonplace.server.mcp.server import ToolCalls
from commonplace.server.page.page_middleware import PageMiddleware

OPEN_PATHS = ("/", "/openapi.json", "/docs", "/.well-known/*", f"{OAUTH_PATH}/*", *page.OPEN_PATHS)
"""They need no key, and reveal nothing about the memory."""

WITHOUT_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""For `FastAPI(telemetry=…)`: its own spans have URLs and queries, and its logs have what was refused."""

_EXPOSED_HEADERS = ("ETag", "Link", "Location", "Mcp-Session-Id", "Retry-After", "WWW-Authenticate", "X-Request-Id")
_SECURITY: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `commonplace keys create`, or a token."},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key."},
}


def build_app(service: Service, *, is_only_mcp: bool = False, is_stateless: bool = False) -> FastAPI:
    """The app of a service. It does not close the book.

    With `is_only_mcp` it has only the routes of MCP, behind the same middleware. With `is_stateless` it keeps no MCP
    sessions. Call `app.state.work.stop()` when the server begins to stop.
    """
    work = Work(Shares(service.settings.max_requests), Shares(service.settings.max_streams))
    tool_calls: ToolCalls = Counter()
    metrics = Metrics(service.book, work, tool_calls)
    threads = StoreThreads(service.book.store)
    mcp = McpEndpoint(service, threads, tool_calls, is_stateless=is_stateless)
    streams = EventStreams(service.access)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with recorded_key_uses(service.access.keys), streams.run(), mcp.sessions.run():
            service.book.searcher.observe = service.searches.count
            service.searches.start()
            yield
        await run_sync(service.searches.close)
        if (signals := getattr(app.state, "signals", None)) is not None:
            await run_sync(signals.close)

    app = FastAPI(
        title="commonplace",
        version=__version__,
        openapi_url=None if is_only_mcp else "/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would redirect the caller, with its key, to http:// and to any Host it named
        lifespan=lifespan,
        telemetry=WITHOUT_TELEMETRY,
    )
    app.state.service = service
    app.state.work = work
    error_answers.install(app)
    if not is_only_mcp:
        _add_routes(app, service, work, metrics)
    app.router.routes += mcp.routes()
    _add_middleware(app, service, work, metrics, streams, threads)
    return app


def _add_routes(app: FastAPI, service: Service, work: Work, metrics: Metrics) -> None:
    probes = (health_router(Readiness(service.book, work)), metrics_router(metrics, service, documented(None)))
    # Added as they are, not by `include_router`: routes of an included router are matched twice for each request.
    app.router.routes[:0] = [route for router in probes for route in router.routes]
    app.router.routes.append(page.PageRoutes())
    app.router.routes += rest.router.routes
    app.include_router(mastra_routes.router)
    app.include_router(memory_store_routes.router)
    app.include_router(pages.router)
    app.include_router(metadata_router(service.settings))
    if service.access.has_oauth:
        app.include_router(oauth_router(service.access.grants, service.settings.public_url))
    _complete_description(app)


def _complete_description(app: FastAPI) -> None:
    """Describe every parameter, and add the ways to authenticate. A book without keys needs none of them."""
    describe = app.openapi

    def described() -> dict[str, Any]:
        form = describe_parameters(describe())
        form["components"]["securitySchemes"] = _SECURITY
        form["security"] = [{}, *({name: []} for name in _SECURITY)]
        return form

    app.openapi = described  # type: ignore[method-assign]


def _add_middleware(
    app: FastAPI, service: Service, work: Work, metrics: Metrics, streams: EventStreams, threads: StoreThreads
) -> None:
    """Add the middleware, the innermost first."""
    settings = service.settings
    app.add_middleware(HeadMiddleware)
    app.add_middleware(
        AuthMiddleware,
        within=app,
        gate=service.access,
        streams=streams,
        threads=threads,
        open_paths=(*OPEN_PATHS, "/metrics") if settings.metrics_open else OPEN_PATHS,
        origins=settings.cors_origins,
        public_url=settings.public_url,
    )
    limits = RequestLimits(body_bytes=settings.max_body_bytes, seconds=settings.request_seconds)
    app.add_middleware(LimitsMiddleware, limits=limits, work=work, count=metrics.count_refusal)
    app.add_middleware(ErrorMiddleware)
    if settings.cors_origins:
        # Outside of authentication, because a preflight request has no credentials, and outside of all refusals and
        # failures, because a page could not read them otherwise.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    app.add_middleware(PageMiddleware)
    if settings.tracing:
        tracer = make_provider().get_tracer("commonplace")
        trace_store(service.book, tracer)
        app.add_middleware(TracingMiddleware, tracer=tracer)
    app.add_middleware(RequestLogMiddleware, metrics=metrics, work=work)


class HeadMiddleware:
    """ASGI middleware: answers HEAD like GET, without the body, for load balancers and caches. Not at `/mcp`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or is_mcp(scope["path"]):
            await self._app(scope, receive, send)
            return
        has_ended = False

        async def send_without_body(message: Message) -> None:
            nonlocal has_ended
            if message["type"] != "http.response.body":
                await send(message)
                return
            has_ended = True
            await send({"type": "http.response.body", "body": b""})
            if message.get("more_body", False):
                raise ClientDisconnect  # end a stream or an export, whose body nobody reads

        get = {**scope, "method": "GET"}
        try:
            await self._app(get, receive, send_without_body)
        except ClientDisconnect:
            if not has_ended:
                raise
        finally:
            scope.update(get, method="HEAD")  # the log and the metrics read the matched route from the scope
