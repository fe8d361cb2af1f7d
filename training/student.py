"""Stage 3, on a GPU: `python training/student.py --base model.onnx --prepared prepared.npz --out FOLDER`.

Trains the embedder on the grid of the base model: towards the right passage among all of a batch, and towards the
teacher's scores of a question's own candidates. Passages are embedded as the library does it, whole and by sentences.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from data import PASSAGE_TOKENS, QUESTION_TOKENS, Optimizer, Prepared, drawn, load, mixed
from encoder import Base, Encoder, State, Tokens, by_length, dithered, half, read_base
from prepare import SHARE_ALIKE

TEMPERATURE = 0.03
HARD = 6
AMONG = 20


class Candidates:
    """By question: right passages and hard negatives, with the mean of the teachers' scores."""

    def __init__(self, paths: Sequence[Path]) -> None:
        z = dict(np.load(paths[0]))
        for path in paths[1:]:
            # The passages of two teachers differ a little, because their negatives were looked up by two runs.
            other = np.load(path)
            known = {(a, f): score for a, f, score in zip(other["asked"], other["found"], other["scores"], strict=True)}
            pairs = zip(z["asked"], z["found"], z["scores"], strict=True)
            z["scores"] = np.array([(score + known.get((a, f), score)) / 2 for a, f, score in pairs], np.float32)
        order = np.lexsort((-z["is_right"].astype(int), z["asked"]))
        asked, found, right, scores = (z[name][order] for name in ("asked", "found", "is_right", "scores"))
        self.questions, starts = np.unique(asked, return_index=True)
        ends = np.append(starts[1:], len(asked))
        self.right, self.wrong = {}, {}
        for question, first, last in zip(self.questions, starts, ends, strict=True):
            middle = first + int(right[first:last].sum())
            self.right[question] = list(zip(found[first:middle], scores[first:middle], strict=True))
            self.wrong[question] = list(zip(found[middle:last], scores[middle:last], strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the teachers' scores")
    parser.add_argument("--name", default="student")
    parser.add_argument("--teachers", nargs="+", default=["teacher"], help="their names")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--without", nargs="*", default=(), help="sets to leave out, to see what they do")
    parser.add_argument("--epochs", type=float, default=2.4)
    parser.add_argument("--rate", type=float, default=4e-5)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--no-grid", action="store_true", help="train without rounding, to see what rounding costs")
    parser.add_argument("--share-alike", action="store_true", help="use the share-alike sets too (not for shipping)")
    parser.add_argument("--no-sentences", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    torch.set_float32_matmul_precision("high")
    base = read_base(options.base)
    data = load(options.prepared, options.device)
    state = train(
        data, base, Candidates([options.out / f"{name}-candidates.npz" for name in options.teachers]), options
    )
    torch.save(state, options.out / f"{options.name}.pt")


def train(data: Prepared, base: Base, candidates: Candidates, options: argparse.Namespace) -> State:
    torch.manual_seed(options.seed)
    chance = np.random.default_rng(options.seed)
    on_grid = not options.no_grid
    # One dither for all seeds, so that several results can be averaged.
    start_state = dithered(base, 0) if on_grid else base.tensors
    model = Encoder(start_state, scales=base.scales if on_grid else None).to(data.device)
    model.dropout = 0.1
    model.train()
    usable = np.array(
        [
            q
            for q in candidates.questions
            if len(candidates.wrong[q]) >= HARD
            and (options.share_alike or data.sets[q] not in SHARE_ALIKE)
            and data.sets[q] not in options.without
        ]
    )
    weights = drawn(data, usable)
    batch = options.batch
    steps = max(2, int(weights.sum() * options.epochs / batch))
    optimizer = Optimizer(model, options.rate, steps)
    size = 1 + HARD
    shares = weights / weights.sum()
    start = time.perf_counter()
    running = 0.0
    targets = torch.arange(batch, device=data.device) * size
    for step in range(steps):
        asked = chance.choice(usable, batch, replace=False, p=shares)
        found = np.empty((batch, size), np.int64)
        wanted = np.empty((batch, size), np.float32)
        for row, question in enumerate(asked):
            right = candidates.right[question]
            wrong = candidates.wrong[question]
            picked = chance.permutation(min(AMONG, len(wrong)))[:HARD]
            some = [right[chance.integers(len(right))], *(wrong[one] for one in picked)]
            found[row] = [one for one, _ in some]
            wanted[row] = [score for _, score in some]
        w = model.effective()
        questions = _questions(model, w, data, torch.from_numpy(asked).to(data.device))
        passages = _passages(model, w, data, torch.from_numpy(found.ravel()).to(data.device), not options.no_sentences)
        scores = questions @ passages.T / TEMPERATURE
        # Another right passage of the same question in the batch is not a mistake.
        also_right = np.zeros((batch, batch * size), bool)
        columns: dict[int, list[int]] = {}
        for column, passage in enumerate(found.ravel()):
            columns.setdefault(int(passage), []).append(column)
        for row, question in enumerate(asked):
            for passage in data.positives[question]:
                also_right[row, columns.get(int(passage), [])] = True
            also_right[row, row * size] = False
        scores_all = scores.masked_fill(torch.from_numpy(also_right).to(data.device), -1e4)
        own = scores.view(batch, batch, size).diagonal(dim1=0, dim2=1).T
        teacher = torch.from_numpy(wanted).to(data.device)
        loss = 0.5 * F.cross_entropy(scores_all, targets) + F.kl_div(
            own.log_softmax(-1), teacher.log_softmax(-1), log_target=True, reduction="batchmean"
        )
        optimizer.step(loss)
        running += float(loss.detach()) if step % 20 == 0 else 0.0
        if step % 200 == 199:
            seconds = time.perf_counter() - start
            print(f"  step {step + 1} of {steps}, loss {running / 10:.3f}, {seconds:.0f} s", flush=True)
            running = 0.0
    print(f"{options.name}: {steps} steps in {time.perf_counter() - start:.0f} s", flush=True)
    return model.state()


def _questions(model: Encoder, w: State, data: Prepared, rows: Tensor) -> Tensor:
    with half(rows):
        states = model(w, *data.questions.batch(rows, QUESTION_TOKENS + data.prefix))
    return F.normalize(states.float(), dim=-1)


def _passages(model: Encoder, w: State, data: Prepared, rows: Tensor, with_sentences: bool) -> Tensor:
    """Passages as the library embeds them."""
    counts = (data.sentence_starts[rows + 1] - data.sentence_starts[rows]) * int(with_sentences)
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
    within = torch.arange(len(owner), device=rows.device) - (counts.cumsum(0) - counts)[owner]
    pieces = data.sentence_starts[rows][owner] + within
    whole = _vectors(model, w, data.passages, rows, 3)
    if not len(owner):
        return whole
    return mixed(whole, _vectors(model, w, data.sentences, pieces, 2), owner)


def _vectors(model: Encoder, w: State, texts: Tokens, rows: Tensor, parts: int) -> Tensor:
    order = list(by_length(texts.lengths[rows], parts))
    with half(rows):
        made = [model(w, *texts.batch(rows[some], PASSAGE_TOKENS)) for some in order]
    states = F.normalize(torch.cat(made).float(), dim=-1)
    return torch.empty_like(states).index_copy(0, torch.cat(order), states)


if __name__ == "__main__":
    main()
