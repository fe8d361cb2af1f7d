"""A namespace's vectors in memory: up to 20,000 passages each is scored; above, those that a sketch finds near.

One matrix belongs to one namespace and model. It is caught up from the rows before each search and holds nothing that
the rows do not; passages that ended meanwhile are dropped by whoever reads the rows of the hits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from commonplace.backends.sqlite.sketch import Sketch, grown

EXACT_ROWS = 20_000
RESCORED = 800
"""How many of the nearest by sketch are scored exactly, at least; more where more hits are wanted or rows are many."""
SAMPLED = 8
"""One score in so many tells where the best begin; a partition of all takes longer than all the scores."""

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Fetch = Callable[[Sequence[int]], Sequence[tuple[int, bytes]]]
"""Reads stored vectors by their sequence numbers, in that order; those that are gone are left out."""


def pack(vector: Floats) -> bytes:
    """A vector as it is stored: half precision, which changes a cosine by less than 0.001."""
    return vector.astype("<f2").tobytes()


def unpack(blobs: Sequence[bytes], dimensions: int) -> Floats:
    return _floats(_halves(blobs, dimensions))


class Matrix:
    """Vectors by row number; `chunks` and `sequences` say what each row is.

    A large one keeps its rows as they are stored while they take at most `most_bytes`: reading 800 from the file takes
    6 ms, from memory 0.2. Above, the file is read.
    """

    def __init__(self, dimensions: int, chunks_ended: int, most_bytes: int) -> None:
        self.dimensions = dimensions
        self.chunks_ended = chunks_ended
        self.size = 0
        self.chunks: NDArray[np.int64] = np.empty(0, np.int64)
        self.sequences: NDArray[np.int64] = np.empty(0, np.int64)
        self._most_bytes = most_bytes
        self._vectors: Floats = np.empty((0, dimensions), np.float32)
        self._sketch: Sketch | None = None
        self._stored: Halves | None = None

    @property
    def last_sequence(self) -> int:
        return int(self.sequences[self.size - 1]) if self.size else 0

    @property
    def held_bytes(self) -> int:
        parts = (self.chunks, self.sequences, self._vectors, self._stored)
        held = sum(part.nbytes for part in parts if part is not None)
        return held + (self._sketch.held_bytes if self._sketch is not None else 0)

    def extend(self, sequences: Sequence[int], chunks: Sequence[int], blobs: Sequence[bytes]) -> None:
        stored = _halves(blobs, self.dimensions)
        total = self.size + len(blobs)
        self.chunks = grown(self.chunks, self.size, np.asarray(chunks, np.int64))
        self.sequences = grown(self.sequences, self.size, np.asarray(sequences, np.int64))
        if self._sketch is None and total > EXACT_ROWS:
            self._begin_sketch(stored)
        if self._sketch is None:
            self._vectors = grown(self._vectors, self.size, _floats(stored))
        else:
            self._sketch.extend(_floats(stored))
            if total * stored.itemsize * self.dimensions > self._most_bytes:
                self._stored = None
            elif self._stored is not None:
                self._stored = grown(self._stored, self.size, stored)
        self.size = total

    def _begin_sketch(self, added: Halves) -> None:
        known = self._vectors[: self.size]
        self._sketch = Sketch(np.concatenate([known, _floats(added)]))
        self._sketch.extend(known)
        self._stored = known.astype(np.float16)  # they came from halves: nothing is lost
        self._vectors = np.empty((0, self.dimensions), np.float32)

    def search(
        self, query: Floats, keep: int | None, allowed: NDArray[np.int64] | None, fetch: Fetch
    ) -> list[tuple[int, float]]:
        """Chunks with their cosines, best first: the best `keep`, or all; only `allowed` ones where given.

        Of equal ones the newest come first, and are the ones that are kept.
        """
        rows = np.arange(self.size)
        if allowed is not None:
            rows = rows[np.isin(self.chunks[: self.size], allowed)]
        wanted = len(rows) if keep is None else min(keep, len(rows))
        if not wanted:
            return []
        if self._sketch is None:
            vectors = self._vectors[: self.size] if allowed is None else self._vectors[rows]
        else:
            count = max(RESCORED, 8 * wanted, self.size // 200)
            if count < len(rows):
                scores = self._sketch.scores(query)
                rows = rows[_highest(scores if allowed is None else scores[rows], count)]
            rows, vectors = self._read(rows, fetch)
            wanted = min(wanted, len(rows))
            if not wanted:
                return []
        scores = _cosines(vectors, query)
        last = np.partition(-scores, wanted - 1)[wanted - 1]
        best = np.flatnonzero(~(-scores > last))  # NaN, which is above nothing, is sorted behind all and cut off
        best = best[np.lexsort((-self.chunks[rows[best]], -scores[best]))[:wanted]]
        return list(zip(self.chunks[rows[best]].tolist(), scores[best].tolist(), strict=True))

    def _read(self, rows: NDArray[np.intp], fetch: Fetch) -> tuple[NDArray[np.intp], Floats]:
        """These rows as they are stored, from memory or from the file; those that are gone from it are left out."""
        if self._stored is not None:
            return rows, _floats(self._stored[rows])
        found = fetch(self.sequences[rows].tolist())
        if len(found) < len(rows):
            rows = rows[np.isin(self.sequences[rows], [sequence for sequence, _ in found])]
        return rows, unpack([value for _, value in found], self.dimensions)


def _highest(scores: Floats, count: int) -> NDArray[np.intp]:
    """About `count` places of the highest scores, in their order, in which neighbours are on one page of the file."""
    sample = scores[::SAMPLED]
    place = max(0, len(sample) - max(1, count // SAMPLED))
    chosen: NDArray[np.intp] = np.flatnonzero(scores >= np.partition(sample, place)[place])
    if count // 2 <= len(chosen) <= 2 * count:
        return chosen
    # The sample misled: equal texts are ties, and there may be any number of them.
    return np.sort(np.argpartition(-scores, count - 1)[:count])


def _cosines(vectors: Floats, query: Floats) -> Floats:
    # Not `vectors @ query`: BLAS spreads that over threads that wait for each other in a loop. On two busy cores that
    # took 20 ms for 1,500 rows where this takes 0.04, and on one idle core this is as quick.
    scores: Floats = np.vecdot(vectors, query)
    return scores


def _halves(blobs: Sequence[bytes], dimensions: int) -> Halves:
    return np.frombuffer(b"".join(blobs), dtype="<f2").reshape(len(blobs), dimensions)


def _floats(halves: Halves) -> Floats:
    """Exactly `halves.astype(float32)` of finite numbers, which NumPy does one by one and five times as slowly."""
    bits = halves.view(np.int16).astype(np.int32)
    bits <<= 13  # the sign is spread over the four highest bits, the exponent begins below them
    bits &= np.int32(-0x70000001)
    floats: Floats = bits.view(np.float32)
    floats *= np.float32(2.0**112)  # what the exponents' offsets differ by, 127 - 15
    return floats
