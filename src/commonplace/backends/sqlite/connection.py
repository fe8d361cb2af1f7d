"""Opening the file: connections with the right settings, and SQLite's errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import apsw

from commonplace.errors import CommonplaceError, ConfigurationError, Corrupt, Unavailable


class Cursor(Protocol):
    """Rows as SQLite gives them; the statement knows their types."""

    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What our statements need of a connection of apsw."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statements: str, bindings: Any = ()) -> Cursor: ...
    def total_changes(self) -> int: ...
    def close(self) -> None: ...


APPLICATION_ID = 0x434D4E50  # "CMNP", so that no other program's database is taken for a book
MEMORY = ":memory:"
Durability = Literal["full", "normal"]


def connect(path: str, *, busy_seconds: float, durability: Durability) -> Connection:
    """A connection that waits for locks, and whose commits survive a power cut when durability is full."""
    with translated(path):
        connection = apsw.Connection(path)
        try:
            connection.set_busy_timeout(int(busy_seconds * 1000))
            # Otherwise some statements are planned anew for every value bound to them: 5-30 µs each time, not 1-3.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            for pragma in (
                "temp_store = MEMORY",
                "cache_size = -16000",
                "secure_delete = ON",
                f"synchronous = {durability.upper()}",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            connection.close()
            raise
    return cast(Connection, connection)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours, with what to do next."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error


def translate(error: apsw.Error, path: str) -> CommonplaceError:
    """The one place where a SQLite error gets its meaning."""
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return Corrupt(
            f"{path} is damaged or not a database ({error}); restore a backup, "
            "or run `commonplace doctor` to see what can still be read"
        )
    if isinstance(error, apsw.ConnectionClosedError):
        return closed(path)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return Unavailable(f"{path} is locked by another program; nothing was changed, try again")
    if isinstance(error, apsw.FullError):
        return Unavailable(f"no space left for {path}; nothing was changed, free disk space and try again")
    if isinstance(error, apsw.ReadOnlyError):
        return ConfigurationError(f"{path} is read-only; nothing was changed, make it and its folder writable")
    if isinstance(error, apsw.CantOpenError):
        folder = Path(path).parent
        reason = "its folder does not exist" if not folder.is_dir() else "it cannot be opened or created"
        return ConfigurationError(f"cannot open {path}: {reason}; check the path and its permissions")
    if isinstance(error, (apsw.PermissionsError, apsw.AuthError)):
        return ConfigurationError(f"access to {path} was denied; check its permissions")
    if isinstance(error, apsw.TooBigError):
        return Unavailable(f"a value is too large for {path}; nothing was changed")
    return Unavailable(f"the database {path} failed: {error}; nothing was changed")


def closed(path: str) -> Unavailable:
    return Unavailable(f"the book {path} is closed; open it again")
