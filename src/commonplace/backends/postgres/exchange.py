"""Export and import of whole namespaces: every state, live and former, without loss.

States are ordered by entry, the newest first. So each former text is decoded from the one read just before it, and
stored as a delta of the one written just before it.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import psycopg
from psycopg import errors, sql

from commonplace.backends.entry_index import HEADING, heading_passage
from commonplace.backends.postgres.connection import Place, Session, parse_url, translated
from commonplace.backends.postgres.index import Identifiers, NamespaceRow
from commonplace.backends.postgres.migrate import newest, schema_version, tables
from commonplace.backends.postgres.reader import Location, former_of, pack_delta, tenant_of
from commonplace.backends.postgres.transaction import former_bytes, row_bytes
from commonplace.backends.ranking import packed_terms, posting
from commonplace.backends.rows import (
    COLUMNS,
    FORMER_COLUMNS,
    NO_CONTENT,
    Former,
    Live,
    adopt_states,
    former_state,
    labels,
    live_state,
)
from commonplace.checks import Namespace, stored_namespace, unfinished_file
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.errors import AlreadyExists, ConfigurationError, Conflict, Corrupt, InvalidInput
from commonplace.language.passages import Passage, passages
from commonplace.store import CheckUsage, NamespaceHead, Progress, State, Usage

ENTRIES_A_READ = 200
_HEADS = "SELECT tenant, id, path, commit_number, commit_time, history_floor FROM namespace"
_ENDING = "ended_by, ended_commit, valid_to, ended_actor"


# Out


def export(session: Session, namespaces: Sequence[Namespace] | None) -> Iterator[NamespaceHead | State]:
    if namespaces is None:
        heads = session.rows(f"{_HEADS} ORDER BY path")
    else:
        heads = session.rows(
            f"{_HEADS} WHERE path = ANY(%s) ORDER BY path", (["/".join(namespace) for namespace in namespaces],)
        )
    for tenant, namespace_id, path, *counters in heads:
        spot = Location(stored_namespace(path), tenant, namespace_id)
        yield NamespaceHead(spot.namespace, *counters)
        last = 0
        while ids := _next_ids(session, spot, last):
            yield from _states(session, spot, ids)
            last = ids[-1]


def _next_ids(session: Session, spot: Location, last: int) -> list[int]:
    place = (spot.tenant, spot.id, last, ENTRIES_A_READ)
    rows = session.rows(
        "(SELECT id FROM entry WHERE tenant = %s AND namespace = %s AND id > %s ORDER BY id LIMIT %s) UNION"
        " (SELECT DISTINCT entry FROM history WHERE tenant = %s AND namespace = %s AND entry > %s"
        f" ORDER BY entry LIMIT %s) ORDER BY 1 LIMIT {ENTRIES_A_READ}",
        (*place, *place),
    )
    return [entry_id for (entry_id,) in rows]


def _states(session: Session, spot: Location, ids: Sequence[int]) -> Iterator[State]:
    place = (spot.tenant, list(ids))
    found = session.rows(f"SELECT {COLUMNS}, begun_by, deltas FROM entry WHERE tenant = %s AND id = ANY(%s)", place)
    live = {row.id: row for row in map(Live._make, found)}
    former: dict[int, list[Former]] = {}
    for columns in session.rows(
        f"SELECT {FORMER_COLUMNS}, begun_by, {_ENDING} FROM history WHERE tenant = %s AND entry = ANY(%s)"
        " ORDER BY entry, revision DESC",
        place,
    ):
        row = former_of(columns)
        former.setdefault(row.entry, []).append(row)
    for entry_id in ids:
        newest, newer = live.get(entry_id), NO_CONTENT
        if newest is not None:
            state, newer = live_state(spot.namespace, newest)
            yield state
        for row in former.get(entry_id, ()):
            state, newer = former_state(spot.namespace, row, newer)
            yield state


# In


def adopt(session: Session, head: NamespaceHead, states: Iterable[State], check: CheckUsage | None) -> int:
    tenant = tenant_of(head.namespace)
    row, last = _empty_namespace(session, tenant, head)
    incoming = Incoming(session, Location(head.namespace, tenant, row.id), row)
    try:
        count = adopt_states(head, states, incoming)
        incoming.finish()
    except errors.UniqueViolation as error:
        raise InvalidInput(
            f"two states of namespace {'/'.join(head.namespace)} claim the same place"
            f" ({error.diag.message_detail}); nothing was imported"
        ) from error
    if check is not None:
        check(Usage(row.entry_count, row.byte_count, row.former_states, row.former_bytes))
    if last and count:
        # Readers of the old feed would miss what was imported below their cursor. The floor tells them to read
        # everything again.
        session.send(
            "UPDATE namespace SET commit_number = greatest(commit_number, %(floor)s),"
            " former_commit = greatest(commit_number, %(floor)s),"
            " history_floor = greatest(history_floor, %(floor)s) WHERE tenant = %(tenant)s AND id = %(id)s",
            {"floor": last + 1, "tenant": tenant, "id": row.id},
        )
    return count


def analyze(session: Session, namespace: Namespace) -> None:
    """Count again what the planner knows of the partitions that hold a namespace, after many rows were added."""
    tables = ("entry", "history", "label", "chunk", "pending")
    if session.is_distributed:
        session.send("ANALYZE " + ", ".join(tables))
        return
    [(part,)] = session.rows(
        "SELECT substring(tableoid::regclass::text FROM '_p[0-9]+$') FROM namespace WHERE tenant = %s AND path = %s",
        (tenant_of(namespace), "/".join(namespace)),
    )
    session.send("ANALYZE " + ", ".join(f"{table}{part}" for table in tables))


def _empty_namespace(session: Session, tenant: str, head: NamespaceHead) -> tuple[NamespaceRow, int]:
    """The namespace's row, created or updated to the head's counters, and the last commit that it had before.

    Numbers are never reused.
    """
    path = "/".join(head.namespace)
    session.send(
        "INSERT INTO namespace (tenant, path, id) VALUES (%s, %s, nextval('identifier'))"
        " ON CONFLICT (tenant, path) DO NOTHING",
        (tenant, path),
    )
    namespace_id, commit, time, floor, chunks_ended = session.rows(
        "SELECT id, commit_number, commit_time, history_floor, chunks_ended FROM namespace"
        " WHERE tenant = %s AND path = %s FOR UPDATE",
        (tenant, path),
    )[0]
    if session.rows(
        "SELECT 1 FROM entry WHERE tenant = %(tenant)s AND namespace = %(id)s UNION ALL"
        " SELECT 1 FROM history WHERE tenant = %(tenant)s AND namespace = %(id)s LIMIT 1",
        {"tenant": tenant, "id": namespace_id},
    ):
        raise Conflict(f"namespace {path} holds entries or history already; import into an empty one, or merge")
    row = NamespaceRow(
        namespace_id, max(commit, head.commit), max(time, head.commit_time), 0, 0, chunks_ended, 0, 0, None
    )
    session.send(
        "UPDATE namespace SET commit_number = %s, commit_time = %s, history_floor = %s WHERE tenant = %s AND path = %s",
        (row.commit_number, row.commit_time, max(floor, head.history_floor), tenant, path),
    )
    return row, commit


# Many rows at once. COPY cannot write to a table with row-level security, so it writes to a temporary table first.

ROWS_A_COPY = 5_000
ROWS_FOR_A_TABLE = 500
"""Fewer rows are inserted one by one. With temporary tables for 10 rows each, 1,000 namespaces took twice as long."""
_COLUMNS = {
    "entry": f"tenant, namespace, {COLUMNS}, begun_by, deltas",
    "history": f"tenant, namespace, {FORMER_COLUMNS}, begun_by, ended_by, ended_commit, valid_to, ended_actor",
    "label": "tenant, namespace, entry, name, value",
    "chunk": "tenant, namespace, id, entry, number, start, stop, length, posting, commit_number, terms",
    "pending": "tenant, namespace, chunk, ready_at, attempts",
}


class Incoming:
    """Collects the rows of one namespace and writes them to the tables."""

    def __init__(self, session: Session, spot: Location, row: NamespaceRow) -> None:
        self._session = session
        self._spot = spot
        self._row = row
        self._ids = Identifiers(session)
        self._gathered: dict[str, list[Sequence[Any]]] = {table: [] for table in _COLUMNS}
        self._made: set[str] = set()

    def next_id(self) -> int:
        return self._ids.take()

    def add_live(self, row: Live, entry: Entry) -> None:
        self._add("entry", row)
        self._add_passages(entry, passages(entry.text))
        self._row.entry_count += 1
        self._row.byte_count += row_bytes(row)
        expires_at = row.expires_at
        if expires_at is not None and (self._row.expires_next is None or expires_at < self._row.expires_next):
            self._row.expires_next = expires_at

    def add_former(self, row: Former) -> None:
        text, value = None if row.text is None else pack_delta(row.text), pack_delta(row.value)
        self._add("history", row._replace(text=text, value=value))
        self._row.former_states += 1
        self._row.former_bytes += former_bytes(row.attributes, text, value)

    def _add_passages(self, entry: Entry, found: Sequence[Passage]) -> None:
        for name, value in sorted(labels(entry.attributes, INDEXED_ATTRIBUTES)):
            self._add("label", (entry.id, name, value))
        numbered = list(enumerate(found))
        if entry.heading:
            numbered.append((HEADING, heading_passage(entry.heading)))
        for number, one in numbered:
            chunk = self._ids.take()
            place = (chunk, entry.id, number, one.start, one.end, one.length, posting(chunk, one.length), entry.commit)
            self._add("chunk", (*place, packed_terms(one.terms)))
            if number != HEADING and one.terms:
                self._add("pending", (chunk, 0, 0))
            self._row.chunk_count += 1
            self._row.term_total += one.length

    def _add(self, table: str, columns: Sequence[Any]) -> None:
        gathered = self._gathered[table]
        gathered.append((self._spot.tenant, self._spot.id, *columns))
        if len(gathered) >= ROWS_A_COPY:
            self._flush(table)

    def _flush(self, table: str) -> None:
        names = _COLUMNS[table]
        rows, self._gathered[table] = self._gathered[table], []
        if len(rows) < ROWS_FOR_A_TABLE:
            self._session.insert_all(f"INSERT INTO {table} ({names}) VALUES ({_marks(names)})", rows)
            return
        if table not in self._made:
            self._made.add(table)
            self._session.send(
                f"CREATE TEMPORARY TABLE incoming_{table} ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA"
            )
        self._session.copy_in(f"COPY incoming_{table} ({names}) FROM STDIN", rows)
        self._session.send(f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming_{table}")
        self._session.send(f"TRUNCATE incoming_{table}")

    def finish(self) -> None:
        """Write the collected rows and the namespace's counters."""
        for table in _COLUMNS:
            self._flush(table)
        row = self._row
        self._session.send(
            "UPDATE namespace SET chunk_count = %s, term_total = %s, entry_count = %s, byte_count = %s,"
            " expires_next = %s, former_states = %s, former_bytes = %s, former_commit = commit_number,"
            " chunks_ended = chunks_ended + 1 WHERE tenant = %s AND path = %s",
            (
                row.chunk_count,
                row.term_total,
                row.entry_count,
                row.byte_count,
                row.expires_next,
                row.former_states,
                row.former_bytes,
                self._spot.tenant,
                "/".join(self._spot.namespace),
            ),
        )


def _marks(names: str) -> str:
    return ", ".join(["%s"] * len(names.split(", ")))


# Backups: a snapshot of every table in one file, which can be restored into an empty schema. The file is a zip with a
# member for each table, in the text form of COPY, and `commonplace.json` with the schema's number and the next id.

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
            f"{source} is not a backup of a book on PostgreSQL ({error}); to copy a book file to PostgreSQL, use "
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
            # COPY cannot write to a table with row-level security.
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
    """A file-like object that writes to a COPY."""

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


# Reads the tables of another program's database, in one snapshot and some rows at a time


class ForeignTables:
    """The tables of the database as they were when it was opened; the same as those of a SQLite file."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns; empty if there is no such table. A view is none."""
        rows = self._connection.execute(
            "SELECT attname FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid"
            " WHERE attrelid = to_regclass(%s) AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum",
            (f'"{table}"',),
        )
        return [str(row[0]) for row in rows.fetchall()]

    def count(self, table: str) -> int:
        rows = self._connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        return int(rows.fetchall()[0][0])

    def rows(self, table: str, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Each row under the names given for the columns; every value comes as a text."""
        chosen = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in columns.values())
        with self._connection.cursor("commonplace_import") as cursor:
            cursor.itersize = ENTRIES_A_READ
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(chosen, sql.Identifier(table)))
            for row in cursor:
                yield dict(zip(columns, row, strict=True))


@contextmanager
def open_foreign(url: str) -> Iterator[ForeignTables]:
    """Open another program's database to read it."""
    place = parse_url(url)
    with translated(place.shown), psycopg.connect(url, connect_timeout=10) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield ForeignTables(connection)
        connection.rollback()
