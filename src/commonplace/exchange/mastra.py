"""Imports a Mastra memory: the threads, messages and working memories of its LibSQL file, with ids and times.

A thread with its messages and its working memory is one commit, so you can undo it. What the book already has is kept,
so you can repeat or continue an import without duplicates. A row that cannot be read is skipped and reported; the
others are imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar, cast

from commonplace.backends.sqlite.exchange import ForeignTables, open_foreign
from commonplace.checks import JSON, Limits, Namespace, microseconds
from commonplace.entry import SEPARATOR, Draft
from commonplace.errors import InvalidInput
from commonplace.filters import equal
from commonplace.space.conversation import check_id, check_object, check_title, thread_draft
from commonplace.space.messages import Incoming, Numbering, incoming, thread_of_key
from commonplace.space.names import MESSAGE, THREAD, WORKING
from commonplace.space.rules import Screen
from commonplace.space.working_memory import thread_key
from commonplace.store import Progress, Reader, Store, Transaction

T = TypeVar("T")

THREADS, MESSAGES, RESOURCES = "mastra_threads", "mastra_messages", "mastra_resources"
ROWS_A_COMMIT = 500
"""Of working memories of resources, which belong to no thread."""

MAX_REASONS = 10
MAX_SAMPLES = 3
_MILLISECONDS_FROM = 100_000_000_000
"""From here on a number is in milliseconds; as seconds it would be the year 5138."""

_LATEST = _MILLISECONDS_FROM * 1_000_000
_NUMBER = re.compile(r"[0-9]{9,}(\.[0-9]+)?")
"""A number since 1970 in a text column; eight digits are a date, such as 20260131."""

_THREAD_FIELDS = ("id", "resourceId", "title", "metadata", "createdAt", "updatedAt")
_MESSAGE_FIELDS = ("id", "threadId", "content", "role", "type", "createdAt")
_RESOURCE_FIELDS = ("id", "workingMemory")


@dataclass(frozen=True, slots=True)
class MastraImport:
    """How much was imported, was already there, and could not be imported."""

    threads: int = 0
    messages: int = 0
    working_memories: int = 0
    kept: int = 0
    differing: int = 0
    """Of those kept, how many differ in the file."""
    left_out: int = 0
    """System messages, which are not stored."""
    deleted_here: int = 0
    """Threads and messages that were deleted here since they were imported, and stay deleted."""
    damaged: int = 0
    reasons: tuple[str, ...] = ()
    """The reasons for the first damaged rows."""
    left_out_reasons: tuple[str, ...] = field(default=(), compare=False)
    """The first that were left out, with the reason."""
    samples: tuple[str, ...] = field(default=(), compare=False)
    """The first threads, in words."""


Counts = dict[str, int]
Write = Callable[[Callable[[Reader], Counts]], Counts]
"""Runs a change as one commit. In a dry run it only reads, and the change counts what it would write."""


def import_mastra(
    store: Store,
    namespace: Namespace,
    path: Path,
    *,
    limits: Limits | None = None,
    actor: str | None = None,
    screen: Screen | None = None,
    progress: Progress | None = None,
    again: bool = True,
    write: Write | None = None,
) -> MastraImport:
    """Import a Mastra `memory.db` into a namespace, each thread with its messages as one commit.

    `screen` is the `screen` of the book's redaction; a row that it refuses counts as damaged. Without `again`, what was
    deleted here stays deleted. `write` makes the commits in place of `store`.
    """

    def plainly(work: Callable[[Reader], Counts]) -> Counts:
        return store.write(namespace, work, actor=actor)[0]

    with open_foreign(path) as tables:
        sources = _sources(tables, path)
        return _Import(write or plainly, limits or Limits(), screen, progress, again=again).run(tables, sources)


def check_mastra(path: Path) -> None:
    """Raise InvalidInput if the file is not a readable Mastra memory."""
    with open_foreign(path) as tables:
        _sources(tables, path)


@dataclass(frozen=True, slots=True)
class _Thread:
    draft: Draft
    working: Draft | None


class _Import:
    def __init__(
        self, write: Write, limits: Limits, screen: Screen | None, progress: Progress | None, *, again: bool
    ) -> None:
        self._store_write = write
        self._limits = limits
        self._screen = screen
        self._progress = progress
        self._again = again
        self._done = 0
        self._total = 0
        self._result = MastraImport()

    def run(self, tables: ForeignTables, sources: Mapping[str, Mapping[str, str]]) -> MastraImport:
        self._total = sum(tables.count(table) for table in sources)
        threads: dict[str, list[_Thread]] = {}
        for row in tables.rows(THREADS, sources[THREADS]):
            found = [*self._checked(THREADS, row, self._read_thread)]
            for thread in found:
                threads.setdefault(thread.draft.key, []).append(thread)
            self._done += not found
        columns = sources[MESSAGES]
        rows = tables.rows(MESSAGES, columns, by=columns["threadId"])
        for written, group in groupby(rows, lambda row: row["threadId"]):
            held = [*group]
            messages = [one for row in held for one in self._checked(MESSAGES, row, self._read_message)]
            own = threads.pop(_shown(written), [])
            self._conversation(own, messages, len(own) + len(held))
        for own in threads.values():
            self._conversation(own, [], len(own))
        resources = tables.rows(RESOURCES, sources[RESOURCES]) if RESOURCES in sources else iter(())
        while batch := [*islice(resources, ROWS_A_COMMIT)]:
            self._write_working([one for row in batch for one in self._checked(RESOURCES, row, self._read_resource)])
            self._step(len(batch))
        return self._result

    def _step(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total, "rows")

    def _checked(
        self, table: str, row: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T | None]
    ) -> Iterator[T]:
        """Yield what a row contains, or nothing if it is damaged."""
        try:
            found = read({name: _text(value) for name, value in row.items()})
        except (InvalidInput, UnicodeDecodeError) as error:
            self._damaged(f"{table} {_shown(row.get('id'))}: {error}")
            return
        if found is not None:
            yield found

    def _damaged(self, reason: str) -> None:
        reasons = (*self._result.reasons, reason)[:MAX_REASONS]
        self._count(damaged=1)
        self._result = replace(self._result, reasons=reasons)

    def _count(self, **more: int) -> None:
        present = {name: getattr(self._result, name) + count for name, count in more.items()}
        self._result = replace(self._result, **present)

    # Reading

    def _read_thread(self, row: Mapping[str, Any]) -> _Thread:
        id, resource = check_id("id", row["id"]), check_id("resourceId", row["resourceId"])
        metadata, working = self._metadata(id, row["metadata"])
        created = _time("createdAt", row["createdAt"])
        updated = created if row["updatedAt"] is None else _time("updatedAt", row["updatedAt"])
        draft = thread_draft(id, resource, self._title(id, row["title"] or None), metadata)
        return _Thread(
            self._screened(replace(draft, created_at=created, updated_at=updated)),
            self._working_of_thread(id, resource, working) if working else None,
        )

    def _read_message(self, row: Mapping[str, Any]) -> Incoming | None:
        thread_id = check_id("threadId", row["threadId"])
        message = {
            "id": check_id("id", row["id"]),
            "role": row["role"],
            "content": _content(row["content"]),
            "createdAt": _moment(row["createdAt"]),
        }
        if row["type"] not in (None, "v2"):
            message["type"] = row["type"]
        found = incoming([message], thread_id, self._limits)
        if not found:
            named = (*self._result.left_out_reasons, f"{MESSAGES} {message['id']}: system messages are not stored")
            self._count(left_out=1)
            self._result = replace(self._result, left_out_reasons=named[:MAX_REASONS])
            return None
        return found[0].prepared(self._screen)

    def _read_resource(self, row: Mapping[str, Any]) -> Draft | None:
        if not row["workingMemory"]:
            return None
        id = check_id("id", row["id"])
        return self._working(f"resource{SEPARATOR}{id}", id, None, row["workingMemory"])

    def _title(self, id: str, written: Any) -> str | None:
        """The title of a thread; if it is damaged, the thread is imported without it."""
        try:
            return check_title(written)
        except InvalidInput as error:
            self._damaged(f"the title of {THREADS} {id}: {error}")
            return None

    def _metadata(self, id: str, written: object) -> tuple[dict[str, JSON], JSON]:
        """A thread's metadata and the working memory in it; if damaged, the thread is imported without."""
        working: JSON = None
        try:
            fields = {name: field for name, field in _object("metadata", written).items() if field is not None}
            working = fields.pop("workingMemory", None)
            return check_object("metadata", fields, self._limits.metadata_bytes), working
        except InvalidInput as error:
            self._damaged(f"the metadata of {THREADS} {id}: {error}")
            return {}, working

    def _working_of_thread(self, id: str, resource: str, written: object) -> Draft | None:
        """The working memory of a thread; if it is damaged, the thread is imported without it."""
        try:
            return self._working(thread_key(id), resource, id, written)
        except InvalidInput as error:
            self._damaged(f"the working memory of {THREADS} {id}: {error}")
            return None

    def _working(self, key: str, resource: str, thread_id: str | None, written: object) -> Draft:
        """With a schema Mastra stores JSON in a text; without one the text is Markdown."""
        if not isinstance(written, (str, Mapping)):
            raise InvalidInput("workingMemory must be a text or an object")
        content = _content(written) if isinstance(written, str) else written
        if isinstance(content, list):
            content = written
        checked = check_object("workingMemory", {"content": content}, self._limits.metadata_bytes)
        attributes: dict[str, JSON] = {"resourceId": resource, "threadId": thread_id}
        return self._screened(Draft(WORKING, key, checked["content"], text="", attributes=attributes))

    def _screened(self, draft: Draft) -> Draft:
        """The draft after redaction; screened first, because it is compared with what the book has."""
        return draft if self._screen is None else self._screen(draft)

    # Writing

    def _write(self, work: Callable[[Reader], Counts]) -> None:
        self._count(**self._store_write(work))

    def _conversation(self, threads: list[_Thread], messages: list[Incoming], rows: int) -> None:
        """Write a thread with its messages as one commit."""
        reasons: list[str] = []

        def work(reader: Reader) -> Counts:
            reasons.clear()  # the store may repeat a write
            counts = dict.fromkeys(("threads", "messages", "working_memories", "kept", "differing", "deleted_here"), 0)
            for thread in threads:
                if not self._put_thread(reader, thread, counts):
                    return counts
            if messages:
                reasons.extend(self._put_messages(reader, threads, messages, counts))
            return counts

        self._write(work)
        for reason in reasons:
            self._damaged(reason)
        if threads and len(self._result.samples) < MAX_SAMPLES:
            title = threads[0].draft.attributes["title"] or threads[0].draft.key
            sample = f"thread {title!r:.100} with {len(messages)} messages"
            self._result = replace(self._result, samples=(*self._result.samples, sample))
        self._step(rows)

    def _put_thread(self, reader: Reader, thread: _Thread, counts: Counts) -> bool:
        """Add a thread that is not there; False if it was deleted here and stays so."""
        key = thread.draft.key
        known = reader.get(THREAD, key)
        if known is not None:
            counts["kept"] += 1
            counts["differing"] += not equal(known.attributes, thread.draft.attributes)
        elif not self._again and reader.was_used(THREAD, key, key):
            counts["deleted_here"] += 1
            return False
        else:
            counts["threads"] += 1
            if isinstance(reader, Transaction):
                reader.put(thread.draft)
        if thread.working is not None:
            _put_working(reader, thread.working, counts)
        return True

    def _put_messages(
        self, reader: Reader, threads: list[_Thread], messages: list[Incoming], counts: Counts
    ) -> Iterator[str]:
        """Add the messages that are not there; yield why others cannot be added."""
        thread_id = cast("str", messages[0].draft.attributes["threadId"])
        thread = reader.get(THREAD, thread_id) or (threads[0].draft if threads else None)
        numbering = Numbering(reader, thread_id) if isinstance(reader, Transaction) else None
        for message in messages:
            known = reader.find(MESSAGE, message.id)
            if known is not None:
                counts["kept"] += 1
                counts["differing"] += not _is_same(message, known.key, known.value, thread_id)
            elif thread is None:
                yield f"{MESSAGES} {message.id}: its thread {thread_id} does not exist"
            elif not self._again and reader.last_key(MESSAGE, message.id) is not None:
                counts["deleted_here"] += 1
            else:
                counts["messages"] += 1
                if isinstance(reader, Transaction) and numbering is not None:
                    at = cast("int", message.created_at)
                    owner = cast("str", thread.attributes["resourceId"])
                    reader.put(message.placed(numbering.key(at), at, owner))

    def _write_working(self, memories: list[Draft]) -> None:
        def work(reader: Reader) -> Counts:
            counts = {"working_memories": 0, "kept": 0, "differing": 0}
            for memory in memories:
                _put_working(reader, memory, counts)
            return counts

        self._write(work)


def _put_working(reader: Reader, memory: Draft, counts: Counts) -> None:
    known = reader.get(WORKING, memory.key)
    if known is None:
        if isinstance(reader, Transaction):
            reader.put(memory)
        counts["working_memories"] += 1
    else:
        counts["kept"] += 1
        counts["differing"] += not equal(known.value, memory.value)


def _is_same(message: Incoming, key: str, value: JSON, thread_id: str) -> bool:
    return thread_of_key(key) == thread_id and equal(value, message.draft.value)


# Columns and values


def _sources(tables: ForeignTables, path: Path) -> dict[str, dict[str, str]]:
    """Return the tables to read with their columns; a file without threads and messages is refused."""
    if not tables.columns(THREADS) or not tables.columns(MESSAGES):
        raise InvalidInput(
            f"{path} is not a Mastra memory: it has no tables {THREADS} and {MESSAGES}; "
            "give the file that its LibSQLStore writes"
        )
    known = [(THREADS, _THREAD_FIELDS), (MESSAGES, _MESSAGE_FIELDS), (RESOURCES, _RESOURCE_FIELDS)]
    return {table: _columns(tables, table, fields) for table, fields in known if tables.columns(table)}


def _columns(tables: ForeignTables, table: str, fields: Iterable[str]) -> dict[str, str]:
    """Map our names to the file's (`threadId` may be `thread_id`). A table without one of them is refused."""
    named = {column.replace("_", "").lower(): column for column in tables.columns(table)}
    missing = [field for field in fields if field.lower() not in named]
    if missing:
        raise InvalidInput(f"the table {table} has no column {missing[0]}; this version of Mastra is not supported")
    return {field: named[field.lower()] for field in fields}


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _shown(id: object) -> str:
    return id.decode(errors="replace") if isinstance(id, bytes) else repr(id)


def _content(written: object) -> JSON:
    """Return the JSON if the text is JSON that a message may have, as in format 2; any other text as it is."""
    if not isinstance(written, str):
        raise InvalidInput("content must be a text")
    try:
        read: JSON = json.loads(written)
    except (ValueError, RecursionError):
        return written
    is_parts = isinstance(read, list) and all(isinstance(part, (str, dict)) for part in read)
    return read if is_parts or isinstance(read, (str, dict)) else written


def _object(name: str, written: object) -> dict[str, JSON]:
    if written is None or written == "":
        return {}
    try:
        read = json.loads(written) if isinstance(written, str) else written
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON") from error
    if read is not None and not isinstance(read, dict):
        raise InvalidInput(f"{name} must be an object, not {type(read).__name__}")
    return read or {}


def _moment(written: object) -> datetime:
    """Read a time as any version of Mastra wrote it: ISO 8601, SQLite's format (in UTC), or a number since 1970."""
    if isinstance(written, str) and _NUMBER.fullmatch(written):
        return _moment(float(written))
    if isinstance(written, (int, float)) and not isinstance(written, bool):
        seconds = written / 1_000 if abs(written) >= _MILLISECONDS_FROM else written
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise InvalidInput(f"{written!r} is not a time") from error
    try:
        found = datetime.fromisoformat(cast("str", written))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{written!r} is not a time") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _time(name: str, written: object) -> int:
    found = microseconds(name, _moment(written))
    assert found is not None
    if not 0 <= found < _LATEST:
        raise InvalidInput(f"{name} must be between the years 1970 and 5138, not {written}")
    return found
