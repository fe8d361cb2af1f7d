"""Group commit under interrupts: a write that was hit is made or not, and everybody writes on."""

from __future__ import annotations

import fcntl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from store_calls import HERE, get, put

import commonplace
from commonplace.backends.sqlite import SQLiteStore, writer
from commonplace.backends.sqlite import guard as locks
from commonplace.backends.sqlite import store as sqlite_store
from commonplace.backends.sqlite.guard import WriterQueue
from commonplace.entry import Draft
from commonplace.errors import NotFound
from commonplace.store import Transaction

INTERRUPTED = {module.__file__ for module in (locks, sqlite_store, writer)}


def interrupt(moment: int, call: Callable[[], object]) -> bool:
    """Call, with an interrupt at one of the moments when Python runs a signal's handler; whether there was that one.

    These moments are the start of a function and the return from one that is not Python's.
    """
    moments = 0

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal moments
        if event in ("call", "c_return") and frame.f_code.co_filename in INTERRUPTED:
            moments += 1
            if moments == moment:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return moments >= moment


@pytest.fixture(params=["file", ":memory:"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SQLiteStore]:
    path = tmp_path / "book.db" if request.param == "file" else request.param
    store = SQLiteStore(path, durability="normal", busy_seconds=5)
    put(store, "begin")
    yield store
    store.close()


def wait_for_jobs(store: SQLiteStore, count: int, then: threading.Event) -> None:
    while len(store._writer._jobs) < count and not then.is_set():
        time.sleep(0.0001)
    then.set()


@pytest.mark.promise("engine-interrupts")
def test_an_interrupt_at_any_moment_of_a_write_stops_no_later_write(store: SQLiteStore) -> None:
    other = SQLiteStore(store.path, durability="normal", busy_seconds=1)
    moment = 1
    with ThreadPoolExecutor(1) as pool:
        while interrupt(moment, lambda: put(store, f"hit{moment}")):  # noqa: B023
            put(other, f"other{moment}")  # neither a lock nor a transaction was left behind
            pool.submit(put, store, f"thread{moment}").result(10)
            put(store, f"own{moment}")
            moment += 1
    assert moment > 20
    assert get(store, f"hit{moment}") is not None
    assert store.verify() == []
    other.close()


def test_an_interrupt_of_the_leader_costs_those_it_takes_along_nothing(store: SQLiteStore) -> None:
    def count(transaction: Transaction) -> None:
        known = transaction.get("file", "count")
        transaction.put(Draft("file", "count", known.value + 1 if known else 1))  # type: ignore[operator]

    with ThreadPoolExecutor(1) as pool:
        followers: list[Future[Any]] = []

        def write_beside(transaction: Transaction) -> None:
            followers.append(pool.submit(store.write, HERE, count))
            wait_for_jobs(store, 2, threading.Event())

        moment = 1
        while interrupt(moment, lambda: store.write(HERE, write_beside)):
            for follower in followers:
                follower.result(10)
            moment += 1
        assert len(followers) > 10
        assert get(store, "count").value == len(followers)  # type: ignore[union-attr]


def test_an_interrupt_at_any_moment_of_waiting_stops_no_later_write(store: SQLiteStore) -> None:
    is_writing, may_commit = threading.Event(), threading.Event()

    def write_slowly(transaction: Transaction) -> None:
        is_writing.set()
        assert may_commit.wait(30)

    moment = 1
    with ThreadPoolExecutor(2) as pool:
        while True:
            is_writing.clear()
            may_commit.clear()
            leader = pool.submit(store.write, HERE, write_slowly)
            assert is_writing.wait(30)

            waiting = pool.submit(wait_for_jobs, store, 2, may_commit)
            is_there = interrupt(moment, lambda: put(store, f"hit{moment}"))  # noqa: B023
            may_commit.set()
            put(store, f"own{moment}")
            leader.result(10)
            waiting.result(10)
            if not is_there:
                break
            moment += 1
    assert moment > 10


def test_a_job_that_waited_for_its_own_process_has_not_waited_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = WriterQueue(str(tmp_path / "book.db"), 10)
    done: list[str] = []
    queue.hold(lambda: done.append("long"), time.monotonic())
    with (tmp_path / "book.db-turn").open("r+") as others:
        fcntl.flock(others, fcntl.LOCK_EX)
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(others, fcntl.LOCK_UN))
        queue.hold(lambda: done.append("waited"), time.monotonic() - 60)
    assert done == ["long", "waited"]
    queue.close()


# What a program keeps of the file between its commits


def statements_of(store: SQLiteStore, call: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    writing: Any = store._writing
    writing.exec_trace = lambda cursor, sql, bindings: not seen.append(sql)
    try:
        call()
    finally:
        writing.exec_trace = None
    return seen


def write_together(store: SQLiteStore, pool: ThreadPoolExecutor, name: str) -> None:
    """The writes of GATHER_FROM threads in one commit."""
    others: list[Future[Any]] = []

    def lead(transaction: Transaction) -> None:
        if not others:
            others.extend(pool.submit(put, store, f"{name}{number}") for number in range(1, writer.GATHER_FROM))
            wait_for_jobs(store, writer.GATHER_FROM, threading.Event())
        transaction.put(Draft("file", name, name))

    store.write(HERE, lead)
    for one in others:
        one.result(10)
    assert store._writer._last_group == writer.GATHER_FROM


def test_the_threads_of_a_full_group_share_the_next_commit(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GATHER_SECONDS", 60.0)
    monkeypatch.setattr(writer, "MOST_GATHER_SECONDS", 60.0)
    with ThreadPoolExecutor(writer.GATHER_FROM) as pool:
        write_together(store, pool, "first")
        for one in [pool.submit(put, store, f"again{number}") for number in range(writer.GATHER_FROM)]:
            one.result(10)  # the last one to come back ends the wait
        assert store._writer._last_group == writer.GATHER_FROM


def test_an_interrupt_of_a_leader_that_waits_for_others_stops_no_later_write(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST_GATHER_SECONDS", 0.01)
    monkeypatch.setattr(writer, "LOOK_SECONDS", 60.0)
    moment = 1
    with ThreadPoolExecutor(writer.GATHER_FROM) as pool:
        write_together(store, pool, "first0-")
        while interrupt(moment, lambda: put(store, f"hit{moment}")):  # noqa: B023
            pool.submit(put, store, f"thread{moment}").result(10)
            write_together(store, pool, f"first{moment}-")
            moment += 1
    assert moment > 20
    assert store.verify() == []


@pytest.fixture
def books(tmp_path: Path) -> Iterator[list[commonplace.Book]]:
    """One file that two programs have open."""
    opened = [commonplace.open(tmp_path / "book.db", background=False, durability="normal") for _ in range(2)]
    opened[0].space(*HERE).threads.create(id="chat", title="chat", resource="ana")
    yield opened
    for book in opened:
        book.close()


def say(book: commonplace.Book, text: str, **fields: Any) -> None:
    book.space(*HERE).threads.add("chat", [{"role": "user", "content": text, **fields}])


def said(book: commonplace.Book) -> list[Any]:
    return [message.content for message in book.space(*HERE).threads.messages("chat").messages]


def test_a_message_of_the_only_writer_takes_five_statements(books: list[commonplace.Book]) -> None:
    store: Any = books[0].store
    say(books[0], "one")
    verbs = [sql.split()[0] for sql in statements_of(store, lambda: say(books[0], "two"))]
    assert verbs == ["BEGIN", "INSERT", "UPDATE", "UPDATE", "COMMIT"]


def test_two_programs_that_write_in_turns_keep_the_order_and_all_counts(books: list[commonplace.Book]) -> None:
    texts = [f"message {number} about lighthouses" for number in range(60)]
    for number, text in enumerate(texts):
        say(books[number * number % 3 % 2], text)
    for book in books:
        assert said(book) == texts
        assert book.store.verify() == []
        assert len(book.space(*HERE).search("lighthouses", limit=100).hits) == 60


def test_a_program_sees_what_another_did_to_the_thread(books: list[commonplace.Book]) -> None:
    ours, theirs = books
    say(ours, "one")
    say(ours, "two", createdAt="2100-01-01T00:00:00Z")
    say(theirs, "three", createdAt="2100-01-02T00:00:00Z")
    say(ours, "four", createdAt="2100-01-02T00:00:00Z")
    assert said(ours) == ["one", "two", "three", "four"]
    theirs.space(*HERE).threads.update("chat", title="another title")
    say(ours, "five")
    assert ours.space(*HERE).threads.get("chat").title == "another title"
    theirs.space(*HERE).threads.delete("chat")
    with pytest.raises(NotFound):
        say(ours, "six")


def test_a_program_sees_what_it_did_to_the_thread_itself(books: list[commonplace.Book]) -> None:
    threads = books[0].space(*HERE).threads
    say(books[0], "one")
    say(books[0], "two")
    threads.update("chat", title="another title")
    say(books[0], "three")
    assert threads.get("chat").title == "another title"
    last = threads.get("chat")
    say(books[0], "four")
    assert threads.get("chat").updated_at > last.updated_at
    threads.delete("chat")
    with pytest.raises(NotFound):
        say(books[0], "five")
    assert books[0].store.verify() == []


def test_a_failed_write_leaves_nothing_in_what_is_kept(store: SQLiteStore) -> None:
    def fail(transaction: Transaction) -> None:
        transaction.put(Draft("file", "lost", "lost lighthouse"))
        transaction.touch("file", "begin")
        raise ValueError("on purpose")

    put(store, "first")
    for _ in range(3):
        with pytest.raises(ValueError, match="on purpose"):
            store.write(HERE, fail)
        put(store, "next")
    assert get(store, "lost") is None
    assert store.verify() == []
    assert store.usage(HERE).entries == 3


def test_an_entry_expires_though_its_namespace_is_kept(tmp_path: Path) -> None:
    now = 10**15
    store = SQLiteStore(tmp_path / "book.db", durability="normal", clock=lambda: now)
    put(store, "begin")
    store.write(HERE, lambda transaction: transaction.put(Draft("file", "short", "x", expires_at=now + 1_000)))
    for _ in range(3):
        now += 600
        put(store, "other")
    actions = [revision.action for revision in store.read(HERE, lambda reader: reader.history("file", "short"))]
    assert "expired" in actions
    assert store.usage(HERE).entries == 2
    store.write(HERE, lambda transaction: transaction.put(Draft("file", "renewed", "x", expires_at=now + 10_000)))
    store.write(HERE, lambda transaction: transaction.renew("file", "renewed", now + 1_000))
    now += 2_000
    put(store, "other")
    assert store.usage(HERE).entries == 2
    store.close()


def test_what_is_kept_is_bounded(store: SQLiteStore) -> None:
    for number in range(writer.KEPT_NAMESPACES + 10):
        store.write(("user", f"u-{number}"), lambda transaction: transaction.put(Draft("file", "one", "text")))
    assert store._kept_group is not None
    assert len(store._kept_group.namespaces) == writer.KEPT_NAMESPACES
    assert store.verify() == []


def test_a_new_record_takes_no_statement_to_look_for_an_equal_one(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        records: Any = book.space("user", "u1").records
        store: Any = book.store

        def create(text: str) -> list[str]:
            seen = statements_of(store, lambda: records.create(type="note", content=text, source="s"))
            return [" ".join(sql.split()[:2]) for sql in seen]

        create("first")
        assert create("second") == ["BEGIN IMMEDIATE", "INSERT INTO", "UPDATE namespace", "COMMIT"]
        assert create("second")[:3] == ["BEGIN IMMEDIATE", "INSERT INTO", "SELECT e.id,"]
        assert [record.content for record in records.list().records] == ["second", "first"]
        assert store.verify() == []
