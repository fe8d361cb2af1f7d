"""Operation of the service: health, metrics, logs, traces, limits and CORS, put around an app by `install`."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware.cors import CORSMiddleware

from commonplace.server.http.operation.heads import BoundedHeads
from commonplace.server.http.operation.health import Readiness, health_router
from commonplace.server.http.operation.limiting import Limiting, RequestLimits
from commonplace.server.http.operation.logs import configure_service_logging
from commonplace.server.http.operation.metrics import Metrics, metrics_router
from commonplace.server.http.operation.observing import Failing, Observing
from commonplace.server.http.operation.work import Shares, Work
from commonplace.server.http.service import Service
from commonplace.server.mcp.app import ToolCalls
from commonplace.settings import Settings

__all__ = ["UVICORN", "WITHOUT_TELEMETRY", "configure_service_logging", "install", "open_paths"]

UVICORN = {"http": BoundedHeads, "log_config": None, "access_log": False}
"""Options for `uvicorn.Config`: heads are bounded, its loggers are left to ours, its access log shows queries: off."""

WITHOUT_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""For `FastAPI(telemetry=…)`: its own spans carry paths and queries, and its logs carry what was refused."""

_SHOWN_TO_PAGES = ("ETag", "Link", "Location", "Mcp-Session-Id", "Retry-After", "WWW-Authenticate", "X-Request-Id")


def open_paths(settings: Settings) -> tuple[str, ...]:
    """What needs no key, beside health."""
    return ("/metrics",) if settings.metrics_open else ()


def install(app: FastAPI, service: Service, tool_calls: ToolCalls, *, has_routes: bool = True) -> Work:
    """Add the routes and, outside of all that was added before, the middlewares. Call it last.

    `stop()` of what it gives is to be called when the server begins to stop.
    """
    settings = service.settings
    work = Work(Shares(settings.max_requests), Shares(settings.max_streams))
    metrics = Metrics(service.book, work, tool_calls)
    if has_routes:
        # First, and as they are: an included router is matched several times over, after all that stands before it.
        operated = (health_router(Readiness(service.book, work)), metrics_router(metrics, service))
        app.router.routes[:0] = [route for router in operated for route in router.routes]
    limits = RequestLimits(body_bytes=settings.max_body_bytes, seconds=settings.request_seconds)
    app.add_middleware(Limiting, limits=limits, work=work, count=metrics.count_refusal)
    app.add_middleware(Failing)
    if settings.cors_origins:
        # Outside of who may call: a browser asks beforehand, and sends no credentials with that. And outside of all
        # refusals and failures: a page could not read them.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_SHOWN_TO_PAGES,
        )
    if settings.tracing:
        from commonplace.server.http.operation.tracing import Tracing, make_provider, trace_store

        tracer = make_provider().get_tracer("commonplace")
        trace_store(service.book, tracer)
        app.add_middleware(Tracing, tracer=tracer)
    app.add_middleware(Observing, metrics=metrics, work=work)
    app.state.work = work
    return work
