"""What a question asks about, apart from the words that only frame it: `how many weeks`, `two weeks ago`.

A frame says what kind of answer is wanted and when, not what it is about, and the same words in a text mean something
else: its `last week` is another week. So they count half, and as they are a share of the question, the rest of it has
only the other share to say: nothing is made surer by leaving words out. English only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from commonplace.language.dates import relative_times
from commonplace.language.tokens import query_terms

FRAME = 0.5  # what a word of a frame counts

_ASKED = r"\bhow (?:many|much|long|often|old|far)\b(?: (?:time|minute|hour|day|week|month|year)s?\b)?(?: ago\b)?"
_compiled = cache(re.compile)  # when first needed


def question_terms(query: str) -> tuple[dict[str, float], float]:
    """The terms to look up, each with its weight, and how much of the question that leaves, 0..1."""
    terms = query_terms(query)
    frames = [*relative_times(query), *(match.span() for match in _compiled(_ASKED, re.IGNORECASE).finditer(query))]
    if not frames:
        return terms, 1.0
    subject = query_terms(_without(query, frames))
    if not terms.keys() & subject.keys():
        return terms, 1.0  # all of it is frame
    weighed = {term: weight if term in subject else weight * FRAME for term, weight in terms.items()}
    return weighed, _sum(weighed) / _sum(terms)


def _without(query: str, spans: list[tuple[int, int]]) -> str:
    left = list(query)
    for start, end in spans:
        left[start:end] = " " * (end - start)
    return "".join(left)


def _sum(terms: Mapping[str, float]) -> float:
    return sum(terms.values())
