"""Metrics count by route and never by what was said, and belong to whoever runs the service."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import httpx
import pytest
from operated import operated
from prometheus_client.parser import text_string_to_metric_families

import commonplace
from commonplace.server.http.service import Service
from postgres_server import empty, shared_book


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def requests_counted(text: str) -> dict[tuple[str, str, str], float]:
    """Method, route and status of every request, with how often."""
    return {
        tuple(value for _, value in labels): count  # type: ignore[misc]
        for (name, labels), count in samples(text).items()
        if name == "commonplace_requests_total"
    }


@pytest.mark.promise("service.metrics")
def test_requests_are_counted_by_the_template_of_their_route(service: Service) -> None:
    with operated(service) as (server, routes), server.client() as client:
        routes.go_on.set()
        for name in ("alpha", "beta", "gamma"):
            assert client.post(f"/test/wait/{name}").status_code == 200
        for path in ("/nowhere/alpha", "/nowhere/beta"):
            assert client.get(path).status_code == 404
        client.request("PROPFIND", "/healthz")
        text = client.get("/metrics").text
        assert requests_counted(text) == {
            ("POST", "/test/wait/{name}", "200"): 3,
            ("GET", "unmatched", "404"): 2,
            ("OTHER", "/healthz", "405"): 1,
        }
        timed = samples(text)
        route = (("method", "POST"), ("route", "/test/wait/{name}"))
        assert timed["commonplace_request_seconds_count", route] == 3
        assert not re.search("alpha|beta|gamma|nowhere", text)


@pytest.mark.promise("service.metrics")
def test_every_route_of_the_service_has_its_whole_template(service: Service) -> None:
    with operated(service) as (server, _), server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
        asked = [path for path, methods in paths.items() if "get" in methods and not re.search("stream|^/test", path)]
        for path in asked:
            client.get(re.sub(r"\{[^}]*\}", "x", path))
        counted = {route for _, route, _ in requests_counted(client.get("/metrics").text)}
        missing = {path.replace(":path}", "}") for path in asked} - {route.replace(":path}", "}") for route in counted}
        assert missing - {"/metrics"} == set()


@pytest.mark.promise("service.metrics")
def test_refusals_and_mcp_tools_are_counted(service: Service, make_key: Any) -> None:
    with operated(service) as (server, _), server.client() as client:
        before = samples(client.get("/metrics").text)
        key = make_key("robot", reach="all", actions=("read", "write", "delete", "admin"))
        assert client.get("/metrics").status_code == 401
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"}
        call = {"name": "memory_list", "arguments": {}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        started = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        opened = client.post(
            "/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": started}
        )
        assert opened.status_code == 200
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        client.post(
            "/mcp", headers={**headers, **session}, json={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        assert client.post("/mcp", headers={**headers, **session}, json=body).status_code == 200
        assert client.post("/mcp/files/", headers=headers, json={}).status_code == 400
        text = client.get("/metrics", headers=headers).text
        counted = requests_counted(text)
        assert (counted["POST", "/mcp", "200"], counted["POST", "/mcp/{profile}", "400"]) == (2, 1)
        after = samples(text)
        tool = ("commonplace_tool_calls_total", (("outcome", "ok"), ("profile", "records"), ("tool", "memory_list")))
        refused = ("commonplace_refused_requests_total", (("reason", "unauthorized"),))
        assert [after[name] - before.get(name, 0) for name in (tool, refused)] == [1, 1]


@pytest.mark.promise("service.metrics-access")
def test_metrics_need_the_action_admin_where_there_are_keys(http: httpx.Client, make_key: Any) -> None:
    assert http.get("/metrics").status_code == 200
    keys = {
        "reader": make_key("reader", reach="all", actions=["read"]),
        "tenant": make_key("tenant", actions=["admin"]),
        "owner": make_key("owner", reach="all", actions=["admin"]),
    }

    def status(**headers: str) -> int:
        return http.get("/metrics", headers=headers).status_code

    assert status() == 401
    assert status(Authorization=f"Bearer {keys['reader']}") == 403
    assert status(Authorization=f"Bearer {keys['tenant']}") == 403
    assert status(Authorization=f"Bearer {keys['owner']}") == 200


@pytest.mark.promise("service.metrics-access")
def test_metrics_can_be_left_open(service: Service, make_key: Any) -> None:
    make_key("someone")
    opened = replace(service, settings=replace(service.settings, metrics_open=True))
    with operated(opened) as (server, _), server.client() as client:
        assert client.get("/metrics").status_code == 200
        assert client.get("/openapi.json").status_code == 200
        assert client.get("/v1/stats").status_code == 401


@pytest.mark.promise("service.metrics")
def test_pending_passages_and_the_version_are_told(http: httpx.Client, service: Service) -> None:
    service.book.space("user", "u1").files.write("/notes/a", "a text that waits for its vector")
    told = samples(http.get("/metrics").text)
    assert told["commonplace_pending_passages", ()] == 1
    assert any(name == "commonplace_build_info" for name, _ in told)
    assert told["process_resident_memory_bytes", ()] > 1e6


@pytest.mark.promise("service.metrics")
def test_a_service_on_postgres_reports_its_connections_and_what_searches_hold_in_memory(service: Service) -> None:
    names = ("database_connections", "database_connections_idle", "database_calls_waiting", "search_memory_bytes")
    with operated(service) as (server, _), server.client() as client:
        text = client.get("/metrics").text
        assert not [name for name in names if name in text]  # a book file has neither
    empty(shared_book())
    with commonplace.open(shared_book(), background=False) as book:
        with operated(replace(service, book=book)) as (server, _), server.client() as client:
            assert samples(client.get("/metrics").text)["commonplace_search_memory_bytes", ()] == 0
            book.space("user", "default").files.write("/f", "green tea")
            assert book.space("user", "default").search("tea").hits
            found = samples(client.get("/metrics").text)
        assert [name for name in names if (f"commonplace_{name}", ()) in found] == list(names)
        assert found["commonplace_database_connections", ()] >= found["commonplace_database_connections_idle", ()] >= 1
        assert found["commonplace_database_calls_waiting", ()] == 0
        assert found["commonplace_search_memory_bytes", ()] > 0
        assert ("commonplace_replica_lag_seconds", ()) not in found
