"""Imports the memory of other programs: says what a source holds, writes it, and takes it back.

Every conversation is one commit, and so are up to some hundred records or files; `undo_import` takes them all back.
What a book already has is kept, so a second import of the same or a newer export adds only what is new. What cannot be
read is named and counted, and the rest is imported.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, cast

from commonplace.checks import MAX_LABELS, Limits, Namespace, check_namespace, moment, parse_namespace
from commonplace.entry import Change
from commonplace.errors import Conflict, InvalidInput, NotFound, TooLarge
from commonplace.exchange.foreign_entries import MARK, Entries, Threads, Work, mark_of, name_of
from commonplace.exchange.import_ import ImportedCommits, ImportReport
from commonplace.exchange.recognition import MASTRA, OWN, Source
from commonplace.exchange.sources import Conversation, CountedStream, Document, Item, LeftOut, Memory, Problem, Working
from commonplace.space.handle import Handle
from commonplace.store import Progress, Reader

MAX_NAMED = 20
"""How many of the things that are not readable, and of those that are left out, a report names."""

MAX_SAMPLES = 3
ITEMS_A_COMMIT = 500
BYTES_A_COMMIT = 8_000_000
"""Records and files of about this size become one commit."""

_SAMPLE_CHARACTERS = 100


# Where things go


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of `--map`: what comes from `origin` goes to `namespace`. `*` stands for one label."""

    origin: tuple[str, ...]
    namespace: Namespace

    def place(self, origin: Sequence[str]) -> Namespace | None:
        if len(origin) < len(self.origin):
            return None
        found: list[str] = []
        for wanted, label in zip(self.origin, origin, strict=False):
            if wanted == "*":
                found.append(label)
            elif wanted != label:
                return None
        labels = iter(found)
        return check_namespace(tuple(next(labels) if label == "*" else label for label in self.namespace))


def parse_rule(text: str) -> Rule:
    """Read `FROM=NAMESPACE`, such as `user/alice=people/alice` or `user/*=people/*`."""
    origin, equals, target = text.partition("=")
    if not equals or not origin.strip("/"):
        raise InvalidInput(f"{text!r:.200} is not a rule; write FROM=NAMESPACE, such as 'user/*=people/*'")
    rule = Rule(tuple(origin.strip("/").split("/")), parse_namespace(target))
    if rule.namespace.count("*") > rule.origin.count("*"):
        raise InvalidInput(f"{text!r:.200} has more * on the right than on the left")
    return rule


@dataclass(frozen=True, slots=True)
class Placement:
    """Where everything goes: by the first rule that fits, else to one namespace."""

    namespace: Namespace
    rules: tuple[Rule, ...] = ()

    def place(self, origin: Sequence[str]) -> Namespace:
        if self.rules:
            labels = tuple(label.replace("/", "-") for label in origin[:MAX_LABELS])
            for rule in self.rules:
                if (found := rule.place(labels)) is not None:
                    return found
        return self.namespace


# One import


@dataclass(frozen=True, slots=True)
class Options:
    """`again` also imports what was deleted here. A dry run reads and compares, and writes nothing."""

    placement: Placement
    again: bool = False
    is_dry: bool = False


Opened = Callable[[Namespace, str], Handle]
"""Gives a namespace to write to; the text is added to the actor of its writes."""


class Importer:
    """One import."""

    def __init__(self, opened: Opened, limits: Limits, options: Options, progress: Progress | None = None) -> None:
        self._mark = secrets.token_hex(4)
        self._opened = opened
        self._limits = limits
        self._options = options
        self._progress = progress
        self._handles: dict[Namespace, Handle] = {}
        self._counts: dict[str, int] = {}
        self._reasons: list[str] = []
        self._left_out: list[str] = []
        self._samples: list[str] = []
        self._commits: dict[Namespace, list[int]] = {}
        self._read_bytes = 0

    def run(self, source: Source) -> ImportReport:
        """Import everything, or raise only if the store cannot be written to."""
        if source.names == (OWN,):
            raise InvalidInput(
                "this is an export of commonplace, which has its own namespaces and its history; import it with "
                "`commonplace import FILE` or POST /v1/import, with a key that may do everything"
            )
        if source.names == (MASTRA,):
            return self._mastra(source)
        self._count_bytes(source)
        waiting: dict[Namespace, list[Memory | Document | Working]] = {}
        sizes: dict[Namespace, int] = {}
        for item in source.items():
            if isinstance(item, (Problem, LeftOut)):
                self._note(item)
                continue
            try:
                namespace = self._options.placement.place(item.origin)
            except InvalidInput as error:
                self._note(Problem(name_of(item), str(error)))
                continue
            self._sample(item)
            if isinstance(item, Conversation):
                for problem in item.problems:
                    self._note(problem)
                self._write(namespace, Threads(item, again=self._options.again))
                continue
            held = waiting.setdefault(namespace, [])
            held.append(item)
            sizes[namespace] = sizes.get(namespace, 0) + _size_of(item)
            if len(held) >= ITEMS_A_COMMIT or sizes[namespace] >= BYTES_A_COMMIT:
                self._write(namespace, Entries(waiting.pop(namespace), again=self._options.again))
                sizes[namespace] = 0
        for namespace, held in waiting.items():
            self._write(namespace, Entries(held, again=self._options.again))
        return self._report(source)

    def _count_bytes(self, source: Source) -> None:
        leaves = [leaf for part in source.parts for leaf in part.leaves]
        total = sum(leaf.size for leaf in leaves)

        def count(more: int) -> None:
            self._read_bytes += more
            if self._progress is not None:
                self._progress(min(self._read_bytes, total), total, "bytes")

        for leaf in leaves:
            leaf.counted(lambda stream: cast("BinaryIO", CountedStream(stream, count)))

    def _mastra(self, source: Source) -> ImportReport:
        """Mastra's memory has its own importer, which also knows working memories."""
        from commonplace.exchange.mastra import Counts, import_mastra

        namespace = self._options.placement.place((MASTRA,))
        handle = self.handle(namespace)

        def write(work: Callable[[Reader], Counts]) -> Counts:
            if self._options.is_dry:
                return handle.store.read(namespace, work)
            counts, commit = handle.write("Space.import", work)
            if commit is not None:
                self._commits.setdefault(namespace, []).append(commit)
            return counts

        for leaf in source.parts[0].leaves:
            with leaf.on_disk() as path:
                found = import_mastra(
                    handle.store,
                    namespace,
                    path,
                    limits=self._limits,
                    screen=handle.rules.screen,
                    progress=self._progress,
                    again=self._options.again,
                    write=write,
                )
            self._add({"threads": found.threads, "messages": found.messages, "kept": found.kept})
            self._add({"working_memories": found.working_memories, "differing": found.differing})
            self._add({"deleted_here": found.deleted_here, "left_out": found.left_out, "unreadable": found.damaged})
            self._reasons += found.reasons
            self._left_out += found.left_out_reasons
            self._samples += found.samples
        for item in source.aside():
            self._note(item)
        return self._report(source)

    def _report(self, source: Source) -> ImportReport:
        commits = tuple(
            ImportedCommits(namespace, min(numbers), max(numbers), len(numbers))
            for namespace, numbers in sorted(self._commits.items())
        )
        return ImportReport(
            formats=source.names,
            found=source.sentences,
            **self._counts,
            reasons=tuple(self._reasons[:MAX_NAMED]),
            left_out_reasons=tuple(self._left_out[:MAX_NAMED]),
            samples=tuple(self._samples[:MAX_SAMPLES]),
            commits=commits,
            is_dry=self._options.is_dry,
        )

    def _note(self, problem: Problem | LeftOut) -> None:
        is_left_out = isinstance(problem, LeftOut)
        self._add({"left_out" if is_left_out else "unreadable": 1})
        named = self._left_out if is_left_out else self._reasons
        if len(named) < MAX_NAMED:
            named.append(f"{_line(problem.name)}: {_line(problem.reason)}")

    def _add(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count

    def _sample(self, item: Item) -> None:
        if len(self._samples) < MAX_SAMPLES:
            self._samples.append(_sample_of(item))

    def handle(self, namespace: Namespace) -> Handle:
        if namespace not in self._handles:
            self._handles[namespace] = self._opened(namespace, f"{MARK}{self._mark}")
        return self._handles[namespace]

    def _write(self, namespace: Namespace, work: Work) -> None:
        """Make one commit. If it is refused as a whole, such as by a limit, it counts as not readable."""
        handle = self.handle(namespace)
        try:
            work.prepare(handle, self._limits)
            if self._options.is_dry:
                handle.store.read(namespace, work.run)
                commit = None
            else:
                commit = handle.write("Space.import", work.run)[1]
        except (InvalidInput, Conflict) as error:
            if isinstance(error, TooLarge) and handle.rules.is_limited:
                raise  # the space is full: what follows does not fit either
            for name in work.names:
                self._note(Problem(name, str(error)))
            return
        for problem in work.problems:
            self._note(problem)
        self._add(work.counts)
        if commit is not None:
            self._commits.setdefault(namespace, []).append(commit)


def _size_of(item: Memory | Document | Working) -> int:
    if isinstance(item, Document):
        return len(item.text)
    return len(str(item.content)) * (1 + len(item.former) if isinstance(item, Memory) else 1)


def _line(text: str, most: int = 300) -> str:
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 2 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _sample_of(item: Item) -> str:
    if isinstance(item, Conversation):
        chat = item.chats[0]
        count = sum(len(one.messages) for one in item.chats)
        when = "" if chat.created_at is None else f", {moment(chat.created_at):%Y-%m-%d}"
        return f"thread {_line(chat.title or chat.id, _SAMPLE_CHARACTERS)!r} with {count} messages{when}"
    if isinstance(item, Memory):
        text = item.content if isinstance(item.content, str) else json.dumps(item.content, ensure_ascii=False)
        return f"record of type {_line(item.type, 40)}: {_line(text, _SAMPLE_CHARACTERS)}"
    if isinstance(item, Working):
        return f"working memory of {item.scope} {_line(item.id, _SAMPLE_CHARACTERS)}"
    assert isinstance(item, Document)
    return f"file {_line(item.path, _SAMPLE_CHARACTERS)}, {len(item.text):,} characters"


# Undo


class Undoable(Protocol):
    """A space, here or of a service."""

    def changes(self, after: int = 0, limit: int = 1_000) -> list[Change]: ...

    def undo(self, commit: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Undone:
    """How many commits were undone, and why others were not: something has changed since."""

    commits: int
    conflicts: tuple[str, ...]


def undo_import(space: Any, first: int, last: int, progress: Progress | None = None) -> Undone:
    """Undo the commits of one import, the last one first. Commits of others between them stay."""
    undoable = cast("Undoable", space)
    numbers = {change.commit for change in changes_of_import(undoable, first, last)}
    conflicts: list[str] = []
    count = 0
    for done, number in enumerate(sorted(numbers, reverse=True), 1):
        try:
            undoable.undo(number)
            count += 1
        except (Conflict, NotFound) as error:
            conflicts.append(f"commit {number}: {error}")
        if progress is not None:
            progress(done, len(numbers), "commits undone")
    return Undone(count, tuple(conflicts))


def changes_of_import(space: Any, first: int, last: int) -> Iterator[Change]:
    """What the commits of one import changed, in order. Commits of others between them are left out."""
    undoable = cast("Undoable", space)
    mark: str | None = None
    after = first - 1
    while after < last:
        page = undoable.changes(after, 1_000)
        if not page:
            break
        for change in page:
            found = mark_of(change.actor)
            if mark is None and change.commit == first:
                mark = found
            if mark is not None and found == mark and change.commit <= last:
                yield change
        after = page[-1].commit
        if mark is None:
            break
    if mark is None:
        raise NotFound(f"commit {first} is not the first one of an import; the import has printed its commits")


def commit_range(text: str) -> tuple[int, int]:
    """Read `12-345`, the commits of an import."""
    first, _, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and len(first) < 19):
        raise InvalidInput(
            f"{text!r:.100} does not name commits; write them as the import printed them, such as 12-345"
        )
    if not (last.isascii() and last.isdigit() and len(last) < 19):
        last = first
    return int(first), int(last)
