"""Ranking on every backend: BM25 over posting lists, and the best entries that pass a filter.

A posting is `passage id * LENGTH_STEPS + length step`, so a score needs no row. Posting lists are scored as Python
lists, which stops early at common words, or as arrays, which scores all passages at once. Both add the same gains in
the same order, and a test compares them. SQLite sends lists as JSON and PostgreSQL as arrays. For 2,500 postings that
arrived as an array, scoring the array takes 0.07 ms and a list 0.2. A search by words alone on SQLite scores lists, so
that it needs no NumPy, which takes a tenth of a second to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import nlargest
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from commonplace.filters import Filter
from commonplace.language import fusion
from commonplace.language.passages import LENGTH_STEPS, LEVEL_FREQUENCY, STEP_LENGTH, frequency_level, length_step
from commonplace.store import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

T = TypeVar("T")
Ranked = Sequence[tuple[int, float]]
Rank = Callable[[int | None, Sequence[int] | None], Ranked]
"""Ranks chunks: at least this many of the best (None: all), optionally only among some."""

Select = Callable[[Sequence[int]], Mapping[int, tuple[int, int, int]]]
"""Of some chunks, those whose entry is live and passes the filter: entry id, start and stop."""

LEVELS = 4
"""A posting with its frequency level is `posting * LEVELS + level`."""

HASH_BYTES = 8
WIDEST = 16
"""If fewer than 1 in this many of the wanted entries were found, those that pass the filter are read instead."""

SORTED_WHOLE = 8
SPARE = 30
"""First, twice as many passages as entries are ranked, plus this many: some belong to the same entry, some do not pass.

Ranking again costs as much as the first time, and half of the ranked passages may be of another kind.
"""

FILTERED = 3
"""How many times as many are ranked first with a filter."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What BM25 needs to know about a namespace."""

    namespace_id: int
    passages: int
    total_length: int

    @property
    def average_length(self) -> float:
        return self.total_length / max(1, self.passages)


@dataclass(frozen=True, slots=True)
class Page:
    """How many entries are wanted, the filter, and the time. `also` names entries to score in any case."""

    filter: Filter
    limit: int
    now: int | None
    """None: the database's own time."""
    also: Sequence[int] = ()


class Located(NamedTuple):
    """A passage, the entry that it belongs to, and where it is in the text."""

    chunk: int
    entry_id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Postings:
    """A term of the query: its weight, and for each frequency the passages that have it that often."""

    weight: float
    levels: Sequence[tuple[float, Sequence[int]]]


def posting(chunk_id: int, length: int) -> int:
    return chunk_id * LENGTH_STEPS + length_step(length)


def chunk_of(number: int) -> int:
    return number // LENGTH_STEPS


@lru_cache(maxsize=50_000)
def term_hash(term: str) -> int:
    """62 bits of a hash; the two lowest bits are 0 and leave room for a frequency level."""
    from hashlib import sha256  # loads OpenSSL, which a book on SQLite does not need

    return int.from_bytes(sha256(term.encode()).digest()[:HASH_BYTES], "big") & ~(LEVELS - 1)


def packed_terms(terms: Mapping[str, int]) -> bytes:
    """The terms of a passage with how often each occurs, as bytes to store: 8 a term."""
    return b"".join(
        (term_hash(term) | frequency_level(count)).to_bytes(HASH_BYTES, "big") for term, count in terms.items()
    )


# BM25


def _weighed(counts: Counts, terms: Iterable[tuple[float, int, T]]) -> tuple[list[tuple[int, float, T]], float]:
    """The terms that any passage contains, with their idfs, rarest first; and the highest possible score.

    A term is given as its weight, the number of passages that contain it, and its lists.
    """
    known = [
        (containing, weight * fusion.idf(counts.passages, containing), found) for weight, containing, found in terms
    ]
    ceiling = fusion.ceiling(idf for _, idf, _ in known)
    return sorted((term for term in known if term[0]), key=lambda term: term[0]), ceiling


@lru_cache(maxsize=1_024)
def _norms(average_length: float) -> tuple[float, ...]:
    """By length step."""
    return tuple(fusion.norm(length, average_length) for length in STEP_LENGTH)


def score(
    counts: Counts, postings: Iterable[Postings], keep: int | None, known: Sequence[int] = ()
) -> tuple[list[tuple[int, float]], dict[int, float]]:
    """Chunks with their scores as a share of the ceiling, best first: the best `keep`, or all.

    Rare terms come first. Once the terms that remain cannot lift a new passage among the best `keep`, their lists only
    add to the passages already found; so a common word costs little. The postings in `known` are scored in any case.
    """
    tables, ceiling = _weighed(
        counts, ((term.weight, sum(len(rows) for _, rows in term.levels), term.levels) for term in postings)
    )
    if ceiling <= 0:
        return [], {}
    norms = _norms(counts.average_length)
    found = dict.fromkeys(known, 0.0)
    found_score = found.get
    bound = ceiling
    is_open = True
    for _, idf, levels in tables:
        # No score is above what the terms so far can give, so check only when that is more than the rest can give.
        if is_open and keep is not None and len(found) >= keep and ceiling - bound > bound:
            is_open = _least_of_best(keep, found) < bound
        bound -= idf
        for frequency, rows in levels:
            chosen = rows if is_open else found.keys() & rows
            if len(rows) < LENGTH_STEPS:
                for row in chosen:
                    found[row] = found_score(row, 0.0) + fusion.gain(idf, frequency, norms[row % LENGTH_STEPS])
            else:  # a common word occurs in thousands of rows
                gains = list(map(fusion.gain, repeat(idf), repeat(frequency), norms))
                for row in chosen:
                    found[row] = found_score(row, 0.0) + gains[row % LENGTH_STEPS]
    floor = _least_of_best(keep, found) if keep is not None and len(found) > keep else 0.0
    ranked = sorted([(score, row) for row, score in found.items() if score and score >= floor], reverse=True)[:keep]
    shares = [(chunk_of(row), min(1.0, score / ceiling)) for score, row in ranked]
    return shares, {chunk_of(row): min(1.0, found[row] / ceiling) for row in known if found[row]}


def _least_of_best(keep: int, found: Mapping[int, float]) -> float:
    """The score at rank `keep`. For short lists, sorting is several times as fast as a heap."""
    if len(found) < SORTED_WHOLE * keep:
        return sorted(found.values(), reverse=True)[keep - 1]
    return nlargest(keep, found.values())[-1]


def score_arrays(counts: Counts, terms: Iterable[tuple[float, Integers, Integers]]) -> Ranking:
    """The same for all passages that hold any of the terms. A term is its weight, its postings, and their levels."""
    import numpy as np

    tables, ceiling = _weighed(counts, ((weight, len(rows), (rows, levels)) for weight, rows, levels in terms))
    if ceiling <= 0 or not tables:
        return Ranking(np.empty(0, dtype=np.int64), np.empty(0))
    rows = np.concatenate([rows for _, _, (rows, _) in tables])
    levels = np.concatenate([levels for _, _, (_, levels) in tables])
    frequency = np.array([LEVEL_FREQUENCY.get(level, 0.0) for level in range(LEVELS)])[levels]
    idfs = np.repeat([idf for _, idf, _ in tables], [count for count, _, _ in tables])
    gains = fusion.gain(idfs, frequency, np.array(_norms(counts.average_length))[rows % LENGTH_STEPS])
    # Like np.unique, but with a stable sort, which takes a tenth of the time because the lists are nearly sorted.
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    places = np.empty_like(order)
    places[order] = np.cumsum(is_first) - 1
    shares = np.minimum(1.0, np.bincount(places, weights=gains) / ceiling)
    return Ranking(ordered[is_first] // LENGTH_STEPS, shares)


def score_places(counts: Counts, terms: Iterable[tuple[float, NDArray[Any], NDArray[Any]]], scores: Floats) -> Ranking:
    """The same for passages that are numbered from 0, by their numbers.

    A term is given by its weight, the numbers of its passages, and for each `level * LENGTH_STEPS + length step`.
    `scores` has a zero for each passage, and has it again afterwards: to get a new array of 100,000 from the system
    takes as long as the rest.
    """
    import numpy as np

    tables, ceiling = _weighed(counts, ((weight, len(places), (places, codes)) for weight, places, codes in terms))
    if ceiling <= 0 or not tables:
        return Ranking(np.empty(0, dtype=np.int64), np.empty(0))
    idfs = np.array([idf for _, idf, _ in tables])[:, np.newaxis, np.newaxis]
    frequencies = np.array([LEVEL_FREQUENCY.get(level, 0.0) for level in range(LEVELS)])[:, np.newaxis]
    all_gains = fusion.gain(idfs, frequencies, np.array(_norms(counts.average_length))).reshape(len(tables), -1)
    for gains, (_, _, (places, codes)) in zip(all_gains, tables, strict=True):
        scores[places] += gains[codes]
    scored = np.flatnonzero(scores != 0.0)  # of booleans it takes a fifth of the time
    found = Ranking(scored, np.minimum(1.0, scores[scored] / ceiling))
    scores[scored] = 0.0
    return found


class Ranking:
    """Passages of a namespace with their shares, as arrays."""

    def __init__(self, chunks: Integers, shares: Floats) -> None:
        if (chunks[1:] < chunks[:-1]).any():
            order = chunks.argsort(kind="stable")
            chunks, shares = chunks[order], shares[order]
        self._chunks = chunks
        self._shares = shares
        self._kept = 0
        self._best: Ranked = ()

    def rank(self, keep: int | None, allowed: Sequence[int] | None = None) -> Ranked:
        """The best `keep` of them, or all, and if given only of those allowed; of equal ones the newest first."""
        if keep is None or allowed is not None:
            return self._rank(keep, allowed)
        if keep > self._kept:  # a caller that asks for some most likely asks for more
            self._kept = 3 * keep
            self._best = self._rank(self._kept, None)
        return self._best[:keep]

    def _rank(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        import numpy as np

        found = self if allowed is None else self._only(np.isin(self._chunks, np.asarray(allowed, dtype=np.int64)))
        chunks, shares = found.first(keep)
        return list(zip(chunks.tolist(), shares.tolist(), strict=True))

    def first(self, keep: int | None) -> tuple[Integers, Floats]:
        """The best `keep` of them, or all, as arrays."""
        import numpy as np

        chunks, shares = self._chunks, self._shares
        if keep is not None and len(chunks) > 2 * keep:
            least = np.partition(shares, len(shares) - keep)[len(shares) - keep]
            chosen = shares >= least
            chunks, shares = chunks[chosen], shares[chosen]
        order = np.lexsort((chunks, shares))[::-1][:keep]
        return chunks[order], shares[order]

    def among(self, mask: NDArray[np.bool_]) -> Ranking:
        """Only some passages, of those that are numbered from 0."""
        return self._only(mask[self._chunks])

    def _only(self, chosen: NDArray[np.bool_]) -> Ranking:
        return Ranking(self._chunks[chosen], self._shares[chosen])

    def numbered(self, chunks: Integers) -> Ranking:
        """The same for passages that are given by their numbers, with the chunk of each."""
        return Ranking(chunks[self._chunks], self._shares)

    def shares(self, chunks: Sequence[int]) -> dict[int, float]:
        """The shares of those among these passages that have any."""
        import numpy as np

        shares = self.shares_of(np.asarray(chunks, dtype=np.int64)).tolist()
        return {chunk: share for chunk, share in zip(chunks, shares, strict=True) if share}

    def shares_of(self, chunks: Integers) -> Floats:
        """The share of each of these passages, or 0."""
        import numpy as np

        if not len(self._chunks):
            return np.zeros(len(chunks))
        places = np.minimum(self._chunks.searchsorted(chunks), len(self._chunks) - 1)
        return np.where(self._chunks[places] == chunks, self._shares[places], 0.0)


# Entries


def best(
    rank: Rank,
    select: Select,
    allowed: Callable[[], Sequence[int]],
    limit: int,
    *,
    step: int | None = None,
    has_filter: bool = False,
) -> list[Candidate]:
    """Try the best-ranked first; if too few pass, find out which may pass and rank only those.

    `step` is how many chunks are selected at first, by default as many as entries are wanted. With `has_filter`, more
    are ranked at first, because ranking again costs more.
    """
    keep = (2 * limit + SPARE) * (FILTERED if has_filter else 1)
    selected: dict[int, tuple[int, int, int] | None] = {}
    pick = partial(_pick, select=select, limit=limit, step=step or limit, selected=selected)
    ranked = rank(keep, None)
    found = pick(ranked)
    if len(found) >= limit or len(ranked) < keep:
        return found
    if len(found) * WIDEST >= limit:  # as many as it takes, by the share that passed, and half as many again
        keep = keep * limit * 3 // (len(found) * 2)
        ranked = rank(keep, None)
        found = pick(ranked)
        if len(found) >= limit or len(ranked) < keep:
            return found
    chosen = allowed()
    ranked = rank(keep, chosen)
    found = pick(ranked)
    if len(found) >= limit or len(ranked) < keep:
        return found
    return pick(rank(None, chosen))


def _pick(
    ranked: Ranked, *, select: Select, limit: int, step: int, selected: dict[int, tuple[int, int, int] | None]
) -> list[Candidate]:
    """The first `limit` entries of a ranking. Chunks that were selected before are known."""
    found: dict[int, Candidate] = {}
    start = 0
    while start < len(ranked) and len(found) < limit:
        batch = ranked[start : start + step]
        new = [chunk for chunk, _ in batch if chunk not in selected]
        if new:
            selected.update(dict.fromkeys(new))
            selected.update(select(new))
        for chunk, share in batch:
            place = selected[chunk]
            if place is None:
                continue
            entry_id, first, stop = place
            known = found.get(entry_id)
            if known is None:
                found[entry_id] = Candidate(entry_id, share, first, stop)
            elif known.end == 0 and stop:  # a heading matched best, but a passage of the text is more useful to show
                found[entry_id] = Candidate(entry_id, known.score, first, stop)
        start += step
        step *= 2  # the filter lets few pass
    return list(found.values())[:limit]


def with_known(found: Sequence[Candidate], known: Iterable[Located], shares: Mapping[int, float]) -> list[Candidate]:
    """The candidates, then the passages of other entries that are known and have a share, best first."""
    already = {candidate.entry_id for candidate in found}
    others = [passage for passage in known if passage.entry_id not in already and passage.chunk in shares]
    others.sort(key=lambda passage: (-shares[passage.chunk], -passage.chunk))
    return [*found, *(Candidate(entry_id, shares[chunk], start, end) for chunk, entry_id, start, end in others)]
