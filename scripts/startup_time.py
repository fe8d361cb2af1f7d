"""How long `import commonplace` and `commonplace --help` take, compared with bare Python.

Medians of several new processes, in turns. If a goal is missed, the heaviest imports are listed.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 15
LISTED = 12
_TIMED_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|(\s+)(\S+)")


@dataclass(frozen=True, slots=True)
class Start:
    """A command, the most milliseconds it may take, and the statement whose imports it pays for."""

    what: str
    command: tuple[str, ...]
    goal_milliseconds: float | None = None
    imports: str = ""


def main() -> int:
    starts = [
        Start("python -c pass", (sys.executable, "-c", "pass")),
        Start("import commonplace", (sys.executable, "-c", "import commonplace"), 150, "import commonplace"),
        Start("commonplace --help", _program("--help"), 300, "import commonplace.cli"),
    ]
    taken: dict[str, list[float]] = {start.what: [] for start in starts}
    for _ in range(ROUNDS):
        for start in starts:
            began = time.perf_counter()
            subprocess.run(start.command, check=True, stdout=subprocess.DEVNULL)
            taken[start.what].append((time.perf_counter() - began) * 1e3)
    missed = [start for start in starts if not _report(start, statistics.median(taken[start.what]))]
    for start in missed:
        print(f"\nThe heaviest imports of `{start.what}`, with what each of them imports:")
        for milliseconds, name in _heaviest(start.imports):
            print(f"{milliseconds:8.1f} ms  {name}")
    return 1 if missed else 0


def _program(*arguments: str) -> tuple[str, ...]:
    """The installed program, as a user starts it."""
    script = Path(sys.executable).with_name("commonplace")
    if not script.exists():
        sys.exit(f"{script} is missing; install the project into this environment first: make install")
    return (str(script), *arguments)


def _report(start: Start, milliseconds: float) -> bool:
    if start.goal_milliseconds is None:
        print(f"{milliseconds:8.1f} ms  {start.what}")
        return True
    is_met = milliseconds <= start.goal_milliseconds
    print(
        f"{milliseconds:8.1f} ms  {start.what}; goal ≤ {start.goal_milliseconds:g} ms: {'pass' if is_met else 'MISS'}"
    )
    return is_met


def _heaviest(statement: str) -> Sequence[tuple[float, str]]:
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement], check=True, capture_output=True, text=True
    )
    found = [(int(match[2]) / 1e3, match[4]) for match in _TIMED_IMPORT.finditer(answer.stderr)]
    return sorted(found, reverse=True)[:LISTED]


if __name__ == "__main__":
    sys.exit(main())
