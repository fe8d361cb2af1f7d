"""The seed's three use cases run as they are written, without network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

ENDINGS = {
    "claude_project.py": (
        "> view /memories/projects\n"
        "Here're the files and directories up to 2 levels deep in /memories/projects:\n"
        "4.0K\t/memories/projects\n"
        "4.0K\t/memories/projects/apollo\n"
        "56B\t/memories/projects/apollo/conventions.md\n"
        "46B\t/memories/projects/apollo/decisions.xml\n"
        "64B\t/memories/projects/apollo/structure.txt\n"
        "\n"
        "> view /memories/projects/apollo/structure.txt\n"
        "Here's the content of /memories/projects/apollo/structure.txt with line numbers:\n"
        "     2\tsrc/telemetry: the radio link\n"
    ),
    "claude_learning.py": (
        "Here's the content of /memories/lessons.md with line numbers:\n"
        "     1\t# Lessons\n"
        "     2\t- Answer in short sentences, in English.\n"
        "     3\t- Show the command before its output.\n"
        "     4\t\n"
    ),
    "claude_workflow.py": (
        "> str_replace\n1. tests: done\n2. changelog: done\n3. upload: next\n\n"
        "The file has 3 states; any of them can be restored.\n"
    ),
}


@pytest.mark.promise("claude-use-cases")
@pytest.mark.parametrize("name", ENDINGS)
def test_a_use_case_of_the_seed_runs(name):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(ENDINGS[name])
