"""The official measures of each data set, and confidence intervals of differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quality_data import Level

Measure = Callable[[Sequence[str], frozenset[str]], float]
"""Of a ranking, best first, and what is relevant."""

SAMPLES = 2_000
SEED = 7


def recall_all(k: int) -> Measure:
    return lambda ranking, relevant: float(relevant <= set(ranking[:k]))


def recall(k: int) -> Measure:
    return lambda ranking, relevant: len(relevant & set(ranking[:k])) / len(relevant)


def hit(k: int) -> Measure:
    return lambda ranking, relevant: float(bool(relevant & set(ranking[:k])))


def ndcg_any(k: int) -> Measure:
    """LongMemEval's own measure: the second place is discounted by log2(2), so it counts like the first."""

    def gain(place: int) -> float:
        return 1.0 if place == 0 else 1.0 / math.log2(place + 1)

    return _ndcg(k, gain)


def ndcg(k: int) -> Measure:
    """trec_eval's, as BEIR reports it."""
    return _ndcg(k, lambda place: 1.0 / math.log2(place + 2))


def _ndcg(k: int, gain: Callable[[int], float]) -> Measure:
    def measure(ranking: Sequence[str], relevant: frozenset[str]) -> float:
        found = math.fsum(gain(place) for place, id in enumerate(ranking[:k]) if id in relevant)
        return found / math.fsum(gain(place) for place in range(min(k, len(relevant))))

    return measure


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of a data set: what is ranked, the measure, the questions, and the goal."""

    level: Level
    name: str
    measure: Measure
    group: str | None = None
    goal: float | None = None
    margin: float | None = None
    """How far the goal is above vectors alone."""


DEFINITIONS = {
    "recall_all@k": "1 where every gold session (turn) is among the first k, else 0; mean over questions (LongMemEval)",
    "ndcg_any@k": "LongMemEval's eval_utils: DCG of binary gains, 1 for the first place and 1/log2(place) after it",
    "recall@k": "share of a question's gold that is among the first k; mean over questions (LoCoMo's evidence recall)",
    "hit@k": "1 where any gold turn is among the first k, else 0; mean over questions",
    "nDCG@k": "trec_eval's, binary gains discounted by 1/log2(place + 1) (BEIR)",
    "session, turn": "gold sessions are LongMemEval's answer_session_ids, over all questions, and LoCoMo's sessions of"
    " evidence; gold turns are user turns marked has_answer, ranked among user turns, and LoCoMo's evidence turns; in"
    " assistant chats they are turns of either role marked has_answer, ranked among all turns",
}

LINES: Mapping[str, tuple[Line, ...]] = {
    "LongMemEval-S": (
        Line("session", "recall_all@5", recall_all(5), goal=0.96),
        Line("session", "recall_all@10", recall_all(10), goal=0.97),
        Line("session", "ndcg_any@5", ndcg_any(5)),
        Line("session", "ndcg_any@10", ndcg_any(10), goal=0.94),
        Line("session", "recall_all@5", recall_all(5), "without abstention"),
        Line("session", "recall_all@10", recall_all(10), "without abstention"),
        Line("session", "ndcg_any@10", ndcg_any(10), "without abstention"),
        Line("turn", "recall_all@5", recall_all(5)),
        Line("turn", "recall_all@10", recall_all(10)),
        Line("turn", "ndcg_any@10", ndcg_any(10)),
    ),
    "LongMemEval-S, 500 sessions": (
        Line("session", "recall_all@5", recall_all(5)),
        Line("session", "recall_all@10", recall_all(10)),
        Line("session", "ndcg_any@10", ndcg_any(10)),
    ),
    "LoCoMo": (
        Line("session", "recall@5", recall(5), goal=0.88),
        Line("session", "recall@10", recall(10), goal=0.95),
        Line("turn", "recall@5", recall(5)),
        Line("turn", "recall@10", recall(10)),
        Line("turn", "recall@5", recall(5), "categories 1-4", 0.79),  # with arctic-s it was 0.73
        Line("turn", "recall@10", recall(10), "categories 1-4", 0.86),  # with arctic-s it was 0.81
    ),
    "Assistant chats": (
        Line("turn", "recall@5", recall(5)),
        Line("turn", "recall@10", recall(10)),
        Line("turn", "nDCG@10", ndcg(10)),
    ),
    "Needs not named": (
        Line("turn", "hit@5", hit(5), margin=0.05),
        Line("turn", "hit@10", hit(10)),
        Line("turn", "nDCG@10", ndcg(10)),
    ),
    "SciFact": (
        Line("document", "nDCG@10", ndcg(10), goal=0.73),
        Line("document", "recall@10", recall(10)),
    ),
    "DevBench": (
        Line("document", "recall@5", recall(5)),
        Line("document", "nDCG@10", ndcg(10)),
    ),
    "PrecisionMemBench": (
        Line("document", "recall@5", recall(5)),
        Line("document", "nDCG@10", ndcg(10)),
    ),
}


CHECKED: Mapping[str, Measure] = {"recall@5": recall(5), "recall@10": recall(10), "nDCG@10": ndcg(10)}
"""In these our search must not be below a part of it, in any set and type of question."""


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of paired differences."""
    means = np.sort(_resamplings(len(differences)) @ np.asarray(differences, dtype=np.float64)) / len(differences)
    return float(means[SAMPLES // 40]), float(means[SAMPLES - SAMPLES // 40 - 1])


@lru_cache(maxsize=8)
def _resamplings(size: int) -> NDArray[np.float64]:
    """How often each of `size` values is drawn, in each of the samples."""
    chance = np.random.default_rng(SEED)
    return chance.multinomial(size, np.full(size, 1.0 / size), size=SAMPLES).astype(np.float64)
