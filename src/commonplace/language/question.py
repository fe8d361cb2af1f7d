"""What kind of question it is: the weight of each of its words, whether it asks what the assistant said, or for a plan.

Framing words, such as `how many weeks` or `two weeks ago`. They say what kind of answer is wanted and for when, not
what the question is about. In a text the same words mean something else: its `last week` is another week. So they
count half. Their share of the question is lost, so that leaving words out never raises a score. English only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from commonplace.language.dates import relative_times
from commonplace.language.tokenizer import query_terms
from commonplace.language.weights import FRAME


@cache  # compiled on first use; a program that only writes needs none of them
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_ASKED = r"\bhow (?:many|much|long|often|old|far)\b(?: (?:time|minute|hour|day|week|month|year)s?\b)?(?: ago\b)?"

_SAID = (
    "said|told|suggested|recommended|mentioned|gave|given|listed|wrote|written|provided|explained|described|proposed|"
    "outlined|shared|sent|answered|offered|named|created|made|drafted|came up with|promised|advised|asked"
)
_SAY = (
    "say|tell|suggest|recommend|mention|give|list|write|provide|explain|describe|propose|outline|share|send|answer|"
    "offer|name|create|make|draft|come up with|promise|advise|ask"
)
# `Can you recommend` asks for something new; `you recommended` and `did you recommend` for what was said.
_ABOUT_ASSISTANT = (
    rf"\b(?:you(?:'ve| had| have)?(?: just| once| already| previously)? (?:{_SAID})|did you (?:\w+ )?(?:{_SAY})|"
    r"your (?:\w+ )?(?:answer|reply|response|suggestion|recommendation|advice|list|example|explanation)s?|remind me|"
    r"(?:previous|last|earlier|former|past) (?:chat|conversation|discussion)s?|"
    r"we (?:discussed|talked|spoke|chatted|outlined|worked out|came up with))\b"
)

_PLAN = r"\b(?:should|shall|could|can) (?:i|we)\b"
# `Can I see the photo of June` looks something up, and so does whatever speaks of the past.
_PAST = (
    r"\b(?:should|shall|could|can) (?:i|we)(?: please| also| still| just)? "
    r"(?:see|find|list|show|get|read|check|look|go over|go through|review|recall|remember|know|tell|have|hear)\b|"
    r"\b(?:ago|last|past|previous|previously|earlier|yesterday|since|before|did|was|were|had|been|said|told|\w{2,}ed)\b|"
    r"\bfrom\b|\b(?:19|20)[0-9]{2}\b"
)


def is_about_plan(query: str) -> bool:
    """Whether the question asks what to do, such as `what could we cook on Friday`. English.

    The time that it names is the time of the plan. What bears on it was said at any time.
    """
    return _compiled(_PLAN).search(query) is not None and _compiled(_PAST).search(query) is None


def is_about_assistant(query: str) -> bool:
    """Whether the question may be about what the assistant said, such as `which hotel did you recommend`. English."""
    return _compiled(_ABOUT_ASSISTANT).search(query) is not None


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
    frames = [*relative_times(query), *(match.span() for match in _compiled(_ASKED).finditer(query))]
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
