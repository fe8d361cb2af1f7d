"""A memory in a plain folder on disk: text files that people and other programs can read, such as Claude's own.

No symbolic link is followed. Each step opens one name inside a directory that is already open (`dir_fd`,
`O_NOFOLLOW`), so nothing can change between a check and its use. Needs a POSIX system.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from uuid import uuid4

from commonplace.checks import Limits, local_path
from commonplace.errors import ConfigurationError, InvalidInput, InvalidPath, NotFound, TooLarge, Unavailable
from commonplace.space.files import Files
from commonplace.space.names import check_new_name, normalise
from commonplace.space.space import Space
from commonplace.tools.memory_edits import (
    DEFAULT_ROOT,
    MAX_FILE_BYTES,
    AtomicEdits,
    MemoryException,
    MemoryRoot,
    Reason,
    check_size,
    select_lines,
)
from commonplace.tools.memory_store import MemoryEntry, SpaceMemoryStore

FILES_A_COMMIT = 200
BYTES_A_COMMIT = 4_000_000

# The prefix of temporary names. No memory path can have it.
_UNFINISHED = ".commonplace-unfinished-"

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _FLAGS
# O_NONBLOCK: reading must not hang on a pipe that has no writer.
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


class FolderMemoryStore(AtomicEdits):
    """A folder as a memory. Several threads and processes may use it at once; each edit is atomic.

    A missing folder is created with mode 0700; files get 0600. Nothing outside the folder is read or written, because
    symbolic links are refused anywhere in a path.
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
        self.metadata(path)  # raises the same errors as for a single path
        inner = self._root.inner(path)
        prefix = self._root.outer(inner).rstrip("/")
        with self._opened() as top, open_directory(top, self._segments(path)) as directory:
            return [_entry(f"{prefix}/{name}", status) for name, status in list_directory(directory, inner)]

    def left_out(self, path: str) -> Sequence[str]:
        """The names in a directory that are not part of the memory: links, special files, unusable names."""
        with self._opened() as top, open_directory(top, self._segments(path)) as directory:
            return unnameable(directory, self._root.inner(path))

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; it may exist already."""
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
        """Open the folder. Only one writer at a time, across all threads and processes."""
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
        """Open the directory that contains a path; its descriptor and the last name of the path."""
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
    """The folder's path. `clear` deletes everything in it, so some folders are refused."""
    try:
        path = local_path("the memory's folder", folder)
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from error
    if path.resolve() in (Path(path.anchor), Path.home().resolve()):
        raise ConfigurationError(f"{path} holds more than a memory; name a folder inside it")
    return path


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents for the owner only, whatever the umask. Existing ones do not change."""
    try:
        for part in reversed([folder, *folder.parents]):
            if not part.exists():
                part.mkdir(mode=0o700, exist_ok=True)
                part.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"the memory's folder {folder} cannot be created: {error.strerror}") from error
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file; name a folder for the memory")


def _remove(directory: int, name: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(name, dir_fd=directory)  # works by descriptors too
    else:
        os.unlink(name, dir_fd=directory)
    os.fsync(directory)


def _entry(path: str, status: os.stat_result) -> MemoryEntry:
    is_directory = stat.S_ISDIR(status.st_mode)
    changed = datetime.fromtimestamp(status.st_mtime, UTC)
    return MemoryEntry(path, is_directory, 0 if is_directory else status.st_size, changed)


# Copies between a folder and a space


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """How much was copied, and what was skipped, each as `path: reason`."""

    files: int
    directories: int
    skipped: tuple[str, ...]


def import_folder(folder: str | Path, space: Space, *, overwrite: bool = False) -> FolderCopy:
    """Copy a folder of text files into a space; `/memories/x` of Claude's tool is `x` in the folder.

    A file whose text in the space differs is skipped, unless `overwrite`. Links, files that are not text and names that
    no path can have, such as a folder 21 levels deep, are skipped as well.
    """
    if not local_path("the memory's folder", folder).is_dir():
        raise NotFound(f"{folder} is not a folder; name one that holds a memory")
    source = FolderMemoryStore(folder, "/", max_file_size=_limit_of(space))
    skipped: list[str] = []
    counts = {True: 0, False: 0}
    batch: dict[str, str | None] = {}
    size = 0

    def commit() -> None:
        refused = _write_batch(space.files, batch, overwrite)
        skipped.extend(f"{path}: {reason}" for path, reason in refused.items())
        for path, text in batch.items():
            counts[text is None] += path not in refused
        batch.clear()

    for entry in _walk(source, "/", skipped):
        try:
            batch[entry.path] = None if entry.is_directory else source.read(entry.path)
        except MemoryException as error:
            skipped.append(f"{entry.path}: {error}")
            continue
        size += entry.size
        if len(batch) >= FILES_A_COMMIT or size >= BYTES_A_COMMIT:
            commit()
            size = 0
    commit()
    return FolderCopy(counts[False], counts[True], tuple(skipped))


def _write_batch(files: Files, batch: Mapping[str, str | None], overwrite: bool) -> dict[str, str]:
    """Write a batch as one commit, or one by one if the whole batch is too much for the namespace."""
    if not batch:
        return {}
    try:
        return files.write_all(batch, overwrite=overwrite)
    except InvalidInput as error:
        if len(batch) == 1:
            return dict.fromkeys(batch, str(error))
    refused: dict[str, str] = {}
    for path, text in batch.items():
        refused |= _write_batch(files, {path: text}, overwrite)
    return refused


def export_folder(space: Space, folder: str | Path, *, overwrite: bool = False) -> FolderCopy:
    """Write a space's files into a folder, which is created if missing. Other files in it stay.

    A file whose text in the folder differs is skipped, unless `overwrite`.
    """
    target = FolderMemoryStore(folder, "/", max_file_size=_limit_of(space))
    return _copy(SpaceMemoryStore(space, "/"), target, overwrite)


def _copy(source: SpaceMemoryStore, target: FolderMemoryStore, overwrite: bool) -> FolderCopy:
    files = directories = 0
    skipped: list[str] = []
    for entry in _walk(source, "/", skipped):
        try:
            if entry.is_directory:
                target.make_directory(entry.path)
                directories += 1
            else:
                _copy_file(source, target, entry.path, overwrite)
                files += 1
        except MemoryException as error:
            skipped.append(f"{entry.path}: {error}")
    return FolderCopy(files, directories, tuple(skipped))


def _walk(store: FolderMemoryStore | SpaceMemoryStore, path: str, skipped: list[str]) -> Iterator[MemoryEntry]:
    if isinstance(store, FolderMemoryStore):
        skipped += [
            f"{path.rstrip('/')}/{name}: it is not a text file with a usable name" for name in store.left_out(path)
        ]
    for entry in store.list(path):
        yield entry
        if entry.is_directory:
            yield from _walk(store, entry.path, skipped)


def _copy_file(source: SpaceMemoryStore, target: FolderMemoryStore, path: str, overwrite: bool) -> None:
    text = source.read(path)
    if not target.exists(path):
        target.create(path, text)
    elif target.read(path) != text:
        if not overwrite:
            raise MemoryException("it exists already, with a different text", "already_exists")
        target.edit(path, lambda _: text)


def _limit_of(space: Space) -> int:
    return space.limits.file_bytes


# Files and directories, by open descriptors


def segments_of(path: str) -> tuple[str, ...]:
    """The names in a path below the root."""
    names = tuple(name for name in path.split("/") if name)
    if any(name.startswith(_UNFINISHED) for name in names):
        raise MemoryException(f"a name must not begin with {_UNFINISHED}", "invalid_path")
    return names


@contextmanager
def open_directory(top: int, segments: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Open the directory at the end of some names. `make` creates those that are missing."""
    opened = [os.dup(top)]
    try:
        for name in segments:
            if make:
                _make_directory(opened[-1], name)
            opened.append(_open(name, _DIRECTORY_FLAGS, opened[-1]))
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)


def entry_status(directory: int, name: str) -> os.stat_result | None:
    """The status of a regular file or a directory; None if nothing has the name. Anything else is refused."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    _refuse_special(name, status)
    return status


def list_directory(directory: int, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The entries of a directory that a memory can name, sorted; links and special files are left out."""
    for name in sorted(os.listdir(directory)):
        if name.startswith(_UNFINISHED) or not _is_nameable(path, name):
            continue
        try:
            status = entry_status(directory, name)
        except MemoryException:
            continue
        if status is not None:
            yield name, status


def unnameable(directory: int, path: str) -> list[str]:
    """The names in a directory that `list_directory` leaves out."""
    kept = {name for name, _ in list_directory(directory, path)}
    return sorted(name for name in os.listdir(directory) if name not in kept and not name.startswith(_UNFINISHED))


def check_move(directory: int, path: str, new_path: str) -> None:
    """Raise if moving a directory would give something in it a path past the limits."""
    # Files first, as a space does, so that both report the same path.
    for _, old in sorted(_below(directory, path), key=itemgetter(0)):
        try:
            normalise(new_path + old.removeprefix(path), Limits())
        except TooLarge as error:
            raise MemoryException(str(error)) from error


def read_text(directory: int, name: str, max_bytes: int) -> str:
    """The text of a file."""
    descriptor = _open(name, _FILE_FLAGS, directory)
    try:
        status = os.fstat(descriptor)
        _refuse_special(name, status)
        if stat.S_ISDIR(status.st_mode):
            raise MemoryException(f"{name} is a directory", "is_directory")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise MemoryException(f"{name} has more than {max_bytes:,} bytes", "too_large", count=max_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MemoryException(f"{name} is not UTF-8 text", "not_text") from error


def write_text(directory: int, name: str, text: str, *, is_new: bool) -> None:
    """Write a text atomically. A reader sees the old text or the new one, also after a crash."""
    unfinished = _UNFINISHED + uuid4().hex
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
    descriptor = os.open(unfinished, flags, _FILE_MODE, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, _FILE_MODE)
            file.write(text.encode())
            file.flush()
            os.fsync(descriptor)
        if is_new:
            _link(directory, unfinished, name)
        else:
            os.rename(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError as error:
        raise MemoryException(f"{name} exists already", "already_exists") from error
    finally:
        if _is_there(directory, unfinished):
            os.unlink(unfinished, dir_fd=directory)
    os.fsync(directory)


def _link(directory: int, unfinished: str, name: str) -> None:
    """Give a finished file its name. Unlike a rename, a link does not replace a file created in the meantime."""
    try:
        os.link(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # A file system without links. The lock serializes our own writers.
        if _is_there(directory, name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.rename(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)


def _below(directory: int, path: str) -> Iterator[tuple[bool, str]]:
    """Everything below a directory that a memory can name: whether it is a directory, and its path."""
    for name, status in list_directory(directory, path):
        is_directory = stat.S_ISDIR(status.st_mode)
        yield is_directory, f"{path}/{name}"
        if is_directory:
            with open_directory(directory, (name,)) as opened:
                yield from _below(opened, f"{path}/{name}")


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def check_new(directory: int, name: str) -> None:
    """Raise for a new name that contains invisible characters."""
    if not _is_there(directory, name):
        try:
            check_new_name(name)
        except InvalidPath as error:
            raise MemoryException(str(error), "invalid_path") from error


def _make_directory(directory: int, name: str) -> None:
    check_new(directory, name)
    try:
        os.mkdir(name, _DIRECTORY_MODE, dir_fd=directory)
    except FileExistsError:
        return
    descriptor = _open(name, _DIRECTORY_FLAGS, directory)
    try:
        os.fchmod(descriptor, _DIRECTORY_MODE)  # whatever the umask
    finally:
        os.close(descriptor)
    os.fsync(directory)


def _open(name: str, flags: int, directory: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except FileNotFoundError as error:
        raise MemoryException(f"{name} does not exist", "not_found") from error
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EMLINK):
            raise
        entry_status(directory, name)  # reports a link as such
        raise MemoryException(f"{name} is a file", "not_a_directory") from error


def _refuse_special(name: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise MemoryException(f"{name} is a symbolic link, which is never followed", "symlink")
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise MemoryException(f"{name} is neither a file nor a directory", "not_text")


def _is_nameable(path: str, name: str) -> bool:
    whole = f"{path.rstrip('/')}/{name}"
    try:
        return "\\" not in name and normalise(whole, Limits()) == whole
    except InvalidInput:
        return False
