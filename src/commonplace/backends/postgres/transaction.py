"""One atomic change of one namespace: states, their history, labels, passages, tokens and pending marks together.

The namespace's row is locked from the first statement on, so nothing that is read here changes until the commit, and
what is written need not be waited for: it goes out together with the next question, or with COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from commonplace.backends import deltas
from commonplace.backends.postgres import bulk, kept, reading, system
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.index import EntryIndex, Identifiers, NamespaceRow
from commonplace.backends.postgres.reading import Spot, tenant_of
from commonplace.backends.states import COLUMNS, columns, dump, entry_of
from commonplace.backends.times import commit_time
from commonplace.checks import JSON, Namespace, check_key
from commonplace.entry import Draft, Entry, Revision
from commonplace.errors import Conflict, NotFound
from commonplace.filters import Filter
from commonplace.store import FORMER_STATE_BYTES, Child, Page, Scan, Transaction, Usage

SWEEP_LIMIT = 500
AFTER_LOSS = 2
"""The loss of a key's last state took a revision number of its own."""

_LIVE = f"{columns('e')}, e.begun_by, e.deltas"
_WRITTEN = f"{COLUMNS}, begun_by, deltas".split(", ")
_INSERT = (
    f"INSERT INTO entry ({', '.join(_WRITTEN)}, tenant, namespace) VALUES ({', '.join(['%s'] * (len(_WRITTEN) + 2))})"
)
_UPDATE = f"UPDATE entry SET {', '.join(f'{name} = %s' for name in _WRITTEN)} WHERE tenant = %s AND id = %s"
_HISTORY = (
    "tenant, entry, namespace, kind, key, identity, is_json, attributes, revision, commit_number, valid_from, begun_by,"
    " created_at, updated_at, expires_at, actor, ended_commit, valid_to, ended_by, ended_actor, heading, text, value"
)
_KEEP = f"INSERT INTO history ({_HISTORY}) VALUES ({', '.join(['%s'] * 23)})"
_ROW = (
    "id, commit_number, commit_time, chunk_count, term_total, chunks_ended, entry_count, byte_count, expires_next,"
    f" former_states, former_bytes, former_commit, {reading.NOW}"
)
_LOCK = f"SELECT {_ROW} FROM namespace WHERE tenant = %s AND path = %s FOR UPDATE"


class PostgresTransaction(Transaction):
    """Takes a commit number with its first change; a transaction that changes nothing leaves no trace."""

    def __init__(self, session: Session, namespace: Namespace, now: int | None, actor: str | None) -> None:
        self._session = session
        self._namespace = namespace
        self._actor = actor
        self._has_commit = False
        self._is_marked = False
        tenant = tenant_of(namespace)
        self._row, at, ids = self._lock(tenant, now)
        self._time = commit_time(at, self._row.commit_time)
        self._spot = Spot(namespace, tenant, self._row.id)
        self._index = EntryIndex(session, tenant, self._row, ids)
        self._ids = ids
        if self._row.former_commit != self._row.commit_number:  # a server that does not count them has written
            self.count_former()
        if self._row.expires_next is not None and self._row.expires_next <= self._time:
            self._sweep()

    def _lock(self, tenant: str, now: int | None) -> tuple[NamespaceRow, int, Identifiers]:
        """The namespace's row, ours until the end; made where it is not there. Then the time, and ids to give out."""
        path = "/".join(self._namespace)
        rows = self._session.rows(_LOCK, (now, tenant, path))
        if not rows:
            self._session.send(
                "INSERT INTO namespace (tenant, path, id) VALUES (%s, %s, nextval('identifier'))"
                " ON CONFLICT (tenant, path) DO NOTHING",
                (tenant, path),
            )
            rows = self._session.rows(_LOCK, (now, tenant, path))
        *counters, at = rows[0]
        return NamespaceRow(*counters), at, Identifiers(self._session)

    def finish(self) -> int | None:
        """Write the counters; the commit's number, or None when no state was changed."""
        if not self._has_commit:
            return None
        row = self._row
        self._session.send(
            "UPDATE namespace SET commit_number = %s, commit_time = %s, chunk_count = %s, term_total = %s,"
            " chunks_ended = %s, entry_count = %s, byte_count = %s, expires_next = %s, former_states = %s,"
            " former_bytes = %s, former_commit = %s WHERE tenant = %s AND path = %s",
            (
                row.commit_number,
                row.commit_time,
                row.chunk_count,
                row.term_total,
                row.chunks_ended,
                row.entry_count,
                row.byte_count,
                row.expires_next,
                row.former_states,
                row.former_bytes,
                row.commit_number,
                self._spot.tenant,
                "/".join(self._namespace),
            ),
        )
        return row.commit_number

    @property
    def spot(self) -> Spot:
        return self._spot

    @property
    def is_changed(self) -> bool:
        """Whether there is something to commit. A namespace that nothing was written to is not to be made."""
        return self._has_commit or (self._is_marked and self._row.commit_number > 0)

    def mark_changed(self) -> None:
        """Have this transaction committed although it has no commit number: it changed something beside the states."""
        self._is_marked = True

    @property
    def time(self) -> int:
        return self._time

    @property
    def _commit(self) -> int:
        """This change's commit number, taken on first use."""
        if not self._has_commit:
            self._has_commit = True
            self._row.commit_number += 1
            self._row.commit_time = self._time
        return self._row.commit_number

    # Reads

    def get(self, kind: str, key: str) -> Entry | None:
        return reading.get(self._session, self._spot, kind, [key], self._time)[0]

    def find(self, kind: str, identity: str) -> Entry | None:
        return reading.find(self._session, self._spot, kind, identity, self._time)

    def scan(self, scan: Scan) -> Page:
        return reading.scan(self._session, self._spot, scan, self._time)

    def children(self, kind: str, prefix: str) -> list[Child]:
        return reading.children(self._session, self._spot, kind, prefix, self._time)

    def history(self, kind: str, key: str) -> list[Revision]:
        return reading.history(self._session, self._spot, kind, key, self._time)

    def was_used(self, kind: str, first: str, last: str) -> bool:
        return reading.was_used(self._session, self._spot, kind, first, last)

    def state(self, kind: str, key: str, revision: int) -> Entry | None:
        return reading.state(self._session, self._spot, kind, key, revision)

    def begun(self, commit: int) -> list[Entry]:
        return reading.begun(self._session, self._spot, commit)

    def ended(self, commit: int) -> list[Entry]:
        return reading.ended(self._session, self._spot, commit)

    def usage(self) -> Usage:
        if self._row.expires_next is not None and self._row.expires_next <= self._time:
            self._sweep_all()
        row = self._row
        return Usage(row.entry_count, row.byte_count, row.former_states, row.former_bytes)

    def count_former(self) -> tuple[int, int]:
        """Count the former states, and their bytes, from their rows."""
        (counted,) = self._session.rows(
            f"SELECT count(*), coalesce(sum({bulk.FORMER_BYTES}), 0)::bigint FROM history"
            " WHERE tenant = %s AND namespace = %s",
            (self._spot.tenant, self._spot.id),
        )
        self._row.former_states, self._row.former_bytes = counted
        return counted

    def operation(self, key: str) -> JSON | None:
        return system.operation(self._session, self._spot, key, self._time)

    # Writes

    def put(self, draft: Draft, *, is_fresh: bool = False, is_restored: bool = False) -> Entry:
        if self.screen is not None:
            draft = self.screen(draft)
        is_json = not isinstance(draft.value, str)
        value = dump(draft.value) if is_json else draft.value
        assert isinstance(value, str)
        text = None if not is_json and draft.searchable == value else draft.searchable
        former, revision = (None, 1) if is_fresh else self._place(draft.kind, draft.key)
        if draft.identity is not None and (former is None or former[3] != draft.identity):
            self._free_identity(draft)
        commit = self._commit
        if former is None:
            entry_id, begun_by, in_a_row = self._ids.take(), "created", 0
            created_at = self._time if draft.created_at is None else draft.created_at
        else:
            entry_id, begun_by = former[0], "updated"
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
            is_json,
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
        place = (self._spot.tenant, self._spot.id) if former is None else (self._spot.tenant, entry_id)
        self._session.send(_INSERT if former is None else _UPDATE, (*row, begun_by, in_a_row, *place))
        self._row.entry_count += former is None
        self._row.byte_count += row_bytes(row) - (0 if former is None else row_bytes(former))
        self._expect(draft.expires_at)
        entry = entry_of(self._namespace, row)
        if former is None:
            self._index.add(entry, draft.passages)
        else:
            self._index.change(entry_of(self._namespace, former), entry)
        return entry

    def delete(self, kind: str, key: str) -> Entry | None:
        row = self._place(kind, key)[0]
        return None if row is None else self._end(row, ended_by="deleted", valid_to=self._time)

    def move(self, kind: str, key: str, new_key: str, heading: str | None) -> Entry:
        row = self._place(kind, key)[0]
        if row is None:
            raise NotFound(f"no {kind} with this key to move")
        taken, next_revision = self._place(kind, check_key(new_key))
        if taken is not None:
            raise Conflict(f"a {kind} with the new key exists already")
        commit = self._commit
        revision = max(row[6] + 1, next_revision)
        in_a_row = self._keep_former(row, row[14], row[15], ended_by="moved_away", valid_to=self._time)
        self._session.send(
            "UPDATE entry SET key = %s, heading = %s, revision = %s, commit_number = %s, valid_from = %s,"
            " begun_by = 'moved_here', actor = %s, deltas = %s, updated_at = %s WHERE tenant = %s AND id = %s",
            (
                new_key,
                heading,
                revision,
                commit,
                self._time,
                self._actor,
                in_a_row,
                self._time,
                self._spot.tenant,
                row[0],
            ),
        )
        moved = self.get(kind, new_key)
        assert moved is not None
        self._index.change(entry_of(self._namespace, row), moved)
        return moved

    def delete_range(self, kind: str, prefix: str) -> int:
        if not self._has_range(kind, prefix):
            return 0
        entries, size, former = bulk.delete_range(self._session, self._index, self._range(kind, prefix))
        self._row.entry_count -= entries
        self._row.byte_count -= size
        self._row.former_states += entries
        self._row.former_bytes += former
        return entries

    def move_range(self, kind: str, prefix: str, new_prefix: str, heading_of: Callable[[str], str | None]) -> int:
        check_key(new_prefix)
        if not self._has_range(kind, prefix):
            return 0
        if self._has_range(kind, new_prefix):
            raise Conflict(f"there are {kind} entries with the new prefix already")
        keys = self._range(kind, prefix)
        entries, former = bulk.move_range(self._session, self._index, keys, new_prefix, heading_of)
        self._row.former_states += entries
        self._row.former_bytes += former
        return entries

    def _has_range(self, kind: str, prefix: str) -> bool:
        """Whether live entries have a prefix."""
        self._sweep_all()
        return bool(self.scan(Scan(Filter(kinds=(kind,), key_prefix=prefix), limit=1)).entries)

    def _range(self, kind: str, prefix: str) -> bulk.Range:
        return bulk.Range(
            self._spot.tenant, self._spot.id, kind, check_key(prefix), self._commit, self._time, self._actor
        )

    def touch(self, kind: str, key: str) -> None:
        self.mark_changed()
        self._session.send(
            "UPDATE entry SET updated_at = %s WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s",
            (self._time, self._spot.tenant, self._spot.id, kind, key),
        )

    def record_operation(self, key: str, value: JSON, *, expires_at: int) -> None:
        self.mark_changed()
        system.record_operation(self._session, self._spot, key, value, expires_at=expires_at, now=self._time)

    def forget_operations(self) -> None:
        self._session.send(
            "DELETE FROM operation WHERE tenant = %s AND namespace = %s", (self._spot.tenant, self._spot.id)
        )

    # States and their history

    def _place(self, kind: str, key: str) -> tuple[Sequence[Any] | None, int]:
        """The live row of a key, and the revision that its next state gets: above all that the key ever had.

        One that has expired is ended on the way.
        """
        *row, last = self._session.rows(
            f"SELECT {_LIVE}, (SELECT max(revision) FROM history WHERE tenant = %(tenant)s"
            " AND namespace = %(namespace)s AND kind = %(kind)s AND key = %(key)s)"
            " FROM (SELECT 1) AS one LEFT JOIN entry AS e ON e.tenant = %(tenant)s AND e.namespace = %(namespace)s"
            " AND e.kind = %(kind)s AND e.key = %(key)s",
            {"tenant": self._spot.tenant, "namespace": self._spot.id, "kind": kind, "key": key},
        )[0]
        if row[0] is None:
            return None, 1 if last is None else last + AFTER_LOSS
        if row[11] is not None and row[11] <= self._time:
            self._expire(row)
            return None, row[6] + AFTER_LOSS
        return row, row[6] + 1

    def _sweep(self) -> int:
        """End what has expired, so that history and the feed tell of it; how many, up to a limit."""
        place = (self._spot.tenant, self._spot.id)
        expired = self._session.rows(
            f"SELECT {_LIVE} FROM entry AS e WHERE tenant = %s AND namespace = %s AND expires_at <= %s"
            f" ORDER BY expires_at, id LIMIT {SWEEP_LIMIT}",
            (*place, self._time),
        )
        for row in expired:
            self._expire(row)
        if expired:
            (self._row.expires_next,) = self._session.rows(
                "SELECT min(expires_at) FROM entry WHERE tenant = %s AND namespace = %s AND expires_at IS NOT NULL",
                place,
            )[0]
        return len(expired)

    def _sweep_all(self) -> None:
        """End what has expired, however many."""
        while self._sweep() == SWEEP_LIMIT:
            continue

    def _expect(self, expires_at: int | None) -> None:
        """Something expires then, or earlier something else."""
        if expires_at is not None and (self._row.expires_next is None or expires_at < self._row.expires_next):
            self._row.expires_next = expires_at

    def _expire(self, row: Sequence[Any]) -> None:
        """End a state at its time, not at this commit's; one that was written too late never was valid."""
        self._end(row, ended_by="expired", valid_to=max(row[11], row[8]))

    def _end(self, row: Sequence[Any], *, ended_by: str, valid_to: int) -> Entry:
        self._keep_former(row, None, None, ended_by=ended_by, valid_to=valid_to)
        entry = entry_of(self._namespace, row)
        self._session.send("DELETE FROM entry WHERE tenant = %s AND id = %s", (self._spot.tenant, entry.id))
        self._row.entry_count -= 1
        self._row.byte_count -= row_bytes(row)
        self._index.remove(entry)
        return entry

    def _keep_former(
        self, row: Sequence[Any], new_text: str | None, new_value: str | None, *, ended_by: str, valid_to: int
    ) -> int:
        """Write a live row to history as a delta to what replaces it; how many splices in a row that makes."""
        commit = self._commit
        text, value, begun_by, in_a_row = row[14:18]
        kept_text, kept_value, in_a_row = deltas.kept_of(text, value, new_text, new_value, in_a_row)
        packed = (None if kept_text is None else kept.pack(kept_text), kept.pack(kept_value))
        self._row.former_states += 1
        self._row.former_bytes += former_bytes(row[5], *packed)
        self._session.send(
            _KEEP,
            (
                self._spot.tenant,
                row[0],
                self._row.id,
                *row[1:9],
                begun_by,
                *row[9:13],
                commit,
                valid_to,
                ended_by,
                None if ended_by == "expired" else self._actor,
                row[13],
                *packed,
            ),
        )
        return in_a_row

    def _free_identity(self, draft: Draft) -> None:
        """End an expired entry that still holds the identity; refuse to take it from a live one."""
        for row in self._session.rows(
            f"SELECT {_LIVE} FROM entry AS e WHERE tenant = %s AND namespace = %s AND kind = %s AND identity = %s",
            (self._spot.tenant, self._spot.id, draft.kind, draft.identity),
        ):
            if row[11] is None or row[11] > self._time:
                raise Conflict(f"another {draft.kind} has the identity {draft.identity} already")
            self._expire(row)


def row_bytes(row: Sequence[Any]) -> int:
    """What a live row counts for in its namespace's usage: the bytes of its attributes, text and value."""
    return sum(len(part.encode()) for part in (row[5], row[14], row[15]) if part is not None)


def former_bytes(attributes: str, text: bytes | None, value: bytes) -> int:
    """What a former row counts for: as `bulk.FORMER_BYTES` says in SQL."""
    return FORMER_STATE_BYTES + len(attributes.encode()) + len(text or b"") + len(value)
