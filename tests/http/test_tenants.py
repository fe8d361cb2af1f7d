"""Two tenants: nothing of the one is ever visible to the other, by any route, argument, header, tool or feed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_server import Server, start_server
from tenants import (
    AGENT,
    CANARY,
    MINE,
    NAMESPACES,
    OTHER,
    QUERY,
    Held,
    Operation,
    attacks,
    exported,
    fill,
    operations,
    whole_export,
)

import commonplace
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import Gate
from commonplace.server.http.service import Service
from commonplace.settings import Settings

EVERYTHING = frozenset(("read", "write", "delete", "admin"))
READING = (
    *("GET /", "POST /v1/search", "POST /v1/recall", "POST /v1/context", "POST /v1/thread-search"),
    *("POST /v1/message-counts", "POST /v1/item-reads"),
    "POST /api/memory/observational-memory/buffer-status",
)
"""Operations that change nothing whoever calls."""


@dataclass(frozen=True)
class Tenants:
    """A service with both, a client of each with all actions, and what the other holds, and what is mine."""

    server: Server
    mine: httpx.Client
    other: httpx.Client
    held: Held
    own: Held

    @property
    def book(self) -> commonplace.Book:
        return self.server.service.book

    def send(self, request: httpx.Request, client: httpx.Client) -> httpx.Response:
        url = request.url.copy_with(host=client.base_url.host, port=client.base_url.port)
        sent = client.build_request(request.method, url, content=request.content, headers=_headers(request))
        return client.send(sent)


def _headers(request: httpx.Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}


def _forged(request: httpx.Request, held: Held) -> httpx.Request:
    """An import gets the other's own export to send."""
    if request.content != b"FORGED":
        return request
    return httpx.Request(request.method, request.url, headers=_headers(request), content=held.export)


@pytest.fixture
def tenants(book: commonplace.Book, clock: Any) -> Iterator[Tenants]:
    held, agents = fill(book, OTHER, CANARY), fill(book, AGENT, CANARY)
    fill(book, (*MINE, "below"), CANARY)
    fill(book, ("user",), CANARY)
    own = fill(book, MINE, "mine")  # after the others: a number that counts over the whole book would tell of them
    service = Service(book, Gate(Keys(book.store, clock=clock)), Settings(max_streams=5))
    keys = {
        name: service.access.keys.create(Key(name, namespace, actions=EVERYTHING))[1]
        for name, namespace in (("alice", MINE), ("bob", OTHER))
    }
    server = start_server(service)
    with server.client(keys["alice"]) as mine, server.client(keys["bob"]) as other:
        known = replace(held, agent_thread=agents.thread, agent_message=agents.message)
        yield Tenants(server, mine, other, replace(known, cursors=_cursors(other, held)), own)
    server.stop()


def _cursors(client: httpx.Client, held: Held) -> tuple[str, ...]:
    """Cursors that were made for the other."""
    found = []
    for path in ("/v1/records", "/v1/tree/", "/v1/directories/", "/v1/threads", f"/v1/messages?thread={held.thread}"):
        url = httpx.URL(path)
        following = client.get(url.copy_merge_params({"limit": 1})).json().get("next")
        if following is not None:
            found += [value for name, value in httpx.URL(following).params.items() if name in ("cursor", "after")]
    store = f"/v1/memory_stores/{held.store}"
    for path in ("/v1/memory_stores", f"{store}/memories", f"{store}/memory_versions"):
        found.append(client.get(path, params={"limit": 1}).json()["next_page"])
    assert found
    return tuple(found)


def all_operations(book: commonplace.Book) -> list[Operation]:
    return operations(build_app(Service(book, Gate(Keys(book.store)), Settings())).openapi())


@pytest.mark.promise("service-tenants")
def test_no_route_shows_or_changes_anything_of_another_tenant(tenants):
    before = {name: exported(tenants.book, name) for name in (OTHER, AGENT, (*MINE, "below"), ("user",))}
    shown_to_its_owner = set()
    for operation in all_operations(tenants.book):
        if operation.is_stream:
            continue
        for request in attacks(operation, tenants.held):
            request = _forged(request, tenants.held)
            answer = tenants.send(request, tenants.mine)
            place = f"{request.method} {request.url.raw_path.decode()} {request.content[:200]!r}"
            assert answer.status_code < 500, place
            assert CANARY.encode() not in answer.content, place
            assert CANARY not in str(answer.headers), place
            if operation.method == "GET" and operation.path not in shown_to_its_owner:
                shown = tenants.send(request, tenants.other)
                if CANARY.encode() in shown.content:
                    shown_to_its_owner.add(operation.path)
    assert {name: exported(tenants.book, name) for name in before} == before
    # The same requests do show it to whom it belongs, or they would prove nothing.
    assert len(shown_to_its_owner) >= 25, shown_to_its_owner
    assert sum(path.startswith("/v1/memory_stores") for path in shown_to_its_owner) == 6, shown_to_its_owner


@pytest.fixture
def alone(tenants: Tenants, open_book: Any, tmp_path: Path, clock: Any) -> Iterator[httpx.Client]:
    """A client of a service that holds the same of mine, and nothing of anybody else."""
    book = open_book(tmp_path / "alone.db")
    (tmp_path / "mine.jsonl").write_bytes(whole_export(tenants.book, MINE))
    with (tmp_path / "mine.jsonl").open("rb") as lines:
        imported = [one.namespace for one in book.import_lines(lines)]
    assert sorted(imported) == [MINE, (*MINE, "memory_store", tenants.own.store)]
    service = Service(book, Gate(Keys(book.store, clock=clock)), Settings())
    key = service.access.keys.create(Key("alice", MINE, actions=EVERYTHING))[1]
    server = start_server(service)
    with server.client(key) as client:
        yield client
    server.stop()


@pytest.mark.promise("service-tenants")
def test_answers_are_the_same_whether_or_not_others_are_there(tenants, alone):
    """Hits, states, messages with their entries, and cursors held a number that counts the entries of the whole book:
    a tenant read off it how much others had written. `/readyz` told everybody how many of their passages waited.
    """
    compared = 0
    for operation in all_operations(tenants.book):
        is_reading = operation.method == "GET" or f"{operation.method} {operation.path}".startswith(READING)
        if not is_reading or operation.is_stream or operation.path == "/metrics":
            continue
        for request in (*attacks(operation, tenants.held), *attacks(operation, tenants.own)):
            pair = [tenants.send(request, one) for one in (alone, tenants.mine)]
            if request.url.path == "/v1/export":
                # The first line tells when it was made.
                assert pair[0].content.splitlines()[1:] == pair[1].content.splitlines()[1:]
                continue
            lone, among = [(one.status_code, one.content, one.headers.get("etag")) for one in pair]
            assert lone == among, request.url
            compared += 1
    assert compared > 1_000


@pytest.mark.promise("service-tenants")
def test_no_way_of_writing_a_namespace_widens_a_key(tenants):
    for namespace in NAMESPACES:
        answer = tenants.mine.get("/v1/records", params={"namespace": namespace})
        assert answer.status_code in (400, 403, 422), namespace
    twice = tenants.mine.get("/v1/files/shared/plan.md?namespace=user/alice&namespace=user/bob")
    assert CANARY.encode() not in twice.content
    assert tenants.mine.get("/v1/records", params={"namespace": "user/alice"}).status_code == 200


@pytest.mark.promise("service-tenants")
def test_a_feed_tells_of_its_own_tenant_alone(tenants):
    other, mine = (tenants.book.space(*namespace) for namespace in (OTHER, MINE))
    with tenants.mine.stream("GET", "/v1/changes/stream", params={"after": mine.stats().commit}) as stream:
        lines = stream.iter_lines()
        next(lines)
        for number in range(5):
            other.files.write(f"/{CANARY}/{number}", CANARY)
        mine.files.write("/own", "mine")
        told = next(line for line in lines if line.startswith("data:"))
    assert [change["key"] for change in json.loads(told.removeprefix("data:"))["changes"]] == ["/own"]
    for namespace in NAMESPACES:
        with tenants.mine.stream("GET", "/v1/changes/stream", params={"namespace": namespace}) as refused:
            assert refused.status_code in (400, 403, 422), namespace


@pytest.mark.promise("service-tenants")
def test_an_idempotency_key_of_another_tenant_is_a_new_one(tenants):
    note = {"type": "note", "content": CANARY, "source": "s", "confidence": 1.0}
    made = tenants.other.post("/v1/records", json=note, headers={"Idempotency-Key": "one"})
    again = tenants.mine.post("/v1/records", json=note, headers={"Idempotency-Key": "one"})
    assert (made.status_code, again.status_code) == (201, 201)
    assert made.json()["id"] != again.json()["id"]


@pytest.mark.promise("service-tenants")
def test_a_forged_export_reaches_no_other_namespace(tenants):
    before = exported(tenants.book, OTHER)
    for merge in ("true", "false"):
        answer = tenants.mine.post("/v1/import", params={"merge": merge}, content=tenants.held.export)
        assert answer.status_code == 403
    assert exported(tenants.book, OTHER) == before


# A key that only reads


@pytest.mark.promise("service-keys-actions")
def test_a_key_that_only_reads_changes_nothing_by_any_route(tenants):
    before = exported(tenants.book, OTHER), exported(tenants.book, AGENT)
    reader = tenants.server.service.access.keys.create(Key("reader", OTHER, actions=frozenset(("read",))))[1]
    never_forbidden = []
    with tenants.server.client(reader) as client:
        for operation in all_operations(tenants.book):
            name = f"{operation.method} {operation.path}"
            if operation.is_stream:
                continue
            answers = [
                tenants.send(_forged(request, tenants.held), client)
                for request in attacks(operation, tenants.held)
                if "namespace" not in request.url.params
            ]
            if not name.startswith(READING) and not any(answer.status_code == 403 for answer in answers):
                never_forbidden.append(name)
    assert (exported(tenants.book, OTHER), exported(tenants.book, AGENT)) == before
    assert never_forbidden == []


@pytest.mark.promise("service-keys-actions")
def test_a_key_that_only_reads_changes_nothing_by_any_tool(tenants):
    before = exported(tenants.book, OTHER), exported(tenants.book, AGENT)
    reader = tenants.server.service.access.keys.create(Key("reader", OTHER, actions=frozenset(("read",))))[1]
    known = tool_attacks(tenants.held)
    with tenants.server.client(reader) as client:
        session = Session(client, "all")
        for tool in session.result("tools/list")["tools"]:
            cases = [*known.get(tool["name"], ()), *_made_up(tool, tenants.held)]
            answers = [session.send("tools/call", name=tool["name"], arguments=case).text for case in cases]
            if not tool["annotations"]["readOnlyHint"]:
                assert any("is not permitted" in answer for answer in answers), tool["name"]
    assert (exported(tenants.book, OTHER), exported(tenants.book, AGENT)) == before


# MCP

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Session:
    """A session with one profile."""

    def __init__(self, client: httpx.Client, profile: str) -> None:
        self._client = client
        self._path = f"/mcp/{profile}"
        self._headers = dict(ACCEPT)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = self.send("initialize", **about)
        self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]

    def send(self, method: str, **params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self._client.post(self._path, content=json.dumps(body), headers=self._headers)

    def result(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.send(method, **params).text
        line = next(line for line in answer.splitlines() if line.startswith("data:"))
        return json.loads(line.removeprefix("data:"))["result"]

    def notifications(self) -> Any:
        return self._client.stream("GET", self._path, headers=self._headers)


def tool_attacks(held: Held) -> dict[str, list[dict[str, Any]]]:
    """Arguments with the other's names in them; those of other tools are made from their schemas."""
    ids = [held.record, held.thread, held.message]
    files = ["/", "/shared/plan.md", "/memories", "/memories/shared/plan.md", "/memories/../bob", "/../bob/shared"]
    note = {"type": "note", "content": {"text": "mine"}, "source": "s", "confidence": 1.0}
    said = {"role": "user", "content": "mine"}
    widened = {"namespace": ["user", "bob"]}
    return {
        "memory_create": [note, {**note, "id": held.record}, {**note, **widened}],
        "memory_search": [{"query": QUERY}, {"query": QUERY, **widened}, {"query": QUERY, "tags": ["shared"]}],
        "memory_list": [{}, {"tags": ["shared"]}, {"type": "*"}, widened],
        "memory_get": [{"id": id} for id in ids] + [{"ids": ids}],
        "memory_delete": [{"id": id} for id in ids],
        "memory": [{"command": word, "path": path} for word in ("list", "read", "delete", "view") for path in files]
        + [
            {"command": "append", "path": "/shared/plan.md", "content": "x"},
            {"command": "list", "path": "/", **widened},
        ],
        "claude_memory": [{"command": word, "path": path} for word in ("view", "delete") for path in files],
        "manage_memory": [
            {"action": "create", "content": "x"},
            {"action": "delete", "id": held.record},
            {"action": "update", "id": held.record, "content": "x"},
            {"action": "create", "content": "x", "configurable": {"user_id": "bob"}, **widened},
        ],
        "message_add": [
            {"messages": [said]},
            {"thread": held.thread, "messages": [said]},
            {"messages": [{**said, "id": held.message}]},
            {"messages": [{**said, "threadId": held.thread, "resourceId": "bob"}]},
        ],
        "search_memory": [{"query": QUERY}, {"query": QUERY, "filter": {"namespace": ["user", "bob"]}}, widened],
    }


def mcp_requests(session: Session, held: Held) -> list[tuple[str, dict[str, Any]]]:
    """Whatever a session can ask, with somebody's names in it."""
    known = tool_attacks(held)
    places = ["recent", f"item/{held.record}", f"message/{held.message}", "file/shared/plan.md", "file/../bob/x"]
    places += ["by-tags/shared", "by-type/note", "recent?namespace=user/bob", f"message/{held.thread}"]
    requests: list[tuple[str, dict[str, Any]]] = []
    for tool in session.result("tools/list")["tools"]:
        cases = known.get(tool["name"], _made_up(tool, held))
        meta = {"_meta": {"namespace": ["user", "bob"], "user_id": "bob"}}
        requests += [("tools/call", {"name": tool["name"], "arguments": case, **meta}) for case in cases]
    requests += [("resources/read", {"uri": f"mem://{place}"}) for place in places]
    requests += [("resources/subscribe", {"uri": f"mem://{place}"}) for place in places]
    requests += [("resources/list", {}), ("resources/templates/list", {}), ("prompts/list", {})]
    for prompt in session.result("prompts/list")["prompts"]:
        arguments = {one["name"]: QUERY for one in prompt.get("arguments", ())}
        requests.append(("prompts/get", {"name": prompt["name"], "arguments": arguments}))
    for template in session.result("resources/templates/list")["resourceTemplates"]:
        for name in ("tags", "type", "path", "id", "limit", "match"):
            reference = {"type": "ref/resource", "uri": template["uriTemplate"]}
            argument = {"name": name, "value": ""}
            requests.append(("completion/complete", {"ref": reference, "argument": argument}))
    return requests


@pytest.mark.promise("service-tenants-mcp")
def test_no_tool_resource_prompt_or_completion_shows_anything_of_another_tenant(tenants):
    from commonplace.server.mcp.profiles import PROFILES

    held = tenants.held
    before = exported(tenants.book, OTHER)
    shown = 0
    for profile in PROFILES:
        mine, other = Session(tenants.mine, profile), Session(tenants.other, profile)
        for method, params in mcp_requests(mine, held):
            answer = mine.send(method, **params)
            assert CANARY not in answer.text, (profile, method, params)
            assert answer.status_code < 500, (profile, method, params)
            is_reading = method != "tools/call" or params["arguments"].get("command") in ("view", "read", "list")
            if is_reading and CANARY in other.send(method, **params).text:
                shown += 1
    assert exported(tenants.book, OTHER) == before
    assert shown >= 20


@pytest.mark.promise("service-tenants-mcp")
def test_mcp_answers_are_the_same_whether_or_not_others_are_there(tenants, alone):
    """The cursor of a list held a number that counts the entries of the whole book."""
    lone, among = Session(alone, "all"), Session(tenants.mine, "all")
    reading = {tool["name"] for tool in among.result("tools/list")["tools"] if tool["annotations"]["readOnlyHint"]}
    requests = [*mcp_requests(among, tenants.held), *mcp_requests(among, tenants.own)]
    requests += [("tools/call", {"name": "memory_list", "arguments": {"limit": 1}})]
    requests += [("tools/call", {"name": "memory_search", "arguments": {"query": QUERY, "limit": 1}})]
    compared = 0
    for method, params in requests:
        if method == "tools/call" and params["name"] not in reading:
            continue
        answers = [session.send(method, **params) for session in (lone, among)]
        # A word that stored texts cannot contain is drawn for each answer.
        told = [re.sub("stored-data [0-9a-f]{24}", "stored-data", answer.text) for answer in answers]
        assert told[0] == told[1], (method, params)
        compared += 1
    assert compared > 50


def _made_up(tool: dict[str, Any], held: Held) -> list[dict[str, Any]]:
    """Arguments from a tool's own schema: each string in turn one of the other's names."""
    described = tool["inputSchema"]["properties"]
    made = []
    for name in (held.thread, held.record, held.message, "acme", QUERY, "/shared/plan.md"):
        made.append({field: _value(schema, name) for field, schema in described.items()})
        required = tool["inputSchema"].get("required", [])
        made.append({field: _value(described[field], name) for field in required})
    return made


def _value(schema: dict[str, Any], name: str) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    simple: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "object": {"text": name}}
    if kind == "array":
        return [_value(schema.get("items", {}), name)]
    return simple.get(kind, name)


@pytest.mark.promise("service-tenants-mcp")
def test_a_subscription_tells_of_its_own_tenant_alone(tenants):
    mine = Session(tenants.mine, "all")
    watched = ["mem://recent", "mem://file/shared/plan.md", f"mem://item/{tenants.held.record}", "mem://by-type/note"]
    for uri in watched:
        mine.result("resources/subscribe", uri=uri)
    with mine.notifications() as stream:
        lines = stream.iter_lines()
        other = tenants.book.space(*OTHER)
        other.files.write("/shared/plan.md", "changed")
        other.records.delete(tenants.held.record)
        other.records.create(type="note", content="x", source="s", confidence=1)
        tenants.book.space(*MINE).files.write("/shared/plan.md", "my own")
        told = next(line for line in lines if line.startswith("data:") and "updated" in line)
    assert json.loads(told.removeprefix("data:"))["params"]["uri"] == "mem://file/shared/plan.md"
