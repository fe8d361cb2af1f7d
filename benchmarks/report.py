"""The report: runs the benchmarks of quality and of peers, and writes one page with plots and the machine it ran on.

`python benchmarks/report.py [--data FOLDER]` takes about half an hour for the peers and, with the data sets, hours for
quality on 2 cores. It writes docs/internal/report/, the tables of docs/internal/benchmarks.md, and that of README.md.
`--quick` takes a few minutes: one peer, 1,000 memories and the two smallest sets; it writes to out/report/ only.
`--render` writes the page and README.md again from the figures of the newest run, and measures nothing.

The newest run is kept in docs/internal/report/figures.json. A test compares README.md with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "internal" / "report"
QUICK = ROOT / "out" / "report"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
IN_README = ("commonplace", "ChromaDB", "LangGraph SqliteStore", "mem0", "server-memory (npm)")
LARGEST = 100_000
QUICK_PEERS = ("--peers", "commonplace,server-memory (npm)", "--sizes", "1000", "--time-limit", "10")
QUICK_SETS = ("--only", "devbench", "--only", "precisionmembench")
SHOWN = {
    "LongMemEval-S": ("session recall_all@5", "turn recall_all@10"),
    "LoCoMo": ("session recall@5", "turn recall@10"),
    "Needs not named": ("turn hit@5",),
    "SciFact": ("document nDCG@10",),
    "DevBench": ("document nDCG@10",),
    "PrecisionMemBench": ("document nDCG@10",),
}
"""The lines of each set that the page shows."""

SURVIVES = {True: "yes", False: "no", None: "–"}

Figures = Mapping[str, Any]


def main() -> int:
    options = _options()
    if options.render:
        return _write(json.loads((KEPT / "figures.json").read_text(encoding="utf-8")), KEPT, README)
    folder = QUICK if options.quick else KEPT
    figures: dict[str, Any] = {}
    if not options.quick and (KEPT / "figures.json").exists():
        figures = json.loads((KEPT / "figures.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        taken = Path(name) / "figures.json"
        peers = QUICK_PEERS if options.quick else ("--write",)
        figures["peers"] = _run("peers.py", taken, [*peers, "--json", str(taken)], options.quick)
        if options.data is None:
            print("quality is left out: name the folder of the data sets with --data", file=sys.stderr)
        else:
            chosen = QUICK_SETS if options.quick else ()
            arguments = [str(options.data), *chosen, "--json", str(taken)]
            figures["quality"] = _run("quality.py", taken, arguments, options.quick)
    return _write(figures, folder, None if options.quick else README)


def _run(script: str, taken: Path, arguments: Sequence[str], is_quick: bool) -> dict[str, Any]:
    """What a benchmark measured, with the machine and the time. Quality exits with 1 if it misses a goal."""
    taken.unlink(missing_ok=True)
    began, load = time.monotonic(), os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments], stdout=sys.stderr, check=False
    )
    if not taken.exists():
        sys.exit(f"{script} ended with {done.returncode} and wrote no figures")
    return {
        "run": {
            "date": time.strftime("%Y-%m-%d"),
            "commit": _commit(),
            "form": "quick" if is_quick else "full",
            "minutes": round((time.monotonic() - began) / 60, 1),
            "load_before": round(load, 1),
            "load_after": round(os.getloadavg()[0], 1),
            "machine": machine(),
        },
        "rows": json.loads(taken.read_text(encoding="utf-8")),
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


# The page


def _write(figures: Figures, folder: Path, readme: Path | None) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "figures.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, plot in plots(figures).items():
        (folder / name).write_text(plot, encoding="utf-8")
    (folder / "index.md").write_text(page(figures), encoding="utf-8")
    if readme is not None:
        before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        readme.write_text(f"{before}{BEGIN}\n{readme_table(figures)}\n{END}{after}", encoding="utf-8")
    print(f"{folder.relative_to(ROOT)}/index.md")
    return 0


def page(figures: Figures) -> str:
    parts = [
        "<!-- Made by `make bench-report`; do not edit. -->",
        "# Report",
        "The newest run of the benchmarks of peers and of quality. [Benchmarks](../benchmarks.md) has the methods and "
        "more measurements. Only compare figures of one run.",
    ]
    peers, quality = figures["peers"], figures.get("quality")
    size = _size(peers)
    parts += [
        "## Beside other memory systems",
        _about(peers["run"]),
        f"![Search of {size:,} memories](search.svg)",
        "![Adds per second](adds.svg)",
        _peers_table(peers, size),
    ]
    if quality is not None:
        parts += [
            "## Retrieval quality",
            _about(quality["run"]),
            "commonplace beside its own two indexes alone, their reciprocal ranks (RRF), and counting words (grep).",
            "![Retrieval quality](quality.svg)",
            _quality_table(quality),
        ]
    if figures["peers"]["run"]["form"] == "quick":
        parts[2] += " This was the quick form, with few systems and little data: it shows that everything works."
        parts[2] = parts[2].replace("[Benchmarks](../benchmarks.md)", "docs/internal/benchmarks.md")
    return "\n\n".join(parts) + "\n"


def _about(run: Figures) -> str:
    on = run["machine"]
    parts = [on["processor"], f"{on['cores']} cores", f"{on['memory_gb']} GB" if on["memory_gb"] else "", on["system"]]
    where = ", ".join(part for part in (*parts, f"Python {on['python']}") if part)
    took = f", {run['minutes']:g} minutes" if run["minutes"] else ""
    load = (
        f"; load average {run['load_before']:g} before and {run['load_after']:g} after it" if run["load_before"] else ""
    )
    commit = f", commit {run['commit']}" if run["commit"] else ""
    note = f" {run['note']}" if run.get("note") else ""
    return f"Run of {run['date']}{commit}{took}, on: {where}{load}.{note}"


def _size(peers: Figures) -> int:
    """The largest size that our row reached."""
    ours = next(row for row in peers["rows"] if row["is_ours"])
    return max((search["size"] for search in ours["searches"]), default=0)


def _search(row: Figures, size: int) -> Figures | None:
    return next((search for search in row["searches"] if search["size"] >= size), None)


def _peers_table(peers: Figures, size: int) -> str:
    head = (
        "",
        f"search of {size:,}, p95",
        "RAM",
        "add, p50",
        "adds/s, 1 client",
        "adds/s, 8 clients",
        "survives a power cut",
        "lost of 4 × 100",
        "start-up",
        "installed",
    )
    lines = []
    for row in peers["rows"]:
        search = _search(row, size)
        lines.append(
            (
                f"**{row['name']}**" if row["is_ours"] else row["name"],
                _milliseconds(search["p95_ms"]) if search else "–",
                f"{search['ram_mb']:,.0f} MB" if search else "–",
                _milliseconds(row["add_p50_ms"]),
                _number(row["adds_per_second"]),
                _number(row["adds_per_second_together"]),
                SURVIVES[row["survives_power_cut"]],
                row["lost"],
                _milliseconds(row["start_ms"]),
                f"{row['installed_mb']:,.0f} MB" if row["installed_mb"] else "–",
            )
        )
    return _table(head, lines)


def _quality_table(quality: Figures) -> str:
    lines = [
        (
            row["dataset"],
            row["what"],
            str(row["questions"]),
            *(f"**{mean:.3f}**" if system == "commonplace" else f"{mean:.3f}" for system, mean in row["means"].items()),
        )
        for row in _shown(quality)
    ]
    systems = quality["rows"][0]["means"]
    return _table(("set", "measure", "questions", *systems), lines)


def _shown(quality: Figures) -> list[Figures]:
    """The official lines over all questions. The run has more, by part and by type of question."""
    found: dict[tuple[str, str], Figures] = {}
    for row in quality["rows"]:
        if row["part"] == "all" and row["what"] in SHOWN.get(row["dataset"], ()):
            found.setdefault((row["dataset"], row["what"]), row)
    return list(found.values())


def readme_table(figures: Figures) -> str:
    """The table of README.md, and when and on what it was measured."""
    peers = figures["peers"]
    by_name = {row["name"]: row for row in peers["rows"]}
    head = (
        "",
        f"search of {LARGEST:,} memories, p95",
        "adds per second, 8 threads",
        "survives a power cut",
        "lost of 400 adds by 4 programs",
        "installed",
    )
    lines = []
    for name in IN_README:
        row = by_name[name]
        search = _search(row, LARGEST)
        lines.append(
            (
                f"**{name}**" if row["is_ours"] else name,
                _milliseconds(search["p95_ms"]) if search else "–",
                _number(row["adds_per_second_together"]),
                SURVIVES[row["survives_power_cut"]],
                row["lost"],
                f"{row['installed_mb']:,.0f} MB",
            )
        )
    run = peers["run"]
    when = f"Measured on {run['date']} on {run['machine']['cores']} cores; `make bench-report` measures it again."
    return f"{_table(head, lines)}\n\n{when}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in (head, ["---"] * len(head), *lines))


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


# The plots

WIDTH, LABEL, BAR, GAP, TITLE = 760, 240, 15, 6, 30
OURS, OTHER, PALE = "#1f6f5c", "#6b7a90", "#c3cad5"


def plots(figures: Figures) -> dict[str, str]:
    peers = figures["peers"]["rows"]
    size = _size(figures["peers"])
    searches = [(row, search) for row in peers if (search := _search(row, size)) is not None]
    adds = [row for row in peers if row["adds_per_second_together"]]
    made = {
        "search.svg": _bars(
            f"Search of {size:,} memories, p95, in ms on a logarithmic scale: shorter is faster",
            [(row["name"], search["p95_ms"], _milliseconds(search["p95_ms"]), _fill(row)) for row, search in searches],
        ),
        "adds.svg": _bars(
            "Adds per second with 8 clients, on a logarithmic scale: longer is faster",
            [
                (
                    row["name"],
                    row["adds_per_second_together"],
                    _number(row["adds_per_second_together"]),
                    _fill(row),
                )
                for row in adds
            ],
        ),
    }
    if "quality" in figures:
        bars: list[tuple[str, float, str, str]] = []
        for row in _shown(figures["quality"]):
            for system, mean in row["means"].items():
                label = f"{row['dataset']}, {row['what']}: " if not bars or bars[-1][0] == "" else ""
                fill = OURS if system == "commonplace" else OTHER
                bars.append((f"{label}{system}", mean, f"{mean:.3f}", fill))
            bars.append(("", 0.0, "", PALE))
        made["quality.svg"] = _bars("Retrieval quality: longer is better", bars[:-1], is_logarithmic=False, label=400)
    return made


def _fill(row: Figures) -> str:
    return OURS if row["is_ours"] else OTHER if row["survives_power_cut"] else PALE


def _bars(
    title: str, bars: Sequence[tuple[str, float, str, str]], *, is_logarithmic: bool = True, label: int = LABEL
) -> str:
    values = [value for _, value, _, _ in bars if value > 0]
    low = math.log10(min(values, default=1.0)) - 0.5 if is_logarithmic else 0.0
    high = math.log10(max(values, default=10.0)) if is_logarithmic else max(values, default=1.0)
    scale = (WIDTH - label - 90) / max(high - low, 0.1)
    top = TITLE
    parts = [f'<text x="4" y="17" class="title">{escape(title)}</text>']
    for name, value, text, fill in bars:
        if value > 0:
            length = max(2.0, ((math.log10(value) if is_logarithmic else value) - low) * scale)
            parts += [
                f'<text x="{label - 6}" y="{top + 12}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{label}" y="{top}" width="{length:.0f}" height="{BAR}" fill="{fill}"/>',
                f'<text x="{label + length + 5:.0f}" y="{top + 12}">{escape(text)}</text>',
            ]
        top += BAR + GAP if name else GAP
    if is_logarithmic:
        parts.append(
            f'<text x="4" y="{top + 14}">green: commonplace; dark: survives a power cut; pale: does not</text>'
        )
        top += 20
    style = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 6}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style>\n"
        + '<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="the folder of the data sets; without it no quality"
    )
    parser.add_argument("--quick", action="store_true", help="a few minutes, into out/report/")
    parser.add_argument("--render", action="store_true", help="write the page and README.md from the newest figures")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
