"""Retrieval quality compared with baselines, on data sets in a folder: `python benchmarks/quality.py FOLDER [--only
…]`.

Everything is stored and queried through the library, under opaque ids; only the scorer reads the gold labels. Questions
are split by a fixed hash: tuning uses the development part only, and the held-out part is printed next to it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from commonplace.embedding import create_embedder
from quality_cache import CachedEmbedder
from quality_data import DATASETS, Dataset
from quality_run import KEYWORDS, OURS, SYSTEMS, VECTORS, Ranking, rank_all
from quality_scores import DEFINITIONS, LINES, Line, interval

Scores = Mapping[tuple[str, str], float]
"""By system and question."""

PARTS = ("development", "held out", "all")


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table: each system's mean, the goal, and our difference from the better of our two parts."""

    dataset: str
    what: str
    part: str
    questions: int
    means: Mapping[str, float]
    goal: float | None
    interval: tuple[float, float]

    @property
    def reaches_goal(self) -> bool:
        return self.goal is None or round(self.means[OURS], 4) >= self.goal

    @property
    def keeps_up(self) -> bool:
        """Whether the fused ranking is not below the better part beyond chance."""
        return self.interval[1] >= 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of the data sets, which are not part of this repository")
    parser.add_argument("--only", action="append", choices=DATASETS, help="a set; may be given several times")
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="cache vectors there, which makes a second run fast"
    )
    parser.add_argument("--model", help="another embedding model than the default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args(arguments)
    embedder = create_embedder(options.model)
    if options.cache is not None:
        embedder = CachedEmbedder(embedder, options.cache)
    print(f"model: {embedder.identity}\n")
    for name, definition in DEFINITIONS.items():
        print(f"- {name}: {definition}")
    print("- development / held out: by a hash of the question's id; 95 % intervals by paired bootstrap\n")
    figures: list[Figure] = []
    for name in options.only or DATASETS:
        dataset = DATASETS[name](options.folder)
        rankings = list(rank_all(dataset, embedder, lambda line: print(line, file=sys.stderr, flush=True)))
        figures += report(dataset, rankings)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    return 0 if all(figure.reaches_goal and figure.keeps_up for figure in figures) else 1


def report(dataset: Dataset, rankings: Sequence[Ranking]) -> list[Figure]:
    """Print a set's table, with the goals and with the fused ranking against the better of its two parts."""
    development = {ranking.question.id for ranking in rankings if ranking.question.is_development}
    print(f"## {dataset.name}\n")
    print(f"| what | questions | {' | '.join(SYSTEMS)} | goal | ours − better part (95 %) |")
    print("| --- " * (len(SYSTEMS) + 4) + "|")
    figures = []
    for line in LINES[dataset.name]:
        scores = _scores(dataset, line, rankings)
        questions = sorted({question for _, question in scores})
        for part in PARTS:
            chosen = [id for id in questions if part == "all" or (id in development) == (part == "development")]
            if chosen:
                figures.append(_figure(dataset.name, line, part, scores, chosen))
                print(_row(figures[-1]), flush=True)
    print()
    return figures


def _scores(dataset: Dataset, line: Line, rankings: Iterable[Ranking]) -> Scores:
    relevant = dataset.gold.relevant[line.level]
    group = relevant.keys() if line.group is None else dataset.gold.groups[line.group]
    return {
        (ranking.system, ranking.question.id): line.measure(ranking.ids, relevant[ranking.question.id])
        for ranking in rankings
        if ranking.level == line.level and ranking.question.id in relevant and ranking.question.id in group
    }


def _figure(dataset: str, line: Line, part: str, scores: Scores, questions: Sequence[str]) -> Figure:
    means = {system: _mean([scores[system, id] for id in questions]) for system in SYSTEMS}
    better = max((KEYWORDS, VECTORS), key=lambda system: means[system])
    differences = [scores[OURS, id] - scores[better, id] for id in questions]
    what = f"{line.level} {line.name}" + (f", {line.group}" if line.group else "")
    goal = line.goal if part == "all" else None
    return Figure(dataset, what, part, len(questions), means, goal, interval(differences))


def _row(figure: Figure) -> str:
    low, high = figure.interval
    means = " | ".join(f"**{mean:.3f}**" if name == OURS else f"{mean:.3f}" for name, mean in figure.means.items())
    goal = "" if figure.goal is None else f"≥ {figure.goal} {'pass' if figure.reaches_goal else 'FAIL'}"
    difference = f"{low:+.3f} … {high:+.3f}{'' if figure.keeps_up else ' FAIL'}"
    return f"| {figure.what}, {figure.part} | {figure.questions} | {means} | {goal} | {difference} |"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    raise SystemExit(main())
