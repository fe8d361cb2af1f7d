"""Imports the memory of other programs: recognises it by its content, says what it holds, and writes it.

Every conversation is one commit, and so are up to some hundred records or files; `undo_import` takes them all back.
What a book already has is kept, so a second import of the same or a newer export adds only what is new. What cannot be
read is named and counted, and the rest is imported.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from commonplace.checks import JSON, MAX_LABELS, Limits, Namespace, check_namespace, moment, parse_namespace
from commonplace.entry import SEPARATOR, Change, Draft, Entry
from commonplace.errors import Conflict, InvalidInput, NotFound, TooLarge, Unavailable
from commonplace.exchange import chats, folders, markdown, memory_programs
from commonplace.exchange.import_ import ImportedCommits, ImportReport
from commonplace.exchange.sources import (
    Bounds,
    Chat,
    Conversation,
    CountedStream,
    Document,
    Format,
    Item,
    Leaf,
    LeftOut,
    Memory,
    Problem,
    Tree,
    Working,
    made_id,
    open_tree,
)
from commonplace.filters import equal
from commonplace.space.conversation import check_id, check_object, check_title, thread_draft
from commonplace.space.files import Files
from commonplace.space.handle import Handle
from commonplace.space.messages import Incoming, Numbering, incoming, thread_of_key
from commonplace.space.names import FILE, MESSAGE, RECORD, THREAD, WORKING
from commonplace.space.records import Records
from commonplace.store import Progress, Reader, Transaction

MAX_REASONS = 20
MAX_SAMPLES = 3
ITEMS_A_COMMIT = 500
BYTES_A_COMMIT = 8_000_000
"""Records and files of about this size become one commit."""

OWN = "commonplace"
MASTRA = "mastra"
_TITLE_CHARACTERS = 500
_SAMPLE_CHARACTERS = 100
_IMPORT = " import:"


def _is_own(leaf: Leaf, tree: Tree) -> bool:
    lines = leaf.first
    return isinstance(lines, tuple) and lines[0].get("line") == "header" and lines[0].get("format") == OWN


def _is_mastra(leaf: Leaf, tree: Tree) -> bool:
    return {"mastra_threads", "mastra_messages"} <= leaf.columns.keys()


def _not_here(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    yield Problem(leaf.path, "import this file alone; it cannot be imported as a part of a folder")


FORMATS: tuple[Format, ...] = (
    Format(OWN, "export of commonplace", _is_own, _not_here),
    Format(MASTRA, "Mastra memory", _is_mastra, _not_here),
    *markdown.FORMATS,
    *chats.FORMATS,
    *memory_programs.FORMATS,
    *folders.FORMATS,
)
"""Every format, in the order in which they are tried."""

NAMES = tuple(one.name for one in FORMATS)


# Recognition


@dataclass(frozen=True, slots=True)
class Part:
    """The files of a source that have one format."""

    format: Format
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A source whose formats are known; `rest` are the files that are not imported."""

    tree: Tree
    parts: tuple[Part, ...]
    rest: tuple[Leaf, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.format.name for part in self.parts)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was found, in words."""
        return tuple(
            f"{part.format.title}: {_shown([leaf.path for leaf in part.leaves])}, "
            f"{sum(leaf.size for leaf in part.leaves):,} bytes"
            for part in self.parts
        )

    def items(self) -> Iterator[Item]:
        yield from self.tree.problems
        for part in self.parts:
            for leaf in part.leaves:
                try:
                    for item in part.format.read(leaf, self.tree):
                        yield _within(leaf, item)
                except (InvalidInput, NotFound, Unavailable, OSError) as error:
                    yield Problem(leaf.path, str(error))
        for leaf in self.rest:
            yield LeftOut(leaf.path, "it is not part of the memory")


def _within(leaf: Leaf, item: Item) -> Item:
    if isinstance(item, (Problem, LeftOut)) and not item.name.startswith(leaf.path):
        return replace(item, name=f"{leaf.path}: {item.name}")
    return item


def _shown(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} files"


def recognise(tree: Tree, wanted: str | None = None) -> Source:
    """Find out what a source is. `wanted` names the format instead."""
    if wanted is not None and wanted not in NAMES:
        raise InvalidInput(f"there is no format {wanted!r:.100}; choose one of {', '.join(NAMES)}")
    if not tree.is_folder and not any(leaf.head or leaf.columns for leaf in tree.leaves):
        raise InvalidInput("the file is empty or not an export; give one that `commonplace export` or a program wrote")
    formats = [one for one in FORMATS if wanted in (None, one.name)]
    owner = next((one for one in formats if one.owns is not None and one.owns(tree)), None)
    found: dict[str, list[Leaf]] = {one.name: [] for one in formats}
    rest: list[Leaf] = []
    for leaf in tree.leaves:
        candidates = [owner] if owner is not None else [one for one in formats if one.owns is None]
        match = next((one for one in candidates if one.matches(leaf, tree)), None)
        if match is None and wanted is not None and len(tree.leaves) == 1:
            match = formats[0]  # the caller knows better; what cannot be read is reported
        (rest if match is None else found[match.name]).append(leaf)
    parts = tuple(Part(one, tuple(found[one.name])) for one in formats if found[one.name])
    plain = [part for part in parts if part.format.name == folders.TEXT]
    if plain and len(parts) > 1:  # texts next to an export, such as its own web page, are not memories
        parts = tuple(part for part in parts if part not in plain)
        rest += [leaf for part in plain for leaf in part.leaves]
    if not parts:
        what = f"no {wanted} memory" if wanted else "nothing that can be imported"
        raise InvalidInput(
            f"{tree.name} has {what}; `commonplace import --help` lists the formats, and --from names one"
        )
    return Source(tree, parts, tuple(rest))


@contextmanager
def open_source(
    path: str | Path, wanted: str | None = None, *, name: str | None = None, bounds: Bounds | None = None
) -> Iterator[Source]:
    """Open what was given, and recognise it. A `postgresql://` address is a LangGraph store."""
    if isinstance(path, str) and path.partition("://")[0] in ("postgres", "postgresql"):
        with memory_programs.open_database(path) as tree:
            yield recognise(tree, wanted)
        return
    with open_tree(Path(path), name=name, bounds=bounds) as tree:
        yield recognise(tree, wanted)


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
        self._samples: list[str] = []
        self._commits: dict[Namespace, list[int]] = {}
        self._read_bytes = 0

    def run(self, source: Source) -> ImportReport:
        """Import everything, or raise only if the store cannot be written to."""
        if OWN in source.names:
            raise InvalidInput(
                "this is an export of commonplace; import it with `import_lines`, which keeps its history"
            )
        if MASTRA in source.names:
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
                self._note(Problem(_name_of(item), str(error)))
                continue
            self._sample(item)
            if isinstance(item, Conversation):
                for problem in item.problems:
                    self._note(problem)
                self._write(namespace, _Threads(self, item))
                continue
            held = waiting.setdefault(namespace, [])
            held.append(item)
            sizes[namespace] = sizes.get(namespace, 0) + _size_of(item)
            if len(held) >= ITEMS_A_COMMIT or sizes[namespace] >= BYTES_A_COMMIT:
                self._write(namespace, _Entries(self, waiting.pop(namespace)))
                sizes[namespace] = 0
        for namespace, held in waiting.items():
            self._write(namespace, _Entries(self, held))
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
        from commonplace.exchange.mastra import count_mastra, import_mastra

        handle = self.handle(self._options.placement.namespace)
        (leaf,) = next(part.leaves for part in source.parts if part.format.name == MASTRA)[:1]
        with leaf.on_disk() as path:
            if self._options.is_dry:
                threads, messages = count_mastra(path)
                self._add({"threads": threads, "messages": messages})
                return self._report(source)
            before = handle.store.namespace_stats(handle.namespace).commit
            found = import_mastra(
                handle.store,
                handle.namespace,
                path,
                limits=self._limits,
                actor=handle.actor,
                screen=handle.rules.screen,
                progress=self._progress,
            )
            last = handle.store.namespace_stats(handle.namespace).commit
        self._add({"threads": found.threads, "messages": found.messages, "working_memories": found.working_memories})
        self._add({"kept": found.kept, "differing": found.differing, "left_out": found.left_out})
        self._add({"unreadable": found.damaged})
        self._reasons += found.reasons
        if last > before:
            self._commits[handle.namespace] = list(range(before + 1, last + 1))
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
            reasons=tuple(self._reasons),
            samples=tuple(self._samples),
            commits=commits,
            is_dry=self._options.is_dry,
        )

    def _note(self, problem: Problem | LeftOut) -> None:
        if isinstance(problem, LeftOut):
            self._add({"left_out": 1})
            return
        self._add({"unreadable": 1})
        if len(self._reasons) < MAX_REASONS:
            self._reasons.append(f"{_line(problem.name)}: {_line(problem.reason)}")

    def _add(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count

    def _sample(self, item: Item) -> None:
        if len(self._samples) < MAX_SAMPLES:
            self._samples.append(_sample_of(item))

    def handle(self, namespace: Namespace) -> Handle:
        if namespace not in self._handles:
            self._handles[namespace] = self._opened(namespace, f"{_IMPORT}{self._mark}")
        return self._handles[namespace]

    def _write(self, namespace: Namespace, work: _Work) -> None:
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

    @property
    def options(self) -> Options:
        return self._options


def _name_of(item: Item) -> str:
    if isinstance(item, Document):
        return item.path
    if isinstance(item, Working):
        return f"working memory of {item.scope} {item.id}"
    return item.source if isinstance(item, Memory) else item.name


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


# Writing


class _Work(Protocol):
    """What becomes one commit. `run` may be called again, so it starts its counts anew."""

    counts: dict[str, int]
    problems: list[Problem | LeftOut]

    @property
    def names(self) -> Sequence[str]: ...

    def prepare(self, handle: Handle, limits: Limits) -> None: ...

    def run(self, reader: Reader) -> None: ...


@dataclass(slots=True)
class _Prepared:
    """The drafts of one record or file, the oldest revision first."""

    item: Memory | Document | Working
    drafts: list[Draft]


class _Entries:
    """Records and files."""

    def __init__(self, importer: Importer, items: Sequence[Memory | Document | Working]) -> None:
        self._options = importer.options
        self._items = items
        self._files: Files | None = None
        self._prepared: list[_Prepared] = []
        self._unfit: list[Problem | LeftOut] = []
        self.counts: dict[str, int] = {}
        self.problems: list[Problem | LeftOut] = []

    @property
    def names(self) -> Sequence[str]:
        return [_name_of(item) for item in self._items]

    def prepare(self, handle: Handle, limits: Limits) -> None:
        self._files = Files(handle, limits)
        records = Records(handle, limits)
        for item in self._items:
            try:
                self._prepared.append(_Prepared(item, self._drafts(records, self._files, item, limits)))
            except (InvalidInput, Conflict) as error:
                self._unfit.append(Problem(_name_of(item), str(error)))

    def _drafts(self, records: Records, files: Files, item: Memory | Document | Working, limits: Limits) -> list[Draft]:
        if isinstance(item, Document):
            return [_dated(files.prepared(item.path, item.text), item.created_at, item.updated_at).with_passages()]
        if isinstance(item, Working):
            return [_dated(self._working(item, limits), item.created_at, item.updated_at)]
        if _is_long(item.content, limits) and not item.former:
            text = item.content if isinstance(item.content, str) else json.dumps(item.content, ensure_ascii=False)
            path = f"/imported/{made_id(item.source)}.{'md' if isinstance(item.content, str) else 'json'}"
            return [_dated(files.prepared(path, text), item.created_at, item.updated_at).with_passages()]
        created = item.created_at
        drafts = []
        for content, at in (*item.former, (item.content, item.updated_at)):
            draft = records.prepared(
                item.id,
                type=item.type,
                content=content,
                source=item.source,
                confidence=item.confidence,
                tags=item.tags[: limits.tags],
                importance=item.importance,
            )
            drafts.append(_dated(draft, created, at).with_passages().with_expiry(item.expires_at))
        return drafts

    def _working(self, item: Working, limits: Limits) -> Draft:
        if item.scope not in ("thread", "resource") or not isinstance(item.content, (str, Mapping)):
            raise InvalidInput("a working memory is a text or an object, of a thread or a resource")
        content = check_object("working memory", {"content": item.content}, limits.metadata_bytes)["content"]
        owner = check_id("id", item.id)
        thread: JSON = owner if item.scope == "thread" else None
        attributes: dict[str, JSON] = {"resourceId": check_id("resource", item.resource), "threadId": thread}
        return Draft(WORKING, f"{item.scope}{SEPARATOR}{owner}", content, text="", attributes=attributes)

    def run(self, reader: Reader) -> None:
        self.counts = {}
        self.problems = list(self._unfit)
        for prepared in self._prepared:
            try:
                self._one(reader, prepared)
            except (InvalidInput, Conflict) as error:
                self.problems.append(Problem(_name_of(prepared.item), str(error)))

    def _one(self, reader: Reader, prepared: _Prepared) -> None:
        item, drafts = prepared.item, prepared.drafts
        last = drafts[-1]
        ends = last.expires_at
        if ends is not None and ends <= time.time_ns() // 1_000:
            self.problems.append(LeftOut(_name_of(item), "it has expired"))
            return
        known = reader.get(last.kind, last.key)
        if known is None and last.kind == RECORD and last.identity is not None:
            known = reader.find(RECORD, last.identity)
        is_deleted = isinstance(item, Memory) and item.is_deleted
        if known is None:
            if not self._options.again and reader.was_used(last.kind, last.key, last.key):
                self._count("kept" if is_deleted else "deleted_here")
                return
            self._put(reader, drafts)
            self._count({FILE: "files", RECORD: "records"}.get(last.kind, "working_memories"))
        else:
            place = max((number for number, one in enumerate(drafts) if _is_same(one, known)), default=None)
            is_newer = last.updated_at is not None and last.updated_at > known.updated_at
            if place is not None and place < len(drafts) - 1:
                drafts = drafts[place + 1 :]
            elif place is not None:
                drafts = [last] if _says_more(last, known) else []
            elif is_newer:
                drafts = drafts[-1:]
            else:
                self._count("kept")
                self._count("differing")
                return
            if not drafts and not is_deleted:
                self._count("kept")
                return
            self._put(reader, [replace(one, created_at=known.created_at) for one in drafts])
            self._count("updated")
        if is_deleted and isinstance(reader, Transaction):
            reader.delete(last.kind, last.key)

    def _put(self, reader: Reader, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if not isinstance(reader, Transaction):
                return
            if draft.kind == FILE:
                assert self._files is not None
                self._files.place(reader, draft)
            else:
                reader.put(draft)

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


def _is_same(draft: Draft, known: Entry) -> bool:
    if draft.kind == FILE:
        return bool(draft.value == known.value)
    is_same_text = _said(draft.value) == _said(known.value) is not None
    return is_same_text or equal(draft.value, known.value)


def _said(content: JSON) -> str | None:
    """The text of a record, whether it has other fields or not."""
    if isinstance(content, Mapping):
        content = content.get("text")
    return content if isinstance(content, str) else None


def _says_more(draft: Draft, known: Entry) -> bool:
    """Whether another file of the same source tells more about a record that an import has written: tags, fields."""
    if draft.kind != RECORD or _mark_of(known.actor) is None:
        return False
    tags = set(cast("Sequence[str]", draft.attributes["tags"])) - set(cast("Sequence[str]", known.attributes["tags"]))
    return bool(tags) or (isinstance(draft.value, Mapping) and isinstance(known.value, str))


def _is_long(content: JSON, limits: Limits) -> bool:
    most = limits.record_characters
    return len(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)) > most - 2


def _dated(draft: Draft, created_at: int | None, updated_at: int | None) -> Draft:
    created = updated_at if created_at is None else created_at
    updated = created if updated_at is None else updated_at
    return replace(draft, created_at=created, updated_at=updated)


@dataclass(slots=True)
class _Thread:
    chat: Chat
    draft: Draft
    messages: list[Incoming] = field(default_factory=list)


class _Threads:
    """A conversation with its branches."""

    def __init__(self, importer: Importer, conversation: Conversation) -> None:
        self._options = importer.options
        self._conversation = conversation
        self._threads: list[_Thread] = []
        self._unfit: list[Problem | LeftOut] = []
        self._owner = ""
        self.counts: dict[str, int] = {}
        self.problems: list[Problem | LeftOut] = []

    @property
    def names(self) -> Sequence[str]:
        return [self._conversation.name]

    def prepare(self, handle: Handle, limits: Limits) -> None:
        self._owner = handle.namespace[-1]
        screen = None if handle.rules.screen is None else handle.rules.screened
        for chat in self._conversation.chats:
            id = check_id("thread id", chat.id)
            title = self._title(chat)
            metadata = check_object("metadata", chat.metadata, limits.metadata_bytes)
            owner = self._owner if chat.resource is None else check_id("resource", chat.resource)
            draft = thread_draft(id, owner, title, metadata)
            thread = _Thread(chat, draft if screen is None else screen(draft))
            seen: set[str] = set()
            for number, message in enumerate(chat.messages, 1):
                given = {"id": made_id(id, str(number)), **message}
                at = given.pop("createdAt", None)
                try:
                    found = incoming([given], id, limits)
                    if found and found[0].id not in seen:
                        seen.add(found[0].id)
                        thread.messages.append(replace(found[0].prepared(screen), created_at=at))
                    elif not found:
                        self._unfit.append(LeftOut(f"message {number} of {id}", "system messages are not stored"))
                except InvalidInput as error:
                    self._unfit.append(Problem(f"message {number} of thread {id}", str(error)))
            self._threads.append(thread)

    def _title(self, chat: Chat) -> str | None:
        """The title; if it cannot be stored, the thread is imported without it."""
        try:
            return check_title((chat.title or "")[:_TITLE_CHARACTERS] or None)
        except InvalidInput as error:
            self._unfit.append(Problem(f"the title of thread {chat.id}", str(error)))
            return None

    def run(self, reader: Reader) -> None:
        self.counts = dict.fromkeys(("threads", "messages", "updated", "kept", "differing", "deleted_here"), 0)
        self.problems = list(self._unfit)
        ids = {thread.draft.key for thread in self._threads}
        for thread in self._threads:
            self._one(reader, thread, ids)
        self.counts = {name: count for name, count in self.counts.items() if count}

    def _one(self, reader: Reader, thread: _Thread, siblings: set[str]) -> None:
        id = thread.draft.key
        known = reader.get(THREAD, id)
        if known is None and not self._options.again and reader.was_used(THREAD, id, id):
            self.counts["deleted_here"] += 1
            return
        owner = cast("str", (thread.draft if known is None else known).attributes["resourceId"])
        stored = reader.get_all(MESSAGE, [message.id for message in thread.messages], by="identity")
        times = _times(thread, [None if entry is None else entry.created_at for entry in stored])
        if known is None:
            self._put_thread(reader, thread, times)
        numbering = Numbering(reader, id) if isinstance(reader, Transaction) else None
        is_any_new = False
        for message, entry, at in zip(thread.messages, stored, times, strict=True):
            new = self._new_message(reader, message, entry, id, siblings, is_thread_known=known is not None)
            if new is None:
                continue
            is_any_new = True
            self.counts["messages"] += 1
            if isinstance(reader, Transaction) and numbering is not None:
                draft = replace(new.placed(numbering.key(at), at, owner), updated_at=at)
                reader.put(draft, is_fresh=True)
        if known is not None:
            self._update_thread(reader, thread, known, times, is_any_new=is_any_new)

    def _put_thread(self, reader: Reader, thread: _Thread, times: Sequence[int]) -> None:
        self.counts["threads"] += 1
        if isinstance(reader, Transaction):
            chat = thread.chat
            created = _first(chat.created_at, *times[:1], chat.updated_at, 0)
            updated = max(_first(chat.updated_at, created), *times[-1:], created)
            reader.put(replace(thread.draft, created_at=created, updated_at=updated))

    def _update_thread(
        self, reader: Reader, thread: _Thread, known: Entry, times: Sequence[int], *, is_any_new: bool
    ) -> None:
        """A later change in the source, or a new message, gives the thread its title and time."""
        updated = max(_first(thread.chat.updated_at, 0), *(times[-1:] or [0]))
        is_same = equal(known.attributes, {**thread.draft.attributes, "resourceId": known.attributes["resourceId"]})
        is_changed = updated > known.updated_at and (is_any_new or not is_same)
        self.counts["updated" if is_changed else "kept"] += 1
        self.counts["differing"] += not is_same and not is_changed
        if is_changed and isinstance(reader, Transaction):
            attributes = {**thread.draft.attributes, "resourceId": known.attributes["resourceId"]}
            reader.put(replace(thread.draft, attributes=attributes, updated_at=updated))

    def _new_message(
        self,
        reader: Reader,
        message: Incoming,
        known: Entry | None,
        thread_id: str,
        siblings: set[str],
        *,
        is_thread_known: bool,
    ) -> Incoming | None:
        """The message to add; None if it is here already. If another thread has its id, it gets one of its own."""
        if known is not None and thread_of_key(known.key) not in siblings:
            message = replace(message, id=f"{message.id}@{made_id(thread_id)[:8]}")
            message = replace(message, draft=replace(message.draft, identity=message.id))
            known = reader.find(MESSAGE, message.id)
        if known is not None:
            self.counts["kept"] += 1
            self.counts["differing"] += not equal(known.value, message.draft.value)
            return None
        if is_thread_known and not self._options.again and reader.last_key(MESSAGE, message.id) is not None:
            self.counts["deleted_here"] += 1
            return None
        return message


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _times(thread: _Thread, stored: Sequence[int | None]) -> list[int]:
    """The times of the messages, never going back: the order of the source counts more than its clocks."""
    chat = thread.chat
    given = [message.created_at for message in thread.messages]
    earliest = min((at for at in given if at is not None), default=None)
    last = _first(chat.created_at, earliest, chat.updated_at, 0)
    if earliest is not None:
        last = min(last, earliest)
    times = []
    for at, known in zip(given, stored, strict=True):
        last = known if known is not None and known >= last else max(last, _first(at, last))
        times.append(last)
    return times


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


def undo_import(space: Any, first: int, last: int) -> Undone:
    """Undo the commits of one import, the last one first. Commits of others between them stay."""
    undoable = cast("Undoable", space)
    numbers = {change.commit for change in changes_of_import(undoable, first, last)}
    conflicts: list[str] = []
    count = 0
    for number in sorted(numbers, reverse=True):
        try:
            undoable.undo(number)
            count += 1
        except (Conflict, NotFound) as error:
            conflicts.append(f"commit {number}: {error}")
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
            found = _mark_of(change.actor)
            if mark is None and change.commit == first:
                mark = found
            if mark is not None and found == mark and change.commit <= last:
                yield change
        after = page[-1].commit
        if mark is None:
            break
    if mark is None:
        raise NotFound(f"commit {first} is not the first one of an import; the import has printed its commits")


def _mark_of(actor: str | None) -> str | None:
    return None if actor is None or _IMPORT not in actor else actor.rpartition(_IMPORT)[2]


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
