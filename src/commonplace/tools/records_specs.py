"""What a model is told about the record tools: names, descriptions, schemas and honest annotations, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commonplace.space.names import SEARCHED_KINDS


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool. `is_read_only`, `is_destructive` and `is_idempotent` are MCP's hints; none reaches outside the book."""

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    is_read_only: bool
    is_destructive: bool
    is_idempotent: bool


_STRING = {"type": "string"}
_TAGS = {"type": "array", "items": _STRING}
_CONTENT = {"anyOf": [{"type": name} for name in ("object", "string", "array", "number", "boolean")]}
_NARROW_TAGS = {**_TAGS, "description": "Only memories with all of these tags, such as project:alpha."}
_MATCH = {"type": "string", "enum": ["all", "any"], "description": 'Must a memory have all tags (default) or "any"?'}
_ID = {"type": "string", "description": "The id of a record."}


def _input(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _output(required: list[str], *, more: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    items = {"type": "array", "items": {"type": "object", "properties": properties, "required": required}}
    return {"type": "object", "properties": {"items": items, **(more or {})}, "required": ["items"]}


_SHORT = {"id": _STRING, "type": _STRING, "tags": _TAGS, "createdAt": _STRING, "uri": _STRING, "summary": _STRING}

CREATE = ToolSpec(
    name="memory_create",
    title="Save a memory",
    description=(
        "Save durable knowledge: a decision, a runbook, a fact, a preference, a fix that worked. Never secrets or raw "
        "logs. The same type, source and content saved again is the same memory: tags are joined, the larger "
        "confidence stays. To change a memory, give its id."
    ),
    input_schema=_input(
        ["type", "content", "source", "confidence"],
        type={"type": "string", "description": "Such as note, decision, runbook, todo, finding."},
        content={"description": 'What to remember: an object is best, such as {"summary": "…"}.', **_CONTENT},
        source={"type": "string", "description": "Where it comes from, such as chat://claude/2025-09-17."},
        confidence={
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "0.9-1 confirmed, 0.6-0.8 likely, 0.3-0.5 a guess.",
        },
        tags={
            **_TAGS,
            "description": "Lower case, of a-z 0-9 : _ -; always one project:<name>, then topic:, env:, status:.",
        },
        id={"type": "string", "description": "Edit this memory; then give only the fields that change."},
    ),
    output_schema=_output(
        ["id", "type", "tags", "confidence", "createdAt"],
        id=_STRING,
        type=_STRING,
        tags=_TAGS,
        confidence={"type": "number"},
        createdAt=_STRING,
    ),
    is_read_only=False,
    is_destructive=True,  # with an id it overwrites
    is_idempotent=True,
)

SEARCH = ToolSpec(
    name="memory_search",
    title="Search memories",
    description=(
        "Find memories by meaning and by words, the best first: records, files and messages. Call it before you "
        "answer. The hits are summaries: read one in full with memory_get, or at its mem:// address. Nothing found? "
        "Leave out type, then use fewer tags, then other words."
    ),
    input_schema=_input(
        ["query"],
        query={"type": "string", "minLength": 1, "maxLength": 1000, "description": "Short and specific."},
        type={"type": "string", "description": "Only memories of this type."},
        tags=_NARROW_TAGS,
        match=_MATCH,
        kinds={
            "type": "array",
            "items": {"type": "string", "enum": list(SEARCHED_KINDS)},
            "description": "Where to look; left out, everywhere.",
        },
        after={"type": "string", "description": "Only what changed at or after this day or time, such as 2026-01-31."},
        before={"type": "string", "description": "Only what changed before it."},
        limit={"type": "integer", "minimum": 1, "description": "How many at most; above the maximum it is capped."},
    ),
    output_schema=_output(
        ["id", "type", "similarity", "tags", "createdAt"],
        more={"notices": _TAGS},
        **_SHORT,
        similarity={"type": "number"},
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

LIST = ToolSpec(
    name="memory_list",
    title="List memories",
    description="List records by type and tags, the newest first, without a search.",
    input_schema=_input(
        [],
        type={"type": "string", "description": "Only records of this type."},
        tags=_NARROW_TAGS,
        match=_MATCH,
        limit={"type": "integer", "minimum": 1, "description": "How many at most (20)."},
        cursor={"type": "string", "description": "nextCursor of the page before."},
    ),
    output_schema=_output(["id", "type", "tags", "createdAt"], more={"nextCursor": _STRING}, **_SHORT),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

GET = ToolSpec(
    name="memory_get",
    title="Read a memory",
    description="Read memories in full, by the ids or the mem:// addresses that a search or a list gave.",
    input_schema=_input(
        ["id"],
        id={
            "anyOf": [_STRING, {**_TAGS, "maxItems": 20}],
            "description": "An id or a mem:// address, or a list of them.",
        },
        offset={"type": "integer", "minimum": 0, "description": "Of a long one: the character to read on from."},
    ),
    output_schema=_output(
        ["id", "type", "content", "tags", "createdAt"],
        more={"missing": _TAGS, "left": _TAGS},
        id=_STRING,
        type=_STRING,
        content={"anyOf": [*_CONTENT["anyOf"], {"type": "null"}]},  # of a message that only calls tools
        tags=_TAGS,
        createdAt=_STRING,
    ),
    is_read_only=True,
    is_destructive=False,
    is_idempotent=True,
)

DELETE = ToolSpec(
    name="memory_delete",
    title="Delete a memory",
    description="Delete one record that is wrong or no longer wanted, or take its deletion back.",
    input_schema=_input(["id"], id=_ID, undo={"type": "boolean", "description": "Take the deletion back."}),
    output_schema=_output(["id"], id=_STRING),
    is_read_only=False,
    is_destructive=True,
    is_idempotent=True,
)

TOOLS: tuple[ToolSpec, ...] = (CREATE, SEARCH, LIST, GET, DELETE)
