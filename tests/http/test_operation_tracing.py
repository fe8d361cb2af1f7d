"""Traces: a span a request and its calls of the store below it, sent to a real collector, without any contents."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from operated import operated

from commonplace.server.http.service import Service

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@dataclass
class Collector:
    """Takes spans over OTLP, as a collector does."""

    address: str = ""
    bodies: bytes = b""
    spans: list[Span] = field(default_factory=list)
    has_request: threading.Event = field(default_factory=threading.Event)

    def take(self, body: bytes) -> None:
        self.bodies += body
        sent = ExportTraceServiceRequest.FromString(body)
        self.spans += [span for one in sent.resource_spans for scope in one.scope_spans for span in scope.spans]
        if any(span.kind == Span.SPAN_KIND_SERVER for span in self.spans):
            self.has_request.set()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            collector.take(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    yield collector
    server.shutdown()
    server.server_close()


def attributes(span: Span) -> dict[str, object]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@pytest.mark.promise("service.traces")
def test_a_request_and_its_store_calls_are_spans_below_the_callers_own(service: Service, collector: Collector) -> None:
    traced = replace(service, settings=replace(service.settings, tracing=True))
    with operated(traced) as (server, _), server.client() as client:
        answer = client.put(
            "/v1/files/notes/ochre?namespace=user/indigo",
            json={"text": "turquoise"},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine-1"},
        )
        assert answer.status_code in (200, 201), answer.text
        assert collector.has_request.wait(20)
    (request,) = [span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
    assert request.name == "PUT /v1/files/{path}"
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(request) == {
        "http.request.method": "PUT",
        "http.route": "/v1/files/{path}",
        "http.response.status_code": answer.status_code,
        "commonplace.request_id": "mine-1",
    }
    below = {span.name for span in collector.spans if span.parent_span_id == request.span_id}
    assert "store write" in below
    for word in (b"ochre", b"turquoise", b"indigo", b"namespace"):
        assert word not in collector.bodies


@pytest.mark.promise("service.traces")
def test_a_failure_is_a_span_with_the_kind_of_its_error_alone(service: Service, collector: Collector) -> None:
    traced = replace(service, settings=replace(service.settings, tracing=True))
    with operated(traced) as (server, _), server.client() as client:
        assert client.get("/test/fail").status_code == 500
        assert collector.has_request.wait(20)
    (request,) = [span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
    assert (request.name, request.status.code) == ("GET /test/fail", 2)
    assert b"turquoise" not in collector.bodies


@pytest.mark.promise("service.traces")
def test_without_the_extra_the_command_that_installs_it_is_named(service: Service) -> None:
    program = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from commonplace.server.http.observability import make_provider\n"
        "make_provider()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ConfigurationError" in done.stderr
    assert "pip install 'commonplace-memory[tracing]'" in done.stderr


@pytest.mark.promise("service.traces")
def test_where_traces_are_off_nothing_of_them_is_loaded() -> None:
    program = "import sys, commonplace.server.http.app as app; print('opentelemetry.sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
