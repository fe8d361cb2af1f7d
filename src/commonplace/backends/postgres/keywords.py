"""Keywords: our own terms as tokens of one namespace each, in a GIN index over the passages.

A token carries its namespace's number in front, so a posting list holds one namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from commonplace.backends.postgres.connection import Session
from commonplace.backends.ranking import Counts, Postings
from commonplace.language.passages import LEVEL_FREQUENCY, frequency_level
from commonplace.store import TermCounts

_LEVEL_MARKS = {2: "\x02", 3: "\x03"}  # no term contains a control character


def tokens(namespace_id: int, terms: Mapping[str, int]) -> tuple[list[str], list[str] | None]:
    """The tokens of a passage, and with a mark those of terms that occur more than once."""
    prefix = f"{namespace_id:x}:"
    repeated = [f"{prefix}{term}{_LEVEL_MARKS[frequency_level(count)]}" for term, count in terms.items() if count > 1]
    return [prefix + term for term in terms], repeated or None


def ask_postings(session: Session, namespace_id: int, terms: Mapping[str, float]) -> Callable[[], list[Postings]]:
    """For each term its posting lists by frequency, in the order of the terms; waited for when called."""
    wanted = [f"{namespace_id:x}:{term}" for term in terms]
    answer = session.ask("SELECT place, level, numbers FROM postings(%s)", (wanted,), binary=True)

    def read() -> list[Postings]:
        levels: list[list[tuple[float, Sequence[int]]]] = [[] for _ in wanted]
        for place, level, numbers in sorted(answer.fetchall()):
            levels[place - 1].append((LEVEL_FREQUENCY[level], numbers))
        return [Postings(weight, found) for weight, found in zip(terms.values(), levels, strict=True)]

    return read


def term_counts(session: Session, counts: Counts, terms: Iterable[str]) -> TermCounts:
    weights = dict.fromkeys(terms, 1.0)
    found = ask_postings(session, counts.namespace_id, weights)()
    return TermCounts(
        counts.passages,
        counts.total_length / max(1, counts.passages),
        {term: sum(len(rows) for _, rows in lists.levels) for term, lists in zip(weights, found, strict=True)},
    )
