"""Connect: what each client is told, and the keys of the service."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from html import unescape

import pytest
import yaml
from browsing import PAGE, Browser

from commonplace.server.http.service import Service
from commonplace.server.mcp.clients import CLIENTS, HttpServer, StdioServer

SQLITE_ONLY = pytest.mark.parametrize("book", ["sqlite"], indirect=True)
PARSERS = {"json": json.loads, "jsonc": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def boxes(html: str) -> list[str]:
    """The texts to copy."""
    return [unescape(text) for text in re.findall(r'<div class="copy">\s*<pre[^>]*>(.*?)</pre>', html, re.DOTALL)]


# The table of clients


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_settings_are_valid_in_the_format_of_the_client(client):
    stdio = StdioServer("/opt/my tools/commonplace", ("mcp", "--db", 'a "b"\\c.db'), {"COMMONPLACE_KEY": "k: #1"})
    servers = [stdio, *([HttpServer("http://127.0.0.1:8765/mcp", "k")] if client.http else [])]
    for server in servers:
        parsed = PARSERS[client.format](client.text(server))
        assert parsed == client.settings(server)
        for key in client.section:
            parsed = parsed[key]
        assert list(parsed) == [client.server_name]
        assert json.dumps(server.command if isinstance(server, StdioServer) else server.url) in json.dumps(parsed)
        assert ("k: #1" if server is stdio else "Bearer k") in json.dumps(parsed)


def test_every_client_says_where_its_settings_are_and_where_that_is_documented():
    for client in CLIENTS.values():
        assert client.docs.startswith("https://")
        assert client.place or client.files.keys() == {"macos", "linux", "windows"}
        if client.files:
            assert client.files["windows"].startswith("%")
            assert "/" not in client.files["windows"]


def test_the_shapes_are_those_of_the_clients():
    http, key = HttpServer("http://h/mcp"), HttpServer("http://h/mcp", "k")
    entry = {name: client.http(http) for name, client in CLIENTS.items() if client.http}
    assert entry["claude-code"] == entry["vscode"] == {"type": "http", "url": "http://h/mcp"}
    assert entry["cursor"] == entry["zed"] == entry["codex"] == {"url": "http://h/mcp"}
    assert entry["gemini-cli"] == {"httpUrl": "http://h/mcp"}
    assert entry["windsurf"] == {"serverUrl": "http://h/mcp"}
    assert entry["cline"]["type"] == "streamableHttp"
    assert entry["opencode"]["type"] == "remote"
    assert entry["goose"]["type"] == "streamable_http"
    assert CLIENTS["codex"].text(key) == (
        '[mcp_servers.memory]\nurl = "http://h/mcp"\n\n[mcp_servers.memory.http_headers]\nAuthorization = "Bearer k"\n'
    )


# The screen


@pytest.mark.promise("page-connect")
@pytest.mark.parametrize("name", CLIENTS)
@SQLITE_ONLY
def test_each_client_has_a_box_to_copy(browser: Browser, name: str):
    page = browser.get(f"/ui/connect?client={name}")
    client, address = CLIENTS[name], str(browser.http.base_url).rstrip("/")
    assert f'<h2 id="client">{client.title}</h2>' in page.text
    texts = boxes(page.text)
    if client.http is not None:
        assert client.text(HttpServer(f"{address}/mcp")) in texts
    started = json.dumps(PARSERS[client.format](texts[-1]))
    assert f'"mcp", "--remote", "{address}"' in started
    assert "YOUR_KEY" not in page.text


@SQLITE_ONLY
@pytest.mark.promise("page-connect")
def test_with_keys_the_boxes_have_a_place_for_one(browser: Browser, make_key: Callable[..., str]):
    key = make_key("ada", "user/ada", reach="below")
    browser.sign_in(key)
    page = browser.get("/ui/connect?client=codex&ns=user/ada/work%26play")
    assert key not in page.text
    settings = tomllib.loads(boxes(page.text)[0])["mcp_servers"]["memory"]
    assert settings["url"].endswith("/mcp?namespace=user/ada/work%26play")
    assert settings["http_headers"] == {"Authorization": "Bearer YOUR_KEY"}
    claude = boxes(browser.get("/ui/connect?ns=user/ada/work").text)[0]
    assert claude.endswith('?namespace=user/ada/work\' --scope user --header "Authorization: Bearer YOUR_KEY"')
    assert browser.get("/ui/connect?client=nobody").status_code == 404


@SQLITE_ONLY
def test_the_copied_address_serves_mcp(browser: Browser):
    settings = json.loads(boxes(browser.get("/ui/connect?client=cursor").text)[0])["mcpServers"]["memory"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    call["params"] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    headers = {"Accept": "application/json, text/event-stream"}
    assert browser.http.post(settings["url"], json=call, headers=headers).status_code == 200


# Keys


@pytest.mark.promise("page-keys")
def test_the_first_key_needs_a_confirmation_is_shown_once_and_signs_in(browser: Browser, service: Service):
    form = browser.get("/ui/connect/new-key")
    assert "From then on everyone needs one" in form.text
    unsure = browser.send(form, "/ui/connect/new-key", name="ada", confirmed="", reach="all", expires="")
    assert unsure.status_code == 422
    assert service.access.is_open()
    assert 'value="ada"' in unsure.text
    fields = {"name": "ada", "reach": "all", "expires": "90", "actions": "admin", "confirmed": "yes"}
    made = browser.send(form, "/ui/connect/new-key", **fields)
    (text,) = boxes(made.text)
    assert service.access.keys.check(text).name == "ada"
    assert made.headers["cache-control"] == "no-store"
    listed = browser.get("/ui/connect")
    assert "ada" in listed.text
    assert "good until" in listed.text
    assert text not in listed.text
    assert text.rpartition("_")[2] not in str(service.book.store.system_list("keys"))


@pytest.mark.promise("page-keys")
def test_a_key_is_revoked_after_a_confirmation(browser: Browser, make_key: Callable[..., str], service: Service):
    browser.sign_in(make_key("root", reach="all", actions=["read", "write", "delete", "admin"]))
    make_key("laptop", "user/ada")
    asked = browser.get("/ui/connect/revoke?name=laptop")
    assert "user/ada: read, write, delete" in asked.text
    assert service.access.keys.list()[1][0].revoked_at is None
    done = browser.send(asked, "/ui/connect/revoke")
    assert done.url.path == "/ui/connect"
    assert "revoked on" in done.text
    assert browser.get("/ui/connect/revoke?name=nobody").status_code == 404
    own = browser.get("/ui/connect/revoke?name=root")
    assert "You are signed in with this key" in own.text
    assert browser.send(own, "/ui/connect/revoke").url.path == "/ui/sign-in"


@SQLITE_ONLY
def test_a_refused_key_keeps_what_was_typed(browser: Browser, make_key: Callable[..., str]):
    browser.sign_in(make_key("root", reach="all", actions=["admin"]))
    form = browser.get("/ui/connect/new-key")
    for fields, status, words in (
        ({"name": "root"}, 409, "exists already"),
        ({"name": "a b"}, 422, "is not a valid name for a key"),
        ({"name": "good", "namespace": "/"}, 422, "amespace"),
        ({"name": "good", "reach": "moon"}, 422, "from the lists"),
        ({"name": "good", "actions": "fly"}, 422, "from the lists"),
        ({"name": "good", "expires": "-1"}, 422, "from the lists"),
    ):
        refused = browser.send(form, "/ui/connect/new-key", **{"reach": "own", "expires": "", **fields})
        assert refused.status_code == status, fields
        assert words in refused.text
        assert f'value="{fields["name"]}"' in refused.text


@SQLITE_ONLY
@pytest.mark.promise("page-keys")
@pytest.mark.parametrize(
    "options",
    [
        {"reach": "all"},
        {"reach": "below", "actions": ["read", "write", "delete", "admin"]},
        {"reach": "own", "actions": ["read", "write", "delete", "admin"]},
    ],
)
def test_only_an_operator_sees_and_changes_keys(
    browser: Browser, make_key: Callable[..., str], service: Service, options: dict[str, object]
):
    make_key("other-key-of-the-service")
    page = browser.sign_in(make_key("ada", "user/ada", **options))
    page = browser.get("/ui/connect")
    assert "other-key-of-the-service" not in page.text
    assert "new-key" not in page.text
    token = page.text.split('name="token" value="')[1].split('"')[0]
    for path in ("/ui/connect/new-key", "/ui/connect/revoke?name=other-key-of-the-service"):
        assert browser.get(path).status_code == 403
        data = {"token": token, "name": "other-key-of-the-service"}
        assert browser.http.post(path, data=data, headers=PAGE).status_code == 403
    assert service.access.keys.list()[0][0].revoked_at is None


@SQLITE_ONLY
def test_keys_need_the_token_of_this_browser(browser: Browser, service: Service):
    browser.get("/ui/connect")
    for path in ("/ui/connect/new-key", "/ui/connect/revoke", "/ui/sample", "/ui/sample/remove"):
        data = {"token": "0" * 64, "name": "mallory", "confirmed": "yes", "reach": "all"}
        assert browser.http.post(path, data=data, headers=PAGE).status_code == 403
    assert service.access.is_open()
