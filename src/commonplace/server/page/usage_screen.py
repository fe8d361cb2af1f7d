"""Usage: how much is remembered, how often it is written and searched, how fast, and how often in vain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

from commonplace.errors import InvalidInput
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.visit import Visit, VisitOf
from commonplace.server.usage import DayOfSearches, last_days, total
from commonplace.space.names import DIRECTORY, FILE, ITEM, MESSAGE, RECORD, THREAD, WORKING
from commonplace.store import NamespaceStats, Usage

RANGES = (7, 30, 90)
KINDS = {
    DIRECTORY: ("directory", "directories"),
    FILE: ("file", "files"),
    ITEM: ("item", "items"),
    MESSAGE: ("message", "messages"),
    RECORD: ("record", "records"),
    THREAD: ("thread", "threads"),
    WORKING: ("working memory", "working memories"),
}
Unit = Literal["number", "ms", "size"]
router = APIRouter(route_class=ThreadedRoute)


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot, with a value for each day; None where nothing is known."""

    label: str
    unit: Unit
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot and the table with the same numbers."""

    title: str
    hint: str
    days: tuple[date, ...]
    series: tuple[Series, ...]

    @property
    def rows(self) -> list[tuple[date, tuple[float | None, ...]]]:
        """The lines of the table, the newest first, without days on which nothing happened."""
        rows = zip(self.days, zip(*(one.values for one in self.series), strict=True), strict=True)
        return [row for row in rows if any(row[1])][::-1]

    @property
    def data(self) -> Mapping[str, object]:
        """What the script draws."""
        at_midnight = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in self.days]
        series = [{"label": one.label, "unit": one.unit, "values": one.values} for one in self.series]
        return {"days": [round(time.timestamp()) for time in at_midnight], "series": series}


@router.get(f"{PAGE_PATH}/usage", include_in_schema=False)
def usage(visit: VisitOf) -> Response:
    count = _range(visit)
    counters = visit.service.searches
    days = last_days(counters.today(), count)
    stats = visit.space.stats()
    found = counters.days(visit.space.namespace, days[0])
    writes = visit.service.commit_days.counts(visit.space, days, stats.commit)
    return visit.render(
        "usage.html",
        ranges=RANGES,
        count=count,
        stats=stats,
        entries=sum(stats.entries.values()),
        kinds=_kinds(stats.entries),
        writes=sum(writes),
        total=total(found.values()),
        plots=_plots(days, found, writes, stats),
    )


def _range(visit: Visit) -> int:
    written = visit.param("days", "30")
    if written not in map(str, RANGES):
        raise InvalidInput(f"days must be one of {', '.join(map(str, RANGES))}")
    return int(written)


def _kinds(entries: Mapping[str, int]) -> str:
    """How many entries of each kind there are, in words."""
    named = [f"{count:,} {KINDS[kind][count != 1]}" for kind, count in sorted(entries.items()) if count]
    return " and ".join((", ".join(named[:-1]), named[-1])) if len(named) > 1 else "".join(named)


def _plots(
    days: Sequence[date], found: Mapping[date, DayOfSearches], writes: Sequence[int], stats: NamespaceStats
) -> list[Plot]:
    known = [found.get(day, DayOfSearches(day)) for day in days]
    counts = [day.counts for day in known]
    now = Usage(sum(stats.entries.values()), stats.bytes, former_bytes=stats.former_bytes)
    sizes = [*(day.size for day in known[:-1]), now]

    def line(label: str, unit: Unit, values: Sequence[float | None]) -> Series:
        return Series(label, unit, tuple(values))

    def plot(title: str, hint: str, *series: Series) -> Plot:
        return Plot(title, hint, tuple(days), series)

    def of_size(read: Callable[[Usage], int]) -> list[float | None]:
        return [None if size is None else read(size) for size in sizes]

    def latency(share: float) -> list[float | None]:
        return [None if (seconds := one.percentile(share)) is None else round(seconds * 1_000, 1) for one in counts]

    return [
        plot(
            "Writes and searches a day",
            "Writes are commits of any program. Searches are those that went through a service or an MCP server.",
            line("Writes", "number", writes),
            line("Searches", "number", [one.searches for one in counts]),
        ),
        plot(
            "Latency of a search",
            "Half of the searches were at most as slow as p50, 19 of 20 as p95.",
            line("p50", "ms", latency(0.5)),
            line("p95", "ms", latency(0.95)),
        ),
        plot(
            "Searches with no good hit",
            "What was asked and is not remembered, or is worded too differently. The questions are not kept.",
            line("No good hit", "number", [one.without_good_hit for one in counts]),
            line("All searches", "number", [one.searches for one in counts]),
        ),
        plot(
            "Entries", "On days with searches, and now.", line("Entries", "number", of_size(lambda size: size.entries))
        ),
        plot(
            "Size",
            "On days with searches, and now. History is what undo and as-of need.",
            line("Entries", "size", of_size(lambda size: size.bytes)),
            line("History", "size", of_size(lambda size: size.former_bytes)),
        ),
    ]
