"""The command that clients run at each event, with its real background process, and without one."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_ambient import OTHER, SESSION, line, number

import commonplace
from commonplace.ambient import hook

HOOK = Path(hook.__file__)
CAT = "My cat is called Miso, and the dog is called Rex."
SECONDS = 20.0


class Hooks:
    """Runs hooks in a home folder of their own, and ends the background processes that they started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.book = folder / "memory.db"
        self.transcript = folder / "session.jsonl"
        self.words = ["claude-code", "--db", str(self.book), "--idle-seconds", "60"]
        self.run_folder = Path("/tmp") / f"h-{os.getpid()}-{folder.name[-8:]}"
        for one in (self.project, self.run_folder):
            one.mkdir(mode=0o700)
        kept = {
            name: os.environ[name] for name in ("PATH", "XDG_CACHE_HOME", "COMMONPLACE_MODELS") if name in os.environ
        }
        # The models of the tests are in the user's cache, so the home folder stays.
        self.environ = {
            **kept,
            "HOME": os.environ["HOME"],
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_RUNTIME_DIR": str(self.run_folder),
            "DATABASE_URL": str(folder / "of-another-program.db"),
        }

    def run(self, event: str, session: str = SESSION, **fields: Any) -> subprocess.CompletedProcess[str]:
        given = {
            "session_id": session,
            "transcript_path": str(self.transcript),
            "cwd": str(self.project),
            "hook_event_name": event,
            **fields,
        }
        return self.raw(json.dumps(given))

    def raw(self, written: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", str(HOOK), *self.words]
        return subprocess.run(command, input=written, capture_output=True, text=True, timeout=30, env=self.environ)

    def said(self, event: str, session: str = SESSION, **fields: Any) -> str:
        """The context that an event adds; the hook must exit with 0 and print nothing else."""
        ended = self.run(event, session, **fields)
        assert (ended.returncode, ended.stderr) == (0, "")
        if not ended.stdout:
            return ""
        output = json.loads(ended.stdout)["hookSpecificOutput"]
        assert output.keys() == {"hookEventName", "additionalContext"}
        assert output["hookEventName"] == event
        return str(output["additionalContext"])

    @property
    def log(self) -> str:
        file = self.folder / "state" / "commonplace" / "hooks.log"
        return file.read_text() if file.exists() else ""

    @property
    def sockets(self) -> list[Path]:
        return [*self.run_folder.glob("*/*.sock")]

    def wait_for_background(self) -> Path:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if self.sockets:
                return self.sockets[0]
            time.sleep(0.02)
        raise AssertionError(f"no background process; the log says: {self.log}")

    def pids(self) -> list[int]:
        """The background processes with the words of these hooks."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"commonplace.ambient.background" in words and os.fsencode(self.book) in words:
                found.append(int(folder.name))
        return found

    def wait_until(self, is_so: Any) -> None:
        until = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < until, self.log
            time.sleep(0.02)


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    hooks = Hooks(tmp_path)
    yield hooks
    for pid in hooks.pids():
        os.kill(pid, signal.SIGTERM)
    hooks.wait_until(lambda: not hooks.pids())
    assert hooks.sockets == []


def messages(book: Path, thread: str = SESSION) -> list[str]:
    with commonplace.open(book, background=False) as opened:
        try:
            return [str(one.content) for one in opened.space("user", "default").threads.messages(thread).messages]
        except commonplace.NotFound:
            return []


@pytest.mark.promise("ambient-hooks-remember")
def test_what_was_said_in_one_session_is_recalled_in_the_next_without_a_tool(hooks: Hooks) -> None:
    hooks.transcript.write_text(line("user", CAT, number(1)) + line("assistant", "Noted.", number(2)))
    assert hooks.said("SessionStart", source="startup") == ""
    path = hooks.wait_for_background()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert hooks.said("UserPromptSubmit", prompt=CAT) == ""
    assert hooks.said("Stop") == ""
    hooks.wait_until(lambda: messages(hooks.book) == [CAT, "Noted."])
    for event in ("Stop", "PreCompact", "SessionEnd"):
        assert hooks.said(event) == ""
    other = hooks.folder / "other.jsonl"
    given: dict[str, Any] = {"session": OTHER, "transcript_path": str(other)}
    assert "My cat is called Miso" in hooks.said("SessionStart", source="startup", **given)
    text = hooks.said("UserPromptSubmit", prompt="What is the name of my cat?", **given)
    assert f"user: {CAT}" in text
    assert hooks.said("UserPromptSubmit", prompt="What is the name of my cat?", **given) == ""
    # The next process knows what the session was shown.
    [pid] = hooks.pids()
    os.kill(pid, signal.SIGTERM)
    hooks.wait_until(lambda: not hooks.pids())
    assert hooks.said("UserPromptSubmit", prompt="What is the name of my cat?", **given) == ""
    assert messages(hooks.book) == [CAT, "Noted."]
    assert not (hooks.folder / "of-another-program.db").exists()
    assert "cat" not in hooks.log


@pytest.mark.promise("ambient-hooks-off")
def test_a_project_with_nomemory_is_neither_recalled_nor_saved(hooks: Hooks) -> None:
    hooks.transcript.write_text(line("user", CAT, number(1)))
    (hooks.project / ".nomemory").touch()
    second = hooks.folder / "second.jsonl"
    second.write_text(line("user", "Something for the memory.", number(2)))
    hooks.said("Stop")
    hooks.wait_for_background()
    hooks.said("Stop", OTHER, transcript_path=str(second), cwd=str(hooks.folder))
    hooks.wait_until(lambda: messages(hooks.book, OTHER) != [])
    assert messages(hooks.book) == []
    asked = {"prompt": "Is there something for the memory?", "source": "startup"}
    for event in ("SessionStart", "UserPromptSubmit"):
        assert hooks.said(event, number(7), **asked) == ""
    # What was said while it was off is not saved later either.
    (hooks.project / ".nomemory").unlink()
    with hooks.transcript.open("a") as stream:
        stream.write(line("user", "Now it is on.", number(3)))
    hooks.said("Stop")
    hooks.wait_until(lambda: messages(hooks.book) != [])
    assert messages(hooks.book) == ["Now it is on."]


@pytest.mark.promise("ambient-hooks-keywords")
def test_without_a_background_process_the_hook_answers_by_keywords(hooks: Hooks) -> None:
    with commonplace.open(hooks.book, background=False) as book:
        records = book.space("user", "default").records
        for text in (CAT, "Deploys are on Tuesday", "Ana owns billing", "Tea is in the kitchen", "Tests run nightly"):
            records.create(type="note", content=text, source="test", confidence=1.0)
    event = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": SESSION,
        "prompt": "What is the name of my cat and dog?",
    }
    # As the hook does it, but without its limit of time, which a busy computer may exceed.
    alone = [sys.executable, "-I", "-m", "commonplace.ambient.background", "--alone", *hooks.words]
    environ = {**hooks.environ, "COMMONPLACE_MODELS": str(hooks.folder / "no-models")}
    said = subprocess.run(alone, input=json.dumps(event), capture_output=True, text=True, env=environ, check=True)
    assert "Miso" in said.stdout
    assert hooks.pids() == []
    hooks.said("UserPromptSubmit", prompt="What is the name of my cat?")
    hooks.wait_for_background()


@pytest.mark.promise("ambient-hooks-never-break")
@pytest.mark.parametrize(
    "written",
    [
        "",
        "no JSON",
        "[]",
        "null",
        '{"hook_event_name": 1}',
        '{"hook_event_name": "Stop", "session_id": {}}',
        '{"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": null, "cwd": "a\\u0000b"}',
        "x" * 5_000_000,
    ],
    ids=lambda text: f"{len(text)} characters",
)
def test_a_wrong_event_is_answered_with_nothing(hooks: Hooks, written: str) -> None:
    ended = hooks.raw(written)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.promise("ambient-hooks-never-break")
def test_a_broken_memory_is_silent_and_has_a_line_in_the_log(hooks: Hooks) -> None:
    hooks.book.write_text("This is not a book. " * 1_000)
    for event in ("SessionStart", "UserPromptSubmit", "Stop"):
        assert hooks.said(event, prompt="What is the name of my cat?", source="startup") == ""
    hooks.wait_until(lambda: "background" in hooks.log)
    assert "cat" not in hooks.log
    assert stat.S_IMODE((hooks.folder / "state/commonplace/hooks.log").stat().st_mode) == 0o600
    assert hooks.book.read_text() == "This is not a book. " * 1_000
    # For a minute no further process is started in vain.
    hooks.wait_until(lambda: [*hooks.run_folder.glob("*/*.failed")] and not hooks.pids())
    before = hooks.log
    assert hooks.said("UserPromptSubmit", prompt="What is the name of my cat?") == ""
    assert (hooks.log, hooks.pids()) == (before, [])
    [mark] = hooks.run_folder.glob("*/*.failed")
    os.utime(mark, (0, 0))
    hooks.book.unlink()
    hooks.said("SessionStart", source="startup")
    hooks.wait_for_background()
    assert not mark.exists()


@pytest.mark.promise("ambient-hooks-never-break")
def test_a_background_process_that_hangs_delays_nobody(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(hooks.run_folder))
    path = hook.socket_path(hooks.words)
    assert path is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(path)
        silent.listen()
        before = time.monotonic()
        assert hooks.said("UserPromptSubmit", prompt="What is the name of my cat?") == ""
        assert time.monotonic() - before < hook.SECONDS + 1
        assert "timed out" in hooks.log
        # The next events wait less, and do not search by themselves either, for a minute.
        before = time.monotonic()
        for _ in range(3):
            assert hooks.said("UserPromptSubmit", prompt="What is the name of my cat?") == ""
        assert time.monotonic() - before < 3 * 0.6
        os.utime(hook.late_mark(path), (0, 0))
        before = time.monotonic()
        assert hooks.said("UserPromptSubmit", prompt="What is the name of my cat?") == ""
        assert time.monotonic() - before > hook.ANSWER_SECONDS
    Path(path).unlink()
    # A process that is gone is replaced at once; the first answer in time ends the haste.
    assert hooks.said("UserPromptSubmit", prompt="What is the name of my cat?") == ""
    hooks.wait_for_background()
    hooks.wait_until(
        lambda: hooks.said("UserPromptSubmit", prompt="yes") == "" and not Path(hook.late_mark(path)).exists()
    )


def test_a_killed_process_is_replaced_and_a_replaced_book_opened_again(hooks: Hooks) -> None:
    hooks.transcript.write_text(line("user", CAT, number(1)))
    hooks.said("Stop")
    hooks.wait_until(lambda: messages(hooks.book) == [CAT])
    hooks.wait_for_background()
    [pid] = hooks.pids()
    os.kill(pid, signal.SIGKILL)
    hooks.wait_until(lambda: not hooks.pids())
    with hooks.transcript.open("a") as stream:
        stream.write(line("user", "The process was killed.", number(2)))
    hooks.said("Stop")
    hooks.wait_until(lambda: len(messages(hooks.book)) == 2)
    # Another book takes the place of the first one while the process has it open.
    for name in ("memory.db", "memory.db-wal", "memory.db-shm"):
        (hooks.folder / name).unlink(missing_ok=True)
    with commonplace.open(hooks.book, background=False) as book:
        book.space("user", "default").records.create(type="note", content="new", source="s", confidence=1.0)
    for place in range(3, 40):
        with hooks.transcript.open("a") as stream:
            stream.write(line("user", f"Turn {place} is for the new book.", number(place)))
        hooks.said("Stop")
        if any("new book" in text for text in messages(hooks.book)):
            break
        time.sleep(0.1)
    assert any("new book" in text for text in messages(hooks.book))


def test_the_background_process_ends_when_idle(hooks: Hooks) -> None:
    hooks.words[-1] = "2"  # long enough to be seen under load
    hooks.said("SessionStart", source="startup")
    hooks.wait_for_background()
    hooks.wait_until(lambda: not hooks.pids())
    assert hooks.sockets == []


@pytest.mark.promise("ambient-socket-private")
def test_a_folder_that_others_can_enter_or_own_is_not_used(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(hooks.run_folder))
    folder = hooks.run_folder / f"commonplace-{os.getuid()}"
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    path = hook.socket_path(hooks.words)
    assert path is None or not path.startswith(str(folder))
    folder.rmdir()
    folder.symlink_to(tmp_path)
    path = hook.socket_path(hooks.words)
    assert path is None or not path.startswith(str(folder))
    folder.unlink()
    # A file in place of the socket is not talked to.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(hooks.run_folder))
    path = hook.socket_path(hooks.words)
    assert path is not None
    Path(path).touch()
    assert hook.ask(path, b"{}", 1.0) is None
    Path(path).unlink()
