"""The bodies that requests bring. Unknown fields are refused, and `false` is no number.

What the library checks itself is only described here and passed on as it came, so that a wrong value is refused in
the library's own words; what it does not check has its strict type.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema

MOMENT = "2026-01-31T12:00:00Z"
_TEXT = {"type": "string"}
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_TIME = {"type": ["string", "null"], "examples": [MOMENT], "description": "ISO 8601, with an offset or `Z`."}
_OBJECT = {"type": "object", "additionalProperties": True}
_OPTIONAL_OBJECT = {"type": ["object", "null"], "additionalProperties": True}
_SECONDS = {"type": ["number", "null"], "exclusiveMinimum": 0, "description": "How long it lives; null is for ever."}

Text = Annotated[Any, WithJsonSchema(_TEXT)]
OptionalText = Annotated[Any, WithJsonSchema(_OPTIONAL_TEXT)]
Time = Annotated[Any, WithJsonSchema(_TIME)]
Object = Annotated[Any, WithJsonSchema(_OBJECT)]
OptionalObject = Annotated[Any, WithJsonSchema(_OPTIONAL_OBJECT)]
Seconds = Annotated[Any, WithJsonSchema(_SECONDS)]
Json = Annotated[Any, WithJsonSchema({"description": "Any JSON."})]
Tags = Annotated[Any, WithJsonSchema({"type": "array", "items": _TEXT, "examples": [["project:x"]]})]
Confidence = Annotated[Any, WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1, "examples": [0.9]})]
Count = Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 0})]
Kind = Annotated[
    Any, WithJsonSchema({"enum": ["file", "directory", "record", "thread", "message", "working"], "type": "string"})
]
Revision = Annotated[StrictInt, Field(ge=0, lt=2**63)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    def given(self) -> dict[str, Any]:
        """The fields that the request named, as arguments."""
        return {name: getattr(self, name) for name in self.model_fields_set}


# Files


class Replacement(Body):
    """Replace every occurrence of a text; `unique` refuses more than one."""

    old: Text
    new: Text
    unique: StrictBool = False


class Insertion(Body):
    """Insert after a line; 0 is the top."""

    line: Count
    text: Text


class FileEdit(Body):
    """One of the three. The whole `text` keeps the file's time to live, which a PUT ends."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "oneOf": [{"required": ["replace"]}, {"required": ["insert"]}, {"required": ["text"]}],
            "examples": [{"replace": {"old": "Tuesday", "new": "Thursday"}}],
        },
    )
    replace: Replacement = Field(default=None)  # type: ignore[assignment]
    insert: Insertion = Field(default=None)  # type: ignore[assignment]
    text: StrictStr = Field(default=None)  # type: ignore[assignment]


class Move(Body):
    source: Text = Field(examples=["/notes/today"])
    target: Text = Field(examples=["/notes/2026-01-31"])


# Records


class NewRecord(Body):
    type: Text = Field(examples=["note"])
    content: Json = Field(examples=[{"text": "Deploys go out on Tuesdays"}])
    source: Text = Field(examples=["meeting"])
    confidence: Confidence
    tags: Tags = ()
    ttl_seconds: Seconds = None
    id: OptionalText = None


class RecordChange(Body):
    type: Text = Field(default=None, examples=["note"])
    content: Json = None
    source: Text = None
    confidence: Confidence = None
    tags: Tags = None
    ttl_seconds: Seconds = None


# Conversations


class NewThread(Body):
    title: OptionalText = Field(default=None, examples=["Deploys"])
    resource: OptionalText = None
    metadata: OptionalObject = None
    id: OptionalText = None


class ThreadChange(Body):
    title: OptionalText = Field(default=None, examples=["Deploys"])
    metadata: Object = None


class TitleSuggestion(Body):
    thread: Text
    title: Text


class Clone(Body):
    thread: Text
    upto_message: OptionalText = None
    upto: Time = None
    after: Time = None
    only: Annotated[Any, WithJsonSchema({"type": ["array", "null"], "items": _TEXT})] = None
    last: Annotated[Any, WithJsonSchema({"type": ["integer", "null"], "minimum": 0})] = None
    title: OptionalText = None
    metadata: OptionalObject = None
    new_id: OptionalText = None
    to: OptionalText = None


class Transfer(Body):
    thread: Text
    to: Text = Field(examples=["u-456"])


Messages = Annotated[
    Any,
    WithJsonSchema({"type": "array", "items": _OBJECT}),
    Field(examples=[[{"role": "user", "content": "When do we deploy?"}]]),
]


class NewConversation(Body):
    messages: Messages
    title: OptionalText = Field(default=None, examples=["Deploys"])
    resource: OptionalText = None


class NewMessages(Body):
    messages: Messages
    verbatim: StrictBool = False


class MessageChange(Body):
    content: Json = None
    metadata: Object = None


class MessageIds(Body):
    ids: Annotated[Any, WithJsonSchema({"type": "array", "items": _TEXT})]


class RecallBody(Body):
    thread: Text
    resource: OptionalText = None
    query: OptionalText = Field(default=None, examples=["when do we deploy?"])
    last: Count = 10
    top: Count = 4
    neighbours: Count = 1
    scope: Annotated[Any, WithJsonSchema({"type": "string", "enum": ["thread", "resource"]})] = "thread"


class ContextBody(RecallBody):
    max_tokens: Annotated[Any, WithJsonSchema({"type": ["integer", "null"], "minimum": 1})] = None
    working: StrictBool = True


class WorkingUpdate(Body):
    """A text replaces the text; an object is merged: null deletes a field, lists are replaced."""

    content: Annotated[
        Any, WithJsonSchema({"oneOf": [_TEXT, _OBJECT], "examples": ["# User\n- **Name**: Ana", {"name": "Ana"}]})
    ]
    template: Annotated[Any, WithJsonSchema({"oneOf": [_TEXT, _OBJECT, {"type": "null"}]})] = None
    revision: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None


# Search, history


class SearchBody(Body):
    query: Text = Field(examples=["when do we deploy?"])
    limit: StrictInt = Field(default=10, ge=1, le=1_000)
    offset: StrictInt = Field(default=0, ge=0, le=10_000)
    kinds: list[StrictStr] | None = Field(default=None, examples=[["file", "record", "message"]])
    type: StrictStr | None = None
    tags: Tags = ()
    match: Literal["all", "any"] = "all"
    filter: OptionalObject = None
    after: Time = None
    before: Time = None
    as_of: Time = None
    now: Time = None
    below: StrictBool = False
    wrapped: StrictBool = False


class ThreadSearchBody(Body):
    query: Text = Field(examples=["when do we deploy?"])
    limit: Count = 10
    resource: OptionalText = None
    now: Time = None


class Restoration(Body):
    kind: Kind
    key: StrictStr = Field(examples=["/notes/today"])
    revision: Revision


class Undoing(Body):
    commit: Revision = Field(examples=[17])


class Purge(Body):
    """One entry, all of a kind, history before a time, or with `everything` the whole namespace."""

    kind: StrictStr | None = Field(default=None, examples=["file"])
    key: StrictStr | None = Field(default=None, examples=["/notes/today"])
    history_before: Time = None
    everything: StrictBool = False
