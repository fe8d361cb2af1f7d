"""The score of a hit: BM25 for the words that it shares with the query, and one score from words and meaning.

BM25 measures how much a text is about the words of a query, by the counts of its own namespace:

    score(text) = Σ over the query's terms of gain(weight · idf, frequency, norm(length))

A length is the sum of a text's term frequencies. A gain is below its idf, however often the term occurs, so the ceiling
of a query is known without looking at any text, and score / ceiling is comparable between namespaces. This formula is
the only one: both backends and searches in the past use it.

Fusion first puts words and meaning on an absolute scale of 0..1, then joins them like independent witnesses:

    score = 1 - (1 - WORDS · keyword) · (1 - MEANING · meaning)

A hit's score depends on its own evidence only, not on the other hits. So hits of several namespaces can be merged, more
evidence never lowers a score, and a score means the same today and tomorrow. A text that repeats the query is near 0.9,
an unrelated one below 0.2. Decision 004 has the figures that chose this over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from commonplace.language.weights import (
    CHANCE,
    CONVERSATION,
    DOUBT,
    FADING,
    K1,
    LONGEST,
    MEANING,
    NEAR,
    NEIGHBOUR,
    PRESUMED,
    RARITY,
    REPEATED,
    SAID_MEANING,
    SAID_WORDS,
    SHARPNESS,
    STRONG,
    SURE,
    THREADS_CHANCE,
    TIME,
    WEAK,
    WORDS,
    B,
)


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
    keyword: Iterable[tuple[int, float]],
    meaning: Iterable[tuple[int, float]],
    *,
    presume: bool = False,
    of_threads: bool = False,
) -> list[Fused]:
    """The candidates of both searches, best first; equal ones in the given order, keyword candidates first.

    `keyword` holds ids with their share of the query's BM25 ceiling, `meaning` ids with their calibrated cosine. An id
    may come several times (a text in passages); its best counts. With `presume`, the meaning score of a text whose
    vector is pending is presumed from its keyword score. Otherwise any text with a vector, however far, would rank
    above it. `of_threads` is for messages that are candidates for their threads.
    """
    keywords, meanings = _best(keyword), _best(meaning)
    scored = []
    for id in {**keywords, **meanings}:
        by_words, by_meaning = keywords.get(id), meanings.get(id)
        near = by_meaning
        if near is None:
            near = min(1.0, PRESUMED * (by_words or 0.0)) if presume else 0.0
        if of_threads:
            score = join_of_thread(by_words or 0.0, near)
        else:  # as in `join`, without a call for each candidate
            score = 1.0 - (1.0 - WORDS * (by_words or 0.0)) * (1.0 - MEANING * near)
        scored.append(Fused(id, score, by_words, by_meaning))
    scored.sort(key=itemgetter(1), reverse=True)
    return scored


def join(keyword: float, meaning: float) -> float:
    """Return the score of a text from both kinds of evidence, 0..1."""
    return 1.0 - (1.0 - WORDS * keyword) * (1.0 - MEANING * meaning)


def join_said(keyword: float, meaning: float) -> float:
    """The same for a message."""
    return 1.0 - (1.0 - SAID_WORDS * sure(keyword)) * (1.0 - SAID_MEANING * meaning)


def join_of_thread(keyword: float, meaning: float) -> float:
    """The same for a message that speaks for its thread."""
    return 1.0 - (1.0 - WORDS * sure(keyword, THREADS_CHANCE)) * (1.0 - SAID_MEANING * meaning)


def sure(keyword: float, chance: float = CHANCE) -> float:
    """What a share of the words says in a conversation; a share below `chance` says less than itself.

    Talk has many common words, so that one word of a question of many matches by chance.
    """
    return keyword * min(1.0, keyword / chance)


def _best(scored: Iterable[tuple[int, float]]) -> dict[int, float]:
    best: dict[int, float] = {}
    for id, score in scored:
        known = best.get(id)
        if known is None or score > known:
            best[id] = (score if score < 1.0 else 1.0) if score > 0.0 else 0.0
    return best


# Other evidence for a hit: its time is the one that the question names, or other messages of its conversation match.
# Each is a share of what the score lacks to 1. So a score stays within 0..1, evidence never lowers it, and a text that
# does not match at all is not lifted to the top. Decisions 007 and 016 have the figures that chose this.


def boost_by_time(score: float) -> float:
    """Return the score of a text from the time that the question names."""
    return 1.0 - math.pow(1.0 - score, 1.0 + TIME)


def strength(best: float) -> float:
    """How much the best score of a search is worth as evidence for other messages, 0..1."""
    return _share(best, WEAK, STRONG)


def _share(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def conversation_support(scores: Sequence[float], best: float) -> list[float]:
    """For each message of a conversation, best first, return the evidence of the others, 0..1.

    `best` is the best score of the whole search. Only messages that are nearly as good are evidence: otherwise a long
    conversation, with many messages that match a little, would bury what was said once in a short one.
    """
    weight = strength(best)
    near = [score for score in scores if score >= NEAR * best] if weight else []
    support = []
    for place in range(len(scores)):
        others = (*near[:place], *near[place + 1 :])
        support.append(weight * (1.0 - FADING) * sum(score * FADING**number for number, score in enumerate(others)))
    return support


def boost_by_support(score: float, support: float) -> float:
    """Return the score of a message with the support of the others in its conversation."""
    return 1.0 - (1.0 - score) * (1.0 - CONVERSATION * support)


def boost_by_neighbours(score: float, neighbours: float) -> float:
    """Return the score of a message; `neighbours` is the mean score of those directly before and after it, 0..1."""
    return 1.0 - (1.0 - score) * (1.0 - 2.0 * NEIGHBOUR * neighbours)


def repetition(best: float) -> float:
    """Return the factor for all but the best message of a conversation, 0..1.

    If even the best score of a search is low, hits are guesses, and several guesses in one conversation are worth less
    than guesses in several.
    """
    return 1.0 - (1.0 - REPEATED) * (1.0 - _share(best, DOUBT, SURE))


def conversation_score(scores: Sequence[float]) -> float:
    """Return the score of a whole conversation from the scores of its messages."""
    best = max(scores, default=0.0)
    if best <= 0.0:
        return 0.0
    shares = math.fsum(math.pow(max(0.0, score) / best, SHARPNESS) for score in scores)
    return min(1.0, best * math.pow(shares, 1.0 / SHARPNESS))
