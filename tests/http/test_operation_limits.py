"""Limits before any route: size, time, number. Whoever passes one gets a whole answer that says what to do."""

from __future__ import annotations

import http.client
import json
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from operated import operated
from real_server import Server

from commonplace.server.http.service import Service


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    form = answer.json()
    assert form["status"] == answer.status_code
    return answer.status_code, form["code"], form["detail"]


@pytest.fixture
def limited(service: Service) -> Service:
    settings = replace(service.settings, max_body_bytes=1_000, max_requests=2, max_streams=1, request_seconds=1)
    return replace(service, settings=settings)


TOO_LARGE = (413, "too_large", "the body is larger than 1,000 bytes, the limit; send less")


@pytest.mark.promise("service.limit-body")
def test_a_body_above_the_limit_is_refused_and_the_connection_goes_on(limited: Service) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(50):
            yield b"x" * 100

    with operated(limited) as (server, _), server.client() as client:
        assert client.post("/test/read", content=b"x" * 1_000).text == "1000"
        assert problem(client.post("/test/read", content=b"x" * 1_001)) == TOO_LARGE
        assert problem(client.post("/test/read", content=pieces())) == TOO_LARGE
        assert client.post("/test/read", content=b"still there").text == "11"


@pytest.mark.promise("service.limit-body")
def test_a_length_above_the_limit_is_refused_before_the_body_is_sent(limited: Service) -> None:
    with operated(limited) as (server, _):
        connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=20)
        connection.putrequest("POST", "/test/read")
        connection.putheader("Content-Length", "10000000000")
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.promise("service.limit-time")
def test_a_request_without_an_answer_is_given_up_and_keeps_its_place_until_its_work_is_over(limited: Service) -> None:
    with operated(limited) as (server, routes), server.client() as client:
        status, code, detail = problem(client.post("/test/wait/slow"))
        assert (status, code) == (504, "timeout")
        assert detail.startswith("there was no answer within 1 s")
        assert "commonplace_requests_in_flight 1.0" in client.get("/metrics").text
        assert routes.done == []
        routes.go_on.set()
        assert routes.has_ended.acquire(timeout=20)
        assert routes.done == ["slow"]
        assert client.post("/test/wait/quick").text == "quick is done"
        metrics = client.get("/metrics").text
        assert 'commonplace_refused_requests_total{reason="timeout"} 1.0' in metrics


@pytest.mark.promise("service.limit-concurrency")
def test_more_requests_at_once_than_allowed_are_told_to_come_again(limited: Service) -> None:
    patient = replace(limited, settings=replace(limited.settings, request_seconds=60))
    with operated(patient) as (server, routes), server.client() as client, ThreadPoolExecutor(2) as others:
        waiting = [others.submit(client.post, f"/test/wait/{number}") for number in range(2)]
        for _ in waiting:
            assert routes.has_come.acquire(timeout=20)
        refused = client.post("/test/wait/third")
        assert problem(refused) == (503, "overloaded", "2 requests are in progress; try again soon")
        assert refused.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200
        assert 'commonplace_refused_requests_total{reason="overloaded"} 1.0' in client.get("/metrics").text
        over_mcp = client.post("/mcp", json={})
        assert (over_mcp.status_code, over_mcp.headers["retry-after"]) == (503, "1")
        assert over_mcp.json()["error"]["message"] == "2 requests are in progress; try again soon"
        routes.go_on.set()
        assert [one.result().status_code for one in waiting] == [200, 200]
        assert client.post("/test/wait/fourth").status_code == 200


@pytest.mark.promise("service.limit-concurrency")
def test_an_open_stream_outlives_the_time_limit_and_takes_no_place_among_the_requests(limited: Service) -> None:
    with (
        operated(limited) as (server, routes),
        server.client() as client,
        client.stream("GET", "/test/stream") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "data: first"
        assert problem(client.get("/test/stream"))[:2] == (503, "overloaded")
        # A slow request outlasts the limit that began before it; the stream is older, and still open.
        assert client.post("/test/wait/slow").status_code == 504
        routes.go_on.set()
        assert client.post("/test/wait/quick").status_code == 200
        assert "commonplace_open_streams 1.0" in client.get("/metrics").text


@pytest.mark.promise("service.limit-headers")
def test_headers_above_the_limit_are_refused_whether_they_come_in_one_piece_or_in_many(service: Service) -> None:
    with operated(service) as (server, _):
        for pieces in (1, 60):
            with connected(server) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
                for number in range(pieces):
                    line.sendall(b"X-%d: " % number + b"x" * (120_000 // pieces) + b"\r\n")
                line.sendall(b"\r\n")
                answer = http.client.HTTPResponse(line)
                answer.begin()
                assert (answer.status, json.loads(answer.read())["code"]) == (431, "headers_too_large")
        with server.client() as client:
            assert client.get("/healthz", headers={"X-Long": "x" * 30_000}).status_code == 200
        connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=20)
        connection.request("GET", "/healthz?" + "x" * 70_000)
        assert connection.getresponse().status == 431
        connection.close()


@pytest.mark.promise("service.limit-headers")
def test_a_body_that_comes_with_the_end_of_the_head_is_no_part_of_it(service: Service) -> None:
    with operated(service) as (server, _), connected(server) as line:
        line.sendall(b"POST /test/read HTTP/1.1\r\nHost: localhost\r\n")
        assert select.select([line], [], [], 0.2)[0] == []
        line.sendall(b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000)
        answer = http.client.HTTPResponse(line)
        answer.begin()
        assert (answer.status, answer.read()) == (200, b"200000")


@pytest.mark.promise("service.limit-headers")
@pytest.mark.parametrize("trailer", [b"X-1: " + b"x" * 1_000 + b"\r\n", b"x" * 1_000])
def test_endless_trailers_end_the_connection(service: Service, trailer: bytes) -> None:
    with operated(service) as (server, _), connected(server) as line:
        line.sendall(CHUNKED + b"X-0: ")
        with pytest.raises(ConnectionError):
            line.sendall(trailer * 20_000)


def test_a_few_trailers_are_read_over_and_the_connection_goes_on(service: Service) -> None:
    with operated(service) as (server, _), connected(server) as line:
        for _ in range(2):
            line.sendall(CHUNKED + b"X-1: one\r\nX-2: two\r\n\r\n")
            answer = http.client.HTTPResponse(line)
            answer.begin()
            assert (answer.status, answer.read()) == (200, b"5")


CHUNKED = b"POST /test/read HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(server.address).port), timeout=20)
