"""Another program's SQLite file, read and never written: its tables in one snapshot, a row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from commonplace.backends.sqlite.connection import APPLICATION_ID, translated
from commonplace.errors import InvalidInput, NotFound

BUSY_SECONDS = 10

# Text as bytes, since one row that is no UTF-8 must not end the reading; SQLite's binary JSON as its text.
_READ = (
    "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB)"
    " WHEN 'blob' THEN CASE WHEN json_valid({0}, 8) THEN CAST(json({0}) AS BLOB) ELSE {0} END ELSE {0} END"
)


class ForeignTables:
    """The tables of the file as they were when it was opened."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns; none where there is no such table."""
        rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return [str(row[0]) for row in rows]

    def count(self, table: str) -> int:
        rows: list[Any] = self._connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchall()
        return int(rows[0][0])

    def rows(self, table: str, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Each row in the order of insertion, under the names given for the columns; texts come as bytes."""
        chosen = ", ".join(_READ.format(_quoted(column)) for column in columns.values())
        for row in self._connection.execute(f"SELECT {chosen} FROM {_quoted(table)} ORDER BY rowid"):
            yield dict(zip(columns, row, strict=True))


@contextmanager
def open_foreign(path: Path) -> Iterator[ForeignTables]:
    """Open a file that some other program may have open, too."""
    if not path.is_file():
        raise NotFound(f"there is no file {path} to import")
    with translated(str(path)):
        try:
            connection = _snapshot(path)
        except apsw.NotADBError as error:
            raise InvalidInput(f"{path} is no SQLite database; give the memory.db that Mastra wrote") from error
        try:
            [(application,)] = connection.execute("PRAGMA application_id").fetchall()
            if application == APPLICATION_ID:
                raise InvalidInput(f"{path} is a commonplace book; open it with --db, or export it and import that")
            yield ForeignTables(connection)
        finally:
            connection.close()


def _snapshot(path: Path) -> apsw.Connection:
    """A connection that reads one state of the file."""
    try:
        return _reading(f"file:{quote(str(path))}?mode=ro")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # A file in WAL mode wants a log beside it, which a folder that is read-only does not let in. Where there is
        # none yet, nobody writes, and all is in the file itself.
        if Path(f"{path.resolve()}-wal").exists():
            raise
        return _reading(f"file:{quote(str(path))}?mode=ro&immutable=1")


def _reading(uri: str) -> apsw.Connection:
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        connection.set_busy_timeout(BUSY_SECONDS * 1_000)
        connection.execute("BEGIN").fetchall()
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
