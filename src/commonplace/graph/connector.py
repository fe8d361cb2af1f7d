"""The memory connector: what a model is shown of a memory before each call, and where in the messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from commonplace.errors import InvalidInput, IsADirectory, NotADirectory, NotFound
from commonplace.graph.memory import MemoryNode
from commonplace.space.files import FileInfo, Files
from commonplace.space.names import ROOT
from commonplace.space.space import Space

Message: TypeAlias = dict[str, Any]
"""A chat message in OpenAI's shape."""

Placement = Literal["after_system", "last_message"]
Content = Literal["tree", "full"]

PLACEMENTS = ("after_system", "last_message")
CONTENTS = ("tree", "full")
MAX_CHARS = 20_000
DEFAULT_MAX_CHARS = 4_000

_HEADING = "Memory"
_INDENT = "  "
_MAX_BYTES_A_CHARACTER = 4


class MemoryConnector:
    """Shows a memory to a model as one system message of at most `max_chars` characters.

    `tree` names files and directories, `full` gives every file's text and falls back to the tree when that is too
    long. While a thread's own memory is empty, the shared one is shown.
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
        """The text of the message; None where there is nothing to show."""
        space = self._space(thread_id)
        if self.content == "full":
            text = full_text(space.files, self.max_chars)
            if text is not None:
                return text or None
        return tree_text(space, self.max_chars)

    def place(self, messages: Sequence[Message], thread_id: str | None = None) -> list[Message]:
        """The messages with the memory among them; those given stay as they are."""
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
    """One line a file, its text as a JSON string; empty where there are no files, None where it is too long."""
    found: list[FileInfo] = []
    waiting = [ROOT]
    # A text has at least a quarter as many characters as bytes, so sizes alone tell most of what cannot fit.
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
    """The directories and files, as many whole levels as fit; a last line says how many entries were left out."""
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
                break  # a level that does not fit is not listed to its end
        if length > max_chars:
            break
        items = [item for listing in below.values() for item in listing]
        children |= below
        listed, depth = listed + len(items), depth + 1
        # The whole tree may fit where a part of it and the line for the rest does not.
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
    """With the last line where it fits whole: half a number would be a wrong one."""
    return next((long for long in (text + last_line, text + "\n…") if len(long) <= max_chars), text[:max_chars])


def _count(space: Space) -> int:
    entries = space.stats().entries
    return entries.get("file", 0) + entries.get("directory", 0)


def _list(files: Files, path: str) -> list[FileInfo]:
    try:
        return files.list(path)
    except (NotFound, NotADirectory):
        return []  # changed since its parent was listed
