"""How a memory's text is edited: pure functions that every store shares, and that a store of your own may use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commonplace.checks import check_text
from commonplace.errors import InvalidInput, TooLarge
from commonplace.space.names import with_line
from commonplace.tools.memory_error import MemoryException

MAX_FILE_BYTES = 10_000_000
MAX_FILE_LINES = 999_999
_MAX_PLACES = 1_000


@dataclass(frozen=True, slots=True)
class MemoryEdit:
    """A file's text after a replacement, and the line, counted from 0, in which it began."""

    content: str
    line: int


def replace_once(text: str, old: str, new: str) -> MemoryEdit:
    """Replace a text that stands in exactly one place; it may span lines."""
    if not old:
        raise MemoryException("the text to replace must not be empty", "empty_old")
    count = text.count(old)
    if not count:
        raise MemoryException("the text to replace is not in the file", "absent")
    if count > 1:
        lines = _places_of(text, old)
        raise MemoryException(f"the text to replace stands {count} times in the file", "not_unique", lines=lines)
    before, _, after = text.partition(old)
    return MemoryEdit(before + new + after, before.count("\n"))


def insert_lines(text: str, line: int, inserted: str) -> str:
    """Insert after a line, 0 being the top. The file then ends as before: with a newline, or without one."""
    _check_line(text, line)
    if not text:
        return inserted.removesuffix("\n")
    return with_line(text, line, inserted.removesuffix("\n"))


def insert_line_and_end(text: str, line: int, inserted: str) -> str:
    """Insert as Anthropic's own tool does: without the newlines at the text's end, and the file then ends with one."""
    _check_line(text, line)
    joined = with_line(text.removesuffix("\n"), line, inserted.rstrip("\n"))
    return joined if joined.endswith("\n") else joined + "\n"


def select_lines(text: str, view_range: Sequence[int] | None) -> str:
    """The lines from the first to the last of a range, both counted from 1; -1 is the end."""
    return text if view_range is None else "\n".join(lines_of(text, view_range))


def lines_of(text: str, view_range: Sequence[int] | None = None) -> list[str]:
    """The lines of a text, or of a range of it; after a last newline there is one more, which is empty."""
    lines = text.split("\n")
    if view_range is None:
        return lines
    first, last = view_range
    return lines[max(1, first) - 1 : None if last == -1 else last]


def check_size(path: str, text: str, max_bytes: int, max_lines: int = MAX_FILE_LINES) -> None:
    """Refuse a text that no file can hold, or that is too long for one."""
    try:
        size = len(check_text("the text", text).encode())
    except TooLarge as error:
        raise MemoryException(str(error), "too_large", count=max_bytes) from error
    except InvalidInput as error:
        raise MemoryException(str(error)) from error
    if size > max_bytes:
        raise MemoryException(
            f"{path} would have {size:,} bytes; at most {max_bytes:,} are allowed", "too_large", count=max_bytes
        )
    if line_count(text) > max_lines:
        raise MemoryException(f"{path} would pass {max_lines:,} lines; split it", "too_many_lines", count=max_lines)


def line_count(text: str) -> int:
    """How many lines there are; a newline ends a line and begins none."""
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def _check_line(text: str, line: int) -> None:
    count = line_count(text)
    if not 0 <= line <= count:
        raise MemoryException(f"line {line} is not in the file, which has {count}", "bad_line", count=count)


def _places_of(text: str, wanted: str) -> tuple[int, ...]:
    """The line of each occurrence, overlapping ones included, as Anthropic's own tool counts them; the first many."""
    lines: list[int] = []
    line, counted = 1, 0
    start = text.find(wanted)
    while start >= 0 and len(lines) < _MAX_PLACES:
        line += text.count("\n", counted, start)
        counted = start
        lines.append(line)
        start = text.find(wanted, start + 1)
    return tuple(lines)


class EditsByReading(ABC):
    """The edits of a store that can read and write a file as one step."""

    @abstractmethod
    def _edit_and_read(self, path: str, change: Callable[[str], str]) -> str:
        """Put what `change` makes of a file's text in its place; the text that is kept, which may be a masked one."""

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        self._edit_and_read(path, change)

    def replace(self, path: str, old_str: str, new_str: str) -> MemoryEdit:
        edits: list[MemoryEdit] = []

        def change(text: str) -> str:
            edits.append(replace_once(text, old_str, new_str))
            return edits[-1].content

        kept = self._edit_and_read(path, change)
        return MemoryEdit(kept, edits[-1].line)

    def insert(self, path: str, line: int, text: str) -> None:
        self.edit(path, lambda old: insert_lines(old, line, text))
