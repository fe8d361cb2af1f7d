"""Stage 2, on a GPU: `python training/teacher.py --base model.onnx --prepared prepared.npz --out FOLDER`.

Finds hard negatives with the base model, trains a cross-encoder that reads question and passage together, and writes
its scores of each question's candidates, which the embedder learns from (`teacher-candidates.npz`). The embedder can
learn from the mean of several teachers with a --name and --seed each.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from data import Optimizer, Prepared, drawn, hard_negatives, load, pair_scores, score_in_parts
from encoder import Encoder, State, read_base
from prepare import SHARE_ALIKE

HARDEST = 14
POSITIVES = 4


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--name", default="teacher", help="of the weights; the scores are NAME-candidates.npz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps, to try the code")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    base = read_base(options.base)
    data = load(options.prepared, options.device)
    start = time.perf_counter()
    negatives = hard_negatives(Encoder(base.tensors).to(options.device), data, np.arange(len(data.sets)))
    scored = np.array([row for row, some in enumerate(negatives) if len(some) >= 4])
    usable = np.array([row for row in scored if data.sets[row] not in SHARE_ALIKE])
    print(f"{len(usable):,} questions with negatives in {time.perf_counter() - start:.0f} s", flush=True)
    seed = options.seed
    state = train(data, negatives, usable, base.tensors, epochs=1.6 * options.scale, rate=5e-5, size=12, seed=seed)
    state = train(data, negatives, usable, state, epochs=2 * options.scale, rate=4e-5, size=16, seed=seed + 1)
    torch.save(state, options.out / f"{options.name}.pt")
    write_candidates(data, negatives, scored, state, options.out / f"{options.name}-candidates.npz")


def train(
    data: Prepared,
    negatives: list[np.ndarray],
    usable: np.ndarray,
    state: State,
    *,
    epochs: float,
    rate: float,
    size: int,
    seed: int,
    layers: int = 12,
    teacher_scores: dict[int, dict[int, float]] | None = None,
    batch: int = 64,
) -> State:
    """Softmax over one right passage and `size` - 1 wrong ones; with the teacher's scores, also towards those."""
    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    shuffled = random.Random(seed)
    model = Encoder(state, layers=layers, with_head=True, seed=seed).to(data.device)
    model.dropout = 0.1
    model.train()
    weights = drawn(data, usable)
    shares = weights / weights.sum()
    steps = max(2, int(weights.sum() * epochs / batch))
    optimizer = Optimizer(model, rate, steps)
    start = time.perf_counter()
    running = 0.0
    for step in range(steps):
        asked, found = [], []
        for question in chance.choice(usable, batch, p=shares):
            right = data.positives[question]
            hard = list(negatives[question][:HARDEST])
            shuffled.shuffle(hard)
            some = [shuffled.choice(list(right)), *hard[: size - 4]]
            rest = list(negatives[question][HARDEST:])
            some += shuffled.sample(rest, min(3, len(rest)))
            group = data.group_of[question]
            while len(some) < size:
                one = shuffled.randrange(data.groups[group], data.groups[group + 1])
                some += [one] if one not in right else []
            asked += [question] * size
            found += some[:size]
        rows = torch.tensor(np.array([asked, found]), device=data.device)
        scores = score_in_parts(model, data, rows[0], rows[1], 3).view(batch, size)
        loss = F.cross_entropy(scores, torch.zeros(batch, dtype=torch.long, device=data.device))
        if teacher_scores is not None:
            wanted = torch.tensor(
                [[teacher_scores[q].get(p, -9.0) for q, p in zip(asked[i : i + size], found[i : i + size], strict=True)]
                 for i in range(0, len(asked), size)], device=data.device,
            )  # fmt: skip
            distance = F.kl_div(scores.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean")
            loss = 0.4 * loss + distance
        optimizer.step(loss)
        running += float(loss.detach()) if step % 20 == 0 else 0.0
        if step % 200 == 199:
            seconds = time.perf_counter() - start
            print(f"  step {step + 1} of {steps}, loss {running / 10:.3f}, {seconds:.0f} s", flush=True)
            running = 0.0
    print(f"{layers} layers, {steps} steps in {time.perf_counter() - start:.0f} s", flush=True)
    return model.state()


def write_candidates(data: Prepared, negatives: list[np.ndarray], usable: np.ndarray, state: State, path: Path) -> None:
    """Each question's right passages (a few) and hard negatives with the teacher's scores."""
    asked, found, is_right = [], [], []
    for question in usable:
        for some, right in ((data.positives[question][:POSITIVES], True), (negatives[question], False)):
            asked += [question] * len(some)
            found += list(some)
            is_right += [right] * len(some)
    model = Encoder(state, with_head=True).to(data.device)
    rows = torch.tensor(np.array([asked, found]), device=data.device)
    start = time.perf_counter()
    scores = pair_scores(model, data, rows[0], rows[1])
    print(f"{len(asked):,} pairs scored in {time.perf_counter() - start:.0f} s", flush=True)
    np.savez(path, asked=np.array(asked), found=np.array(found), is_right=np.array(is_right), scores=scores.cpu())


if __name__ == "__main__":
    main()
