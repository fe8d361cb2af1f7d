"""The score of a hit: BM25 for the words that it shares with the query, and one score from words and meaning.

BM25 measures how much a text is about the words of a query, by the counts of its own namespace:

    score(text) = Σ over the query's terms of gain(weight · idf, frequency, norm(length))

A length is the sum of a text's term frequencies. A gain is below its idf, however often the term occurs, so the ceiling
of a query is known without looking at any text, and score / ceiling is comparable between namespaces. This formula is
the only one: both backends and searches in the past use it.

Fusion first puts words and meaning on an absolute scale of 0..1, then joins them like independent witnesses:

    score = 1 - (1 - TRUST · keyword) · (1 - TRUST · meaning)

A hit's score depends on its own evidence only, not on the other hits. So hits of several namespaces can be merged, more
evidence never lowers a score, and a score means the same today and tomorrow. A text that repeats the query is near 1,
an unrelated one near 0. Decision 004 has the figures that chose this over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

K1 = 0.9  # how slowly the effect of repeating a word saturates
B = 0.4  # how much a text's length counts against it
LONGEST = 3.0  # longer texts, as a multiple of the average, count as this long: a long file among short notes
RARITY = 1.5  # how much more a rare word counts than a common one; 1 is the usual value

TRUST = 0.9  # the highest score from one kind of evidence alone
# the meaning score presumed from the keyword share; words that occur once give about half of the ceiling
PRESUMED = 2.0


def idf(documents: int, containing: int) -> float:
    """The weight of a term that `containing` of `documents` texts have: above 0, largest if none has it."""
    containing = min(containing, documents)
    return math.pow(math.log1p((documents - containing + 0.5) / (containing + 0.5)), RARITY)


def norm(length: float, average_length: float) -> float:
    """How much a text's length counts against it."""
    relative_length = length / average_length if average_length > 0 else 1.0
    return K1 * (1.0 - B + B * min(relative_length, LONGEST))


def gain(idf: Any, frequency: Any, norm: Any) -> Any:
    """What a term that occurs `frequency` times adds to a text's score; from 0 to below idf. Arrays work as well."""
    return idf * frequency / (frequency + norm)


def ceiling(idfs: Iterable[float]) -> float:
    """What no text's score exceeds, from the weighted idf of each of the query's terms."""
    return math.fsum(idfs)


class Fused(NamedTuple):
    """A candidate with its score and the parts of it; a part that was not found is None."""

    id: int
    score: float
    keyword: float | None
    meaning: float | None


def fuse(
    keyword: Iterable[tuple[int, float]], meaning: Iterable[tuple[int, float]], *, presume: bool = False
) -> list[Fused]:
    """The candidates of both searches, best first; equal ones in the given order, keyword candidates first.

    `keyword` holds ids with their share of the query's BM25 ceiling, `meaning` ids with their calibrated cosine. An id
    may come several times (a text in passages); its best counts. With `presume`, the meaning score of a text whose
    vector is pending is presumed from its keyword score. Otherwise any text with a vector, however far, would rank
    above it.
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


# Other evidence for a hit: its time is the one that the question names, or other messages of its conversation match.
# Each is a share of what the score lacks to 1. So a score stays within 0..1, evidence never lowers it, and a text that
# does not match at all is not lifted to the top. Decision 007 has the figures that chose the constants.

TIME = 0.3  # the exponent that a text from the named time gains
CONVERSATION = 0.3  # the most that the other messages of a conversation can add
FADING = 0.5  # each further message counts half as much as the previous one
SHARPNESS = 12  # the best message decides; others count only if they are nearly as good


def boost_by_time(score: float) -> float:
    """Return the score of a text from the time that the question names."""
    return 1.0 - math.pow(1.0 - score, 1.0 + TIME)


def conversation_support(scores: Sequence[float]) -> list[float]:
    """For each message of a conversation, best first, return the evidence of the others, 0..1."""
    support = []
    for place in range(len(scores)):
        others = (*scores[:place], *scores[place + 1 :])
        support.append((1.0 - FADING) * sum(score * FADING**number for number, score in enumerate(others)))
    return support


def boost_by_support(score: float, support: float) -> float:
    """Return the score of a message with the support of the others in its conversation."""
    return 1.0 - (1.0 - score) * (1.0 - CONVERSATION * support)


def conversation_score(scores: Sequence[float]) -> float:
    """Return the score of a whole conversation from the scores of its messages."""
    best = max(scores, default=0.0)
    if best <= 0.0:
        return 0.0
    shares = math.fsum(math.pow(max(0.0, score) / best, SHARPNESS) for score in scores)
    return min(1.0, best * math.pow(shares, 1.0 / SHARPNESS))
