"""The example of a framework in docs/guides/frameworks.md runs as written, and prints what the page says."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from conftest import command, serving

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "guides" / "frameworks.md"
SECTION = os.environ.get("COMMONPLACE_SECTION", "")


@pytest.mark.skipif(not SECTION, reason="no section of the page was named")
def test_the_example_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = re.search(rf"^## {re.escape(SECTION)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    block = re.search(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    if SECTION == "CrewAI":
        from crewai.events.event_listener import event_listener

        # Otherwise it prints panels of its own, from other threads.
        monkeypatch.setattr(event_listener.formatter, "verbose", False)
    printed = StringIO()
    with ExitStack() as running:
        if "COMMONPLACE_REMOTE" in block[1]:
            book = tmp_path / "served.db"
            monkeypatch.setenv("COMMONPLACE_KEY", command(book, "keys", "create", "ana").split()[0])
            monkeypatch.setenv("COMMONPLACE_REMOTE", running.enter_context(serving(book)))
        running.enter_context(redirect_stdout(printed))
        exec(compile(block[1], str(PAGE), "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == block[2]
