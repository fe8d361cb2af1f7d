"""Without keys only this computer's own programs are let in; with keys every route but a few asks for one."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from http.client import HTTPResponse
from urllib.parse import urlsplit

import httpx
import pytest
from operated import operated
from real_server import start_server

from commonplace.errors import ConfigurationError
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import make_gate
from commonplace.server.http.origins import is_loopback
from commonplace.server.http.service import Service
from commonplace.settings import Settings

OPEN = {"/", "/docs", "/openapi.json", "/healthz", "/readyz", "/.well-known/oauth-protected-resource"}
OTHER_ROUTES = ["/mcp", "/mcp/", "/mcp/files", "/mcp/none", "/.well-known/oauth-protected-resource/mcp", "/no/such"]


def addresses(service: Service) -> list[tuple[str, str]]:
    """Every method and path of the service, with something in the place of its parameters."""
    app = build_app(service)
    documented = [
        (method.upper(), re.sub(r"\{\w+\}", "file", path))
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    ]
    others = [*sorted(OPEN), *OTHER_ROUTES]
    return documented + [("GET", path) for path in others]


@pytest.mark.promise("service-local-host")
def test_a_rebound_host_reaches_no_route(server, http, service):
    for method, path in addresses(service):
        answer = http.request(method, path, headers={"Host": "evil.example"})
        assert answer.status_code == 421, (method, path)
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.promise("service-local-host")
def test_a_foreign_page_reaches_no_route(server, http, service):
    for method, path in addresses(service):
        for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example"):
            answer = http.request(method, path, headers={"Origin": origin})
            assert answer.status_code == 403, (method, path, origin)
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.promise("service-local-host")
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_tag_on_a_page_of_another_site_reaches_no_route(server, http, service, site):
    """`<script src="http://127.0.0.1:8765/v1/files/creds">` on another site sends no Origin: it read a file there that
    was valid JavaScript, and could set off searches and exports. Only Sec-Fetch-Site tells of the page."""
    service.book.space("user", "default").files.write("/creds", "key = 'zebracanary'")
    loads = [("no-cors", "script"), ("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty")]
    for method, path in [*addresses(service), ("GET", "/v1/files/creds"), ("GET", "/v1/search?q=key")]:
        for mode, target in loads:
            page = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": target}
            answer = http.request(method, path, headers=page)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path, page)


def test_a_link_on_another_site_leads_to_the_pages_for_people_and_to_nothing_else(server, http, service):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in ("/", "/docs", "/openapi.json", "/healthz"):
        assert http.get(path, headers=link).status_code == 200, path
    for path in ("/v1", "/v1/export", "/v1/search?q=x", "/metrics", "/mcp", "/api/memory/threads"):
        assert http.get(path, headers=link).status_code == 403, path


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_an_address_that_a_person_types_and_our_own_pages_are_let_in(http, site):
    assert http.get("/v1", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_a_page_whose_origin_may_call_may_do_so_from_another_site(service):
    opened = replace(service, settings=replace(service.settings, cors_origins=("https://app.example",)))
    cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    with operated(opened) as (server, _), server.client(headers=cross) as client:
        assert client.get("/v1", headers={"Origin": "https://app.example"}).status_code == 200
        assert client.get("/v1", headers={"Origin": "http://localhost:5173"}).status_code == 200
        assert client.get("/v1", headers={"Origin": "https://evil.example"}).status_code == 403
        assert client.get("/v1").status_code == 403


def test_with_keys_a_key_is_what_a_page_needs(server, make_key):
    with server.client(make_key("laptop"), headers={"Sec-Fetch-Site": "cross-site"}) as client:
        assert client.get("/v1").status_code == 200


GUARDED = {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin"}


def guards(answer: httpx.Response | HTTPResponse) -> dict[str, str | None]:
    return {name: answer.headers.get(name) for name in GUARDED}


@pytest.mark.promise("service-answers-are-not-for-other-pages")
def test_no_answer_can_be_loaded_into_a_page_of_another_site(service):
    """No answer of `/v1` said what type it was for good, or that other sites may not load it."""
    limits = {"max_body_bytes": 1_000, "request_seconds": 1.5, "max_streams": 0, "cors_origins": ("https://a.example",)}
    limited = replace(service, settings=replace(service.settings, **limits))
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    with operated(limited) as (server, _), server.client() as client:
        answers = [client.request(method, path) for method, path in addresses(service)]
        answers += [
            client.put("/v1/files/a", content="text"),
            client.get("/v1/files/a"),
            client.head("/v1/files/a"),
            client.get("/v1/files/a", headers={"If-None-Match": "*"}),
            client.put("/v1/files/a", content="x" * 2_000),
            client.get("/test/fail"),
            client.get("/test/stream"),
            client.post("/test/wait/for-long"),
            client.options("/v1/files/a", headers=asked),
            client.get("/v1", headers={"Host": "evil.example"}),
            client.get("/v1", headers={"Origin": "https://evil.example"}),
        ]
        for answer in answers:
            assert guards(answer) == GUARDED, (answer.request.url, answer.status_code)
            assert all(len(answer.headers.get_list(name)) == 1 for name in GUARDED)
        assert {200, 304, 403, 404, 413, 421, 500, 503, 504} <= {answer.status_code for answer in answers}
        for head in (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", urlsplit(server.address).port), timeout=20) as line:
                line.sendall(head)
                raw = HTTPResponse(line)
                raw.begin()
                assert guards(raw) == GUARDED, raw.status


@pytest.mark.parametrize("path", ["/v1", "/healthz", "/docs"])
def test_two_hosts_in_one_request_are_refused(server, path):
    """The first of them was checked, and whatever stands before the service may have gone by the second."""
    with socket.create_connection(("127.0.0.1", urlsplit(server.address).port), timeout=20) as line:
        line.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n" % path.encode())
        answer = HTTPResponse(line)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8765", "[::1]:8765", "127.1.2.3", "LOCALHOST"])
def test_this_computer_is_called_by_any_of_its_names(http, host):
    assert http.get("/v1", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1:3000", "http://[::1]:80"])
def test_a_page_of_this_computer_may_call_but_not_read(http, origin):
    answer = http.get("/v1", headers={"Origin": origin})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.promise("service-keys-everywhere")
def test_with_keys_every_route_but_the_open_ones_asks_for_one(server, http, service, make_key):
    make_key("laptop")
    for method, path in addresses(service):
        status = http.request(method, path).status_code
        if path in OPEN or path.startswith("/.well-known/"):
            assert status in (200, 503), (method, path)
        else:
            assert status == 401, (method, path)


@pytest.mark.promise("service-keys-everywhere")
def test_with_keys_the_service_may_stand_behind_a_name(server, make_key):
    with server.client(make_key("laptop"), headers={"Host": "memory.example"}) as client:
        assert client.get("/v1").status_code == 200


@pytest.mark.promise("service-cors")
def test_cors_is_closed_until_it_is_opened_for_one_origin(service):
    opened = replace(service, settings=replace(service.settings, cors_origins=("https://app.example",)))
    server = start_server(opened)
    asked = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,if-match"}
    try:
        with server.client() as client:
            good = client.options("/v1/files/a", headers={"Origin": "https://app.example", **asked})
            bad = client.options("/v1/files/a", headers={"Origin": "https://evil.example", **asked})
            read = client.get("/v1", headers={"Origin": "https://app.example"})
            refused = client.get("/v1", headers={"Origin": "https://evil.example"})
    finally:
        server.stop()
    assert (good.status_code, good.headers["access-control-allow-origin"]) == (200, "https://app.example")
    assert "authorization" in good.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-origin" not in bad.headers
    assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, "https://app.example")
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.promise("service-refuses-to-be-open")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "my-host", "10.0.0.1", ""])
def test_without_keys_no_other_address_is_served(book, host):
    with pytest.raises(ConfigurationError, match="make one first with `commonplace keys create me`"):
        make_gate(book, Settings(host=host), "commonplace keys create me")


@pytest.mark.promise("service-refuses-to-be-open")
def test_with_a_key_any_address_is_served_and_never_without_credentials(book):
    keys = Keys(book.store)
    keys.create(Key("me", ("user", "u1")))
    gate = make_gate(book, Settings(host="0.0.0.0"))
    keys.revoke("me", forget=True)
    assert not gate.is_open()
    with pytest.raises(ConfigurationError):
        make_gate(book, Settings(host="0.0.0.0"))


def test_loopback_is_told_from_everything_else():
    assert all(map(is_loopback, ["127.0.0.1", "localhost", "LocalHost", "::1", "[::1]", "127.9.9.9"]))
    assert not any(map(is_loopback, ["", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "127.0.0.1.x", "1"]))


def test_the_local_caller_has_the_namespace_and_the_limits_of_the_settings(book):
    gate = make_gate(book, Settings(namespace="org/acme", max_entries=5, max_bytes=6, rate="7/m"))
    principal, rate = gate.check({})
    assert (principal.name, principal.namespace, principal.reach) == ("local", ("org", "acme"), "all")
    assert (principal.rules.max_entries, principal.rules.max_bytes, str(rate)) == (5, 6, "7/m")


@pytest.mark.promise("service-page")
def test_the_page_tells_where_everything_is_and_shows_nothing_remembered(server, http, service, make_key):
    service.book.space("user", "default").files.write("/canary", "zebracanary")
    for key in (None, make_key("laptop")):
        page = http.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert f"claude mcp add --transport http memory {server.address}/mcp" in page.text
        assert "canary" not in page.text
        assert key is None or "Calls need a key or a token" in page.text


def test_the_page_escapes_what_a_caller_says_it_is_called(server, http, make_key):
    make_key("laptop")
    page = http.get("/", headers={"Host": "<script>alert(1)</script>"})
    assert "<script>" not in page.text


def test_the_description_tells_how_a_caller_shows_who_it_is(http):
    described = http.get("/openapi.json").json()
    assert set(described["components"]["securitySchemes"]) == {"bearer", "key"}
    assert described["security"] == [{}, {"bearer": []}, {"key": []}]


@pytest.mark.promise("service-cors")
def test_a_page_of_an_opened_origin_reads_every_refusal(service):
    limits = {"max_body_bytes": 1_000, "request_seconds": 1.5, "max_streams": 0}
    settings = replace(service.settings, cors_origins=("https://app.example",), **limits)
    page = {"Origin": "https://app.example"}
    with operated(replace(service, settings=settings)) as (server, _), server.client(headers=page) as client:
        answers = [
            client.get("/v1/files/missing"),
            client.put("/v1/files/a", content="x" * 2_000),
            client.get("/test/fail"),
            client.get("/test/stream"),
            client.post("/test/wait/for-long"),
            client.options("/v1/files/a", headers={"Access-Control-Request-Method": "PUT"}),
        ]
    assert [answer.status_code for answer in answers] == [404, 413, 500, 503, 504, 200]
    assert {answer.headers.get("access-control-allow-origin") for answer in answers} == {"https://app.example"}
    assert all("x-request-id" in answer.headers for answer in answers)
