"""One atomic change of one namespace: states, their history, labels, passages, terms and pending marks together.

The rules are in `ledger`; this is their SQL. The namespace's row is locked from the first statement on, so nothing that
is read here changes until the commit. The result of a write is not awaited: the write is sent with the next read, or
with COMMIT. Changes of a whole range of keys have statements over the range, so that a tree of 100,000 files takes
seconds, not minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from commonplace.backends.ledger import Ledger, commit_time
from commonplace.backends.pages import after_prefix
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.index import EntryIndex, Identifiers, NamespaceRow
from commonplace.backends.postgres.reader import FORMER_BYTES, NOW, Location, PostgresReader, pack_delta, tenant_of
from commonplace.backends.rows import COLUMNS, FORMER_COLUMNS, Former, Live, columns, dump, labels
from commonplace.checks import JSON, Namespace, check_key
from commonplace.entry import INDEXED_ATTRIBUTES
from commonplace.errors import Conflict
from commonplace.filters import Filter
from commonplace.store import FORMER_STATE_BYTES, Scan, Usage

FORGOTTEN_AT_ONCE = 20
"""How many expired operations a write removes: more than it adds, so that they do not accumulate."""

IDS_A_STEP = 1_000

_LIVE = f"{columns('e')}, e.begun_by, e.deltas"
_WRITTEN = f"{COLUMNS}, begun_by, deltas".split(", ")
_INSERT = (
    f"INSERT INTO entry ({', '.join(_WRITTEN)}, tenant, namespace) VALUES ({', '.join(['%s'] * (len(_WRITTEN) + 2))})"
)
_UPDATE = f"UPDATE entry SET {', '.join(f'{name} = %s' for name in _WRITTEN)} WHERE tenant = %s AND id = %s"
_MOVE = (
    "UPDATE entry SET key = %s, heading = %s, revision = %s, commit_number = %s, valid_from = %s, updated_at = %s,"
    " begun_by = %s, actor = %s, deltas = %s WHERE tenant = %s AND id = %s"
)
_FORMER = f"{FORMER_COLUMNS}, begun_by, ended_by, ended_commit, valid_to, ended_actor, tenant, namespace"
_KEEP = f"INSERT INTO history ({_FORMER}) VALUES ({', '.join(['%s'] * len(_FORMER.split(', ')))})"
_ROW = (
    "id, commit_number, commit_time, chunk_count, term_total, chunks_ended, entry_count, byte_count, expires_next,"
    f" former_states, former_bytes, former_commit, {NOW}"
)
_LOCK = f"SELECT {_ROW} FROM namespace WHERE tenant = %s AND path = %s FOR UPDATE"

_IN_RANGE = (
    "tenant = %(tenant)s AND namespace = %(namespace)s AND kind = %(kind)s AND key >= %(prefix)s AND key < %(stop)s"
)
_KEEP_RANGE = f"""
    INSERT INTO history (
        tenant, entry, namespace, kind, key, identity, is_json, attributes, revision, commit_number, valid_from,
        begun_by, created_at, updated_at, expires_at, actor, ended_commit, valid_to, ended_by, ended_actor, heading,
        text, value
    )
    SELECT
        tenant, id, namespace, kind, key, identity, is_json, attributes, revision, commit_number, valid_from,
        begun_by, created_at, updated_at, expires_at, actor, %(commit)s, %(time)s, %(ended_by)s, %(actor)s, heading,
        {{text}}, {{value}}
    FROM entry WHERE {_IN_RANGE}
"""
_WHOLE = "convert_to('t' || {0}, 'UTF8')"
_SAME = "'n-1'::bytea"


class PostgresTransaction(Ledger, PostgresReader):
    """The ledger in a session whose namespace is locked."""

    def __init__(self, session: Session, namespace: Namespace, now: int | None, actor: str | None) -> None:
        self._session = session
        self._namespace = namespace
        self._actor = actor
        self._has_commit = False
        self._is_marked = False
        self._is_single = False
        tenant = tenant_of(namespace)
        self._row, at = self._lock(tenant, now)
        self.time = commit_time(at, self._row.commit_time)
        self._now = self.time
        self._spot = Location(namespace, tenant, self._row.id)
        self._ids = Identifiers(session)
        self._index: EntryIndex = EntryIndex(session, tenant, self._row, self._ids)
        if self._row.former_commit != self._row.commit_number:  # written by a server that does not count them
            self.count_former()
        self._sweep()

    def _lock(self, tenant: str, now: int | None) -> tuple[NamespaceRow, int]:
        """The namespace's row, locked until the end, and the time. A namespace that does not exist is created."""
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
        return NamespaceRow(*counters), at

    def finish(self) -> int | None:
        """Write the counters; returns the commit's number, or None if no state was changed."""
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
    def spot(self) -> Location:
        return self._spot

    @property
    def is_changed(self) -> bool:
        """Whether there is something to commit. A namespace without writes is not created."""
        return self._has_commit or (self._is_marked and self._row.commit_number > 0)

    def mark_changed(self) -> None:
        """Commit this transaction although it has no commit number, because it changed something other than states."""
        self._is_marked = True

    def mark_erased(self) -> None:
        """Commit that passages were erased. Servers with them in memory then miss some that ended, and start again."""
        self.mark_changed()
        self._row.chunks_ended += 1

    # Rows

    def _take_commit(self) -> int:
        if not self._has_commit:
            self._has_commit = True
            self._row.commit_number += 1
            self._row.commit_time = self.time
        return self._row.commit_number

    def _new_id(self) -> int:
        return self._ids.take()

    def _live_row(self, kind: str, key: str) -> tuple[Live | None, int | None]:
        [(*row, last)] = self._session.rows(
            f"SELECT {_LIVE}, (SELECT max(revision) FROM history WHERE tenant = %(tenant)s"
            " AND namespace = %(namespace)s AND kind = %(kind)s AND key = %(key)s)"
            " FROM (SELECT 1) AS one LEFT JOIN entry AS e ON e.tenant = %(tenant)s AND e.namespace = %(namespace)s"
            " AND e.kind = %(kind)s AND e.key = %(key)s",
            {"tenant": self._spot.tenant, "namespace": self._spot.id, "kind": kind, "key": key},
        )
        return (None if row[0] is None else Live._make(row)), last

    def _identity_row(self, kind: str, identity: str) -> Live | None:
        rows = self._session.rows(
            f"SELECT {_LIVE} FROM entry AS e WHERE tenant = %s AND namespace = %s AND kind = %s AND identity = %s",
            (self._spot.tenant, self._spot.id, kind, identity),
        )
        return Live._make(rows[0]) if rows else None

    def _expired_rows(self, limit: int) -> Sequence[Live]:
        if self._row.expires_next is None or self._row.expires_next > self.time:
            return ()
        rows = self._session.rows(
            f"SELECT {_LIVE} FROM entry AS e WHERE tenant = %s AND namespace = %s AND expires_at <= %s"
            f" ORDER BY expires_at, id LIMIT {limit:d}",
            (self._spot.tenant, self._spot.id, self.time),
        )
        return [Live._make(row) for row in rows]

    def _sweep(self) -> int:
        ended = super()._sweep()
        if ended:
            [(self._row.expires_next,)] = self._session.rows(
                "SELECT min(expires_at) FROM entry WHERE tenant = %s AND namespace = %s AND expires_at IS NOT NULL",
                (self._spot.tenant, self._spot.id),
            )
        return ended

    def _insert_row(self, row: Live) -> None:
        self._session.send(_INSERT, (*row, self._spot.tenant, self._spot.id))
        self._row.entry_count += 1
        self._row.byte_count += row_bytes(row)
        self._expect(row.expires_at)

    def _update_row(self, row: Live, former: Live) -> None:
        self._session.send(_UPDATE, (*row, self._spot.tenant, row.id))
        self._row.byte_count += row_bytes(row) - row_bytes(former)
        self._expect(row.expires_at)

    def _move_row(self, row: Live) -> None:
        state = (row.key, row.heading, row.revision, row.commit, row.valid_from, row.updated_at)
        self._session.send(_MOVE, (*state, row.begun_by, row.actor, row.deltas, self._spot.tenant, row.id))

    def _delete_row(self, row: Live) -> None:
        self._session.send("DELETE FROM entry WHERE tenant = %s AND id = %s", (self._spot.tenant, row.id))
        self._row.entry_count -= 1
        self._row.byte_count -= row_bytes(row)

    def _keep_row(self, row: Former) -> None:
        text, value = None if row.text is None else pack_delta(row.text), pack_delta(row.value)
        self._row.former_states += 1
        self._row.former_bytes += former_bytes(row.attributes, text, value)
        packed = row._replace(text=text, value=value)
        self._session.send(_KEEP, (*packed, self._spot.tenant, self._spot.id))

    def _expect(self, expires_at: int | None) -> None:
        """Note that something expires at this time."""
        if expires_at is not None and (self._row.expires_next is None or expires_at < self._row.expires_next):
            self._row.expires_next = expires_at

    def touch(self, kind: str, key: str) -> None:
        self.mark_changed()
        self._session.send(
            "UPDATE entry SET updated_at = %s WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s",
            (self.time, self._spot.tenant, self._spot.id, kind, key),
        )

    # Usage and operations

    def usage(self) -> Usage:
        self._sweep_all()
        row = self._row
        return Usage(row.entry_count, row.byte_count, row.former_states, row.former_bytes)

    def count_former(self) -> tuple[int, int]:
        """Count the former states, and their bytes, from their rows."""
        [(states, size)] = self._session.rows(
            f"SELECT count(*), coalesce(sum({FORMER_BYTES}), 0)::bigint FROM history"
            " WHERE tenant = %s AND namespace = %s",
            (self._spot.tenant, self._spot.id),
        )
        self._row.former_states, self._row.former_bytes = states, size
        return states, size

    def operation(self, key: str) -> JSON | None:
        rows = self._session.rows(
            "SELECT value FROM operation WHERE tenant = %s AND namespace = %s AND key = %s AND expires_at > %s",
            (self._spot.tenant, self._spot.id, key, self.time),
        )
        return json.loads(rows[0][0]) if rows else None

    def record_operation(self, key: str, value: JSON, *, expires_at: int) -> None:
        self.mark_changed()
        self._session.send(
            "DELETE FROM operation WHERE tenant = %(tenant)s AND namespace = %(namespace)s AND key IN (SELECT key"
            " FROM operation WHERE tenant = %(tenant)s AND namespace = %(namespace)s AND expires_at <= %(now)s"
            f" LIMIT {FORGOTTEN_AT_ONCE})",
            {"tenant": self._spot.tenant, "namespace": self._spot.id, "now": self.time},
        )
        self._session.send(
            "INSERT INTO operation (tenant, namespace, key, value, expires_at) VALUES (%s, %s, %s, %s, %s) ON CONFLICT"
            " (namespace, key, tenant) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at",
            (self._spot.tenant, self._spot.id, key, dump(value), expires_at),
        )

    def forget_operations(self) -> None:
        self._session.send(
            "DELETE FROM operation WHERE tenant = %s AND namespace = %s", (self._spot.tenant, self._spot.id)
        )

    # Ranges of keys

    def delete_range(self, kind: str, prefix: str) -> int:
        if not self._has_range(kind, prefix):
            return 0
        keys = self._range(kind, prefix)
        self._keep_range(keys, "deleted", _WHOLE.format("text"), _WHOLE.format("value"))
        found = self._session.rows(
            f"DELETE FROM entry WHERE {_IN_RANGE} RETURNING id, attributes, octet_length(value)"
            " + coalesce(octet_length(text), 0) + octet_length(attributes)",
            keys,
        )
        for entry_id, attributes, _ in found:
            self._index.remove_labels(entry_id, labels(json.loads(attributes), INDEXED_ATTRIBUTES))
        for ids in steps([entry_id for entry_id, _, _ in found]):
            self._index.end_chunks(self._index.chunks_of(ids))
        self._row.entry_count -= len(found)
        self._row.byte_count -= sum(size for _, _, size in found)
        self._row.former_states += len(found)
        return len(found)

    def move_range(self, kind: str, prefix: str, new_prefix: str, heading_of: Callable[[str], str | None]) -> int:
        check_key(new_prefix)
        if not self._has_range(kind, prefix):
            return 0
        if self._has_range(kind, new_prefix):
            raise Conflict(f"there are {kind} entries with the new prefix already")
        keys = self._range(kind, prefix)
        self._keep_range(keys, "moved_away", f"CASE WHEN text IS NOT NULL THEN {_SAME} END", _SAME)
        found = self._session.rows(
            f"""
            UPDATE entry SET key = %(new)s || substr(key, %(length)s::int + 1), commit_number = %(commit)s,
                valid_from = %(time)s, begun_by = 'moved_here', actor = %(actor)s, updated_at = %(time)s,
                revision = greatest(revision + 1, coalesce((SELECT max(h.revision) + 2 FROM history AS h
                    WHERE h.tenant = %(tenant)s AND h.namespace = entry.namespace AND h.kind = entry.kind
                        AND h.key = %(new)s || substr(entry.key, %(length)s::int + 1)), 1))
            WHERE {_IN_RANGE} RETURNING id, key
            """,
            {**keys, "new": new_prefix, "length": len(prefix)},
        )
        for some in steps(sorted(found)):
            self._set_headings([(entry_id, heading_of(key)) for entry_id, key in some])
        self._row.former_states += len(found)
        return len(found)

    def _set_headings(self, headings: Sequence[tuple[int, str | None]]) -> None:
        ids = [entry_id for entry_id, _ in headings]
        self._index.end_chunks(self._index.chunks_of(ids, only_headings=True))
        self._session.send(
            "UPDATE entry SET heading = new.heading FROM unnest(%s::bigint[], %s::text[]) AS new (id, heading)"
            " WHERE entry.tenant = %s AND entry.id = new.id",
            (ids, [heading for _, heading in headings], self._spot.tenant),
        )
        self._index.add_headings(self._take_commit(), headings)

    def _has_range(self, kind: str, prefix: str) -> bool:
        """Whether live entries have a prefix. Expired entries are ended first."""
        self._sweep_all()
        return bool(self.scan(Scan(Filter(kinds=(kind,), key_prefix=prefix), limit=1)).entries)

    def _range(self, kind: str, prefix: str) -> dict[str, Any]:
        """The keys of one kind that begin with a prefix, and the commit that changes them, for statements over them."""
        return {
            "tenant": self._spot.tenant,
            "namespace": self._spot.id,
            "kind": kind,
            "prefix": check_key(prefix),
            "stop": after_prefix(prefix),
            "commit": self._take_commit(),
            "time": self.time,
            "actor": self._actor,
        }

    def _keep_range(self, keys: dict[str, Any], ended_by: str, text: str, value: str) -> None:
        """Write every state of a range to history."""
        kept = _KEEP_RANGE.format(text=text, value=value)
        if self._session.is_distributed:
            # There, neither WITH nor RETURNING is possible.
            ended = f"SELECT coalesce(sum({FORMER_BYTES}), 0)::bigint FROM history WHERE {_IN_RANGE}"
            ended += " AND ended_commit = %(commit)s"
            [(before,)] = self._session.rows(ended, keys)
            self._session.send(kept, {**keys, "ended_by": ended_by})
            [(after,)] = self._session.rows(ended, keys)
            self._row.former_bytes += int(after - before)
            return
        [(size,)] = self._session.rows(
            f"WITH kept AS ({kept} RETURNING {FORMER_BYTES} AS bytes) SELECT coalesce(sum(bytes), 0)::bigint FROM kept",
            {**keys, "ended_by": ended_by},
        )
        self._row.former_bytes += int(size)


def row_bytes(row: Live) -> int:
    """What a live row counts for in its namespace's usage: the bytes of its attributes, text and value."""
    return sum(len(part.encode()) for part in (row.attributes, row.text, row.value) if part is not None)


def former_bytes(attributes: str, text: bytes | None, value: bytes) -> int:
    """What a former row counts for, as FORMER_BYTES computes it in SQL."""
    return FORMER_STATE_BYTES + len(attributes.encode()) + len(text or b"") + len(value)


def steps(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + IDS_A_STEP] for start in range(0, len(items), IDS_A_STEP)]
