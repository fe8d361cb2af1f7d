"""Figures of the engine benchmark: how they are summarized, compared with a goal and printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table. Without a goal it is only for comparison, and `is_met` is None."""

    what: str
    result: str
    goal: str = ""
    is_met: bool | None = None

    @property
    def verdict(self) -> str:
        return "" if self.is_met is None else "pass" if self.is_met else "MISS"


@dataclass(slots=True)
class Report:
    """The table, printed as markdown while it grows."""

    figures: list[Figure] = field(default_factory=list)

    def begin(self) -> None:
        print("| what | result | goal | |\n| --- | --- | --- | --- |")

    def add(self, what: str, result: str, goal: str = "", is_met: bool | None = None) -> None:
        figure = Figure(what, result, goal, is_met)
        self.figures.append(figure)
        print(f"| {figure.what} | {figure.result} | {figure.goal} | {figure.verdict} |", flush=True)

    @property
    def missed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.is_met is False]


def quantile(seconds: Sequence[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def spread(seconds: Sequence[float]) -> str:
    return f"p50 {milliseconds(quantile(seconds, 0.5))}, p95 {milliseconds(quantile(seconds, 0.95))}"


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def database_bytes(path: Path) -> int:
    """The size of the database with its log; the lock files are empty."""
    return sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())
