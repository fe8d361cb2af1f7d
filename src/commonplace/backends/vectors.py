"""Vectors in memory, for any backend: the matrix of a namespace, a sketch of a large one, and a bounded cache of them.

A backend passes its stored vectors as `VectorRows`, read in one snapshot. Before each search the matrix catches up with
them: it reads the vectors that were added since, and from time to time it drops those of passages that ended. A matrix
holds nothing that is not stored, and it only proposes passages. The reader of their rows drops those that have ended.

Up to 20,000 passages every vector is scored. Above that, a sketch chooses the vectors to score (decision 008).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from commonplace.backends.ranking import Rank, Ranked

EXACT_ROWS = 20_000
RESCORED = 800
"""How many of the nearest by sketch are scored exactly, at least; more if more hits are wanted or rows are many."""
SAMPLED = 8
"""A sample of 1 score in this many shows where the best begin. Partitioning all scores takes longer than computing
them.
"""
ROWS_A_READ = 4_000
"""How many vectors are read at once, which needs 20 MB. With five times as many, 90 MB of the process stayed in use."""
STALE_ROWS = 1_000
STALE_SHARE = 10
"""Ended passages are dropped when there may be more than STALE_ROWS of them and more than 1 in STALE_SHARE."""
SAMPLE_ROWS = 4_000
ROUNDS = 3
SINGLE_THREAD = 400_000
"""BLAS spreads a product over threads from about 460,000 numbers on. On busy cores these threads wait for each other,
and 1 ms becomes 20. So products are computed in parts.
"""

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
"""Vectors as they are stored, a row each: half precision, which changes a cosine by less than 0.001."""
Integers = NDArray[np.int64]


def pack(vector: Floats) -> bytes:
    """A vector as bytes to store, in little-endian half precision."""
    return vector.astype("<f2").tobytes()


def halves(packed: Sequence[bytes], dimensions: int) -> Halves:
    """Stored vectors as the rows of a matrix."""
    return np.frombuffer(b"".join(packed), dtype="<f2").reshape(len(packed), dimensions)


def unpack(packed: Sequence[bytes], dimensions: int) -> Floats:
    return _floats(halves(packed, dimensions))


class Batch(NamedTuple):
    """Some stored vectors, with their sequence numbers and passages."""

    sequences: Sequence[int]
    chunks: Sequence[int]
    values: Halves


_NOTHING: tuple[Integers, Floats] = (np.empty(0, np.int64), np.empty(0, np.float32))


class VectorRows(Protocol):
    """The stored vectors of one namespace and model, as one snapshot shows them.

    Each vector has a sequence number that is given once. A snapshot that shows a number shows all lower ones, except
    those of passages that ended.
    """

    @property
    def place(self) -> tuple[Hashable, Hashable]:
        """The namespace and the model."""

    @property
    def dimensions(self) -> int: ...

    @property
    def commit(self) -> int:
        """The number of the namespace's last commit."""

    @property
    def chunks_ended(self) -> int:
        """How many passages of the namespace have ended, ever. A backend need not count those without a vector."""

    def added(self, after: int, limit: int) -> Batch:
        """The vectors of live passages with sequence numbers above `after`: the lowest `limit`, in order."""

    def ended(self, after: int) -> Sequence[int]:
        """The passages that ended with a commit above `after`; fewer than `chunks_ended` counts if some were erased."""

    def values(self, sequences: Sequence[int]) -> tuple[Sequence[int], Halves]:
        """The vectors with these sequence numbers, in this order, without those that are gone."""


class AllowedRows(Protocol):
    """The passages that may be found, as a backend remembers them."""

    def rows_of(self, chunks: Integers) -> NDArray[np.intp]:
        """The places of those among some passages."""


class Held(Protocol):
    """What a cache holds: a matrix, or whatever else a backend keeps of a namespace."""

    @property
    def held_bytes(self) -> int: ...


H = TypeVar("H", bound=Held)


class VectorCache:
    """The matrices of the namespaces searched last. When they take more than `max_bytes`, the least recent one goes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[tuple[Hashable, Hashable], Held] = OrderedDict()
        self._sizes: dict[tuple[Hashable, Hashable], int] = {}
        self._held_bytes = 0
        self._mutex = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """The size of all matrices."""
        return self._held_bytes

    @property
    def largest_bytes(self) -> int:
        """How much one namespace may take."""
        return self._max_bytes // 2

    def nearest(self, rows: VectorRows, query: Floats) -> Rank:
        """Catch up with the rows, and return a function that ranks their passages by similarity to the query."""
        return self.similarity(rows, query).rank

    def similarity(self, rows: VectorRows, query: Floats) -> Similarity:
        """Catch up with the rows, and compare their passages with the query."""
        matrix = self.hold(rows.place, lambda: Matrix(rows.dimensions, self.largest_bytes))
        with matrix.lock:
            matrix.catch_up(rows)
        self.account(rows.place, matrix)
        return Similarity(matrix, rows, query)

    def evict(self, namespace: Hashable) -> None:
        """Forget the vectors of a namespace, for example after a purge."""
        with self._mutex:
            for place in [known for known in self._held if known[0] == namespace]:
                del self._held[place]
                self._held_bytes -= self._sizes.pop(place, 0)

    def hold(self, place: tuple[Hashable, Hashable], make: Callable[[], H]) -> H:
        """What is held of a namespace under a name, and is now the most recent; made if there is nothing."""
        with self._mutex:
            found = self._held.get(place)
            if found is None:
                found = self._held[place] = make()
            self._held.move_to_end(place)
            return cast("H", found)

    def account(self, place: tuple[Hashable, Hashable], held: Held) -> None:
        """Note the size of what has changed, and let the least recent go if all of it is too large."""
        size = held.held_bytes
        with self._mutex:
            if self._held.get(place) is not held:  # evicted meanwhile
                return
            self._held_bytes += size - self._sizes.get(place, 0)
            self._sizes[place] = size
            while len(self._held) > 1 and self._held_bytes > self._max_bytes:
                oldest, _ = self._held.popitem(last=False)
                self._held_bytes -= self._sizes.pop(oldest, 0)


class Similarity:
    """The passages of a matrix compared with one query."""

    def __init__(self, matrix: Matrix, rows: VectorRows, query: Floats) -> None:
        self._matrix = matrix
        self._rows = rows
        self._query = query

    def rank(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        with self._matrix.lock:
            return self._matrix.search(self._query, keep, allowed, self._rows)

    def nearest(self, keep: int, allowed: AllowedRows | None) -> tuple[Integers, Floats]:
        """As `rank`, in arrays."""
        with self._matrix.lock:
            return self._matrix.nearest(self._query, keep, allowed, self._rows)

    def cosines(self, chunks: Sequence[int]) -> dict[int, float]:
        """The similarities of those among these passages that have a vector."""
        with self._matrix.lock:
            return self._matrix.cosines(self._query, chunks, self._rows)


class Matrix:
    """The vectors of one namespace by one model, in the order of their sequence numbers. Hold `lock` to use it.

    A large one has a sketch, and keeps its rows as they are stored while they take at most `most_bytes`: to read 800
    from the file takes 6 ms, from memory 0.2. Above that, the stored rows are read.
    """

    def __init__(self, dimensions: int, most_bytes: int) -> None:
        self.dimensions = dimensions
        self.lock = threading.Lock()
        self._most_bytes = most_bytes
        self._commit = 0
        self._chunks_ended = 0
        self._last_sequence = 0
        self._clear()

    def _clear(self) -> None:
        self._size = 0
        self._chunks: Integers = np.empty(0, np.int64)
        self._sequences: Integers = np.empty(0, np.int64)
        self._vectors: Floats = np.empty((0, self.dimensions), np.float32)
        self._sketch: Sketch | None = None
        self._stored: Halves | None = None
        self._by_chunk: tuple[Integers, NDArray[np.intp]] | None = None

    @property
    def held_bytes(self) -> int:
        parts = (self._chunks, self._sequences, self._vectors, self._stored)
        held = sum(part.nbytes for part in parts if part is not None)
        return held + (self._sketch.held_bytes if self._sketch is not None else 0)

    # Catching up

    def catch_up(self, rows: VectorRows) -> None:
        """Read what was added since the last time; drop what has ended, if that may be much."""
        if self._size == 0:
            self._start(rows)
        elif rows.chunks_ended - self._chunks_ended > max(STALE_ROWS, self._size // STALE_SHARE):
            self._drop_ended(rows)
        while True:
            batch = rows.added(self._last_sequence, ROWS_A_READ)
            if batch.sequences:
                self._extend(batch)
            if len(batch.sequences) < ROWS_A_READ:
                return

    def _start(self, rows: VectorRows) -> None:
        self._clear()
        self._commit, self._chunks_ended, self._last_sequence = rows.commit, rows.chunks_ended, 0

    def _drop_ended(self, rows: VectorRows) -> None:
        """From memory if the backend can name all of them; otherwise everything is read again."""
        ended = rows.ended(self._commit)
        is_complete = len(ended) >= rows.chunks_ended - self._chunks_ended
        if not is_complete or (self._sketch is not None and self._stored is None):
            self._start(rows)
            return
        kept = np.flatnonzero(~np.isin(self._chunks[: self._size], np.asarray(ended, np.int64)))
        self._chunks, self._sequences = self._chunks[kept], self._sequences[kept]
        if self._sketch is None:
            self._vectors = self._vectors[kept]
        else:
            self._sketch.keep(kept)
        if self._stored is not None:
            self._stored = self._stored[kept]
        self._size = len(kept)
        self._by_chunk = None
        self._commit, self._chunks_ended = rows.commit, rows.chunks_ended

    def _extend(self, batch: Batch) -> None:
        stored, size = batch.values, self._size
        total = size + len(stored)
        self._chunks = grown(self._chunks, size, np.asarray(batch.chunks, np.int64))
        self._sequences = grown(self._sequences, size, np.asarray(batch.sequences, np.int64))
        if self._sketch is None and total > EXACT_ROWS:
            self._begin_sketch(stored)
        if self._sketch is None:
            self._vectors = grown(self._vectors, size, _floats(stored))
        else:
            self._sketch.extend(_floats(stored))
            if total * stored.itemsize * self.dimensions > self._most_bytes:
                self._stored = None
            elif self._stored is not None:
                self._stored = grown(self._stored, size, stored)
        self._size = total
        self._by_chunk = None
        self._last_sequence = int(batch.sequences[-1])

    def _begin_sketch(self, added: Halves) -> None:
        known = self._vectors[: self._size]
        self._sketch = Sketch(np.concatenate([known, _floats(added)]))
        self._sketch.extend(known)
        self._stored = known.astype(np.float16)  # they were half precision before, so nothing is lost
        self._vectors = np.empty((0, self.dimensions), np.float32)

    # Searching

    def search(self, query: Floats, keep: int | None, allowed: Sequence[int] | None, rows: VectorRows) -> Ranked:
        """Passages with their cosines, best first: the best `keep`, or all; only `allowed` ones if given."""
        chunks, scores = self.nearest(query, keep, None if allowed is None else _Listed(allowed), rows)
        return list(zip(chunks.tolist(), scores.tolist(), strict=True))

    def nearest(
        self, query: Floats, keep: int | None, allowed: AllowedRows | None, rows: VectorRows
    ) -> tuple[Integers, Floats]:
        """The same in arrays. Of equal passages the newest come first, and are the ones that are kept."""
        found = np.arange(self._size) if allowed is None else allowed.rows_of(self._chunks[: self._size])
        wanted = len(found) if keep is None else min(keep, len(found))
        if not wanted:
            return _NOTHING
        if self._sketch is None:
            vectors = self._vectors[: self._size] if allowed is None else self._vectors[found]
        else:
            count = max(RESCORED, 8 * wanted, self._size // 200)
            if count < len(found):
                rough = self._sketch.scores(query)
                found = found[_highest(rough if allowed is None else rough[found], count)]
            found, vectors = self._read(found, rows)
            wanted = min(wanted, len(found))
            if not wanted:
                return _NOTHING
        scores = _cosines(vectors, query)
        best = _at_least(scores, 2 * wanted)
        if len(best) < wanted:
            best = np.arange(len(scores))
        chunks, scores = self._chunks[found[best]], scores[best]
        order = np.lexsort((-chunks, -scores))[:wanted]  # NaN is sorted last
        return chunks[order], scores[order]

    def cosines(self, query: Floats, chunks: Sequence[int], rows: VectorRows) -> dict[int, float]:
        """The similarities of those among these passages that have a vector."""
        if not self._size or not chunks:
            return {}
        if self._by_chunk is None:
            order = np.argsort(self._chunks[: self._size], kind="stable")
            self._by_chunk = self._chunks[order], order
        known, order = self._by_chunk
        wanted = np.asarray(chunks, np.int64)
        places = np.minimum(known.searchsorted(wanted, side="right") - 1, self._size - 1)  # the newest of a passage
        found = order[places[known[places] == wanted]]
        if self._sketch is None:
            vectors = self._vectors[found]
        else:
            found, vectors = self._read(found, rows)
        return dict(zip(self._chunks[found].tolist(), _cosines(vectors, query).tolist(), strict=True))

    def _read(self, found: NDArray[np.intp], rows: VectorRows) -> tuple[NDArray[np.intp], Floats]:
        """Vectors by their places in the matrix, from memory or as they are stored; without those that are gone."""
        if self._stored is not None:
            return found, _floats(self._stored.take(found, axis=0))  # by an index it takes half as long again
        sequences, stored = rows.values(self._sequences[found].tolist())
        if len(sequences) < len(found):
            found = found[np.isin(self._sequences[found], sequences)]
        return found, _floats(stored)


class _Listed:
    """Passages that may be found, given by their ids."""

    def __init__(self, chunks: Sequence[int]) -> None:
        self._allowed: Integers = np.asarray(chunks, np.int64)

    def rows_of(self, chunks: Integers) -> NDArray[np.intp]:
        return np.flatnonzero(np.isin(chunks, self._allowed))


class Sketch:
    """Rough scores of many vectors, quickly: they decide which vectors are worth an exact score.

    Vectors of texts share a few directions in which they differ most. A sketch keeps a vector's share in the leading
    eighth of these as numbers, and of the rest its length and the sign of each dimension: 250 bytes, when a row of 384
    halves has 768. The directions are learnt from a sample.
    """

    def __init__(self, sample: Floats) -> None:
        dimensions = sample.shape[1]
        self._basis = _leading(sample, max(1, dimensions // 8))
        # A row for each direction: so the products with a query read whole rows, which takes two thirds of the time.
        self._leads: Floats = np.empty((self._basis.shape[1], 0), np.float32)
        self._lengths: Floats = np.empty(0, np.float32)
        self._signs: list[NDArray[np.uint64]] = [np.empty(0, np.uint64) for _ in range(-(-dimensions // 64))]
        self._size = 0
        # For random directions, the share of differing signs is the angle as a share of 180 degrees.
        self._cosines: Floats = np.cos(np.pi / dimensions * np.arange(dimensions + 1)).astype(np.float32)

    @property
    def held_bytes(self) -> int:
        return self._leads.nbytes + self._lengths.nbytes + sum(words.nbytes for words in self._signs)

    def extend(self, vectors: Floats) -> None:
        leads, rest = self._divide(vectors)
        self._leads = _widened(self._leads, self._size, leads.T)
        self._lengths = grown(self._lengths, self._size, np.sqrt(np.vecdot(rest, rest)))
        signs = zip(self._signs, _signs_of(rest), strict=True)
        self._signs = [grown(words, self._size, more) for words, more in signs]
        self._size += len(vectors)

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Only these rows, in this order."""
        self._leads, self._lengths = self._leads[:, rows], self._lengths[rows]
        self._signs = [words[rows] for words in self._signs]
        self._size = len(rows)

    def scores(self, query: Floats) -> Floats:
        """About the cosine of each row with the query."""
        lead, rest = self._divide(query[np.newaxis])
        differ = np.zeros(self._size, np.uint16)
        for words, word in zip(self._signs, _signs_of(rest), strict=True):
            differ += np.bitwise_count(words[: self._size] ^ word[0])
        scores = self._cosines.take(differ)
        scores *= self._lengths[: self._size]
        scores *= np.linalg.norm(rest)
        scores += _products(self._leads[:, : self._size], lead[0])
        return scores

    def _divide(self, vectors: Floats) -> tuple[Floats, Floats]:
        leads: Floats = vectors @ self._basis
        rest: Floats = vectors - leads @ self._basis.T
        return leads, rest


def _leading(sample: Floats, count: int) -> Floats:
    """An orthonormal basis of the directions in which the sample is longest, by subspace iteration."""
    some = sample[:: max(1, len(sample) // SAMPLE_ROWS)]
    basis: Floats = np.random.default_rng(1).standard_normal((sample.shape[1], count), np.float32)
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(some.T @ (some @ basis))
    return basis


def _signs_of(vectors: Floats) -> list[NDArray[np.uint64]]:
    """The signs of the vectors as bits: an array for each 64 dimensions, with a number for each vector."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(vectors), -(-vectors.shape[1] // 64) * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return [np.ascontiguousarray(words) for words in padded.view(np.uint64).T]


def _products(columns: Floats, vector: Floats) -> Floats:
    """The vector times each column, in one thread."""
    made: Floats = np.empty(columns.shape[1], np.float32)
    step = max(1, SINGLE_THREAD // len(vector))
    for start in range(0, len(made), step):
        np.matmul(vector, columns[:, start : start + step], out=made[start : start + step])
    return made


def _cosines(vectors: Floats, query: Floats) -> Floats:
    # Not `vectors @ query`: BLAS spreads that over threads that wait for each other in a loop. On two busy cores that
    # took 20 ms for 1,500 rows, and this takes 0.04; on one idle core this is as quick.
    scores: Floats = np.vecdot(vectors, query)
    return scores


def _highest(scores: Floats, count: int) -> NDArray[np.intp]:
    """About `count` places of the highest scores, in order; neighbours are likely stored together."""
    chosen = _at_least(scores, count)
    if count // 2 <= len(chosen) <= 2 * count:
        return chosen
    # The sample was misleading: equal texts are ties, and there may be any number of them.
    return np.sort(np.argpartition(-scores, count - 1)[:count])


def _at_least(scores: Floats, count: int) -> NDArray[np.intp]:
    """The places of all scores that are not below a sample's; likely about `count`, but it may be any number."""
    sample = scores[::SAMPLED]
    place = max(0, len(sample) - max(1, count // SAMPLED))
    return np.flatnonzero(scores >= np.partition(sample, place)[place])


def grown(array: NDArray[Any], size: int, added: NDArray[Any]) -> NDArray[Any]:
    """The array with rows added after `size`; it doubles when it is full."""
    needed = size + len(added)
    if needed > len(array):
        larger = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
        larger[:size] = array[:size]
        array = larger
    array[size:needed] = added
    return array


def _widened(array: Floats, size: int, added: Floats) -> Floats:
    """The same with columns."""
    needed = size + added.shape[1]
    if needed > array.shape[1]:
        larger = np.empty((len(array), max(needed, 2 * array.shape[1])), array.dtype)
        larger[:, :size] = array[:, :size]
        array = larger
    array[:, size:needed] = added
    return array


def _floats(stored: Halves) -> Floats:
    """Exactly `stored.astype(float32)` of finite numbers, which NumPy does one by one and five times as slowly."""
    bits = stored.view(np.int16).astype(np.int32)
    bits <<= 13  # the sign is spread over the four highest bits, the exponent begins below them
    bits &= np.int32(-0x70000001)
    floats: Floats = bits.view(np.float32)
    floats *= np.float32(2.0**112)  # the difference of the exponents' offsets, 127 - 15
    return floats
