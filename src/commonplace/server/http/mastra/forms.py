"""Threads and messages in the words of Mastra's client: camel case, times with milliseconds, contents in format 2."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from commonplace.agents import MemoryConfig
from commonplace.checks import JSON
from commonplace.space.conversation import NumberedPage, Thread
from commonplace.space.message_text import searchable_text
from commonplace.space.messages import SIGNAL, Message, is_signal_of_user
from commonplace.space.working_memory import WorkingMemory

Form = dict[str, Any]
CONFIG = MemoryConfig()
"""What an agent has here that no program has configured: the defaults of `commonplace.agents`."""


def time_form(time: datetime) -> str:
    """As JavaScript's `Date` writes it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def thread_form(thread: Thread) -> Form:
    form = {
        "id": thread.id,
        "resourceId": thread.resource_id,
        "title": thread.title,
        "metadata": thread.metadata,
        "createdAt": time_form(thread.created_at),
        "updatedAt": time_form(thread.updated_at),
    }
    return form if thread.title is not None else {name: value for name, value in form.items() if name != "title"}


def message_form(message: Message) -> Form:
    """A message with all that it came with; a content in another shape is told in format 2."""
    return {
        **message.extra,
        "id": message.id,
        "role": role_form(message),
        "content": content_form(message.content, message.extra.get("parts")),
        "threadId": message.thread_id,
        "resourceId": message.resource_id,
        "createdAt": time_form(message.created_at),
    }


def role_form(message: Message) -> str:
    return SIGNAL if message.role == "user" and is_signal_of_user(message.content) else message.role


def content_form(content: JSON, parts: JSON = None) -> JSON:
    """`{"format": 2, "parts": […]}`, which is how Mastra's programs read every message."""
    if isinstance(content, Mapping) and ("format" in content or "parts" in content):
        return content
    if isinstance(content, str) and not isinstance(parts, (list, tuple)):
        return {"format": 2, "parts": [{"type": "text", "text": content}], "content": content}
    given = parts if isinstance(parts, (list, tuple)) else content
    listed = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    return {"format": 2, "parts": [_part_form(part) for part in listed]}


def _part_form(part: JSON) -> JSON:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
    if kind not in ("tool-call", "tool-result"):
        return part
    told = {name: value for name, value in cast("Mapping[str, Any]", part).items() if name != "type"}
    return {
        "type": "tool-invocation",
        "toolInvocation": {"state": "call" if kind == "tool-call" else "result", **told},
    }


def text_of(message: Message) -> str:
    """The words of a message, for a list of what a search found."""
    return searchable_text({**message.extra, "content": message.content})


def page_form(name: str, page: NumberedPage[Any], items: Sequence[Form]) -> Form:
    return {
        name: items,
        "total": page.total,
        "page": page.page,
        "perPage": page.per_page,
        "hasMore": page.has_more,
    }


def short_form(message: Message) -> Form:
    """A message beside one that a search found."""
    return {
        "id": message.id,
        "role": role_form(message),
        "content": text_of(message),
        "createdAt": time_form(message.created_at),
    }


def hit_form(message: Message, thread: Thread, before: Sequence[Message], after: Sequence[Message]) -> Form:
    return {
        **short_form(message),
        "threadId": thread.id,
        "threadTitle": thread.title or thread.id,
        "context": {"before": [*map(short_form, before)], "after": [*map(short_form, after)]},
    }


def working_form(memory: WorkingMemory | None) -> str | None:
    """The text of a working memory; data is told as JSON, which an update gives back so."""
    if memory is None:
        return None
    if isinstance(memory.content, str):
        return memory.content
    return json.dumps(memory.content, ensure_ascii=False, default=dict)


def config_form() -> Form:
    """What an agent's memory does by itself here."""
    recall, working = CONFIG.semantic_recall, CONFIG.working_memory
    return {
        "memoryType": "local",
        "config": {
            "lastMessages": CONFIG.last_messages,
            "semanticRecall": {"topK": recall.top, "messageRange": recall.neighbours, "scope": recall.scope},
            "workingMemory": {"enabled": working.enabled, "scope": working.scope},
            "generateTitle": bool(CONFIG.generate_title),
            "observationalMemory": {"enabled": False},
        },
    }
