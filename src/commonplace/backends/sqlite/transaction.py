"""One atomic change of one namespace: states, their history, labels, passages, keywords and pending marks together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from commonplace.backends import deltas
from commonplace.backends.sqlite import bulk, reading, system
from commonplace.backends.sqlite.checksums import (
    FORMER,
    HEAD,
    LIVE,
    changed_sum,
    check_live,
    check_live_head,
    former_sum,
    live_sum,
)
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import NAMESPACE_COLUMNS, Group, NamespaceRow, check_namespace_row
from commonplace.backends.sqlite.index import EntryIndex
from commonplace.backends.states import dump, entry_of, prefixed
from commonplace.backends.times import commit_time
from commonplace.checks import JSON, Namespace, check_key
from commonplace.entry import Draft, Entry, Revision
from commonplace.errors import Conflict, NotFound
from commonplace.filters import Filter
from commonplace.store import Child, Page, Scan, Transaction, Usage

SWEEP_LIMIT = 500
AFTER_LOSS = 2
"""The loss of a key's last state took a revision number of its own."""

_LIVE = prefixed(LIVE, "e")
_WRITTEN = LIVE.split(", ")
_MARKS = [f"?{number}" for number in range(1, len(_WRITTEN) + 1)]
_INSERT = f"INSERT INTO entry ({', '.join(_WRITTEN)}) VALUES ({', '.join(_MARKS)})"
_KEEP = f"INSERT INTO history ({FORMER}) VALUES ({', '.join('?' * len(FORMER.split(', ')))})"
_ASSIGNMENTS = [f"{name} = {mark}" for name, mark in zip(_WRITTEN, _MARKS, strict=True)]
_UPDATE = f"UPDATE entry SET {', '.join(_ASSIGNMENTS[3:])} WHERE id = ?1 AND kind = ?2 AND key = ?3"
# Without the value and the text: their pages stay as they are.
_MOVE = f"UPDATE entry SET {', '.join(_ASSIGNMENTS[1:14] + _ASSIGNMENTS[16:])} WHERE id = ?1"


class SQLiteTransaction(Transaction):
    """Takes a commit number with its first change; a transaction that changes nothing leaves no trace."""

    def __init__(
        self,
        connection: Connection,
        group: Group,
        namespace: Namespace,
        now: Callable[[], int],
        actor: str | None,
    ) -> None:
        self._connection = connection
        self._group = group
        self._namespace = namespace
        self._actor = actor
        self._has_expired = False
        known = group.namespaces.get(namespace)
        at = now()
        self._row = self._read_namespace(at) if known is None else known.copy()
        self._time = commit_time(at, self._row.commit_time)
        self._has_commit = False
        self._index = EntryIndex(connection, group, self._row)
        if self._has_expired:
            self._sweep()

    def _read_namespace(self, now: int) -> NamespaceRow:
        """The row, and whether something in the namespace has expired since the last commit there."""
        path = "/".join(self._namespace)
        rows = self._connection.execute(
            f"SELECT {NAMESPACE_COLUMNS}, checksum,"
            " EXISTS (SELECT 1 FROM entry WHERE namespace = n.id AND expires_at <= max(?, n.commit_time + 1))"
            " FROM namespace AS n WHERE path = ?",
            (now, path),
        ).fetchall()
        if not rows:
            return NamespaceRow(0, 0, 0, 0, 0, 0, 0, is_new=True)
        *columns, checksum, self._has_expired = rows[0]
        check_namespace_row(path, columns, checksum)
        return NamespaceRow(*columns)

    def raise_floor(self, commit: int) -> None:
        """The feed no longer reaches back before a commit."""
        if commit > self._row.history_floor:
            self._row.history_floor = commit
            self._row.is_changed = True
            self._group.namespaces[self._namespace] = self._row

    def finish(self) -> int | None:
        """Hand the counters back to the group; the commit's number, or None when nothing was changed."""
        if not self._has_commit:
            return None
        self._group.namespaces[self._namespace] = self._row
        return self._row.commit_number

    @property
    def namespace_id(self) -> int:
        return self._row.id

    @property
    def time(self) -> int:
        return self._time

    @property
    def _commit(self) -> int:
        """This change's commit number, taken on first use."""
        if not self._has_commit:
            self._has_commit = True
            if not self._row.id:
                self._row.id = self._group.next_id("namespace")
            self._row.commit_number += 1
            self._row.commit_time = self._time
            self._row.is_changed = True
        return self._row.commit_number

    # Reads

    def get(self, kind: str, key: str) -> Entry | None:
        return reading.get(self._connection, self._namespace, self._row.id, kind, key, self._time)

    def find(self, kind: str, identity: str) -> Entry | None:
        return reading.find(self._connection, self._namespace, self._row.id, kind, identity, self._time)

    def scan(self, scan: Scan) -> Page:
        return reading.scan(self._connection, self._namespace, self._row.id, scan, self._time)

    def children(self, kind: str, prefix: str) -> list[Child]:
        return reading.children(self._connection, self._namespace, self._row.id, kind, prefix, self._time)

    def history(self, kind: str, key: str) -> list[Revision]:
        return reading.history(self._connection, self._namespace, self._row.id, kind, key, self._time)

    def was_used(self, kind: str, first: str, last: str) -> bool:
        return reading.was_used(self._connection, self._row.id, kind, first, last)

    def state(self, kind: str, key: str, revision: int) -> Entry | None:
        return reading.state(self._connection, self._namespace, self._row.id, kind, key, revision)

    def begun(self, commit: int) -> list[Entry]:
        return reading.begun(self._connection, self._namespace, self._row.id, commit)

    def ended(self, commit: int) -> list[Entry]:
        return reading.ended(self._connection, self._namespace, self._row.id, commit)

    def usage(self) -> Usage:
        self._sweep_all()
        return system.usage(self._connection, self._row.id)

    def operation(self, key: str) -> JSON | None:
        return system.operation(self._connection, self._row.id, key, self._time)

    # Writes

    def put(self, draft: Draft, *, is_fresh: bool = False, is_restored: bool = False) -> Entry:
        if self.screen is not None:
            draft = self.screen(draft)
        is_json = not isinstance(draft.value, str)
        value = dump(draft.value) if is_json else draft.value
        assert isinstance(value, str)
        text = None if not is_json and draft.searchable == value else draft.searchable
        former, revision = (None, 1) if is_fresh else self._place(draft.kind, draft.key)
        commit = self._commit
        if former is None:
            entry_id, begun_by, in_a_row = self._group.next_id("entry"), "created", 0
            created_at = self._time if draft.created_at is None else draft.created_at
        else:
            entry_id, begun_by = former[0], "updated"
            if draft.identity not in (None, former[3]):
                self._free_identity(draft)
            created_at = former[9] if draft.created_at is None else draft.created_at
            in_a_row = self._keep_former(former, text, value, ended_by="updated", valid_to=self._time)
        if is_restored:
            begun_by = "restored"
        updated_at = self._time if draft.updated_at is None else draft.updated_at
        row = (
            entry_id,
            draft.kind,
            draft.key,
            draft.identity,
            int(is_json),
            dump(draft.attributes),
            revision,
            commit,
            self._time,
            created_at,
            updated_at,
            draft.expires_at,
            self._actor,
            draft.heading,
            text,
            value,
        )
        written = (*row, begun_by, in_a_row, self._row.id)
        sql, parameters = _INSERT if former is None else _UPDATE, (*written, live_sum(written))
        try:
            self._connection.execute(sql, parameters)
        except apsw.ConstraintError:
            self._free_identity(draft)
            self._connection.execute(sql, parameters)
        entry = Entry(
            id=entry_id,
            namespace=self._namespace,
            kind=draft.kind,
            key=draft.key,
            value=draft.value,
            text=draft.searchable,
            heading=draft.heading,
            attributes=draft.attributes,
            identity=draft.identity,
            revision=revision,
            commit=commit,
            created_at=created_at,
            updated_at=updated_at,
            expires_at=draft.expires_at,
            actor=self._actor,
        )
        if former is None:
            self._index.add(entry, draft.passages)
        else:
            self._index.change(entry_of(self._namespace, former), entry)
        return entry

    def delete(self, kind: str, key: str) -> Entry | None:
        row = self._live_row(kind, key)
        return None if row is None else self._end(row, ended_by="deleted", valid_to=self._time)

    def move(self, kind: str, key: str, new_key: str, heading: str | None) -> Entry:
        row = self._live_row(kind, key)
        if row is None:
            raise NotFound(f"no {kind} with this key to move")
        if self._live_row(kind, check_key(new_key)) is not None:
            raise Conflict(f"a {kind} with the new key exists already")
        commit = self._commit
        revision = max(row[6] + 1, self._place(kind, new_key)[1])
        in_a_row = self._keep_former(row, row[14], row[15], ended_by="moved_away", valid_to=self._time)
        written = (
            *(row[0], kind, new_key, *row[3:6], revision, commit, self._time, row[9], self._time, row[11]),
            *(self._actor, heading, row[14], row[15], "moved_here", in_a_row, self._row.id),
        )
        self._connection.execute(_MOVE, (*written, live_sum(written)))
        moved = self.get(kind, new_key)
        assert moved is not None
        self._index.change(entry_of(self._namespace, row), moved)
        return moved

    def delete_range(self, kind: str, prefix: str) -> int:
        if not self._has_range(kind, prefix):
            return 0
        return bulk.delete_range(self._connection, self._namespace, self._index, self._range(kind, prefix))

    def move_range(self, kind: str, prefix: str, new_prefix: str, heading_of: Callable[[str], str | None]) -> int:
        check_key(new_prefix)
        if not self._has_range(kind, prefix):
            return 0
        if self._has_range(kind, new_prefix):
            raise Conflict(f"there are {kind} entries with the new prefix already")
        place = (self._connection, self._namespace)
        return bulk.move_range(*place, self._index, self._range(kind, prefix), new_prefix, heading_of)

    def _has_range(self, kind: str, prefix: str) -> bool:
        """Whether live entries have a prefix."""
        self._sweep_all()
        return bool(self.scan(Scan(Filter(kinds=(kind,), key_prefix=prefix), limit=1)).entries)

    def _range(self, kind: str, prefix: str) -> bulk.Range:
        return bulk.Range(self._row.id, kind, check_key(prefix), self._commit, self._time, self._actor)

    def touch(self, kind: str, key: str) -> None:
        for *head, checksum in self._connection.execute(
            f"SELECT {HEAD} FROM entry WHERE namespace = ? AND kind = ? AND key = ?", (self._row.id, kind, key)
        ).fetchall():
            check_live_head(self._namespace, (*head, checksum))
            head[10] = self._time
            self._connection.execute(
                "UPDATE entry SET updated_at = ?, checksum = ? WHERE id = ?",
                (self._time, changed_sum(head, checksum), head[0]),
            )

    def record_operation(self, key: str, value: JSON, *, expires_at: int) -> None:
        if self._row.id:
            system.record_operation(self._connection, self._row.id, key, value, expires_at=expires_at, now=self._time)

    # States and their history

    def _live_row(self, kind: str, key: str) -> Sequence[Any] | None:
        """The live row of a key; one that has expired is ended on the way."""
        return self._place(kind, key)[0]

    def _place(self, kind: str, key: str) -> tuple[Sequence[Any] | None, int]:
        """The live row of a key, and the revision that its next state gets: above all that the key ever had."""
        *row, last = self._connection.execute(
            f"SELECT {_LIVE}, (SELECT max(revision) FROM history WHERE namespace = ?1 AND kind = ?2 AND key = ?3)"
            " FROM (SELECT 1) LEFT JOIN entry AS e ON e.namespace = ?1 AND e.kind = ?2 AND e.key = ?3",
            (self._row.id, kind, key),
        ).fetchall()[0]
        if row[0] is None:
            return None, 1 if last is None else last + AFTER_LOSS
        check_live(self._namespace, row)
        if row[11] is not None and row[11] <= self._time:
            self._expire(row)
            return None, row[6] + AFTER_LOSS
        return row, row[6] + 1

    def _sweep(self) -> int:
        """End what has expired, so that history and the feed tell of it; how many, up to a limit."""
        if not self._row.id:
            return 0
        expired = self._connection.execute(
            f"SELECT {_LIVE} FROM entry AS e WHERE namespace = ? AND expires_at <= ? LIMIT {SWEEP_LIMIT}",
            (self._row.id, self._time),
        ).fetchall()
        for row in expired:
            check_live(self._namespace, row)
            self._expire(row)
        return len(expired)

    def _sweep_all(self) -> None:
        """End what has expired, however many."""
        while self._sweep() == SWEEP_LIMIT:
            continue

    def _expire(self, row: Sequence[Any]) -> None:
        """End a state at its time, not at this commit's; one that was written too late never was valid."""
        self._end(row, ended_by="expired", valid_to=max(row[11], row[8]))

    def _end(self, row: Sequence[Any], *, ended_by: str, valid_to: int) -> Entry:
        self._keep_former(row, None, None, ended_by=ended_by, valid_to=valid_to)
        entry = entry_of(self._namespace, row)
        self._connection.execute("DELETE FROM entry WHERE id = ?", (entry.id,))
        self._index.remove(entry)
        return entry

    def _keep_former(
        self, row: Sequence[Any], new_text: str | None, new_value: str | None, *, ended_by: str, valid_to: int
    ) -> int:
        """Write a live row to history as a delta to what replaces it; how many splices in a row that makes."""
        commit = self._commit
        text, value, begun_by, in_a_row = row[14:18]
        kept_text, kept_value, in_a_row = deltas.kept_of(text, value, new_text, new_value, in_a_row)
        ended_actor = None if ended_by == "expired" else self._actor
        ending = (begun_by, self._row.id, ended_by, commit, valid_to, ended_actor)
        former = (*row[:14], kept_text, kept_value, *ending)
        self._connection.execute(_KEEP, (*former, former_sum(former)))
        return in_a_row

    def _free_identity(self, draft: Draft) -> None:
        """End an expired entry that still holds the identity; refuse to take it from a live one."""
        for row in self._connection.execute(
            f"SELECT {_LIVE} FROM entry AS e WHERE namespace = ? AND kind = ? AND identity = ?",
            (self._row.id, draft.kind, draft.identity),
        ).fetchall():
            check_live(self._namespace, row)
            if row[11] is None or row[11] > self._time:
                raise Conflict(f"another {draft.kind} has the identity {draft.identity} already")
            self._expire(row)
