"""What was said in a session of a client: its transcript, read further with each event, as turns with stable ids.

Only what the user and the assistant said becomes a turn: no tool calls and results, no reasoning, no
subagents, no summaries of a compaction, and nothing that the client itself put into the conversation.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from commonplace.language.transcripts import folder_of, id_of, messages_of, said_in, text_of, without_reminders

MAX_TRANSCRIPT_BYTES = 20_000_000
"""How much of a transcript one call reads."""

_MAX_CHARACTERS = 4_000_000
"""How many characters of a session are kept in memory to compare memories with."""

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
        self.folder = folder_of(step) or self.folder
        for said in _attached(step):
            self.hear(said)
        turn = _turn(step, self.session)
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
    messages = messages_of(document)
    return None if messages is None else [one for one in messages if isinstance(one, dict)]


def _turn(step: Mapping[str, Any], session: str) -> Turn | None:
    """What a step says as a turn; None for what the client itself says."""
    said = said_in(step)
    if said is None or step.get("isMeta") or step.get("isCompactSummary") or step.get("isVisibleInTranscriptOnly"):
        return None
    # No store takes a NUL or half of a surrogate pair, and one such turn must not keep the others from being saved.
    text = said.text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = (without_reminders(text) if said.role == "user" else text).strip()
    if not text or (said.role == "user" and _OF_CLIENT.match(text)):
        return None
    return Turn(id_of(said, session), said.role, text, _time(said.timestamp))


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
            yield text_of(inner)


def _time(timestamp: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return None
    if not 1970 <= found.year < 5000:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
