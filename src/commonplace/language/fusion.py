"""One score from two kinds of evidence: the words that a text shares with the query, and nearness in meaning.

Each kind is first put on an absolute scale of 0..1, then the two are joined like independent witnesses:

    score = 1 - (1 - TRUST · keyword) · (1 - TRUST · meaning)

A hit's score depends on its own evidence only, not on the other hits. So hits of several namespaces may be
merged, more evidence never lowers a score, and a score means the same today and tomorrow. A text that repeats
the query is near 1, an unrelated one near 0. Decision 004 has the figures that chose this over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

TRUST = 0.9  # how sure the strongest evidence of one kind alone can make us
PRESUMED = 2.0  # the meaning of a text by its words' share: words that stand in it once are about half of the ceiling


class Fused(NamedTuple):
    """A candidate with its score and the parts of it; a part that was not found is None."""

    id: int
    score: float
    keyword: float | None
    meaning: float | None


def fuse(
    keyword: Iterable[tuple[int, float]], meaning: Iterable[tuple[int, float]], *, presume: bool = False
) -> list[Fused]:
    """The candidates of both searches, best first; equal ones as they came, by their words before by their meaning.

    `keyword` holds ids with their share of the query's BM25 ceiling, `meaning` ids with their calibrated cosine. An id
    may come several times (a text in passages); its best counts. With `presume`, a text whose meaning is not known yet
    is presumed to mean what its words say: else any text with a vector, however far, would stand above it.
    """
    keywords, meanings = _best(keyword), _best(meaning)
    scored = []
    for id in {**keywords, **meanings}:
        by_words, by_meaning = keywords.get(id, 0.0), meanings.get(id)
        if by_meaning is None:
            by_meaning = min(1.0, PRESUMED * by_words) if presume else 0.0
        scored.append((1.0 - (1.0 - TRUST * by_words) * (1.0 - TRUST * by_meaning), id))
    scored.sort(key=itemgetter(0), reverse=True)
    return [Fused(id, score, keywords.get(id), meanings.get(id)) for score, id in scored]


def _best(scored: Iterable[tuple[int, float]]) -> dict[int, float]:
    best: dict[int, float] = {}
    for id, score in scored:
        if score > best.setdefault(id, 0.0):
            best[id] = min(1.0, score)
    return best
