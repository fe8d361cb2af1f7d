"""The command line over a service: `--remote`, or COMMONPLACE_REMOTE and COMMONPLACE_KEY."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from real_server import Server

import commonplace
from commonplace.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command on the service; there is no book on this side."""
    for variable in ("COMMONPLACE_NAMESPACE", "COMMONPLACE_KEY", "COMMONPLACE_REMOTE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DATABASE_URL", str(tmp_path / "nowhere" / "book.db"))

    def run_one(*words: str, remote: str | None = server.address) -> Ran:
        flags = [] if remote is None else ["--remote", remote]
        code = main([*flags, *words])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_one


@pytest.mark.promise("cli-remote")
def test_what_people_do_with_a_book_they_do_with_a_service(run: Run, book: commonplace.Book, tmp_path: Path) -> None:
    assert run("add", "Deploys go out on Tuesdays", "--tag", "project:x").code == 0
    assert run("add", "--file", "/notes/today", "call Ana").code == 0
    assert run("add", "--file", "/notes/today", "buy tea").code == 0
    assert run("cat", "/notes/today").out == "call Ana\nbuy tea"
    assert json.loads(run("ls", "--records", "--json").out)[0]["tags"] == ["project:x"]
    assert "Deploys go out on Tuesdays" in run("search", "deploys").out
    assert run("ls", "/notes").out == "today\n"
    assert "updated" in run("history", "/notes/today").out
    assert run("restore", "/notes/today", "1").code == 0
    assert run("cat", "/notes/today").out == "call Ana"
    thread = book.space("user", "default").threads.create("Talk", id="t-1")
    book.space("user", "default").threads.add(thread.id, [{"role": "user", "content": "hello there"}])
    assert "user: hello there" in run("cat", "t-1").out
    assert "t-1" in run("ls", "--threads").out
    assert json.loads(run("changes", "--json").out.splitlines()[0])["commit"] == 1
    assert run("namespaces").out == "user/default\n"
    assert "user/default" in run("namespaces", "-l").out
    assert json.loads(run("stats", "--json").out)["namespace"]["namespace"] == "user/default"
    assert {line.actor for line in book.space("user", "default").history("file", "/notes/today")} == {"local rest cli"}
    file = tmp_path / "export.jsonl"
    assert run("export", str(file)).code == 0
    assert "the same is there already" in run("import", str(file)).out


@pytest.mark.promise("cli-remote")
def test_a_key_and_its_namespace_come_from_the_environment(
    run: Run, server: Server, make_key: Any, monkeypatch: pytest.MonkeyPatch, book: commonplace.Book
) -> None:
    key = make_key("ana", "team/ana")
    refused = run("ls")
    assert (refused.code, "needs a key" in refused.err) == (8, True)
    assert "set COMMONPLACE_KEY to a key of the service" in refused.err
    monkeypatch.setenv("COMMONPLACE_REMOTE", server.address)
    monkeypatch.setenv("COMMONPLACE_KEY", key)
    assert run("add", "--file", "/f", "hello", remote=None).code == 0
    assert book.space("team", "ana").files.read("/f") == "hello"
    assert run("--namespace", "team/eve", "ls", remote=None).code == 8


@pytest.mark.promise("cli-remote")
@pytest.mark.parametrize(
    "words",
    [("backup", "copy.db"), ("reindex",), ("keys", "list"), ("migrate",), ("restore-backup", "copy.db")],
)
def test_what_needs_the_file_says_so(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert ran.code in (1, 6)
    assert "needs the book itself, not a service" in ran.err + ran.out


def test_doctor_checks_the_service(run: Run) -> None:
    ran = run("doctor")
    assert (ran.code, ran.out.split()[:2]) == (0, ["ok", "service"])
    assert "user/default" in ran.out


def test_no_hint_names_a_command_that_a_service_refuses(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a hint came, and one passage was told of as `1 passages wait for their vectors`."""
    file = tmp_path / "lines.jsonl"
    with commonplace.open(":memory:") as other, file.open("wb") as lines:
        other.space("user", "default").files.write("/f", "zebra")
        other.export(lines.write)
    imported = run("import", str(file))
    assert (imported.out, imported.err) == ("user/default: imported 1 state, with history\n", "")
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 0)
    notices = run("search", "zebra").err.splitlines()
    assert notices[0] == "commonplace: 1 passage waits for its vector and is found by keywords only"
    assert not any("reindex" in notice for notice in notices)
    assert "reindex" not in run("stats").out


def test_stats_with_a_key_for_one_namespace_count_that_one(
    run: Run, make_key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_KEY", make_key("ana", "team/ana"))
    run("add", "--file", "/f", "hello")
    counted = run("stats")
    assert (counted.code, counted.out.splitlines()[:2]) == (0, ["namespace      team/ana", "entries        1 file"])
    document = json.loads(run("stats", "--json").out)
    assert list(document) == ["namespace"]
    assert document["namespace"]["entries"] == {"file": 1}


def test_a_book_on_the_line_comes_before_a_service_in_the_environment(
    run: Run, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMMONPLACE_REMOTE", server.address)
    file = str(tmp_path / "own.db")
    assert run("--db", file, "add", "--file", "/f", "mine", remote=None).code == 0
    assert run("ls", remote=None).out == ""
    both = run("--db", file, "ls")
    assert (both.code, "give one of them" in both.err) == (2, True)


def test_a_service_that_is_not_there_is_named(run: Run) -> None:
    ran = run("ls", remote="http://127.0.0.1:1")
    assert ran.code == 5
    assert "the service at http://127.0.0.1:1 cannot be reached" in ran.err
    assert run("ls", remote="nowhere").code == 6
