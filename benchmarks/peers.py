"""Speed compared with other memory systems, in one run on one machine: `python benchmarks/peers.py [--peers …]
[--write]`.

All get the same texts, the same queries and, if possible, the default model's vectors. Each peer has its own
environment and process; all do each step in turns. A peer that cannot be installed or fails is shown as such. Only
compare lines of the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path

from peers_data import prepare
from peers_install import ROOT
from peers_report import bars, figures, page
from peers_run import EXTRA_TEXTS, ROUNDS, Run, queries_needed
from peers_targets import TARGETS

DOCUMENT = ROOT / "docs" / "internal" / "benchmarks.md"
PLOT = ROOT / "docs" / "internal" / "benchmarks-peers.svg"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"


def main() -> int:
    options = _options()
    sizes = tuple(sorted(int(size.replace("_", "")) for size in options.sizes.split(",")))
    chosen = [target for target in TARGETS if not options.peers or target.name in options.peers.split(",")]
    if not chosen:
        sys.exit(f"--peers names none of: {', '.join(target.name for target in TARGETS)}")
    began, before = time.monotonic(), os.getloadavg()[0]
    data = prepare(options.folder, sizes[-1] + EXTRA_TEXTS, queries_needed(len(sizes)))
    run = Run(options.folder, data, sizes, options.time_limit, lambda text: print(text, file=sys.stderr, flush=True))
    with suppress(KeyboardInterrupt):  # then print what was measured so far
        run.measure(chosen)
    minutes = (time.monotonic() - began) / 60
    about = (
        f"One run of {minutes:.0f} minutes on {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, {options.time_limit:g} s a step; load average {before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after it. Times are medians of {ROUNDS} rounds that all took in turns."
    )
    text = page(run.rows, sizes, about)
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps([figures(row) for row in run.rows], indent=1), encoding="utf-8")
    if options.write:
        _replace(text)
        PLOT.write_text(bars(run.rows), encoding="utf-8")
    return 0


def _replace(text: str) -> None:
    """Put the tables between the marks of the document."""
    document = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{DOCUMENT} has no {BEGIN} … {END}")
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="1000,10000,100000", help="memories at which searches are timed")
    parser.add_argument("--peers", help="names of rows, with commas; all when left out")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".clients" / "peers", help="where environments and vectors are stored"
    )
    parser.add_argument("--time-limit", type=float, default=40.0, help="seconds for a step of a peer; default 40")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--write", action="store_true", help="write the tables and the plot into docs/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
