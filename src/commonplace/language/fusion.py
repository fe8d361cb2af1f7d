"""One score from two kinds of evidence: the words that a text shares with the query, and nearness in meaning.

Each kind is first put on an absolute scale of 0..1, then the two are joined like independent witnesses:

    score = 1 - (1 - TRUST · keyword) · (1 - TRUST · meaning)

A hit's score depends on its own evidence only, not on the other hits. So hits of several namespaces may be
merged, more evidence never lowers a score, and a score means the same today and tomorrow. A text that repeats
the query is near 1, an unrelated one near 0. Decision 004 has the figures that chose this over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TRUST = 0.9  # how sure the strongest evidence of one kind alone can make us
LARGEST_PRIOR = 0.05


@dataclass(frozen=True, slots=True)
class Calibration:
    """Which cosines of a model mean unrelated (0) and the same (1); every model has its own."""

    unrelated: float
    same: float

    def meaning(self, cosine: float) -> float:
        """The cosine on a scale of 0..1."""
        return min(1.0, max(0.0, (cosine - self.unrelated) / (self.same - self.unrelated)))


# snowflake-arctic-embed-s: nonsense against memories 0.35 to 0.52, a question and its answer 0.6 to 0.85,
# a memory and itself as the query 0.81 to 0.89.
ARCTIC_EMBED_S = Calibration(unrelated=0.5, same=0.85)
# Cosines of most other models are spread wider.
UNKNOWN_MODEL = Calibration(unrelated=0.1, same=0.9)


@dataclass(frozen=True, slots=True)
class Fused:
    """A candidate with its score and the parts of it; a part that was not found is None."""

    id: int
    score: float
    keyword: float | None
    meaning: float | None


def fuse(
    keyword: Iterable[tuple[int, float]],
    vector: Iterable[tuple[int, float]],
    *,
    ceiling: float,
    calibration: Calibration = ARCTIC_EMBED_S,
    priors: Mapping[int, float] | None = None,
) -> list[Fused]:
    """The candidates of both searches, best first, the higher id first among equals.

    `keyword` holds ids with their BM25 score, `ceiling` is bm25.ceiling of the query, `vector` holds ids with
    their cosine. An id may come twice (a text in passages): its best counts. `priors` come from `prior`.

    What one search did not return counts as no evidence. So look up the cosines of the keyword candidates too
    and the BM25 of the vector candidates: with 50 of each that is worth two points of recall.
    """
    keywords = _best((id, min(1.0, max(0.0, score / ceiling))) for id, score in keyword if ceiling > 0)
    meanings = _best((id, calibration.meaning(cosine)) for id, cosine in vector)
    fused = []
    for id in keywords.keys() | meanings.keys():
        by_words, by_meaning = keywords.get(id), meanings.get(id)
        score = 1.0 - (1.0 - TRUST * (by_words or 0.0)) * (1.0 - TRUST * (by_meaning or 0.0))
        if priors is not None:
            score *= priors.get(id, 1.0)
        fused.append(Fused(id, min(1.0, score), by_words, by_meaning))
    return sorted(fused, key=lambda hit: (-hit.score, -hit.id))


def prior(*, age_days: float | None = None, confidence: float | None = None) -> float:
    """A factor from 1 - LARGEST_PRIOR to 1: among equals the newer and the surer first. 1 if unknown."""
    doubt = 0.0
    if confidence is not None:
        doubt += 0.5 * (1.0 - min(1.0, max(0.0, confidence)))
    if age_days is not None:
        age = max(0.0, age_days)
        doubt += 0.5 * age / (age + 90.0)  # half of it after three months
    return 1.0 - LARGEST_PRIOR * doubt


def _best(scored: Iterable[tuple[int, float]]) -> dict[int, float]:
    best: dict[int, float] = {}
    for id, score in scored:
        best[id] = max(score, best.get(id, 0.0))
    return best
