"""Events of clients with hooks, and what is answered to each: Claude Code, Codex and Gemini CLI.

An event is a JSON object with `hook_event_name`, `session_id`, `transcript_path` and `cwd`. The answer is the context
to add, or nothing. What a session was shown is kept in a file, because the next event may meet another process.

The events are described at https://code.claude.com/docs/en/hooks, https://developers.openai.com/codex/hooks and
https://geminicli.com/docs/hooks/reference.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commonplace.ambient.engine import Ambient, Session, project_of
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
        self._client = client
        self._folder = folder
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._saved: dict[str, int] = {}
        self._lock = threading.Lock()

    def get(self, id: str, project: Path | None) -> Session:
        with self._lock:
            session = self._sessions.get(id)
            if session is None:
                known = self._read(id)
                session = Session(id, project, self._client, transcript=Transcript(id))
                session.shown.update(name for name in known.get("shown", ()) if isinstance(name, str))
                saved = known.get("saved", 0)
                self._saved[id] = saved if isinstance(saved, int) and saved >= 0 else 0
                self._sessions[id] = session
                while len(self._sessions) > _MAX_SESSIONS:
                    former, _ = self._sessions.popitem(last=False)
                    self._saved.pop(former, None)
            self._sessions.move_to_end(id)
            session.project = project
            return session

    def saved(self, session: Session) -> int:
        """Up to which byte the turns of a transcript are saved."""
        return self._saved.get(session.id, 0)

    def keep(self, session: Session, *, saved: int | None = None) -> None:
        """Write down what a session was shown, and up to where its transcript is saved."""
        with self._lock:
            if saved is not None:
                self._saved[session.id] = saved
            state = {"shown": sorted(session.shown.copy())[:_MAX_SHOWN], "saved": self._saved.get(session.id, 0)}
            file = self._file(session.id)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = file.with_suffix(f".{os.getpid()}")
            opened = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with open(opened, "w", encoding="utf-8") as stream:
                json.dump(state, stream)
            os.replace(draft, file)

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
        return self._folder / f"{digest([self._client, id])}.json"


def answer(ambient: Ambient, sessions: Sessions, event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Handle an event; return what to print, or None."""
    name, id = event.get("hook_event_name"), event.get("session_id")
    if not isinstance(name, str) or not isinstance(id, str) or not id or event.get("agent_id"):
        return None  # a subagent has its own conversation
    folder = event.get("cwd")
    project = project_of(folder) if isinstance(folder, str) else None
    recalls, saves = (True, True) if project is None else (project.recalls, project.saves)
    session = sessions.get(id, None if project is None else project.root)
    path = event.get("transcript_path")
    transcript = path if isinstance(path, str) else None
    text = ""
    if name in STARTS and recalls:
        if event.get("source") in _FORGETS:
            session.shown.clear()
        session.transcript.read(transcript)
        text = ambient.brief(session)
        sessions.keep(session)
    elif name in PROMPTS and recalls and isinstance(event.get("prompt"), str):
        session.transcript.read(transcript)
        text = ambient.recall(str(event["prompt"]), session)
        if text:
            sessions.keep(session)
    elif name in SAVES:
        unsaved = Transcript(id, offset=sessions.saved(session))
        while True:
            before = unsaved.offset
            turns = unsaved.read(transcript, skips=False)
            if saves:  # if not, these turns are not saved later either
                ambient.save(session, turns)
            if unsaved.offset == before:
                break
            sessions.keep(session, saved=unsaved.offset)
    if not text:
        return None
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}
