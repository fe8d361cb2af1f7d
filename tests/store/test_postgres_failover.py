"""The primary dies and its standby takes over: a store whose address names both goes on by itself, nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from store_calls import HERE, found_keys, put

from commonplace.backends.postgres import PostgresStore
from commonplace.entry import Draft
from commonplace.errors import Unavailable
from commonplace.store import Transaction
from postgres_server import FAST, PostgresServer

WRITERS = 4
LINES = 30
BEFORE_THE_FALL = 20


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer, str]]:
    """A primary whose commits wait for its standby, the standby, and an address that names both."""
    settings = {name: value for name, value in FAST.items() if name != "synchronous_commit"}
    primary = PostgresServer(settings)
    name = primary.create_database().rpartition("/")[2]
    standby = primary.standby()
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    yield primary, standby, f"postgresql://postgres@{hosts}/{name}?target_session_attrs=read-write&partitions=2"
    standby.remove()
    primary.remove()


@pytest.mark.promise("postgres-fail-over")
def test_writers_go_on_with_the_standby_when_the_primary_dies(
    pair: tuple[PostgresServer, PostgresServer, str],
) -> None:
    primary, standby, url = pair
    store = PostgresStore(url, pool_size=6)
    put(store, "early", "written before the fall")
    acknowledged: list[str] = []
    has_written_some = threading.Event()

    def append(line: str) -> None:
        def work(transaction: Transaction) -> None:
            known = transaction.get("file", "log")
            transaction.put(Draft("file", "log", line if known is None else f"{known.value}\n{line}"))

        store.write(HERE, work)

    def write(number: int) -> None:
        for step in range(LINES):
            line = f"{number}-{step}"
            while True:
                try:
                    append(line)
                    break
                except Unavailable as error:
                    if "is not known" in str(error) and line in lines():
                        break
            acknowledged.append(line)
            if len(acknowledged) >= BEFORE_THE_FALL:
                has_written_some.set()

    def lines() -> list[str]:
        while True:
            try:
                found = store.get(HERE, "file", ["log"])[0]
            except Unavailable:
                continue
            return [] if found is None else str(found.value).split("\n")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    assert has_written_some.wait(60)
    primary.stop(signal.SIGKILL)
    with psycopg.connect(standby.url(), autocommit=True) as connection:
        connection.execute("SELECT pg_promote()")
        # It has no standby of its own, and must not wait for one.
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        connection.execute("SELECT pg_reload_conf()")
    for writer in writers:
        writer.join(120)
        assert not writer.is_alive()

    assert Counter(lines()) == Counter(acknowledged)
    assert len(acknowledged) == WRITERS * LINES
    put(store, "late", "written after the fall")
    assert sorted(found_keys(store, "fall")) == ["early", "late"]
    assert store.verify() == []
    store.close()
