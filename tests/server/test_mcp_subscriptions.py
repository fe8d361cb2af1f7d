"""Whoever watches an address is told when it changes, by this server or by anyone else, and of nothing else."""

from __future__ import annotations

import json
import queue

import anyio
import pytest
from mcp.client import Client

import commonplace
from commonplace.server.http.mcp_http import session_manager
from commonplace.server.mcp import resources
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.server.mcp.server import build_server

from .conftest import NOTE
from .test_mcp_eras import ENVELOPE


def updated(uri):
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}


@pytest.mark.promise("mcp-subscriptions")
def test_a_subscriber_is_told_of_changes_by_itself_and_by_other_programs(opened, tmp_path):
    assert opened.ask("resources/subscribe", {"uri": "mem://recent"})["result"] == {}
    assert opened.ask("resources/subscribe", {"uri": "mem://file/notes/today"})["result"] == {}
    opened.call("memory_create", **NOTE)
    assert notification(opened) == updated("mem://recent")
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        book.space("user", "default").files.write("/notes/other", "not watched")
        book.space("user", "default").files.write("/notes/today", "watched")
    assert notification(opened) == updated("mem://file/notes/today")


@pytest.mark.promise("mcp-subscriptions")
def test_another_namespace_and_an_ended_subscription_are_silent(opened, tmp_path):
    id = opened.call("memory_create", **NOTE)["structuredContent"]["items"][0]["id"]
    opened.ask("resources/subscribe", {"uri": "mem://recent"})
    opened.ask("resources/subscribe", {"uri": f"mem://item/{id}"})
    opened.ask("resources/unsubscribe", {"uri": "mem://recent"})
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        book.space("user", "other").records.create(**NOTE)
        book.space("user", "default").records.create(**{**NOTE, "content": "another"})
    opened.call("memory_delete", id=id)
    assert notification(opened) == updated(f"mem://item/{id}")
    with pytest.raises(queue.Empty):
        notification(opened, seconds=1)


@pytest.mark.promise("mcp-subscriptions")
def test_the_newest_revision_listens_on_a_stream(stdio):
    def ask(method, **params):
        return stdio.ask(method, {**params, "_meta": ENVELOPE})["result"]

    assert ask("server/discover")["capabilities"]["resources"]["subscribe"]
    wanted = {"notifications": {"resourceSubscriptions": ["mem://by-type/note"]}, "_meta": ENVELOPE}
    stdio.send({"jsonrpc": "2.0", "id": "stream", "method": "subscriptions/listen", "params": wanted})
    assert notification(stdio)["method"] == "notifications/subscriptions/acknowledged"
    ask("tools/call", name="memory_create", arguments=NOTE)
    told = notification(stdio)
    assert (told["method"], told["params"]["uri"]) == ("notifications/resources/updated", "mem://by-type/note")
    assert stdio.end() == 0


@pytest.mark.promise("mcp-subscriptions")
def test_the_mcp_client_listens(space):
    async def session() -> None:
        async with (
            Client(build_server(Memory(lambda: space))) as client,
            client.listen(resource_subscriptions=["mem://recent"]) as stream,
        ):
            await client.call_tool("memory_create", NOTE)
            with anyio.fail_after(10):
                event = await anext(aiter(stream))
            assert event.uri == "mem://recent"

    anyio.run(session)


@pytest.mark.promise("mcp-subscriptions")
def test_a_purge_is_told_to_every_subscriber_and_later_changes_as_before(opened, tmp_path):
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        space = book.space("user", "default")
        space.files.write("/notes/today", "watched")
        opened.ask("resources/subscribe", {"uri": "mem://recent"})
        opened.ask("resources/subscribe", {"uri": "mem://file/notes/today"})
        space.purge()
        assert [notification(opened), notification(opened)] == [
            updated("mem://recent"),
            updated("mem://file/notes/today"),
        ]
        space.files.write("/notes/today", "watched again")
        assert notification(opened) == updated("mem://file/notes/today")


@pytest.mark.promise("mcp-subscriptions")
def test_a_subscriber_that_does_not_read_leaves_the_others_what_they_hear(space, monkeypatch):
    monkeypatch.setattr(resources, "SEND_SECONDS", 0.2)

    async def session() -> None:
        manager = session_manager(Memory(lambda: space), "records")
        heard, hearing = anyio.create_memory_object_stream[str](100)

        async def stuck(text: str) -> None:
            await anyio.sleep_forever()

        async with manager.run(), anyio.create_task_group() as group:
            many = [f"mem://by-type/{number}" for number in range(100)]
            for take, uris in ((stuck, many), (heard.send, ["mem://recent"])):
                started = await over_http(manager, "POST", message("initialize", **HANDSHAKE))
                id = dict(started[0]["headers"])[b"mcp-session-id"].decode()
                group.start_soon(over_http, manager, "GET", None, id, take)
                await anyio.wait_all_tasks_blocked()
                for uri in uris:
                    await over_http(manager, "POST", message("resources/subscribe", uri=uri), id)
            for number in range(2):
                space.records.create(**{**NOTE, "content": f"note {number}"})
                with anyio.fail_after(20):
                    while "mem://recent" not in await hearing.receive():
                        continue
            group.cancel_scope.cancel()

    anyio.run(session)


HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def message(method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


async def over_http(manager, method, body=None, session=None, take=None):
    """One request, as a server would pass it on; what was sent. `take` gets each text of the answer."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if session is not None:
        headers["mcp-session-id"] = session
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/mcp", "headers": given, "query_string": b"", "state": {}}
    messages = [{"type": "http.request", "body": body or b"", "more_body": False}]
    sent = []

    async def receive():
        if messages:
            return messages.pop()
        return await anyio.sleep_forever()

    async def send(message):
        sent.append(message)
        if take is not None and message.get("body"):
            await take(message["body"].decode())

    await manager.asgi_app(scope, receive, send)
    return sent


def test_what_has_no_address_cannot_be_watched(opened):
    for uri in ("http://x", "mem://nothing/x", "mem://message/x", "mem://file/../x"):
        assert opened.ask("resources/subscribe", {"uri": uri})["error"]["code"] == -32000


def notification(server, seconds=20):
    """The next message that answers nothing."""
    for message in server._other:
        if "id" not in message:
            server._other.remove(message)
            return message
    while "id" in (message := server.next(seconds)):
        server._other.append(message)
    return message
