"""The examples of docs/guides/rest.md print what it says, on a server whose clock stands at its first second."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from real_server import Server

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "rest.md"
ADDRESS = "http://127.0.0.1:8765"


def transcript() -> list[tuple[str, str]]:
    """Each command with what it prints."""
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        (command, printed)
        for block in blocks
        for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


@pytest.mark.promise("rest-document-is-true")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the document's commands are curl's")
def test_the_commands_print_what_the_document_says(server: Server) -> None:
    told = transcript()
    assert len(told) > 25
    done = [(command, run(command, server.address)) for command, _ in told]
    assert done == told


def run(command: str, address: str) -> str:
    """What a command prints; without a newline at the end it gets one, as a document needs."""
    shell = ["bash", "-euo", "pipefail", "-c", command.replace(ADDRESS, address)]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=60, check=True)
    printed = done.stdout.replace(address, ADDRESS)
    return printed if not printed or printed.endswith("\n") else printed + "\n"
