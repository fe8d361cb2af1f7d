"""What was said in a session of a client: its transcript, read further with each event, as turns with stable ids.

Claude Code, Codex and Gemini CLI each write a line of JSON for each step; an older Gemini CLI rewrites one JSON
document. Only what the user and the assistant said becomes a turn: no tool calls and results, no reasoning, no
subagents, no summaries of a compaction, and nothing that the client itself put into the conversation.
"""

from __future__ import annotations

import json
import os
import re
import stat
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

MAX_TRANSCRIPT_BYTES = 20_000_000
"""How much of a transcript one call reads."""

_MAX_CHARACTERS = 4_000_000
"""How many characters of a session are kept in memory to compare memories with."""

_ID_SPACE = uuid.UUID("7a0a1e55-6d52-5c0e-9d9f-0f3b6f2f5a11")
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)
_OF_CLIENT = re.compile(
    r"\s*(?:<(?:command-|local-command|bash-|user-memory-input|task-notification)|\[Request interrupted|Caveat: The)"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Something that was said. The id is that of the transcript, or made from what is in it."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    time: datetime | None = None
    folder: str | None = None
    """The working directory at that moment, if the transcript says it."""


@dataclass(slots=True)
class Transcript:
    """A transcript as far as it was read. `offset` is where the next call reads on, `folder` the working directory."""

    session: str
    offset: int = 0
    folder: str | None = None
    turns: list[Turn] = field(default_factory=list)
    """Those that the last call of `read` found."""
    _said: deque[str] = field(default_factory=deque)
    _characters: int = 0

    def read(self, path: str | None, *, skips: bool = True) -> Sequence[Turn]:
        """The turns that were added since the last call. A transcript that does not exist has none.

        If there is more than `MAX_TRANSCRIPT_BYTES`, its end is read, or without `skips` its next part.
        """
        self.turns = []
        for line in self._lines(path, skips):
            self._note(line)
        return self.turns

    def holds(self, text: str) -> bool:
        """Whether the conversation contains a text, whatever its white space and letter case are."""
        wanted = plain(text)
        return any(wanted in said for said in self._said)

    def hear(self, text: str) -> None:
        """Take a text as part of the conversation: a prompt that the transcript does not have yet."""
        said = plain(text)
        self._said.append(said)
        self._characters += len(said)
        while self._characters > _MAX_CHARACTERS:
            self._characters -= len(self._said.popleft())

    def _forget(self) -> None:
        self._said.clear()
        self._characters = 0

    def _lines(self, path: str | None, skips: bool) -> Iterator[Mapping[str, Any]]:
        if not path:
            return
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                return
            stream = open(path, "rb")  # noqa: SIM115 - closed below
        except (OSError, ValueError):
            return
        with stream:
            found = os.fstat(stream.fileno())
            if found.st_size < self.offset:  # another file has this name now
                self.offset = 0
                self._forget()
            if skips:
                self.offset = max(self.offset, found.st_size - MAX_TRANSCRIPT_BYTES)
            stream.seek(self.offset)
            written = stream.read(MAX_TRANSCRIPT_BYTES)
        if self.offset == 0 and (document := _document(written)) is not None:
            self._forget()  # it is rewritten with each turn, so it is read from the start each time
            yield from document
            return
        whole = written.rfind(b"\n") + 1  # the last line may not be complete yet
        if not whole and len(written) == MAX_TRANSCRIPT_BYTES:
            whole = len(written)  # part of a line that nobody can want
        self.offset += whole
        for line in written[:whole].splitlines():
            try:
                step = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(step, dict):
                yield step

    def _note(self, step: Mapping[str, Any]) -> None:
        if step.get("type") == "system" and step.get("subtype") == "compact_boundary":
            self._forget()  # the model no longer has what was before it
            return
        if step.get("isSidechain"):
            return
        self.folder = _folder(step) or self.folder
        for said in _attached(step):
            self.hear(said)
        turn = _claude(step) or _codex(step, self.session) or _gemini(step, self.session)
        if turn is not None:
            self.turns.append(replace(turn, folder=self.folder))
            self.hear(turn.text)


def plain(text: str) -> str:
    """A text in one letter case, with single spaces, for comparing."""
    return " ".join(text.casefold().split())


def _document(written: bytes) -> list[Mapping[str, Any]] | None:
    """The messages of a transcript that is one JSON document; None if it has a line for each step."""
    start = written.lstrip()[:1]
    if start != b"{" or b'"messages"' not in written[:10_000]:
        return None
    try:
        document = json.loads(written)
    except (ValueError, RecursionError):
        return None
    messages = document.get("messages") if isinstance(document, dict) else None
    return [one for one in messages if isinstance(one, dict)] if isinstance(messages, list) else None


def _claude(step: Mapping[str, Any]) -> Turn | None:
    """`{"type": "user"|"assistant", "uuid", "timestamp", "message": {"role", "content": text or blocks}}`."""
    message, id, role = step.get("message"), step.get("uuid"), step.get("type")
    if role not in ("user", "assistant") or not isinstance(message, dict) or not isinstance(id, str):
        return None
    if step.get("isMeta") or step.get("isCompactSummary") or step.get("isVisibleInTranscriptOnly"):
        return None
    text = _text_of(message.get("content"))
    return _turn(id if _is_uuid(id) else str(uuid.uuid5(_ID_SPACE, id)), role, text, step.get("timestamp"))


def _codex(step: Mapping[str, Any], session: str) -> Turn | None:
    """`{"type": "event_msg", "timestamp", "payload": {"type": "user_message"|"agent_message", "message"}}`."""
    payload = step.get("payload")
    if step.get("type") != "event_msg" or not isinstance(payload, dict):
        return None
    role = {"user_message": "user", "agent_message": "assistant"}.get(str(payload.get("type")))
    return None if role is None else _unnamed(session, role, payload.get("message"), step.get("timestamp"))


def _gemini(step: Mapping[str, Any], session: str) -> Turn | None:
    """`{"type": "user"|"gemini", "id", "timestamp", "content": text or [{"text"}]}`."""
    role = {"user": "user", "gemini": "assistant"}.get(str(step.get("type")))
    if role is None or "content" not in step:
        return None
    text, id = _text_of(step["content"]), step.get("id")
    if isinstance(id, str) and _is_uuid(id):
        return _turn(id, role, text, step.get("timestamp"))
    return _unnamed(session, role, text, step.get("timestamp"))


def _unnamed(session: str, role: str, text: object, timestamp: object) -> Turn | None:
    """A turn without an id gets one from the session, its time and its text: the same at every reading."""
    if not isinstance(text, str):
        return None
    return _turn(str(uuid.uuid5(_ID_SPACE, f"{session}\n{timestamp}\n{role}\n{text}")), role, text, timestamp)


def _turn(id: str, role: str, text: str, timestamp: object) -> Turn | None:
    # No store takes a NUL or half of a surrogate pair, and one such turn must not keep the others from being saved.
    text = text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    said = _REMINDER.sub(" ", text).strip() if role == "user" else text.strip()
    if not said or (role == "user" and _OF_CLIENT.match(said)):
        return None
    return Turn(id, "user" if role == "user" else "assistant", said, _time(timestamp))


def _folder(step: Mapping[str, Any]) -> str | None:
    """The working directory: `cwd` of each step in Claude Code, of some in Codex. Gemini CLI does not write it."""
    payload = step.get("payload")
    found = step.get("cwd") or (payload.get("cwd") if isinstance(payload, dict) else None)
    return found if isinstance(found, str) else None


def _text_of(content: object) -> str:
    """The text of a message: the content itself, or its parts with text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part for part in content if isinstance(part, dict) and part.get("type", "text") == "text"]
    return "\n\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _attached(step: Mapping[str, Any]) -> Iterator[str]:
    """What hooks and tools put into the conversation: it is no turn, but the model has it."""
    attachment = step.get("attachment")
    if isinstance(attachment, dict) and attachment.get("type") == "hook_additional_context":
        content = attachment.get("content")
        yield from (one for one in (content if isinstance(content, list) else [content]) if isinstance(one, str))
    message = step.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_result":
            inner = block.get("content")
            yield inner if isinstance(inner, str) else _text_of(inner)


def _time(timestamp: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return None
    if not 1970 <= found.year < 5000:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def thread_id_of(client: str, session: str) -> str:
    """The id of the thread that has the turns of a session."""
    return session if _is_uuid(session) else str(uuid.uuid5(_ID_SPACE, f"{client}\n{session}"))
