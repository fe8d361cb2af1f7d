"""Memory stores: the protocol that Claude's memory tool needs of a backend, and the backends on our spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from commonplace.checks import Limits
from commonplace.errors import AlreadyExists, InvalidInput, InvalidPath, IsADirectory, NotADirectory, NotFound
from commonplace.space.files import FileInfo
from commonplace.space.names import FILE, ROOT
from commonplace.space.space import Space
from commonplace.tools.memory_edits import (
    DEFAULT_ROOT,
    MAX_FILE_BYTES,
    AtomicEdits,
    MemoryEdit,
    MemoryException,
    MemoryRoot,
    Reason,
    check_size,
    select_lines,
)

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "EditableMemoryStore",
    "InMemoryMemoryStore",
    "MemoryEdit",
    "MemoryEntry",
    "MemoryException",
    "MemoryStore",
    "SpaceMemoryStore",
]


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A file or a directory of a memory, without its text. `path` includes the root."""

    path: str
    is_directory: bool
    size: int = 0
    updated_at: datetime | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class MemoryStore(Protocol):
    """What your own backend implements. A method that refuses raises MemoryException.

    Paths include the root. The tool passes only checked paths in normal form. Several threads may call at once.
    """

    def list(self, path: str) -> Sequence[MemoryEntry]:
        """The direct children of a directory."""

    def read(self, path: str, view_range: tuple[int, int] | None = None) -> str:
        """A file's text, or a range of its lines; `select_lines` helps."""

    def create(self, path: str, content: str) -> None:
        """Create a file and its parent directories; raises if the file exists."""

    def replace(self, path: str, old_str: str, new_str: str) -> MemoryEdit:
        """Replace a text that occurs exactly once; `replace_once` helps. Returns the stored text."""

    def insert(self, path: str, line: int, text: str) -> None:
        """Insert after a line; 0 is the top. `insert_lines` helps."""

    def delete(self, path: str) -> None:
        """Delete a file, or a directory and everything in it."""

    def rename(self, old_path: str, new_path: str) -> None:
        """Move a file or a directory to an unused path, and create its parent directories."""

    def exists(self, path: str) -> bool:
        """Whether the path is a file or a directory."""

    def metadata(self, path: str) -> MemoryEntry:
        """The file or the directory at a path."""

    def clear(self) -> None:
        """Delete everything below the root."""


@runtime_checkable
class EditableMemoryStore(Protocol):
    """A memory store that can also read and write a file in one atomic step."""

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        """Replace a file's text by `change` of it. No other write comes in between."""


class SpaceMemoryStore(AtomicEdits):
    """The files of a space as a memory: durable, searchable, with history and undo. The caller closes the book."""

    def __init__(self, space: Space, root: str = DEFAULT_ROOT) -> None:
        self._space = space
        self._files = space.files
        self._limits = space.limits
        self._root = MemoryRoot(root, self._limits)

    @property
    def root(self) -> str:
        return self._root.path

    def list(self, path: str) -> list[MemoryEntry]:
        with _refusals():
            return sorted(map(self._entry, self._files.list(self._root.inner(path))), key=lambda entry: entry.path)

    def read(self, path: str, view_range: tuple[int, int] | None = None) -> str:
        with _refusals():
            return select_lines(self._files.read(self._root.inner(path)), view_range)

    def create(self, path: str, content: str) -> None:
        inner = self._below_root(path, "already_exists")
        self._check_size(path, content)
        with _refusals():
            self._files.write(inner, content, overwrite=False)

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        self._edit(path, change)

    def _edit_and_read(self, path: str, change: Callable[[str], str]) -> str:
        edited = self._edit(path, change)
        with _refusals():
            return cast("str", self._space.state(FILE, edited.path, edited.revision).value)

    def _edit(self, path: str, change: Callable[[str], str]) -> FileInfo:
        inner = self._below_root(path, "is_directory")

        def checked(old: str) -> str:
            new = change(old)
            self._check_size(path, new)
            return new

        with _refusals():
            return self._files.edit(inner, checked)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; it may exist already."""
        inner = self._root.inner(path)
        if inner != ROOT:
            with _refusals():
                self._files.make_directory(inner)

    def delete(self, path: str) -> None:
        inner = self._below_root(path, "root")
        with _refusals():
            removed = self._files.delete(inner)
        if not removed.files and not removed.directories:
            raise MemoryException(f"{path} does not exist", "not_found")

    def rename(self, old_path: str, new_path: str) -> None:
        old, new = self._below_root(old_path, "root"), self._below_root(new_path, "already_exists")
        with _refusals():
            if (new + "/").startswith(old + "/"):
                if self._files.exists(new):
                    raise MemoryException(f"{new_path} exists already", "already_exists")
                self._files.stat(old)
                raise MemoryException(f"{old_path} cannot be moved into itself", "into_itself")
            self._files.move(old, new)

    def exists(self, path: str) -> bool:
        return self._files.exists(self._root.inner(path))

    def metadata(self, path: str) -> MemoryEntry:
        with _refusals():
            return self._entry(self._files.stat(self._root.inner(path)))

    def clear(self) -> None:
        self._files.delete(ROOT)

    def _below_root(self, path: str, reason: Reason) -> str:
        inner = self._root.inner(path)
        if inner == ROOT:
            raise MemoryException(f"{path} is the root", reason)
        return inner

    def _check_size(self, path: str, text: str) -> None:
        check_size(path, text, self._limits.file_bytes, self._limits.file_lines)

    def _entry(self, info: FileInfo) -> MemoryEntry:
        return MemoryEntry(self._root.outer(info.path), info.kind == "directory", info.size, info.updated_at)


class InMemoryMemoryStore(SpaceMemoryStore):
    """A memory that is lost when the program ends, for tests and for embedding. Any thread may use it."""

    def __init__(self, root: str = DEFAULT_ROOT, max_file_size: int = MAX_FILE_BYTES) -> None:
        from commonplace.book import open_book

        self._book = open_book(":memory:", limits=Limits(file_bytes=max_file_size), background=False)
        super().__init__(self._book.space("memory"), root)

    def close(self) -> None:
        self._book.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (NotFound, "not_found"),
    (AlreadyExists, "already_exists"),
    (IsADirectory, "is_directory"),
    (NotADirectory, "not_a_directory"),
    (InvalidPath, "invalid_path"),
    (InvalidInput, "other"),
)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what a space refuses into MemoryException. Other errors pass through."""
    try:
        yield
    except tuple(kind for kind, _ in _REASONS) as error:
        reason = next(reason for kind, reason in _REASONS if isinstance(error, kind))
        raise MemoryException(str(error), reason) from error
