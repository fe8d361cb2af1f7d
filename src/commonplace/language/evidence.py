"""What else speaks for a hit beside its own words: the time that was asked for, and its conversation.

Every lift is a share of what is still missing to 1, so a score stays within 0..1, evidence never lowers one, and
nothing that does not match at all is lifted to the top. Decision 007 has the figures that chose the constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

TIME = 0.3  # a text from the time that was asked for counts three tenths more
CONVERSATION = 0.3  # how sure the other messages of a conversation can make us of one of them
FADING = 0.5  # each further message of a conversation counts half of the one before
SHARPNESS = 12  # of a conversation's messages the best decides; more of them matter where they are nearly as good


def in_time(score: float) -> float:
    """The score of a text from the time that the question names."""
    return 1.0 - math.pow(1.0 - score, 1.0 + TIME)


def together(scores: Sequence[float]) -> list[float]:
    """What the others speak for each of one conversation's messages, 0..1: best first in, in the same order out."""
    spoken = []
    for place in range(len(scores)):
        others = (*scores[:place], *scores[place + 1 :])
        spoken.append((1.0 - FADING) * sum(score * FADING**number for number, score in enumerate(others)))
    return spoken


def in_conversation(score: float, spoken: float) -> float:
    """The score of a message for which others of its conversation speak."""
    return 1.0 - (1.0 - score) * (1.0 - CONVERSATION * spoken)


def conversation(scores: Sequence[float]) -> float:
    """How much a whole conversation is about the question, from the scores of its messages."""
    best = max(scores, default=0.0)
    if best <= 0.0:
        return 0.0
    shares = math.fsum(math.pow(max(0.0, score) / best, SHARPNESS) for score in scores)
    return min(1.0, best * math.pow(shares, 1.0 / SHARPNESS))
