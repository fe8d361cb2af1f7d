"""The two backends rank alike: the same data and queries give the same hits in the same order with the same scores."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import commonplace
from commonplace.backends.postgres import PostgresStore
from commonplace.backends.postgres.connection import Pipeline, Session
from commonplace.backends.ranking import Ranking
from commonplace.entry import Draft, Entry
from commonplace.filters import Filter, parse_conditions
from commonplace.language.tokenizer import query_terms
from commonplace.store import Candidate, SearchQuery, Store, Transaction
from doubles import Clock, WordEmbedder
from postgres_server import empty, shared_book, shared_server

HERE = ("user", "u1")
WORDS = ["deploy", "blue", "green", "checklist", "Tuesday", "rollback", "snake_case", "naïve", "東京", "kv-store", "42"]
WORDS += [f"word{number}" for number in range(60)]


def test_a_ranking_knows_its_passages_in_whatever_order_they_come() -> None:
    chunks, shares = np.array([7, 3, 9, 4]), np.array([0.5, 0.25, 1.0, 0.5])
    ranking = Ranking(chunks, shares)
    assert ranking.rank(None) == [(9, 1.0), (7, 0.5), (4, 0.5), (3, 0.25)]
    assert ranking.shares([4, 1, 9, 10, 5, 4]) == {4: 0.5, 9: 1.0}
    assert Ranking(chunks[:0], shares[:0]).shares([1, 2]) == {}


@pytest.fixture
def books() -> Iterator[list[commonplace.Book]]:
    empty_first = PostgresStore(shared_book())
    empty(shared_book())
    empty_first.close()
    opened = [
        commonplace.open(url, embedder=WordEmbedder(), clock=Clock(), background=False)
        for url in (":memory:", shared_book())
    ]
    yield opened
    for book in opened:
        book.close()


def fill(space: commonplace.Space) -> None:
    chance = random.Random(3)
    for number in range(150):
        words = [chance.choice(WORDS) for _ in range(chance.choice([3, 8, 30, 400]))]
        if number % 3:
            space.files.write(f"/notes/{number % 7}/{number}", " ".join(words))
        else:
            content = {"text": " ".join(words), "n": number}
            tags = [f"t{number % 4}"]
            space.records.create(type="note", content=content, source="s", confidence=0.5, tags=tags)
    for number in range(0, 150, 10):
        if number % 3:
            space.files.append(f"/notes/{number % 7}/{number}", "deploy blue green")
    space.files.delete("/notes/1/1")


def seen(space: commonplace.Space, query: str, **options: Any) -> list[Any]:
    return [
        (hit.kind, hit.entry.value, pytest.approx(hit.score, abs=2e-4), hit.start, hit.end, hit.snippet)
        for hit in space.search(query, **options)
    ]


@pytest.mark.promise("postgres-ranks-alike")
def test_both_backends_give_the_same_hits(books: list[commonplace.Book]) -> None:
    spaces = [book.space(*HERE) for book in books]
    for space in spaces:
        fill(space)
    for book in books:
        book.reindex()
    for query in ("deploy checklist", "blue/green", "東京 rollback", "snake_case word7 word8", "nothing like it", "42"):
        for options in ({}, {"limit": 50}, {"kinds": ["record"]}, {"filter": {"n": {"$gt": 60}}}):
            first, second = (seen(space, query, **options) for space in spaces)
            assert first == second, (query, options)
            assert first, (query, options)


def test_both_indexes_propose_the_same_candidates(books: list[commonplace.Book]) -> None:
    spaces = [book.space(*HERE) for book in books]
    for space in spaces:
        fill(space)
    stores = [book.store for book in books]
    for terms in ("deploy", "blue green word3", "naïve 東京"):
        for limit in (3, 40, 200):
            first, second = (
                [
                    (score, start, end)
                    for _, score, start, end in store.search_text(HERE, query_terms(terms), Filter(), limit)
                ]
                for store in stores
            )
            assert first == second, (terms, limit)
    counts = [store.term_counts(HERE, ["deploy", "blue", "none"]) for store in stores]
    assert counts[0] == counts[1]


Side = list[tuple[int, Any, int, int]]


def both_ways(store: PostgresStore, asked: SearchQuery) -> list[tuple[Side, Side, dict[int, Entry]]]:
    """A search whose questions travel together, and one made of a call for each."""

    def choose(by_words: Sequence[Candidate], by_meaning: Sequence[Candidate]) -> list[int]:
        return sorted({candidate.entry_id for candidate in (*by_words, *by_meaning)})

    answers = [store.search(HERE, asked, choose), Store.search(store, HERE, asked, choose)]
    return [(side(answer.by_words), side(answer.by_meaning), answer.entries) for answer in answers if answer]


def side(candidates: Sequence[Candidate]) -> Side:
    rows = sorted(candidates, key=lambda one: (one.entry_id, one.start, one.end))
    return [(one.entry_id, pytest.approx(one.score, abs=1e-6), one.start, one.end) for one in rows]


@pytest.mark.parametrize("cache_bytes", [10**8, 1_000], ids=["in memory", "by pgvector"])
def test_questions_that_travel_together_get_the_answers_that_each_alone_gets(
    books: list[commonplace.Book], cache_bytes: int
) -> None:
    book = books[1]
    fill(book.space(*HERE))
    book.reindex()
    store = PostgresStore(shared_book(), clock=Clock(), cache_bytes=cache_bytes)
    model, _ = store.models()
    assert model is not None
    filters = [
        Filter(),
        Filter(kinds=("record",)),
        Filter(any_tags=("t1",)),
        Filter(conditions=parse_conditions({"n": 60})),
        Filter(conditions=parse_conditions({"n": -1})),
    ]
    for query in ("deploy checklist", "snake_case word7", "nothing like it"):
        vector = WordEmbedder().embed([query], purpose="query")[0]
        for filter in filters:
            for terms, meaning in (
                (query_terms(query), (model, vector)),
                ({}, (model, vector)),
                (query_terms(query), None),
                (query_terms(query), ("unknown", vector)),
            ):
                for limit in (5, 24, 200):
                    together, each = both_ways(store, SearchQuery(terms, meaning, filter, limit))
                    assert together == each, (query, filter, len(terms), meaning, limit)
    assert (store.vector_bytes > 0) == (cache_bytes == 10**8)
    store.close()


@pytest.mark.promise("postgres-one-round-trip")
def test_a_search_is_three_questions_in_one_round_trip(
    books: list[commonplace.Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    book = books[1]
    space = book.space(*HERE)
    for number in range(40):
        space.files.write(f"/notes/{number}", f"deploy {WORDS[number]} {WORDS[number % 7]} checklist")
    book.reindex()
    expected = seen(space, "deploy checklist")
    calls: list[str] = []
    waits: list[str] = []
    result_of, close = Pipeline.result_of, Pipeline.close

    def waited(pipeline: Pipeline, given: Any) -> Any:
        if given.result is None:
            waits.append("one result")
        return result_of(pipeline, given)

    def closed(pipeline: Pipeline) -> None:
        waits.append("the end of the pipeline")
        close(pipeline)

    monkeypatch.setattr(Pipeline, "result_of", waited)
    monkeypatch.setattr(Pipeline, "close", closed)
    for name in ("begin", "ask", "end"):
        monkeypatch.setattr(Session, name, recorded(calls, name))
    assert seen(space, "deploy checklist") == expected
    assert calls == ["begin", "ask", "ask", "ask", "end", "end"]
    assert waits == ["the end of the pipeline"]


def recorded(calls: list[str], name: str) -> Any:
    method = getattr(Session, name)

    def call(session: Session, *args: Any, **options: Any) -> Any:
        calls.append(name)
        return method(session, *args, **options)

    return call


@pytest.mark.promise("postgres-recall")
def test_a_namespace_too_large_for_memory_is_searched_by_its_index_and_misses_next_to_nothing() -> None:
    store = PostgresStore(shared_server().create_database() + "?partitions=2", cache_bytes=100_000)
    rows, dimensions = 1_500, 32
    chance = np.random.default_rng(5)
    matrix = chance.normal(size=(rows, dimensions)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)

    def work(transaction: Transaction) -> None:
        for number in range(rows):
            transaction.put(Draft("file", str(number), f"n{number}"), is_fresh=True)

    for namespace in (HERE, ("user", "u2")):
        store.write(namespace, work)
    store.set_target_model("m", dimensions)
    while claimed := store.claim(2_000, 60):
        store.index("m", [(passage.chunk_id, matrix[int(passage.text[1:])]) for passage in claimed])
    while store.maintain():
        continue
    assert store.vector_indexes()
    assert all(store.vector_indexes().values())
    found = 0
    for query in matrix[:50]:
        noisy = query + chance.normal(size=dimensions).astype(np.float32) * 0.1
        noisy /= np.linalg.norm(noisy)
        expected = set(np.argsort(-(matrix @ noisy))[:10].tolist())
        candidates = store.search_vectors(HERE, "m", noisy, Filter(), 10)
        assert len(candidates) == 10
        entries = store.load(HERE, [candidate.entry_id for candidate in candidates])
        found += len(expected & {int(entry.key) for entry in entries.values()})
    assert found / 500 >= 0.98
    assert store.index_namespace(HERE) != []
    assert len(store.search_vectors(HERE, "m", matrix[0], Filter(), 10)) == 10
    assert store.index_namespace(HERE) == []
    assert store.verify() == []
    store.close()
