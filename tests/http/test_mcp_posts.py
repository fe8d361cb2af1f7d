"""What clients post to MCP over HTTP: the same rules as on stdio, an answer to every request, lines that stay whole."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from commonplace.server.http.api_keys import Rate

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
def session(http: httpx.Client) -> httpx.Client:
    """A client with a session of revision 2025-03-26, the one that has batches."""
    http.headers.update(ACCEPT)
    http.headers["Mcp-Session-Id"] = begin(http, "2025-03-26")
    return http


def begin(client: httpx.Client, version: str) -> str:
    about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    began = client.post("/mcp", json={**PING, "method": "initialize", "params": about}, headers=ACCEPT)
    assert told(began)["result"]["protocolVersion"] == version
    return began.headers["mcp-session-id"]


def told(answer: httpx.Response) -> Any:
    """The answer, of an event or of plain JSON."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        return json.loads(next(line[5:] for line in answer.text.splitlines() if line.startswith("data:")))
    return answer.json()


def create(id: object, **more: Any) -> dict[str, Any]:
    note = {"type": "note", "content": "x", "source": "test://", "confidence": 1, **more}
    return {**PING, "id": id, "method": "tools/call", "params": {"name": "memory_create", "arguments": note}}


@pytest.mark.promise("mcp-errors")
@pytest.mark.parametrize(
    ("body", "code", "id"),
    [
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
        ('{"id":7,"method":"ping"}', -32600, 7),
        ('{"jsonrpc":"2.0","id":7}', -32600, 7),
        ('{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}', -32700, 8),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":{"b":1,"b":2}}}', -32700, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":NaN}}', -32700, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', -32602, 7),
        ("5", -32600, None),
        ("[]", -32600, None),
        ("{", -32700, None),
        ("", -32700, None),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":' + '{"a":' * 500 + "1" + "}" * 501, -32700, 7),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else None,
)
def test_a_bad_message_gets_the_error_that_it_gets_on_stdio(session, body, code, id):
    """A request with the id null or 1.5 got 202 and never an answer; of two keys with one name the last was taken."""
    answer = session.post("/mcp", content=body)
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["id"]) == (400, code, id)
    assert told(session.post("/mcp", json=PING))["result"] == {}


@pytest.mark.promise("mcp-batches")
def test_a_batch_of_the_revision_that_has_them_is_answered_together(session, service):
    """Revision 2025-03-26 requires a server to take batches; they were refused."""
    posted = [create(1), {"jsonrpc": "2.0", "method": "notifications/initialized"}, create("two"), {"id": 3}, 5]
    answer = session.post("/mcp", json=[*posted, {**PING, "id": 4, "method": "initialize", "params": {}}])
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    answers = answer.json()
    assert [one["id"] for one in answers] == [1, "two", 3, None, 4]
    assert [one.get("error", {}).get("code") for one in answers] == [None, None, -32600, -32600, -32600]
    assert len(service.book.space("user", "default").records.list().records) == 1  # the same content twice is one
    only_notes = session.post("/mcp", json=[{"jsonrpc": "2.0", "method": "notifications/initialized"}])
    assert (only_notes.status_code, only_notes.text) == (202, "")


@pytest.mark.promise("mcp-batches")
def test_other_revisions_and_long_batches_are_refused(session):
    for version in ("2025-06-18", "2025-11-25", "2026-07-28"):
        refused = session.post("/mcp", json=[PING], headers={"Mcp-Protocol-Version": version})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)
        assert "only revision 2025-03-26 has batches" in refused.json()["error"]["message"]
    named = session.post("/mcp", json=[PING], headers={"Mcp-Protocol-Version": "2025-03-26"})
    assert named.json()[0]["result"] == {}
    assert session.post("/mcp", json=[{**PING, "id": id} for id in range(51)]).status_code == 400


@pytest.mark.promise("service-rates")
def test_each_message_of_a_batch_counts_for_the_rate_of_its_key(server, make_key):
    """A batch of fifty calls counted as one, so a key could call fifty times as often as it may."""
    with server.client(make_key("busy", rate=Rate(5, 86_400))) as client:
        client.headers.update(ACCEPT)
        client.headers["Mcp-Session-Id"] = begin(client, "2025-03-26")
        answers = client.post("/mcp", json=[{**PING, "id": number} for number in range(6)]).json()
    assert ["result" in answer for answer in answers] == [True] * 4 + [False] * 2
    assert (answers[5]["id"], answers[5]["error"]["code"]) == (5, -32000)
    assert "5/d" in answers[5]["error"]["message"]


def test_a_batch_for_a_session_that_is_not_there_is_told_so(session):
    gone = session.post("/mcp", json=[PING, PING], headers={"Mcp-Session-Id": "nobody"})
    assert gone.status_code == 404
    assert gone.json()["error"]["message"] == "Session not found"


@pytest.mark.promise("mcp-lines-stay-whole")
def test_no_answer_in_events_has_a_line_break_that_only_some_readers_see(session):
    """Clients that split a stream with `str.splitlines` hung on a raw U+2028 or U+0085 within an event."""
    breaks = "".join(chr(code) for code in range(1, 0x3000) if len(f"a{chr(code)}b".splitlines()) > 1)
    content = f"a{breaks}b"
    session.post("/mcp", json=create(1, content=content))
    listed = session.post("/mcp", json={**create(2), "params": {"name": "memory_search", "arguments": {"query": "a"}}})
    id = told(listed)["result"]["structuredContent"]["items"][0]["id"]
    read = {**PING, "method": "resources/read", "params": {"uri": f"mem://item/{id}"}}
    answer = session.post("/mcp", json=read)
    assert json.loads(told(answer)["result"]["contents"][0]["text"])["content"] == content
    assert answer.text.splitlines() == answer.text.replace("\r\n", "\n").split("\n")[:-1]


@pytest.mark.promise("mcp-errors")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "none"}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "http://x/{y}"}}),
        ("tools/list", {"cursor": "x"}),
        ("resources/list", {"cursor": "x"}),
        ("resources/templates/list", {"cursor": "x"}),
        ("prompts/list", {"cursor": "x"}),
    ],
)
def test_an_unknown_name_to_complete_or_cursor_is_an_error(session, method, params):
    """Both got an empty or a first page, as if all were well."""
    if method == "completion/complete":
        params = {**params, "argument": {"name": "tags", "value": "x"}}
    answer = told(session.post("/mcp", json={**PING, "method": method, "params": params}))
    assert answer["error"]["code"] == -32602
    assert answer["error"]["message"].startswith(("Unknown ", "Invalid params: unknown cursor"))
