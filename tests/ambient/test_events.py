"""What is answered to the events of a client: folders that change within a session, and events at the same time."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from test_ambient import CAT, OTHER, SESSION, fill, line, number, remember

from commonplace import NotFound, Space
from commonplace.ambient import Ambient, Session, Transcript
from commonplace.ambient.events import Sessions, answer


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions("claude-code", tmp_path / "state")


@pytest.fixture
def ambient(space: Space) -> Ambient:
    return Ambient(space)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A project, and another one that opted out."""
    for name in ("open", "private/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "private" / ".nomemory").touch()
    return tmp_path / "open", tmp_path / "private" / "deep"


def event(name: str, folder: Path, transcript: Path, session: str = SESSION, **more: object) -> dict[str, Any]:
    given = {"session_id": session, "cwd": str(folder), "transcript_path": str(transcript), "hook_event_name": name}
    return {**given, **more}


def saved(space: Space, thread: str = SESSION) -> list[str]:
    try:
        return [str(one.content) for one in space.threads.messages(thread).messages]
    except NotFound:
        return []


@pytest.mark.promise("ambient-hooks-off")
def test_what_was_said_in_a_project_that_opted_out_is_not_saved_after_the_folder_changed(
    space: Space, ambient: Ambient, sessions: Sessions, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    public, private = folders
    file = tmp_path / "session.jsonl"
    file.write_text(
        line("user", "Said in the open", number(1), cwd=str(public))
        + line("assistant", "Said in private", number(2), cwd=str(private))
        + line("user", "Said in the open again", number(3), cwd=str(public))
    )
    answer(ambient, sessions, event("SessionStart", public, file))
    answer(ambient, sessions, event("Stop", public, file))
    assert saved(space) == ["Said in the open", "Said in the open again"]


@pytest.mark.promise("ambient-hooks-off")
def test_a_session_that_began_in_a_project_that_opted_out_stays_without_memory(
    space: Space, ambient: Ambient, sessions: Sessions, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    public, private = folders
    fill(space)
    remember(space, CAT)
    file = tmp_path / "session.jsonl"
    answer(ambient, sessions, event("SessionStart", private, file))
    file.write_text(line("user", "About the private project", number(1), cwd=str(public)))
    asked = event("UserPromptSubmit", public, file, prompt="What is the name of the cat of the user?")
    # The next process knows where the session began.
    for known in (sessions, Sessions("claude-code", tmp_path / "state")):
        assert answer(ambient, known, asked) is None
        answer(ambient, known, event("Stop", public, file))
    assert saved(space) == []
    assert answer(ambient, sessions, {**asked, "session_id": OTHER}) is not None


@pytest.mark.promise("ambient-hooks-off")
def test_codex_says_its_folder_in_steps_of_their_own(
    space: Space, ambient: Ambient, sessions: Sessions, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    public, private = folders

    def said(text: str) -> str:
        return json.dumps({"type": "event_msg", "payload": {"type": "user_message", "message": text}}) + "\n"

    def moved(folder: Path) -> str:
        return json.dumps({"type": "turn_context", "payload": {"cwd": str(folder)}}) + "\n"

    file = tmp_path / "rollout.jsonl"
    file.write_text(moved(public) + said("In the open") + moved(private) + said("In private"))
    answer(ambient, sessions, event("Stop", public, file))
    with file.open("a") as stream:  # the next event reads from here, and still knows the folder
        stream.write(said("In private again") + moved(public) + said("In the open again"))
    answer(ambient, sessions, event("Stop", public, file))
    [thread] = space.threads.list().threads
    assert saved(space, thread.id) == ["In the open", "In the open again"]


class Slow(Ambient):
    """Waits until both prompts have arrived, or cannot both arrive."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self.both = threading.Barrier(2)

    def recall(self, prompt: str, session: Session | None = None, **limits: Any) -> str:
        with contextlib.suppress(threading.BrokenBarrierError):
            self.both.wait(0.5)
        return super().recall(prompt, session, **limits)


@pytest.mark.promise("ambient-never-twice")
@pytest.mark.parametrize("is_one_process", [True, False])
def test_two_prompts_at_once_get_a_memory_once(space: Space, tmp_path: Path, is_one_process: bool) -> None:
    fill(space)
    remember(space, CAT)
    ambient = Slow(space)
    asked = event("UserPromptSubmit", tmp_path, tmp_path / "none", prompt="What is the name of the cat of the user?")
    first = Sessions("claude-code", tmp_path / "state")
    second = first if is_one_process else Sessions("claude-code", tmp_path / "state")
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda known=known: answers.append(answer(ambient, known, asked)))
        for known in (first, second)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found is None for found in answers) == [False, True]


def test_the_files_of_sessions_are_private_and_odd_ones_are_ignored(
    space: Space, ambient: Ambient, sessions: Sessions, tmp_path: Path
) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text(line("user", "Something to save", number(1)))
    answer(ambient, sessions, event("Stop", tmp_path, file))
    [state] = (tmp_path / "state").glob("*.json")
    assert {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "state").iterdir()} == {0o600}
    for written in ('{"shown": 1, "saved": "x", "first_folder": 3, "saved_folder": []}', "[]", "\udcff"):
        state.write_bytes(written.encode(errors="surrogateescape"))
        assert sessions.unsaved(SESSION) == Transcript(SESSION)
        assert answer(ambient, sessions, event("UserPromptSubmit", tmp_path, file, prompt="A word or two")) is None
    os.utime(state, (0, 0))
    sessions.sweep()
    assert not state.exists()
