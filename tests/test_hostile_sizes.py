"""A small request on a large entry: its result is bounded before it is built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MOST_MB = 400
MOST_SECONDS = 60
TESTS = Path(__file__).parent


@pytest.mark.promise("limits-before-the-work")
def test_a_kilobyte_that_is_hostile_to_an_entry_of_ten_megabytes_takes_neither_memory_nor_minutes(
    tmp_path: Path,
) -> None:
    """A stranger had 1 kB put in place of each letter of a file: it took 3 GB, or ended in a raw MemoryError."""
    run = subprocess.run(
        [sys.executable, str(TESTS / "hostile_sizes.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS / 'http'}"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    drives = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, (drives[-1:], run.stderr[-2_000:])
    came_to = {name: outcome for name, outcome, _, _ in drives}
    raw = {name: outcome for name, outcome in came_to.items() if outcome.startswith(RAW)}
    assert raw == {}
    assert {name: seconds for name, _, seconds, _ in drives if seconds > MOST_SECONDS} == {}
    assert [(name, used) for name, _, _, used in drives if used > MOST_MB] == []
    for name in ("replace", "replace lines", "replace in a wide text", "append", "edit", "update"):
        assert "at most 10,000,000 are allowed" in came_to[name], name


RAW = ("MemoryError", "RecursionError", "OverflowError", "AttributeError", "TypeError", "KeyError", "NotImplemented")
