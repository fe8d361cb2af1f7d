"""Passages to entries, on every backend: BM25 over posting lists, and the best that pass a filter.

A posting is `passage id * LENGTH_STEPS + length step`, so that a score needs no look at any row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from commonplace.filters import Filter
from commonplace.language import bm25
from commonplace.language.passages import LENGTH_STEPS, STEP_LENGTH, length_step
from commonplace.store import Candidate

Ranked = Sequence[tuple[int, float]]
Rank = Callable[[int | None, Sequence[int] | None], Ranked]
"""Ranks chunks: at least the best so many (None: all), and where given only among these."""

Select = Callable[[Sequence[int]], Mapping[int, tuple[int, int, int]]]
"""Of some chunks, those whose entry is live and passes the filter: entry id, start and stop."""

WIDEST = 16
"""Where fewer than 1 in so many of the wanted entries were found, those that pass the filter are read instead."""


SORTED_WHOLE = 8
SPARE = 30
"""So many passages more than twice the entries are ranked first: some belong to the same entry, some do not pass.

Ranking anew costs as much as the first time, and half of what is ranked may be of another kind."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What BM25 knows of a namespace."""

    namespace_id: int
    passages: int
    total_length: int


@dataclass(frozen=True, slots=True)
class Page:
    """How many entries are wanted, which, and at what time; `also` names entries to score in any case."""

    filter: Filter
    limit: int
    now: int
    also: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Postings:
    """A term of the query: its weight, and for each frequency the passages that have it that often."""

    weight: float
    levels: Sequence[tuple[float, Sequence[int]]]


def posting(chunk_id: int, length: int) -> int:
    return chunk_id * LENGTH_STEPS + length_step(length)


def chunk_of(number: int) -> int:
    return number // LENGTH_STEPS


def score(
    counts: Counts, postings: Iterable[Postings], keep: int | None, known: Sequence[int] = ()
) -> tuple[list[tuple[int, float]], dict[int, float]]:
    """Chunks with their scores as a share of the ceiling, best first: the best `keep`, or all.

    Rare terms come first. Once the terms that remain cannot lift a new passage among the best `keep`, their lists only
    add to the passages already found; so a common word costs little. The postings in `known` are scored in any case.
    """
    average = counts.total_length / max(1, counts.passages)
    tables = []
    for term in postings:
        containing = sum(len(rows) for _, rows in term.levels)
        tables.append((containing, term.weight * bm25.idf(counts.passages, containing), term.levels))
    ceiling = bm25.ceiling((1.0, idf) for _, idf, _ in tables)
    if ceiling <= 0:
        return [], {}
    # bm25.contribution, with what depends on the length alone worked out once.
    normals = [bm25.K1 * (1.0 - bm25.B + bm25.B * (length / average if average > 0 else 1.0)) for length in STEP_LENGTH]
    scores = dict.fromkeys(known, 0.0)
    known_score = scores.get
    bound = ceiling
    is_open = True
    for containing, idf, levels in sorted(tables, key=lambda table: table[0]):
        if not containing:
            continue
        # No score is above what the terms so far can give: only when that is more than the rest, it needs a look.
        if is_open and keep is not None and len(scores) >= keep and ceiling - bound > bound:
            is_open = _least_of_best(keep, scores) < bound
        bound -= idf
        for frequency, rows in levels:
            most = idf * frequency
            gains = [most / (frequency + normal) for normal in normals]  # a common word is on thousands of rows
            for row in rows if is_open else scores.keys() & rows:
                scores[row] = known_score(row, 0.0) + gains[row % LENGTH_STEPS]
    floor = _least_of_best(keep, scores) if keep is not None and len(scores) > keep else 0.0
    ranked = sorted([(score, row) for row, score in scores.items() if score and score >= floor], reverse=True)[:keep]
    shares = [(chunk_of(row), min(1.0, score / ceiling)) for score, row in ranked]
    return shares, {chunk_of(row): min(1.0, scores[row] / ceiling) for row in known if scores[row]}


def _least_of_best(keep: int, scores: Mapping[int, float]) -> float:
    """The score at place `keep`. Of few, sorting all is several times as quick as a heap."""
    if len(scores) < SORTED_WHOLE * keep:
        return sorted(scores.values(), reverse=True)[keep - 1]
    return nlargest(keep, scores.values())[-1]


def best(
    rank: Rank, select: Select, allowed: Callable[[], Sequence[int]], limit: int, *, step: int | None = None
) -> list[Candidate]:
    """Try the best-ranked first; where too few pass, find out which may and rank only those.

    `step` is how many chunks are selected at once; left out, as many as entries are wanted.
    """
    keep = 2 * limit + SPARE
    ranked = rank(keep, None)
    found = _pick(ranked, select, limit, step)
    if len(found) >= limit or len(ranked) < keep:
        return found
    if len(found) * WIDEST >= limit:  # as many as it takes, by the share that passed, and half as many again
        keep = keep * limit * 3 // (len(found) * 2)
        ranked = rank(keep, None)
        found = _pick(ranked, select, limit, step)
        if len(found) >= limit or len(ranked) < keep:
            return found
    chosen = allowed()
    ranked = rank(keep, chosen)
    found = _pick(ranked, select, limit, step)
    if len(found) >= limit or len(ranked) < keep:
        return found
    return _pick(rank(None, chosen), select, limit, step)


def _pick(ranked: Ranked, select: Select, limit: int, step: int | None) -> list[Candidate]:
    found: dict[int, Candidate] = {}
    size = step or limit
    for start in range(0, len(ranked), size):
        batch = ranked[start : start + size]
        places = select([chunk for chunk, _ in batch])
        for chunk, share in batch:
            if chunk not in places:
                continue
            entry_id, first, stop = places[chunk]
            known = found.get(entry_id)
            if known is None:
                found[entry_id] = Candidate(entry_id, share, first, stop)
            elif known.end == 0 and stop:  # a heading matched best, but a passage of the text is worth showing
                found[entry_id] = Candidate(entry_id, known.score, first, stop)
        if len(found) >= limit:
            break
    return list(found.values())[:limit]
