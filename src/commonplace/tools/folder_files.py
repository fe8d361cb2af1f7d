"""A folder on disk, walked by descriptors: no symbolic link is ever followed, not even one put there meanwhile.

Each step opens one name inside of a directory that is open already (`dir_fd`, `O_NOFOLLOW`), so there is no moment
between a check and its use. Needs a POSIX system.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from uuid import uuid4

from commonplace.checks import Limits
from commonplace.errors import InvalidInput, InvalidPath, TooLarge
from commonplace.space.names import check_new_name, normalise
from commonplace.tools.memory_error import MemoryException

# While a text is written it has such a name, which no memory can have.
_UNFINISHED = ".commonplace-unfinished-"

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _FLAGS
# A pipe without a writer must not make the reader wait.
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


def segments_of(path: str) -> tuple[str, ...]:
    """The names along a path below the root."""
    names = tuple(name for name in path.split("/") if name)
    if any(name.startswith(_UNFINISHED) for name in names):
        raise MemoryException(f"a name must not begin with {_UNFINISHED}", "invalid_path")
    return names


@contextmanager
def open_directory(top: int, segments: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """The directory at the end of some names; with `make`, those that are missing are made."""
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
    """What is there by a name: a regular file or a directory; None when nothing is. Anything else is refused."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    _refuse_special(name, status)
    return status


def list_directory(directory: int, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """What a memory can name in the directory with a path, by name; links and special files are left out."""
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
    """Refuse to move a directory where something in it would get a path past the limits."""
    # Files first, as a space moves them: both then refuse in the same words.
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
    """Put a text in place as one step: a reader sees the old text or the new one, also after a crash."""
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
    """Give a finished file its name. Unlike a rename, a link never takes the place of a file that came meanwhile."""
    try:
        os.link(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # A file system without links; the writers' lock keeps our own writers apart.
        if _is_there(directory, name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.rename(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)


def _below(directory: int, path: str) -> Iterator[tuple[bool, str]]:
    """All that a memory can name below a directory: whether it is one as well, and its path."""
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
    """Refuse a name that nothing has yet where a part of it cannot be seen."""
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
        entry_status(directory, name)  # names a link as what it is
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
