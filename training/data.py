"""The prepared questions on the GPU, their hard negatives, and batches of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from encoder import Encoder, Tokens, by_length, half, pairs

PASSAGE_TOKENS, QUESTION_TOKENS = 96, 48
NEAREST, NEGATIVES = 40, 32
MARGIN = 0.03
STRICT = frozenset({"squad", "selqa", "qmsum", "molweni", "strategy", "xquad", "needs", "talk", "chat", "notes"})
"""People wrote these questions. For the others, made by rule, a passage that is clearly nearer than the marked one is
more likely a second answer than a hard negative."""

WEIGHTS = {
    "squad": 1.0, "xquad": 1.0, "sgd": 0.4, "spc": 0.7, "spcp": 0.4, "topical": 0.3, "irc": 0.2,
    "strategy": 0.6, "selqa": 1.5, "molweni": 0.3, "qmsum": 1.5, "needs": 1.5, "talk": 2.0, "chat": 2.5, "notes": 2.0,
}  # fmt: skip
"""How often a question of each set is drawn: less where the rules make poor questions."""


@dataclass
class Prepared:
    passages: Tokens
    sentences: Tokens
    questions: Tokens
    sentence_starts: Tensor
    prefix: int
    sets: np.ndarray
    groups: np.ndarray
    group_of: np.ndarray
    positives: list[np.ndarray]
    by_words: list[np.ndarray]

    @property
    def device(self) -> torch.device:
        return self.passages.flat.device


def load(path: Path, device: str) -> Prepared:
    z = np.load(path)
    names = z["names"]
    return Prepared(
        Tokens(z["passages"], z["passage_starts"], device),
        Tokens(z["sentences"], z["sentence_rows"], device),
        Tokens(z["questions"], z["question_starts"], device),
        torch.from_numpy(z["sentence_starts"]).to(device),
        int(z["prefix"]),
        names[z["sets"]],
        z["groups"],
        z["group_of"],
        np.split(z["positives"], z["positive_starts"][1:-1]),
        np.split(z["by_words"], z["by_words_starts"][1:-1]),
    )


@torch.no_grad()
def embed_all(model: Encoder, texts: Tokens, limit: int, size: int = 4096) -> Tensor:
    """Unit vectors of all texts."""
    model.eval()
    w = model.effective()
    vectors = torch.empty(len(texts), 384, device=texts.flat.device)
    for rows in torch.argsort(texts.lengths).split(size):
        with half(rows):
            states = model(w, *texts.batch(rows, limit))
        vectors[rows] = F.normalize(states.float(), dim=-1)
    return vectors


def mixed(whole: Tensor, sentences: Tensor, owner: Tensor, weight: float = 2.0) -> Tensor:
    """Vectors of passages as the library stores them: the passage, and twice the mean of its sentences."""
    total = torch.zeros_like(whole).index_add(0, owner, sentences)
    return F.normalize(whole + weight * F.normalize(total, dim=-1, eps=1e-9), dim=-1)


@torch.no_grad()
def hard_negatives(model: Encoder, data: Prepared, keep: np.ndarray) -> list[np.ndarray]:
    """For each kept question the nearest wrong passages of its group, and those that share its words."""
    passages = embed_all(model, data.passages, PASSAGE_TOKENS)
    counts = data.sentence_starts.diff()
    some = torch.nonzero(counts)[:, 0]
    if len(some):
        owner = torch.repeat_interleave(torch.arange(len(counts), device=data.device), counts)
        passages = mixed(passages, embed_all(model, data.sentences, PASSAGE_TOKENS), owner)
    questions = embed_all(model, data.questions, QUESTION_TOKENS + data.prefix)
    found: list[np.ndarray] = [np.empty(0, np.int64)] * len(data.positives)
    for group in np.unique(data.group_of[keep]):
        asked = keep[data.group_of[keep] == group]
        first, last = data.groups[group], data.groups[group + 1]
        scores = questions[torch.from_numpy(asked).to(data.device)] @ passages[first:last].T
        values, rows = scores.topk(min(NEAREST, scores.shape[1]), dim=1)
        values, rows, scores = values.cpu().numpy(), rows.cpu().numpy() + first, scores.cpu().numpy()
        for row, question in enumerate(asked):
            right = data.positives[question]
            is_strict = data.sets[question] in STRICT
            limit = 9.0 if is_strict else scores[row][right - first].max() + MARGIN
            near = [one for one, value in zip(rows[row], values[row], strict=True) if value <= limit]
            words = data.by_words[question][: NEGATIVES // 3] if is_strict else ()
            merged = [one for place in range(NEAREST) for some in (near, words) for one in some[place : place + 1]]
            found[question] = np.array([one for one in dict.fromkeys(merged) if one not in right][:NEGATIVES])
    return found


@torch.no_grad()
def pair_scores(model: Encoder, data: Prepared, asked: Tensor, found: Tensor, size: int = 4096) -> Tensor:
    """The cross-encoder's score of each question with its passage."""
    model.eval()
    w = model.effective()
    scores = torch.empty(len(asked), device=asked.device)
    lengths = data.questions.lengths[asked] + data.passages.lengths[found].clamp(max=PASSAGE_TOKENS)
    for rows in torch.argsort(lengths).split(size):
        with half(asked):
            batch = pairs(
                data.questions, data.passages, asked[rows], found[rows], data.prefix, (QUESTION_TOKENS, PASSAGE_TOKENS)
            )
            scores[rows] = model(w, *batch).float()
    return scores


def score_in_parts(model: Encoder, data: Prepared, asked: Tensor, found: Tensor, parts: int) -> Tensor:
    """The same for one training step, with gradients."""
    w = model.effective()
    lengths = data.questions.lengths[asked] + data.passages.lengths[found].clamp(max=PASSAGE_TOKENS)
    order = list(by_length(lengths, parts))
    with half(asked):
        made = [
            model(
                w,
                *pairs(
                    data.questions,
                    data.passages,
                    asked[rows],
                    found[rows],
                    data.prefix,
                    (QUESTION_TOKENS, PASSAGE_TOKENS),
                ),
            )
            for rows in order
        ]
    scores = torch.cat(made).float()
    return torch.empty_like(scores).index_copy(0, torch.cat(order), scores)


def schedule(step: int, steps: int, warm_up: float = 0.08) -> float:
    """The learning rate as a share of its peak: up, then down in a line."""
    return min((step + 1) / (steps * warm_up + 1), max(0.02, (steps - step) / (steps * (1 - warm_up))))


class Optimizer:
    """AdamW with that schedule; vectors and norms are not decayed."""

    def __init__(self, model: Encoder, rate: float, steps: int, head_factor: float = 4.0) -> None:
        named = list(model.weights.items())
        heads = [p for n, p in named if n.startswith(("head", "score"))]
        matrices = [p for n, p in named if p.ndim > 1 and not n.startswith(("head", "score"))]
        vectors = [p for n, p in named if p.ndim == 1 and not n.startswith(("head", "score"))]
        groups = [
            {"params": matrices, "weight_decay": 0.01, "lr": rate},
            {"params": vectors, "weight_decay": 0.0, "lr": rate},
        ]
        if heads:
            groups.append({"params": heads, "weight_decay": 0.01, "lr": rate * head_factor})
        self._parameters = [p for _, p in named]
        self._adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=self._parameters[0].is_cuda)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._adam, lambda step: schedule(step, steps))

    def step(self, loss: Tensor) -> None:
        self._adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._adam.step()
        self._schedule.step()


def drawn(data: Prepared, chosen: np.ndarray) -> np.ndarray:
    """The chance of each question of `chosen`."""
    return np.array([WEIGHTS[name] for name in data.sets[chosen]])
