"""Whole namespaces out of the file and into it: every state, live and former, with nothing lost on the way.

States go entry by entry, the newest first, so that each former text is made from the one read just before it, and
kept as a delta to the one written just before it: one text in memory at a time, however long the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import apsw

from commonplace.backends import deltas
from commonplace.backends.replaying import Replay, columns_of
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import Group, NamespaceRow
from commonplace.backends.sqlite.indexed import EntryIndex
from commonplace.backends.states import COLUMNS, FORMER_COLUMNS, entry_of
from commonplace.checks import Namespace
from commonplace.errors import Conflict, InvalidInput
from commonplace.language.passages import passages
from commonplace.store import Ending, NamespaceHead, State

_HEADS = "SELECT id, path, commit_number, commit_time, history_floor FROM namespace"
_ENDING = "ended_by, ended_commit, valid_to, ended_actor"
_WIDTH = len(COLUMNS.split(", "))


def _insert(table: str, columns: str) -> str:
    names = columns.split(", ")
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))})"


_INSERT_LIVE = _insert("entry", f"{COLUMNS}, begun_by, namespace, deltas")
_INSERT_FORMER = _insert("history", f"{FORMER_COLUMNS}, begun_by, namespace, {_ENDING}")


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
    newer: tuple[str | None, str | None] = (None, None)
    for row in connection.execute(f"SELECT {COLUMNS}, begun_by FROM entry WHERE id = ?", (entry_id,)).fetchall():
        newer = row[_WIDTH - 2], row[_WIDTH - 1]
        yield State(entry_of(namespace, row), row[_WIDTH], row[8], None)
    for row in connection.execute(
        f"SELECT {FORMER_COLUMNS}, begun_by, {_ENDING} FROM history WHERE entry = ? ORDER BY revision DESC", (entry_id,)
    ):
        kept_text, kept_value = row[_WIDTH - 2], row[_WIDTH - 1]
        text = None if kept_text is None else deltas.decode_last(newer[0], [kept_text])
        value = deltas.decode_last(newer[1], [kept_value])
        newer = text, value
        whole = (*row[: _WIDTH - 2], text, value)
        yield State(entry_of(namespace, whole), row[_WIDTH], row[8], Ending(*row[_WIDTH + 1 :]))


# In


def adopt(connection: Connection, group: Group, head: NamespaceHead, states: Iterable[State]) -> int:
    row, last = _empty_namespace(connection, group, head)
    count = 0
    try:
        writing: _Writing | None = None
        for state in states:
            if writing is None or state.entry.id != writing.number:
                if writing is not None and state.entry.id < writing.number:
                    raise InvalidInput(f"entry {state.entry.id} comes after entry {writing.number}; keep the order")
                if writing is not None:
                    writing.finish()
                writing = _Writing(connection, group, row, state.entry.id)
            writing.add(head, state)
            count += 1
        if writing is not None:
            writing.finish()
    except apsw.ConstraintError as error:
        raise InvalidInput(
            f"two states of namespace {'/'.join(head.namespace)} claim the same place ({error}); nothing was imported"
        ) from error
    # Readers of the old feed would miss what came in below their cursor: the floor tells them to read all again.
    floor = last + 1 if last and count else 0
    row.commit_number = max(row.commit_number, floor)
    connection.execute(
        "UPDATE namespace SET commit_number = ?, history_floor = max(history_floor, ?), chunk_count = ?,"
        " term_total = ? WHERE id = ?",
        (row.commit_number, floor, row.chunk_count, row.term_total, row.id),
    )
    group.namespaces[head.namespace] = row
    return count


def _empty_namespace(connection: Connection, group: Group, head: NamespaceHead) -> tuple[NamespaceRow, int]:
    """The namespace's row, made or brought to the head's counters, and the last commit that it had before.

    Numbers that were given out never come back.
    """
    path = "/".join(head.namespace)
    refusal = Conflict(f"namespace {path} holds entries or history already; import into an empty one, or merge")
    if head.namespace in group.namespaces:  # written to by another thread just now
        raise refusal
    known = connection.execute(
        "SELECT id, commit_number, commit_time, history_floor, chunks_ended FROM namespace WHERE path = ?", (path,)
    ).fetchall()
    if not known:
        namespace_id = group.next_id("namespace")
        connection.execute(
            "INSERT INTO namespace (id, path, commit_number, commit_time, history_floor, chunk_count, term_total,"
            " chunks_ended) VALUES (?, ?, ?, ?, ?, 0, 0, 0)",
            (namespace_id, path, head.commit, head.commit_time, head.history_floor),
        )
        return NamespaceRow(namespace_id, head.commit, head.commit_time, 0, 0, 0), 0
    namespace_id, commit, time, floor, chunks_ended = known[0]
    for table in ("entry", "history"):
        if connection.execute(f"SELECT 1 FROM {table} WHERE namespace = ? LIMIT 1", (namespace_id,)).fetchall():
            raise refusal
    row = NamespaceRow(namespace_id, max(commit, head.commit), max(time, head.commit_time), 0, 0, chunks_ended)
    connection.execute(
        "UPDATE namespace SET commit_number = ?, commit_time = ?, history_floor = ? WHERE id = ?",
        (row.commit_number, row.commit_time, max(floor, head.history_floor), namespace_id),
    )
    return row, commit


class _Writing:
    """One entry's states on their way in, the newest first."""

    def __init__(self, connection: Connection, group: Group, row: NamespaceRow, number: int) -> None:
        self.number = number
        self._connection = connection
        self._group = group
        self._row = row
        self._id = group.next_id("entry")
        self._replay = Replay(number)
        self._is_live = False

    def add(self, head: NamespaceHead, state: State) -> None:
        entry, ended = state.entry, state.ended
        columns = (*columns_of(self._id, state, *self._replay.take(head, state)), self._row.id)
        if ended is None:
            self._is_live = True
            self._connection.execute(_INSERT_LIVE, (*columns, 0))
            EntryIndex(self._connection, self._group, self._row).add(replace(entry, id=self._id), passages(entry.text))
        else:
            self._connection.execute(_INSERT_FORMER, (*columns, ended.action, ended.commit, ended.at, ended.actor))

    def finish(self) -> None:
        if self._is_live and self._replay.splices:
            self._connection.execute("UPDATE entry SET deltas = ? WHERE id = ?", (self._replay.splices, self._id))
