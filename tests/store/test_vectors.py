"""Vectors in memory, with rows from no database: they rank as a look at every stored vector does, within a budget."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from commonplace.backends import vectors
from commonplace.backends.vectors import Batch, Floats, Halves, VectorCache, halves, pack, unpack

DIMENSIONS = 64
TOPICS = np.linalg.qr(np.random.default_rng(1).normal(size=(DIMENSIONS, 24)))[0].T.astype(np.float32)
"""Far from each other, so that a sketch always finds the vectors of a topic."""


class FakeRows:
    """The stored vectors of a namespace in a list, as a backend would pass them."""

    def __init__(self, namespace: int) -> None:
        self.namespace = namespace
        self.place = (namespace, "m")
        self.dimensions = DIMENSIONS
        self.commit = 0
        self.chunks_ended = 0
        self.reads = 0
        self._chance = np.random.default_rng(namespace)
        self._live: dict[int, tuple[int, bytes]] = {}
        self._ended: dict[int, int] = {}
        self._last = 0

    # What the cache calls

    def added(self, after: int, limit: int) -> Batch:
        found = [(sequence, *row) for sequence, row in sorted(self._live.items()) if sequence > after][:limit]
        self.reads += len(found)
        packed = halves([value for _, _, value in found], DIMENSIONS)
        return Batch([sequence for sequence, _, _ in found], [chunk for _, chunk, _ in found], packed)

    def ended(self, after: int) -> list[int]:
        return [chunk for chunk, commit in self._ended.items() if commit > after]

    def values(self, sequences: Sequence[int]) -> tuple[list[int], Halves]:
        found = [sequence for sequence in sequences if sequence in self._live]
        return found, halves([self._live[sequence][1] for sequence in found], DIMENSIONS)

    # What a test does with it

    def add(self, topics: Sequence[int]) -> None:
        self.commit += 1
        for topic in topics:
            self._last += 1
            vector = TOPICS[topic] + self._chance.normal(scale=0.02, size=DIMENSIONS).astype(np.float32)
            chunk = self._last * 7 % 10_007  # in another order than the sequence numbers
            self._live[self._last] = chunk, pack(vector / np.linalg.norm(vector))

    def end(self, sequences: Sequence[int]) -> None:
        self.commit += 1
        for sequence in sequences:
            chunk, _ = self._live.pop(sequence)
            self._ended[chunk] = self.commit
        self.chunks_ended += len(sequences)

    def erase(self, after: int = 0) -> None:
        """As a purge does: nobody can tell any more which passages ended with a commit above `after`."""
        self._ended = {chunk: commit for chunk, commit in self._ended.items() if commit <= after}

    @property
    def sequences(self) -> list[int]:
        return list(self._live)

    @property
    def chunks(self) -> set[int]:
        return {chunk for chunk, _ in self._live.values()}

    def by_brute_force(self, query: Floats, keep: int | None = None) -> list[tuple[int, float]]:
        if not self._live:
            return []
        stored = unpack([value for _, value in self._live.values()], DIMENSIONS)
        scores = np.vecdot(stored, query).tolist()
        scored = zip((chunk for chunk, _ in self._live.values()), scores, strict=True)
        return sorted(scored, key=lambda one: (-one[1], -one[0]))[:keep]


def near(topic: int) -> Floats:
    vector = TOPICS[topic] + np.random.default_rng(topic).normal(scale=0.01, size=DIMENSIONS).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


@pytest.fixture(autouse=True)
def large_begins_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "EXACT_ROWS", 100)
    monkeypatch.setattr(vectors, "RESCORED", 40)
    monkeypatch.setattr(vectors, "ROWS_A_READ", 25)
    monkeypatch.setattr(vectors, "STALE_ROWS", 10)


def check_search(cache: VectorCache, rows: FakeRows, query: Floats, keep: int) -> None:
    rank = cache.nearest(rows, query)
    expected = rows.by_brute_force(query)
    everything = rank(None, None)
    assert [one for one in everything if one[0] in rows.chunks] == expected  # who reads their rows drops the others
    # A sketch promises those that are near.
    ranked = [one for one in rank(keep, None) if one[1] > 0.5]
    assert ranked == [one for one in everything if one[1] > 0.5][:keep]
    allowed = [one for one in rank(keep, sorted(rows.chunks)) if one[1] > 0.5]
    assert allowed == [one for one in expected if one[1] > 0.5][:keep]


@pytest.mark.parametrize("max_bytes", [10_000_000, 150_000, 20_000])
@pytest.mark.parametrize("seed", range(8))
def test_any_adds_ends_and_evictions_give_what_a_look_at_every_vector_gives(seed: int, max_bytes: int) -> None:
    chance = random.Random(seed)
    places = [FakeRows(place) for place in range(3)]
    cache = VectorCache(max_bytes)
    for _ in range(80):
        rows = chance.choice(places)
        action = chance.choice(["add", "add", "end", "search", "search", "search", "erase", "evict"])
        if action == "add":
            rows.add([chance.randrange(len(TOPICS)) for _ in range(chance.choice([1, 1, 20, 90]))])
        elif action == "end":
            rows.end(chance.sample(rows.sequences, len(rows.sequences) // chance.choice([2, 8, 30])))
        elif action == "erase" and chance.random() < 0.3:
            rows.erase()
        elif action == "evict":
            cache.evict(rows.namespace)
        else:
            check_search(cache, rows, near(chance.randrange(len(TOPICS))), chance.choice([1, 3, 5]))
    for rows in places:
        check_search(cache, rows, near(0), 5)


def test_the_least_recently_searched_go_when_the_budget_is_spent() -> None:
    places = [FakeRows(place) for place in range(5)]
    for rows in places:
        rows.add(list(range(24)))
    one_matrix = 24 * DIMENSIONS * 4 + 24 * 16
    cache = VectorCache(4 * one_matrix)
    for place in (0, 1, 2, 0, 3, 0, 4):
        cache.nearest(places[place], near(0))
        assert cache.held_bytes <= 4 * one_matrix
    before = [rows.reads for rows in places]
    for place in (0, 2, 3, 4, 1):
        cache.nearest(places[place], near(0))
    assert [rows.reads - known for rows, known in zip(places, before, strict=True)] == [0, 24, 0, 0, 0]


def test_one_matrix_alone_may_pass_the_budget_and_an_evicted_one_takes_no_room() -> None:
    rows = FakeRows(1)
    rows.add(list(range(24)))
    cache = VectorCache(10)
    check_search(cache, rows, near(3), 5)
    assert cache.held_bytes > 10
    cache.evict(rows.namespace)
    cache.evict(rows.namespace)
    assert cache.held_bytes == 0


@pytest.mark.parametrize("size", [48, 480])
def test_ended_passages_leave_memory_without_reading_the_others_again(size: int) -> None:
    rows = FakeRows(1)
    rows.add([number % 24 for number in range(size)])
    cache = VectorCache(10_000_000)
    check_search(cache, rows, near(3), 5)
    before = cache.held_bytes
    rows.end(rows.sequences[: size // 2])
    check_search(cache, rows, near(3), 5)
    assert rows.reads == size
    assert cache.held_bytes < before * 3 // 4


def test_where_ended_passages_were_erased_everything_is_read_again() -> None:
    rows = FakeRows(1)
    rows.add([number % 24 for number in range(48)])
    cache = VectorCache(10_000_000)
    check_search(cache, rows, near(3), 5)
    rows.end(rows.sequences[:24])
    rows.erase()
    check_search(cache, rows, near(3), 5)
    assert rows.reads == 48 + 24
    assert {chunk for chunk, _ in cache.nearest(rows, near(3))(None, None)} == rows.chunks


@pytest.mark.parametrize("size", [60, 480])
def test_passages_that_left_memory_before_do_not_stand_for_erased_ones(size: int) -> None:
    rows = FakeRows(1)
    rows.add([number % 24 for number in range(size)])
    cache = VectorCache(10_000_000)
    for count in (size // 2, size // 4):
        check_search(cache, rows, near(3), 5)
        known = rows.commit
        rows.end(rows.sequences[:count])
    rows.erase(after=known)
    assert {chunk for chunk, _ in cache.nearest(rows, near(3))(None, None)} == rows.chunks


def test_an_older_snapshot_proposes_nothing_that_a_newer_one_would_not() -> None:
    rows, older = FakeRows(1), FakeRows(1)
    for one in (rows, older):
        one.add(list(range(24)))
    rows.add([3, 3])
    cache = VectorCache(10_000_000)
    newer = cache.nearest(rows, near(3))
    assert cache.nearest(older, near(3))(None, None) == newer(None, None) == rows.by_brute_force(near(3))


def test_threads_may_search_while_matrices_come_and_go() -> None:
    places = [FakeRows(place) for place in range(4)]
    for rows in places:
        rows.add([number % 24 for number in range(300)])
    expected = {rows.place: [rows.by_brute_force(near(topic), 5) for topic in range(24)] for rows in places}
    cache = VectorCache(300_000)
    wrong: list[int] = []

    def search(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            rows, topic = chance.choice(places), chance.randrange(24)
            if cache.nearest(rows, near(topic))(5, None) != expected[rows.place][topic]:
                wrong.append(topic)

    threads = [threading.Thread(target=search, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 0 < cache.held_bytes <= 300_000
    for rows in places:
        cache.evict(rows.namespace)
    assert cache.held_bytes == 0


def test_every_finite_half_becomes_the_same_number_in_single_precision() -> None:
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = numbers[np.isfinite(numbers)]
    read = unpack([finite.tobytes()], len(finite))[0]
    assert read.tobytes() == finite.astype(np.float32).tobytes()


def test_a_matrix_that_was_evicted_while_it_caught_up_is_not_counted() -> None:
    cache = VectorCache(10_000_000)

    class Evicting(FakeRows):
        def added(self, after: int, limit: int) -> Batch:
            cache.evict(self.namespace)
            return super().added(after, limit)

    rows = Evicting(1)
    rows.add(list(range(24)))
    assert cache.nearest(rows, near(3))(1, None) == rows.by_brute_force(near(3), 1)
    assert cache.held_bytes == 0
