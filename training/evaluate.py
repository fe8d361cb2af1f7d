"""Stage 4: `python training/evaluate.py FOLDER --base model.onnx --weights student.pt --share 0.75 [--only locomo …]`.

Runs the benchmark of retrieval quality (benchmarks/quality.py) through the library with trained weights that are not
exported yet: `share` of the trained weights and the rest of the base's, rounded to the grid. Without --weights and
--difference it is the base model. Several processes share the work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from commonplace.embedding.catalog import ARCTIC_S
from commonplace.embedding.difference import unpack
from commonplace.embedding.onnx import WordPiece
from encoder import Base, Encoder, State, dithered, read_base, rounded
from quality import report
from quality_data import DATASETS
from quality_run import Ranking, rank_all

PARTS = {"longmemeval": 10, "assistant-chats": 4, "unnamed-needs": 6, "locomo": 5}
"""In how many parts a set is run; one for others."""

SETS = ("locomo", "unnamed-needs", "assistant-chats", "longmemeval", "scifact", "devbench", "precisionmembench")


def averaged(base: Base, trained: Sequence[State], share: float) -> State:
    """The mean of the trained weights and the base's, on the grid."""
    start = dithered(base, 0)
    state = dict(base.tensors)
    for name in state:
        if name in ("word", "position", "token_type"):
            continue
        mean = torch.stack([one[name] for one in trained]).mean(0)
        first = start[name]
        state[name] = first + share * (mean - first)
        if name in base.scales:
            state[name] = rounded(state[name], base.scales[name])
    return state


def with_difference(base: Base, packed: bytes) -> State:
    """The weights of a model that the package ships."""
    names = {in_file: name for name, in_file in base.file_names.items()}
    state = dict(base.tensors)
    for change in unpack(packed):
        name = names[change.name.removesuffix("_quantized")]
        if change.operation == "add":
            added = torch.from_numpy(np.frombuffer(change.values, np.int8).astype(np.float32))
            state[name] = (base.integers[name] + added.view_as(state[name])) * base.scales[name]
        else:
            state[name] = torch.from_numpy(np.frombuffer(change.values, np.float32).copy())
    return state


class TorchEmbedder:
    """The library's embedder over an encoder in PyTorch."""

    dimensions = 384
    reads_sentences = True
    is_loaded = True
    identity = "torch"

    def __init__(self, state: State, vocabulary: Path, *, calibration: tuple[float, float], device: str) -> None:
        self._model = Encoder(state).to(device).eval()
        self._weights = self._model.effective()
        self._words = WordPiece.from_file(vocabulary, max_tokens=ARCTIC_S.max_tokens)
        self._device = device
        self._known: dict[tuple[str, str], np.ndarray] = {}
        self.calibration = calibration

    @torch.no_grad()
    def embed(self, texts: Sequence[str], *, purpose: str) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if (purpose, text) not in self._known]
        prefix = ARCTIC_S.query_prefix if purpose == "query" else ""
        rows = [self._words.encode(prefix + text) for text in new]
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for start in range(0, len(order), 128):
            some = order[start : start + 128]
            lengths = torch.tensor([len(rows[row]) for row in some], device=self._device)
            ids = torch.zeros(len(some), int(lengths.max()), dtype=torch.long)
            for place, row in enumerate(some):
                ids[place, : len(rows[row])] = torch.tensor(rows[row])
            states = self._model(self._weights, ids.to(self._device), lengths)
            for row, vector in zip(some, F.normalize(states.float(), dim=-1).cpu().numpy(), strict=True):
                self._known[purpose, new[row]] = vector
        return np.stack([self._known[purpose, text] for text in texts])


@dataclass(frozen=True)
class Job:
    """A part of a set, with the model to embed it."""

    name: str
    part: int
    folder: Path
    state: State
    vocabulary: Path
    calibration: tuple[float, float]
    device: str


def run(job: Job) -> list[Ranking]:
    """The rankings of our search and of the baselines."""
    torch.set_num_threads(1)
    embedder = TorchEmbedder(job.state, job.vocabulary, calibration=job.calibration, device=job.device)
    whole = DATASETS[job.name](job.folder)
    dataset = replace(whole, corpora=lambda: islice(whole.corpora(), job.part, None, PARTS.get(job.name, 1)))
    return list(rank_all(dataset, embedder, lambda line: None))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the data sets, as benchmarks/quality.py reads them")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--weights", type=Path, nargs="*", default=[])
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--difference", type=Path, help="weights that are exported already")
    parser.add_argument("--calibration", type=float, nargs=2, default=(0.5, 0.85))
    parser.add_argument("--only", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=16)
    options = parser.parse_args(arguments)
    base = read_base(options.base)
    if options.difference is not None:
        state = with_difference(base, options.difference.read_bytes())
    elif options.weights:
        state = averaged(base, [torch.load(path) for path in options.weights], options.share)
    else:
        state = base.tensors
    low, high = options.calibration
    jobs = [
        Job(name, part, options.folder, state, options.vocabulary, (low, high), options.device)
        for name in options.only
        for part in range(PARTS.get(name, 1))
    ]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        made = list(pool.map(run, jobs))
    for name in options.only:
        some = [one for job, rankings in zip(jobs, made, strict=True) if job.name == name for one in rankings]
        report(DATASETS[name](options.folder), some)


if __name__ == "__main__":
    main()
