"""What a server keeps in memory for searches: it catches up with every other server, and forgets what is purged."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import errors
from store_calls import HERE, found_keys, put, unit

from commonplace.backends import vectors
from commonplace.backends.keywords import Keywords, Passages
from commonplace.backends.postgres import PostgresStore, candidates, index, maintenance, memory
from commonplace.backends.postgres import store as store_module
from commonplace.backends.postgres.connection import Halfvec, Session
from commonplace.backends.postgres.memory import NamespaceMemory
from commonplace.backends.ranking import Counts, Ranking, packed_terms, posting, score_arrays
from commonplace.backends.vectors import Batch
from commonplace.entry import Draft
from commonplace.filters import Filter
from commonplace.language.passages import frequency_level, passage
from commonplace.store import NamespaceHead, State, Transaction
from postgres_server import empty, shared_book, shared_server


@pytest.fixture
def servers() -> Iterator[list[PostgresStore]]:
    first = PostgresStore(shared_book())
    empty(shared_book())
    first.set_target_model("m", 8)
    opened = [first, *(PostgresStore(shared_book(), pool_size=4) for _ in range(2))]
    yield opened
    for store in opened:
        store.close()


def word(number: int) -> str:
    return "q" + "bcdfghjklm"[number // 10] + "bcdfghjklm"[number % 10]


def embed(store: PostgresStore, place: int = 1) -> int:
    claimed = store.claim(100, 60)
    store.index("m", [(one.chunk_id, unit(place)) for one in claimed])
    return len(claimed)


def near(store: PostgresStore, place: int = 1) -> int:
    return len(store.search_vectors(HERE, "m", unit(place), Filter(), 1_000))


@pytest.mark.promise("postgres-memory-catches-up")
def test_what_one_server_writes_the_next_search_of_another_finds(servers: list[PostgresStore]) -> None:
    writer, reader, _ = servers
    for number in range(30):
        put(writer, f"k{number}", f"{word(number)} tea")
        assert found_keys(reader, word(number)) == [f"k{number}"]
        assert embed(writer) == 1
        assert near(reader) == number + 1
    held = reader._memory.part(reader._spots[HERE], reader._model("m"))
    assert held is not None
    put(writer, "k1", "replaced pot")
    assert found_keys(reader, word(1)) == []
    assert found_keys(reader, "replaced") == ["k1"]
    writer.write(HERE, lambda transaction: transaction.delete("file", "k2"))
    assert found_keys(reader, word(2)) == []
    assert reader.term_counts(HERE, ["tea"]).containing == {"tea": 28}
    with held.lock:  # it caught up, and was not read again
        assert held.keywords.counted(["tea", "pot", word(2)]) == {"tea": 28, "pot": 1, word(2): 0}


def test_what_has_ended_is_looked_for_only_where_something_has(
    servers: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search read all passages of its namespace: the planner took tenant and namespace for independent."""
    writer, reader, _ = servers
    for number in range(20):
        put(writer, f"k{number}", f"{word(number)} tea")
    asked: list[tuple[str, Any]] = []
    ask = Session.ask

    def recorded(session: Session, sql: str, parameters: Any = (), **options: Any) -> Any:
        if "added.postings" in sql:
            asked.append((sql, parameters))
        return ask(session, sql, parameters, **options)

    def scans_of_passages(sql: str, parameters: Any) -> int:
        """How often passages are looked through to say what has changed."""
        with psycopg.connect(shared_book().partition("?")[0]) as other:
            other.execute("SELECT set_config('search_path', 'commonplace, public', true)")
            [(plan,)] = other.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), parameters).fetchall()
        found = re.findall(r'"Relation Name": "chunk_p.*?"Actual Loops": (\d+)', json.dumps(plan))
        assert len(found) == 2
        return sum(map(int, found))

    monkeypatch.setattr(Session, "ask", recorded)
    assert found_keys(reader, word(7)) == ["k7"]
    put(writer, "new", "fresh tea")
    asked.clear()
    assert found_keys(reader, "fresh") == ["new"]
    assert {scans_of_passages(*one) for one in asked} == {1}
    asked.clear()
    writer.write(HERE, lambda transaction: transaction.delete("file", "k7"))
    assert found_keys(reader, word(7)) == []
    assert scans_of_passages(*asked[0]) == 2


@pytest.mark.promise("postgres-purge-leaves-memory")
def test_a_purge_evicts_what_it_erased_from_the_memory_of_every_server(servers: list[PostgresStore]) -> None:
    writer, reader, _ = servers
    for number in range(5):
        put(writer, f"k{number}", f"{word(number)} tea")
    embed(writer)
    assert near(reader) == near(writer) == 5
    writer.write(HERE, lambda transaction: transaction.delete("file", "k3"))
    assert near(reader) == 4  # the vector of k3 may still be in memory, and is not proposed
    before = reader._memory.part(reader._spots[HERE], reader._model("m"))
    writer.purge(HERE, kind="file", key="k3")
    assert writer.vector_bytes == 0
    assert near(reader) == 4
    assert before is not None
    assert before.matrix is not None
    assert len(before.matrix.search(unit(1), None, None, None)) == 4  # type: ignore[arg-type]
    assert found_keys(reader, word(3)) == []


def test_vectors_that_several_servers_store_at_once_are_all_seen_by_a_reader_that_looks_all_the_time(
    servers: list[PostgresStore],
) -> None:
    writer, second, reader = servers

    def fill(transaction: Transaction) -> None:
        for number in range(120):
            transaction.put(Draft("file", f"n{number:03}", f"text {number}"))

    writer.write(HERE, fill)
    near(reader)
    waiting = [one.chunk_id for one in writer.claim(1_000, 600)]
    parts = [waiting[start : start + 5] for start in range(0, len(waiting), 5)]
    with ThreadPoolExecutor(4) as threads:
        jobs = [
            threads.submit(store.index, "m", [(chunk, unit(1)) for chunk in part])
            for part, store in zip(parts, [writer, second] * len(parts), strict=False)
        ]
        while not all(job.done() for job in jobs):
            near(reader)
        for job in jobs:
            job.result()
    assert near(reader) == 120


def test_a_namespace_written_in_many_ways_is_counted_as_the_table_counts_it(servers: list[PostgresStore]) -> None:
    writer, reader, _ = servers
    chance = random.Random(7)
    words = [word(number) for number in range(12)]
    for step in range(120):
        key = f"k{chance.randrange(20)}"
        if chance.random() < 0.3:
            writer.write(HERE, lambda transaction, key=key: transaction.delete("file", key))  # type: ignore[misc]
        else:
            put(writer, key, " ".join(chance.choices(words, k=chance.choice([3, 200, 900]))))
        if step % 17 == 0:
            writer.purge(HERE, kind="file", prefix="k1")
        if step % 41 == 0:
            writer.rebuild_keywords()
        found_keys(reader, words[1])
        held = reader._memory.part(reader._spots[HERE], reader._model("m"))
        assert held is not None
        counted = dict(reader.term_counts(HERE, words).containing)
        with held.lock:
            assert held.keywords.counted(words) == counted


def test_terms_of_passages_from_before_are_packed_by_the_database_as_they_are_packed_here(
    servers: list[PostgresStore],
) -> None:
    writer, reader, _ = servers
    text = 'tea tea tea café 東京 snake_case twice twice a\'b "quoted"'
    put(writer, "k1", text)
    terms = passage(text, 0, len(text)).terms
    # As former versions stored them: with the namespace's number, and marked again where a term occurs more than once.
    marks = {term: "\x03" if count > 2 else "\x02" for term, count in terms.items() if count > 1}
    former = [f"1:{term}" for term in terms], [f"1:{term}{mark}" for term, mark in marks.items()]
    sql = "UPDATE chunk SET tokens = %s, repeated = %s WHERE ended_commit IS NULL AND number = 0"
    assert writer._runner.system(lambda session: session.count(sql, former)) == 1
    sql = "SELECT terms, packed_terms(tokens, repeated) FROM chunk WHERE ended_commit IS NULL AND number = 0"
    rows = writer._runner.system(lambda session: session.rows(sql, binary=True))
    assert rows
    for stored, made in rows:
        assert sorted(stored[at : at + 8] for at in range(0, len(stored), 8)) == sorted(
            made[at : at + 8] for at in range(0, len(made), 8)
        )
    writer._runner.system(lambda session: session.count("UPDATE chunk SET terms = NULL"))
    assert found_keys(reader, "東京") == found_keys(reader, "twice") == ["k1"]


@pytest.mark.parametrize("seed", range(3))
def test_posting_lists_in_memory_score_as_lists_of_the_database_do(seed: int) -> None:
    chance = random.Random(seed)
    keywords, live = Keywords(), dict[int, dict[str, int]]()
    lengths: dict[int, int] = {}
    for chunk in range(1, 3_000):
        text = " ".join(chance.choices(["tea", "green", "pot", *map(str, range(40))], k=chance.randrange(1, 9)))
        made = passage(text, 0, len(text))
        live[chunk], lengths[chunk] = dict(made.terms), made.length
        packed = packed_terms(made.terms)
        numbers = np.array([posting(chunk, made.length)])
        keywords.extend(Passages(numbers, np.array([len(packed)]), packed))
        if chance.random() < 0.5:
            gone = chance.choice(list(live))
            del live[gone]
            keywords.end(np.array([gone, 10**9]))
    terms = {"tea": 1.0, "pot": 2.0, "7": 1.0, "none": 1.0}
    counts = Counts(1, len(live), sum(lengths[chunk] for chunk in live))
    lists = [
        (
            weight,
            np.array([posting(chunk, lengths[chunk]) for chunk, held in live.items() if term in held], np.int64),
            np.array([frequency_level(held[term]) for held in live.values() if term in held], np.int64),
        )
        for term, weight in terms.items()
    ]
    assert keywords.rank(counts, terms).rank(None) == score_arrays(counts, lists).rank(None)


def fill(store: PostgresStore, first: int, count: int) -> None:
    def work(transaction: Transaction) -> None:
        for number in range(first, first + count):
            transaction.put(Draft("file", f"n{number:04}", f"tea {number}"))

    store.write(HERE, work)
    store.index("m", [(one.chunk_id, unit(1)) for one in store.claim(1_000, 60)])


def held_of(store: PostgresStore) -> NamespaceMemory | None:
    return store._memory.part(store._spots[HERE], store._model("m"))


def test_a_namespace_that_outgrows_memory_while_it_is_held_is_searched_by_the_database(
    servers: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "EXACT_ROWS", 50)  # above it a matrix keeps its rows only within its bytes
    writer = servers[0]
    reader = PostgresStore(shared_book(), pool_size=2, cache_bytes=20_000)
    try:
        for first in range(0, 800, 100):
            fill(writer, first, 100)
            assert near(reader) == first + 100
            assert len(found_keys(reader, "tea")) == 100
        assert held_of(reader) is None
        assert reader.vector_bytes <= 20_000
        # When most of it is gone, it is held again.
        writer.purge(HERE, kind="file", prefix="n0")
        writer.purge(HERE, kind="file", prefix="n")
        fill(writer, 0, 5)
        assert near(reader) == near(reader) == 5
        assert held_of(reader) is not None
    finally:
        reader.close()


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_search_that_fails_while_it_fills_memory_leaves_nothing_half_read(
    servers: list[PostgresStore], monkeypatch: pytest.MonkeyPatch, is_warm: bool
) -> None:
    writer, reader, _ = servers
    fill(writer, 0, 5)
    if is_warm:
        near(reader)
        fill(writer, 5, 5)
    read = memory._Rows.added
    failures = iter([errors.SerializationFailure("once")])

    def added(self: memory._Rows, after: int, limit: int) -> Batch:
        for error in failures:
            raise error
        return read(self, after, limit)

    monkeypatch.setattr(memory._Rows, "added", added)
    count = 10 if is_warm else 5
    assert near(reader) == count
    held = held_of(reader)
    assert held is not None
    with held.lock:
        assert held.keywords.counted(["tea"]) == {"tea": count}


def test_who_fills_memory_does_not_wait_for_a_connection_that_waits_for_it(
    servers: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(servers[0], 0, 5)
    store = PostgresStore(shared_book(), pool_size=1, query_seconds=3.0)
    near(store)
    held = held_of(store)
    assert held is not None
    is_connected, is_loading = Event(), Event()
    rank, read = candidates.ranked_words, store._read

    def slowly(part: NamespaceMemory, terms: Mapping[str, float]) -> Ranking:
        if not is_connected.is_set():
            is_connected.set()
            assert is_loading.wait(10)
        return rank(part, terms)

    def noticed(*arguments: Any, **options: Any) -> Any:
        if options.get("snapshot"):
            is_loading.set()
        return read(*arguments, **options)

    monkeypatch.setattr(candidates, "ranked_words", slowly)
    monkeypatch.setattr(store, "_read", noticed)
    try:
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(near, store)
            assert is_connected.wait(10)
            held.is_loaded = False  # as after a purge
            second = threads.submit(near, store)
            assert first.result() == second.result() == 5
    finally:
        store.close()


def test_a_vector_is_not_stored_where_its_namespace_is_not_locked(servers: list[PostgresStore]) -> None:
    """A mark that is made after the locks were taken waits for the next claim."""
    writer, other, _ = servers
    put(writer, "k1", "tea")
    [claimed] = writer.claim(1, 60)
    marks = other._runner.system(lambda session: session.rows("DELETE FROM pending RETURNING tenant, chunk, namespace"))
    mark = "INSERT INTO pending (tenant, chunk, namespace) VALUES (%s, %s, %s)"

    def work(session: Session) -> None:
        ask = session.ask

        def noticed(sql: str, parameters: Any = (), **options: Any) -> Any:
            if "FOR UPDATE OF p" in sql:
                other._runner.system(lambda session: session.count(mark, marks[0]))
            return ask(sql, parameters, **options)

        session.ask = noticed  # type: ignore[method-assign]
        index.store_vectors(session, "m", [(claimed.chunk_id, unit(1))])

    writer._runner.system(work)
    assert near(writer) == 0
    assert writer.indexing().pending == 1
    assert embed(other) == near(writer) == 1


def test_a_vector_of_a_server_that_knows_no_numbers_is_numbered_under_the_lock(servers: list[PostgresStore]) -> None:
    """As servers of schema 2 and 3 store it, which do not notice that the schema has a new number."""
    former, writer, reader = servers
    put(writer, "k1", "tea")
    put(writer, "k2", "tea")
    assert near(reader) == 0
    chunks = [one.chunk_id for one in writer.claim(2, 60)]
    insert = (
        "INSERT INTO embedding (tenant, namespace, model, chunk, former, value)"
        " SELECT c.tenant, c.namespace, m.id, c.id, false, %s FROM chunk AS c, model AS m WHERE c.id = %s"
    )

    def work(session: Session) -> Future[None]:
        session.count(insert, (Halfvec.of(unit(1)), chunks[0]))
        later = threads.submit(writer.index, "m", [(chunks[1], unit(1))])
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not session.rows(waiting):
            assert not later.done(), "a higher number was committed first"
        assert near(reader) == 0
        return later

    with ThreadPoolExecutor(1) as threads:
        former._runner.system(work).result()
    assert near(reader) == 2


@pytest.mark.promise("postgres-keyword-index-when-large")
def test_a_namespace_that_memory_does_not_hold_gets_an_index_of_keywords_that_finds_the_same() -> None:
    url = shared_server().create_database() + "?partitions=2"
    with closing(PostgresStore(url)) as holding, closing(PostgresStore(url, cache_bytes=0)) as without:
        for number in range(40):
            repeated = " ".join(["tea"] * (1 + number % 4))
            put(holding, f"k{number}", f"{word(number)} {repeated} pot" if number % 2 else f"{word(number)} {repeated}")
        put(holding, "k3", "replaced pot")
        holding.write(("user", "other"), lambda transaction: transaction.put(Draft("file", "x", "tea")))
        terms = {"tea": 1.0, "pot": 1.0, word(5): 1.0}

        def answers(store: PostgresStore) -> tuple[list[tuple[int, float]], Mapping[str, int]]:
            found = store.search_text(HERE, terms, Filter(), 50)
            counts = store.term_counts(HERE, [*terms, "none"]).containing
            return [(one.entry_id, pytest.approx(one.score)) for one in found], counts

        expected = answers(holding)
        assert expected[1] == {"tea": 39, "pot": 20, word(5): 1, "none": 0}
        assert not holding.maintain()  # everything fits into memory, so there is no index of keywords
        assert keyword_indexes(without) == []
        assert answers(without) == expected
        while without.maintain():
            continue
        assert keyword_indexes(without) == ["chunk_p0_terms", "chunk_p1_terms"]
        assert answers(without) == expected
        put(holding, "k7", "tea and nothing else")
        assert answers(without) == answers(holding)
        assert without.verify() == []


def keyword_indexes(store: PostgresStore) -> list[str]:
    return sorted(store._runner.system(lambda session: maintenance.known_indexes(session, "gin")))


@pytest.mark.promise("postgres-analyzes-after-an-import")
def test_an_import_of_many_entries_leaves_statistics_for_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "ANALYZED_STATES", 30)
    url = shared_server().create_database() + "?partitions=2"
    with closing(PostgresStore(url)) as store:
        put(store, "first", "text")
        exported = list(store.export())
        [head] = [one for one in exported if isinstance(one, NamespaceHead)]
        [state] = [one for one in exported if isinstance(one, State)]
        known = "SELECT count(*) FROM pg_class WHERE relname ~ '^entry_p[0-9]+$' AND reltuples > 0"
        for copies, name, is_analyzed in ((20, "few", False), (40, "many", True)):
            states = [
                replace(state, entry=replace(state.entry, id=number, key=f"k{number}", namespace=("user", name)))
                for number in range(1, copies + 1)
            ]
            assert store.adopt(replace(head, namespace=("user", name)), lambda states=states: iter(states)) == copies
            assert bool(store._runner.system(lambda session: session.rows(known))[0][0]) == is_analyzed
