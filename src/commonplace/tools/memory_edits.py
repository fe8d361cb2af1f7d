"""What every memory store shares: its error, its paths, and the edits of a text. Your own store may use them too."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from commonplace.checks import Limits, check_text
from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput, InvalidPath, TooLarge
from commonplace.space.names import ROOT, normalise, with_line

DEFAULT_ROOT = "/memories"
MAX_FILE_BYTES = 10_000_000
MAX_FILE_LINES = 999_999
_MAX_PLACES = 1_000
_SHOWN_CHARACTERS = 200

Reason = Literal[
    "absent",  # the text to replace is not in the file
    "already_exists",
    "bad_line",  # `count` is the number of lines in the file
    "empty_old",  # the text to replace is empty
    "escape",  # the path leads out of the root
    "into_itself",
    "invalid_path",
    "is_directory",
    "not_a_directory",  # a part of the path is a file
    "not_found",
    "not_text",
    "not_unique",  # `lines` are the lines with the text to replace
    "other",
    "outside",  # the path does not begin with the root
    "root",  # the root itself can be neither deleted nor renamed
    "symlink",
    "too_large",  # `count` is the number of bytes allowed
    "too_many_lines",  # `count` is the number of lines allowed
]


class MemoryException(CommonplaceError):
    """A memory store refused; nothing was changed.

    Your own store may raise it with only a message, which the model reads. With a `reason`, the tool uses the wording
    that the model knows.
    """

    def __init__(
        self, message: str, reason: Reason = "other", *, lines: tuple[int, ...] = (), count: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.lines = lines
        self.count = count


# Paths


class MemoryRoot:
    """The directory that a memory's paths begin with. The inner path of a store begins with `/` instead."""

    def __init__(self, root: str = DEFAULT_ROOT, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        try:
            self.path = normalise(root, self._limits)
        except InvalidInput as error:
            raise ConfigurationError(f"the memory's root is not a usable path: {error}") from error
        if "\\" in root or not root.startswith("/"):
            raise ConfigurationError(f"the memory's root must be a path like {DEFAULT_ROOT}, not {root!r}")
        self._prefix = "" if self.path == ROOT else self.path

    def check(self, path: str) -> str:
        """The path in normal form, including the root; raises MemoryException if it is invalid."""
        return self.outer(self.inner(path))

    def inner(self, path: str) -> str:
        """The path below the root, which itself is `/`; raises MemoryException if it is invalid."""
        try:
            check_text("path", path, max_bytes=4 * self._limits.path_bytes)
            text = unicodedata.normalize("NFC", path)
            below = text.removeprefix(self._prefix)
            if not text.startswith(self._prefix + "/") and text != self._prefix:
                raise MemoryException(f"{shown(path)} does not begin with {self.path}", "outside")
            inner = normalise(below, self._limits)
        except InvalidPath as error:
            raise MemoryException(str(error), "escape" if error.is_traversal else "invalid_path") from error
        except InvalidInput as error:
            raise MemoryException(str(error), "invalid_path") from error
        if "\\" in text:
            raise MemoryException("a path has no backslashes; write /", "invalid_path")
        return inner

    def outer(self, inner: str) -> str:
        """The path including the root."""
        return self.path if inner == ROOT else self._prefix + inner


def shown(path: str) -> str:
    """A refused path that is safe to print: short, with unprintable characters escaped."""
    cut = path[:_SHOWN_CHARACTERS]
    safe = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)
    return safe + ("…" if len(path) > len(cut) else "")


# Edits of a text


@dataclass(frozen=True, slots=True)
class MemoryEdit:
    """A file's text after a replacement, and the line, counted from 0, where the replacement begins."""

    content: str
    line: int


def replace_once(text: str, old: str, new: str) -> MemoryEdit:
    """Replace a text that occurs exactly once; it may span lines."""
    if not old:
        raise MemoryException("the text to replace must not be empty", "empty_old")
    count = text.count(old)
    if not count:
        raise MemoryException("the text to replace is not in the file", "absent")
    if count > 1:
        lines = _places_of(text, old)
        raise MemoryException(f"the text to replace occurs {count} times in the file", "not_unique", lines=lines)
    before, _, after = text.partition(old)
    return MemoryEdit(before + new + after, before.count("\n"))


def insert_lines(text: str, line: int, inserted: str) -> str:
    """Insert after a line; 0 is the top. Whether the file ends with a newline does not change."""
    _check_line(text, line)
    if not text:
        return inserted.removesuffix("\n")
    return with_line(text, line, inserted.removesuffix("\n"))


def insert_line_and_end(text: str, line: int, inserted: str) -> str:
    """Insert as Anthropic's own tool does: it strips newlines from the end of the text and ends the file with one."""
    _check_line(text, line)
    joined = with_line(text.removesuffix("\n"), line, inserted.rstrip("\n"))
    return joined if joined.endswith("\n") else joined + "\n"


def select_lines(text: str, view_range: Sequence[int] | None) -> str:
    """The lines from the first to the last of a range, both counted from 1; -1 is the end."""
    return text if view_range is None else "\n".join(lines_of(text, view_range))


def lines_of(text: str, view_range: Sequence[int] | None = None) -> list[str]:
    """The lines of a text, or of a range of it. After a trailing newline there is one more line, which is empty."""
    lines = text.split("\n")
    if view_range is None:
        return lines
    first, last = view_range
    return lines[max(1, first) - 1 : None if last == -1 else last]


def check_size(path: str, text: str, max_bytes: int, max_lines: int = MAX_FILE_LINES) -> None:
    """Raise for a text that cannot be stored or is too long for a file."""
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
        raise MemoryException(
            f"{path} would have more than {max_lines:,} lines; split it", "too_many_lines", count=max_lines
        )


def line_count(text: str) -> int:
    """How many lines there are. A trailing newline does not begin another one."""
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def _check_line(text: str, line: int) -> None:
    count = line_count(text)
    if not 0 <= line <= count:
        raise MemoryException(f"line {line} is not in the file, which has {count}", "bad_line", count=count)


def _places_of(text: str, wanted: str) -> tuple[int, ...]:
    """The line of each occurrence, up to a limit. Overlapping ones count, as they do in Anthropic's own tool."""
    lines: list[int] = []
    line, counted = 1, 0
    start = text.find(wanted)
    while start >= 0 and len(lines) < _MAX_PLACES:
        line += text.count("\n", counted, start)
        counted = start
        lines.append(line)
        start = text.find(wanted, start + 1)
    return tuple(lines)


class AtomicEdits(ABC):
    """The edits of a store that can read and write a file in one atomic step."""

    @abstractmethod
    def _edit_and_read(self, path: str, change: Callable[[str], str]) -> str:
        """Replace a file's text by `change` of it; the stored text, in which secrets may be masked."""

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        self._edit_and_read(path, change)

    def replace(self, path: str, old_str: str, new_str: str) -> MemoryEdit:
        edits: list[MemoryEdit] = []

        def change(text: str) -> str:
            edits.append(replace_once(text, old_str, new_str))
            return edits[-1].content

        stored = self._edit_and_read(path, change)
        return MemoryEdit(stored, edits[-1].line)

    def insert(self, path: str, line: int, text: str) -> None:
        self.edit(path, lambda old: insert_lines(old, line, text))
