"""A text as the keyword index holds it: passages, each with its terms and a length.

A term's frequency is kept as one of three levels and a passage's length as one of 64 steps: enough for BM25, and small
enough that a posting is a bare number on every backend, so that all backends give the same scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commonplace.language.chunks import Span, split
from commonplace.language.tokens import index_terms

LEVEL_FREQUENCY = {1: 1.0, 2: 2.0, 3: 4.0}
"""The frequency that a level stands for: once, twice, more often."""

LENGTH_STEPS = 64
_STEPS_A_DOUBLING = 5


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a text: characters `start` to `end`, and how often each term occurs there."""

    start: int
    end: int
    length: int
    terms: Mapping[str, int]


def passage(text: str, start: int, end: int) -> Passage:
    terms = index_terms(text[start:end])
    return Passage(start, end, sum(terms.values()), terms)


def passages(text: str, start: int = 0) -> tuple[Passage, ...]:
    """The passages of a text from `start` on, where `start` is 0 or an offset that `chunks.resume` gave."""
    return of_spans(text, split(text, start))


def of_spans(text: str, spans: Sequence[Span]) -> tuple[Passage, ...]:
    return tuple(passage(text, span.start, span.end) for span in spans)


def frequency_level(frequency: int) -> int:
    return min(frequency, 3)


def length_step(length: int) -> int:
    return _STEP_OF[length] if length < len(_STEP_OF) else _work_out_step(length)


def _work_out_step(length: int) -> int:
    return min(LENGTH_STEPS - 1, round(_STEPS_A_DOUBLING * math.log2(max(1, length))))


_STEP_OF = tuple(map(_work_out_step, range(1_024)))


STEP_LENGTH = tuple(2.0 ** (step / _STEPS_A_DOUBLING) for step in range(LENGTH_STEPS))
"""The length that a step stands for."""
