"""The weight of each word of a question.

Framing words, such as `how many weeks` or `two weeks ago`. They say what kind of answer is wanted and for when, not
what the question is about. In a text the same words mean something else: its `last week` is another week. So they
count half. Their share of the question is lost, so that leaving words out never raises a score. English only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from commonplace.language.dates import relative_times
from commonplace.language.tokenizer import query_terms

FRAME = 0.5  # the weight of a framing word

_ASKED = re.compile(
    r"\bhow (?:many|much|long|often|old|far)\b(?: (?:time|minute|hour|day|week|month|year)s?\b)?(?: ago\b)?",
    re.IGNORECASE,
)


def question_terms(query: str) -> tuple[dict[str, float], float]:
    """Return the terms to look up with their weights, and the share of the question that they represent, 0..1."""
    terms = query_terms(query)
    subject = _subject(query, terms)
    if len(subject) == len(terms):
        return terms, 1.0
    weighed = {term: weight if term in subject else weight * FRAME for term, weight in terms.items()}
    return weighed, _sum(weighed) / _sum(terms)


def content_terms(query: str) -> frozenset[str]:
    """Return the terms of the words that the question is about."""
    return frozenset(_subject(query, query_terms(query)))


def _subject(query: str, terms: Mapping[str, float]) -> Mapping[str, float]:
    """The terms without those of framing words, or all if there are no others."""
    frames = [*relative_times(query), *(match.span() for match in _ASKED.finditer(query))]
    if not frames:
        return terms
    subject = query_terms(_without(query, frames))
    return {term: weight for term, weight in terms.items() if term in subject} or terms


def _without(query: str, spans: list[tuple[int, int]]) -> str:
    left = list(query)
    for start, end in spans:
        left[start:end] = " " * (end - start)
    return "".join(left)


def _sum(terms: Mapping[str, float]) -> float:
    return sum(terms.values())
