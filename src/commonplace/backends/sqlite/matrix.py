"""A namespace's vectors in memory: exact up to 20,000 passages; above, one-bit codes whose best are scored exactly.

One matrix belongs to one namespace and model. It is caught up from the rows before each search and holds nothing that
the rows do not; passages that ended meanwhile are dropped by whoever reads the rows of the hits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT_ROWS = 20_000
RESCORED = 400
"""How many of the nearest codes are scored exactly, at least; more where more hits are wanted or rows are many."""

Floats = NDArray[np.float32]
Fetch = Callable[[Sequence[int]], Sequence[tuple[int, bytes]]]
"""Reads stored vectors by their sequence numbers, in that order; those that are gone are left out."""


def pack(vector: Floats) -> bytes:
    """A vector as it is stored: half precision, which changes a cosine by less than 0.001."""
    return vector.astype("<f2").tobytes()


def unpack(blobs: Sequence[bytes], dimensions: int) -> Floats:
    joined = np.frombuffer(b"".join(blobs), dtype="<f2").reshape(len(blobs), dimensions)
    return joined.astype(np.float32)


class Matrix:
    """Vectors by row number; `chunks` and `sequences` say what each row is."""

    def __init__(self, dimensions: int, chunks_ended: int) -> None:
        self.dimensions = dimensions
        self.chunks_ended = chunks_ended
        self.size = 0
        self.chunks: NDArray[np.int64] = np.empty(0, np.int64)
        self.sequences: NDArray[np.int64] = np.empty(0, np.int64)
        self._vectors: Floats | None = np.empty((0, dimensions), np.float32)
        self._codes: list[NDArray[np.uint64]] = []

    @property
    def last_sequence(self) -> int:
        return int(self.sequences[self.size - 1]) if self.size else 0

    @property
    def held_bytes(self) -> int:
        vectors = sum(words.nbytes for words in self._codes) if self._vectors is None else self._vectors.nbytes
        return vectors + self.chunks.nbytes + self.sequences.nbytes

    def extend(self, sequences: Sequence[int], chunks: Sequence[int], blobs: Sequence[bytes]) -> None:
        vectors = unpack(blobs, self.dimensions)
        total = self.size + len(blobs)
        self.chunks = _grown(self.chunks, self.size, np.asarray(chunks, np.int64))
        self.sequences = _grown(self.sequences, self.size, np.asarray(sequences, np.int64))
        if self._vectors is not None and total > EXACT_ROWS:
            self._codes = _codes(self._vectors[: self.size])
            self._vectors = None
        if self._vectors is None:
            added = _codes(vectors)
            self._codes = [_grown(words, self.size, more) for words, more in zip(self._codes, added, strict=True)]
        else:
            self._vectors = _grown(self._vectors, self.size, vectors)
        self.size = total

    def search(
        self, query: Floats, keep: int | None, allowed: NDArray[np.int64] | None, fetch: Fetch
    ) -> list[tuple[int, float]]:
        """Chunks with their cosines, best first: the best `keep`, or all; only `allowed` ones where given."""
        rows = np.arange(self.size)
        if allowed is not None:
            rows = rows[np.isin(self.chunks[: self.size], allowed)]
        wanted = len(rows) if keep is None else min(keep, len(rows))
        if not wanted:
            return []
        if self._vectors is not None:
            vectors = self._vectors[: self.size] if allowed is None else self._vectors[rows]
            scores = _cosines(vectors, query)
        else:
            rows = self._nearest_codes(query, rows, max(RESCORED, 2 * wanted, self.size // 400))
            stored = fetch(self.sequences[rows].tolist())
            if len(stored) < len(rows):
                rows = rows[np.isin(self.sequences[rows], [sequence for sequence, _ in stored])]
            wanted = min(wanted, len(rows))
            if not wanted:
                return []
            scores = _cosines(unpack([value for _, value in stored], self.dimensions), query)
        best = np.argpartition(-scores, wanted - 1)[:wanted]
        best = best[np.lexsort((-self.chunks[rows[best]], -scores[best]))]
        return list(zip(self.chunks[rows[best]].tolist(), scores[best].tolist(), strict=True))

    def _nearest_codes(self, query: Floats, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
        if count >= len(rows):
            return rows
        distances = np.zeros(len(rows), np.uint16)
        is_all = len(rows) == self.size
        for words, word in zip(self._codes, _codes(query[np.newaxis]), strict=True):
            distances += np.bitwise_count((words[: self.size] if is_all else words[rows]) ^ word[0])
        # Distances are few whole numbers: counting them is quicker than a partition and keeps the rows in their order,
        # in which neighbours are on one page of the file. Equal texts are ties, and there may be any number of them.
        furthest = np.searchsorted(np.cumsum(np.bincount(distances)), count)
        chosen = np.flatnonzero(distances <= furthest)
        if len(chosen) > 2 * count:
            chosen = np.sort(np.argpartition(distances, count - 1)[:count])
        return rows[chosen]


def _cosines(vectors: Floats, query: Floats) -> Floats:
    # Not `vectors @ query`: BLAS spreads that over threads that wait for each other in a loop. On two busy cores that
    # took 20 ms for 1,500 rows where this takes 0.04, and on one idle core this is as quick.
    scores: Floats = np.vecdot(vectors, query)
    return scores


def _codes(vectors: Floats) -> list[NDArray[np.uint64]]:
    """The signs of the vectors as bits: an array for each 64 dimensions, with a number for each vector."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(vectors), -(-vectors.shape[1] // 64) * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return [np.ascontiguousarray(words) for words in padded.view(np.uint64).T]


def _grown(array: NDArray[Any], size: int, added: NDArray[Any]) -> NDArray[Any]:
    """The array with rows added after `size`, given room by doubling."""
    needed = size + len(added)
    if needed > len(array):
        larger = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
        larger[:size] = array[:size]
        array = larger
    array[size:needed] = added
    return array
