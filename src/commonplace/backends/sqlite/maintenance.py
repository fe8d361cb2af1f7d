"""Maintenance of the file: purge, backups and counts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import apsw

from commonplace.backends.deltas import is_whole, whole
from commonplace.backends.entry_index import passages_alone
from commonplace.backends.filter_sql import add_names
from commonplace.backends.rows import CONTENT, HEAD
from commonplace.backends.sqlite import damage, maintenance
from commonplace.backends.sqlite.backlog import waiting_counts
from commonplace.backends.sqlite.checksums import FORMER, former_sum
from commonplace.backends.sqlite.connection import MEMORY, Connection, translated
from commonplace.backends.sqlite.guard import FIRST_WITH_MARK, WriterQueue, book_mark, write_mark
from commonplace.backends.sqlite.migrate import check_schema, migrations, schema_version
from commonplace.backends.sqlite.reader import decode_former
from commonplace.backends.sqlite.transaction import SQLiteTransaction
from commonplace.backends.sqlite.where import Where
from commonplace.checks import unfinished_file
from commonplace.errors import AlreadyExists, Corrupt, InvalidInput, NotFound, Unavailable
from commonplace.store import Progress, StoreStats

BACKUP_PAGES_A_STEP = 500


def purge(
    connection: Connection,
    transaction: SQLiteTransaction,
    kind: str | None,
    key: str | None,
    prefix: str | None,
    history_before: int | None,
    revision: int | None = None,
) -> int:
    """Erase the named states, live and former, with every trace in the file; returns how many there were."""
    named = Where()
    named.add("namespace = ?", transaction.namespace_id)
    add_names(named, kind, key, prefix)
    where, parameters = named.sql, named.parameters
    if revision is not None:
        where, parameters = f"{where} AND revision = ?", [*parameters, revision]
    elif history_before is None:
        for live_kind, live_key in connection.execute(
            f"SELECT kind, key FROM entry WHERE {where}", parameters
        ).fetchall():
            transaction.delete(live_kind, live_key)
        # An entry that ended here is erased under its earlier names too; one that moved away is erased only here.
        ended_here = f"SELECT entry FROM history WHERE {where} AND ended_by IN ('deleted', 'expired')"
        where, parameters = f"({where}) OR entry IN ({ended_here})", [*parameters, *parameters]
        if kind is None:
            connection.execute("DELETE FROM operation WHERE namespace = ?", (transaction.namespace_id,))
    else:
        where, parameters = f"{where} AND valid_to < ?", [*parameters, history_before]
    rows = connection.execute(
        f"SELECT id, entry, commit_number, ended_commit FROM history WHERE {where}", parameters
    ).fetchall()
    if not rows:
        return 0
    transaction.note_erasure()
    _erase_states(connection, [history_id for history_id, _, _, _ in rows])
    if revision is None:
        erased = [(entry_id, 0, ended) for _, entry_id, _, ended in rows]
    else:
        others = "SELECT commit_number FROM history WHERE entry = ?"
        erased = [
            (entry_id, *passages_alone(begun, ended, (one for (one,) in connection.execute(others, (entry_id,)))))
            for _, entry_id, begun, ended in rows
        ]
    _erase_ended_chunks(connection, erased)
    transaction.raise_floor(max(ended for _, _, _, ended in rows))
    # Deleted terms stay in the index's segments until these are merged.
    connection.execute("INSERT INTO keywords (keywords) VALUES ('optimize')").fetchall()
    return len(rows)


def _erase_states(connection: Connection, rows: Sequence[int]) -> None:
    """Remove rows of history. A state whose delta depends on one of them is first stored whole."""
    gone = set(rows)
    for history_id in rows:
        entry_id, erased = connection.execute(
            "SELECT entry, revision FROM history WHERE id = ?", (history_id,)
        ).fetchall()[0]
        for older_id, revision, text, value in connection.execute(
            "SELECT id, revision, text, value FROM history WHERE entry = ? AND revision < ?"
            " ORDER BY revision DESC LIMIT 1",
            (entry_id, erased),
        ).fetchall():
            if older_id in gone or (is_whole(value) and (text is None or is_whole(text))):
                continue
            full_text, full_value = decode_former(connection, entry_id, revision)
            kept = (None if full_text is None else whole(full_text), whole(full_value))
            (row,) = connection.execute(f"SELECT {FORMER} FROM history WHERE id = ?", (older_id,)).fetchall()
            connection.execute(
                "UPDATE history SET text = ?, value = ?, checksum = ? WHERE id = ?",
                (*kept, former_sum((*row[HEAD], *kept, *row[CONTENT.stop :])), older_id),
            )
    for history_id in rows:
        connection.execute("DELETE FROM history WHERE id = ?", (history_id,))


def _erase_ended_chunks(connection: Connection, ended: Sequence[tuple[int, int, int]]) -> None:
    """Remove the passages, with their vectors, that began and ended between two commits, both included."""
    for entry_id, first, last in ended:
        for (chunk,) in connection.execute(
            "SELECT id FROM chunk WHERE entry = ? AND commit_number >= ? AND ended_commit <= ?", (entry_id, first, last)
        ).fetchall():
            connection.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
            connection.execute("DELETE FROM chunk WHERE id = ?", (chunk,))


def stats(connection: Connection, path: str) -> StoreStats:
    def count(table: str) -> int:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])

    model = connection.execute("SELECT identity FROM model WHERE role = 'serving'").fetchall()
    pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
    page_size = connection.execute("PRAGMA page_size").fetchall()[0][0]
    log = Path(os.path.realpath(path) + "-wal")
    passages, pending = waiting_counts(connection)
    return StoreStats(
        schema=schema_version(connection),
        namespaces=count("namespace"),
        entries=dict(connection.execute("SELECT kind, count(*) FROM entry GROUP BY kind ORDER BY kind").fetchall()),
        former_states=count("history"),
        unchecked=connection.execute("SELECT coalesce(sum(last - first + 1), 0) FROM unchecked").fetchall()[0][0],
        chunks=count("chunk WHERE ended_commit IS NULL") + passages,
        vectors=count("vector WHERE former = 0"),
        pending=count("pending") + pending,
        model=model[0][0] if model else None,
        bytes=pages * page_size + (log.stat().st_size if path != MEMORY and log.exists() else 0),
    )


def backup(connection: Connection, target: Path, progress: Progress | None) -> None:
    """Copy to a file that appears only when it is complete and synced."""
    if target.exists():
        raise AlreadyExists(f"{target} exists already; choose another name for the backup")
    if not target.parent.is_dir():
        raise InvalidInput(f"the folder {target.parent} does not exist; create it first")
    unfinished = unfinished_file(target)
    unfinished.unlink(missing_ok=True)  # left by a run that was killed
    try:
        unfinished.touch(0o600, exist_ok=False)  # a file that SQLite creates is readable by everyone
        copy = apsw.Connection(str(unfinished))
        try:
            with copy.backup("main", cast("apsw.Connection", connection), "main") as work:
                while not work.done:
                    work.step(BACKUP_PAGES_A_STEP)
                    if progress is not None:
                        progress(work.page_count - work.remaining, work.page_count, "pages")
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            _check_copy(cast("Connection", copy), progress)
        finally:
            copy.close()
        with unfinished.open("rb+") as written:
            os.fsync(written.fileno())
        unfinished.rename(target)
    finally:
        for leftover in (
            unfinished,
            Path(f"{unfinished}-journal"),
            Path(f"{unfinished}-wal"),
            Path(f"{unfinished}-shm"),
        ):
            leftover.unlink(missing_ok=True)


def _check_copy(copy: Connection, progress: Progress | None) -> None:
    """Refuse damage to entries and pages, and give the copy a new generation.

    Derived rows can be rebuilt, also in the copy. A copy of an older schema is restored as it is.
    """
    version = schema_version(copy)
    problem = next(damage.losses(copy, progress), None) if version == migrations()[-1][0] else None
    if problem is not None:
        raise Corrupt(
            f"{problem.text}; no copy was made, since it would have the damage too: `commonplace doctor` lists all "
            "damage, and `commonplace export --salvage` writes what can be read"
        )
    if version >= FIRST_WITH_MARK:
        write_mark(copy, book_mark(copy).next())


# Restores a backup, even while programs have the book open. They keep the former file, which gets another name, and
# cannot write to it any more (see guard.py). If this is killed, it leaves the former or the restored book; in between,
# a file with the former log is refused, and running it again completes the restore.

LOGS = ("-wal", "-shm")


def restore(
    source: Path, path: str, busy_seconds: float, progress: Progress | None, *, keep_former: bool
) -> Path | None:
    """Replace the book at `path` with a backup; returns the new path of the former book, if it is kept."""
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
    """Copy a backup, and check that every page of it can be read."""
    with translated(str(source)):
        connection = cast("Connection", apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY))
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
            # Move the log too, and before the file. Together they are the former book.
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
        import shutil

        shutil.copy2(file, name)


def _free_name(book: Path) -> Path:
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    names = (book.with_name(f"{book.stem}.before-{moment}{number}{book.suffix}") for number in ("", *range(2, 1000)))
    return next(name for name in names if not name.exists())
