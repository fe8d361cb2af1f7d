"""Long texts in overlapping passages, cut where a reader would cut.

Passages are made from the front, each from a bounded window of the text. So an appended note leaves all
passages but the last as they were, an edit those well before it, and only the rest is embedded again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from commonplace.language.characters import place_to_cut

PASSAGE = 1_200  # the largest passage, in Latin letters: about 300 of the 512 tokens that the model reads
WHOLE = 1_500  # a text up to this, or the rest of one, stays whole
OVERLAP = 8  # a passage repeats up to an eighth of the one before

# The model reads about a token for each of these, and a token for three or four Latin letters.
_DENSE = "[\u0370-\u1cff\u1f00-\u1fff\u2e80-\ud7ff\uf900-\uffef\U00010000-\U0003ffff]+"
_DENSE_COST = 3
_compiled = cache(re.compile)  # when first needed

# Each match ends where the next paragraph, sentence or word begins.
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_SENTENCE = re.compile(r"(?:[.!?…][\"'”’)\]]*\s|[。！？｡।॥]|\n)\s*")
_WORD = re.compile(r"\s+|[、，；：]")


class Span(NamedTuple):
    """The characters from start up to, not including, end."""

    start: int
    end: int


def split(text: str, start: int = 0) -> list[Span]:
    """The passages of the text from `start` on; together they hold every character."""
    spans: list[Span] = []
    while start < len(text):
        if _reach(text, start, WHOLE) >= len(text):
            spans.append(Span(start, len(text)))
            break
        end = _end_of_passage(text, start, _reach(text, start, PASSAGE))
        spans.append(Span(start, end))
        start = _start_of_next(text, end, (end - start) // OVERLAP)
    return spans


def resume(spans: Sequence[Span], common_prefix_length: int) -> tuple[list[Span], int]:
    """The passages of a former text that a new one has too, and where to go on splitting the new one.

    `spans` are split(former); the two texts share their first `common_prefix_length` characters. Then
    kept + split(new, restart) == split(new).
    """
    # A passage that is not the last was decided by the WHOLE + 1 characters from its start.
    kept = [span for span in spans[:-1] if span.start + WHOLE + 1 <= common_prefix_length]
    return kept, spans[len(kept)].start if spans else 0


def _reach(text: str, start: int, budget: int) -> int:
    """How far `budget` goes from `start`, in Latin letters; it may lie past the end."""
    if text[start : start + budget].isascii():
        return start + budget
    extra = 0
    for run in _compiled(_DENSE).finditer(text, start, start + budget):
        left = budget - (run.start() - start) - extra
        if left <= 0:
            break
        if (run.end() - run.start()) * _DENSE_COST > left:
            return run.start() + left // _DENSE_COST
        extra += (run.end() - run.start()) * (_DENSE_COST - 1)
    return start + budget - extra


def _end_of_passage(text: str, start: int, limit: int) -> int:
    middle = (start + limit) // 2
    for boundary in (_PARAGRAPH, _SENTENCE, _WORD):
        end = max((found.end() for found in boundary.finditer(text, middle, limit)), default=0)
        if end:
            return end
    return place_to_cut(text, middle, limit)


def _start_of_next(text: str, end: int, overlap: int) -> int:
    earliest = end - overlap
    for boundary in (_SENTENCE, _WORD):
        for found in boundary.finditer(text, earliest, end):
            if found.end() < end:
                return found.end()
    return place_to_cut(text, earliest - overlap, earliest)
