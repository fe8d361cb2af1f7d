"""What the answers look like, for the documentation alone: answers are never run through these."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

KindName = Literal["file", "directory", "record", "thread", "message", "working"]
ActionName = Literal["created", "updated", "restored", "moved_here", "moved_away", "deleted", "expired"]
NEXT = "The address of the next page; null at the end."
CURSOR = "Where the next page begins; null at the end."


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class Problem(BaseModel):
    """RFC 9457. `code` is stable; programs decide by it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "/v1/problems#not_found",
                    "title": "It does not exist",
                    "status": 404,
                    "detail": "/notes/today does not exist; list its directory to see what does",
                    "code": "not_found",
                }
            ]
        }
    )
    type: str
    title: str
    status: int
    detail: str
    code: str


class ProblemKind(Model):
    code: str
    status: int
    title: str
    extra: list[str] = Field(description="Further fields of such a problem.")
    example: Problem


class ProblemKinds(Model):
    problems: list[ProblemKind]


class LimitsModel(Model):
    file_bytes: int
    file_lines: int
    path_bytes: int
    path_segments: int
    record_characters: int
    tags: int
    message_bytes: int
    metadata_bytes: int


class Caller(Model):
    """Who calls, as the credentials say, and what that opens."""

    service: str
    version: str
    name: str
    namespace: str
    reach: Literal["own", "below", "all"]
    actions: list[Literal["read", "write", "delete", "admin"]]
    limits: LimitsModel


class CommitModel(Model):
    commit: int | None = Field(description="What `POST /v1/undo` takes back; null where nothing was changed.")


# Files


class FileModel(Model):
    path: str = Field(examples=["/notes/today"])
    kind: Literal["file", "directory"]
    size: int
    lines: int
    revision: int
    created_at: datetime
    updated_at: datetime


class FilesPage(Model):
    files: list[FileModel]
    cursor: str | None = Field(description=CURSOR)
    next: str | None = Field(description=NEXT)


class EditedFile(Model):
    file: FileModel
    count: int = Field(description="How many occurrences were replaced; 1 for an insertion or a whole text.")


class RemovedModel(Model):
    files: int
    directories: int
    commit: int | None


class MovedModel(Model):
    entries: int
    commit: int | None


# Records


class RecordModel(Model):
    id: str
    type: str
    content: JsonValue
    source: str
    tags: list[str]
    confidence: float
    hash: str
    revision: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None


class RecordsPage(Model):
    records: list[RecordModel]
    cursor: str | None = Field(description=CURSOR)
    next: str | None = Field(description=NEXT)


# Entries, search, history


class EntryModel(Model):
    """An entry as it is stored."""

    namespace: str
    kind: KindName
    key: str = Field(description="As it is stored; U+0001 divides the parts of a path and of a message's key.")
    value: JsonValue
    text: str
    heading: str | None
    attributes: dict[str, JsonValue]
    identity: str | None
    revision: int
    commit: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    actor: str | None


class HitModel(Model):
    kind: KindName
    key: str = Field(description="A file's path, or the id of a record or message.")
    entry: EntryModel
    score: float = Field(ge=0, le=1)
    parts: dict[str, float]
    snippet: str
    start: int
    end: int


class SearchModel(Model):
    hits: list[HitModel]
    notices: list[str] = Field(description="Where vectors could not take part.")
    wrapped: str | None = Field(default=None, description="With `wrapped`: the hits for a prompt, marked as data.")
    next: str | None = Field(default=None, description=NEXT)


class RevisionModel(Model):
    revision: int
    action: ActionName
    commit: int
    at: datetime
    actor: str | None


class History(Model):
    revisions: list[RevisionModel]
    cursor: str | None = Field(description=CURSOR)
    next: str | None = Field(description=NEXT)


class ChangeModel(Model):
    commit: int
    at: datetime
    action: ActionName
    kind: KindName
    key: str
    revision: int
    actor: str | None


class Changes(Model):
    changes: list[ChangeModel]
    cursor: int = Field(description="The last commit here: send it as `after` to go on.")
    next: str | None = Field(description="The address of the next page; null where nothing is newer.")


class PurgedModel(Model):
    states: int


# Conversations


class ThreadModel(Model):
    id: str
    resource_id: str
    title: str | None
    metadata: dict[str, JsonValue]
    created_at: datetime
    updated_at: datetime
    revision: int


class ThreadsPage(Model):
    threads: list[ThreadModel]
    cursor: str | None = Field(description=CURSOR)
    next: str | None = Field(description=NEXT)


class ThreadsNumbered(Model):
    items: list[ThreadModel]
    total: int
    page: int
    per_page: int


class ThreadHitModel(Model):
    thread: ThreadModel
    score: float
    hits: list[HitModel]


class ThreadSearchModel(Model):
    threads: list[ThreadHitModel]
    notices: list[str]


class MessageModel(Model):
    id: str
    thread_id: str
    resource_id: str
    role: str
    content: JsonValue
    created_at: datetime
    extra: dict[str, JsonValue]
    entry: EntryModel | None = Field(description="Only with `entries=true`.")


class MessagesModel(Model):
    messages: list[MessageModel]


class MessagesPage(MessagesModel):
    cursor: str | None = Field(description=CURSOR)
    next: str | None = Field(description=NEXT)


class MessagesNumbered(Model):
    items: list[MessageModel]
    total: int
    page: int
    per_page: int


class RecallModel(MessagesModel):
    hits: list[HitModel]
    notices: list[str]


class ContextModel(Model):
    """What a model is to be given."""

    messages: list[dict[str, JsonValue]]
    system: str | None
    tokens: int
    omitted: int
    notices: list[str]


class WorkingModel(Model):
    scope: Literal["resource", "thread"]
    id: str
    content: str | dict[str, JsonValue]
    revision: int
    updated_at: datetime


class OptionalWorking(Model):
    working_memory: WorkingModel | None


# Namespaces


class Namespaces(Model):
    namespaces: list[str]
    next: str | None = Field(description=NEXT)


class NamespaceModel(Model):
    namespace: str
    entries: dict[str, int]
    commit: int
    updated_at: datetime
    chunks: int
    pending: int
    former_states: int
    bytes: int = Field(description="Of live entries, as a limit counts them.")
    former_bytes: int = Field(description="Of former states, with 200 for each.")


class StoreModel(Model):
    """The whole store."""

    model_config = ConfigDict(extra="allow")
    namespaces: int
    entries: dict[str, int]
    former_states: int
    pending: int
    model: str | None


class ImportedModel(Model):
    namespace: str
    outcome: Literal["imported", "identical", "merged"]
    states: int
    kept: int
    differing: int
    commit: int | None


class ImportModel(Model):
    namespaces: list[ImportedModel]


class FeedEvent(Model):
    """The data of an event `commit`; its id is the commit."""

    commit: int
    changes: list[dict[str, Any]]
