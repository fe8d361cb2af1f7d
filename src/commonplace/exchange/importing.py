"""Reading an export back: each namespace whole or not at all, and none twice.

A namespace that holds nothing here takes the file's as it is, history and numbers included. One that holds exactly
the same is left alone. Any other is refused, or with `merge` gets what it lacks, as one new commit of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import BinaryIO, Literal

from commonplace.checks import MAX_TEXT_BYTES, Namespace
from commonplace.engine.undo import draft_of
from commonplace.entry import Entry
from commonplace.errors import Conflict, InvalidInput
from commonplace.exchange.lines import Line, check_header, read_head, read_state
from commonplace.space.names import DIRECTORY, FILE, THREAD, key_of, parents, path_of
from commonplace.space.rules import Meter, Note, Rules
from commonplace.space.threads import belongs
from commonplace.store import NOTHING, NamespaceHead, Progress, State, Store, Transaction, Usage

LINES_A_STEP = 200
MAX_LINE_BYTES = 4 * MAX_TEXT_BYTES
"""A line is held whole: a file that was not exported may be one line of many gigabytes."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one namespace: the states taken; when merged, the entries kept as they were, some differing."""

    namespace: Namespace
    outcome: Literal["imported", "identical", "merged"]
    states: int
    kept: int = 0
    differing: int = 0
    commit: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Where an import goes, under which limits, and who brings it."""

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
            return self.store.write(namespace, rules.kept(work, held, note), actor=self.actor)[1]

        return self.meter.run(rules, run)


def import_book(
    target: Target,
    stream: BinaryIO,
    *,
    only: Namespace | None = None,
    merge: bool = False,
    progress: Progress | None = None,
) -> Iterator[Imported]:
    """Take in every namespace of an export, or one; each is told of once it is durable. The stream must be seekable."""
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
        raise line.wrong(f"is a {line.name!r}; a namespace or the footer should stand here")
    if (seen, states) != (line.integer("namespaces"), line.integer("states")):
        raise line.wrong(f"counts other namespaces and states than the file has ({seen} and {states})")
    if only is not None and not taken:
        raise InvalidInput(f"the file has no namespace {'/'.join(only)}; import it without a namespace to take all")


def namespaces_of(stream: BinaryIO) -> Iterator[Namespace]:
    """The namespaces that an export tells of, for a look before taking any in."""
    file = _File(stream, None)
    check_header(file.next_line())
    while (line := file.next_line()).name == "namespace":
        head = read_head(line)
        yield head.namespace
        file.skip_states(head)


class _File:
    """The lines of an export, with the place to go back to."""

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
                f"the export ends in line {self._number} without its footer: it was cut off; export again"
                if self._number > 1
                else "the file is empty or no export; give one that `commonplace export` wrote"
            )
        if self._progress is not None and self._number % LINES_A_STEP == 0:
            self._progress(self._stream.tell(), self._size, "bytes")
        return Line(self._number, raw)

    def mark(self) -> tuple[int, int, int]:
        return self._stream.tell(), self._number, self.states_read

    def go_back(self, mark: tuple[int, int, int]) -> None:
        self._stream.seek(mark[0])
        _, self._number, self.states_read = mark

    def states(self, head: NamespaceHead) -> Iterator[State]:
        """The states up to the namespace's end line, whose count must agree."""
        newer: State | None = None
        count = 0
        while (line := self.next_line()).name == "state":
            newer = read_state(line, head.namespace, newer)
            count += 1
            self.states_read += 1
            yield newer
        _check_end(line, head, count)

    def states_again(self, head: NamespaceHead, mark: tuple[int, int, int]) -> Iterator[State]:
        """The states from a mark on; a write that is repeated reads them anew."""
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
        raise line.wrong(f"should be the end of namespace {'/'.join(head.namespace)}; nothing of it was imported")
    if line.integer("states") != count:
        raise line.wrong(
            f"says that namespace {'/'.join(head.namespace)} has {line.integer('states')} states, and {count} stand "
            "before it; nothing of it was imported"
        )


def _take(target: Target, file: _File, head: NamespaceHead, *, merge: bool) -> Imported:
    start = file.mark()
    if _is_empty(target.store, head.namespace):
        return Imported(head.namespace, "imported", target.adopt(head, lambda: file.states_again(head, start)))
    if _is_identical(target.store, file, head):
        return Imported(head.namespace, "identical", file.states_read - start[2])
    if not merge:
        raise Conflict(
            f"namespace {'/'.join(head.namespace)} holds other entries than the file; import into an empty book, "
            "or merge (--merge) to add only what it lacks"
        )
    merging = _Merge(file, head, start)
    commit = target.write(head.namespace, merging.run)
    return Imported(head.namespace, "merged", merging.added, merging.kept, merging.differing, commit)


def _is_empty(store: Store, namespace: Namespace) -> bool:
    with closing(store.export([namespace])) as present:
        return not any(isinstance(item, State) for item in present)


def _is_identical(store: Store, file: _File, head: NamespaceHead) -> bool:
    """Compare state by state; stops at the first difference."""
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
    """Adds the live entries of a file that a namespace lacks, inside one transaction; what is there stays."""

    def __init__(self, file: _File, head: NamespaceHead, start: tuple[int, int, int]) -> None:
        self._file = file
        self._head = head
        self._start = start
        self.added = self.kept = self.differing = 0

    def run(self, transaction: Transaction) -> None:
        self.added = self.kept = self.differing = 0
        for are_threads in (True, False):  # a cloned thread stands after its messages
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
    """Whether the namespace has a file where this needs a directory, a directory where this is a file, or as its
    thread that of another resource."""
    if entry.kind not in (FILE, DIRECTORY):
        return not belongs(transaction, entry)
    other = DIRECTORY if entry.kind == FILE else FILE
    above = (key_of(path) for path in parents(path_of(entry.key)))
    return transaction.get(other, entry.key) is not None or any(transaction.get(FILE, key) for key in above)
