"""Export and import of whole namespaces: every state, live and former, without loss.

States are ordered by entry, the newest first. So each former text is decoded from the one read just before it, and
stored as a delta of the one written just before it. Only one text is in memory at a time, however long the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from commonplace.backends.rows import NO_CONTENT, Former, Live, adopt_states, former_state, live_state
from commonplace.backends.sqlite import damage
from commonplace.backends.sqlite.checksums import (
    FORMER,
    LIVE,
    STORED_FORMER,
    STORED_LIVE,
    check_former,
    check_live,
    former_row,
    former_sum,
    live_entry,
    live_row,
    live_sum,
    stored_former,
    stored_live,
)
from commonplace.backends.sqlite.connection import APPLICATION_ID, Connection, translated
from commonplace.backends.sqlite.index import EntryIndex
from commonplace.backends.sqlite.reader import usage_of
from commonplace.backends.sqlite.writer import MOST_IDS, Group, NamespaceRow, read_namespace
from commonplace.checks import Namespace
from commonplace.entry import Entry
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.store import CheckUsage, NamespaceHead, State

MORE_IDS = 100_000
"""A highest id that is more than this above twice what most of the other sources say is damaged."""
_HEADS = "SELECT id, path, commit_number, commit_time, history_floor FROM namespace"


def _insert(table: str, columns: str) -> str:
    names = columns.split(", ")
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))})"


_INSERT_LIVE = _insert("entry", STORED_LIVE)
_INSERT_FORMER = _insert("history", STORED_FORMER)


# Out


def export(connection: Connection, namespaces: Sequence[Namespace] | None) -> Iterator[NamespaceHead | State]:
    if namespaces is None:
        heads = connection.execute(f"{_HEADS} ORDER BY path").fetchall()
    else:
        paths = sorted("/".join(namespace) for namespace in namespaces)
        heads = [row for path in paths for row in connection.execute(f"{_HEADS} WHERE path = ?", (path,)).fetchall()]
    for namespace_id, path, *counters in heads:
        namespace = tuple(path.split("/"))
        yield NamespaceHead(namespace, *counters)
        ids = connection.execute(
            "SELECT id FROM entry WHERE namespace = ?1 UNION SELECT entry FROM history WHERE namespace = ?1 ORDER BY 1",
            (namespace_id,),
        )
        for (entry_id,) in ids:
            yield from _states(connection, namespace, entry_id)


def _states(connection: Connection, namespace: Namespace, entry_id: int) -> Iterator[State]:
    newer = NO_CONTENT
    for row in connection.execute(f"SELECT {LIVE} FROM entry WHERE id = ?", (entry_id,)).fetchall():
        check_live(namespace, row)
        state, newer = live_state(namespace, live_row(row))
        yield state
    for row in connection.execute(f"SELECT {FORMER} FROM history WHERE entry = ? ORDER BY revision DESC", (entry_id,)):
        check_former(namespace, row)
        state, newer = former_state(namespace, former_row(row), newer)
        yield state


# Out of a damaged file


def salvage(
    connection: Connection, namespaces: Sequence[Namespace] | None, unreadable: Callable[[str], object]
) -> Iterator[NamespaceHead | State]:
    """Every state that can be read. Every id up to the highest is looked up, so no list of ids is needed."""
    paths = damage.paths_of(connection)
    wanted = None if namespaces is None else {"/".join(namespace) for namespace in namespaces}
    ids = _ids_by_namespace(connection, paths, unreadable if namespaces is None else lambda text: None)
    for number, path in sorted(paths.items(), key=lambda item: item[1]):
        if wanted is not None and path not in wanted:
            continue
        namespace = tuple(path.split("/"))
        states = (
            state
            for entry_id in ids.get(number, ())
            for state in _salvaged_states(connection, namespace, number, entry_id, unreadable)
        )
        try:
            row = read_namespace(connection, namespace)
        except damage.UNREADABLE:
            row = None
        if row is not None:
            yield NamespaceHead(namespace, row.commit_number, row.commit_time, row.history_floor)
            yield from states
            continue
        unreadable(f"the counters of namespace {path}: the last commit that was found is used as its last commit")
        found = list(states)
        commits = [one.commit for state in found for one in (state.entry, state.ended) if one is not None]
        times = [time for state in found for time in (state.valid_from, state.ended.at if state.ended else 0)]
        yield NamespaceHead(namespace, max(commits, default=0), max(times, default=0), 0)
        yield from found


def _ids_by_namespace(
    connection: Connection, paths: Mapping[int, str], unreadable: Callable[[str], object]
) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry_id in range(1, _last_id(connection) + 1):
        for sql in (
            "SELECT namespace FROM entry WHERE id = ?",
            "SELECT namespace FROM history WHERE entry = ? LIMIT 1",
        ):
            try:
                rows = connection.execute(sql, (entry_id,)).fetchall()
            except damage.UNREADABLE:
                unreadable(f"entry {entry_id}: its page is damaged")
                break
            if rows and rows[0][0] in paths:
                found.setdefault(rows[0][0], []).append(entry_id)
                break
            if rows:
                unreadable(f"entry {entry_id}: its namespace is not known")
    return found


def _last_id(connection: Connection) -> int:
    """The highest id in use, from what can still be read. A damaged number must not be trusted."""
    found = [0]
    for sql in (
        "SELECT max(id) FROM entry NOT INDEXED",
        "SELECT id FROM entry INDEXED BY entry_key",
        "SELECT id FROM entry INDEXED BY entry_commit",
        "SELECT max(entry) FROM history INDEXED BY history_entry",
        "SELECT max(entry) FROM chunk INDEXED BY chunk_entry",
        "SELECT entry FROM next_id",
    ):
        try:
            numbers = [row[0] for row in connection.execute(sql) if type(row[0]) is int]
        except damage.UNREADABLE:
            continue
        found += [max(numbers, default=0)]
    likely = sorted(number for number in found if number < MOST_IDS)
    middle = likely[len(likely) // 2]
    return max(number for number in likely if number <= 2 * middle + MORE_IDS)


def _salvaged_live(connection: Connection, namespace: Namespace, place: int, entry_id: int) -> Live | None:
    """The live row. If its key is damaged in the row, the index may still have it."""
    try:
        for row in connection.execute(f"SELECT {LIVE} FROM entry WHERE id = ?", (entry_id,)).fetchall():
            live_entry(namespace, row)
            return live_row(row)
        return None
    except damage.UNREADABLE:
        (row,) = connection.execute(
            f"SELECT {LIVE} FROM entry INDEXED BY entry_key WHERE namespace = ? AND id = ?", (place, entry_id)
        ).fetchall()
        live_entry(namespace, row)
        return live_row(row)


def _salvaged_states(
    connection: Connection, namespace: Namespace, place: int, entry_id: int, unreadable: Callable[[str], object]
) -> Iterator[State]:
    newer = NO_CONTENT
    try:
        live = _salvaged_live(connection, namespace, place, entry_id)
        if live is not None:
            state, newer = live_state(namespace, live)
            yield state
    except damage.UNREADABLE:
        unreadable(f"{damage.name_of(connection, 'entry', entry_id, {}, namespace)[0]}: its present state")
    try:
        former = connection.execute(
            "SELECT id FROM history WHERE entry = ? ORDER BY revision DESC", (entry_id,)
        ).fetchall()
    except damage.UNREADABLE:
        unreadable(f"entry {entry_id} of namespace {'/'.join(namespace)}: its history")
        return
    for (number,) in former:
        try:
            (row,) = connection.execute(f"SELECT {FORMER} FROM history WHERE id = ?", (number,)).fetchall()
            check_former(namespace, row)
            state, newer = former_state(namespace, former_row(row), newer)
        except damage.UNREADABLE:
            unreadable(f"{damage.name_of(connection, 'history', number, {}, namespace)[0]}: a former state")
            newer = NO_CONTENT
            continue
        yield state


# In


def adopt(
    connection: Connection,
    group: Group,
    head: NamespaceHead,
    states: Iterable[State],
    check: CheckUsage | None,
) -> int:
    row, last = _empty_namespace(connection, group, head)
    try:
        incoming = _Incoming(connection, group, row, head.namespace)
        count = adopt_states(head, states, incoming, flag=int)
        incoming.settle()
    except apsw.ConstraintError as error:
        raise InvalidInput(
            f"two states of namespace {'/'.join(head.namespace)} claim the same place ({error}); nothing was imported"
        ) from error
    if check is not None:
        check(usage_of(connection, row.id, None))
    # Readers of the old feed would miss what was imported below their cursor. The floor tells them to read everything
    # again.
    floor = last + 1 if last and count else 0
    row.commit_number = max(row.commit_number, floor)
    row.history_floor = max(row.history_floor, floor)
    row.is_changed = True
    group.namespaces[head.namespace] = row
    return count


def _empty_namespace(connection: Connection, group: Group, head: NamespaceHead) -> tuple[NamespaceRow, int]:
    """The namespace's row, created or updated to the head's counters, and the last commit that it had before.

    Numbers are never reused.
    """
    path = "/".join(head.namespace)
    refusal = Conflict(f"namespace {path} holds entries or history already; import into an empty one, or merge")
    kept = group.namespaces.get(head.namespace)
    if kept is not None and (kept.is_new or kept.is_changed):  # written to by another thread just now
        raise refusal
    known = read_namespace(connection, head.namespace)
    if known is None:
        row = NamespaceRow(group.next_id("namespace"), head.commit, head.commit_time, head.history_floor, 0, 0, 0)
        row.is_new = True
        return row, 0
    for table in ("entry", "history"):
        if connection.execute(f"SELECT 1 FROM {table} WHERE namespace = ? LIMIT 1", (known.id,)).fetchall():
            raise refusal
    last = known.commit_number
    known.commit_number = max(last, head.commit)
    known.commit_time = max(known.commit_time, head.commit_time)
    known.history_floor = max(known.history_floor, head.history_floor)
    known.chunk_count = known.term_total = 0
    return known, last


class _Incoming:
    """Writes the rows of one namespace to the file."""

    def __init__(self, connection: Connection, group: Group, row: NamespaceRow, namespace: Namespace) -> None:
        self._connection = connection
        self._group = group
        self._number = row.id
        self._index = EntryIndex(connection, group, row, namespace)
        self.settle = self._index.settle

    def next_id(self) -> int:
        return self._group.next_id("entry")

    def add_live(self, row: Live, entry: Entry) -> None:
        written = (*row, self._number)
        self._connection.execute(_INSERT_LIVE, stored_live((*written, live_sum(written))))
        self._index.add(entry, None)

    def add_former(self, row: Former) -> None:
        written = (*row.beginning, self._number, *row.ending)
        self._connection.execute(_INSERT_FORMER, stored_former((*written, former_sum(written))))


# Reads the tables of another program's SQLite file, in one snapshot and a row at a time

BUSY_SECONDS = 10

# Text is read as bytes, since a row that is not UTF-8 must not stop the import; SQLite's binary JSON is read as text.
_READ = (
    "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB)"
    " WHEN 'blob' THEN CASE WHEN json_valid({0}, 8) THEN CAST(json({0}) AS BLOB) ELSE {0} END ELSE {0} END"
)


class ForeignTables:
    """The tables of the file as they were when it was opened."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns; empty if there is no such table.

        A view or a virtual table is none: reading it would run what the file says.
        """
        rows = self._connection.execute(
            "SELECT name FROM pragma_table_info(?1) WHERE EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1"
            " AND type = 'table' AND sql NOT LIKE 'create virtual%')",
            (table,),
        )
        return [str(row[0]) for row in rows]

    def count(self, table: str) -> int:
        rows: list[Any] = self._connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchall()
        return int(rows[0][0])

    def rows(self, table: str, columns: Mapping[str, str], by: str | None = None) -> Iterator[dict[str, Any]]:
        """Each row in the order of insertion, under the names given for the columns; texts come as bytes.

        `by` is a column whose equal values come together.
        """
        chosen = ", ".join(_READ.format(_quoted(column)) for column in columns.values())
        orders = [] if by is None else [_quoted(by)]
        orders += [] if self._is_without_rowid(table) else ["rowid"]
        order = f" ORDER BY {', '.join(orders)}" if orders else ""
        for row in self._connection.execute(f"SELECT {chosen} FROM {_quoted(table)}{order}"):
            yield dict(zip(columns, row, strict=True))

    def _is_without_rowid(self, table: str) -> bool:
        rows = self._connection.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table,)).fetchall()
        return bool(rows and rows[0][0])


@contextmanager
def open_foreign(path: Path) -> Iterator[ForeignTables]:
    """Open a file that another program may also have open."""
    if not path.is_file():
        raise NotFound(f"there is no file {path} to import")
    with translated(str(path)):
        try:
            connection = _snapshot(path)
        except apsw.NotADBError as error:
            raise InvalidInput(f"{path} is not a SQLite database; give the memory.db that Mastra wrote") from error
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
        # A file in WAL mode needs a log next to it, which cannot be created in a read-only folder. If there is no log
        # yet, nobody is writing, and the file is complete.
        if Path(f"{path.resolve()}-wal").exists():
            raise
        return _reading(f"file:{quote(str(path))}?mode=ro&immutable=1")


def _reading(uri: str) -> apsw.Connection:
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        connection.set_busy_timeout(BUSY_SECONDS * 1_000)
        connection.execute("PRAGMA trusted_schema = OFF").fetchall()
        connection.execute("PRAGMA cell_size_check = ON").fetchall()
        connection.execute("BEGIN").fetchall()
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
