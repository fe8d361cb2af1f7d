"""Reads an export: each namespace is imported completely or not at all, and never twice.

A namespace that is empty in the book gets the file's states with their history and numbers. One that is identical is
left alone. Any other is refused, or with `merge` gets the missing entries as one new commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Literal, get_args

from commonplace.checks import (
    FIRST_TIME,
    JSON,
    LAST_TIME,
    MAX_KEY_BYTES,
    MAX_TEXT_BYTES,
    Limits,
    Namespace,
    check_json,
    check_key,
    check_line,
    check_namespace,
    check_text,
)
from commonplace.entry import WITHOUT_HISTORY, Action, Entry
from commonplace.errors import Conflict, InvalidInput
from commonplace.exchange.export import VERSION
from commonplace.language.edits import apply_edit
from commonplace.space.history import draft_of
from commonplace.space.names import (
    DIRECTORY,
    FILE,
    ITEM,
    KINDS,
    MESSAGE,
    RECORD,
    ROOT,
    THREAD,
    WORKING,
    key_of,
    normalise,
    parents,
    path_of,
)
from commonplace.space.records import FRACTIONS, RECORD_ATTRIBUTES
from commonplace.space.rules import Meter, Note, Rules
from commonplace.space.threads import fits_thread
from commonplace.store import NOTHING, Ending, NamespaceHead, Progress, State, Store, Transaction, Usage

LINES_A_STEP = 200
MAX_LINE_BYTES = 4 * MAX_TEXT_BYTES
"""A line is held in memory, and a file that is not an export may be one line of many gigabytes."""

_ACTIONS = get_args(Action)
_PATHS = (FILE, DIRECTORY)
_MOST = 2**53
"""The largest number that is accepted. No book comes near it, and counting can continue above it."""

_YEAR = 366 * 86_400_000_000
_ANY_LENGTH = Limits(path_bytes=MAX_KEY_BYTES, path_segments=MAX_KEY_BYTES)
"""A book may have been opened with limits above the defaults."""

_ATTRIBUTES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    RECORD: RECORD_ATTRIBUTES,
    THREAD: {"resourceId": (str,), "title": (str, type(None)), "metadata": (dict,)},
    MESSAGE: {"resourceId": (str,), "threadId": (str,), "role": (str,)},
}
"""The attributes of each kind, with their types. A name that ends in `?` may be missing."""

_DECLARED = {
    kind: [(name.removesuffix("?"), name.endswith("?"), types) for name, types in declared.items()]
    for kind, declared in _ATTRIBUTES.items()
}


@dataclass(frozen=True, slots=True)
class Imported:
    """The result for one namespace: the imported states; after a merge, also the entries kept and how many differ."""

    namespace: Namespace
    outcome: Literal["imported", "identical", "merged"]
    states: int
    kept: int = 0
    differing: int = 0
    commit: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedCommits:
    """The commits of an import in one namespace. `undo_import` takes back those of the same import in this range."""

    namespace: Namespace
    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What a source held, and what became of it. After a dry run: what would."""

    formats: tuple[str, ...]
    found: tuple[str, ...]
    """What was recognised, in words."""
    threads: int = 0
    messages: int = 0
    records: int = 0
    files: int = 0
    working_memories: int = 0
    updated: int = 0
    """Entries that the source changed since the last import."""
    kept: int = 0
    differing: int = 0
    """Of those kept, how many differ in the source and were not changed there later."""
    deleted_here: int = 0
    """Entries that were deleted here since they were imported, and stay deleted."""
    left_out: int = 0
    unreadable: int = 0
    reasons: tuple[str, ...] = ()
    """The first that could not be read, with the reasons."""
    left_out_reasons: tuple[str, ...] = ()
    """The first that were left out, with the reasons."""
    samples: tuple[str, ...] = ()
    commits: tuple[ImportedCommits, ...] = ()
    is_dry: bool = False

    @property
    def added(self) -> int:
        return self.threads + self.messages + self.records + self.files + self.working_memories


@dataclass(frozen=True, slots=True)
class Target:
    """Where an import goes, its limits, and the actor."""

    store: Store
    meter: Meter
    rules: Rules
    actor: str | None = None

    def adopt(self, head: NamespaceHead, read: Callable[[], Iterable[State]]) -> int:
        def run(held: Usage | None, note: Note) -> int:
            def check(more: Usage) -> None:
                self.rules.check_room(held or NOTHING, more)
                note(more)

            return self.store.adopt(head, read, check)

        return self.meter.run(self.rules, run)

    def write(self, namespace: Namespace, work: Callable[[Transaction], None]) -> int | None:
        rules = replace(self.rules, screen=None)  # what is imported is not screened

        def run(held: Usage | None, note: Note) -> int | None:
            return self.store.write(namespace, rules.guard(work, held, note), actor=self.actor)[1]

        return self.meter.run(rules, run)


def import_book(
    target: Target,
    stream: BinaryIO,
    *,
    only: Namespace | None = None,
    merge: bool = False,
    progress: Progress | None = None,
) -> Iterator[Imported]:
    """Import every namespace of an export, or one; each is reported when it is durable. The stream must be seekable."""
    file = _File(stream, progress)
    check_header(file.next_line())
    seen, states, taken = 0, 0, 0
    while (line := file.next_line()).name == "namespace":
        head = read_head(line)
        seen += 1
        before = file.states_read
        if only is None or only == head.namespace:
            taken += 1
            yield _take(target, file, head, merge=merge)
        else:
            file.skip_states(head)
        states += file.states_read - before
    if line.name != "footer":
        raise line.wrong(f"is a {line.name!r}; a namespace or the footer is expected here")
    if (seen, states) != (line.integer("namespaces"), line.integer("states")):
        raise line.wrong(f"has other counts than the namespaces and states of the file ({seen} and {states})")
    if only is not None and not taken:
        raise InvalidInput(f"the file has no namespace {'/'.join(only)}; import it without a namespace to take all")


def namespaces_of(stream: BinaryIO) -> Iterator[Namespace]:
    """Yield the namespaces of an export without importing them."""
    file = _File(stream, None)
    check_header(file.next_line())
    while (line := file.next_line()).name == "namespace":
        head = read_head(line)
        yield head.namespace
        file.skip_states(head)


class _File:
    """The lines of an export; you can return to a marked position."""

    def __init__(self, stream: BinaryIO, progress: Progress | None) -> None:
        self._stream = stream
        self._progress = progress
        self._number = 0
        self.states_read = 0
        self._size = stream.seek(0, 2)
        stream.seek(0)

    def next_line(self) -> Line:
        raw = self._stream.readline(MAX_LINE_BYTES)
        self._number += 1
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raise InvalidInput(
                f"line {self._number} has more than {MAX_LINE_BYTES:,} bytes; "
                "give a file that `commonplace export` wrote"
            )
        if not raw.endswith(b"\n"):
            raise InvalidInput(
                f"the export ends in line {self._number} without its footer, so it was cut off; export again"
                if self._number > 1
                else "the file is empty or not an export; give one that `commonplace export` wrote"
            )
        if self._progress is not None and self._number % LINES_A_STEP == 0:
            self._progress(self._stream.tell(), self._size, "bytes")
        return read_line(self._number, raw)

    def mark(self) -> tuple[int, int, int]:
        return self._stream.tell(), self._number, self.states_read

    def go_back(self, mark: tuple[int, int, int]) -> None:
        self._stream.seek(mark[0])
        _, self._number, self.states_read = mark

    def states(self, head: NamespaceHead) -> Iterator[State]:
        """Yield the states up to the namespace's end line, whose count must match."""
        newer: State | None = None
        count = 0
        while (line := self.next_line()).name == "state":
            newer = read_state(line, head.namespace, newer)
            count += 1
            self.states_read += 1
            yield newer
        _check_end(line, head, count)

    def states_again(self, head: NamespaceHead, mark: tuple[int, int, int]) -> Iterator[State]:
        """Yield the states from a mark on; a write that is repeated reads them again."""
        self.go_back(mark)
        return self.states(head)

    def skip_states(self, head: NamespaceHead) -> None:
        count = 0
        while (line := self.next_line()).name == "state":
            count += 1
        self.states_read += count
        _check_end(line, head, count)


def _check_end(line: Line, head: NamespaceHead, count: int) -> None:
    if line.name != "end" or line.namespace() != head.namespace:
        raise line.wrong(f"must be the end of namespace {'/'.join(head.namespace)}; nothing of it was imported")
    if line.integer("states") != count:
        raise line.wrong(
            f"says that namespace {'/'.join(head.namespace)} has {line.integer('states')} states, but there are "
            f"{count}; nothing of it was imported"
        )


def _take(target: Target, file: _File, head: NamespaceHead, *, merge: bool) -> Imported:
    start = file.mark()
    if _is_empty(target.store, head.namespace):
        return Imported(head.namespace, "imported", target.adopt(head, lambda: file.states_again(head, start)))
    if _is_identical(target.store, file, head):
        return Imported(head.namespace, "identical", file.states_read - start[2])
    if not merge:
        raise Conflict(
            f"namespace {'/'.join(head.namespace)} has other entries than the file; import into an empty book, "
            "or merge (--merge) to add only what is missing"
        )
    merging = _Merge(file, head, start)
    commit = target.write(head.namespace, merging.run)
    return Imported(head.namespace, "merged", merging.added, merging.kept, merging.differing, commit)


def _is_empty(store: Store, namespace: Namespace) -> bool:
    with closing(store.export([namespace])) as present:
        return not any(isinstance(item, State) for item in present)


def _is_identical(store: Store, file: _File, head: NamespaceHead) -> bool:
    """Compare state by state up to the first difference."""
    last, number = 0, 0
    with closing(store.export([head.namespace])) as stored:
        present = (item for item in stored if isinstance(item, State))
        for state in file.states(head):
            other = next(present, None)
            if other is None:
                return False
            if other.entry.id != last:
                last, number = other.entry.id, number + 1
            if replace(other, entry=replace(other.entry, id=number)) != state:
                return False
        return next(present, None) is None


class _Merge:
    """Adds the live entries of a file that a namespace does not have, in one transaction. Existing entries stay."""

    def __init__(self, file: _File, head: NamespaceHead, start: tuple[int, int, int]) -> None:
        self._file = file
        self._head = head
        self._start = start
        self.added = self.kept = self.differing = 0

    def run(self, transaction: Transaction) -> None:
        self.added = self.kept = self.differing = 0
        for are_threads in (True, False):  # a cloned thread comes after its messages
            for state in self._file.states_again(self._head, self._start):
                entry = state.entry
                is_over = entry.expires_at is not None and entry.expires_at <= transaction.time
                if (entry.kind == THREAD) == are_threads and state.ended is None and not is_over:
                    self._add(transaction, entry)

    def _add(self, transaction: Transaction, entry: Entry) -> None:
        known = transaction.get(entry.kind, entry.key)
        if known is None and entry.identity is not None:
            known = transaction.find(entry.kind, entry.identity)
        if known is not None or _has_no_place(transaction, entry):
            self.kept += 1
            self.differing += known is None or (known.value, known.attributes) != (entry.value, entry.attributes)
            return
        transaction.put(replace(draft_of(entry), updated_at=entry.updated_at))
        self.added += 1


def _has_no_place(transaction: Transaction, entry: Entry) -> bool:
    """Whether a file blocks a directory or a directory a file, or the entry's thread belongs to another resource."""
    if entry.kind not in (FILE, DIRECTORY):
        return not fits_thread(transaction, entry)
    other = DIRECTORY if entry.kind == FILE else FILE
    above = (key_of(path) for path in parents(path_of(entry.key)))
    return transaction.get(other, entry.key) is not None or any(transaction.get(FILE, key) for key in above)


# Lines


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the file, or an object in it. Fields are checked when they are read; errors name the line number."""

    number: int
    fields: Mapping[str, Any]

    def wrong(self, what: str) -> InvalidInput:
        return _wrong(self.number, what)

    @property
    def name(self) -> str:
        return str(self.fields["line"])

    def integer(self, name: str) -> int:
        value = self.fields.get(name)
        if type(value) is not int or not 0 <= value <= _MOST:
            raise self.wrong(f'needs a whole number "{name}" from 0 to {_MOST}, not {value!r:.100}')
        return value

    def time(self, name: str, *, room: int = 0) -> int:
        """Return a time that can be represented, also if `room` microseconds are added."""
        value = self.fields.get(name)
        if type(value) is not int:
            raise self.wrong(f'needs a time "{name}" in whole microseconds, not {value!r:.100}')
        if not FIRST_TIME <= value <= LAST_TIME - room:
            raise self.wrong(f'has a time "{name}" outside of the years 1 to 9999: {value!r:.100}')
        return value

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self.wrong(f'needs a text "{name}", not {value!r:.100}')
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def namespace(self) -> Namespace:
        path = self.text("namespace")
        try:
            return check_namespace(tuple(path.split("/")))
        except InvalidInput as error:
            raise self.wrong(f"is refused: {error}") from error


def _wrong(number: int, what: str) -> InvalidInput:
    return InvalidInput(f"line {number} {what}")


def read_line(number: int, raw: bytes) -> Line:
    try:
        fields = json.loads(raw)
    except ValueError as error:
        raise _wrong(number, "is not JSON; the file is damaged or not an export") from error
    except RecursionError as error:
        raise _wrong(number, "is nested too deeply; the file is damaged or not an export") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("line"), str):
        raise _wrong(number, 'is not an object with a field "line"; the file is not an export of commonplace')
    return Line(number, fields)


def check_header(line: Line) -> None:
    if line.name != "header" or line.fields.get("format") != "commonplace":
        raise line.wrong("is not the header of a commonplace export; give a file that `commonplace export` wrote")
    version = line.integer("version")
    if version != VERSION:
        raise line.wrong(f"has format version {version}; this commonplace reads version {VERSION}, so upgrade it")


def read_head(line: Line) -> NamespaceHead:
    # A commit is always later than the previous one, even if the clock is behind.
    commit_time = line.time("commit_at", room=_YEAR)
    return NamespaceHead(line.namespace(), line.integer("commit"), commit_time, line.integer("history_floor"))


def read_state(line: Line, namespace: Namespace, newer: State | None) -> State:
    """Return the state of a line, checked like any other input; `newer` is the state of the previous line."""
    number, kind = line.integer("entry"), line.text("kind")
    if kind not in KINDS:
        raise line.wrong(f"has the unknown kind {kind!r}")
    value = _read_value(line, number, newer)
    attributes = line.fields.get("attributes")
    if not isinstance(attributes, dict):
        raise line.wrong('needs an object "attributes"')
    try:
        key = check_key(_read_key(line, kind))
        check_json("value", value)
        check_json("attributes", attributes)
        text = value if isinstance(value, str) and "text" not in line.fields else check_text("text", line.text("text"))
        for name in ("actor", "identity", "heading"):
            if line.fields.get(name) is not None:
                check_text(name, line.text(name))
        if line.fields.get("identity") is not None:
            check_line("identity", line.text("identity"), max_bytes=512)
    except InvalidInput as error:
        raise line.wrong(f"is refused: {error}") from error
    _check_kind(line, kind, value, attributes)
    is_older = newer is not None and newer.entry.id == number
    is_bare = kind == ITEM and not text and line.fields.get("heading") is None and line.fields.get("ended") is None
    if (WITHOUT_HISTORY in attributes and not (attributes[WITHOUT_HISTORY] is False and is_bare)) or (
        is_older and newer is not None and WITHOUT_HISTORY in newer.entry.attributes
    ):
        raise line.wrong("is or has a state without history, as only an item with one state and no text can be")
    entry = Entry(
        id=number,
        namespace=namespace,
        kind=kind,
        key=key,
        value=value,
        text=text,
        heading=line.optional_text("heading"),
        attributes=attributes,
        identity=line.optional_text("identity"),
        revision=line.integer("revision"),
        commit=line.integer("commit"),
        created_at=line.time("created_at"),
        updated_at=line.time("updated_at"),
        expires_at=None if line.fields.get("expires_at") is None else line.time("expires_at"),
        actor=line.optional_text("actor"),
    )
    return State(entry, _read_action(line), line.time("at"), _read_ending(line))


def _read_key(line: Line, kind: str) -> str:
    if kind not in _PATHS:
        return line.text("key")
    key = key_of(line.text("path")) if "path" in line.fields else line.text("key")
    path = path_of(key)
    if path == ROOT or key != key_of(normalise(path, _ANY_LENGTH)):
        raise InvalidInput(f"a {kind} has a path in its normal form, such as /notes/today, not {path!r}")
    return key


def _check_kind(line: Line, kind: str, value: JSON, attributes: Mapping[str, JSON]) -> None:
    """Raise InvalidInput for a value or attributes that the kind cannot have."""
    if kind == FILE and not isinstance(value, str):
        raise line.wrong("is a file whose value is not a text")
    if kind == MESSAGE and not isinstance(value, Mapping):
        raise line.wrong("is a message whose value is not an object")
    if kind == WORKING and not isinstance(value, str | Mapping):
        raise line.wrong("is a working memory whose value is neither a text nor an object")
    for name, is_optional, types in _DECLARED.get(kind, ()):
        if name not in attributes:
            if is_optional:
                continue
            raise line.wrong(f'is a {kind} without the attribute "{name}"')
        if isinstance(attributes[name], bool) or not isinstance(attributes[name], types):
            raise line.wrong(f'is a {kind} whose attribute "{name}" is {attributes[name]!r:.100}')
    tags: Any = attributes["tags"] if kind == RECORD else ()
    if not all(isinstance(tag, str) for tag in tags):
        raise line.wrong("is a record with tags that are not texts")
    for name in FRACTIONS if kind == RECORD else ():
        fraction: Any = attributes.get(name, 0)
        if not 0 <= fraction <= 1:
            raise line.wrong(f'is a record whose attribute "{name}" is {fraction!r:.100}, not a number from 0 to 1')


def _read_value(line: Line, number: int, newer: State | None) -> JSON:
    if "edit" not in line.fields:
        if "value" not in line.fields:
            raise line.wrong('has neither a "value" nor an "edit"')
        value: JSON = line.fields["value"]
        return value
    if newer is None or newer.entry.id != number or not isinstance(newer.entry.value, str):
        raise line.wrong('has an "edit", but the previous line has no text of the same entry')
    try:
        return apply_edit(newer.entry.value, line.fields["edit"])
    except ValueError as error:
        raise line.wrong(f'has an "edit" that does not fit: {error}') from error


def _read_action(line: Line) -> Action:
    action: Any = line.text("action")
    if action not in _ACTIONS:
        raise line.wrong(f"has the unknown action {action!r}")
    return action  # type: ignore[no-any-return]


def _read_ending(line: Line) -> Ending | None:
    fields = line.fields.get("ended")
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise line.wrong('has an "ended" that is not an object')
    ended = Line(line.number, fields)
    actor = ended.optional_text("actor")
    if actor is not None:
        try:
            check_text("actor", actor)
        except InvalidInput as error:
            raise line.wrong(f"is refused: {error}") from error
    return Ending(_read_action(ended), ended.integer("commit"), ended.time("at"), actor)
