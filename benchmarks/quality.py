"""Retrieval quality compared with baselines, on data sets in a folder: `python benchmarks/quality.py FOLDER [--only
…]`.

Everything is stored and queried through the library, under opaque ids; only the scorer reads the gold labels. Questions
are split by a fixed hash: tuning uses the development part only, and the held-out part is printed next to it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path

from commonplace.embedding import create_embedder
from quality_cache import CachedEmbedder
from quality_data import DATASETS, Dataset, unnamed_needs
from quality_run import OURS, RIVALS, SYSTEMS, VECTORS, Ranking, rank_all
from quality_scores import CHECKED, DEFINITIONS, LINES, Line, interval

Scores = Mapping[tuple[str, str], float]
"""By system and question."""

PARTS = ("development", "held out", "all")
FEWEST = 8
"""A type with fewer questions is shown without a verdict: an interval of so few says nothing."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of a table: each system's mean, the goal, and our difference from each rival with its interval."""

    dataset: str
    what: str
    part: str
    questions: int
    means: Mapping[str, float]
    goal: float | None
    intervals: Mapping[str, tuple[float, float]]
    is_pooled: bool = False
    """Whether our mean itself must not be below that of a rival."""

    @property
    def reaches_goal(self) -> bool:
        return self.goal is None or round(self.means[OURS], 4) >= self.goal

    @property
    def best_rival(self) -> str:
        return max(RIVALS, key=lambda system: self.means[system])

    @property
    def ahead_of_us(self) -> list[str]:
        """The rivals that our ranking is below: beyond chance, or at all for the questions of a set together."""
        if self.questions < FEWEST:
            return []
        return [
            rival
            for rival in RIVALS
            if self.intervals[rival][1] < 0
            or (self.is_pooled and round(self.means[OURS], 6) < round(self.means[rival], 6))
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of the data sets, which are not part of this repository")
    parser.add_argument("--only", action="append", choices=DATASETS, help="a set; may be given several times")
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="cache vectors there, which makes a second run fast"
    )
    parser.add_argument(
        "--held-back", action="store_true", help="score the held-back half of unnamed-needs too; look at it once"
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
        is_held_back = options.held_back and name == "unnamed-needs"
        dataset = unnamed_needs(options.folder, held_back=True) if is_held_back else DATASETS[name](options.folder)
        rankings = list(rank_all(dataset, embedder, lambda line: print(line, file=sys.stderr, flush=True)))
        figures += report(dataset, rankings)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    failures = [figure for figure in figures if figure.ahead_of_us or not figure.reaches_goal]
    print("Every goal is reached, and nothing is below a part of it." if not failures else "Not as it must be:\n")
    for figure in failures:
        print(f"- {_failure(figure)}")
    return 1 if failures else 0


def report(dataset: Dataset, rankings: Sequence[Ranking]) -> list[Figure]:
    """Print a set's two tables: the official figures with their goals, and every question type against the rivals."""
    development = {ranking.question.id for ranking in rankings if ranking.question.is_development}
    print(f"## {dataset.name}\n")
    figures = _table(dataset, LINES[dataset.name], rankings, development, PARTS)
    print("By question type; our search must not be below BM25, vectors or RRF:\n")
    lines = [
        Line(level, name, measure, type)
        for level in dataset.levels
        for type in (None, *dataset.gold.types)
        for name, measure in CHECKED.items()
    ]
    return figures + _table(dataset, lines, rankings, development, ("development", "all"), are_checked=True)


def _table(
    dataset: Dataset,
    lines: Iterable[Line],
    rankings: Sequence[Ranking],
    development: Set[str],
    parts: Sequence[str],
    *,
    are_checked: bool = False,
) -> list[Figure]:
    print(f"| what | questions | {' | '.join(SYSTEMS)} | goal | ours − best rival (95 %) |")
    print("| --- " * (len(SYSTEMS) + 4) + "|")
    figures = []
    for line in lines:
        scores = _scores(dataset, line, rankings)
        questions = sorted({question for _, question in scores})
        for part in parts:
            chosen = [id for id in questions if part == "all" or (id in development) == (part == "development")]
            if chosen:
                is_pooled = are_checked and line.group is None
                figures.append(_figure(dataset.name, line, part, scores, chosen, is_pooled=is_pooled))
                print(_row(figures[-1]), flush=True)
    print()
    return figures


def _scores(dataset: Dataset, line: Line, rankings: Iterable[Ranking]) -> Scores:
    relevant = dataset.gold.relevant[line.level]
    groups = {**dataset.gold.groups, **dataset.gold.types}
    group = relevant.keys() if line.group is None else groups[line.group]
    return {
        (ranking.system, ranking.question.id): line.measure(ranking.ids, relevant[ranking.question.id])
        for ranking in rankings
        if ranking.level == line.level and ranking.question.id in relevant and ranking.question.id in group
    }


def _figure(
    dataset: str, line: Line, part: str, scores: Scores, questions: Sequence[str], *, is_pooled: bool
) -> Figure:
    means = {system: _mean([scores[system, id] for id in questions]) for system in SYSTEMS}
    intervals = {rival: interval([scores[OURS, id] - scores[rival, id] for id in questions]) for rival in RIVALS}
    what = f"{line.level} {line.name}" + (f", {line.group}" if line.group else "")
    goal = line.goal if line.margin is None else round(means[VECTORS] + line.margin, 4)
    return Figure(dataset, what, part, len(questions), means, goal if part == "all" else None, intervals, is_pooled)


def _row(figure: Figure) -> str:
    low, high = figure.intervals[figure.best_rival]
    means = " | ".join(f"**{mean:.3f}**" if name == OURS else f"{mean:.3f}" for name, mean in figure.means.items())
    goal = "" if figure.goal is None else f"≥ {figure.goal} {'pass' if figure.reaches_goal else 'FAIL'}"
    failed = f" FAIL: {', '.join(figure.ahead_of_us)}" if figure.ahead_of_us else ""
    return (
        f"| {figure.what}, {figure.part} | {figure.questions} | {means} | {goal} | {low:+.3f} … {high:+.3f}{failed} |"
    )


def _failure(figure: Figure) -> str:
    ours = f"{figure.dataset}, {figure.what}, {figure.part}: {figure.means[OURS]:.4f}"
    goal = "" if figure.reaches_goal else f", the goal is {figure.goal}"
    return ours + goal + "".join(f", {rival} has {figure.means[rival]:.4f}" for rival in figure.ahead_of_us)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    raise SystemExit(main())
