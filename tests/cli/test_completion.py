"""Completion of command lines: what completes a word, and the scripts in real shells, each that this machine has."""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commonplace.cli.parser import FILES, SOURCES, build

from .conftest import Run, give_input

WITHOUT_A_SOURCE = {
    ("add", "text"),
    ("search", "query"),
    ("restore", "revision"),
    ("undo", "commit"),
    ("keys", "name"),
    ("help", "topic"),
}
"""Arguments without a list of values, and that of `help`, which has the names of the commands."""

SECONDS = 60


@pytest.fixture
def complete(run: Run, monkeypatch: pytest.MonkeyPatch):
    """The candidates for the last word of a line, each with its description."""

    def complete(*words: str) -> dict[str, str]:
        give_input(monkeypatch, "".join(f"{word}\n" for word in words).encode())
        ran = run("completion", "--words")
        assert (ran.code, ran.err) == (0, "")
        return dict(line.partition("\t")[::2] for line in ran.out.splitlines())

    return complete


@pytest.fixture
def filled(run: Run) -> str:
    """Two files, one of them with a space in its name, and a record, whose id this is."""
    assert run("add", "--file", "/notes/plans/summer", "Lisbon").code == 0
    assert run("add", "--file", "/notes/to do", "milk").code == 0
    return run("add", "Ana prefers tea", "--json").json["id"]


def test_commands_and_options_are_completed_with_what_they_do(run: Run, complete) -> None:
    assert complete("se") == {
        command.name: command.summary for command in build()[1] if command.name in ("search", "serve", "setup")
    }
    assert set(complete("search", "--m")) == {"--min", "--match"}
    assert set(complete("search", "tea", "--match", "")) == {"all", "any"}
    assert set(complete("--namespace", "user/ana", "help", "his")) == {"history"}


def test_paths_are_completed_directory_by_directory(run: Run, filled: str, complete) -> None:
    assert list(complete("cat", "/")) == ["/notes/"]
    assert list(complete("rm", "/notes/")) == ["/notes/plans/", "/notes/to do"]
    assert list(complete("mv", "/notes/to do", "/notes/p")) == ["/notes/plans/"]
    assert list(complete("ls", "/notes/")) == ["/notes/plans/"]
    assert list(complete("history", "file", "/notes/t")) == ["/notes/to do"]


def test_ids_are_completed_with_their_text(run: Run, filled: str, complete) -> None:
    assert complete("cat", filled[:5]) == {filled: "Ana prefers tea"}
    assert set(complete("cat", "")) == {"/", filled}


def test_entries_come_from_the_book_and_namespace_of_the_line(
    run: Run, filled: str, book_file: Path, complete, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    assert run("--db", str(other), "--namespace", "user/eve", "add", "--file", "/hers", "x").code == 0
    assert list(complete("--db", str(other), "cat", "--namespace", "user/eve", "/")) == ["/hers"]
    assert list(complete("--db", str(other), "cat", "/")) == []
    assert list(complete("--db", str(other), "--namespace", "user")) == ["user/eve"]


def test_a_missing_book_is_neither_created_nor_reported(run: Run, complete, tmp_path: Path) -> None:
    assert complete("--db", str(tmp_path / "none.db"), "cat", "/") == {}
    assert not (tmp_path / "none.db").exists()


def test_the_entries_of_a_service_are_not_asked_for(run: Run, filled: str, complete) -> None:
    assert complete("--remote", "http://127.0.0.1:9", "cat", "/") == {}


def test_an_unprintable_name_is_left_out_and_a_text_loses_its_controls(run: Run, complete) -> None:
    assert run("add", "red \x1b[31m text").code == 0
    assert [text for text in complete("cat", "").values() if "red" in text] == ["red �[31m text"]


def test_every_argument_has_a_source_and_every_source_an_argument() -> None:
    _, commands = build()
    arguments = {
        (command.name, action.dest)
        for command in commands
        for action in command.parser._actions
        if not action.option_strings and action.choices is None and not isinstance(action, argparse._HelpAction)
    }
    options = {(command.name, action.dest) for command in commands for action in command.parser._actions}
    assert arguments - set(SOURCES) == WITHOUT_A_SOURCE
    assert {source for source in SOURCES if source[0]} <= options


# Real shells


@pytest.fixture
def shell_environment(run: Run, filled: str, book_file: Path, tmp_path: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.jsonl").touch()
    return {**os.environ, "PATH": path, "DATABASE_URL": str(book_file), "TERM": "dumb", "HOME": str(tmp_path)}


def typed(command: list[str], environment: dict[str, str], folder: Path, setup: str, line: str, wanted: str) -> str:
    """What a terminal shows after a line that ends with a Tab was typed, at the latest when `wanted` is there."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, environment)
    shown = ""
    try:
        os.write(terminal, f"{setup}; echo re''ady\n".encode())
        shown = _until(terminal, "ready")
        os.write(terminal, line.encode())
        shown = _until(terminal, wanted)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return shown


def _until(terminal: int, wanted: str) -> str:
    shown, end = "", time.monotonic() + SECONDS
    while wanted not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")
    return shown


@pytest.mark.parametrize(
    ("shell", "setup"),
    [
        (["bash", "--norc", "-i"], 'eval "$(commonplace completion bash)"'),
        (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u; eval "$(commonplace completion zsh)"'),
    ],
    ids=["bash", "zsh"],
)
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("commonplace hist\t", "commonplace history "),
        ("commonplace cat /notes/t\t", "/notes/to\\ do"),
        ("commonplace cat /notes/to\\ \t", "/notes/to\\ do"),
        ("commonplace export folder/l\t", "folder/letter.jsonl"),
    ],
)
def test_a_shell_completes_a_line(
    shell: list[str], setup: str, line: str, wanted: str, shell_environment: dict[str, str], tmp_path: Path
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    assert wanted in typed(shell, shell_environment, tmp_path, setup, line, wanted)


def test_fish_completes_a_line(shell_environment: dict[str, str], filled: str, tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    lines = ("commonplace hist", "commonplace cat ", "commonplace cat /notes/to\\ ", "commonplace export folder/l")
    asked = "".join(f"; complete -C '{line}'; echo END" for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"commonplace completion fish | source{asked}"],
        env=shell_environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    answers = [block.strip().splitlines() for block in done.stdout.split("END\n")[:-1]]
    assert answers == [
        ["history\tList every revision of an entry, oldest first."],
        ["/\tfiles", f"{filled}\tAna prefers tea"],
        ["/notes/to do"],
        ["folder/letter.jsonl"],
    ]
    assert FILES not in done.stdout
