"""A memory in a plain folder on disk: text files that people and other programs can read, such as Claude's own."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from commonplace.checks import local_path
from commonplace.errors import ConfigurationError, InvalidInput, Unavailable
from commonplace.tools.folder_files import (
    check_move,
    check_new,
    entry_status,
    list_directory,
    open_directory,
    read_text,
    segments_of,
    unnameable,
    write_text,
)
from commonplace.tools.memory_edits import (
    MAX_FILE_BYTES,
    EditsByReading,
    check_size,
    select_lines,
)
from commonplace.tools.memory_error import MemoryException, Reason
from commonplace.tools.memory_paths import DEFAULT_ROOT, MemoryRoot
from commonplace.tools.memory_store import MemoryEntry


class FolderMemoryStore(EditsByReading):
    """A folder as a memory. Several threads and processes may use it at once; each edit is one step.

    The folder is made, with mode 0700, where there is none; files get 0600. Nothing outside of it is read or written:
    symbolic links in it are refused, wherever in a path they are.
    """

    def __init__(self, folder: str | Path, root: str = DEFAULT_ROOT, max_file_size: int = MAX_FILE_BYTES) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise ConfigurationError("a folder as memory needs a POSIX system; use a space instead")
        self._root = MemoryRoot(root)
        self._max_bytes = max_file_size
        self._folder = _checked(folder)
        _make_folder(self._folder)

    @property
    def root(self) -> str:
        return self._root.path

    @property
    def folder(self) -> Path:
        return self._folder

    def list(self, path: str) -> list[MemoryEntry]:
        self.metadata(path)  # below a file nothing exists, in a listing too
        inner = self._root.inner(path)
        prefix = self._root.outer(inner).rstrip("/")
        with self._opened() as top, open_directory(top, self._segments(path)) as directory:
            return [_entry(f"{prefix}/{name}", status) for name, status in list_directory(directory, inner)]

    def left_out(self, path: str) -> Sequence[str]:
        """The names in a directory that are no part of the memory: links, special files, what no path can name."""
        with self._opened() as top, open_directory(top, self._segments(path)) as directory:
            return unnameable(directory, self._root.inner(path))

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; one that exists is fine."""
        with self._opened(to_write=True) as top, open_directory(top, self._segments(path), make=True):
            pass

    def read(self, path: str, view_range: tuple[int, int] | None = None) -> str:
        with self._opened() as top, self._parent(top, path, "is_directory") as (directory, name):
            return select_lines(read_text(directory, name, self._max_bytes), view_range)

    def create(self, path: str, content: str) -> None:
        self._below_root(path, "already_exists")
        check_size(path, content, self._max_bytes)
        with (
            self._opened(to_write=True) as top,
            self._parent(top, path, "already_exists", make=True) as (directory, name),
        ):
            status = entry_status(directory, name)
            if status is not None:
                reason: Reason = "is_directory" if stat.S_ISDIR(status.st_mode) else "already_exists"
                raise MemoryException(f"{path} exists already", reason)
            check_new(directory, name)
            write_text(directory, name, content, is_new=True)

    def _edit_and_read(self, path: str, change: Callable[[str], str]) -> str:
        with self._opened(to_write=True) as top, self._parent(top, path, "is_directory") as (directory, name):
            new = change(read_text(directory, name, self._max_bytes))
            check_size(path, new, self._max_bytes)
            write_text(directory, name, new, is_new=False)
            return new

    def delete(self, path: str) -> None:
        with self._opened(to_write=True) as top, self._parent(top, path, "root") as (directory, name):
            status = entry_status(directory, name)
            if status is None:
                raise MemoryException(f"{path} does not exist", "not_found")
            _remove(directory, name, status)

    def rename(self, old_path: str, new_path: str) -> None:
        old, new = self._below_root(old_path, "root"), self._below_root(new_path, "already_exists")
        with self._opened(to_write=True) as top:
            if _is_taken(top, new):
                raise MemoryException(f"{new_path} exists already", "already_exists")
            with self._parent(top, old_path, "root") as (source, name):
                status = entry_status(source, name)
                if status is None:
                    raise MemoryException(f"{old_path} does not exist", "not_found")
                if new[: len(old)] == old:
                    raise MemoryException(f"{old_path} cannot be moved into itself", "into_itself")
                if stat.S_ISDIR(status.st_mode):
                    with open_directory(source, (name,)) as moved:
                        check_move(moved, self._root.inner(old_path), self._root.inner(new_path))
                with self._parent(top, new_path, "already_exists", make=True) as (target, new_name):
                    check_new(target, new_name)
                    os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
                    os.fsync(target)
                os.fsync(source)

    def exists(self, path: str) -> bool:
        try:
            self.metadata(path)
        except MemoryException as error:
            if error.reason != "not_found":
                raise
            return False
        return True

    def metadata(self, path: str) -> MemoryEntry:
        if not self._segments(path):
            return MemoryEntry(self.root, is_directory=True)
        with self._opened() as top, self._parent(top, path, "root") as (directory, name):
            status = entry_status(directory, name)
            if status is None:
                raise MemoryException(f"{path} does not exist", "not_found")
            return _entry(self._root.check(path), status)

    def clear(self) -> None:
        with self._opened(to_write=True) as top:
            for name in os.listdir(top):
                _remove(top, name, os.stat(name, dir_fd=top, follow_symlinks=False))

    def _segments(self, path: str) -> tuple[str, ...]:
        return segments_of(self._root.inner(path))

    def _below_root(self, path: str, reason: Reason) -> tuple[str, ...]:
        segments = self._segments(path)
        if not segments:
            raise MemoryException(f"{path} is the root", reason)
        return segments

    @contextmanager
    def _opened(self, *, to_write: bool = False) -> Iterator[int]:
        """The folder, opened; one writer at a time, over all threads and processes."""
        import fcntl

        try:
            top = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"the memory's folder cannot be opened: {error.strerror}") from error
        try:
            if to_write:
                fcntl.flock(top, fcntl.LOCK_EX)
            yield top
        except OSError as error:
            raise Unavailable(f"the memory's folder cannot be used: {error.strerror}") from error
        finally:
            os.close(top)

    @contextmanager
    def _parent(self, top: int, path: str, root_reason: Reason, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that a path lies in, opened, and the name that it has there."""
        segments = self._below_root(path, root_reason)
        with ExitStack() as opened:
            try:
                directory = opened.enter_context(open_directory(top, segments[:-1], make=make))
            except MemoryException as error:
                if error.reason == "not_a_directory" and not make:
                    raise MemoryException(f"{path} does not exist", "not_found") from error
                raise
            yield directory, segments[-1]


def _is_taken(top: int, segments: Sequence[str]) -> bool:
    try:
        with open_directory(top, segments[:-1]) as directory:
            return entry_status(directory, segments[-1]) is not None
    except MemoryException as error:
        if error.reason not in ("not_found", "not_a_directory"):
            raise
        return False


def _checked(folder: str | Path) -> Path:
    """The folder, where it may be a memory: `clear` deletes all that is in it."""
    try:
        path = local_path("the memory's folder", folder)
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from error
    if path.resolve() in (Path(path.anchor), Path.home().resolve()):
        raise ConfigurationError(f"{path} holds more than a memory; name a folder in it")
    return path


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it for its owner alone, whatever the umask; what exists stays as it is."""
    try:
        for part in reversed([folder, *folder.parents]):
            if not part.exists():
                part.mkdir(mode=0o700, exist_ok=True)
                part.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"the memory's folder {folder} cannot be made: {error.strerror}") from error
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file; name a folder for the memory")


def _remove(directory: int, name: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(name, dir_fd=directory)  # walks by descriptors as well
    else:
        os.unlink(name, dir_fd=directory)
    os.fsync(directory)


def _entry(path: str, status: os.stat_result) -> MemoryEntry:
    is_directory = stat.S_ISDIR(status.st_mode)
    changed = datetime.fromtimestamp(status.st_mtime, UTC)
    return MemoryEntry(path, is_directory, 0 if is_directory else status.st_size, changed)
