"""Traces for OpenTelemetry, where the settings ask for them: a span a request, and one for each call of the store.

No attribute holds an address, a query, a key or a text. Where traces are off, nothing of this is loaded or called.
Where to send them is told by the variables of OpenTelemetry itself, such as `OTEL_EXPORTER_OTLP_ENDPOINT`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace import __version__
from commonplace.book import Book
from commonplace.errors import ConfigurationError, install_command
from commonplace.server.http.operation.observing import route_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

STORE_CALLS = ("write", "search_text", "search_vectors", "load", "scan", "get")
"""Of a store, these get spans: what writes, and what a search and a read consist of."""


def make_provider() -> TracerProvider:
    """Sends spans in batches, from a thread, and the last ones at exit; a collector that is away costs only spans."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(
            f"traces need OpenTelemetry's SDK; run: {install_command('tracing')}, or set COMMONPLACE_TRACING=false"
        ) from error

    # `create` lets OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say otherwise.
    resource = Resource.create({"service.name": "commonplace", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Tracing:
    """ASGI middleware: one span a request, below the caller's own span where it sent a `traceparent`."""

    def __init__(self, app: ASGIApp, *, tracer: Tracer) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._app = app
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from opentelemetry.trace import SpanKind, StatusCode

        parent = self._propagator.extract(Headers(scope=scope))
        with self._tracer.start_as_current_span(
            scope["method"], parent, SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            status = 0

            async def traced(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await self._app(scope, receive, traced)
            finally:
                route = route_of(scope)
                span.update_name(f"{scope['method']} {route}")
                span.set_attributes(
                    {
                        "http.request.method": scope["method"],
                        "http.route": route,
                        "http.response.status_code": status,
                        "commonplace.request_id": scope["state"]["request_id"],
                    }
                )
                if not 0 < status < 500:
                    span.set_status(StatusCode.ERROR)


def trace_store(book: Book, tracer: Tracer) -> None:
    """Give the calls of this book's store their spans, on this one object: no other book pays for it."""
    for name in STORE_CALLS:
        setattr(book.store, name, _spanned(getattr(book.store, name), f"store {name}", tracer))


def _spanned(call: Callable[..., Any], name: str, tracer: Tracer) -> Callable[..., Any]:
    from opentelemetry.trace import StatusCode

    @wraps(call)
    def spanned(*arguments: Any, **options: Any) -> Any:
        with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
            try:
                return call(*arguments, **options)
            except Exception as error:
                # The kind alone: a message may quote what was written.
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    return spanned
