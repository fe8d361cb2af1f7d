"""The embedder of OpenAI-compatible endpoints, against a real HTTP server that misbehaves on demand."""

from __future__ import annotations

import email.utils
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from commonplace.embedding import EndpointOptions, create_embedder
from commonplace.embedding.external import EndpointEmbedder
from commonplace.errors import CommonplaceError, ConfigurationError, Unavailable

Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 3.0, 4.0]


def send(status: int, body: bytes, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def embeddings(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    rows = [{"index": index, "embedding": vector_of(text)} for index, text in enumerate(request["input"])]
    # The dialect promises no order, only the index.
    send(200, json.dumps({"data": rows[::-1]}).encode())(handler, request)


class Endpoint:
    """A server that gives the scripted answers first, then right ones, and remembers what it was asked."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.waits: list[float] = []
        self.released = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append({"path": self.path, **request})
                endpoint.headers.append(dict(self.headers))
                (endpoint.script.pop(0) if endpoint.script else embeddings)(self, request)

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test's output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def embedder(self, **options: Any) -> EndpointEmbedder:
        return EndpointEmbedder(
            "m", url=self.url, provider="openai", options=EndpointOptions(**options), sleep=self.waits.append
        )

    def hang(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        self.released.wait(30)

    def hang_up(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint()
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield one
    one.released.set()
    one.server.shutdown()
    thread.join()
    one.server.server_close()


def test_texts_are_sent_in_batches_and_rows_come_back_in_order_with_length_one(endpoint: Endpoint) -> None:
    texts = ["one", "three", "", "seventeen", "x"]
    rows = endpoint.embedder(batch_size=2, api_key="k").embed(texts, purpose="passage")
    expected = np.array([vector_of(text or " ") for text in texts], dtype=np.float32)
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    assert endpoint.requests == [
        {"path": "/v1/embeddings", "model": "m", "input": batch, "encoding_format": "float"}
        for batch in (["one", "three"], [" ", "seventeen"], ["x"])
    ]
    assert [headers["Authorization"] for headers in endpoint.headers] == ["Bearer k"] * 3


def test_no_key_sends_no_authorization_and_the_factory_makes_the_same_embedder(endpoint: Endpoint) -> None:
    made = create_embedder(f"openai:m@{endpoint.url}", normalize=False)
    assert made.embed(["four"], purpose="query").tolist() == [[4.0, 3.0, 4.0]]
    assert made.identity == f"openai:m@{endpoint.url};normalize=false"
    assert "Authorization" not in endpoint.headers[0]


def test_dimensions_are_asked_once_and_not_at_all_when_given(endpoint: Endpoint) -> None:
    asked = endpoint.embedder()
    assert (asked.dimensions, asked.dimensions, len(endpoint.requests)) == (3, 3, 1)
    assert (endpoint.embedder(dimensions=3).dimensions, len(endpoint.requests)) == (3, 1)
    assert endpoint.embedder(dimensions=3).embed([], purpose="query").shape == (0, 3)


def test_other_dimensions_than_expected_are_refused(endpoint: Endpoint) -> None:
    with pytest.raises(ConfigurationError, match="vectors of 3 numbers where 8 were expected"):
        endpoint.embedder(dimensions=8).embed(["x"], purpose="query")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_failure_that_passes_is_retried_with_growing_jittered_waits(endpoint: Endpoint, status: int) -> None:
    endpoint.script = [send(status, b"busy")] * 3
    assert endpoint.embedder().embed(["x"], purpose="query").shape == (1, 3)
    assert len(endpoint.waits) == 3
    for wait, longest in zip(endpoint.waits, (0.5, 1.0, 2.0), strict=True):
        assert longest / 2 <= wait <= longest


def test_retry_after_is_honoured_as_seconds_and_as_a_date(endpoint: Endpoint) -> None:
    in_ten_seconds = email.utils.formatdate(time.time() + 10, usegmt=True)
    endpoint.script = [send(429, b"", Retry_After="7"), send(503, b"", Retry_After=in_ten_seconds)]
    endpoint.script += [send(503, b"", Retry_After="soon")]
    endpoint.embedder().embed(["x"], purpose="query")
    seconds, date, nonsense = endpoint.waits
    assert 7 <= seconds <= 7.5
    assert 8 <= date <= 10.5
    assert nonsense <= 2


def test_an_endpoint_that_asks_for_a_long_wait_is_not_waited_for(endpoint: Endpoint) -> None:
    endpoint.script = [send(429, b"quota", Retry_After="3600")]
    with pytest.raises(Unavailable, match="HTTP 429 quota"):
        endpoint.embedder().embed(["x"], purpose="query")
    assert (len(endpoint.requests), endpoint.waits) == (1, [])


def test_retries_are_bounded_and_the_error_says_what_happened(endpoint: Endpoint) -> None:
    endpoint.script = [send(500, b"out of memory")] * 9
    with pytest.raises(Unavailable, match=r"failed 3 times, last with: HTTP 500 out of memory"):
        endpoint.embedder(max_retries=2).embed(["x"], purpose="query")
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404])
def test_a_refusal_is_not_retried_and_names_what_to_check(endpoint: Endpoint, status: int) -> None:
    endpoint.script = [send(status, b"no such model", Location=f"{endpoint.url}/elsewhere")]
    with pytest.raises(ConfigurationError, match=r"no such model.*check the model's name") as caught:
        endpoint.embedder(api_key="secret").embed(["x"], purpose="query")
    assert len(endpoint.requests) == 1
    assert "secret" not in str(caught.value)


def test_a_silent_endpoint_is_given_up_after_the_time_out(endpoint: Endpoint) -> None:
    endpoint.script = [endpoint.hang] * 2
    with pytest.raises(Unavailable, match="failed 2 times, last with: timed out"):
        endpoint.embedder(timeout_seconds=0.1, max_retries=1).embed(["x"], purpose="query")


def test_a_connection_that_breaks_off_is_tried_again(endpoint: Endpoint) -> None:
    endpoint.script = [endpoint.hang_up, send(200, b"", Transfer_Encoding="chunked")]
    assert endpoint.embedder().embed(["x"], purpose="query").shape == (1, 3)
    assert len(endpoint.requests) == 3


def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(Unavailable, match="Connection refused"):
            create_embedder(f"openai:m@{url}", endpoint=EndpointOptions(max_retries=0)).embed(["x"], purpose="query")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"<html>a proxy's page</html>",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"data": null}',
        b'{"data": []}',
        b'{"data": [{"index": 0}]}',
        b'{"data": [{"index": 1, "embedding": [1, 2, 3]}]}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": "AAAA"}]}',
        b'{"data": [{"index": 0, "embedding": [1, null, 3]}]}',
        b'{"data": [{"index": 0, "embedding": [1, NaN, 3]}]}',
        b'{"data": [{"index": 0, "embedding": [1e400, 2, 3]}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1]}]}',
        b'{"data": [{"index": "a", "embedding": [1]}, {"index": 0, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": [[1, 2]]}]}',
    ],
)
def test_an_answer_that_is_no_embeddings_never_becomes_a_vector(endpoint: Endpoint, garbage: bytes) -> None:
    endpoint.script = [send(200, garbage)] * 2
    with pytest.raises(Unavailable, match="the response"):
        endpoint.embedder(max_retries=1).embed(["x"], purpose="query")
    assert len(endpoint.requests) == 2


def test_one_failing_batch_gives_no_rows_at_all(endpoint: Endpoint) -> None:
    endpoint.script = [embeddings, send(400, b"too long")]
    with pytest.raises(CommonplaceError):
        endpoint.embedder(batch_size=1).embed(["a", "b", "c"], purpose="passage")
    assert len(endpoint.requests) == 2
