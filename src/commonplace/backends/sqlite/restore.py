"""Putting a backup in the place of a book, also while programs have it open.

They keep the former file, which gets another name, and write nothing more to it (see guard.py). Killed at any moment,
this leaves the former book or the restored one; between the two, a file with the former log is refused, and running it
again ends the work.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import apsw

from commonplace.backends.sqlite import maintenance
from commonplace.backends.sqlite.connection import Connection, translated
from commonplace.backends.sqlite.locks import WriterQueue
from commonplace.backends.sqlite.migrate import check_schema, schema_version
from commonplace.checks import unfinished_file
from commonplace.errors import Corrupt, InvalidInput, NotFound, Unavailable
from commonplace.store import Progress

LOGS = ("-wal", "-shm")


def restore(
    source: Path, path: str, busy_seconds: float, progress: Progress | None, *, keep_former: bool
) -> Path | None:
    """Make the book at `path` the one that a backup holds; the file that the former book has become, if it is kept."""
    book = Path(os.path.realpath(path))
    if not source.is_file():
        raise NotFound(f"there is no backup at {source}; name the file that `commonplace backup` wrote")
    if book.exists() and source.samefile(book):
        raise InvalidInput(f"{source} is the book itself; name the file that `commonplace backup` wrote")
    with source.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise InvalidInput(
                f"{source} is a backup of a book on PostgreSQL; restore it with --db postgresql://… into an empty "
                "database, from where `commonplace move` copies it to a file"
            )
    copy = unfinished_file(book.with_name(f"{book.name}.restored"))
    try:
        _copy(source, copy, progress)
        queue = WriterQueue(str(book), busy_seconds)
        try:
            with queue.held():
                former = _exchange(book, copy, keep_former=keep_former)
        finally:
            queue.close()
    finally:
        copy.unlink(missing_ok=True)
    return former


def _copy(source: Path, copy: Path, progress: Progress | None) -> None:
    """Copy a backup that can be read from its first page to its last."""
    with translated(str(source)):
        connection = cast(Connection, apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY))
        try:
            check_schema(connection, str(source))
            if not schema_version(connection):
                raise InvalidInput(f"{source} is empty; name the file that `commonplace backup` wrote")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchall()[0]
            if found != "ok":
                raise Corrupt(f"the backup {source} is damaged ({found}); nothing was changed, take another one")
            maintenance.backup(connection, copy, progress)
        finally:
            connection.close()


def _exchange(book: Path, copy: Path, *, keep_former: bool) -> Path | None:
    former = _free_name(book) if keep_former and book.exists() and book.stat().st_size else None
    try:
        if former is not None:
            # The log with it, and before the file: together they are the former book.
            for suffix in (*LOGS, ""):
                with suppress(FileNotFoundError):
                    _name_too(f"{book}{suffix}", f"{former}{suffix}")
        os.replace(copy, book)
    except OSError as error:
        raise Unavailable(
            f"cannot put the backup in the place of {book}: {error.strerror}; the book was not changed"
        ) from error
    for suffix in LOGS:
        Path(f"{book}{suffix}").unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(book.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return former


def _name_too(file: str, name: str) -> None:
    try:
        os.link(file, name)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        shutil.copy2(file, name)


def _free_name(book: Path) -> Path:
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    names = (book.with_name(f"{book.stem}.before-{moment}{number}{book.suffix}") for number in ("", *range(2, 1000)))
    return next(name for name in names if not name.exists())
