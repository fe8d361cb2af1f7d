"""How a long text is split into overlapping passages, and how the keyword index stores a passage.

Passages are cut from the front at paragraph, sentence or word ends, each from a bounded window of the text. So an
appended note leaves all passages but the last unchanged, an edit leaves those well before it, and only the rest has to
be embedded again.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from commonplace.language.tokenizer import index_terms, stem_terms

PASSAGE = 1_200  # the longest passage in Latin letters: about 300 of the model's 512 tokens
WHOLE = 1_500  # a text, or the rest of one, up to this length is not split
OVERLAP = 8  # a passage repeats up to an eighth of the previous one

# Each of these is about one token for the model; three or four Latin letters are one token.
_DENSE = "[\u0370-\u1cff\u1f00-\u1fff\u2e80-\ud7ff\uf900-\uffef\U00010000-\U0003ffff]+"
_DENSE_COST = 3
_compiled = cache(re.compile)  # compiled on first use

# Each match ends where the next paragraph, sentence or word begins.
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_SENTENCE = re.compile(r"(?:[.!?…][\"'”’)\]]*\s|[。！？｡।॥]|\n)\s*")
_WORD = re.compile(r"\s+|[、，；：]")


class Span(NamedTuple):
    """The characters from `start` up to but not including `end`."""

    start: int
    end: int


def split(text: str, start: int = 0) -> list[Span]:
    """Return the passages of the text from `start` on; together they cover every character."""
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
    """Return the passages of a former text that the new one shares, and where to continue splitting the new one.

    `spans` are split(former); the two texts share their first `common_prefix_length` characters. Then
    kept + split(new, restart) == split(new).
    """
    # The end of a passage that is not the last depends on the WHOLE + 1 characters from its start.
    kept = [span for span in spans[:-1] if span.start + WHOLE + 1 <= common_prefix_length]
    return kept, spans[len(kept)].start if spans else 0


def _reach(text: str, start: int, budget: int) -> int:
    """How far a budget of Latin letters reaches from `start`; this may be past the end."""
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


# Cuts between characters

_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def place_to_cut(text: str, earliest: int, position: int) -> int:
    """The nearest place from `position` back to `earliest` that does not separate a letter from its accents."""
    return next((place for place in range(position, earliest - 1, -1) if may_cut(text, place)), position)


def may_cut(text: str, place: int) -> bool:
    """Whether a reader sees the characters before and after `place` as two."""
    return not 0 < place < len(text) or not (_joins(text[place]) or text[place - 1] == _JOINER)


def _joins(character: str) -> bool:
    # Variation selectors are marks too.
    is_mark = unicodedata.category(character).startswith("M")
    return is_mark or character == _JOINER or ord(character) in _SKIN_TONES


# What the keyword index stores. A term's frequency is one of three levels and a passage's length one of 64 steps. That
# is enough for BM25, and a posting is a plain number on every backend, so that all backends give the same scores.

LEVEL_FREQUENCY = {1: 1.0, 2: 2.0, 3: 4.0}
"""The frequency that each level represents: once, twice, more often."""

LENGTH_STEPS = 64
_STEPS_A_DOUBLING = 5


GROWN_CHARACTERS = 300
GROWN_PASSAGES = 16
"""The terms of this many passages are remembered if they are longer than that."""
_grown: OrderedDict[str, dict[str, int]] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Passage:
    """Characters `start` to `end` of a text, and how often each term occurs there.

    Stems of other languages than English are terms as well, but do not count for the length.
    """

    start: int
    end: int
    length: int
    terms: Mapping[str, int]


def passage(text: str, start: int, end: int) -> Passage:
    part = text[start:end]
    terms = index_terms(part) if len(part) < GROWN_CHARACTERS else _terms_of_grown(part)
    stems = stem_terms(part, terms.keys())
    return Passage(start, end, sum(terms.values()), terms | stems if stems else terms)


def _terms_of_grown(part: str) -> dict[str, int]:
    """The same as `index_terms`. If an append has added a line to a passage, only that line is read, because no term is
    part of two lines.
    """
    line = part.rfind("\n", 0, -1) + 1
    known = _grown.get(part[:line]) or _grown.get(part[: line - 1])
    if known is None or not line:
        terms = index_terms(part)
    else:
        terms = known.copy()
        for term, frequency in index_terms(part[line:]).items():
            terms[term] = terms.get(term, 0) + frequency
    _grown[part] = terms
    if len(_grown) > GROWN_PASSAGES:
        _grown.popitem(last=False)
    return terms


def passages(text: str, start: int = 0) -> tuple[Passage, ...]:
    """The passages of a text from `start` on, where `start` is 0 or an offset from `resume`."""
    return of_spans(text, split(text, start))


def of_spans(text: str, spans: Sequence[Span]) -> tuple[Passage, ...]:
    return tuple(passage(text, span.start, span.end) for span in spans)


def frequency_level(frequency: int) -> int:
    return min(frequency, 3)


def length_step(length: int) -> int:
    return _STEP_OF[length] if length < len(_STEP_OF) else _compute_step(length)


def _compute_step(length: int) -> int:
    return min(LENGTH_STEPS - 1, round(_STEPS_A_DOUBLING * math.log2(max(1, length))))


_STEP_OF = tuple(map(_compute_step, range(1_024)))


STEP_LENGTH = tuple(2.0 ** (step / _STEPS_A_DOUBLING) for step in range(LENGTH_STEPS))
"""The length that each step represents."""


# Sentences, which are weighed in addition to their passage. A label before a colon at the start of the passage, such as
# a speaker's name, is repeated before each sentence: `Ana: yes` is about Ana, and so is her next sentence.

SENTENCE_CHARACTERS = 120  # characters: short sentences are joined up to this length; a longer one stays whole

_END = r"(?:[.!?…]+[\"'”’)\]]*\s|[。！？｡।॥]|\n)\s*"
_LABEL = r"[^\W\d_][\w .'’-]{0,39}: "


def split_sentences(passage: str) -> list[str]:
    """Return the sentences of a passage in order, each with the passage's label; none is empty."""
    label = _compiled(_LABEL).match(passage)
    prefix = label[0] if label else ""
    found: list[str] = []
    start = end = len(prefix)
    for stop in (*(match.end() for match in _compiled(_END).finditer(passage, end)), len(passage)):
        if len(passage[start:stop].rstrip()) > SENTENCE_CHARACTERS and passage[start:end].strip():
            found.append(prefix + passage[start:end].strip())
            start = end
        end = stop
    if passage[start:].strip() or (not found and prefix):
        found.append((prefix + passage[start:].strip()).strip())
    return found
