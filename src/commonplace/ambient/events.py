"""Events of clients with hooks, and what is answered to each: Claude Code, Codex and Gemini CLI.

An event is a JSON object with `hook_event_name`, `session_id`, `transcript_path` and `cwd`. The answer is the context
to add, or nothing. What a session was shown is kept in a file, because the next event may meet another process.

The events are described at https://code.claude.com/docs/en/hooks, https://developers.openai.com/codex/hooks and
https://geminicli.com/docs/hooks/reference.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commonplace.ambient.engine import Ambient, Project, Session, project_of
from commonplace.ambient.hook import SAVES, digest
from commonplace.ambient.turns import Transcript

STARTS = ("SessionStart",)
PROMPTS = ("UserPromptSubmit", "BeforeAgent")
_FORGETS = ("compact", "clear")
"""Reasons for a start after which the model no longer has what it was shown."""

_MAX_SESSIONS = 100
_MAX_SHOWN = 5_000
_KEPT_SECONDS = 30 * 86_400


class Sessions:
    """The sessions of one client, in memory and in files of a folder that only the owner can read."""

    def __init__(self, client: str, folder: Path) -> None:
        self.client = client
        self._folder = folder
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def held(self, id: str, project: Path | None) -> Iterator[Session]:
        """A session for one event at a time, of all processes, with what it was shown until then."""
        with self._locked(id):
            session = self._in_memory(id)
            session.project = project
            shown = self._read(id).get("shown")
            before = {name for name in shown if isinstance(name, str)} if isinstance(shown, list) else set[str]()
            session.shown = before.copy()
            yield session
            if session.shown != before:
                self._write(id, shown=sorted(session.shown)[:_MAX_SHOWN])

    def folders(self, id: str, folder: str | None) -> list[str]:
        """The working directory of an event, and the one in which its session was first met."""
        first = self._read(id).get("first_folder")
        if not isinstance(first, str) and folder is not None:
            with self._locked(id):
                self._write(id, first_folder=folder)
        return [*dict.fromkeys(one for one in (first, folder) if isinstance(one, str))]

    def unsaved(self, id: str) -> Transcript:
        """The transcript of a session, from where its turns are not saved yet."""
        state = self._read(id)
        saved, folder = state.get("saved"), state.get("saved_folder")
        offset = saved if isinstance(saved, int) and saved >= 0 else 0
        return Transcript(id, offset, folder if isinstance(folder, str) else None)

    def keep(self, id: str, saved: Transcript) -> None:
        """Write down up to where the transcript of a session is saved."""
        with self._locked(id):
            self._write(id, saved=saved.offset, saved_folder=saved.folder)

    def _in_memory(self, id: str) -> Session:
        with self._lock:
            session = self._sessions.setdefault(id, Session(id, None, self.client, transcript=Transcript(id)))
            self._sessions.move_to_end(id)
            while len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
            return session

    @contextmanager
    def _locked(self, id: str) -> Iterator[None]:
        """A lock on the file of a session. It ends with its process. Windows has no such lock."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(self._file(id).with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(opened, fcntl.LOCK_EX)
                os.utime(opened)  # in use, so not to be removed
            yield
        finally:
            os.close(opened)

    def _write(self, id: str, **changed: object) -> None:
        state = {**self._read(id), **changed}
        draft = self._file(id).with_suffix(f".{os.getpid()}")
        opened = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with open(opened, "w", encoding="utf-8") as stream:
            json.dump(state, stream)
        os.replace(draft, self._file(id))

    def sweep(self) -> None:
        """Remove the files of sessions that nobody has used for a month."""
        oldest = time.time() - _KEPT_SECONDS
        for file in self._folder.glob("*") if self._folder.is_dir() else ():
            if file.is_file() and file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)

    def _read(self, id: str) -> Mapping[str, Any]:
        try:
            state = json.loads(self._file(id).read_bytes())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _file(self, id: str) -> Path:
        return self._folder / f"{digest([self.client, id])}.json"


def answer(ambient: Ambient, sessions: Sessions, event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Handle an event; return what to print, or None."""
    name, id = event.get("hook_event_name"), event.get("session_id")
    if not isinstance(name, str) or not isinstance(id, str) or not id or event.get("agent_id"):
        return None  # a subagent has its own conversation
    cwd, path, prompt = (_text(event.get(field)) for field in ("cwd", "transcript_path", "prompt"))
    # A session that began in a project without memory stays without it, whatever folder it goes to.
    projects = [project_of(folder) for folder in sessions.folders(id, cwd)]
    if name in SAVES:
        _save(ambient, sessions, Session(id, _root(projects), sessions.client), path, projects)
        return None
    is_start = name in STARTS
    if not is_start and (name not in PROMPTS or prompt is None):
        return None
    if not all(project.recalls for project in projects):
        return None
    with sessions.held(id, _root(projects)) as session:
        if is_start and event.get("source") in _FORGETS:
            session.shown.clear()
        session.transcript.read(path)
        text = ambient.brief(session) if is_start else ambient.recall(prompt or "", session)
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}} if text else None


def _save(
    ambient: Ambient, sessions: Sessions, session: Session, path: str | None, projects: Sequence[Project]
) -> None:
    """Save the turns that were said where saving is on. The others are not saved later either."""
    unsaved = sessions.unsaved(session.id)
    is_on = all(project.saves for project in projects)
    known: dict[str | None, bool] = {None: True}
    while True:
        before = unsaved.offset
        turns = unsaved.read(path, skips=False)
        for folder in {turn.folder for turn in turns} - known.keys():
            known[folder] = folder is not None and project_of(folder).saves
        ambient.save(session, [turn for turn in turns if is_on and known[turn.folder]])
        if unsaved.offset == before:
            return
        sessions.keep(session.id, unsaved)


def _root(projects: Sequence[Project]) -> Path | None:
    return projects[-1].root if projects else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
