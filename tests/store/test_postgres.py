"""The PostgreSQL backend passes the conformance suite on a real server; and what only it can show."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conformance import StoreConformance
from conformance_search import SearchConformance
from store_calls import BELOW, HERE, THERE, put

import commonplace
from commonplace.backends.postgres import PostgresStore
from commonplace.engine.indexer import BATCH
from commonplace.store import Indexing, Store
from doubles import OpenBook, WordEmbedder
from postgres_server import empty, shared_book, shared_server


class TestPostgres(StoreConformance):
    @pytest.fixture
    def store(self, clock: Any) -> Iterator[PostgresStore]:
        empty(shared_book())
        store = PostgresStore(shared_book(), clock=clock)
        yield store
        store.close()

    def open_copy(self, path: Path) -> Store:
        store = PostgresStore(shared_server().create_database() + "?partitions=2")
        store.restore(path)
        return store


class TestSearchWithoutMemory(SearchConformance):
    """The same searches where memory holds no namespace: keywords and vectors are ranked by the database."""

    @pytest.fixture
    def store(self, clock: Any) -> Iterator[PostgresStore]:
        empty(shared_book())
        store = PostgresStore(shared_book(), clock=clock, cache_bytes=0)
        yield store
        assert store.vector_bytes == 0
        store.close()


@pytest.fixture
def servers(open_book: OpenBook) -> list[commonplace.Book]:
    empty(shared_book())
    return [open_book(shared_book()) for _ in range(2)]


def test_a_reindex_ends_although_passages_are_erased_while_it_marks_them(servers: list[commonplace.Book]) -> None:
    one, two = servers
    space = two.space("user", "u1")
    for number in range(BATCH + 1):
        space.files.write(f"/erased/{number}", "a text that will be erased")
    space.files.write("/stays", "a text that stays")
    one.reindex()
    with psycopg.connect(shared_book().partition("?")[0]) as blocking, ThreadPoolExecutor(1) as other:
        # Its own mark for this passage waits for this one, when it has seen all that there is to mark.
        blocking.execute(
            "INSERT INTO commonplace.pending (tenant, chunk, namespace)"
            " SELECT tenant, id, namespace FROM commonplace.chunk WHERE number >= 0 ORDER BY id DESC LIMIT 1"
        )
        reindexing = other.submit(one.reindex, WordEmbedder("words@2"))
        while not blocking.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
            assert not reindexing.done()
        space.purge("directory", "/erased")
        blocking.rollback()
        reindexing.result(60)
    assert one.store.indexing() == Indexing("words@2", "words@2", 0)
    assert one.stats().vectors == 1
    assert one.verify() == []


def test_history_is_counted_from_its_rows_after_a_program_that_does_not_count_it(clock: Any) -> None:
    empty(shared_book())
    store = PostgresStore(shared_book(), clock=clock)
    for namespace, states in ((HERE, 2), (BELOW, 4), (THERE, 3)):
        for number in range(states):
            put(store, "a", f"text {number}", namespace=namespace)

    def measured() -> list[Any]:
        usages = [store.usage(prefix) for prefix in ((), HERE, BELOW)]
        own = [store.read(BELOW, lambda reader: reader.usage()), store.write(BELOW, lambda change: change.usage())[0]]
        return [*usages, *own, store.namespace_stats(BELOW)]

    counted = measured()
    assert [usage.former_states for usage in counted] == [6, 4, 3, 3, 3, 3]
    with psycopg.connect(shared_book().partition("?")[0]) as other:
        other.execute(
            "UPDATE commonplace.namespace SET former_commit = commit_number - 1, former_states = 50, former_bytes = 60"
        )
        other.commit()
        assert measured() == counted
        put(store, "a", "text", namespace=BELOW)
        kept = "SELECT former_states FROM commonplace.namespace WHERE former_commit = commit_number"
        assert other.execute(kept).fetchall() == [(4,)]
    assert store.verify() == []
    store.close()


@pytest.mark.promise("engine-damage-named")
def test_a_value_that_cannot_be_decoded_names_its_entry(servers: list[commonplace.Book]) -> None:
    book = servers[0]
    space = book.space("user", "u1")
    for name in ("/former", "/live", "/whole"):
        space.files.write(name, "one")
        space.files.write(name, "two")
    with psycopg.connect(shared_book().partition("?")[0]) as other:
        other.execute("UPDATE commonplace.history SET value = '\\x7aff' WHERE key LIKE '%former'")
        other.execute("UPDATE commonplace.entry SET is_json = true WHERE key LIKE '%live'")
    for read, name in (
        (lambda: space.state("file", "/former", 1), "/former"),
        (lambda: space.files.read("/live"), "/live"),
        (lambda: book.export(lambda line: None), "of namespace user/u1"),
    ):
        with pytest.raises(commonplace.Corrupt, match=name):
            read()
    assert space.files.read("/whole") == "two"


MANY_FILES = 8_000
_COPIES = (
    "INSERT INTO commonplace.{table} SELECT (jsonb_populate_record(c, jsonb_build_object({changes}))).*"
    " FROM commonplace.{table} AS c, generate_series(1, {count}) AS n WHERE c.tenant = 'user/u1' AND {which};"
)
_FILES = _COPIES.format(
    table="entry", which="c.kind = 'file'", changes="'id', c.id + n, 'key', c.key || n {more}", count="{count}"
)
STEPS = {
    "many files": _FILES.format(more="", count=MANY_FILES - 1)
    + _COPIES.format(
        table="chunk", which="true", changes="'id', c.id + 2 * n, 'entry', c.entry + n", count=MANY_FILES - 1
    ),
    "other tenants": _FILES.format(more=", 'tenant', 'user/other-' || n % 300, 'namespace', -1 - n % 300", count=6_000),
    "statistics": "ANALYZE commonplace.entry",
}


def prepared(url: str, open_book: OpenBook, *steps: str) -> commonplace.Space:
    """A namespace with one file in a directory, and what the steps make of it."""
    space = open_book(url + "?partitions=1").space("user", "u1")
    space.files.write("/d/file", "x")
    with psycopg.connect(url, autocommit=True) as connection:
        for step in steps:
            connection.execute(STEPS[step].encode())
    return space


@pytest.mark.parametrize(
    "steps",
    [["many files"], ["other tenants", "many files", "statistics"], ["other tenants", "statistics", "many files"]],
    ids=["without statistics", "with statistics", "with statistics of before"],
)
def test_a_large_directory_is_listed_within_the_time_out(open_book: OpenBook, steps: list[str]) -> None:
    space = prepared(shared_server().create_database(), open_book, *steps)
    assert len(space.files.list("/d")) == MANY_FILES


def test_a_large_directory_is_erased_within_the_time_out(open_book: OpenBook) -> None:
    space = prepared(shared_server().create_database(), open_book, "many files")
    space.files.delete("/d")
    assert space.purge("directory", "/d") == MANY_FILES + 1
