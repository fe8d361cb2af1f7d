"""Migrates a file to this program's schema: ordered steps, each applied once, all or nothing."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import cast

import apsw

from commonplace.backends.sqlite.connection import APPLICATION_ID, MEMORY, Connection, unavailable
from commonplace.errors import ConfigurationError, Corrupt

# One statement sees one state of the file. Between three statements, another process could create the book.
ONE_LOOK = (
    "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) "
    "FROM pragma_application_id, pragma_user_version"
)


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """The numbered .sql files next to this module, in order."""
    folder = Path(__file__).with_name("migrations")  # `importlib.resources` would load `tempfile` and `zipfile`
    found = []
    for resource in folder.iterdir():
        if match := re.fullmatch(r"(\d{3})_\w+\.sql", resource.name):
            found.append((int(match[1]), resource.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def schema_version(connection: Connection) -> int:
    """The schema of a book; 0 for a file that is not a book yet, whatever number another program has stored in it."""
    application, version, _ = connection.execute(ONE_LOOK).fetchall()[0]
    return int(version) if application == APPLICATION_ID else 0


def check_schema(connection: Connection, path: str) -> bool:
    """Whether the file is a book of this program's schema. A foreign or a newer file is refused."""
    application, version, tables = connection.execute(ONE_LOOK).fetchall()[0]
    newest = migrations()[-1][0]
    if application != APPLICATION_ID:
        if tables:
            if not wrong_names(connection, also_others=True):
                raise _wrong_header(path, "another program's mark")
            raise ConfigurationError(
                f"{path} is a SQLite database of another program, not a commonplace book; choose another file"
            )
        return False
    if version > newest:
        if not wrong_names(connection, also_others=True):
            raise _wrong_header(path, f"schema {version}")
        raise ConfigurationError(
            f"{path} was written by a newer commonplace (schema {version}; this one knows up to {newest}); "
            "upgrade commonplace to open it"
        )
    return bool(version == newest)


def check_unchanged(connection: Connection, path: str) -> None:
    """Before a write: another program may have upgraded the book since this one opened it."""
    version = connection.execute("PRAGMA user_version").fetchall()[0][0]
    if version != migrations()[-1][0]:
        raise unavailable(
            f"another commonplace has changed the book's schema to {version} while it was open (this program knows "
            f"{migrations()[-1][0]}); nothing was changed, restart this program with the newer version",
            path,
        )


def _wrong_header(path: str, claim: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: its header on page 1 has {claim}, and its tables are of schema {migrations()[-1][0]}; "
        "restore a backup"
    )


def wrong_names(connection: Connection, *, also_others: bool = False) -> list[str]:
    """The tables, indexes, views and triggers that differ from what the migrations create; with `also_others`,
    additional ones too.
    """
    fresh = apsw.Connection(MEMORY)
    try:
        migrate(cast(Connection, fresh), MEMORY)
        right = _schema_of(cast(Connection, fresh))
    finally:
        fresh.close()
    found = _schema_of(connection)
    names = right.keys() | found.keys() if also_others else right.keys()
    return sorted(name for type, name in names if right.get((type, name)) != found.get((type, name)))


def _schema_of(connection: Connection) -> dict[tuple[str, str], tuple[str, str | None]]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return {(str(type), str(name)): (table, sql) for type, name, table, sql in rows}


def migrate(connection: Connection, path: str) -> None:
    """Apply what is missing, in one transaction; callers hold the writer queue."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not check_schema(connection, path):
            version = schema_version(connection)
            for number, sql in migrations():
                if number > version:
                    connection.execute(sql).fetchall()
                    connection.execute(f"PRAGMA user_version = {number}").fetchall()
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
        connection.execute("COMMIT")
    except apsw.SQLError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise Corrupt(
            f"{path} is damaged: its tables are not of the schema that its header on page 1 names ({error}); "
            "nothing was changed, restore a backup"
        ) from error
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
