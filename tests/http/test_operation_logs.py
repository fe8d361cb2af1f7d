"""A line of JSON a request, with its id, and nothing of what was remembered, asked or shown as a key."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from operated import operated

from commonplace.server.http.service import Service
from commonplace.server.logs import JSONLines


class Lines:
    """What was logged, as whoever reads stderr gets it."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def requests(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in lines if line["message"] == "request"]


@pytest.fixture
def logged() -> Iterator[Lines]:
    lines = Lines()
    handler = logging.StreamHandler(lines.stream)
    handler.setFormatter(JSONLines())
    handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore")))  # the test's own client
    root = logging.getLogger()
    former = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(handler)
    root.setLevel(former)


@pytest.mark.promise("service.logs")
def test_a_request_is_one_line_with_its_route_and_its_caller(service: Service, make_key: Any, logged: Lines) -> None:
    key = make_key("robot")
    with operated(service) as (server, routes), server.client(key) as client:
        routes.go_on.set()
        answer = client.post("/test/wait/turquoise?namespace=user/u1&q=vermilion", headers={"X-Request-Id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
        client.get("/healthz")
    (line,) = logged.requests()
    assert line.pop("time").startswith("20")
    assert line.pop("ms") >= 0
    assert line == {
        "level": "info",
        "logger": "commonplace.http",
        "message": "request",
        "request_id": "mine-1",
        "principal": "robot",
        "method": "POST",
        "route": "/test/wait/{name}",
        "status": 200,
        "bytes": len("turquoise is done"),
    }


@pytest.mark.promise("service.logs")
def test_the_log_holds_no_contents_queries_or_keys(service: Service, make_key: Any, logged: Lines) -> None:
    key = make_key("robot", namespace="user/indigo")
    secret = key.rpartition("_")[2]
    with operated(service) as (server, _), server.client(key) as client:
        client.post("/v1/records", json={"type": "note", "content": {"text": "turquoise"}, "source": "vermilion"})
        client.get("/v1/search", params={"q": "magenta", "query": "magenta"})
        client.put("/v1/files/notes/ochre", content=b"turquoise")
        client.get("/v1/records/sepia")
        client.get("/v1/nothing/cerise", headers={"Authorization": f"Bearer {key}x"})
    assert len(logged.requests()) == 5
    for word in ("turquoise", "vermilion", "magenta", "ochre", "sepia", "cerise", "indigo", secret):
        assert word not in logged.text


@pytest.mark.promise("service.request-id")
@pytest.mark.parametrize("sent", [None, "", "a b", "ü", "x" * 129, 'quote"', "{}"])
def test_an_id_that_is_not_plain_is_replaced(http: httpx.Client, sent: str | None) -> None:
    headers = {} if sent is None else {"X-Request-Id": sent.encode()}
    first, second = (http.get("/healthz", headers=headers).headers["x-request-id"] for _ in range(2))
    assert len(first) == 24
    assert int(first, 16) != int(second, 16)


@pytest.mark.promise("service.unexpected-errors")
def test_an_unforeseen_error_is_logged_with_its_trace_and_told_by_its_id_alone(service: Service, logged: Lines) -> None:
    with operated(service) as (server, _), server.client() as client:
        answer = client.get("/test/fail")
        assert answer.status_code == 500
        assert answer.headers["content-type"] == "application/problem+json"
        form = answer.json()
        assert (form["code"], form["request_id"]) == ("internal", answer.headers["x-request-id"])
        assert "turquoise" not in answer.text
        assert client.get("/healthz").status_code == 200
    failures = [json.loads(line) for line in logged.text.splitlines() if "a request failed" in line]
    assert [(line["request_id"], line["route"]) for line in failures] == [(form["request_id"], "/test/fail")]
    assert "RuntimeError: nobody foresaw" in failures[0]["error"]
    assert [(line["status"], line["level"]) for line in logged.requests()] == [(500, "warn")]


@pytest.mark.promise("service.logs")
@pytest.mark.parametrize(
    ("line", "route"), [("PUT /v1/files/f", "/v1/files/{path}"), ("POST /v1/records", "/v1/records")]
)
def test_a_client_that_leaves_while_it_sends_is_no_failure(
    service: Service, logged: Lines, line: str, route: str
) -> None:
    with operated(service) as (server, _), server.client() as client:
        with socket.create_connection(("127.0.0.1", urlsplit(server.address).port), timeout=20) as leaving:
            about = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
            leaving.sendall(f"{line} HTTP/1.1\r\n{about}\r\nhalf of".encode())
        deadline = time.monotonic() + 20
        while not logged.requests() and time.monotonic() < deadline:
            time.sleep(0.01)
        counted = client.get("/metrics").text
    (told,) = logged.requests()
    assert (told["level"], told["route"], told["status"]) == ("info", route, None)
    assert "a request failed" not in logged.text
    assert re.search(r'commonplace_requests_total\{.*status="0"\} 1\.0', counted)


@pytest.mark.promise("service.unexpected-errors")
def test_an_answer_that_fails_midway_is_cut_off_and_not_passed_off_as_whole(service: Service, logged: Lines) -> None:
    with (
        operated(service) as (server, _),
        server.client() as client,
        pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
    ):
        client.get("/test/fail-midway")
    assert "a request failed" in logged.text
