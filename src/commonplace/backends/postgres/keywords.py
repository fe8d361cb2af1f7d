"""Keywords: our own terms as tokens of one namespace each, in a GIN index over the passages.

A token carries its namespace's number in front, so a posting list holds one namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.ranking import Counts, Postings
from commonplace.language.passages import LEVEL_FREQUENCY, frequency_level
from commonplace.store import TermCounts

_LEVEL_MARKS = {2: "\x02", 3: "\x03"}  # no term contains a control character


def tokens(namespace_id: int, terms: Mapping[str, int]) -> tuple[list[str], list[str] | None]:
    """The tokens of a passage, and with a mark those of terms that occur more than once."""
    prefix = f"{namespace_id:x}:"
    repeated = [f"{prefix}{term}{_LEVEL_MARKS[frequency_level(count)]}" for term, count in terms.items() if count > 1]
    return [prefix + term for term in terms], repeated or None


@dataclass(frozen=True, slots=True)
class Listed:
    """What BM25 needs of a namespace: its counts, and for each term its posting lists by frequency."""

    counts: Counts
    postings: list[Postings]
    is_pending: bool
    """Whether passages wait for their vectors."""


def ask_postings(session: Session, spot: Spot, terms: Mapping[str, float]) -> Callable[[], Listed]:
    """The lists in the order of the terms; waited for when called."""
    wanted = [f"{spot.id:x}:{term}" for term in terms]
    answer = session.ask(
        "SELECT found.place, found.level, found.numbers, n.chunk_count, n.term_total,"
        f" EXISTS (SELECT 1 FROM {spot.of('pending')} WHERE tenant = %s AND namespace = %s)"
        f" FROM {spot.of('namespace')} AS n LEFT JOIN {spot.of('postings')}(%s::text[]) AS found ON true"
        " WHERE n.tenant = %s AND n.path = %s",
        (spot.tenant, spot.id, wanted, spot.tenant, "/".join(spot.namespace)),
        binary=True,
        prepare=True,
    )

    def read() -> Listed:
        rows = answer.fetchall()
        levels: list[list[tuple[float, Sequence[int]]]] = [[] for _ in wanted]
        for place, level, numbers in sorted(row[:3] for row in rows if row[0] is not None):
            levels[place - 1].append((LEVEL_FREQUENCY[level], numbers))
        passages, total_length, is_pending = rows[0][3:] if rows else (0, 0, False)
        postings = [Postings(weight, found) for weight, found in zip(terms.values(), levels, strict=True)]
        return Listed(Counts(spot.id, passages, total_length), postings, is_pending)

    return read


def term_counts(session: Session, spot: Spot, terms: Iterable[str]) -> TermCounts:
    weights = dict.fromkeys(terms, 1.0)
    listed = ask_postings(session, spot, weights)()
    return TermCounts(
        listed.counts.passages,
        listed.counts.total_length / max(1, listed.counts.passages),
        {term: sum(len(rows) for _, rows in one.levels) for term, one in zip(weights, listed.postings, strict=True)},
    )
