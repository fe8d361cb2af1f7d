"""The library over a service: `commonplace.connect("http://…")` gives a book with the methods of a local one.

    book = commonplace.connect("http://127.0.0.1:8765", key="cp_…")
    book.space("user", "u-123").files.append("/notes/today", "hello")

The methods, arguments, dataclasses and errors are those of the library. A method that is one request is made from the
table of operations and the signature of the local method. What needs several requests is written out here. What needs
the file itself raises ConfigurationError.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property, wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NoReturn, cast

from commonplace.api.forms import ChangePage, RevisionPage
from commonplace.api.operations import BY_NAME, OPERATIONS
from commonplace.api.parameters import REQUIRED, Operation
from commonplace.api.transport import HEADERS, MOST_AT_ONCE, Caller, Connections, Request, query_text
from commonplace.book import Book, check_actor, check_namespaces
from commonplace.checks import (
    JSON,
    MAX_KEY_BYTES,
    Limits,
    Namespace,
    check_json,
    check_namespace,
    check_number,
    check_text,
    local_path,
)
from commonplace.embedding import Embedder
from commonplace.engine.search import SearchResult
from commonplace.entry import Change, Entry, Revision
from commonplace.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    InvalidInput,
    NotFound,
    Outdated,
    Unavailable,
)
from commonplace.exchange import Exported, Imported, ImportReport
from commonplace.exchange.export import footer_line, header_line
from commonplace.space.context import Budget, CountTokens, build_context, estimate_tokens, system_of
from commonplace.space.conversation import Context, NumberedPage, Thread, check_object
from commonplace.space.files import FileInfo, FilePage, Files
from commonplace.space.handle import Expected, Handle, Once, Seen
from commonplace.space.history import deleted_revision
from commonplace.space.items import Item, Items
from commonplace.space.messages import Message
from commonplace.space.names import DIRECTORY, FILE, KINDS, RECORD, ROOT, normalise
from commonplace.space.recall import Recall, RecallRequest, RecallScope, ThreadSearchResult
from commonplace.space.records import Records
from commonplace.space.rules import Rules
from commonplace.space.space import Space
from commonplace.space.threads import ThreadPage, Threads
from commonplace.space.working_memory import SchemaSource, WorkingMemories, WorkingMemory, merged, schema_of
from commonplace.store import Page, Progress, Scan, Store, StoreStats

if TYPE_CHECKING:
    from typing import Self

    from commonplace.exchange.sources import Bounds

TIMEOUT_SECONDS = 60.0
MAX_RETRIES = 3
MAX_ATTEMPTS = 100
"""How often a change is tried again after another writer was faster."""
LIST_PAGE = 10_000
HISTORY_PAGE = 1_000


def connect(
    url: str,
    key: str | None = None,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_retries: int = MAX_RETRIES,
) -> Book:
    """The book of a service, such as `connect("http://127.0.0.1:8765", key="cp_…")`; makes one request to identify the
    caller.

    Raises Unavailable if nothing answers and Unauthorized if the key is missing or wrong.
    """
    connections = Connections(url, key=key, timeout_seconds=timeout_seconds, max_retries=max_retries)
    return cast("Book", RemoteBook(connections))


# Methods made from the table


class Part:
    """A part of a space of a service. A subclass names the local class whose methods it has."""

    prefix: ClassVar[str]

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._limits = caller.limits

    def __init_subclass__(cls, *, mirrors: type, prefix: str) -> None:
        """Add a method for each operation that calls one of the local class, unless the subclass has it already."""
        for operation in OPERATIONS:
            part, _, name = (operation.call or "").rpartition(".")
            if name and part == prefix and operation.in_client and name not in vars(cls):
                setattr(cls, name, _method(operation, getattr(mirrors, name)))

    def _perform(self, name: str, **options: Any) -> Any:
        """The result of an operation; the arguments have the names of the library's."""
        return self._finish(self._caller.perform(BY_NAME[name], options))

    def _finish(self, result: Any) -> Any:
        return result


def _method(operation: Operation, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)
    defaults = {name: parameter.default for name, parameter in signature.parameters.items() if name != "self"}
    # A route may require what the library's method has a default for.
    required = {
        argument.name: defaults[argument.name]
        for argument in operation.arguments
        if argument.default is REQUIRED and argument.name in defaults
    }

    @wraps(original)
    def method(self: Part, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs).arguments
        given = {name: bound[name] for name, default in defaults.items() if bound.get(name, default) is not default}
        return self._finish(self._caller.perform(operation, {**required, **given}))

    return method


# Files and records


class RemoteFiles(Part, mirrors=Files, prefix="files"):
    """`Files` of a service."""

    walk = Files.walk

    def exists(self, path: str) -> bool:
        try:
            self._perform("stat_path", path=path)
        except NotFound:
            return False
        return True

    def list(self, path: str = ROOT, *, as_of: datetime | str | None = None) -> list[FileInfo]:
        found: list[FileInfo] = []
        cursor: str | None = None
        while True:
            page: FilePage = self._perform("list_directory", path=path, limit=LIST_PAGE, cursor=cursor, as_of=as_of)
            found += page.files
            cursor = page.cursor
            if cursor is None:
                return found

    def write_all(self, texts: Mapping[str, str | None], *, overwrite: bool = False) -> dict[str, str]:
        refused: dict[str, str] = {}
        for path, text in texts.items():
            try:
                if text is None:
                    self._perform("make_directory", path=path)
                elif not self._has(path, text):
                    self._perform("write_file", path=path, text=text, overwrite=overwrite)
            except AlreadyExists:
                refused[path] = "it exists already, with a different text"
            except (InvalidInput, Conflict) as error:
                refused[path] = str(error)
        return refused

    def _has(self, path: str, text: str) -> bool:
        try:
            return bool(self._perform("read_file", path=path) == text)
        except NotFound:
            return False

    def edit(self, path: str, change: Callable[[str], str]) -> FileInfo:
        """As `Files.edit`. It is applied to the text that was read, and tried again if another writer was faster."""
        for _ in range(MAX_ATTEMPTS):
            answer = self._caller.ask(BY_NAME["read_file"], {"path": path})
            etag = answer.header("ETag")
            text = check_text("text", change(answer.body.decode()))
            edit = {"path": path, "text": text}
            try:
                edited = self._caller.perform(BY_NAME["edit_file"], edit, is_keyed=True, if_match=etag)
            except Outdated:
                # If the file has not changed, another entry of the condition has.
                if self._caller.expected and self._etag(path) == etag:
                    raise
            else:
                return cast("FileInfo", edited.file)
        raise Conflict(f"{path} was changed by others {MAX_ATTEMPTS} times while it was edited; try again later")

    def _etag(self, path: str) -> str:
        return self._caller.ask(BY_NAME["stat_path"], {"path": path}).header("ETag")

    def replace(self, path: str, old: str, new: str, *, unique: bool = False) -> int:
        check_text("old", old)
        check_text("new", new)
        change = {"old": old, "new": new, "unique": bool(unique)}
        return int(self._perform("edit_file", path=path, replace=change).count)

    def insert(self, path: str, line: int, text: str) -> FileInfo:
        check_text("text", text)
        edit = {"path": path, "insert": {"line": line, "text": text}}
        return cast("FileInfo", self._caller.perform(BY_NAME["edit_file"], edit, is_keyed=True).file)


class RemoteRecords(Part, mirrors=Records, prefix="records"):
    """`Records` of a service."""

    clean_tags = Records.clean_tags
    wanted_tags = Records.wanted_tags

    def undelete(self, id: str) -> int:
        """As `Records.undelete`, with a request for the history before; Outdated if the record exists since."""
        space = RemoteSpace(self._caller)
        revision = deleted_revision(f"Memory {id}", space.history(RECORD, id))
        return space.expecting(RECORD, id, 0).restore(RECORD, id, revision)


class RemoteItems(Part, mirrors=Items, prefix="items"):
    """`Items` of a service."""


# Conversations


class RemoteWorkingMemories(Part, mirrors=WorkingMemories, prefix="threads.working"):
    """`WorkingMemories` of a service.

    The client checks a schema itself: its patterns run in Python's `re`, and a service does not run patterns that
    callers send.
    """

    _check: Any = WorkingMemories._check
    _next: Any = WorkingMemories._next

    def write(
        self,
        content: str | Mapping[str, JSON],
        *,
        resource: str | None = None,
        thread: str | None = None,
        template: str | Mapping[str, JSON] | None = None,
        schema: SchemaSource | None = None,
        revision: int | None = None,
    ) -> WorkingMemory:
        update = self._check(content)
        rules = schema_of(schema)
        owner = {"resource": resource, "thread": thread}
        given = {**owner, "content": update, "template": template, "revision": revision}
        if rules is None:
            return cast("WorkingMemory", self._perform("write_working", **given))
        if isinstance(update, str):
            raise InvalidInput("this working memory has a schema; send an object with the fields to change, not a text")
        for _ in range(MAX_ATTEMPTS):
            present = self._perform("read_working", **owner)
            self._check_fit(present, update, template, rules)
            seen = _revision(present) if revision is None else revision
            try:
                return cast("WorkingMemory", self._perform("write_working", **{**given, "revision": seen}))
            except Outdated:
                if revision is not None:
                    raise
                # If the memory has not changed, another entry of the condition has.
                if self._caller.expected and _revision(self._perform("read_working", **owner)) == seen:
                    raise
        raise Conflict(
            f"the working memory was changed by others {MAX_ATTEMPTS} times in the meantime; try again later"
        )

    def _check_fit(self, present: WorkingMemory | None, update: dict[str, Any], template: Any, rules: Any) -> None:
        """Refuse an update that would not match the schema after the merge, as the library does inside its write."""
        new: Any = merged({}, update) if present is None else self._next(present.content, update, template, rules)
        rules.check("working memory", check_object("working memory", new, self._limits.metadata_bytes))

    def history(self, *, resource: str | None = None, thread: str | None = None) -> list[Revision]:
        return _all_revisions(self._caller, "working_history", {"resource": resource, "thread": thread})


def _revision(memory: WorkingMemory | None) -> int:
    return 0 if memory is None else memory.revision


def _all_revisions(caller: Caller, name: str, given: Mapping[str, Any]) -> list[Revision]:
    """All pages of a history."""
    found: list[Revision] = []
    cursor: str | None = None
    while True:
        options = {**given, "limit": HISTORY_PAGE, "cursor": cursor}
        page: RevisionPage = caller.perform(BY_NAME[name], options)
        found += page.revisions
        cursor = page.cursor
        if cursor is None:
            return found


class RemoteThreads(Part, mirrors=Threads, prefix="threads"):
    """`Threads` of a service."""

    @property
    def reads_at_once(self) -> bool:
        return False

    @cached_property
    def working(self) -> WorkingMemories:
        return cast("WorkingMemories", RemoteWorkingMemories(self._caller))

    @property
    def default_resource(self) -> str:
        return self._caller.namespace[-1]

    def _finish(self, result: Any) -> Any:
        """Bind each thread of a result to these conversations, so that `Thread.context` works."""
        if isinstance(result, Thread):
            return result.bound_to(self.context)
        if isinstance(result, ThreadPage):
            return replace(result, threads=tuple(map(self._finish, result.threads)))
        if isinstance(result, NumberedPage):
            return replace(result, items=tuple(map(self._finish, result.items)))
        if isinstance(result, ThreadSearchResult):
            return replace(
                result, threads=tuple(replace(hit, thread=self._finish(hit.thread)) for hit in result.threads)
            )
        return result

    def add(
        self,
        thread_id: str,
        messages: Sequence[Mapping[str, object]],
        *,
        resource: str | None = None,
        verbatim: bool = False,
    ) -> tuple[Message, ...]:
        _check_messages(messages, verbatim=verbatim)
        given = {"thread_id": thread_id, "messages": messages, "resource": resource, "verbatim": verbatim}
        return cast("tuple[Message, ...]", self._perform("add_messages", **given))

    def replace_messages(
        self,
        thread_id: str,
        messages: Sequence[Mapping[str, object]],
        *,
        seen: Mapping[str, int] | None = None,
        resource: str | None = None,
        verbatim: bool = False,
    ) -> tuple[Message, ...]:
        _check_messages(messages, verbatim=verbatim)
        given = {"thread_id": thread_id, "messages": messages, "resource": resource, "verbatim": verbatim}
        return cast("tuple[Message, ...]", self._perform("replace_messages", **given, seen=seen))

    def items(self, thread_id: str, *, last: int, resource: str | None = None) -> tuple[Any, ...]:
        page = self._perform("list_messages", thread_id=thread_id, last=last, resource=resource)
        return tuple(message.entry.value for message in page.messages if message.entry is not None)

    def context(
        self,
        thread_id: str,
        query: str | None = None,
        *,
        max_tokens: int | None = None,
        resource: str | None = None,
        last: int = 10,
        top: int = 4,
        neighbours: int = 1,
        scope: RecallScope = "thread",
        working: bool = True,
        count_tokens: CountTokens = estimate_tokens,
        min_relevance: float | None = None,
        standing: bool = True,
    ) -> Context:
        """As `Threads.context`. If you pass your own counter, the context is built on the client."""
        recall = {"query": query, "resource": resource, "last": last, "top": top, "neighbours": neighbours}
        options: dict[str, Any] = {"thread_id": thread_id, **recall, "scope": scope, "min_relevance": min_relevance}
        if count_tokens is estimate_tokens:
            given = {"max_tokens": max_tokens, "working": working, "standing": standing}
            return cast("Context", self._perform("build_context", **options, **given))
        RecallRequest(query, last, top, neighbours, scope, min_relevance)
        budget = Budget(max_tokens, count_tokens)
        thread: Thread = self._perform("get_thread", id=thread_id, resource=resource)
        owner = thread.resource_id
        memories = (self.working.read(resource=owner), self.working.read(thread=thread_id)) if working else ()
        recalled: Recall = self._perform("recall", **options)
        handle = cast("Handle", _RecalledHandle(self, recalled))
        confirmed = recalled.standing if standing else ()
        system = system_of(confirmed, memories, budget, self._limits.standing_tokens)
        return build_context(handle, thread_id, recalled, last, budget, system)


def _check_messages(messages: object, *, verbatim: bool) -> None:
    """Refuse what JSON would change. In a verbatim item, the fields that name a message are part of it."""
    if verbatim and isinstance(messages, Sequence):
        for number, message in enumerate(messages, 1):
            if isinstance(message, Mapping):
                check_json(f"message {number}", dict(message))


class _RecalledHandle:
    """What `build_context` needs of a handle: the neighbours of messages that were recalled from a service."""

    def __init__(self, threads: RemoteThreads, recalled: Recall) -> None:
        self._threads = threads
        self._ids: dict[str, str] = {}
        self._note(recalled.messages)

    @property
    def namespace(self) -> Namespace:
        return self._threads._caller.namespace

    @property
    def store(self) -> _RecalledHandle:
        return self

    def scan(self, namespace: Namespace, scan: Scan) -> Page:
        """The entries before or after the one whose key the filter names, the nearest first."""
        id = self._ids[scan.filter.key_before or scan.filter.key_after or ""]
        counts = (scan.limit, 0) if scan.descending else (0, scan.limit)
        found = self._threads._perform("list_around", message_id=id, before=counts[0], after=counts[1])
        return Page(self._note(found[-2::-1] if scan.descending else found[1:]), None)

    def _note(self, messages: Sequence[Message]) -> tuple[Entry, ...]:
        entries = tuple(message.entry for message in messages if message.entry is not None)
        self._ids |= {entry.key: cast("str", entry.identity) for entry in entries}
        return entries


# The space and the book


class RemoteSpace(Part, mirrors=Space, prefix=""):
    """`Space` of a service."""

    remember = Space.remember
    recall = Space.recall

    @property
    def namespace(self) -> Namespace:
        return self._caller.namespace

    @property
    def limits(self) -> Limits:
        return self._caller.limits

    @cached_property
    def files(self) -> Files:
        return cast("Files", RemoteFiles(self._caller))

    @cached_property
    def records(self) -> Records:
        return cast("Records", RemoteRecords(self._caller))

    @cached_property
    def items(self) -> Items:
        return cast("Items", RemoteItems(self._caller))

    @cached_property
    def threads(self) -> Threads:
        return cast("Threads", RemoteThreads(self._caller))

    def once(self, key: str, fingerprint: str) -> RemoteSpace:
        return RemoteSpace(replace(self._caller, once=Once(key, fingerprint)))

    def expecting(self, kind: str, key: str, *revisions: Seen) -> RemoteSpace:
        name = self._name(kind, key)
        expected = Expected(kind, name, name, revisions)
        return RemoteSpace(replace(self._caller, expected=(*self._caller.expected, expected)))

    def history(self, kind: str, key: str) -> list[Revision]:
        return _all_revisions(self._caller, "list_history", self._entry(kind, key))

    def state(self, kind: str, key: str, revision: int) -> Entry:
        entry = self._perform("get_state", **self._entry(kind, key), revision=check_number("revision", revision))
        return replace(cast("Entry", entry), key=key)

    def restore(self, kind: str, key: str, revision: int) -> int:
        name = self._name(kind, key)
        return int(self._perform("restore", kind=kind, key=name, revision=check_number("revision", revision)))

    def undo(self, commit: int) -> int:
        return int(self._perform("undo", commit=check_number("commit", commit)))

    def changes(self, after: int = 0, limit: int = 1_000) -> list[Change]:
        most = min(check_number("limit", limit), MOST_AT_ONCE)
        page: ChangePage = self._perform("list_changes", after=check_number("after", after), limit=most)
        found = [*page.changes]
        if limit <= MOST_AT_ONCE:
            return found
        while page.changes and len(found) <= limit:
            page = self._perform("list_changes", after=page.cursor, limit=most)
            found += page.changes
        if len(found) <= limit:
            return found
        # As in a store: whole commits only, even one that is larger than the limit.
        whole = [change for change in found if change.commit < found[limit].commit]
        return whole or self.changes(after, limit * 10)

    def purge(
        self,
        kind: str | None = None,
        key: str | None = None,
        *,
        history_before: datetime | str | None = None,
        revision: int | None = None,
    ) -> int:
        if key is not None and kind is None:
            raise InvalidInput("purge of one entry needs its kind as well, such as purge('file', '/notes/today')")
        everything = kind is None and history_before is None and revision is None
        given: dict[str, Any] = {"kind": kind, "key": key, "history_before": history_before, "everything": everything}
        if revision is not None:  # a former service does not know the field
            given["revision"] = revision
        return int(self._perform("purge", **given))

    def _entry(self, kind: str, key: str) -> dict[str, str]:
        """An entry as part of a URL. A path is checked here, because a proxy may rewrite `..` on the way."""
        name = self._name(kind, key)
        return {"kind": kind, "key": name.removeprefix("/") if kind in (FILE, DIRECTORY) else name}

    def _name(self, kind: str, key: str) -> str:
        """The name of an entry as it is sent to the service, checked."""
        if kind not in KINDS:
            raise InvalidInput(f"unknown kind {kind!r}; use one of {', '.join(KINDS)}")
        if kind in (FILE, DIRECTORY):
            return normalise(key, self.limits)
        return check_text("key", key, max_bytes=MAX_KEY_BYTES)


class RemoteBook:
    """`Book` of a service. `namespace` is the caller's own."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._caller = Caller(connections, (), Limits())
        caller = self._caller.perform(BY_NAME["get_caller"], {})
        self.limits: Limits = caller.limits
        self.namespace: Namespace = caller.namespace

    @property
    def url(self) -> str:
        return self._connections.url

    def space(self, *labels: str, actor: str | None = None, rules: Rules | None = None) -> Space:
        """The handle on one namespace; without labels, the caller's own. The service decides what it may do."""
        if rules is not None:
            raise ConfigurationError("on a service, the key sets the rules; create one with `commonplace keys create`")
        namespace = check_namespace(labels) if labels else self.namespace
        caller = Caller(self._connections, namespace, self.limits, check_actor(actor))
        return cast("Space", RemoteSpace(caller))

    def search(self, /, query: str = "", *, below: Sequence[str], **options: Any) -> SearchResult:
        if below != ():
            return self.space(*check_namespace(below)).search(query, below=True, **options)
        given = {"query": query, **options, "everywhere": True}
        return cast("SearchResult", self._own.perform(BY_NAME["search"], given))

    def list_items(self, /, *, below: Sequence[str], **options: Any) -> tuple[Item, ...]:
        if below != ():
            return self.space(*check_namespace(below)).items.list_below(**options)
        found = self._own.perform(BY_NAME["list_items_below"], {**options, "everywhere": True})
        return cast("tuple[Item, ...]", found)

    @property
    def _own(self) -> Caller:
        return Caller(self._connections, self.namespace, self.limits)

    def namespaces(
        self,
        *prefix: str,
        after: Namespace | None = None,
        limit: int = 1_000,
        emptied: bool = False,
        kinds: Sequence[str] | None = None,
        history: bool = False,
    ) -> list[Namespace]:
        below = "/".join(check_namespace(prefix)) if prefix else None
        last = None if after is None else "/".join(check_namespace(after))
        check_number("limit", limit)
        found: list[Namespace] = []
        while True:
            most = min(limit - len(found), MOST_AT_ONCE)
            given = {"below": below, "after": last, "limit": most, "emptied": emptied, "kinds": kinds}
            given["history"] = history
            page = self._caller.perform(BY_NAME["list_namespaces"], given).namespaces
            found += page
            if len(page) < most or len(found) == limit:
                return found
            last = "/".join(page[-1])

    def stats(self) -> StoreStats:
        return cast("StoreStats", self._caller.perform(BY_NAME["get_store_stats"], {}))

    def export(
        self,
        write: Callable[[bytes], object],
        *,
        namespaces: Sequence[Namespace] | None = None,
        progress: Progress | None = None,
        salvage: bool = False,
    ) -> Exported:
        if salvage:
            raise ConfigurationError("salvage needs the book itself, not a service; run it where the book is")
        chosen = check_namespaces(namespaces)
        if chosen == []:  # a request without names means the caller's own
            write(header_line())
            write(footer_line(0, 0))
            return Exported(0, 0)
        names = ["/".join(namespace) for namespace in chosen or ()]
        query = query_text({"namespace": names, "everything": chosen is None})
        end = b""
        with self._connections.stream(Request("GET", f"/v1/export?{query}", HEADERS)) as pieces:
            for count, piece in enumerate(pieces, 1):
                write(piece)
                end = (end + piece)[-1_000:]
                if progress is not None:
                    progress(count, None, "pieces")
        return _footer(end)

    def import_lines(
        self,
        stream: BinaryIO,
        *,
        only: Namespace | None = None,
        merge: bool = False,
        actor: str | None = None,
        rules: Rules | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Imported]:
        """As `Book.import_lines`, but all results come at once, after the service has imported the last namespace."""
        if rules is not None:
            raise ConfigurationError("on a service, the key sets the rules; create one with `commonplace keys create`")
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        operation = BY_NAME["import_lines"]
        query = query_text({"namespace": None if only is None else "/".join(only), "merge": bool(merge)})
        headers = {**HEADERS, "Content-Length": str(size), "Content-Type": "application/jsonl"}
        answer = self._connections.ask(Request("POST", f"/v1/import?{query}", headers, stream))
        if progress is not None:
            progress(size, size, "bytes")
        assert operation.result is not None
        yield from operation.result.read(answer.json())

    def import_memory(
        self,
        path: str | Path,
        namespace: Namespace,
        *,
        format: str | None = None,
        mapping: Sequence[str] = (),
        again: bool = False,
        dry_run: bool = False,
        name: str | None = None,
        bounds: Bounds | None = None,
        actor: str | None = None,
        rules: Rules | None = None,
        reaches: Callable[[Namespace], object] | None = None,
        progress: Progress | None = None,
    ) -> ImportReport:
        """As `Book.import_memory`. The file is sent to the service, a folder as a zip archive."""
        if rules is not None or reaches is not None or bounds is not None:
            raise ConfigurationError("on a service, the key sets the rules; create one with `commonplace keys create`")
        if isinstance(path, str) and "://" in path:
            raise ConfigurationError("a service imports files only, not a database; run the import where the book is")
        query: dict[str, Any] = {"namespace": "/".join(check_namespace(namespace)), "format": format}
        query |= {"map": list(mapping), "again": bool(again), "dry_run": bool(dry_run)}
        source = local_path("the file to import", path)
        with _sent(source) as (stream, sent_name):
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            headers = {**HEADERS, "Content-Length": str(size), "Content-Type": "application/octet-stream"}
            address = f"/v1/import-memory?{query_text({**query, 'name': name or sent_name})}"
            answer = self._connections.ask(Request("POST", address, headers, stream))
        if progress is not None:
            progress(size, size, "bytes")
        form = BY_NAME["import_memory"].result
        assert form is not None
        return cast("ImportReport", form.read(answer.json()))

    def close(self) -> None:
        """Close the connections. Everything acknowledged is already on the service's disk."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What needs the file

    @property
    def store(self) -> Store:
        return self._needs_the_file("this")

    def root(self, *, rules: Rules | None = None) -> Space:
        self._needs_the_file("root")

    def reindex(self, embedder: Embedder | str | None = None, *, progress: Progress | None = None) -> None:
        self._needs_the_file("reindex")

    def rebuild_keywords(self, *, progress: Progress | None = None) -> None:
        self._needs_the_file("reindex --keywords")

    def backup(self, target: str | Path, *, progress: Progress | None = None) -> None:
        self._needs_the_file("backup")

    def verify(self, *, progress: Progress | None = None) -> list[str]:
        self._needs_the_file("doctor")

    def _needs_the_file(self, what: str) -> NoReturn:
        raise ConfigurationError(
            f"{what} needs the book itself, not a service ({self.url}); run it where the book is, with --db"
        )


@contextmanager
def _sent(source: Path) -> Iterator[tuple[BinaryIO, str]]:
    """A file as it is, or a folder as a zip archive without its links, and the name of either."""
    if not source.is_dir():
        if not source.is_file():
            raise NotFound(f"there is no file or folder {source} to import")
        with source.open("rb") as stream:
            yield stream, source.name
        return
    with tempfile.TemporaryFile() as held:
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for folder, folders, files in os.walk(source):
                names = [Path(folder) / name for name in (*sorted(folders), *sorted(files))]
                for path in (path for path in names if not path.is_symlink()):
                    archive.write(path, f"{source.name}/{path.relative_to(source).as_posix()}")
        yield held, f"{source.name}.zip"


def _footer(end: bytes) -> Exported:
    """The counts in the last line of an export; without that line, the export was cut off."""
    last = end[:-1].rpartition(b"\n")[2]
    if end.endswith(b"\n") and last.startswith(b'{"line":"footer"'):
        counts = json.loads(last)
        return Exported(counts["namespaces"], counts["states"])
    raise Unavailable("the export was cut off before its end and is not complete; export again")


Space.register(RemoteSpace)
Book.register(RemoteBook)
