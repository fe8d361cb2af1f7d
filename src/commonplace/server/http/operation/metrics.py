"""Metrics for Prometheus, in a registry of their own. No label holds a namespace, a name of a caller, or an address."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from commonplace import __version__
from commonplace.book import Book
from commonplace.errors import CommonplaceError, Forbidden, Unauthorized
from commonplace.server.http.operation.work import Work
from commonplace.server.http.rest.answers import documented
from commonplace.server.http.service import Service
from commonplace.server.mcp.app import ToolCalls

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REFUSED = {401: "unauthorized", 403: "forbidden", 413: "too_large", 421: "wrong_host", 429: "rate_limited"}
"""Why a request was turned away, by the status of its answer; 503 and 504 have several reasons."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that is over; a status of 0 is an answer that was never begun."""

    method: str
    route: str
    status: int
    seconds: float


class Metrics:
    """What is counted, for one server."""

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
            "commonplace_refused_requests", "Requests turned away.", ("reason",), registry=self.registry
        )
        for reason in (*REFUSED.values(), "overloaded", "timeout"):
            self._refused.labels(reason)
        in_flight = Gauge("commonplace_requests_in_flight", "Requests under way.", registry=self.registry)
        in_flight.set_function(lambda: work.requests.taken)
        streams = Gauge("commonplace_open_streams", "Streams of events that are open.", registry=self.registry)
        streams.set_function(lambda: work.streams.taken)
        self._pending = Gauge(
            "commonplace_pending_passages", "Passages that wait for their vector.", registry=self.registry
        )
        Info("commonplace_build", "The version that runs.", registry=self.registry).info({"version": __version__})
        self.registry.register(_ToolCallsCollector(tool_calls))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def count(self, seen: Seen) -> None:
        self._requests.labels(seen.method, seen.route, seen.status).inc()
        self._seconds.labels(seen.method, seen.route).observe(seen.seconds)
        if seen.status in REFUSED:
            self._refused.labels(REFUSED[seen.status]).inc()

    def count_refusal(self, reason: str) -> None:
        """A request that a limit turned away; `reason` is the problem's code."""
        self._refused.labels(reason).inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it. Asks the store one small question."""
        try:
            self._pending.set(self._book.store.indexing().pending)
        except CommonplaceError as error:
            _log.warning("the store does not tell how much is pending: %s", error)
            self._pending.set(float("nan"))
        return generate_latest(self.registry)


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


def metrics_router(metrics: Metrics, service: Service) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        description="Needs a key that reaches everything, with the action `admin`, unless the server leaves it open.",
        response_class=Response,
        responses={
            **documented(None),
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
            if principal.reach != "all":
                # They count what all callers do; a tenant's own key tells it nothing of the others.
                raise Forbidden("metrics tell of the whole service; use a key made with --everything --actions admin")
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router
