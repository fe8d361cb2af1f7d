"""The measurements of one system: times in rounds, so that a disturbance in one round does not decide a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from engine_report import quantile
from peers_targets import Target

Rounds = list[Sequence[float]]


def at(rounds: Sequence[Sequence[float]], share: float) -> float:
    """The median of the rounds' quantiles."""
    return median(quantile(times, share) for times in rounds if times)


@dataclass(slots=True)
class Search:
    """At one size: the times, the process's memory, and how long filling took."""

    size: int
    resident: int
    fill_seconds: float
    rounds: Rounds = field(default_factory=list)
    baseline: Rounds = field(default_factory=list)


@dataclass(slots=True)
class Measured:
    """A row, as far as it got; `problems` say where it failed."""

    target: Target
    installed: int = 0
    starts: list[float] = field(default_factory=list)
    single: Rounds = field(default_factory=list)
    together: Rounds = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Adds per second of several clients, by round."""
    syncs: float | None = None
    journals: tuple[str, ...] = ()
    searches: list[Search] = field(default_factory=list)
    acknowledged: int = 0
    found: int = 0
    refused: int = 0
    unreached: int = 0
    refusal: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def is_durable(self) -> bool:
        return not self.target.loses_all and not self.target.unsynced and (self.syncs or 0) >= 1

    @property
    def is_server(self) -> bool:
        return self.target.kind == "server" or self.target.server is not None

    def reached(self, size: int) -> Search | None:
        return next((search for search in self.searches if search.size >= size and search.rounds), None)

    def refuse(self, count: int, said: str) -> None:
        self.refused += count
        self.refusal = said or self.refusal
