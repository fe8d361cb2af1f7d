"""What one caller does leaves room to the others: threads, requests and streams are shared by all."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import httpx
import psycopg
import pytest
from operated import operated
from real_server import Server, start_server

from commonplace.server.http import worker_threads
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.auth import Gate
from commonplace.server.http.request_limits import Shares
from commonplace.server.http.service import Service
from commonplace.server.http.worker_threads import FairThreads
from commonplace.settings import Settings
from postgres_server import shared_server

WRITES = 130
"""More than any number of threads: a write waits 10 s for a lock, and a read behind all of these 30 s."""


@contextmanager
def stuck_writer(url: str) -> Iterator[None]:
    """Another program that began to write what the tenant alice writes, and does not come to an end."""
    if url.startswith("postgresql:"):
        with psycopg.connect(url.partition("?")[0]) as connection:
            rows = "SELECT tenant, path FROM commonplace.namespace WHERE tenant || path LIKE '%alice%' FOR UPDATE"
            assert len(connection.execute(rows).fetchall()) == 1
            yield
            connection.rollback()
        return
    connection = apsw.Connection(url)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def send(server: Server, key: str, line: str, body: bytes = b"") -> socket.socket:
    """Send a request without waiting for its answer."""
    connection = socket.create_connection(("127.0.0.1", urlsplit(server.address).port), timeout=20)
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.promise("service-callers-share")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_waiting_writes_of_one_tenant_hold_up_no_read_of_another(open_book: Any, tmp_path: Path, kind: str) -> None:
    """A program that held the lock, and 60 writes that waited for it, took all threads: for 32 s nobody could read."""
    is_postgres = kind == "postgres"
    url = shared_server().create_database() + "?partitions=2" if is_postgres else str(tmp_path / "book.db")
    book = open_book(url, clock=None, durability="normal") if is_postgres else open_book(url)
    keys = Keys(book.store)
    alice, bob = (keys.create(Key(name, ("user", name)))[1] for name in ("alice", "bob"))
    for name in ("alice", "bob"):
        book.space("user", name).files.write("/notes", "deploys")
    book.space("user", "bob", "agent", "helper").threads.create(id="t", resource="r")
    server = start_server(Service(book, Gate(keys), Settings()))
    try:
        with server.client(bob) as client, ExitStack() as waiting:
            assert client.get("/v1").status_code == 200
            with stuck_writer(url):
                for number in range(WRITES):
                    waiting.enter_context(send(server, alice, f"PUT /v1/files/f{number}", b"x"))
                assert client.get("/v1/files/notes").text == "deploys"
                assert client.post("/v1/search", json={"query": "deploys"}).status_code == 200
                query = {"agentId": "helper", "resourceId": "r"}
                assert client.get("/api/memory/threads", params=query).json()["total"] == 1
                assert client.get("/v1/export").text.count("\n") > 2
                assert "deploys" in over_mcp(client, "mcp/claude", "memory", command="view", path="/memories/notes")
                if is_postgres:  # where tenants have locks of their own
                    assert client.put("/v1/files/mine", content="x").status_code == 200
    finally:
        server.stop()


def over_mcp(client: httpx.Client, at: str, tool: str, **arguments: Any) -> str:
    accept = {"Accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    accept["Mcp-Session-Id"] = client.post(at, json=call, headers=accept).headers["mcp-session-id"]
    called = {**call, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    answer = client.post(at, json=called, headers=accept)
    assert answer.status_code == 200, answer.text
    return json.dumps(answer.text)


@pytest.mark.promise("service-callers-share")
def test_a_key_cannot_take_all_streams(service: Service, make_key: Any) -> None:
    """One key took all 20 streams, and no other caller could follow anything."""
    settings = replace(service.settings, max_streams=4)
    alice, bob = make_key("alice", "user/alice"), make_key("bob", "user/bob")
    with operated(replace(service, settings=settings)) as (server, _), ExitStack() as streams:
        mine = streams.enter_context(server.client(alice))
        for _ in range(2):
            assert streams.enter_context(mine.stream("GET", "/v1/changes/stream")).status_code == 200
        refused = mine.get("/v1/changes/stream")
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
            503,
            "overloaded",
            "10",
        )
        assert refused.json()["detail"] == "this caller already has its share of the streams; close one of yours first"
        other = streams.enter_context(server.client(bob))
        assert streams.enter_context(other.stream("GET", "/v1/changes/stream")).status_code == 200


@pytest.mark.promise("service-callers-share")
def test_a_key_cannot_take_all_requests(service: Service, make_key: Any) -> None:
    settings = replace(service.settings, max_requests=4)
    alice, bob = make_key("alice", "user/alice"), make_key("bob", "user/bob")
    with (
        operated(replace(service, settings=settings)) as (server, routes),
        server.client(alice) as mine,
        server.client(bob) as other,
        ThreadPoolExecutor(2) as others,
    ):
        waiting = [others.submit(mine.post, f"/test/wait/{number}") for number in range(2)]
        for _ in waiting:
            assert routes.has_come.acquire(timeout=20)
        refused = mine.get("/v1")
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "overloaded", "1")
        assert mine.post("/mcp", json={}).json()["error"]["message"].startswith("this caller already has its share")
        assert other.get("/v1").status_code == 200
        routes.go_on.set()
        assert [one.result().status_code for one in waiting] == [200, 200]
        assert mine.get("/v1").status_code == 200


def test_one_caller_may_hold_as_many_places_as_are_free() -> None:
    shares = Shares(8)
    assert [shares.take("a") for _ in range(5)] == [True] * 4 + [False]
    assert [shares.take("b") for _ in range(3)] == [True] * 2 + [False]
    assert [shares.take("c") for _ in range(2)] == [True, False]
    assert shares.take(None)
    assert not shares.take("d")
    shares.give("a")
    assert shares.take("d")


def test_slow_work_of_one_caller_leaves_threads_to_others_and_all_of_it_is_done() -> None:
    go_on, done = threading.Event(), []

    def slow() -> None:
        assert go_on.wait(20)
        done.append("slow")

    async def use() -> None:
        threads = FairThreads(4)
        hog = [asyncio.create_task(threads.run("hog", slow)) for _ in range(10)]
        await asyncio.sleep(0)
        await threads.run("other", lambda: done.append("quick"))
        assert done == ["quick"]
        hog[9].cancel()  # one that still waits for a thread
        hog[8].cancel()
        go_on.set()
        await asyncio.gather(*hog, return_exceptions=True)
        await asyncio.gather(*(threads.run("hog", lambda: done.append("more")) for _ in range(4)))

    asyncio.run(use())
    assert sorted(done) == ["more"] * 4 + ["quick"] + ["slow"] * 8


def test_a_call_that_is_given_up_while_a_thread_becomes_free_leaves_the_threads_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both in one turn of the event loop: the thread went to who had left, and from then on every call failed."""

    async def on_the_loop(work: Any, limiter: Any) -> Any:
        return await work()

    monkeypatch.setattr(worker_threads, "run_sync", on_the_loop)

    async def use() -> list[Any]:
        threads, go_on = FairThreads(2), asyncio.Event()
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(threads.run("one", go_on.wait)) for _ in range(4)]
        await asyncio.sleep(0)
        go_on.set()
        calls[1].cancel()
        calls[2].cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [*found, *await asyncio.gather(*(threads.run(name, go_on.wait) for name in ("one", "two")))]

    assert [type(found) for found in asyncio.run(asyncio.wait_for(use(), 20))] == [
        bool,
        *[asyncio.CancelledError] * 2,
        bool,
        bool,
        bool,
    ]
