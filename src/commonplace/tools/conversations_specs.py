"""What a model is told about the conversation tools: names, descriptions, schemas and honest annotations, as data."""

from __future__ import annotations

from typing import Any

from commonplace.space.messages import ROLES
from commonplace.tools.records_specs import ToolSpec

MAX_READ = 100
MAX_FOUND = 50

_STRING = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}
_THREAD = {
    "id": _STRING,
    "title": {"type": ["string", "null"]},
    "createdAt": _STRING,
    "updatedAt": _STRING,
}
_MESSAGE = {"id": _STRING, "threadId": _STRING, "role": _STRING, "text": _STRING, "createdAt": _STRING, "content": {}}


def _input(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _items(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": properties, "required": required}}


def _output(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


THREAD_LIST = ToolSpec(
    name="thread_list",
    title="List conversations",
    description="List the conversations, the one used last first: ids, titles and times.",
    input_schema=_input(
        [],
        limit={**_COUNT, "description": f"How many at most (20, up to {MAX_READ})."},
        cursor={"type": "string", "description": "nextCursor of the page before."},
    ),
    output_schema=_output(["items"], items=_items(_THREAD, [*_THREAD]), nextCursor=_STRING),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

THREAD_READ = ToolSpec(
    name="thread_read",
    title="Read a conversation",
    description=(
        "Read a conversation in time order: its last messages; with a query, also those that bear on it, with their "
        "neighbours; or, with around, one message and what stands beside it."
    ),
    input_schema=_input(
        ["thread"],
        thread={"type": "string", "description": "The id of the conversation."},
        last={
            "type": "integer",
            "minimum": 0,
            "description": f"How many of the last messages (10, up to {MAX_READ}); with around, how many on each side.",
        },
        query={"type": "string", "minLength": 1, "description": "What to be reminded of, in words."},
        around={"type": "string", "description": "The id of a message, such as one that conversation_search found."},
    ),
    output_schema=_output(
        ["thread", "items"],
        thread=_output([*_THREAD], **_THREAD),
        items=_items(_MESSAGE, ["id", "role", "content", "createdAt"]),
        notices={"type": "array", "items": _STRING},
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

CONVERSATION_SEARCH = ToolSpec(
    name="conversation_search",
    title="Search conversations",
    description=(
        "Find messages of any conversation by meaning and by words, the best first. The hits are snippets: read one in "
        "its place with thread_read and around."
    ),
    input_schema=_input(
        ["query"],
        query={"type": "string", "minLength": 1, "maxLength": 1000, "description": "Short and specific."},
        limit={**_COUNT, "description": f"How many at most (10, up to {MAX_FOUND})."},
    ),
    output_schema=_output(
        ["items"],
        items=_items(
            {**_MESSAGE, "similarity": {"type": "number"}},
            ["id", "threadId", "role", "text", "createdAt", "similarity"],
        ),
        notices={"type": "array", "items": _STRING},
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

MESSAGE_ADD = ToolSpec(
    name="message_add",
    title="Save messages",
    description=(
        "Save messages of a conversation, all or none, in their order. Without a thread a new conversation begins; it "
        "is titled after its first user message. A message that has an id is saved once, however often it is sent."
    ),
    input_schema=_input(
        ["messages"],
        messages={
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string", "enum": [*ROLES]},
                    "content": {
                        "description": "A text, or a list of parts.",
                        "anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}],
                    },
                    "id": _STRING,
                    "createdAt": {"type": "string", "description": "ISO 8601; left out, now."},
                },
                "required": ["role", "content"],
            },
        },
        thread={"type": "string", "description": "The id of the conversation; left out, a new one begins."},
        title={"type": "string", "description": "For a new conversation."},
    ),
    output_schema=_output(
        ["thread", "items"],
        thread=_output([*_THREAD], **_THREAD),
        items=_items({"id": _STRING, "createdAt": _STRING}, ["id", "createdAt"]),
    ),
    is_read_only=False,
    is_destructive=False,
    is_idempotent=False,
)

WORKING_MEMORY_READ = ToolSpec(
    name="working_memory_read",
    title="Read working memory",
    description=(
        "Read what is to be kept in mind of the user across all conversations: preferences, projects, context, "
        "decisions. Read it first in a conversation; updateWorkingMemory changes it."
    ),
    input_schema=_input([]),
    output_schema=_output(["memory"], memory={"type": ["object", "string", "null"]}, updatedAt=_STRING),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)
