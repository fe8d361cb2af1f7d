"""How likely a hit is relevant, and which hits a floor never leaves out.

A score puts hits in order; it does not say whether the best of them is any good. The probability here does. It depends
on the two parts of a hit's own evidence, the share of the query's words and the calibrated meaning, and on nothing
else: not on other hits, nor on what raises a score in the order (times, conversations).

    relevance = 1 / (1 + exp(-(bias + words · √keyword + meaning · meaning + both · keyword · meaning)))

It is conditioned on this experiment. A question is put to the memory that holds its answer, or, as often, to the memory
of somebody else. You see one of the first ten hits, which is the evidence in the first case and any hit in the second.
`relevance` is the probability that it is the evidence. `benchmarks/relevance.py` fits the weights; decision 017 has the
figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

from commonplace.language.fusion import norm
from commonplace.language.tokenizer import index_terms
from commonplace.language.weights import LONGEST

DEFAULT_FLOOR: Literal["default"] = "default"
"""The floor of interfaces that answer "nothing relevant" instead of noise: that of the calibration."""

Floor: TypeAlias = "float | Literal['default'] | None"

EVERY_WORD = 1.0 / (1.0 + norm(LONGEST, 1.0))
"""The least share of the query's BM25 ceiling that a passage with all of its words has: each once, in a long text."""

GOOD = 0.1
"""A hit that is less likely relevant does not match well. As a floor it would lose 2.1 points of recall@5 with the
default model, and leave nothing of another memory for 4 of 10 questions (decision 017)."""

_AROUND_NAMES = "\"'`.,;!?()[]<>"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The weights of the evidence. None is below 0, so more evidence never lowers a relevance."""

    bias: float
    words: float
    meaning: float = 0.0
    both: float = 0.0
    floor: float = 0.0
    """The default floor. It loses at most 0.3 points of recall@5 on the sets of decision 017."""

    def relevance(self, keyword: float, meaning: float) -> float:
        """The probability that a hit is relevant, from its share of the words and its meaning, each 0..1."""
        evidence = self.bias + self.words * math.sqrt(keyword) + self.meaning * meaning + self.both * keyword * meaning
        return 1.0 / (1.0 + math.exp(-evidence))


KEYWORDS_ONLY = Calibration(bias=-6.728, words=18.305, floor=0.05)
"""For a search without vectors, and for an entry without one."""

CALIBRATIONS: Mapping[str, Calibration] = {
    "commonplace-embed-s@800b3b3e;sentences=1": Calibration(-7.045, 0.0, 13.474, 17.101, floor=0.01),
    "commonplace-embed-s@b1f081c3;sentences=1": Calibration(-6.475, 0.0, 12.949, 19.064, floor=0.015),
    "snowflake-arctic-embed-s@f93ff225;sentences=1": Calibration(-5.31, 2.671, 9.859, 14.174, floor=0.015),
    "all-MiniLM-L6-v2@8199be6f": Calibration(-4.292, 2.505, 6.718, 18.732, floor=0.02),
    "bge-small-en-v1.5@871ab4e7": Calibration(-3.577, 3.97, 3.964, 13.398, floor=0.05),
    "multilingual-e5-small-centred@1571fc98": Calibration(-5.522, 2.058, 7.43, 15.471, floor=0.015),
}
"""By the identity of the vectors. A model that is not here has no relevance, and no floor applies to it."""


def calibration_of(model: str | None) -> Calibration | None:
    """The calibration for vectors of a model; without vectors, that of keywords."""
    return KEYWORDS_ONLY if model is None else CALIBRATIONS.get(model)


def holds_every_word(words: Set[str], *texts: str | None) -> bool:
    """Whether the texts together hold all of these terms."""
    missing = set(words)
    for text in texts:
        if text:
            missing.difference_update(index_terms(text))
    return bool(words) and not missing


def names_in(query: str) -> frozenset[str]:
    """What may be a path, an id or a tag: the query and each of its words, in one letter case."""
    folded = query.casefold()
    return frozenset((folded.strip(), *(word.strip(_AROUND_NAMES) for word in folded.split())))
