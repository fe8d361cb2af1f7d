"""Backups: every table as it was at one moment, in one file, and back into an empty schema.

The file is a zip with a member for each table, in the text form of COPY, and `commonplace.json`, which names the
schema's number and the next id.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import psycopg
from psycopg import sql

from commonplace.backends.postgres.migrate import newest, schema_version, tables
from commonplace.backends.postgres.place import Place
from commonplace.checks import unfinished_file
from commonplace.errors import AlreadyExists, ConfigurationError, Corrupt, InvalidInput
from commonplace.store import Progress

HEAD = "commonplace.json"
_NOT_COPIED = ("migration", "attempt")
_BYTES_A_STEP = 1 << 20


def backup(connection: psycopg.Connection[Any], place: Place, target: Path, progress: Progress | None) -> None:
    """Write a file that appears only when it is complete and on disk."""
    if target.exists():
        raise AlreadyExists(f"{target} exists already; choose another name for the backup")
    if not target.parent.is_dir():
        raise InvalidInput(f"the folder {target.parent} does not exist; create it first")
    unfinished = unfinished_file(target)
    try:
        with unfinished.open("xb") as raw:
            os.fchmod(raw.fileno(), 0o600)
            with ZipFile(raw, "w", ZIP_DEFLATED, compresslevel=1) as archive:
                _write(connection, place, archive, progress)
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _write(connection: psycopg.Connection[Any], place: Place, archive: ZipFile, progress: Progress | None) -> None:
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(place.system_role)))
        names = [name for name, *_ in tables(connection, place) if name not in _NOT_COPIED]
        head: dict[str, Any] = {"schema": schema_version(connection, place), "columns": {}}
        total = 0
        for name in names:
            row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchone()
            total += row[0] if row is not None else 0
        done = 0
        for name in names:
            columns = _columns(connection, place, name)
            head["columns"][name] = columns
            query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(_listed(columns), sql.Identifier(name))
            with (
                archive.open(f"{name}.copy", "w", force_zip64=True) as member,
                connection.cursor() as cursor,
                cursor.copy(query) as copy,
            ):
                for data in copy:
                    member.write(data)
                    done += bytes(data).count(b"\n")
                    if progress is not None:
                        progress(done, total, "rows")
        last = connection.execute("SELECT last_value FROM identifier").fetchone()
        head["identifier"] = last[0] if last is not None else 1
        archive.writestr(HEAD, json.dumps(head))


def restore(connection: psycopg.Connection[Any], place: Place, source: Path) -> None:
    """Fill an empty schema from a backup, whole or not at all."""
    try:
        archive = ZipFile(source)
        head = json.loads(archive.read(HEAD))
    except (OSError, ValueError, KeyError, NotImplementedError, BadZipFile) as error:
        raise InvalidInput(
            f"{source} is not a backup of a book on PostgreSQL ({error}); a file that is a book goes there with "
            "`commonplace move`"
        ) from error
    with archive, connection.transaction():
        if head["schema"] != newest():
            raise ConfigurationError(
                f"{source} has schema {head['schema']}, this program {newest()}; restore it with the release that made "
                "it, then upgrade"
            )
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(place.system_role)))
        for name, columns in head["columns"].items():
            table, incoming = sql.Identifier(name), sql.Identifier(f"incoming_{name}")
            held = connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(table)).fetchone()
            if held is not None:
                raise InvalidInput(f"{place.shown} is not empty; restore into an empty schema")
            # COPY does not go straight into a table with row-level security.
            connection.execute(
                sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                    incoming, _listed(columns), table
                )
            )
            with (
                archive.open(f"{name}.copy") as member,
                connection.cursor() as cursor,
                cursor.copy(sql.SQL("COPY {} FROM STDIN").format(incoming)) as copy,
            ):
                try:
                    shutil.copyfileobj(member, _Sink(copy), _BYTES_A_STEP)
                except (BadZipFile, zlib.error, EOFError) as error:
                    raise Corrupt(f"the backup {source} is damaged ({error}); nothing was changed") from error
            connection.execute(
                sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {}").format(
                    table, _listed(columns), _listed(columns), incoming
                )
            )
        connection.execute("SELECT setval('identifier', %s)", (head["identifier"],))
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('model', 'id'), greatest(1, (SELECT max(id) FROM model)))"
        )


class _Sink:
    """A COPY as something to write to."""

    def __init__(self, copy: psycopg.Copy) -> None:
        self._copy = copy

    def write(self, data: bytes) -> int:
        self._copy.write(data)
        return len(data)


def _columns(connection: psycopg.Connection[Any], place: Place, table: str) -> list[str]:
    rows = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        " ORDER BY ordinal_position",
        (place.schema, table),
    )
    return [name for (name,) in rows]


def _listed(columns: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
