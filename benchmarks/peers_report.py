"""The report of the peers' benchmark: three tables, the goals with the reasons for missed ones, and a plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from statistics import median
from typing import Any

from engine_report import milliseconds
from peers_measured import Measured, at
from peers_run import ADDS_A_PROCESS, CLIENTS, PROCESSES

TIMES_BASELINE = 1.5


def page(rows: Sequence[Measured], sizes: Sequence[int], about: str) -> str:
    parts = [about, _first(rows), _adds(rows), _searches(rows, sizes), _goals(rows, sizes), _notes(rows)]
    return "\n\n".join(part for part in parts if part)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _name(row: Measured) -> str:
    return f"**{row.target.name}**" if row.target.is_ours else row.target.name


def _first(rows: Sequence[Measured]) -> str:
    head = (
        "",
        "installed",
        "start-up",
        "syncs an add",
        "survives a power cut",
        f"lost of {PROCESSES} × {ADDS_A_PROCESS}",
    )
    return _table(head, [_first_line(row) for row in rows])


def _first_line(row: Measured) -> Sequence[str]:
    start = milliseconds(median(row.starts)) if row.starts else "–"
    return (
        _name(row),
        f"{row.installed / 1e6:,.0f} MB" if row.installed else "–",
        start + (" to `initialize`" if row.starts and row.is_server else ""),
        "–" if row.syncs is None else f"{row.syncs:g}",
        _survives(row),
        _lost(row),
    )


def _survives(row: Measured) -> str:
    if row.target.loses_all:
        return "nothing: it is in memory only"
    if row.syncs is None:
        return "–"
    if row.target.unsynced:
        return f"not the last adds: {row.target.unsynced}"
    journal = f" (SQLite, {', '.join(row.journals)})" if row.journals else ""
    return f"every answered add{journal}" if row.is_durable else f"not the last adds{journal}"


def _lost(row: Measured) -> str:
    if row.target.loses_all:
        return "one process only"
    if not row.acknowledged:
        return "–"
    lost = row.acknowledged - row.found
    refused = PROCESSES * ADDS_A_PROCESS - row.acknowledged - row.unreached
    more = (f"; {refused} refused" if refused else "") + (
        f"; {row.unreached} not tried in time" if row.unreached else ""
    )
    return f"{max(0, lost)}{more}"


def _adds(rows: Sequence[Measured]) -> str:
    head = ("add", "1 client, p50", "p95", "adds/s", f"{CLIENTS} clients, p50", "p95", "adds/s")
    lines = []
    for row in rows:
        if any(row.single):
            rate = median(len(times) / sum(times) for times in row.single if times)
            one = [milliseconds(at(row.single, 0.5)), milliseconds(at(row.single, 0.95)), f"{rate:,.0f}"]
            many = ["–"] * 3
            if any(row.together):
                p50, p95 = (milliseconds(at(row.together, share)) for share in (0.5, 0.95))
                many = [p50, p95, f"{median(row.rates):,.0f}"]
            lines.append((_name(row), *one, *many))
    return _table(head, lines)


def _searches(rows: Sequence[Measured], sizes: Sequence[int]) -> str:
    head = ["search", "model's time", *(f"{size:,}: p50, p95, RAM" for size in sizes)]
    lines = []
    for row in rows:
        cells = [_name(row), "in it" if row.target.has_model_time else "not in it"]
        for number, size in enumerate(sizes):
            if number >= len(row.searches) or not any(row.searches[number].rounds):
                cells.append("–")
                continue
            here = row.searches[number]
            reached = "" if here.size >= size else f" (at {here.size:,}, filled in {here.fill_seconds:.0f} s)"
            p50, p95 = (milliseconds(at(here.rounds, share)) for share in (0.5, 0.95))
            cells.append(f"{p50}, {p95}, {here.resident / 1e6:,.0f} MB{reached}")
        if row.searches:
            lines.append(cells)
    return _table(head, lines)


def _goals(rows: Sequence[Measured], sizes: Sequence[int]) -> str:
    """Our row compared with others whose adds survive a power cut, and our search compared with its lower bound."""
    ours = next((row for row in rows if row.target.is_ours and any(row.single)), None)
    if ours is None:
        return ""
    peers = [row for row in rows if not row.target.is_ours and row.is_durable and any(row.single)]
    many = [row for row in peers if row.rates]
    lines = [
        _place("add, p50 with 1 client", ours, peers, lambda row: at(row.single, 0.5), milliseconds),
        _place("add, p95 with 1 client", ours, peers, lambda row: at(row.single, 0.95), milliseconds),
    ]
    if ours.rates:
        what = f"adds/s with {CLIENTS} clients"
        lines.append(_place(what, ours, many, lambda row: -median(row.rates), lambda figure: f"{-figure:,.0f}"))
    lines += _search_places(ours, peers, sizes)
    losing = [row for row in peers if row.acknowledged]
    if ours.acknowledged:
        lines.append(_place("lost writes", ours, losing, lambda row: row.acknowledged - row.found, str))
    server = next((row for row in rows if row.target.is_ours and row.target.kind == "server" and row.starts), None)
    if server is not None:
        others = [row for row in rows if row.is_server and row.target.is_python and row.starts]
        others = [row for row in others if not row.target.is_ours]
        what = "start-up among Python servers, whatever they keep"
        lines.append(_place(what, server, others, lambda row: median(row.starts), milliseconds))
    lines += [_with_baseline(row) for row in rows if row.searches and row.searches[-1].baseline]
    return _table(("among those that survive a power cut", "ours", "the best other", ""), lines)


def _search_places(ours: Measured, peers: Sequence[Measured], sizes: Sequence[int]) -> list[Sequence[str]]:
    """Each peer is compared at the largest size that it and ours have reached."""
    lines: list[Sequence[str]] = []
    left = list(peers)
    for size in sorted(sizes, reverse=True):
        there = [row for row in left if row.reached(size)]
        if not ours.reached(size) or (not there and size < sizes[-1]):
            continue
        left = [row for row in left if row not in there]

        def figure(row: Measured, size: int = size) -> float:
            search = row.reached(size)
            assert search is not None
            return at(search.rounds, 0.95)

        what = f"search, p95 at {size:,}" + ("" if size == sizes[-1] else ", with the stores that got no further")
        lines.append(_place(what, ours, there, figure, milliseconds))
    if left:
        lines.append(("search", "–", f"{', '.join(row.target.name for row in left)} reached no size", "first"))
    return lines


def _place(
    what: str,
    ours: Measured,
    others: Sequence[Measured],
    figure: Callable[[Measured], float],
    worded: Callable[[float], str],
) -> Sequence[str]:
    if not others:
        return what, worded(figure(ours)), "none got so far", "first"
    best = min(others, key=figure)
    place = "first" if figure(ours) <= figure(best) else "NOT FIRST"
    return what, worded(figure(ours)), f"{worded(figure(best))}, {best.target.name}", place


def _with_baseline(row: Measured) -> Sequence[str]:
    here = row.searches[-1]
    needed, taken = at(here.baseline, 0.95), at(here.rounds, 0.95)
    return (
        f"search with the model, p95 at {here.size:,}, against {TIMES_BASELINE} × the model and an exact scan in numpy",
        milliseconds(taken),
        f"{TIMES_BASELINE} × {milliseconds(needed)} = {milliseconds(TIMES_BASELINE * needed)}",
        "pass" if taken <= TIMES_BASELINE * needed else "MISS",
    )


def _notes(rows: Sequence[Measured]) -> str:
    lines = []
    for row in rows:
        note = f"- {row.target.name}: {row.target.uses}."
        note += "".join(f" It broke: {problem.rstrip('.')}." for problem in row.problems)
        if row.refused:
            note += f" {row.refused} adds were refused, with {row.refusal.rstrip('.')}."
        lines.append(note)
    return "\n".join(lines)


def figures(row: Measured) -> dict[str, Any]:
    """A row as the report keeps it; what was not measured is None."""
    return {
        "name": row.target.name,
        "is_ours": row.target.is_ours,
        "installed_mb": round(row.installed / 1e6, 1) or None,
        "start_ms": round(median(row.starts) * 1e3, 2) if row.starts else None,
        "add_p50_ms": round(at(row.single, 0.5) * 1e3, 3) if any(row.single) else None,
        "adds_per_second": median(len(times) / sum(times) for times in row.single if times)
        if any(row.single)
        else None,
        "adds_per_second_together": median(row.rates) if any(row.together) else None,
        "survives_power_cut": False if row.target.loses_all else None if row.syncs is None else row.is_durable,
        "lost": _lost(row),
        "searches": [
            {
                "size": search.size,
                "p50_ms": round(at(search.rounds, 0.5) * 1e3, 3),
                "p95_ms": round(at(search.rounds, 0.95) * 1e3, 3),
                "ram_mb": round(search.resident / 1e6),
            }
            for search in row.searches
            if any(search.rounds)
        ],
        "problems": row.problems,
    }


# The plot

WIDTH, LABEL, BAR, GAP, PANEL = 760, 190, 14, 6, 26


def bars(rows: Sequence[Measured]) -> str:
    """Two panels of bars on a logarithmic scale: add p50, and search p95 at the last size that a row reached."""
    adds = [(row, at(row.single, 0.5), "") for row in rows if any(row.single)]
    last = [(row, search) for row in rows for search in row.searches[-1:] if any(search.rounds)]
    found = [(row, at(search.rounds, 0.95), f" at {search.size:,}") for row, search in last]
    parts: list[str] = []
    top = 0
    for title, values in (("add, p50, 1 client", adds), ("search, p95, at the largest size reached", found)):
        parts.append(f'<text x="4" y="{top + 17}" class="title">{escape(title)} (ms, logarithmic)</text>')
        top += PANEL
        times = [seconds * 1e3 for _, seconds, _ in values]
        low = math.floor(math.log10(min(times, default=1.0)) - 0.3)
        scale = (WIDTH - LABEL - 170) / (math.log10(max(times, default=10.0)) - low)
        for row, seconds, remark in values:
            length = max(2.0, (math.log10(seconds * 1e3) - low) * scale)
            fill = "#1f6f5c" if row.target.is_ours else "#6b7a90" if row.is_durable else "#c3cad5"
            middle = top + BAR - 3
            parts += [
                f'<text x="{LABEL - 6}" y="{middle}" text-anchor="end">{escape(row.target.name)}</text>',
                f'<rect x="{LABEL}" y="{top}" width="{length:.0f}" height="{BAR}" fill="{fill}"/>',
                f'<text x="{LABEL + length + 5:.0f}" y="{middle}">{milliseconds(seconds)}{remark}</text>',
            ]
            top += BAR + GAP
        top += GAP
    parts.append(f'<text x="4" y="{top + 14}">green: ours; dark: survives a power cut; pale: does not</text>')
    style = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 24}" role="img">'
        f"<style>{style}</style>\n"
        + '<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
