"""The JSON form of each dataclass that the service sends, both ways, with what the documentation says about it.

A field whose declared type is in `BY_TYPE` needs no entry here. Every other field names its converter below. A time is
ISO 8601 text in UTC with microseconds, a namespace is written `user/u-123`, a tuple is a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

from commonplace.api.encoding import time_text
from commonplace.api.problems import BY_CODE, problem
from commonplace.checks import JSON, Limits, Namespace, microseconds, moment
from commonplace.engine.search import SearchResult
from commonplace.entry import STAYS, Action, Change, Entry, Hit, Revision
from commonplace.errors import Unavailable
from commonplace.exchange import Imported, ImportedCommits, ImportReport
from commonplace.space.conversation import Context, NumberedPage, Thread
from commonplace.space.files import FileInfo, FilePage, Moved, Removed
from commonplace.space.items import Item, ItemPage
from commonplace.space.messages import Message, MessagePage
from commonplace.space.names import key_of, key_of_name, name_of_key
from commonplace.space.recall import Recall, ThreadHit, ThreadSearchResult
from commonplace.space.records import Record, RecordPage
from commonplace.space.threads import ThreadPage
from commonplace.space.working_memory import WorkingMemory
from commonplace.store import NamespaceStats, StoreStats

T = TypeVar("T")
Convert = Callable[[Any], Any]
KindName = Literal["file", "directory", "record", "thread", "message", "working", "item"]


class AnyJson:
    """Marks any JSON value in a type."""


@dataclass(frozen=True)
class ListOf:
    item: Any


@dataclass(frozen=True)
class Nullable:
    item: Any


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Converter:
    """How a value is written to JSON and read back. `type` and `notes` are for the documentation."""

    type: Any
    write: Convert = _as_it_is
    read: Convert = _as_it_is
    notes: Mapping[str, Any] = field(default_factory=dict)

    def noted(self, **notes: Any) -> Converter:
        """The same converter with a description, examples or bounds."""
        return replace(self, notes={**self.notes, **notes})

    @property
    def optional(self) -> Converter:
        """The same converter where null is allowed."""
        write, read = self.write, self.read
        return replace(
            self,
            type=Nullable(self.type),
            write=lambda value: None if value is None else write(value),
            read=lambda value: None if value is None else read(value),
        )


@dataclass(frozen=True)
class Form(Generic[T]):
    """The JSON object of a dataclass. `name` is its name in the documentation."""

    name: str
    of: type[T]
    converters: Mapping[str, Converter]
    extra: Mapping[str, Converter] = field(default_factory=dict)
    """Fields that the service adds to the object, such as `next`, the address of the next page."""
    is_open: bool = False
    """Whether the object may have fields that the documentation does not list."""
    example: Mapping[str, Any] | None = None

    def write(self, thing: T) -> dict[str, JSON]:
        return {name: converter.write(getattr(thing, name)) for name, converter in self.converters.items()}

    def read(self, form: Mapping[str, Any]) -> T:
        try:
            return self.of(
                **{name: converter.read(form[name]) for name, converter in self.converters.items() if name in form}
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _other_version(self.of.__name__) from error


class Inside(Form[Any]):
    """A JSON object with one field, which holds the whole result."""

    def write(self, thing: Any) -> dict[str, JSON]:
        return {name: converter.write(thing) for name, converter in self.converters.items()}

    def read(self, form: Mapping[str, Any]) -> Any:
        ((name, converter),) = self.converters.items()
        try:
            return converter.read(form[name])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _other_version(self.name) from error


def _other_version(name: str) -> Unavailable:
    return Unavailable(f"the service did not answer with a {name}; does it have the same version as this program?")


# Converters


def _time_in(text: str) -> int:
    return cast("int", microseconds("time", text))


def _namespace_in(text: str) -> tuple[str, ...]:
    return tuple(text.split("/"))


TEXT = Converter(str)
WHOLE = Converter(int)
NUMBER = Converter(float)
ANY = Converter(AnyJson)
OBJECT = Converter(dict[str, AnyJson])
TEXTS = Converter(ListOf(str), list, tuple)
COUNTS = Converter(dict[str, int])
TIME = Converter(datetime, time_text, datetime.fromisoformat)
STORED_TIME = Converter(datetime, lambda time: time_text(moment(time)), _time_in)
"""A time that the dataclass holds in microseconds."""
NAMESPACE = Converter(str, "/".join, _namespace_in)
KIND = Converter(KindName)
ACTION = Converter(Action)
OPTIONAL_TEXT = TEXT.optional
PAGE_CURSOR = OPTIONAL_TEXT.noted(description="Where the next page begins; null at the end.")

PAGED = {"next": OPTIONAL_TEXT.noted(description="The address of the next page; null at the end.")}

BY_TYPE: Mapping[str, Converter] = {
    "str": TEXT,
    "str | None": OPTIONAL_TEXT,
    "int": WHOLE,
    "int | None": WHOLE.optional,
    "float": NUMBER,
    "float | None": NUMBER.optional,
    "datetime": TIME,
    "datetime | None": TIME.optional,
    "JSON": ANY,
    "Mapping[str, JSON]": OBJECT,
    "Mapping[str, float]": Converter(dict[str, float]),
    "dict[str, int]": COUNTS,
    "tuple[str, ...]": TEXTS,
    "Namespace": NAMESPACE,
    "Action": ACTION,
}
"""Converters by the declared type of a field, as it is written in the source."""


def one(form: Form[Any]) -> Converter:
    return Converter(form, form.write, form.read)


def many(form: Form[Any]) -> Converter:
    return Converter(
        ListOf(form),
        lambda things: [form.write(thing) for thing in things],
        lambda things: tuple(form.read(thing) for thing in things),
    )


def inside(name: str, field: str, converter: Converter) -> Inside:
    return Inside(name, object, {field: converter})


def form_for(of: type[T], name: str, extra: Mapping[str, Converter] | None = None, /, **named: Converter) -> Form[T]:
    """The form of a dataclass; private fields and those marked `STAYS` are not sent."""
    shown = [one for one in fields(cast("Any", of)) if not one.name.startswith("_") and STAYS not in one.metadata]
    converters = {field.name: named.get(field.name) or BY_TYPE[cast("str", field.type)] for field in shown}
    return Form(name, of, converters, extra or {})


COMMIT = inside(
    "CommitModel",
    "commit",
    WHOLE.optional.noted(description="The commit, for `POST /v1/undo`; null if nothing was changed."),
)

# Files and records

FILE_FORM = form_for(
    FileInfo,
    "FileModel",
    path=TEXT.noted(examples=["/notes/today"]),
    kind=Converter(Literal["file", "directory"]),
)
FILES_PAGE = form_for(FilePage, "FilesPage", PAGED, files=many(FILE_FORM), cursor=PAGE_CURSOR)
REMOVED = form_for(Removed, "RemovedModel")
MOVED = form_for(Moved, "MovedModel")


@dataclass(frozen=True, slots=True)
class EditedFile:
    file: FileInfo
    count: int


EDITED_FILE = form_for(
    EditedFile,
    "EditedFile",
    file=one(FILE_FORM),
    count=WHOLE.noted(description="How many occurrences were replaced; 1 for an insertion or a whole text."),
)
RECORD_FORM = form_for(Record, "RecordModel")
STANDING = inside("StandingModel", "records", many(RECORD_FORM))
WITHDRAWN = inside("WithdrawnModel", "withdrawn", Converter(bool))
RECORDS_PAGE = form_for(RecordPage, "RecordsPage", PAGED, records=many(RECORD_FORM), cursor=PAGE_CURSOR)

ITEM_FORM = form_for(
    Item,
    "ItemModel",
    fields=TEXTS.optional.noted(description="The paths that search sees; null is all of the value."),
    history=Converter(bool),
)
ITEMS = inside("ItemsModel", "items", many(ITEM_FORM))
OPTIONAL_ITEMS = inside(
    "OptionalItemsModel",
    "items",
    Converter(
        ListOf(Nullable(ITEM_FORM)),
        lambda items: [None if item is None else ITEM_FORM.write(item) for item in items],
        lambda items: tuple(None if item is None else ITEM_FORM.read(item) for item in items),
    ),
)
ITEMS_PAGE = form_for(ItemPage, "ItemsPage", PAGED, items=many(ITEM_FORM), cursor=PAGE_CURSOR)
REMOVED_ITEMS = inside("RemovedItems", "removed", WHOLE)

# Entries, search, history

_ENTRY_FIELDS = {
    "kind": KIND,
    "created_at": STORED_TIME,
    "updated_at": STORED_TIME,
    "expires_at": STORED_TIME.optional,
}
ENTRY = form_for(
    Entry,
    "EntryModel",
    **_ENTRY_FIELDS,
    key=TEXT.noted(description="As it is stored. U+0001 separates the parts of a path and of a message's key."),
)
REVISION = form_for(Revision, "RevisionModel", at=STORED_TIME)
CHANGE = form_for(Change, "ChangeModel", at=STORED_TIME, kind=KIND)


@dataclass(frozen=True, slots=True)
class RevisionPage:
    revisions: tuple[Revision, ...]
    cursor: str | None


HISTORY = form_for(RevisionPage, "History", PAGED, revisions=many(REVISION), cursor=PAGE_CURSOR)


@dataclass(frozen=True, slots=True)
class ChangePage:
    changes: tuple[Change, ...]
    cursor: int


CHANGES = form_for(
    ChangePage,
    "Changes",
    {"next": OPTIONAL_TEXT.noted(description="The address of the next page; null if nothing is newer.")},
    changes=many(CHANGE),
    cursor=WHOLE.noted(description="The last commit on this page; send it as `after` to continue."),
)
PURGED = inside("PurgedModel", "states", WHOLE)


class FoundEntryForm(Form[Entry]):
    """An entry inside a hit. Its key is the name that people use, or for a message `thread/time/number`."""

    def write(self, thing: Entry) -> dict[str, JSON]:
        return {**super().write(thing), "key": name_of_key(thing.kind, thing.key)}

    def read(self, form: Mapping[str, Any]) -> Entry:
        entry = super().read(form)
        is_path = entry.kind in ("file", "directory")
        return replace(entry, key=key_of(entry.key) if is_path else key_of_name(entry.kind, entry.key))


_found = form_for(
    Entry,
    "FoundEntry",
    **_ENTRY_FIELDS,
    key=TEXT.noted(description="A path, an id, or for a message its thread, time and number."),
)
FOUND_ENTRY = FoundEntryForm(_found.name, Entry, _found.converters)
_HIT_FIELDS = {
    "kind": KIND,
    "key": TEXT.noted(description="A file's path, or the id of a record or message."),
    "score": NUMBER.noted(ge=0, le=1),
    "relevance": NUMBER.optional.noted(
        ge=0, le=1, description="The probability that it is relevant; null if the model has no calibration."
    ),
}
FULL_HIT = form_for(Hit, "FullHitModel", **_HIT_FIELDS, entry=one(FOUND_ENTRY))


@dataclass(frozen=True, slots=True)
class LightHit:
    """A hit without the entry: where it is, what matched, and what a list of hits shows."""

    kind: str
    key: str
    namespace: Namespace
    snippet: str
    start: int
    end: int
    score: float
    parts: Mapping[str, float]
    type: str | None
    tags: tuple[str, ...]
    thread: str | None
    role: str | None
    created_at: datetime
    updated_at: datetime
    relevance: float | None


LIGHT_HIT = form_for(
    LightHit,
    "HitModel",
    **_HIT_FIELDS,
    start=WHOLE.noted(description="Where the snippet begins in the searched text, in characters."),
    type=OPTIONAL_TEXT.noted(description="The type of a record."),
    thread=OPTIONAL_TEXT.noted(description="The thread of a message."),
    role=OPTIONAL_TEXT.noted(description="The role of a message's author."),
)


def light(hit: Hit) -> LightHit:
    attributes = cast("Mapping[str, Any]", hit.entry.attributes)
    return LightHit(
        kind=hit.kind,
        key=hit.key,
        namespace=hit.entry.namespace,
        snippet=hit.snippet,
        start=hit.start,
        end=hit.end,
        score=hit.score,
        parts=hit.parts,
        type=attributes.get("type"),
        tags=tuple(attributes.get("tags", ())),
        thread=attributes.get("threadId"),
        role=attributes.get("role"),
        created_at=hit.created_at,
        updated_at=hit.updated_at,
        relevance=hit.relevance,
    )


HITS = many(FULL_HIT)
LIGHT_HITS = Converter(ListOf(LIGHT_HIT), lambda hits: [LIGHT_HIT.write(light(hit)) for hit in hits])
LEFT_OUT = WHOLE.noted(description="How many hits below `min_relevance` were left out of what was looked at.")
SEARCH_NOTICES = TEXTS.noted(description="Why the search did not use vectors; null if it did.")
_SEARCH_EXTRA = {
    "wrapped": OPTIONAL_TEXT.noted(description="With `wrapped`: the hits for a prompt, marked as data."),
    **PAGED,
}
_SEARCH_FIELDS = {"notices": SEARCH_NOTICES, "left_out": LEFT_OUT}
FULL_SEARCH = form_for(SearchResult, "FullSearchModel", _SEARCH_EXTRA, hits=HITS, **_SEARCH_FIELDS)
LIGHT_SEARCH = form_for(SearchResult, "SearchModel", _SEARCH_EXTRA, hits=LIGHT_HITS, **_SEARCH_FIELDS)

# Conversations

THREAD_FORM = form_for(Thread, "ThreadModel")
THREADS_PAGE = form_for(ThreadPage, "ThreadsPage", PAGED, threads=many(THREAD_FORM), cursor=PAGE_CURSOR)
THREADS_NUMBERED = form_for(NumberedPage, "ThreadsNumbered", items=many(THREAD_FORM))
MESSAGE_FORM = form_for(
    Message, "MessageModel", entry=one(ENTRY).optional.noted(description="Only with `entries=true`.")
)
MESSAGES = inside("MessagesModel", "messages", many(MESSAGE_FORM))
MESSAGES_PAGE = form_for(MessagePage, "MessagesPage", PAGED, messages=many(MESSAGE_FORM), cursor=PAGE_CURSOR)
MESSAGES_NUMBERED = form_for(NumberedPage, "MessagesNumbered", items=many(MESSAGE_FORM))
_RECALL_FIELDS = {"messages": many(MESSAGE_FORM), "standing": many(RECORD_FORM)}
FULL_RECALL = form_for(Recall, "FullRecallModel", hits=HITS, **_RECALL_FIELDS)
LIGHT_RECALL = form_for(Recall, "RecallModel", hits=LIGHT_HITS, **_RECALL_FIELDS)
CONTEXT = form_for(Context, "ContextModel", messages=Converter(ListOf(dict[str, AnyJson]), list, tuple))
_FULL_THREAD_HIT = form_for(ThreadHit, "FullThreadHitModel", thread=one(THREAD_FORM), hits=HITS)
_LIGHT_THREAD_HIT = form_for(ThreadHit, "ThreadHitModel", thread=one(THREAD_FORM), hits=LIGHT_HITS)
FULL_THREAD_SEARCH = form_for(ThreadSearchResult, "FullThreadSearchModel", threads=many(_FULL_THREAD_HIT))
LIGHT_THREAD_SEARCH = form_for(ThreadSearchResult, "ThreadSearchModel", threads=many(_LIGHT_THREAD_HIT))
WORKING_FORM = form_for(
    WorkingMemory,
    "WorkingModel",
    scope=Converter(Literal["resource", "thread"]),
    content=Converter(str | dict[str, AnyJson]),
)
MESSAGE_COUNTS = inside("MessageCounts", "counts", COUNTS)

OPTIONAL_WORKING = inside("OptionalWorking", "working_memory", one(WORKING_FORM).optional)

# The service and its namespaces


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller that the credentials identify, and what it has access to."""

    service: str
    version: str
    name: str
    namespace: Namespace
    reach: Literal["own", "below", "all"]
    actions: tuple[Literal["read", "write", "delete", "admin"], ...]
    limits: Limits


@dataclass(frozen=True, slots=True)
class NamespacePage:
    namespaces: tuple[Namespace, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """RFC 9457. `code` is stable; programs decide by it."""

    type: str
    title: str
    status: int
    detail: str
    code: str


PROBLEM = replace(
    form_for(Problem, "Problem"),
    is_open=True,
    example=problem(BY_CODE["not_found"], "/notes/today does not exist; list its directory to see what does"),
)


@dataclass(frozen=True, slots=True)
class ProblemKind:
    code: str
    status: int
    title: str
    extra: tuple[str, ...]
    example: Problem


PROBLEM_KINDS = inside(
    "ProblemKinds",
    "problems",
    many(
        form_for(
            ProblemKind,
            "ProblemKind",
            extra=TEXTS.noted(description="Further fields of such a problem."),
            example=one(PROBLEM),
        )
    ),
)
CALLER = form_for(
    Caller,
    "Caller",
    reach=Converter(Literal["own", "below", "all"]),
    actions=Converter(ListOf(Literal["read", "write", "delete", "admin"]), list, tuple),
    limits=one(form_for(Limits, "LimitsModel")),
)
NAMESPACES = form_for(
    NamespacePage,
    "Namespaces",
    PAGED,
    namespaces=Converter(
        ListOf(str),
        lambda namespaces: ["/".join(namespace) for namespace in namespaces],
        lambda names: tuple(map(_namespace_in, names)),
    ),
)
NAMESPACE_STATS = form_for(
    NamespaceStats,
    "NamespaceModel",
    updated_at=STORED_TIME,
    bytes=WHOLE.noted(description="Bytes of live entries, as a limit counts them."),
    former_bytes=WHOLE.noted(description="Bytes of former states, plus 200 for each."),
)
STORE_STATS = replace(form_for(StoreStats, "StoreModel"), is_open=True)
IMPORTED_NAMESPACES = inside(
    "ImportModel",
    "namespaces",
    many(
        form_for(Imported, "ImportedModel", outcome=Converter(Literal["imported", "identical", "merged"])),
    ),
)
IMPORT_REPORT = form_for(
    ImportReport,
    "ImportReportModel",
    commits=many(form_for(ImportedCommits, "ImportedCommitsModel")),
    is_dry=Converter(bool),
    reasons=TEXTS.noted(description="The first that were not readable, with the reasons."),
    left_out_reasons=TEXTS.noted(description="The first that were left out, with the reasons."),
)
