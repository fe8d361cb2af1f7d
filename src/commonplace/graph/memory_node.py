"""A memory node, and the connector that shows it to a model.

A node has one tree of files for all threads, or one per thread, in a namespace that nothing else uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

from commonplace.book import Book
from commonplace.checks import Limits, Namespace, check_namespace
from commonplace.errors import InvalidInput, IsADirectory, NotADirectory, NotFound
from commonplace.space.files import FileInfo, Files
from commonplace.space.names import ROOT, normalise
from commonplace.space.space import Space

Message: TypeAlias = dict[str, Any]
"""A chat message in OpenAI's format."""

Scope = Literal["global", "perThread"]
Placement = Literal["after_system", "last_message"]
Content = Literal["tree", "full"]

PLACEMENTS = get_args(Placement)
CONTENTS = get_args(Content)
MAX_CHARS = 20_000
DEFAULT_MAX_CHARS = 4_000
_SCOPES: dict[str, Scope] = {"global": "global", "perThread": "perThread", "thread": "perThread"}
_HEADING = "Memory"
_INDENT = "  "
_MAX_BYTES_A_CHARACTER = 4


class MemoryNode:
    """A graph's memory.

    Its tree is in namespace + ("memory", node id), the tree of a thread in that + ("thread", thread id). `bind` sets
    the namespace of the tree itself, such as one that another interface already uses.
    """

    def __init__(
        self,
        book: Book,
        node_id: str,
        namespace: Sequence[str] = ("user", "default"),
        *,
        scope: str = "global",
        bind: Sequence[str] | None = None,
    ) -> None:
        if scope not in _SCOPES:
            raise InvalidInput(f"unknown scope {scope!r}; use global or perThread")
        self._book = book
        self.node_id = node_id
        self.scope: Scope = _SCOPES[scope]
        self.namespace: Namespace = check_namespace((*namespace, "memory", node_id) if bind is None else tuple(bind))
        if self.needs_thread:
            check_namespace((*self.namespace, "thread", "id"))  # too many labels raise now, not in a run

    @property
    def needs_thread(self) -> bool:
        return self.scope == "perThread"

    @property
    def limits(self) -> Limits:
        return self._book.limits

    def space(self, thread_id: str | None = None) -> Space:
        """The space of the tree; for a perThread memory, that of the thread."""
        if not self.needs_thread:
            return self.shared_space()
        if not thread_id:
            raise InvalidInput("threadId is required for perThread scope")
        return self._book.space(*thread_namespace(self.namespace, thread_id), actor=self._actor)

    def shared_space(self) -> Space:
        """The space for all threads. The connector of a perThread memory shows it while a thread has no files."""
        return self._book.space(*self.namespace, actor=self._actor)

    @property
    def _actor(self) -> str:
        return f"memory node {self.node_id}"

    def tree(self, thread_id: str | None = None) -> Files:
        """The files of the tree."""
        return self.space(thread_id).files

    def stat(self, path: str, *, thread_id: str | None = None) -> FileInfo:
        """A file or a directory, without its text; raises NotFound."""
        return self.tree(thread_id).stat(path)

    def ensure_dir(self, path: str, *, thread_id: str | None = None) -> FileInfo:
        """Create a directory and its parents; it may exist already, as the root always does."""
        files = self.tree(thread_id)
        return files.stat(ROOT) if normalise(path, self.limits) == ROOT else files.make_directory(path)

    def get_all(self, *, thread_id: str | None = None) -> dict[str, str]:
        """Every file's text by its path, sorted."""
        files = self.tree(thread_id)
        texts = {}
        for item in files.walk():
            if item.kind == "file":
                try:
                    texts[item.path] = files.read(item.path)
                except NotFound:
                    continue  # deleted since it was listed
        return dict(sorted(texts.items()))

    def dump(self, *, thread_id: str | None = None) -> dict[str, Any]:
        """The whole tree as plain data: its node, scope, files with their texts, and directories."""
        directories = [item.path for item in self.tree(thread_id).walk() if item.kind == "directory"]
        thread = {"threadId": thread_id} if self.needs_thread else {}
        data = self.get_all(thread_id=thread_id)
        return {"nodeId": self.node_id, "scope": self.scope, **thread, "data": data, "dirs": sorted(directories)}


def thread_namespace(namespace: Namespace, thread_id: object) -> Namespace:
    """The namespace of a thread. The id is used unchanged; one that cannot be a label raises."""
    try:
        return check_namespace((*namespace, "thread", thread_id))
    except InvalidInput as error:
        raise InvalidInput(f"thread id {str(thread_id)[:40]!r} cannot be used: {error}") from error


# The connector


class MemoryConnector:
    """Shows a memory to a model as one system message of at most `max_chars` characters.

    `tree` lists files and directories. `full` shows every file's text, and falls back to the tree if that is too long.
    While a thread's own memory is empty, the shared one is shown.
    """

    def __init__(
        self,
        memory: MemoryNode,
        *,
        placement: str = "after_system",
        content: str = "tree",
        max_chars: int = DEFAULT_MAX_CHARS,
    ) -> None:
        if placement not in PLACEMENTS:
            raise InvalidInput(f"unknown placement {placement!r}; use {' or '.join(PLACEMENTS)}")
        if content not in CONTENTS:
            raise InvalidInput(f"unknown content {content!r}; use {' or '.join(CONTENTS)}")
        if isinstance(max_chars, bool) or not isinstance(max_chars, int) or not 1 <= max_chars <= MAX_CHARS:
            raise InvalidInput(f"maxChars must be a whole number from 1 to {MAX_CHARS}, not {max_chars!r}")
        self.memory = memory
        self.placement = cast("Placement", placement)
        self.content = cast("Content", content)
        self.max_chars = max_chars

    def render(self, thread_id: str | None = None) -> str | None:
        """The text of the message; None if there is nothing to show."""
        space = self._space(thread_id)
        if self.content == "full":
            text = full_text(space.files, self.max_chars)
            if text is not None:
                return text or None
        return tree_text(space, self.max_chars)

    def place(self, messages: Sequence[Message], thread_id: str | None = None) -> list[Message]:
        """A copy of the messages with the memory inserted."""
        text = self.render(thread_id)
        placed = list(messages)
        if text is not None:
            has_system = bool(placed) and placed[0].get("role") in ("system", "developer")
            place = len(placed) if self.placement == "last_message" else int(has_system)
            placed.insert(place, {"role": "system", "content": text})
        return placed

    def _space(self, thread_id: str | None) -> Space:
        if self.memory.needs_thread and thread_id:
            own = self.memory.space(thread_id)
            if own.files.list(ROOT):
                return own
        return self.memory.shared_space()


def full_text(files: Files, max_chars: int) -> str | None:
    """One line per file, its text as a JSON string; empty if there are no files, None if it is too long."""
    found: list[FileInfo] = []
    waiting = [ROOT]
    # A character has at most four bytes, so the sizes alone show when most trees cannot fit.
    least = len(_HEADING)
    while waiting:
        for item in _list(files, waiting.pop()):
            if item.kind == "directory":
                waiting.append(item.path)
            else:
                found.append(item)
                least += len(f'\n{item.path}: ""') + item.size // _MAX_BYTES_A_CHARACTER
        if least > max_chars:
            return None
    lines = [_HEADING]
    for item in sorted(found, key=lambda item: item.path):
        try:
            lines.append(f"{item.path}: {json.dumps(files.read(item.path), ensure_ascii=False)}")
        except (NotFound, IsADirectory):
            continue  # changed since it was listed
    text = "\n".join(lines)
    if len(text) > max_chars:
        return None
    return text if len(lines) > 1 else ""


def tree_text(space: Space, max_chars: int) -> str:
    """Directories and files, as many complete levels as fit. A last line says how many entries were left out."""
    children: dict[str, list[FileInfo]] = {}
    total = _count(space)
    length, listed = len(f"{_HEADING}\n{ROOT}"), 0
    fitting = fitting_count = 0
    level, depth = [ROOT], 0
    while level:
        below: dict[str, list[FileInfo]] = {}
        for path in level:
            below[path] = _list(space.files, path)
            length += sum(len(f"\n{_INDENT * depth}{_line(item)}") for item in below[path])
            if length > max_chars:
                break  # this level does not fit; do not list the rest of it
        if length > max_chars:
            break
        items = [item for listing in below.values() for item in listing]
        children |= below
        listed, depth = listed + len(items), depth + 1
        # The whole tree may fit even if a part of it plus the last line does not.
        if length + len(_left_out(total - listed)) <= max_chars:
            fitting, fitting_count = depth, listed
        level = [item.path for item in items if item.kind == "directory"]
    if not fitting:
        return _first_lines(_list(space.files, ROOT), total, max_chars)
    return "\n".join([_HEADING, ROOT, *_lines(children, ROOT, fitting)]) + _left_out(total - fitting_count)


def _lines(children: Mapping[str, Sequence[FileInfo]], path: str, levels: int, indent: str = "") -> list[str]:
    lines = []
    for item in children.get(path, ()) if levels else ():
        lines.append(indent + _line(item))
        lines += _lines(children, item.path, levels - 1, indent + _INDENT)
    return lines


def _first_lines(items: Sequence[FileInfo], total: int, max_chars: int) -> str:
    """As much of the first level as fits."""
    text = f"{_HEADING}\n{ROOT}"
    for number, item in enumerate(items):
        longer = f"{text}\n{_line(item)}"
        if len(longer) + len(_left_out(total - number - 1)) > max_chars:
            return _fit(text, _left_out(total - number), max_chars)
        text = longer
    return _fit(text, _left_out(total - len(items)), max_chars)


def _line(item: FileInfo) -> str:
    return f"[{'D' if item.kind == 'directory' else 'F'}] {item.name}"


def _left_out(count: int) -> str:
    if count <= 0:
        return ""
    return f"\n… {count} more {'entry' if count == 1 else 'entries'}"


def _fit(text: str, last_line: str, max_chars: int) -> str:
    """The text with the last line if it fits completely; a truncated number would be wrong."""
    return next((long for long in (text + last_line, text + "\n…") if len(long) <= max_chars), text[:max_chars])


def _count(space: Space) -> int:
    entries = space.stats().entries
    return entries.get("file", 0) + entries.get("directory", 0)


def _list(files: Files, path: str) -> list[FileInfo]:
    try:
        return files.list(path)
    except (NotFound, NotADirectory):
        return []  # changed since its parent was listed
