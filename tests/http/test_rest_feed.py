"""The feed over server-sent events: whole commits in order, gone on with after a cut, woken by any process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx
import psycopg
import pytest
from real_server import Server

import commonplace
from commonplace.backends.postgres import PostgresStore
from commonplace.entry import Draft
from commonplace.server.http import feed
from postgres_server import empty, shared_book


@contextmanager
def events(server: Server, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a stream, as they come; a comment is an event without a name."""
    with server.client() as client, client.stream("GET", f"/v1/changes/stream{query}", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _parsed(answer.iter_lines())


def _parsed(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            if "retry" not in event:
                yield event
            event = {}


def commits(stream: Iterator[dict[str, Any]], count: int) -> list[int]:
    found = []
    for _ in range(count):
        event = next(stream)
        assert event["event"] == "commit"
        data = json.loads(event["data"])
        assert data["commit"] == int(event["id"])
        assert {change["commit"] for change in data["changes"]} == {data["commit"]}
        found.append(data["commit"])
    return found


@pytest.mark.promise("rest-feed-resumes")
def test_a_stream_that_was_cut_goes_on_without_loss_or_repetition(server: Server, book: commonplace.Book) -> None:
    space = book.space("user", "default")
    for number in range(4):
        space.files.write(f"/f{number}", "x")
    with events(server, "?after=0") as stream:
        seen = commits(stream, 2)
    space.files.write("/meanwhile", "x")
    with events(server, **{"Last-Event-ID": str(seen[-1])}) as stream:
        seen += commits(stream, 3)
        space.files.write("/later", "x")
        seen += commits(stream, 1)
    assert seen == sorted({change.commit for change in space.changes()})


def test_an_event_is_the_same_lines_to_every_reader() -> None:
    """Clients that split a stream with `str.splitlines` hung on a raw U+2028 or U+0085 within an event."""
    breaks = "".join(chr(code) for code in range(1, 0x3000) if len(f"a{chr(code)}b".splitlines()) > 1)
    lines = feed.event("commit", 1, {"key": f"/a{breaks}b"}).decode().splitlines()
    assert lines[:2] == ["event: commit", "id: 1"]
    assert json.loads(lines[2].removeprefix("data: ")) == {"key": f"/a{breaks}b"}


@pytest.mark.promise("rest-feed-resumes")
def test_an_event_holds_all_of_a_commit_as_the_library_tells_it(server: Server, book: commonplace.Book) -> None:
    from commonplace.api.forms import CHANGE

    space = book.space("user", "default")
    space.files.write("/a/b/c", "x")
    space.files.delete("/a")
    with events(server, "?after=0") as stream:
        told = [change for _ in range(2) for change in json.loads(next(stream)["data"])["changes"]]
    assert [CHANGE.read(change) for change in told] == space.changes()


def test_without_a_beginning_it_tells_what_comes_from_now_on(server: Server, book: commonplace.Book) -> None:
    space = book.space("user", "default")
    space.files.write("/before", "x")
    with events(server) as stream:
        space.files.write("/after", "x")
        assert json.loads(next(stream)["data"])["changes"][0]["key"] == "/after"


def test_a_commit_of_another_program_wakes_the_stream(server: Server, open_book: Any) -> None:
    with events(server, "?after=0") as stream:
        open_book().space("user", "default").files.write("/f", "x")  # the same file, opened a second time
        assert commits(stream, 1) == [1]


def test_nothing_of_another_namespace_is_told(server: Server, book: commonplace.Book) -> None:
    with events(server, "?after=0") as stream:
        book.space("user", "other").files.write("/secret", "x")
        book.space("user", "default").files.write("/f", "x")
        assert json.loads(next(stream)["data"])["changes"][0]["key"] == "/f"


@pytest.mark.promise("rest-feed-resync")
def test_a_reader_that_is_too_far_behind_is_told_to_begin_anew(
    server: Server, http: httpx.Client, book: commonplace.Book, clock: Any
) -> None:
    space = book.space("user", "default")
    for number in range(3):
        space.files.write("/f", str(number))
        clock.advance()
    space.purge(history_before="2100-01-01T00:00:00Z")
    for address in ("/v1/changes?after=0", "/v1/changes/stream?after=0"):
        gone = http.get(address)
        assert (gone.status_code, gone.json()["code"]) == (410, "resync")
        assert gone.headers["content-type"] == "application/problem+json"
    assert http.get("/v1/changes/stream", headers={"Last-Event-ID": "x"}).status_code == 422


@pytest.mark.promise("rest-feed-resync")
def test_a_reader_that_is_ahead_as_after_a_restored_backup_is_told_to_begin_anew(
    server: Server, http: httpx.Client, book: commonplace.Book
) -> None:
    book.space("user", "default").files.write("/f", "x")
    for address, headers in (
        ("/v1/changes?after=2", {}),
        ("/v1/changes/stream?after=2", {}),
        ("/v1/changes/stream", {"Last-Event-ID": "2"}),
    ):
        ahead = http.get(address, headers=headers)
        assert (ahead.status_code, ahead.json()["code"]) == (410, "resync")


@pytest.mark.promise("rest-feed-resync")
def test_a_reader_that_falls_behind_while_it_reads_gets_an_event(
    server: Server, book: commonplace.Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = commonplace.Space.changes

    def kept_after_the_first(space: commonplace.Space, after: int = 0, limit: int = 1_000) -> Any:
        if after:
            raise commonplace.Conflict("the feed begins later; read everything again")
        return changes(space, after, limit)

    monkeypatch.setattr(commonplace.Space, "changes", kept_after_the_first)
    book.space("user", "default").files.write("/f", "x")
    with events(server, "?after=0") as stream:
        assert commits(stream, 1) == [1]
        event = next(stream)
        assert (event["event"], event["id"], json.loads(event["data"])["code"]) == ("resync", "1", "resync")
        assert next(stream, None) is None


def test_a_quiet_stream_shows_that_it_is_still_there(
    server: Server, book: commonplace.Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.05)
    with events(server, "?after=0") as stream:
        assert next(stream) == {"": "still here"}
        book.space("user", "default").files.write("/f", "x")
        assert next(event for event in stream if event.get("event"))["id"] == "1"


def test_one_thread_waits_for_all_streams(server: Server, book: commonplace.Book) -> None:
    def waiting() -> int:
        return sum(thread.name == "commonplace-feed" for thread in threading.enumerate())

    with events(server, "?after=0") as one, events(server, "?after=0") as two, events(server, "?after=0") as three:
        book.space("user", "default").files.write("/f", "x")
        for stream in (one, two, three):
            assert commits(stream, 1) == [1]
        assert waiting() == 1


def test_a_stream_ends_after_a_while_so_that_credentials_are_asked_for_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "STREAM_SECONDS", 0.0)
    with events(server, "?after=0") as stream:
        assert list(stream) == []


def test_on_postgres_a_commit_of_another_server_wakes_the_streams_of_its_namespace_alone() -> None:
    ana, bob = ("user", "ana"), ("user", "bob")
    store, other = PostgresStore(shared_book(), pool_size=2), PostgresStore(shared_book(), pool_size=2)
    empty(shared_book())
    signals = feed.CommitSignals(store)
    numbers = count()

    def write(namespace: tuple[str, ...]) -> None:
        other.write(namespace, lambda transaction: transaction.put(Draft("file", "/f", next(numbers))))

    def notify(payload: str) -> None:
        with psycopg.connect(store.place.conninfo, autocommit=True) as connection:
            connection.execute("SELECT pg_notify(%s, %s)", (store._channel, payload))

    async def told(signal: asyncio.Event) -> None:
        await asyncio.wait_for(signal.wait(), 10)
        signal.clear()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        of_ana = await asyncio.to_thread(signals.subscribe, loop, ana)
        of_bob = await asyncio.to_thread(signals.subscribe, loop, bob)
        for _ in range(2):  # what the first commit sets is set before the second one is told
            await asyncio.to_thread(write, ana)
            await told(of_ana)
        assert not of_bob.is_set()
        await asyncio.to_thread(write, bob)
        await told(of_bob)
        assert not of_ana.is_set()
        for unnamed in ("", "x", "7", "[7]", '["a'):  # of a former version, or of another program
            await asyncio.to_thread(notify, unnamed)
            await told(of_ana)
            await told(of_bob)
        signals.unsubscribe(of_bob)
        assert list(signals._by_namespace) == [ana]
        await asyncio.to_thread(signals.unsubscribe, of_ana)

    try:
        asyncio.run(run())
        assert not signals._by_namespace
    finally:
        signals.close()
        store.close()
        other.close()
