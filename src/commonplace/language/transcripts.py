"""Reads lines of the transcripts of Claude Code, Codex and Gemini CLI: who said what, when, and in which folder.

Each program writes a line of JSON for each step; an older Gemini CLI writes one JSON document. What was said gets the
same id whoever reads it, so a session that was saved as it went on is not imported twice.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

_ID_SPACE = uuid.UUID("7a0a1e55-6d52-5c0e-9d9f-0f3b6f2f5a11")
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_CODEX_ROLES: dict[object, Literal["user", "assistant"]] = {"user_message": "user", "agent_message": "assistant"}
_GEMINI_ROLES: dict[object, Literal["user", "assistant"]] = {"user": "user", "gemini": "assistant"}


@dataclass(frozen=True, slots=True)
class Said:
    """What a line says. `content` is a text, or blocks as the program wrote them."""

    role: Literal["user", "assistant"]
    content: Any
    id: str | None
    """The id in the transcript; Codex writes none."""
    timestamp: object

    @property
    def text(self) -> str:
        return text_of(self.content)


def said_in(step: Mapping[str, Any]) -> Said | None:
    """What a step of any of the three programs says; None if it says nothing."""
    return _claude_code(step) or _codex(step) or _gemini(step)


def _claude_code(step: Mapping[str, Any]) -> Said | None:
    """`{"type": "user"|"assistant", "uuid", "timestamp", "message": {"role", "content": text or blocks}}`."""
    message, id, role = step.get("message"), step.get("uuid"), step.get("type")
    if role not in ("user", "assistant") or not isinstance(message, dict) or not isinstance(id, str) or not id:
        return None
    return Said(role, message.get("content"), id, step.get("timestamp"))


def _codex(step: Mapping[str, Any]) -> Said | None:
    """`{"type": "event_msg", "timestamp", "payload": {"type": "user_message"|"agent_message", "message"}}`."""
    payload = step.get("payload")
    if step.get("type") != "event_msg" or not isinstance(payload, dict):
        return None
    role, text = _CODEX_ROLES.get(_name(payload.get("type"))), payload.get("message")
    return Said(role, text, None, step.get("timestamp")) if role is not None and isinstance(text, str) else None


def _gemini(step: Mapping[str, Any]) -> Said | None:
    """`{"type": "user"|"gemini", "id", "timestamp", "content": text or [{"text"}]}`."""
    role, id = _GEMINI_ROLES.get(_name(step.get("type"))), step.get("id")
    if role is None or "content" not in step:
        return None
    return Said(role, step["content"], id if isinstance(id, str) and id else None, step.get("timestamp"))


def _name(value: object) -> str:
    return value if isinstance(value, str) else ""


def folder_of(step: Mapping[str, Any]) -> str | None:
    """The working directory: `cwd` of each step in Claude Code, of some in Codex. Gemini CLI does not write it."""
    payload = step.get("payload")
    found = step.get("cwd") or (payload.get("cwd") if isinstance(payload, dict) else None)
    return found if isinstance(found, str) else None


def messages_of(document: object) -> list[Any] | None:
    """The messages of a transcript that is one JSON document; None if it is something else."""
    messages = document.get("messages") if isinstance(document, dict) else None
    return messages if isinstance(messages, list) else None


def text_of(content: object) -> str:
    """The text of a message: the content itself, or its parts with text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part for part in content if isinstance(part, dict) and part.get("type", "text") == "text"]
    return "\n\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def without_reminders(text: str) -> str:
    """A text without what Claude Code tells the model about itself."""
    return _REMINDER.sub("", text)


def id_of(said: Said, session: str) -> str:
    """A UUID for what was said: its own id, or one made of the session and that id, or of its time and text."""
    if said.id is None:
        return _made(f"{session}\n{said.timestamp}\n{said.role}\n{said.text}")
    return said.id if is_uuid(said.id) else _made(f"{session}\n{said.id}")


def thread_id_of(client: str, session: str) -> str:
    """The id of the thread that has the turns of a session."""
    return session if is_uuid(session) else _made(f"{client}\n{session}")


def _made(name: str) -> str:
    return str(uuid.uuid5(_ID_SPACE, name.encode("utf-8", "replace").decode()))  # JSON may have half a surrogate pair


def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
