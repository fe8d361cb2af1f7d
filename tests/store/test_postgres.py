"""The PostgreSQL backend passes the conformance suite on a real server; and what only it can show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from conformance import StoreConformance
from conformance_search import SearchConformance
from store_calls import BELOW, HERE, THERE, put

import commonplace
from commonplace.backends.postgres import PostgresStore, index
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


@pytest.mark.promise("postgres-models-in-steps")
def test_a_change_of_models_marks_in_steps_and_goes_on_where_it_was_stopped(
    servers: list[commonplace.Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = servers
    monkeypatch.setattr(index, "MARKED_A_STEP", 4)
    monkeypatch.setattr(index, "_FEW_PENDING", "(SELECT count(*) FROM (SELECT FROM pending LIMIT 2) AS few) < 2")
    for user in ("ana", "bob"):
        for number in range(20):
            one.space("user", user).files.write(f"/{number}", f"tea number {number}")
    one.reindex()
    changed = WordEmbedder("words@2")
    two.indexer.set_target_model(changed)  # and this program is killed
    waiting = "SELECT count(*) FROM commonplace.pending"
    with psycopg.connect(shared_book().partition("?")[0], autocommit=True) as other:

        def pending() -> int:
            return int(other.execute(waiting).fetchall()[0][0])

        counts = [pending()]
        assert two.store.indexing().pending > 40  # with those that are still to be marked
        one.space("user", "bob").files.write("/late", "written meanwhile")
        assert one.space("user", "ana").search("tea").hits[0].parts["meaning"] > 0  # by the old model

        def watch(done: int, total: int, unit: str) -> None:
            counts.append(pending())

        one.reindex(changed, progress=watch)
    assert max(counts) <= 6
    assert len(counts) > 5
    assert one.store.indexing() == Indexing("words@2", "words@2", 0)
    assert one.stats().vectors == 41
    assert one.verify() == []
    assert [model.identity for model in one.store._models()] == ["words@2"]


def test_the_last_two_vectors_stored_at_once_let_the_new_model_serve(servers: list[commonplace.Book]) -> None:
    """Each of two transactions saw the mark of the other, and the target waited for ever."""
    one, two = (server.store for server in servers)
    put(one, "a", "green tea")
    put(one, "b", "black tea")
    servers[0].reindex()
    one.set_target_model("new", 64)
    first, second = one.claim(2, 60)
    vector = np.ones(64, np.float32)
    with psycopg.connect(shared_book().partition("?")[0]) as blocking, ThreadPoolExecutor(2) as pool:
        blocking.execute("LOCK TABLE commonplace.attempt IN EXCLUSIVE MODE")
        stored = [
            pool.submit(store.index, "new", [(passage.chunk_id, vector)])
            for store, passage in ((one, first), (two, second))
        ]
        while blocking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall() != [(2,)]:
            assert not any(future.done() for future in stored)
        blocking.rollback()
        for future in stored:
            future.result(60)
    assert one.indexing() == Indexing("new", "new", 0)
    assert servers[0].verify() == []


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


def test_workers_embed_what_a_server_that_does_not_embed_writes(tmp_path: Path) -> None:
    from commonplace.book import Background
    from commonplace.embedding import create_embedder

    url = shared_server().create_database() + "?partitions=2"
    with commonplace.open(url, embedder=create_embedder(None), background=Background(embeds=False)) as book:
        space = book.space("user", "u1")
        for number in range(40):
            space.files.write(f"/{number}", f"note number {number}")
        assert book.store.indexing().pending == 40
        command = [sys.executable, "-m", "commonplace", "embed", "--workers", "2"]
        environment = {**os.environ, "DATABASE_URL": url}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as workers:
            deadline = time.monotonic() + 120
            while book.store.indexing().pending and time.monotonic() < deadline:
                time.sleep(0.05)
            workers.send_signal(signal.SIGTERM)
            _, told = workers.communicate(timeout=60)
        assert (workers.returncode, book.store.indexing().pending, book.stats().vectors) == (0, 0, 40), told
        assert book.verify() == []


@pytest.mark.promise("postgres-maintained-when-busy")
def test_marks_of_attempts_and_old_history_are_erased_where_somebody_always_writes(
    open_book: OpenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    from commonplace.backends.postgres import maintenance
    from commonplace.book import Background
    from commonplace.engine import indexer

    monkeypatch.setattr(maintenance, "ATTEMPTS_KEPT_SECONDS", 0)
    monkeypatch.setattr(maintenance, "ATTEMPTS_A_STEP", 10)
    monkeypatch.setattr(indexer, "MAINTENANCE_SECONDS", 0.2)
    monkeypatch.setattr(indexer, "ROUND_SECONDS", 0)
    empty(shared_book())
    book = open_book(shared_book(), background=Background(keep_history_seconds=0.001), clock=None)
    monkeypatch.setattr(book.store, "claim", lambda *_, **__: [])  # and no model works

    def rows(table: str) -> int:
        with psycopg.connect(shared_book().partition("?")[0]) as other:
            return int(other.execute(f"SELECT count(*) FROM commonplace.{table}".encode()).fetchall()[0][0])

    spaces = [book.space("user", f"u{number}") for number in range(indexer.NAMESPACES_A_STEP + 5)]
    for space in spaces:
        space.files.write("/kept", "first")
        space.files.write("/kept", "second")
    deadline = time.monotonic() + 60
    while (rows("history") or rows("attempt") > 20) and time.monotonic() < deadline:
        book.indexer.notice_write()  # never idle
        time.sleep(0.02)
    assert (rows("history"), rows("attempt") <= 20) == (0, True)
    assert spaces[-1].files.read("/kept") == "second"
    assert [one.action for one in spaces[-1].history("file", "/kept")] == ["updated"]
    assert book.verify() == []


@pytest.mark.promise("postgres-hot-updates")
def test_a_commit_and_a_claim_change_no_index(servers: list[commonplace.Book]) -> None:
    """Their rows are updated in place, and vacuum is told how much room to leave for that."""
    store = servers[0].store
    for number in range(20):
        put(store, "a", f"text {number}")
        assert store.claim(1, 0.0, even_leased=True)
    with psycopg.connect(shared_book().partition("?")[0], autocommit=True) as other:
        settings = dict(
            other.execute(
                "SELECT relname, reloptions::text FROM pg_class"
                " WHERE relnamespace = 'commonplace'::regnamespace AND relname LIKE '%\\_p0' AND relkind = 'r'"
            ).fetchall()
        )
        deadline = time.monotonic() + 30
        while True:
            counts = dict(
                other.execute(
                    "SELECT regexp_replace(relname, '_p[0-9]+$', ''), sum(n_tup_hot_upd) / sum(n_tup_upd)"
                    " FROM pg_stat_user_tables WHERE schemaname = 'commonplace' AND relname ~ '^(namespace|pending)_p'"
                    " GROUP BY 1 HAVING sum(n_tup_upd) >= 20"
                ).fetchall()
            )
            if len(counts) == 2 or time.monotonic() > deadline:
                break
            time.sleep(0.1)
    # A page cannot be pruned while another transaction may still read what is on it, so a few rows may move.
    assert set(counts) == {"namespace", "pending"}
    assert min(counts.values()) > 0.8
    assert {name for name, set_to in settings.items() if "fillfactor" in (set_to or "")} == {
        "namespace_p0",
        "pending_p0",
    }
    assert all("autovacuum_vacuum_scale_factor" in (set_to or "") for set_to in settings.values())
