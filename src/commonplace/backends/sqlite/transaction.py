"""One atomic change of one namespace: states, their history, labels, passages, keywords and pending marks together.

The rules are in `ledger`; this is their SQL. Changes of a whole range of keys have statements over the range, so that a
tree of 100,000 files takes seconds, not minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apsw

from commonplace.backends.ledger import Ledger, commit_time
from commonplace.backends.pages import after_prefix
from commonplace.backends.rows import HEAD, NAMES, Former, Live, dump, entry_of, labels, prefixed
from commonplace.backends.sqlite.backlog import Place
from commonplace.backends.sqlite.checksums import (
    FORMER,
    LIVE,
    LIVE_HEAD_SUMMED,
    SHORT_BYTES,
    STORED_FORMER,
    STORED_LIVE,
    changed_sum,
    check_live,
    check_row,
    former_sum,
    identity_key,
    live_head,
    live_row,
    live_sum,
    next_sum,
    row_sum,
    stored_former,
    stored_live,
)
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.index import EntryIndex
from commonplace.backends.sqlite.reader import SQLiteReader
from commonplace.backends.sqlite.writer import NAMESPACE_COLUMNS, Group, NamespaceRow, check_namespace_row
from commonplace.checks import JSON, Namespace, check_key
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.errors import Conflict
from commonplace.filters import Filter
from commonplace.store import Scan

FORGOTTEN_AT_ONCE = 20
"""How many expired operations a write removes: more than it adds, so that they do not accumulate."""

IDS_A_STEP = 1_000

_FIRST_EXPIRY = "SELECT min(expires_at) FROM entry WHERE namespace = ? AND expires_at IS NOT NULL"
_NAMESPACE = (
    f"SELECT {NAMESPACE_COLUMNS}, checksum, ({_FIRST_EXPIRY.replace('?', 'n.id')}) FROM namespace AS n WHERE path = ?"
)
_LIVE = prefixed(LIVE, "e")
_WRITTEN = STORED_LIVE.split(", ")
_MARKS = [f"?{number}" for number in range(1, len(_WRITTEN) + 1)]
_INSERT = f"INSERT INTO entry ({', '.join(_WRITTEN)}) VALUES ({', '.join(_MARKS)})"
_KEEP = f"INSERT INTO history ({STORED_FORMER}) VALUES ({', '.join('?' * len(FORMER.split(', ')))})"
_ASSIGNMENTS = dict(
    zip(_WRITTEN, (f"{name} = {mark}" for name, mark in zip(_WRITTEN, _MARKS, strict=True)), strict=True)
)


def _update(*unchanged: str) -> str:
    """Pages of columns that are not assigned are not rewritten."""
    return ", ".join(assignment for name, assignment in _ASSIGNMENTS.items() if name not in unchanged)


_TOUCH = "UPDATE entry SET own_updated_at = ?, own_valid_from = ?, checksum = ? WHERE id = ?"
_UPDATE = f"UPDATE entry SET {_update('id', 'kind', 'key')} WHERE id = ?1 AND kind = ?2 AND key = ?3"
_EMPTY = "UPDATE entry SET value = '' WHERE id = ? AND kind = ? AND key = ?"
LONG_VALUE = 1 << 14
"""SQLite allocates the pages of a changed row before it frees those of the former one. So a file that is changed again
and again leaves as many free pages as it has. From this length on the row is emptied first, in the same transaction.
"""
_MOVE = f"UPDATE entry SET {_update('id', 'own_text', 'text_place', 'value')} WHERE id = ?1"

_IN_RANGE = "namespace = :namespace AND kind = :kind AND key >= :prefix AND key < :stop"
_ENDED = ":ended_by, :commit, :time, :actor"
_KEEP_RANGE = f"""
    INSERT INTO history ({STORED_FORMER})
    SELECT {", ".join(LIVE.split(", ")[HEAD])}, {{text}}, {{value}}, begun_by, namespace, {_ENDED},
        kept_sum({LIVE}, {{text}}, {{value}}, {_ENDED})
    FROM entry WHERE {_IN_RANGE}
"""


class SQLiteTransaction(Ledger, SQLiteReader):
    """The ledger on the one writing connection of a process."""

    looks_for_identities = False
    indexes_later = True
    flag = int

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
        self._last_read: Sequence[Any] | None = None  # the live row that `get` read last, unless it was changed since
        known = group.namespaces.get(namespace)
        self._row = self._read_namespace() if known is None else known.copy()
        self._number = self._row.id
        self.time = self._now = commit_time(now(), self._row.commit_time)
        self._has_commit = False
        self._index: EntryIndex = EntryIndex(connection, group, self._row, namespace)
        if self._has_expired() and known is not None:  # some may be gone since
            self._row.first_expiry = self._connection.execute(_FIRST_EXPIRY, (self._number,)).fetchall()[0][0]
        if self._has_expired():
            self._sweep()

    def _has_expired(self) -> bool:
        first_expiry = self._row.first_expiry
        return first_expiry is not None and first_expiry <= self.time

    def _read_namespace(self) -> NamespaceRow:
        path = "/".join(self._namespace)
        rows = self._connection.execute(_NAMESPACE, (path,)).fetchall()
        if not rows:
            return NamespaceRow(0, 0, 0, 0, 0, 0, 0, is_new=True, first_expiry=None)
        *columns, checksum, first_expiry = rows[0]
        check_namespace_row(path, columns, checksum)
        row = NamespaceRow(*columns)
        row.first_expiry = first_expiry
        return row

    def note_erasure(self) -> None:
        """Rows are about to be erased with their history, and their ids must not be used again."""
        self._group.has_erased = True

    def raise_floor(self, commit: int) -> None:
        """The feed no longer reaches back before a commit."""
        if commit > self._row.history_floor:
            self._row.history_floor = commit
            self._row.is_changed = True
            self._group.namespaces[self._namespace] = self._row

    def finish(self) -> int | None:
        """Hand the counters back to the group; returns the commit's number, or None if nothing was changed."""
        if not self._has_commit:
            return None
        self._index.settle_if_many()
        self._group.namespaces.pop(self._namespace, None)  # the last ones are kept
        self._group.namespaces[self._namespace] = self._row
        return self._row.commit_number

    def _waiting_place(self) -> Place | None:
        return self._row.waiting

    @property
    def namespace_id(self) -> int:
        return self._number

    # Rows

    def _take_commit(self) -> int:
        row = self._row
        if not self._has_commit:
            self._has_commit = True
            if not row.id:
                self._number = row.id = self._group.next_id("namespace")
            row.commit_number += 1
            row.commit_time = self.time
            row.is_changed = True
        return row.commit_number

    def _new_id(self) -> int:
        return self._group.next_id("entry")

    def _live_row(self, kind: str, key: str) -> tuple[Live | None, int | None]:
        if self._last_read is not None and self._last_read[NAMES] == (kind, key):
            return live_row(self._last_read), None  # the revision of a former state is not asked for
        *row, last = self._connection.execute(
            f"SELECT {_LIVE}, (SELECT max(revision) FROM history WHERE namespace = ?1 AND kind = ?2 AND key = ?3)"
            " FROM (SELECT 1) LEFT JOIN entry AS e ON e.namespace = ?1 AND e.kind = ?2 AND e.key = ?3",
            (self._number, kind, key),
        ).fetchall()[0]
        return (None if row[0] is None else self._checked(row)), last

    def _identity_row(self, kind: str, identity: str) -> Live | None:
        rows = self._connection.execute(
            f"SELECT {_LIVE} FROM entry AS e WHERE namespace = ? AND identity_key = ? AND +kind = ?",
            (self._number, identity_key(kind, identity), kind),
        ).fetchall()
        return self._checked(rows[0]) if rows else None

    def _expired_rows(self, limit: int) -> Sequence[Live]:
        if not self._number:
            return ()
        rows = self._connection.execute(
            f"SELECT {_LIVE} FROM entry AS e WHERE namespace = ? AND expires_at <= ? LIMIT {limit:d}",
            (self._number, self.time),
        ).fetchall()
        return [self._checked(row) for row in rows]

    def _checked(self, row: Sequence[Any]) -> Live:
        check_live(self._namespace, row)
        return live_row(row)

    def _insert_row(self, row: Live) -> None:
        written = (*row, self._number)
        parameters = stored_live((*written, live_sum(written)))
        try:
            self._connection.execute(_INSERT, parameters)
        except apsw.ConstraintError:
            self._free_identity(row.kind, row.identity)
            self._connection.execute(_INSERT, parameters)
        self._row.note_expiry(row.expires_at)
        self._row.memory.note_used(row.kind, row.key)

    def _begin_change(self) -> None:
        """Before an older state is changed."""
        self._index.settle()
        self._last_read = None
        self._row.memory.forget()

    def _update_row(self, row: Live, former: Live) -> None:
        last = self._last_read
        self._begin_change()
        self._row.note_expiry(row.expires_at)
        written = (*row, self._number)
        is_read = last is not None and last[NAMES] == (row.kind, row.key)
        checksum = next_sum(written, last) if is_read and last is not None else live_sum(written)
        if len(former.value) >= LONG_VALUE and len(former.value) != len(row.value):
            self._connection.execute(_EMPTY, (row.id, row.kind, row.key))
        self._connection.execute(_UPDATE, stored_live((*written, checksum)))

    def _move_row(self, row: Live) -> None:
        self._begin_change()
        written = (*row, self._number)
        self._connection.execute(_MOVE, stored_live((*written, live_sum(written)))[:-1])  # without `text_place`

    def _delete_row(self, row: Live) -> None:
        self._begin_change()
        self._group.has_erased = True  # the entry may be one without history
        self._connection.execute("DELETE FROM entry WHERE id = ?", (row.id,))

    def _keep_row(self, row: Former) -> None:
        former = (*row.beginning, self._number, *row.ending)
        self._connection.execute(_KEEP, stored_former((*former, former_sum(former))))

    def get(self, kind: str, key: str) -> Entry | None:
        row = self._last_read = self._row.memory.touched.get((kind, key)) or self._row_of(kind, key)
        return None if row is None else entry_of(self._namespace, row)

    def touch(self, kind: str, key: str) -> None:
        last, self._last_read = self._last_read, None
        memory = self._row.memory
        memory.touched.pop((kind, key), None)
        if last is not None and last[NAMES] == (kind, key):  # it was checked when it was read
            head, checksum = self._touch(live_row(last), last[-1])
            if head.expires_at is None and _content_length(head) <= SHORT_BYTES:
                memory.note_touched((kind, key), (*head, self._number, checksum))
            return
        for row in self._connection.execute(
            f"SELECT {LIVE_HEAD_SUMMED} FROM entry WHERE namespace = ? AND kind = ? AND key = ?",
            (self._number, kind, key),
        ).fetchall():
            self._touch(live_head(self._namespace, row), row[-1])

    def _touch(self, former: Live, checksum: int | None) -> tuple[Live, int | None]:
        head = former._replace(updated_at=self.time)
        checksum = changed_sum(head, self._number, checksum)
        self._connection.execute(_TOUCH, (self.time, head.valid_from, checksum, head.id))
        return head, checksum

    def was_used(self, kind: str, first: str, last: str) -> bool:
        unused = self._row.memory.unused.get((kind, last))
        if unused is not None and first >= unused:
            return False
        was_used = super().was_used(kind, first, last)
        if not was_used and first < last:
            self._row.memory.note_unused(kind, first, last)
        return was_used

    # Operations

    def operation(self, key: str) -> JSON | None:
        rows = self._connection.execute(
            "SELECT value, expires_at, checksum FROM operation WHERE namespace = ? AND key = ? AND expires_at > ?",
            (self._number, key, self.time),
        ).fetchall()
        if not rows:
            return None
        value, expires_at, checksum = rows[0]
        check_row("a remembered operation", checksum, self._number, key, value, expires_at)
        found: JSON = json.loads(value)
        return found

    def record_operation(self, key: str, value: JSON, *, expires_at: int) -> None:
        if not self._number:
            return
        self._connection.execute(
            "DELETE FROM operation WHERE namespace = ?1 AND key IN"
            f" (SELECT key FROM operation WHERE namespace = ?1 AND expires_at <= ?2 LIMIT {FORGOTTEN_AT_ONCE})",
            (self._number, self.time),
        )
        text = dump(value)
        self._connection.execute(
            "INSERT OR REPLACE INTO operation (namespace, key, value, expires_at, checksum) VALUES (?, ?, ?, ?, ?)",
            (self._number, key, text, expires_at, row_sum(self._number, key, text, expires_at)),
        )

    # Ranges of keys

    def delete_range(self, kind: str, prefix: str) -> int:
        if not self._has_range(kind, prefix):
            return 0
        keys = self._range(kind, prefix)
        found = [(head.id, head.attributes) for head, _ in self._heads(keys)]
        self._connection.execute(_KEEP_RANGE.format(text="text", value="value"), {**keys, "ended_by": "deleted"})
        for entry_id, attributes in found:
            self._index.remove_labels(entry_id, labels(json.loads(attributes), INDEXED_ATTRIBUTES))
        for ids in _steps([entry_id for entry_id, _ in found]):
            self._index.end_chunks(self._index.chunks_of(ids))
        self._connection.execute(f"DELETE FROM entry WHERE {_IN_RANGE}", keys)
        return len(found)

    def move_range(self, kind: str, prefix: str, new_prefix: str, heading_of: Callable[[str], str | None]) -> int:
        check_key(new_prefix)
        if not self._has_range(kind, prefix):
            return 0
        if self._has_range(kind, new_prefix):
            raise Conflict(f"there are {kind} entries with the new prefix already")
        keys = self._range(kind, prefix)
        checksums = {head.id: checksum for head, checksum in self._heads(keys)}
        same = {"text": "iif(text IS NULL, NULL, -1)", "value": "-1"}
        self._connection.execute(_KEEP_RANGE.format(**same), {**keys, "ended_by": "moved_away"})
        self._connection.execute(
            f"""
            UPDATE entry SET key = :new || substr(key, :length + 1), commit_number = :commit, own_valid_from = :time,
                own_begun_by = 'moved_here', actor = :actor, own_updated_at = :time, checksum = NULL,
                revision = max(revision + 1, coalesce((SELECT max(h.revision) + 2 FROM history AS h
                    WHERE h.namespace = entry.namespace AND h.kind = entry.kind
                        AND h.key = :new || substr(entry.key, :length + 1)), 1))
            WHERE {_IN_RANGE}
            """,
            {**keys, "new": new_prefix, "length": len(prefix)},
        )
        for ids in _steps(list(checksums)):
            self._set_headings(ids, checksums, heading_of)
        return len(checksums)

    def _set_headings(
        self, ids: Sequence[int], checksums: dict[int, int | None], heading_of: Callable[[str], str | None]
    ) -> None:
        """After a move: give entries the headings of their new keys, and new checksums."""
        self._index.end_chunks(self._index.chunks_of(ids, only_headings=True))
        changed, headings = [], []
        for row in self._connection.execute(
            f"SELECT {LIVE_HEAD_SUMMED} FROM entry WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),)
        ).fetchall():
            head = live_row(row)
            head = head._replace(heading=heading_of(head.key))
            headings.append((head.id, head.heading))
            changed.append((head.id, head.heading, changed_sum(head, self._number, checksums[head.id])))
        self._connection.execute(
            "UPDATE entry SET own_heading = j.value ->> 1, checksum = j.value ->> 2 FROM json_each(?) AS j"
            " WHERE entry.id = j.value ->> 0",
            (json.dumps(changed),),
        )
        self._index.add_headings(self._take_commit(), headings)

    def _has_range(self, kind: str, prefix: str) -> bool:
        """Whether live entries have a prefix. Expired entries are ended first."""
        self._sweep_all()
        return bool(self.scan(Scan(Filter(kinds=(kind,), key_prefix=prefix), limit=1)).entries)

    def _range(self, kind: str, prefix: str) -> dict[str, Any]:
        """The keys of one kind that begin with a prefix, and the commit that changes them, for statements over them."""
        self._begin_change()
        return {
            "namespace": self._number,
            "kind": kind,
            "prefix": check_key(prefix),
            "stop": after_prefix(prefix),
            "commit": self._take_commit(),
            "time": self.time,
            "actor": self._actor,
        }

    def _heads(self, keys: dict[str, Any]) -> Iterator[tuple[Live, int | None]]:
        """The rows of a range without their texts and values, each checked, and their checksums."""
        rows = self._connection.execute(
            f"SELECT {LIVE_HEAD_SUMMED} FROM entry WHERE {_IN_RANGE} ORDER BY key", keys
        ).fetchall()
        return ((live_head(self._namespace, row), row[-1]) for row in rows)


def _content_length(row: Live) -> int:
    return len(row.attributes) + len(row.value) + len(row.text or "")


def _steps(items: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(items), IDS_A_STEP):
        yield items[start : start + IDS_A_STEP]
