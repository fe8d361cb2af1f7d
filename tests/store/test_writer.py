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

from commonplace.backends.sqlite import SQLiteStore, writer
from commonplace.backends.sqlite import guard as locks
from commonplace.backends.sqlite import store as sqlite_store
from commonplace.backends.sqlite.guard import WriterQueue
from commonplace.entry import Draft
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
