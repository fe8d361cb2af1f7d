"""Large namespaces in a file: searched by a sketch, scored exactly, within a bound of memory, and never out of date."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from store_calls import HERE, delete, put

from commonplace.backends.sqlite import SQLiteStore
from commonplace.checks import Namespace
from commonplace.entry import Draft
from commonplace.filters import Filter
from commonplace.store import Store, Transaction

ROWS, DIMENSIONS, TOPICS = 4_000, 256, 60
FEW_BYTES = 2_000_000
"""Half of it is less than the rows take, 2,048,000 bytes."""
MANY_BYTES = 100_000_000

Vectors = NDArray[np.float32]


@pytest.fixture(autouse=True)
def large_begins_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commonplace.backends.vectors.EXACT_ROWS", 500)
    monkeypatch.setattr("commonplace.backends.vectors.RESCORED", 100)


def unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def texts_vectors(seed: int, rows: int = ROWS) -> Vectors:
    """As those of texts are: around a mean, by topics, each different, more in some directions than in others."""
    common = np.random.default_rng(1)
    turned = np.linalg.qr(common.normal(size=(DIMENSIONS, DIMENSIONS)))[0] / np.sqrt(1 + np.arange(DIMENSIONS) / 8)
    topics = (common.normal(size=(TOPICS, DIMENSIONS)) + 1) @ turned.T
    chance = np.random.default_rng(seed)
    return unit(topics[chance.integers(0, TOPICS, rows)] + chance.normal(size=(rows, DIMENSIONS)) @ turned.T)


def fill(store: Store, vectors: Vectors, namespace: Namespace = HERE, first: int = 0) -> None:
    def work(transaction: Transaction) -> None:
        for number in range(len(vectors)):
            transaction.put(Draft("file", str(first + number), f"n{first + number}"), is_fresh=True)

    store.write(namespace, work)
    store.set_target_model("m", DIMENSIONS)
    while claimed := store.claim(5_000, 60):
        store.index("m", [(passage.chunk_id, vectors[int(passage.text[1:]) - first]) for passage in claimed])


def found(store: Store, query: Vectors, filter: Filter | None = None, limit: int = 10) -> list[tuple[int, float]]:
    candidates = store.search_vectors(HERE, "m", query, filter or Filter(), limit)
    entries = store.load(HERE, [candidate.entry_id for candidate in candidates])
    return [(int(entries[one.entry_id].key), round(one.score, 4)) for one in candidates]


def nearest(vectors: Vectors, query: Vectors, among: Sequence[int], limit: int = 10) -> list[tuple[int, float]]:
    """By a look at every vector as it is stored."""
    stored = vectors.astype(np.float16).astype(np.float32)
    best = sorted(((float(stored[number] @ query), number) for number in among), reverse=True)[:limit]
    return [(number, round(score, 4)) for score, number in best]


@pytest.mark.promise("sqlite-vectors-recall")
@pytest.mark.parametrize("cache_bytes", [MANY_BYTES, FEW_BYTES])
def test_a_large_namespace_gives_what_a_look_at_every_vector_gives(tmp_path: Path, cache_bytes: int) -> None:
    vectors = texts_vectors(2)
    store = SQLiteStore(tmp_path / "book.db", durability="normal", cache_bytes=cache_bytes)
    fill(store, vectors)
    for query in texts_vectors(3, 30):
        assert found(store, query) == nearest(vectors, query, range(ROWS))
    odd = Filter(key_prefix="1")
    among = [number for number in range(ROWS) if str(number).startswith("1")]
    for query in texts_vectors(4, 10):
        assert found(store, query, odd) == nearest(vectors, query, among)
    everything = found(store, vectors[0], limit=ROWS)
    assert [number for number, _ in everything][:1] == [0]
    assert len(everything) == ROWS
    store.close()


@pytest.mark.promise("sqlite-vectors-fresh")
@pytest.mark.parametrize("cache_bytes", [MANY_BYTES, FEW_BYTES])
def test_what_another_program_writes_and_deletes_is_seen_by_the_next_search(tmp_path: Path, cache_bytes: int) -> None:
    vectors = texts_vectors(5)
    reader = SQLiteStore(tmp_path / "book.db", durability="normal", cache_bytes=cache_bytes)
    fill(reader, vectors)
    query = texts_vectors(6, 1)[0]
    before = found(reader, query)
    writer = SQLiteStore(tmp_path / "book.db", durability="normal")
    fill(writer, query[np.newaxis], first=ROWS)
    assert found(reader, query)[0] == (ROWS, 1.0)
    delete(writer, str(ROWS))
    for number, _ in before[:5]:
        delete(writer, str(number))
    gone = {ROWS, *(number for number, _ in before[:5])}
    assert found(reader, query) == nearest(vectors, query, [one for one in range(ROWS) if one not in gone])
    put(writer, str(before[5][0]), "n0 said anew")  # its vector is not there yet: the former one must not answer
    assert before[5][0] not in {number for number, _ in found(reader, query)}
    for store in (reader, writer):
        store.close()


@pytest.mark.promise("sqlite-vectors-bounded")
def test_the_vectors_in_memory_stay_within_their_bound(tmp_path: Path) -> None:
    vectors = texts_vectors(7)
    places: list[Namespace] = [("user", f"u{number}") for number in range(4)]
    with_room = SQLiteStore(tmp_path / "book.db", durability="normal", cache_bytes=MANY_BYTES)
    for namespace in places:
        fill(with_room, vectors, namespace)
    narrow = SQLiteStore(tmp_path / "book.db", durability="normal", cache_bytes=FEW_BYTES)
    answers = []
    for store in (with_room, narrow):
        found_there = [store.search_vectors(place, "m", vectors[0], Filter(), 10) for place in places]
        answers.append([[round(one.score, 4) for one in some] for some in found_there])
    assert answers[0] == answers[1]
    assert narrow.vector_bytes <= FEW_BYTES < 4 * ROWS * DIMENSIONS * 2 <= with_room.vector_bytes
    for store in (with_room, narrow):
        store.close()


def test_any_number_of_equal_vectors_gives_a_full_page(tmp_path: Path) -> None:
    same = unit(np.ones((ROWS, DIMENSIONS), np.float32))
    store = SQLiteStore(tmp_path / "book.db", durability="normal")
    fill(store, same)
    assert [score for _, score in found(store, same[0], limit=20)] == [pytest.approx(1.0, abs=1e-3)] * 20
    store.close()


@pytest.mark.parametrize("is_purged", [False, True])
def test_many_ended_passages_are_dropped_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_purged: bool
) -> None:
    monkeypatch.setattr("commonplace.backends.vectors.STALE_ROWS", 10)
    vectors = texts_vectors(8)
    store = SQLiteStore(tmp_path / "book.db", durability="normal", cache_bytes=MANY_BYTES)
    fill(store, vectors)
    query = texts_vectors(9, 1)[0]
    assert found(store, query) == nearest(vectors, query, range(ROWS))
    before = store.vector_bytes
    store.write(HERE, lambda transaction: [transaction.delete("file", str(number)) for number in range(0, ROWS, 2)])
    if is_purged:
        store.purge(HERE, kind="file", prefix="1")
    among = [number for number in range(1, ROWS, 2) if not (is_purged and str(number).startswith("1"))]
    assert found(store, query) == nearest(vectors, query, among)
    assert store.vector_bytes <= before * 3 // 5
    store.close()


def test_a_purge_takes_the_vectors_of_its_namespace_out_of_memory(tmp_path: Path) -> None:
    vectors = texts_vectors(10, 50)
    store = SQLiteStore(tmp_path / "book.db", durability="normal")
    for namespace in (HERE, ("user", "other")):
        fill(store, vectors, namespace)
        store.search_vectors(namespace, "m", vectors[0], Filter(), 10)
    before = store.vector_bytes
    assert store.purge(HERE, kind="file", key="3") == 1
    assert store.vector_bytes == before // 2
    assert found(store, vectors[3]) == nearest(vectors, vectors[3], [number for number in range(50) if number != 3])
    store.close()
