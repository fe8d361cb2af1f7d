"""Connections to the file with the right settings, and SQLite's errors translated into ours."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

import apsw

from commonplace.backends.sqlite.checksums import kept_sum
from commonplace.backends.sqlite.where import conditions_hold
from commonplace.errors import CommonplaceError, ConfigurationError, Corrupt, Unavailable


class Cursor(Protocol):
    """Rows as SQLite gives them; the statement knows their types."""

    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """The part of an apsw connection that our statements use."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statements: str, bindings: Any = ()) -> Cursor: ...
    def total_changes(self) -> int: ...
    def data_version(self) -> int: ...
    def config(self, option: int, value: int, /) -> int: ...
    def close(self) -> None: ...


APPLICATION_ID = 0x434D4E50  # "CMNP", so that another program's database is not mistaken for a book
MEMORY = ":memory:"
BOOK = "the book"
DRIVER_ERRORS = (apsw.Error, UnicodeDecodeError)
"""What SQLite raises, and apsw for a stored text that is not UTF-8."""
E = TypeVar("E", bound=CommonplaceError)
Durability = Literal["full", "normal"]


def connect(
    path: str, *, busy_seconds: float, durability: Durability, in_use: bool = False, only_reads: bool = False
) -> Connection:
    """A connection that waits for locks, and whose commits survive a power cut when durability is full.

    With `only_reads` it writes nothing, not even the index of the log.
    """
    with translated(path, in_use=in_use):
        if only_reads:
            address = f"{Path(os.path.realpath(path)).as_uri()}?immutable=1"
            connection = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        else:
            creating = 0 if in_use else apsw.SQLITE_OPEN_CREATE
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | creating)
        try:
            connection.set_busy_timeout(int(busy_seconds * 1000))
            # Otherwise some statements are planned again for every value bound to them: 5-30 µs each time, not 1-3.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # The last connection to close would checkpoint its log into whatever file is there now. The store allows it
            # (see guard.py).
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.create_scalar_function("kept_sum", kept_sum)
            connection.create_scalar_function("conditions_hold", conditions_hold, 3)
            for pragma in (
                "temp_store = MEMORY",
                "cache_size = -16000",
                "secure_delete = ON",
                "cell_size_check = ON",  # refuse a damaged page when it is read
                "trusted_schema = OFF",
                f"synchronous = {durability.upper()}",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            connection.close()
            raise
    return cast(Connection, connection)


def identity(path: str) -> tuple[int, int] | None:
    """Which file is at a path; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# Since Linux 6.13, a file whose times were read gets a new, exact time with its next write. The sync of that write may
# then write the inode too, which took 24 µs of a commit. Python's `stat` always reads the times.

_FROM_FOLDER, _NUMBER = -100, 0x100  # AT_FDCWD and STATX_INO
_STATX = struct.Struct("@32xQ96xII112x")  # the inode, and the two numbers of the device


def _found_statx() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        found: Callable[..., int] = ctypes.PyDLL(None).statx
    except (OSError, AttributeError):  # a C library without it
        return None
    return found


_statx = _found_statx()


def identity_of_log(path: str) -> tuple[int, int] | None:
    """The same as `identity`, without reading the times of the file."""
    if _statx is not None:
        found = ctypes.create_string_buffer(_STATX.size)
        if not _statx(_FROM_FOLDER, os.fsencode(path), 0, _NUMBER, found):
            number, major, minor = _STATX.unpack(found)
            return os.makedev(major, minor), number
    return identity(path)  # there is no file, or a sandbox refuses the call


@contextmanager
def translated(path: str, *, in_use: bool = False) -> Iterator[None]:
    """Turn SQLite's errors into ours, with what to do next."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate(error, path, in_use=in_use) from error


def translate(error: apsw.Error | UnicodeDecodeError, path: str, *, in_use: bool = False) -> CommonplaceError:
    """Our error for one of SQLite. For a book in use it does not name the file: a service shows it to its callers."""
    return _noted(_meaning(error, BOOK, path), path) if in_use else _meaning(error, path, path)


def _meaning(error: apsw.Error | UnicodeDecodeError, name: str, path: str) -> CommonplaceError:
    """All errors of SQLite are translated here."""
    if _is_damage(error, path):
        reason = "a text is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        return Corrupt(
            f"{name} is damaged or not a database ({reason}); restore a backup, or take what can still be read with "
            "`commonplace export --salvage`"
        )
    if isinstance(error, apsw.ConnectionClosedError):
        return Unavailable(f"{name} is closed; open it again")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return Unavailable(f"{name} is locked by another program; nothing was changed, try again")
    if isinstance(error, apsw.FullError):
        return Unavailable(f"no space left for {name}; nothing was changed, free disk space and try again")
    if isinstance(error, apsw.ReadOnlyError):
        return ConfigurationError(f"{name} is read-only; nothing was changed, make it and its folder writable")
    if isinstance(error, apsw.CantOpenError):
        folder = Path(path).parent
        reason = "its folder does not exist" if not folder.is_dir() else "it cannot be opened or created"
        return ConfigurationError(f"cannot open {name}: {reason}; check the path and its permissions")
    if isinstance(error, (apsw.PermissionsError, apsw.AuthError)):
        return ConfigurationError(f"access to {name} was denied; check its permissions")
    if isinstance(error, apsw.TooBigError):
        return Unavailable(f"a value is too large for {name}; nothing was changed")
    return Unavailable(f"{name} failed: {error}; nothing was changed")


def _is_damage(error: apsw.Error | UnicodeDecodeError, path: str) -> bool:
    if isinstance(error, apsw.SQLError):  # our statements are correct, so this is a damaged schema or damaged JSON
        return (
            re.search("no such|has no column|malformed|fts5|no query solution|invalid|encoding", str(error)) is not None
        )
    if isinstance(error, apsw.ReadOnlyError):  # a damaged header also causes this for a writable file
        is_plain = getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY
        return is_plain and os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)
    damage = (UnicodeDecodeError, apsw.CorruptError, apsw.NotADBError, apsw.MismatchError, apsw.FormatError)
    return isinstance(error, damage)


def unavailable(message: str, path: str) -> Unavailable:
    return _noted(Unavailable(message), path)


def closed(path: str) -> Unavailable:
    return unavailable(f"{BOOK} is closed; open it again", path)


def _noted(error: E, path: str) -> E:
    error.add_note(f"{BOOK} is {path}")
    return error
