"""Observability of the service: the request log, metrics for Prometheus, traces for OpenTelemetry, health.

Logs, metrics and spans contain the template of a route, never a URL, a query or a body, which may contain stored data.
No label of a metric holds a namespace or the name of a caller. Without tracing, OpenTelemetry is neither loaded nor
called; its own variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, say where to send spans.

`/healthz` says that the process is alive. `/readyz` says whether the store answers and the model works, in bounded time
and without blocking the event loop: both are checked in threads, one check at a time, and a result is cached for a
moment, so that probes cannot accumulate on a slow disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace import __version__
from commonplace.book import Book
from commonplace.errors import (
    CommonplaceError,
    ConfigurationError,
    Forbidden,
    Unauthorized,
    Unavailable,
    install_command,
)
from commonplace.server.http.error_answers import RETRY_AFTER_SECONDS
from commonplace.server.http.origins import SECURITY_HEADERS
from commonplace.server.http.request_limits import Refusal, Work
from commonplace.server.http.service import Service
from commonplace.server.mcp.server import ToolCalls

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REFUSED = {401: "unauthorized", 403: "forbidden", 413: "too_large", 421: "wrong_host", 429: "rate_limited"}
"""Why a request was refused, by the status of its answer; 503 and 504 have several reasons."""

STORE_CALLS = ("write", "search_text", "search_vectors", "load", "scan", "get")
"""The calls of a store that get spans: writes, and what searches and reads consist of."""

UNMATCHED = "unmatched"
"""The route of a request that no route matches: one label, however many URLs are tried."""

QUIET_ROUTES = frozenset(("/healthz", "/readyz", "/metrics"))
"""Probed every few seconds: logged at debug only, unless they fail."""

HEALTH_PATHS = frozenset(("/healthz", "/readyz"))
"""They need no key, because probes have none, and they reveal nothing about the memory."""

WAIT_SECONDS = 2.0
STORE_FRESH_SECONDS = 0.5
MODEL_FRESH_SECONDS = 60.0
RETRY_SECONDS = 5.0

ModelWord = Literal["ok", "loading", "failing", "unknown"]
_MODEL_REASONS = {
    "failing": "the embedding model cannot be used; `commonplace doctor` says why",
    "loading": "the embedding model is still being loaded",
}
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SECURITY_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_log = logging.getLogger("commonplace.http")

T = TypeVar("T")


# Metrics


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """A finished request. The status is 0 if there was no answer."""

    method: str
    route: str
    status: int
    seconds: float


class Metrics:
    """The metrics of one server, in a separate registry."""

    def __init__(self, book: Book, work: Work, tool_calls: ToolCalls) -> None:
        self._book = book
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "commonplace_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "commonplace_request_seconds",
            "Time until a request was answered; of a stream, until it ended.",
            ("method", "route"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._refused = Counter(
            "commonplace_refused_requests", "Refused requests.", ("reason",), registry=self.registry
        )
        for reason in (*REFUSED.values(), "overloaded", "timeout"):
            self._refused.labels(reason)
        in_flight = Gauge("commonplace_requests_in_flight", "Requests in progress.", registry=self.registry)
        in_flight.set_function(lambda: work.requests.taken)
        streams = Gauge("commonplace_open_streams", "Open event streams.", registry=self.registry)
        streams.set_function(lambda: work.streams.taken)
        self._pending = Gauge(
            "commonplace_pending_passages", "Passages whose vector is pending.", registry=self.registry
        )
        Info("commonplace_build", "The running version.", registry=self.registry).info({"version": __version__})
        self.registry.register(_ToolCallsCollector(tool_calls))
        self.registry.register(_StoreCollector(book))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def count(self, seen: RequestSummary) -> None:
        self._requests.labels(seen.method, seen.route, seen.status).inc()
        self._seconds.labels(seen.method, seen.route).observe(seen.seconds)
        if seen.status in REFUSED:
            self._refused.labels(REFUSED[seen.status]).inc()

    def count_refusal(self, reason: str) -> None:
        """A request that a limit refused; `reason` is the code of the problem."""
        self._refused.labels(reason).inc()

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus. Makes one cheap call of the store."""
        try:
            self._pending.set(self._book.store.indexing().pending)
        except CommonplaceError as error:
            _log.warning("cannot read the number of pending passages: %s", error)
            self._pending.set(float("nan"))
        return generate_latest(self.registry)


class _StoreCollector(Collector):
    """What the store measures of itself, such as its connections."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._book.store.gauges().items():
            help = f"{name.replace('_', ' ').capitalize()}."
            yield GaugeMetricFamily(f"commonplace_{name}", help, value=value)


class _ToolCallsCollector(Collector):
    """Calls of MCP tools, which the MCP server counts itself."""

    def __init__(self, tool_calls: ToolCalls) -> None:
        self._tool_calls = tool_calls

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "commonplace_tool_calls", "Calls of MCP tools.", labels=("profile", "tool", "outcome")
        )
        for labels, count in sorted(self._tool_calls.items()):
            family.add_metric(labels, count)
        yield family


Responses = dict[int | str, dict[str, Any]]


def metrics_router(metrics: Metrics, service: Service, errors: Responses) -> APIRouter:
    """The route `/metrics`; `errors` documents its error responses."""
    router = APIRouter(tags=["operation"])

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        description="Needs a key that reaches everything, with the action `admin`, unless the server leaves it open.",
        response_class=Response,
        responses={
            **errors,
            200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    )
    def read_metrics(request: Request) -> Response:
        if not service.settings.metrics_open:
            principal = getattr(request.state, "principal", None)
            if principal is None:
                raise Unauthorized(
                    "metrics need a key with the action 'admin'; send it as `Authorization: Bearer cp_…`"
                )
            principal.rules.check("admin")
            if not principal.is_operator:
                # They count the requests of all callers, which a tenant must not see.
                raise Forbidden("metrics describe the whole service; use a key made with --everything --actions admin")
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


# Around every request


class RequestLogMiddleware:
    """The outermost ASGI middleware: gives each request an id, a line in the log and its place in the metrics."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, work: Work) -> None:
        self._app = app
        self._metrics = metrics
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        bytes_sent = 0
        has_left = False

        async def received() -> Message:
            nonlocal has_left
            message = await receive()
            # After the start of the answer, this is the normal end of a stream.
            has_left = has_left or (message["type"] == "http.disconnect" and not status)
            return message

        async def observed(message: Message) -> None:
            nonlocal status, bytes_sent
            if message["type"] == "http.response.start":
                # The client has left and does not get this answer.
                status = 0 if has_left else message["status"]
                headers = [*message.get("headers", ()), *_SECURITY_HEADERS, (b"x-request-id", request_id.encode())]
                if self._work.is_stopping:
                    # The client closes the connection. If we closed it, it could already carry the next request.
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            else:
                bytes_sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, received, observed)
        except ClientDisconnect:
            pass  # The client left while it was sending. Nobody waits for an answer, and nothing has failed.
        finally:
            seconds = time.perf_counter() - started
            route = route_of(scope)
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            self._metrics.count(RequestSummary(method, route, status, seconds))
            level = _level(route, status)
            if _log.isEnabledFor(level):
                principal = scope["state"].get("principal")
                fields = {
                    "request_id": request_id,
                    "principal": getattr(principal, "name", None),
                    "method": method,
                    "route": route,
                    "status": status or None,
                    "ms": round(seconds * 1_000, 2),
                    "bytes": bytes_sent,
                }
                _log.log(level, "request", extra={"fields": fields})


class ErrorMiddleware:
    """ASGI middleware that logs why a route failed, and answers with a problem."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            raise
        except Exception:
            request_id = scope["state"]["request_id"]
            _log.exception("a request failed", extra={"fields": {"request_id": request_id, "route": route_of(scope)}})
            if has_begun:
                raise
            detail = "the server failed; its log says why, under this request_id"
            await Refusal("internal", detail).send(send, request_id=request_id)


def _request_id(scope: Scope) -> str:
    """The id that the client sent, if it is short and plain; otherwise a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return str(value, "ascii")
    return os.urandom(12).hex()


def route_of(scope: Scope) -> str:
    """The template of the matched route, such as `/v1/records/{id}`."""
    # A route of an included router does not know its prefix. The context that FastAPI leaves in the scope does.
    context = scope.get("fastapi", {}).get("effective_route_context")
    template = getattr(context, "path_format", None)
    if template is None:
        route = scope.get("route")
        template = getattr(route, "path_format", None) or getattr(route, "path", None)
    return template or UNMATCHED


def _level(route: str, status: int) -> int:
    if status >= 500:
        return logging.WARNING
    return logging.DEBUG if route in QUIET_ROUTES else logging.INFO


# Traces


def make_provider() -> TracerProvider:
    """Sends spans in batches from a thread, and the rest at exit. Without a collector, spans are lost."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(
            f"traces need OpenTelemetry's SDK; run: {install_command('tracing')}, or set COMMONPLACE_TRACING=false"
        ) from error

    # `create` lets OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override these.
    resource = Resource.create({"service.name": "commonplace", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class TracingMiddleware:
    """ASGI middleware: one span per request, a child of the caller's span if it sent a `traceparent`."""

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
    """Wrap the calls of this book's store in spans. Only this object changes, so other books pay nothing."""
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
                # Only the type: a message may quote stored text.
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    return spanned


# Health


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    """The result of a check: an answer, an error, or neither while the check is running."""

    answer: T | None = None
    error: CommonplaceError | None = None


class _Check(Generic[T]):
    """Runs in a thread, never twice at once. A good result is cached for some time, an error for less."""

    def __init__(self, call: Callable[[], T], fresh_seconds: float) -> None:
        self._call = call
        self._fresh_seconds = fresh_seconds
        self._running: asyncio.Task[_Outcome[T]] | None = None
        self._is_stale_at = 0.0

    async def outcome(self, seconds: float) -> _Outcome[T]:
        if self._running is None or (self._running.done() and time.monotonic() >= self._is_stale_at):
            self._running = asyncio.create_task(self._run())
        await asyncio.wait((self._running,), timeout=seconds)
        return self._running.result() if self._running.done() else _Outcome()

    async def _run(self) -> _Outcome[T]:
        try:
            outcome = _Outcome(answer=await asyncio.to_thread(self._call))
        except CommonplaceError as error:
            _log.warning("not ready: %s", error)
            outcome = _Outcome(error=error)
        kept = self._fresh_seconds if outcome.error is None else min(RETRY_SECONDS, self._fresh_seconds)
        self._is_stale_at = time.monotonic() + kept
        return outcome


class Live(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Whether to send requests here, and why not. It has no counts, because anybody may read it.

    A store in which a request has found damage still answers for the rest: it is ready, and `damaged`.
    """

    status: Literal["ready", "not ready"]
    store: Literal["ok", "damaged", "slow", "failing"]
    model: ModelWord
    reasons: list[str] = Field(default_factory=list)


class Readiness:
    """Checks the store and the model of one book."""

    def __init__(self, book: Book, work: Work) -> None:
        self._work = work
        self._book = book
        self._store = _Check(partial(_check_store, book), STORE_FRESH_SECONDS)
        self._model = _Check(partial(_check_model, book), MODEL_FRESH_SECONDS)

    async def report(self) -> Ready:
        store, model = await asyncio.gather(self._store.outcome(WAIT_SECONDS), self._model.outcome(WAIT_SECONDS))
        reasons = ["the server is stopping"] if self._work.is_stopping else []
        # Anybody may read this. The errors, which may name files and addresses, are only in the log.
        if store.error is not None:
            reasons.append("the store fails; the server's log says how")
        elif store.answer is None:
            reasons.append(f"the store gave no answer within {WAIT_SECONDS:g} s")
        word = _model_word(model, is_store_well=store.answer is not None)
        if word in _MODEL_REASONS:
            reasons.append(_MODEL_REASONS[word])
        return Ready(
            status="not ready" if reasons else "ready",
            store="failing" if store.error is not None else "slow" if store.answer is None else self._store_word(),
            model=word,
            reasons=reasons,
        )

    def _store_word(self) -> Literal["ok", "damaged"]:
        return "damaged" if self._book.store.is_damaged else "ok"


def _check_store(book: Book) -> Literal[True]:
    book.store.system_get("readiness", "")  # the cheapest read: a row that does not exist
    return True


class _StoreFails(Unavailable):
    """The store cannot say which model it uses, so the state of the model is unknown."""


def _check_model(book: Book) -> Literal[True]:
    try:
        book.store.models()
    except CommonplaceError as error:
        raise _StoreFails(str(error)) from error
    book.indexer.try_model()
    return True


def _model_word(model: _Outcome[Literal[True]], *, is_store_well: bool) -> ModelWord:
    """The store says which model it uses. If it fails or is slow, the state of the model is unknown."""
    if model.answer is not None:
        return "ok"
    if model.error is not None and not isinstance(model.error, _StoreFails):
        return "failing"
    return "loading" if is_store_well else "unknown"


def health_router(readiness: Readiness) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", summary="Whether the process lives", description="Needs no key and checks nothing else.")
    async def live() -> Live:
        return Live()

    @router.get(
        "/readyz",
        summary="Whether requests should be sent here",
        description=(
            "The store answers, the embedding model works, and the server is not stopping. Needs no key. The first "
            "call loads the model, in a thread; until then the model is `loading`."
        ),
        response_model=Ready,
        responses={503: {"model": Ready, "description": "Not ready; `reasons` say why."}},
    )
    async def ready() -> JSONResponse:
        report = await readiness.report()
        if not report.reasons:
            return JSONResponse(report.model_dump())
        return JSONResponse(report.model_dump(), 503, {"Retry-After": str(RETRY_AFTER_SECONDS)})

    return router
