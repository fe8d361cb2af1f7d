"""MCP within the service: real clients with keys, each in sessions of its own, which end when nobody needs them."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import fastmcp
import httpx
import httpx2
import mcp
import pytest
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.streamable_http import streamable_http_client
from operated import operated

from commonplace.errors import Unavailable
from commonplace.server.http import mcp_http
from commonplace.server.http.api_keys import Rate
from commonplace.server.http.mcp_http import Sessions, session_manager
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.server.mcp.profiles import PROFILES

NOTE = {"type": "note", "content": {"text": "Deploys go out on Tuesdays"}, "source": "test://one", "confidence": 0.9}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def mcp_client(address: str, key: str | None, path: str = "/mcp") -> fastmcp.Client[Any]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return fastmcp.Client(StreamableHttpTransport(f"{address}{path}", headers=headers))


def send(
    client: httpx.Client, method: str, path: str = "/mcp", session: str | None = None, **params: Any
) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = ACCEPT if session is None else {**ACCEPT, "Mcp-Session-Id": session}
    return client.post(path, content=json.dumps(body), headers=headers)


def begin(client: httpx.Client, path: str = "/mcp", name: str = "my-client") -> str:
    """Open a session; its id."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
    answer = send(client, "initialize", path, **about)
    assert answer.status_code == 200, answer.text
    return answer.headers["mcp-session-id"]


def result(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    line = next(line for line in answer.text.splitlines() if line.startswith("data:"))
    return json.loads(line.removeprefix("data:"))


@pytest.mark.promise("service-mcp")
def test_a_real_client_saves_and_finds_with_a_key(server, make_key, service):
    async def session(key: str) -> None:
        async with mcp_client(server.address, key) as client:
            saved = await client.call_tool("memory_create", NOTE)
            found = await client.call_tool("memory_search", {"query": "deploys"})
            assert found.structured_content["items"][0]["id"] == saved.structured_content["items"][0]["id"]

    anyio.run(session, make_key("laptop", "user/u1"))
    assert len(service.book.space("user", "u1").records.list().records) == 1


@pytest.mark.promise("service-mcp")
def test_without_keys_the_local_namespace_is_served_at_every_profile(server, service):
    service.book.space("user", "default").files.write("/notes/a", "local")

    async def session() -> None:
        for path in ("/mcp", "/mcp/", *(f"/mcp/{profile}" for profile in PROFILES)):
            async with mcp_client(server.address, None, path) as client:
                read = await client.read_resource("mem://file/notes/a")
                assert read[0].text == "local"

    anyio.run(session)


@pytest.mark.promise("mcp-initialize-lenient")
@pytest.mark.parametrize(
    ("left", "version"),
    [
        ({}, "2024-11-05"),
        ({"params": None}, "2024-11-05"),
        ({"params": {}}, "2024-11-05"),
        ({"params": {"protocolVersion": "2025-06-18"}}, "2025-06-18"),
        ({"params": {"protocolVersion": "2025-06-18", "clientInfo": {"name": "claude"}}}, "2025-06-18"),
    ],
)
def test_initialize_takes_what_clients_leave_out_as_on_stdio(http, left, version):
    began = http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", **left}, headers=ACCEPT)
    assert result(began)["result"]["protocolVersion"] == version
    assert result(send(http, "tools/list", session=began.headers["mcp-session-id"]))["result"]["tools"]


@pytest.mark.promise("mcp-errors")
def test_an_address_that_is_no_text_is_refused_in_words(http):
    answer = result(send(http, "resources/read", session=begin(http), uri="mem://by-tags/caf%E9"))
    assert answer["error"]["code"] == -32000
    assert answer["error"]["message"].startswith('invalid tag: "caf\N{REPLACEMENT CHARACTER}"; a tag has')


@pytest.mark.promise("mcp-answers-every-request")
def test_an_id_that_is_under_way_is_refused_and_free_again_with_its_answer(space):
    has_come, go_on = threading.Event(), threading.Event()

    def open_space() -> Any:
        has_come.set()
        assert go_on.wait(20)
        return space

    manager = session_manager(Memory(open_space), "records")
    answers: list[httpx.Response] = []

    async def use() -> None:
        transport = httpx.ASGITransport(manager.asgi_app)
        async with manager.run(), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            body = {"jsonrpc": "2.0", "id": 7, "method": "initialize"}
            session = (await client.post("/mcp", json=body, headers=ACCEPT)).headers["mcp-session-id"]

            async def ask(id: object, method: str) -> None:
                body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"name": "memory_list"}}
                headers = {**ACCEPT, "Mcp-Session-Id": session}
                answers.append(await client.post("/mcp", json=body, headers=headers))

            async with anyio.create_task_group() as group:
                group.start_soon(ask, 7, "tools/call")
                assert await anyio.to_thread.run_sync(has_come.wait, 20)
                await ask(7, "ping")
                await ask("7", "ping")
                await ask(8, "ping")
                go_on.set()
            await ask(7, "ping")

    anyio.run(use)
    assert [answer.status_code for answer in answers] == [409, 409, 200, 200, 200]
    assert answers[0].json()["id"] is None
    assert "is in progress" in answers[0].json()["error"]["message"]
    assert [result(answer)["id"] for answer in answers[2:]] == [8, 7, 7]


@pytest.mark.promise("service-mcp-sessions")
def test_the_session_of_another_key_does_not_exist(server, make_key):
    with server.client(make_key("one", "user/u1")) as one, server.client(make_key("two", "user/u2")) as two:
        mine = begin(one)
        assert result(send(one, "tools/list", session=mine))["result"]["tools"]
        foreign = send(two, "tools/list", session=mine)
        unknown = send(two, "tools/list", session="0" * 32)
        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content)
        assert foreign.status_code == 404
        assert two.get("/mcp", headers={**ACCEPT, "Mcp-Session-Id": mine}).status_code == 404
        assert two.delete("/mcp", headers={**ACCEPT, "Mcp-Session-Id": mine}).status_code == 404
        assert send(one, "tools/list", "/mcp/files", session=mine).status_code == 404
        assert result(send(one, "tools/list", session=mine))["result"]["tools"]


@pytest.mark.promise("service-mcp-retryable-refusals")
def test_a_refusal_that_may_be_tried_again_reaches_a_client_in_words(server, make_key):
    async def sees(key: str) -> str:
        headers = {"Authorization": f"Bearer {key}"}
        with pytest.raises(ExceptionGroup) as refused:
            async with mcp.Client(
                streamable_http_client(f"{server.address}/mcp", http_client=httpx2.AsyncClient(headers=headers))
            ):
                raise AssertionError("the second request was not refused")
        return repr(refused.value)

    key = make_key("slow", rate=Rate(1, 86_400))
    with server.client(key) as client:
        begin(client)
        refused = send(client, "tools/list")
        assert (refused.status_code, refused.headers["content-type"]) == (429, "application/json")
        assert int(refused.headers["retry-after"]) > 0
        told = refused.json()
        assert (told["id"], told["error"]["code"], told["error"]["data"]["code"]) == (None, -32000, "rate_limited")
    assert "the rate limit is 1/d calls; try again in" in anyio.run(sees, key)


@pytest.mark.promise("service-mcp-unauthorized")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/claude", "/mcp/"])
def test_who_shows_no_key_is_told_where_the_metadata_is(server, http, make_key, path):
    make_key("laptop")
    answer = send(http, "initialize", path)
    assert answer.status_code == 401
    where = f"{server.address}/.well-known/oauth-protected-resource{path.rstrip('/')}"
    assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{where}"'
    metadata = http.get(where.removeprefix(server.address)).json()
    assert metadata == {
        "resource": f"{server.address}{path.rstrip('/')}",
        "resource_name": "commonplace",
        "bearer_methods_supported": ["header"],
    }


def test_hostile_addresses_are_refused_like_others(server, http, make_key):
    make_key("laptop")
    for path in ('/mcp/"x', "/mcp/%22%0d%0aX: y", "/mcp/é", "/mcp/a/b"):
        assert http.get(path).headers["www-authenticate"] == "Bearer"
    assert http.get("/.well-known/oauth-protected-resource/v1/records").status_code == 404
    hostile = http.get("/mcp", headers={"Host": 'a"b é'.encode()})
    assert hostile.status_code in (400, 401)


@pytest.mark.promise("service-keys-actions")
def test_a_read_only_key_is_refused_by_every_tool_that_writes(server, make_key, service):
    space = service.book.space("user", "u1")
    space.files.write("/memories/a", "before")
    record = space.records.create(**NOTE)
    before = space.stats().commit
    writes = [
        ("memory_create", NOTE),
        ("memory_delete", {"id": record.id}),
        ("memory", {"command": "append", "path": "/memories/a", "content": "x"}),
        ("memory", {"command": "delete", "path": "/memories/a"}),
        ("claude_memory", {"command": "create", "path": "/memories/b", "file_text": "x"}),
        ("claude_memory", {"command": "delete", "path": "/memories/a"}),
        ("manage_memory", {"action": "create", "content": "x"}),
    ]
    with server.client(make_key("reader", actions=("read",))) as client:
        session = begin(client, "/mcp/all")
        for name, arguments in writes:
            answer = result(send(client, "tools/call", "/mcp/all", session, name=name, arguments=arguments))
            told = json.dumps(answer)
            assert "is not permitted" in told, (name, told)
        read = result(send(client, "resources/read", "/mcp/all", session, uri="mem://file/memories/a"))
        assert read["result"]["contents"][0]["text"] == "before"
    assert space.stats().commit == before


@pytest.mark.promise("service-provenance")
def test_history_tells_which_key_and_which_mcp_client_wrote(server, make_key, service):
    with server.client(make_key("laptop")) as client:
        for name in ("claude-code", "cursor vscode"):
            session = begin(client, name=name)
            note = {**NOTE, "content": {"text": name}}
            send(client, "tools/call", session=session, name="memory_create", arguments=note)
    space = service.book.space("user", "u1")
    actors = [change.actor for change in space.changes()]
    assert actors == ["laptop mcp claude-code", "laptop mcp cursor"]


@pytest.mark.promise("service-keys-reach")
def test_a_key_that_reaches_further_names_another_namespace_in_the_address(server, make_key, service):
    service.book.space("org", "acme", "x").files.write("/a", "of x")
    path = "/mcp/files?namespace=org/acme/x"
    with server.client(make_key("below", "org/acme", reach="below")) as client:
        session = begin(client, path)
        assert "of x" in send(client, "resources/read", path, session, uri="mem://file/a").text
        assert send(client, "tools/list", "/mcp/files", session).status_code == 404
    with server.client(make_key("own", "org/acme")) as client:
        assert send(client, "initialize", path).status_code == 403


def test_an_unknown_profile_is_not_found(http):
    answer = send(http, "initialize", "/mcp/none")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


# Sessions


@pytest.mark.promise("service-mcp-sessions-bounded")
def test_a_key_that_reaches_many_namespaces_leaves_the_sessions_of_other_keys(service, make_key, monkeypatch):
    monkeypatch.setattr(mcp_http, "Sessions", partial(Sessions, max_callers=3))
    keys = make_key("b", "user/b"), make_key("a", "org", reach="below")
    with operated(service) as (server, _), server.client(keys[0]) as one, server.client(keys[1]) as many:
        mine = begin(one)
        for number in range(5):
            begin(many, f"/mcp?namespace=org/n{number}")
        assert send(one, "tools/list", session=mine).status_code == 200


def a_manager(key: str) -> Any:
    return session_manager(Memory(lambda: pytest.fail("not needed")), "records")


async def ask(sessions: Sessions[str], key: str, method: str = "POST", **headers: str) -> list[dict[str, Any]]:
    """One request, as a server would pass it on; what was sent."""
    sent: list[dict[str, Any]] = []
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}).encode()
    given = [(name.lower().encode(), value.encode()) for name, value in {**ACCEPT, **headers}.items()]
    scope = {"type": "http", "method": method, "path": "/mcp", "headers": given, "query_string": b"", "state": {}}
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await sessions.serve(key, scope, receive, send)
    return sent


@pytest.mark.promise("service-mcp-sessions-bounded")
def test_the_sessions_idle_longest_are_evicted_for_new_ones():
    made: list[str] = []

    def make(key: str) -> Any:
        made.append(key)
        return a_manager(key)

    async def use() -> None:
        sessions: Sessions[str] = Sessions(make, max_callers=2)
        async with sessions.run():
            for key in ("a", "b", "a", "c", "a", "b"):
                assert (await ask(sessions, key))[0]["status"] == 200
            assert made == ["a", "b", "c", "b"]
            assert len(sessions) == 2

    anyio.run(use)


@pytest.mark.promise("service-mcp-sessions-bounded")
def test_who_opens_many_sessions_pushes_out_its_own_and_nobody_elses():
    made: list[str] = []

    def make(key: str) -> Any:
        made.append(key)
        return a_manager(key)

    async def use() -> None:
        sessions: Sessions[str] = Sessions(make, owner=lambda key: key[0], max_callers=3)
        async with sessions.run():
            for key in ("b1", "a1", "a2", "a3", "a4", "b1", "a4", "c1", "b1", "c1", "a5", "b1", "c1"):
                assert (await ask(sessions, key))[0]["status"] == 200
            assert made == ["b1", "a1", "a2", "a3", "a4", "c1", "a5"]

    anyio.run(use)


@pytest.mark.promise("service-mcp-sessions-bounded")
def test_who_keeps_its_sessions_in_use_gets_no_more_at_the_cost_of_others():
    async def use() -> None:
        sessions: Sessions[str] = Sessions(a_manager, owner=lambda key: key[0], max_callers=2)
        async with sessions.run(), anyio.create_task_group() as group:
            await ask(sessions, "b1")
            started = await ask(sessions, "a1")
            session = dict(started[0]["headers"])[b"mcp-session-id"].decode()
            group.start_soon(lambda: ask(sessions, "a1", "GET", **{"Mcp-Session-Id": session}))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(Unavailable, match="callers are connected"):
                await ask(sessions, "a2")
            group.cancel_scope.cancel()

    anyio.run(use)


@pytest.mark.promise("service-mcp-sessions-bounded")
def test_sessions_in_use_are_never_taken_away():
    async def use() -> None:
        sessions: Sessions[str] = Sessions(a_manager, max_callers=1)
        async with sessions.run(), anyio.create_task_group() as group:
            started = await ask(sessions, "a")
            session = dict(started[0]["headers"])[b"mcp-session-id"].decode()
            group.start_soon(lambda: ask(sessions, "a", "GET", **{"Mcp-Session-Id": session}))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(Unavailable, match="callers are connected"):
                await ask(sessions, "b")
            group.cancel_scope.cancel()

    anyio.run(use)


@pytest.mark.promise("service-mcp-sessions-bounded")
def test_sessions_that_nobody_uses_end_and_are_made_again():
    now = [0.0]

    async def use() -> None:
        sessions: Sessions[str] = Sessions(a_manager, idle_seconds=100, clock=lambda: now[0])
        async with sessions.run():
            await ask(sessions, "a")
            now[0] = 50
            await ask(sessions, "b")
            now[0] = 120
            sessions.end_idle()
            await anyio.wait_all_tasks_blocked()
            assert len(sessions) == 1
            assert (await ask(sessions, "a"))[0]["status"] == 200
            assert len(sessions) == 2

    anyio.run(use)


def test_many_first_requests_at_once_share_their_sessions():
    made: list[str] = []

    def make(key: str) -> Any:
        made.append(key)
        return a_manager(key)

    async def use() -> None:
        sessions: Sessions[str] = Sessions(make)
        async with sessions.run(), anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ask, sessions, "a")
        assert made == ["a"]

    anyio.run(use)


@pytest.mark.promise("service-mcp-sessions-bounded")
def test_sessions_that_fail_end_alone_and_are_made_again(caplog):
    class Failing:
        """Serves until it is told to fail, as a manager does whose background task raises."""

        def __init__(self, key: str) -> None:
            self.key = key
            self.fails = anyio.Event()

        @asynccontextmanager
        async def run(self) -> AsyncIterator[None]:
            async with anyio.create_task_group() as group:
                group.start_soon(self._fail)
                yield
                group.cancel_scope.cancel()

        async def _fail(self) -> None:
            await self.fails.wait()
            raise RuntimeError(f"{self.key} failed")

        async def asgi_app(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})

    made: list[Any] = []

    def make(key: str) -> Any:
        made.append(Failing(key))
        return made[-1]

    async def use() -> None:
        sessions: Sessions[str] = Sessions(make)
        async with sessions.run():
            for key in ("a", "b"):
                await ask(sessions, key)
            made[0].fails.set()
            with anyio.fail_after(10):
                while len(sessions) == 2:
                    await anyio.lowlevel.checkpoint()
            for key in ("a", "b"):
                assert (await ask(sessions, key))[0]["status"] == 200
        assert [one.key for one in made] == ["a", "b", "a"]

    anyio.run(use)
    assert "ended with an error" in caplog.text
