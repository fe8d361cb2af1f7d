"""An acknowledged write survives SIGKILL at any moment. `make crash-test` kills for minutes; this for seconds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "crash_test.py"


@pytest.mark.promise("engine-durable")
def test_no_acknowledged_write_is_lost_when_the_writer_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", "6"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.match(r"(\d+) kills .*, (\d+) acknowledged writes checked, 0 lost", done.stdout)
    assert counts is not None, done.stdout
    assert int(counts[1]) >= 3
    assert int(counts[2]) >= 20
