"""BM25: how much a text is about the words of a query, by the counts of its own namespace.

    score(text) = Σ over the query's terms of weight · contribution(idf, frequency, length, average_length)

A length is the sum of a text's term frequencies. A contribution is below its idf, however often the term
occurs, so the ceiling of a query is known without looking at any text, and score / ceiling is comparable
between namespaces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

K1 = 0.9  # how slowly repeating a word stops to count
B = 0.4  # how much a long text is held against it
RARITY = 1.5  # how much more a rare word says than a common one; 1 is the textbook's


def idf(documents: int, containing: int) -> float:
    """The weight of a term that `containing` of `documents` texts have: above 0, largest if none has it."""
    containing = min(containing, documents)
    return math.pow(math.log1p((documents - containing + 0.5) / (containing + 0.5)), RARITY)


def contribution(idf: float, frequency: float, length: float, average_length: float) -> float:
    """What a term that occurs `frequency` times adds to a text's score; from 0 to below idf."""
    relative_length = length / average_length if average_length > 0 else 1.0
    return idf * frequency / (frequency + K1 * (1.0 - B + B * relative_length))


def ceiling(weighted_idfs: Iterable[tuple[float, float]]) -> float:
    """What no text's score passes, from the (weight, idf) of each of the query's terms."""
    return math.fsum(weight * idf for weight, idf in weighted_idfs)
