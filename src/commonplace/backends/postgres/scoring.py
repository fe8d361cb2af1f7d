"""Scores of all passages of a namespace at once, as arrays: BM25 over posting lists, and how near the vectors are.

The sums are those of `backends.ranking.score`, added in the same order; a test compares them. Lists of thousands of
postings, which PostgreSQL sends as arrays, take a third of the time so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.backends.ranking import Counts, Ranked
from commonplace.language import bm25
from commonplace.language.passages import LENGTH_STEPS, LEVEL_FREQUENCY, STEP_LENGTH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float64]

LEVELS = 4
"""A posting with its frequency level is `posting * LEVELS + level`."""

_ARRAY_HEAD = 20
"""The bytes before the members of an array of one dimension, as PostgreSQL sends it; a length stands before each."""


def numbers_of(sent: bytes | None) -> Numbers:
    import numpy as np

    return _members(sent, ">i8").astype(np.int64)


def floats_of(sent: bytes | None) -> Floats:
    import numpy as np

    return _members(sent, ">f8").astype(np.float64)


def _members(sent: bytes | None, kind: str) -> NDArray[Any]:
    import numpy as np

    if sent is None:
        return np.empty(0, dtype=kind)
    found: NDArray[Any] = np.frombuffer(sent, dtype=[("length", ">i4"), ("member", kind)], offset=_ARRAY_HEAD)
    return found["member"]


class Ranking:
    """Passages of a namespace with their shares, in the order of their numbers."""

    def __init__(self, chunks: Numbers, shares: Floats) -> None:
        if (chunks[1:] < chunks[:-1]).any():
            order = chunks.argsort(kind="stable")
            chunks, shares = chunks[order], shares[order]
        self._chunks = chunks
        self._shares = shares
        self._kept = 0
        self._best: Ranked = ()

    def rank(self, keep: int | None, allowed: Sequence[int] | None = None) -> Ranked:
        """The best `keep` of them, or all, and where given only of those allowed; of equal ones the newest first."""
        if keep is None or allowed is not None:
            return self._rank(keep, allowed)
        if keep > self._kept:  # who has looked at some most likely looks at some more
            self._kept = 3 * keep
            self._best = self._rank(self._kept, None)
        return self._best[:keep]

    def _rank(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        import numpy as np

        chunks, shares = self._chunks, self._shares
        if allowed is not None:
            chosen = np.isin(chunks, np.asarray(allowed, dtype=np.int64))
            chunks, shares = chunks[chosen], shares[chosen]
        if keep is not None and len(chunks) > 2 * keep:
            least = np.partition(shares, len(shares) - keep)[len(shares) - keep]
            chosen = shares >= least
            chunks, shares = chunks[chosen], shares[chosen]
        order = np.lexsort((chunks, shares))[::-1][:keep]
        return list(zip(chunks[order].tolist(), shares[order].tolist(), strict=True))

    def shares(self, chunks: Sequence[int]) -> dict[int, float]:
        """The shares of those among these passages that have any."""
        import numpy as np

        if not len(self._chunks):
            return {}
        wanted = np.asarray(chunks, dtype=np.int64)
        places = np.minimum(self._chunks.searchsorted(wanted), len(self._chunks) - 1)
        are_there = self._chunks[places] == wanted
        return dict(zip(wanted[are_there].tolist(), self._shares[places[are_there]].tolist(), strict=True))


def by_words(counts: Counts, terms: Iterable[tuple[float, Numbers]]) -> Ranking:
    """The BM25 scores of all passages that hold any of the terms, as shares of the ceiling."""
    import numpy as np

    tables = [(len(found), weight * bm25.idf(counts.passages, len(found)), found) for weight, found in terms]
    ceiling = bm25.ceiling((1.0, idf) for _, idf, _ in tables)
    tables = sorted((table for table in tables if table[0]), key=lambda table: table[0])
    if ceiling <= 0 or not tables:
        return Ranking(np.empty(0, dtype=np.int64), np.empty(0))
    average = counts.total_length / max(1, counts.passages)
    relative = np.asarray(STEP_LENGTH) / average if average > 0 else np.ones(LENGTH_STEPS)
    normals = bm25.K1 * (1.0 - bm25.B + bm25.B * relative)
    marked = np.concatenate([found for _, _, found in tables])
    rows, levels = marked // LEVELS, marked % LEVELS
    frequency = np.array([LEVEL_FREQUENCY.get(level, 0.0) for level in range(LEVELS)])[levels]
    idfs = np.repeat([idf for _, idf, _ in tables], [count for count, _, _ in tables])
    parts = idfs * frequency / (frequency + normals[rows % LENGTH_STEPS])
    # As np.unique does it, but stable: lists come nearly in order, and sorting them takes a tenth of the time then.
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    places = np.empty_like(order)
    places[order] = np.cumsum(is_first) - 1
    shares = np.minimum(1.0, np.bincount(places, weights=parts) / ceiling)
    return Ranking(ordered[is_first] // LENGTH_STEPS, shares)
