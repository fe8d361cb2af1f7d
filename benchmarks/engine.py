"""Speed and size of the engine compared with bare SQLite, in one run: `python benchmarks/engine.py [--quick] [--only
…]`.

Only compare lines of the same run on the same machine. No model is loaded; vectors are generated.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

from engine_report import Report
from engine_search import measure_opening, measure_search, measure_size, prepare
from engine_writes import measure_appends, measure_processes, measure_writes

SECTIONS = ("writes", "processes", "search", "opening", "size", "appends")


def main() -> int:
    options = _options()
    chosen = options.only or list(SECTIONS)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-", dir=options.folder) as name:
        folder = Path(name)
        print(f"{os.cpu_count()} cores, Python {platform.python_version()}, books in {folder.parent}\n")
        report.begin()
        if "writes" in chosen:
            measure_writes(report, folder, quick=options.quick)
        if "processes" in chosen:
            measure_processes(report, folder, quick=options.quick)
        if {"search", "opening", "size"} & set(chosen):
            prepared = prepare(folder, quick=options.quick)
            if "search" in chosen:
                measure_search(report, prepared, quick=options.quick)
            if "opening" in chosen:
                measure_opening(report, prepared, quick=options.quick)
            if "size" in chosen:
                measure_size(report, prepared)
        if "appends" in chosen:
            measure_appends(report, folder, quick=options.quick)
    print(f"\n{len(report.missed)} goals missed" if report.missed else "\nall goals met")
    return 1 if report.missed and options.strict else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="10,000 entries instead of 100,000 and fewer rounds")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="one section; may be given more than once")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--folder", type=Path, help="where the books are created (this measures their file system)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
