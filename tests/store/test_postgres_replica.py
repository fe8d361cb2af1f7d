"""Searches on a read replica see what their own process wrote, and go to the primary where the replica cannot."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import psycopg
import pytest
from store_calls import HERE, THERE, found_keys, put, unit

from commonplace.backends.postgres import PostgresStore
from commonplace.filters import Filter
from postgres_server import FAST, PostgresServer


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and its standby."""
    primary = PostgresServer({**FAST, "synchronous_commit": "local"})
    standby = primary.standby()
    yield primary, standby
    standby.remove()
    primary.remove()


@pytest.mark.promise("postgres-replica")
def test_a_search_sees_the_last_write_whether_the_replica_has_it_or_not() -> None:
    primary = PostgresServer({**FAST, "synchronous_commit": "local"})
    url = primary.create_database()
    standby = primary.standby()
    try:
        name = url.rpartition("/")[2]
        store = PostgresStore(f"{url}?partitions=2", replica_url=standby.url(name))
        store.set_target_model("m", 8)
        for number in range(20):
            put(store, f"k{number}", f"word{number} shared")
            assert found_keys(store, f"word{number}")[0] == f"k{number}"
        store.index("m", [(passage.chunk_id, unit(1)) for passage in store.claim(100, 60)])
        assert len(store.search_vectors(HERE, "m", unit(1), Filter(), 50)) == 20
        with psycopg.connect(standby.url(name), autocommit=True) as watching:
            used = watching.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'commonplace'"
            ).fetchone()
            assert used is not None
            assert used[0] >= 1
            watching.execute("SELECT pg_wal_replay_pause()")  # a replica that stays behind
            other = PostgresStore(f"{url}?partitions=2")
            put(other, "new", "elsewhere", namespace=THERE)  # in a namespace that the replica does not know
            other.close()
            assert found_keys(store, "elsewhere", namespace=THERE) == ["new"]
            put(store, "late", "latest word")
            assert found_keys(store, "latest") == ["late"]
            watching.execute("SELECT pg_wal_replay_resume()")
        assert store.gauges()["replica_lag_seconds"] >= 0
        standby.stop()
        assert isnan(store.gauges()["replica_lag_seconds"])
        put(store, "after", "primary alone")
        assert found_keys(store, "alone") == ["after"]
        store.close()
    finally:
        standby.remove()
        primary.remove()


def last_question(watching: psycopg.Connection[tuple[object, ...]]) -> object:
    """When a program last asked the replica."""
    asked = "SELECT max(query_start) FROM pg_stat_activity WHERE application_name = 'commonplace'"
    return watching.execute(asked).fetchall()[0][0]


@pytest.fixture
def searching(pair: tuple[PostgresServer, PostgresServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A store whose searches the replica answers, because memory holds nothing."""
    monkeypatch.setattr("commonplace.backends.postgres.store.REPLICA_ANSWER_SECONDS", 0.5)
    primary, standby = pair
    url = primary.create_database()
    name = url.rpartition("/")[2]
    store = PostgresStore(f"{url}?partitions=2", replica_url=standby.url(name), cache_bytes=0)
    put(store, "first", "shared word")
    deadline = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(standby.url(name), autocommit=True) as watching:
                before = last_question(watching)
                found_keys(store, "shared")
                if before is not None and last_question(watching) != before:
                    break
        except psycopg.OperationalError:  # it does not have the database yet
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield store
    store.close()


@pytest.mark.promise("postgres-replica-behind")
def test_a_replica_that_is_behind_is_left_alone_after_one_search(
    pair: tuple[PostgresServer, PostgresServer], searching: PostgresStore
) -> None:
    with psycopg.connect(pair[1].url(), autocommit=True) as watching:
        watching.execute("SELECT pg_wal_replay_pause()")
        while watching.execute("SELECT pg_get_wal_replay_pause_state()").fetchall() != [("paused",)]:
            time.sleep(0.01)
        put(searching, "second", "shared word")
        before = last_question(watching)
        assert sorted(found_keys(searching, "shared")) == ["first", "second"]
        asked = last_question(watching)
        assert asked != before
        for _ in range(10):
            assert sorted(found_keys(searching, "shared")) == ["first", "second"]
        assert last_question(watching) == asked


@pytest.mark.promise("postgres-replica-behind")
def test_a_replica_that_stays_connected_and_says_nothing_holds_up_a_search_for_a_bounded_time(
    pair: tuple[PostgresServer, PostgresServer], searching: PostgresStore
) -> None:
    """Before, searches waited for it for ever."""
    standby = pair[1].process
    assert standby is not None
    stopped = [standby.pid, *map(int, Path(f"/proc/{standby.pid}/task/{standby.pid}/children").read_text().split())]
    found: list[list[str]] = []

    def search() -> None:
        found.extend(found_keys(searching, "shared") for _ in range(2))

    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        thread = threading.Thread(target=search, daemon=True)
        thread.start()
        thread.join(60)
        assert found == [["first"], ["first"]]
        assert isnan(searching.gauges()["replica_lag_seconds"])
    finally:
        for process in reversed(stopped):
            os.kill(process, signal.SIGCONT)
