"""Reads of one namespace on a connection: live and former states, ranges, children, history, the feed.

A former state's text and value are deltas. They are decoded from the states after it, each of which is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from commonplace.backends import deltas, pages
from commonplace.backends.filter_sql import add_filter, add_former
from commonplace.backends.pages import after_prefix
from commonplace.backends.rows import CONTENT, HEAD, NAMES, Former, Live, damaged, dump, entry_of, prefixed, value_of
from commonplace.backends.sqlite.backlog import (
    WAITING,
    Place,
    Waiting,
    has_labels,
    waiting_entries,
    waiting_labels,
    waiting_place,
)
from commonplace.backends.sqlite.checksums import (
    FORMER,
    FORMER_HEAD,
    LIVE,
    LIVE_HEAD,
    check_former,
    check_live,
    damaged_row,
    former_head,
    identity_key,
    is_whole_content,
    live_entry,
    live_head,
)
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.where import Where
from commonplace.backends.sqlite.writer import read_namespace
from commonplace.checks import JSON, Namespace
from commonplace.entry import SEPARATOR, Action, Change, Entry, Revision
from commonplace.filters import Filter
from commonplace.store import FORMER_STATE_BYTES, NOTHING, Child, NamespaceStats, Page, Reader, Scan, States, Usage

RARE_ENTRIES = 500
_LIVE_AT = "valid_from <= ? AND (expires_at IS NULL OR expires_at > ?)"
_IS_IDENTITY = "identity_key = ? AND +kind = ? AND identity = ?"
"""With + the index of keys, which also has the kind, is not used for this."""
_BY_KEY, _BY_IDENTITY = (
    f"SELECT {LIVE} FROM entry WHERE namespace = ? AND {names} AND (expires_at IS NULL OR expires_at > ?)"
    for names in ("kind = ? AND key = ?", _IS_IDENTITY)
)
_FORMER_AT = "valid_from <= ? AND valid_to > ?"
_NOT_WRITTEN = "a text that this state is made from is not what was written"
_NEXT_IS_LIVE = """
    SELECT j.value ->> 0, j.value ->> 1, e.text, e.value, e.checksum
    FROM json_each(?) AS j CROSS JOIN entry AS e ON e.id = j.value ->> 0
    WHERE NOT EXISTS (SELECT 1 FROM history AS h WHERE h.entry = e.id AND h.revision > j.value ->> 1)
"""
READ_TOGETHER = 1_000
_LOSSES: tuple[Action, ...] = ("deleted", "expired", "moved_away")


_LAST_COMMIT = """
    SELECT max(number) FROM (
        SELECT max(commit_number) AS number FROM entry WHERE namespace = :namespace AND commit_number <= :number
        UNION ALL SELECT max(commit_number) FROM history WHERE namespace = :namespace AND commit_number <= :number
        UNION ALL SELECT max(ended_commit) FROM history WHERE namespace = :namespace AND ended_commit <= :number
    )
"""
# Each branch is read in the order of its index, and only until there are enough.
_ENDED_IN = (
    "SELECT ended_commit, valid_to, ended_by, kind, key, revision + 1, ended_actor FROM history"
    " WHERE namespace = :namespace AND ended_commit = :commit AND ended_by"
)
_IN_COMMIT = f"""
    SELECT commit_number, valid_from, begun_by, kind, key, revision, actor FROM entry
    WHERE namespace = :namespace AND commit_number = :commit
    UNION ALL SELECT commit_number, valid_from, begun_by, kind, key, revision, actor FROM history
    WHERE namespace = :namespace AND commit_number = :commit
    UNION ALL {_ENDED_IN} NOT IN ('updated', 'expired')
    UNION ALL {_ENDED_IN} = 'expired'
    LIMIT :limit OFFSET :skip
"""


def namespace_id(connection: Connection, namespace: Namespace) -> int:
    """The number of a namespace, or 0 if there is none."""
    rows = connection.execute("SELECT id FROM namespace WHERE path = ?", ("/".join(namespace),)).fetchall()
    return int(rows[0][0]) if rows else 0


@cache
def _selection(table: str, conditions: tuple[str, ...], order: str) -> str:
    """The statement that reads states of a namespace by columns that are equal to something, or by `_FORMER_AT`."""
    where = " AND ".join(name if "?" in name else f"{name} = ?" for name in ("namespace", *conditions))
    columns = LIVE if table == "entry" else FORMER
    return f"SELECT {columns} FROM {table} WHERE {where}" + (f" ORDER BY {order}" if order else "")


_LIVE_STATE, _FORMER_STATE = (_selection(table, ("kind", "key", "revision"), "") for table in ("entry", "history"))


class SQLiteReader(Reader):
    """Reads a namespace at a time. Transactions read in the same way."""

    def __init__(self, connection: Connection, namespace: Namespace, number: int, now: int) -> None:
        self._connection = connection
        self._namespace = namespace
        self._number = number
        self._now = now

    def _waiting_place(self) -> Place | None:
        return waiting_place(self._connection, self._number)

    # Live entries

    def get_all(
        self, kind: str, names: Sequence[str], *, by: Literal["key", "identity"] = "key", as_of: int | None = None
    ) -> list[Entry | None]:
        if as_of is not None:
            return [self._get_as_of(kind, key, as_of) for key in names]
        if by == "key" and len(names) > 1:
            return self._get_many(kind, names)
        return [self.get(kind, name) if by == "key" else self.find(kind, name) for name in names]

    def _get_many(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        rows = self._connection.execute(
            f"SELECT j.value, {prefixed(LIVE, 'e')} FROM json_each(?) AS j CROSS JOIN entry AS e"
            " ON e.namespace = ? AND e.kind = ? AND e.key = j.value AND (e.expires_at IS NULL OR e.expires_at > ?)",
            (dump(keys), self._number, kind, self._now),
        )
        found = {}
        for key, *row in rows:
            if tuple(row[NAMES]) != (kind, key):  # a damaged index leads to another entry
                raise damaged(self._namespace, kind, key)
            found[key] = live_entry(self._namespace, row)
        return [found.get(key) for key in keys]

    def get(self, kind: str, key: str) -> Entry | None:
        row = self._row_of(kind, key)
        return None if row is None else entry_of(self._namespace, row)

    def _row_of(self, kind: str, key: str) -> Sequence[Any] | None:
        """The row of a live entry, checked."""
        rows = self._connection.execute(_BY_KEY, (self._number, kind, key, self._now)).fetchall()
        if not rows:
            return None
        row: Sequence[Any] = rows[0]
        if row[NAMES] != (kind, key):  # a damaged index leads to another entry
            raise damaged(self._namespace, kind, key)
        check_live(self._namespace, row)
        return row

    def find(self, kind: str, identity: str) -> Entry | None:
        named = (self._number, identity_key(kind, identity), kind, identity, self._now)
        rows = self._connection.execute(_BY_IDENTITY, named).fetchall()
        return live_entry(self._namespace, rows[0]) if rows else None

    def _get_as_of(self, kind: str, key: str, as_of: int) -> Entry | None:
        live = self._connection.execute(
            f"SELECT {LIVE} FROM entry WHERE namespace = ? AND kind = ? AND key = ? AND {_LIVE_AT}",
            (self._number, kind, key, as_of, as_of),
        ).fetchall()
        if live:
            return live_entry(self._namespace, live[0])
        former = self._connection.execute(
            # The + keeps SQLite from the index of all that ended later, which may be most of history.
            f"SELECT {FORMER} FROM history WHERE namespace = ? AND kind = ? AND key = ?"
            " AND valid_from <= ? AND +valid_to > ? ORDER BY revision DESC LIMIT 1",
            (self._number, kind, key, as_of, as_of),
        ).fetchall()
        return former_entry(self._connection, self._namespace, former[0]) if former else None

    def load(self, ids: Sequence[int]) -> dict[int, Entry]:
        rows = self._connection.execute(
            f"SELECT {prefixed(LIVE, 'e')} FROM json_each(?) AS j CROSS JOIN entry AS e ON e.id = j.value"
            " WHERE e.namespace = ? AND (e.expires_at IS NULL OR e.expires_at > ?)",
            (f"[{','.join(map(str, ids))}]", self._number, self._now),
        )
        entries = (live_entry(self._namespace, row) for row in rows)
        return {entry.id: entry for entry in entries}

    def next_keys(self, kind: str, keys: Sequence[str]) -> list[str | None]:
        rows = self._connection.execute(
            "SELECT (SELECT key FROM entry WHERE namespace = ?1 AND kind = ?2 AND key > j.value"
            " AND (expires_at IS NULL OR expires_at > ?3) ORDER BY key LIMIT 1) FROM json_each(?4) AS j ORDER BY j.key",
            (self._number, kind, self._now, json.dumps(keys)),
        )
        return [key for (key,) in rows]

    def scan(self, scan: Scan) -> Page:
        """One page. With `as_of`, the live rows that were valid then and the former states, merged."""
        position = self._position(scan)
        rows = [
            row
            for one in pages.by_kind(scan)
            for row in self._live_rows(one, position, prefixed(LIVE, "e"), scan.limit + 1)
        ]
        found = [live_entry(self._namespace, row) for row in rows]
        if scan.as_of is not None:
            found += self._former_page(scan, position, tuple(found))
        if scan.as_of is not None or scan.order != "key":
            found.sort(key=lambda entry: pages.position(scan, entry), reverse=scan.descending)
        page = found[: scan.limit]
        more = len(found) > scan.limit
        return Page(tuple(page), pages.cursor_of(scan, page[-1]) if more else None)

    def _former_page(self, scan: Scan, position: pages.Position | None, live: Sequence[Entry]) -> Iterator[Entry]:
        """The first former states of a page, in order; the others are not decoded."""
        where = Where()
        where.has_codes = False
        where.add("e.namespace = ?", self._number)
        where.add("e.valid_from <= ? AND e.valid_to > ?", scan.as_of, scan.as_of)
        order = add_former(where, scan, position, live)
        # Sorting all columns of all former states would take several times as long.
        numbers = self._connection.execute(
            f"SELECT e.id FROM history AS e WHERE {where.sql} ORDER BY {order}", where.parameters
        ).fetchall()
        labels = replace(scan.filter, conditions=())
        found = 0
        for number in numbers:
            [row] = self._connection.execute(f"SELECT {FORMER} FROM history WHERE id = ?", number).fetchall()
            if not labels.matches(entry_of(self._namespace, (*row[HEAD], None, "null"))):
                continue
            state = former_entry(self._connection, self._namespace, row)
            if scan.filter.matches(state):
                yield state
                found += 1
                if found > scan.limit:
                    return

    def values(self, scan: Scan) -> list[JSON]:
        if scan.as_of is not None:
            return super().values(scan)
        selected = "e.kind, e.key, e.is_json, e.text, e.value, e.checksum"
        found = []
        for kind, key, is_json, text, value, checksum in self._live_rows(
            scan, self._position(scan), selected, scan.limit
        ):
            if not is_whole_content(text, value, checksum):
                raise damaged(self._namespace, kind, key)
            found.append(value_of(is_json, value))
        return found

    def _position(self, scan: Scan) -> pages.Position | None:
        def number_of(kind: str, key: str) -> int | None:
            place: tuple[int | str, ...] = (self._number, kind, key)
            live = "SELECT id FROM entry WHERE namespace = ? AND kind = ? AND key = ?"
            former = "FROM history WHERE namespace = ? AND kind = ? AND key = ?"
            if scan.as_of is None:
                sql, parameters = f"{live} UNION ALL SELECT max(entry) {former} LIMIT 1", (*place, *place)
            else:  # another entry may have had the key at that time
                sql = f"{live} AND valid_from <= ? UNION ALL SELECT entry {former} AND valid_from <= ? AND valid_to > ?"
                parameters = (*place, scan.as_of, *place, scan.as_of, scan.as_of)
            rows = self._connection.execute(sql, parameters).fetchall()
            return rows[0][0] if rows else None

        return pages.position_of(scan, number_of)

    def _live_rows(self, scan: Scan, position: pages.Position | None, selected: str, limit: int) -> list[Sequence[Any]]:
        pages.check_limit(scan.limit)
        order = pages.ORDER_COLUMNS[scan.order]
        comparison, direction = ("<", "DESC") if scan.descending else (">", "ASC")
        where = Where()
        where.add("e.namespace = ?", self._number)
        filter = scan.filter
        if has_labels(filter):
            place = self._waiting_place()
            where.waiting = waiting_labels(waiting_entries(self._connection, self._namespace, self._number, place))
        if position is not None and scan.order == "key" and filter.kinds == (position[0],):
            filter = pages.from_key(filter, position[1], scan.descending)
        elif position is not None:
            where.add(f"(e.{order[0]}, e.{order[1]}) {comparison} (?, ?)", *position)
        add_filter(where, self._number, filter, driving_labels=self._is_rare(filter))
        at = self._now if scan.as_of is None else scan.as_of
        where.add("(e.expires_at IS NULL OR e.expires_at > ?)", at)
        if scan.as_of is not None:
            where.add("e.valid_from <= ?", scan.as_of)
        return self._connection.execute(
            f"SELECT {selected} FROM entry AS e WHERE {where.sql}"
            f" ORDER BY e.{order[0]} {direction}, e.{order[1]} {direction} LIMIT ?",
            (*where.parameters, limit),
        ).fetchall()

    def _is_rare(self, filter: Filter) -> bool:
        """Whether few entries have one of the filter's labels, so that it is faster to start with these."""
        for name, value in pages.single_labels(filter):
            counted = self._connection.execute(
                "SELECT count(*) FROM (SELECT 1 FROM label WHERE namespace = ? AND name = ? AND value = ? LIMIT ?)",
                (self._number, name, value, RARE_ENTRIES),
            ).fetchall()
            if counted[0][0] < RARE_ENTRIES:
                return True
        return False

    def counts(self, kind: str, prefixes: Sequence[str]) -> list[int]:
        return [self._count_below(kind, prefix) for prefix in prefixes]

    def _count_below(self, kind: str, prefix: str) -> int:
        # Those that have expired and are not ended yet are few. The index of keys, which is counted, has no expiry.
        [(total,)] = self._connection.execute(
            "SELECT (SELECT count(*) FROM entry WHERE namespace = ?1 AND kind = ?2 AND key >= ?3 AND key < ?4)"
            " - (SELECT count(*) FROM entry INDEXED BY entry_expiry"
            " WHERE namespace = ?1 AND expires_at <= ?5 AND kind = ?2 AND key >= ?3 AND key < ?4)",
            (self._number, kind, prefix, after_prefix(prefix), self._now),
        ).fetchall()
        return int(total)

    def children(
        self, kind: str, prefix: str, *, as_of: int | None = None, after: str = "", limit: int | None = None
    ) -> list[Child]:
        """The names directly below a prefix, by jumping from child to child over whatever lies deeper."""
        found: list[Child] = []
        while True:
            keys = self._direct_keys("entry", kind, prefix, after, limit)
            if as_of is not None:
                keys = sorted({*keys, *self._direct_keys("history", kind, prefix, after, limit)})[:limit]
            heads = self._child_heads(kind, keys, as_of)
            found += [_child(prefix, heads[key]) for key in keys if key in heads]
            if limit is None or len(keys) < limit or len(found) >= limit:
                return found[:limit]
            after = keys[-1][len(prefix) :]  # some have expired

    def _child_heads(self, kind: str, keys: Sequence[str], as_of: int | None) -> dict[str, Live | Former]:
        """The states that keys have, or had at a time, without their texts."""
        place = (self._number, kind, json.dumps(keys))
        named = "namespace = ? AND kind = ? AND key IN (SELECT value FROM json_each(?))"
        live = self._connection.execute(
            f"SELECT {LIVE_HEAD} FROM entry WHERE {named} AND (expires_at IS NULL OR expires_at > ?)",
            (*place, self._now if as_of is None else as_of),
        )
        found: dict[str, Live | Former] = {row.key: row for row in (live_head(self._namespace, row) for row in live)}
        if as_of is None:
            return found
        former = self._connection.execute(
            f"SELECT {FORMER_HEAD} FROM history WHERE {named} AND valid_from <= ? AND +valid_to > ?",
            (*place, as_of, as_of),
        )
        found = {key: row for key, row in found.items() if row.valid_from <= as_of}
        return found | {row.key: row for row in (former_head(self._namespace, row) for row in former)}

    def _direct_keys(self, table: str, kind: str, prefix: str, after: str, limit: int | None) -> list[str]:
        """The first keys directly below a prefix in a table, in order."""
        rows = self._connection.execute(
            f"""
            WITH RECURSIVE found (key) AS (
                SELECT min(key) FROM {table}
                WHERE namespace = :namespace AND kind = :kind AND key > :start AND key < :stop
                UNION ALL
                SELECT (
                    SELECT min(key) FROM {table}
                    WHERE namespace = :namespace AND kind = :kind AND key < :stop AND key >= :prefix || CASE
                        WHEN instr(substr(found.key, :skip), :separator) THEN substr(
                            found.key, :skip, instr(substr(found.key, :skip), :separator) - 1
                        ) || :after_separator
                        ELSE substr(found.key, :skip) || :separator
                    END
                )
                FROM found WHERE found.key IS NOT NULL
            )
            SELECT key FROM found WHERE key IS NOT NULL AND NOT instr(substr(key, :skip), :separator) LIMIT :limit
            """,
            {
                "namespace": self._number,
                "kind": kind,
                "prefix": prefix,
                "start": pages.first_below(prefix, after),
                "stop": after_prefix(prefix),
                "skip": len(prefix) + 1,
                "separator": SEPARATOR,
                "after_separator": after_prefix(SEPARATOR),
                "limit": -1 if limit is None else limit,
            },
        ).fetchall()
        return [key for (key,) in rows]

    # History

    def history(self, kind: str, key: str) -> list[Revision]:
        """Every state that a key had, and every time it lost one, oldest first."""
        lines: list[Revision] = []
        place = (self._number, kind, key)
        for row in self._connection.execute(
            f"SELECT {FORMER_HEAD} FROM history WHERE namespace = ? AND kind = ? AND key = ? ORDER BY revision", place
        ):
            former = former_head(self._namespace, row)
            lines.append(Revision(former.revision, former.begun_by, former.commit, former.valid_from, former.actor))
            if former.ended_by in _LOSSES:
                loss = (former.ended_by, former.ended_commit, former.valid_to, former.ended_actor)
                lines.append(Revision(former.revision + 1, *loss))
        for row in self._connection.execute(
            f"SELECT {LIVE_HEAD} FROM entry WHERE namespace = ? AND kind = ? AND key = ?", place
        ):
            live = live_head(self._namespace, row)
            lines.append(Revision(live.revision, live.begun_by, live.commit, live.valid_from, live.actor))
            if live.expires_at is not None and live.expires_at <= self._now:
                lines.append(Revision(live.revision + 1, "expired", live.commit, live.expires_at, None))
        return lines

    def states(self, which: States) -> list[Entry]:
        conditions = which.conditions
        parameters: list[str | int | bytes] = [self._number, *conditions.values()]
        found: list[Entry] = []
        if which.has_live:
            by, named = list(conditions), parameters
            if which.kind is not None and which.identity is not None:  # the index of identities
                by, named = [*by, "identity_key"], [*parameters, identity_key(which.kind, which.identity)]
            sql = _selection("entry", tuple(by), "" if which.is_one else "id")
            rows = self._connection.execute(sql, named).fetchall()
            found = [live_entry(self._namespace, row) for row in rows]
            if found and which.is_one:
                return found
        names = [*conditions]
        if which.ended is not None:
            names.append("ended_commit")
            parameters.append(which.ended)
        if which.former_at is not None:
            names.append(_FORMER_AT)
            parameters += (which.former_at, which.former_at)
        order = "ended_commit DESC LIMIT 1" if which.newest else "" if which.is_one else "entry"
        rows = self._connection.execute(_selection("history", tuple(names), order), parameters).fetchall()
        return found + former_entries(self._connection, self._namespace, rows)

    def state(self, kind: str, key: str, revision: int) -> Entry | None:
        place = (self._number, kind, key, revision)
        for row in self._connection.execute(_LIVE_STATE, place).fetchall():
            return live_entry(self._namespace, row)
        for row in self._connection.execute(_FORMER_STATE, place).fetchall():
            return former_entry(self._connection, self._namespace, row)
        return None

    def last_key(self, kind: str, identity: str) -> str | None:
        live = (self._number, identity_key(kind, identity), kind, identity)
        rows = self._connection.execute(
            f"SELECT key FROM entry WHERE namespace = ? AND {_IS_IDENTITY}"
            " UNION ALL SELECT key FROM (SELECT key FROM history WHERE namespace = ? AND kind = ? AND identity = ?"
            " ORDER BY ended_commit DESC LIMIT 1) LIMIT 1",
            (*live, self._number, kind, identity),
        ).fetchall()
        return rows[0][0] if rows else None

    def was_used(self, kind: str, first: str, last: str) -> bool:
        [(was_used,)] = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM entry WHERE namespace = ?1 AND kind = ?2 AND key BETWEEN ?3 AND ?4)"
            " OR EXISTS (SELECT 1 FROM history WHERE namespace = ?1 AND kind = ?2 AND key BETWEEN ?3 AND ?4)",
            (self._number, kind, first, last),
        ).fetchall()
        return bool(was_used)

    def changes(self, after: int, limit: int) -> list[Change]:
        row = read_namespace(self._connection, self._namespace)
        pages.check_feed(after, *((0, 0) if row is None else (row.history_floor, row.commit_number)))
        return pages.whole_commits(limit, lambda most: self._changes(after, most))

    def _changes(self, after: int, limit: int) -> list[Change]:
        """Every state's beginning and every key's loss of one, in commit order."""
        rows = self._connection.execute(
            """
            SELECT commit_number, valid_from, begun_by, kind, key, revision, actor FROM entry
            WHERE namespace = :namespace AND commit_number > :after
            UNION ALL
            SELECT commit_number, valid_from, begun_by, kind, key, revision, actor FROM history
            WHERE namespace = :namespace AND commit_number > :after
            UNION ALL
            SELECT ended_commit, valid_to, ended_by, kind, key, revision + 1, ended_actor FROM history
            WHERE namespace = :namespace AND ended_commit > :after AND ended_by <> 'updated'
            ORDER BY 1, 5, 6 LIMIT :limit
            """,
            {"namespace": self._number, "after": after, "limit": limit},
        )
        return [Change(*row) for row in rows]

    def commits(self, numbers: Sequence[int], limit: int, *, skip: int = 0) -> list[tuple[int, list[Change]]]:
        found = []
        for number in numbers:
            [(commit,)] = self._connection.execute(_LAST_COMMIT, {"namespace": self._number, "number": number})
            place = {"namespace": self._number, "commit": commit, "limit": limit, "skip": skip}
            rows = self._connection.execute(_IN_COMMIT, place).fetchall() if commit else []
            found.append((commit or 0, [Change(*row) for row in rows]))
        return found

    # Counts

    def has_expired(self) -> bool:
        return bool(
            self._connection.execute(
                "SELECT 1 FROM entry WHERE namespace = ? AND expires_at <= ? LIMIT 1", (self._number, self._now)
            ).fetchall()
        )

    def usage(self) -> Usage:
        return usage_of(self._connection, self._number, self._waiting_place())

    def last_commit(self) -> int:
        rows = self._connection.execute("SELECT commit_number FROM namespace WHERE id = ?", (self._number,)).fetchall()
        return int(rows[0][0]) if rows else 0

    def stats(self) -> NamespaceStats:
        counters = self._connection.execute(
            "SELECT commit_number, commit_time, chunk_count FROM namespace WHERE id = ?", (self._number,)
        ).fetchall()
        commit, time, chunks = counters[0] if counters else (0, 0, 0)
        [(pending,)] = self._connection.execute(
            "SELECT count(*) FROM pending WHERE namespace = ?", (self._number,)
        ).fetchall()
        # Two counts, each by an index alone: one that looks at `expires_at` reads every row.
        kinds = self._connection.execute(
            "SELECT kind, count(*) FROM entry WHERE namespace = ? GROUP BY kind ORDER BY kind", (self._number,)
        ).fetchall()
        expired = self._connection.execute(
            "SELECT kind, count(*) FROM entry WHERE namespace = ? AND expires_at <= ? GROUP BY kind",
            (self._number, self._now),
        ).fetchall()
        place = self._waiting_place()
        waiting = Waiting(waiting_entries(self._connection, self._namespace, self._number, place))
        chunks, pending = chunks + waiting.passages, pending + waiting.pending
        usage = usage_of(self._connection, self._number, place)
        former = (usage.former_states, usage.bytes, usage.former_bytes)
        return NamespaceStats(self._namespace, pages.without(kinds, expired), commit, time, chunks, pending, *former)


def _child(prefix: str, head: Live | Former) -> Child:
    attributes: Any = value_of(True, head.attributes)
    return Child(head.key[len(prefix) :], attributes, head.revision, head.created_at, head.updated_at)


# Usage


BYTES = "octet_length(value) + coalesce(octet_length(text), 0) + octet_length(attributes)"
MEASURED = (
    "SELECT namespace, sum(entries), sum(bytes), sum(former_states), sum(former_bytes) FROM ("
    f"SELECT namespace, 1 AS entries, {BYTES} AS bytes, 0 AS former_states, 0 AS former_bytes FROM entry"
    f" UNION ALL SELECT namespace, 0, 0, 1, {FORMER_STATE_BYTES} + {BYTES} FROM history) GROUP BY namespace"
)
"""The counts of `usage`, computed again from all entries."""


def usage_of(connection: Connection, namespace_id: int, place: Place | None) -> Usage:
    """What a namespace holds: its row of `usage`, and the entries that are not counted there yet."""
    rows = connection.execute(
        "SELECT entries, bytes, former_states, former_bytes FROM usage WHERE namespace = ?", (namespace_id,)
    ).fetchall()
    if rows and not all(type(number) is int for number in rows[0]):
        raise damaged_row("a row of measured use")
    counted = Usage(*rows[0]) if rows else NOTHING
    if place is None:
        return counted
    [(entries, size)] = connection.execute(
        f"SELECT count(*), coalesce(sum({BYTES}), 0) FROM entry AS e INDEXED BY entry_commit"
        f" WHERE {WAITING.format(namespace='?', commit='?', entry='?')}",
        (namespace_id, *place),
    ).fetchall()
    return replace(counted, entries=counted.entries + entries, bytes=counted.bytes + size)


def usage_below(connection: Connection, prefix: Namespace) -> Usage:
    """The total usage of the namespaces at and below a prefix."""
    path = "/".join(prefix)
    where = "path = ? OR (path >= ? AND path < ?)" if prefix else "?1 = '' AND ?2 <> ?3"
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in ("entries", "bytes", "former_states", "former_bytes"))
    parameters = (path, path + "/", after_prefix(path + "/"))
    [row] = connection.execute(
        f"SELECT {sums} FROM namespace AS n JOIN usage AS u ON u.namespace = n.id WHERE {where}", parameters
    ).fetchall()
    waiting = WAITING.format(namespace="n.id", commit="n.waiting_commit", entry="n.waiting_entry")
    [(entries, size)] = connection.execute(
        f"SELECT count(*), coalesce(sum({BYTES}), 0) FROM namespace AS n CROSS JOIN entry AS e"
        f" ON {waiting} WHERE n.waiting_entry IS NOT NULL AND ({where})",
        parameters,
    ).fetchall()
    counted = Usage(*row)
    return replace(counted, entries=counted.entries + entries, bytes=counted.bytes + size)


# Former rows


def former_entry(connection: Connection, namespace: Namespace, row: Sequence[Any]) -> Entry:
    """The entry of a row in the order of FORMER; `Corrupt` if it is not what was written."""
    check_former(namespace, row)
    return _checked_entry(connection, namespace, row)


def former_entries(connection: Connection, namespace: Namespace, rows: Sequence[Sequence[Any]]) -> list[Entry]:
    """The same for many rows. What a commit has changed is mostly a delta of the live state, which is read for many."""
    found = []
    for start in range(0, len(rows), READ_TOGETHER):
        some = rows[start : start + READ_TOGETHER]
        for row in some:
            check_former(namespace, row)
        # If the value is a number, the state has the text of the next one, or the beginning of it.
        wanted = json.dumps([(row[0], row[6]) for row in some if type(row[CONTENT][1]) is int])
        live = {
            (entry_id, revision): content
            for entry_id, revision, *content in connection.execute(_NEXT_IS_LIVE, (wanted,)).fetchall()
        }
        found += [_checked_entry(connection, namespace, row, live.get((row[0], row[6]))) for row in some]
    return found


def _checked_entry(
    connection: Connection, namespace: Namespace, row: Sequence[Any], live: Sequence[Any] | None = None
) -> Entry:
    """`live` has the text, the value and the checksum of the live state if that is the next one."""
    entry_id, kind, key, _, _, _, revision, *_ = row
    text, value = row[CONTENT]
    if isinstance(value, str) and (text is None or isinstance(text, str)):  # kept whole, so no other state is needed
        return entry_of(namespace, row)
    try:
        if live is None:
            content = decode_former(connection, entry_id, revision)
        else:
            content = _decoded([(text, value)], *_whole_content(*live))
    except deltas.DAMAGE as error:
        raise damaged(namespace, kind, key, revision=revision) from error
    return entry_of(namespace, (*row[HEAD], *content))


def _whole_content(text: Any, value: Any, checksum: int | None) -> tuple[Any, Any]:
    if not is_whole_content(text, value, checksum):
        raise ValueError(_NOT_WRITTEN)
    return text, value


def decode_former(connection: Connection, entry_id: int, revision: int) -> tuple[str | None, str]:
    """The stored `text` and `value` of a former state; a damaged state after it raises one of deltas.DAMAGE."""
    chain: list[tuple[Any, Any]] = []
    for text, value, checksum in connection.execute(
        "SELECT text, value, checksum FROM history WHERE entry = ? AND revision >= ? ORDER BY revision",
        (entry_id, revision),
    ):
        if not is_whole_content(text, value, checksum):
            raise ValueError(_NOT_WRITTEN)
        chain.append((text, value))
        if deltas.is_whole(value) and (text is None or deltas.is_whole(text)):
            break
    chain.reverse()
    newest_text = newest_value = None
    if not chain or not deltas.is_whole(chain[0][1]) or (chain[0][0] is not None and not deltas.is_whole(chain[0][0])):
        for row in connection.execute("SELECT text, value, checksum FROM entry WHERE id = ?", (entry_id,)).fetchall():
            newest_text, newest_value = _whole_content(*row)
    return _decoded(chain, newest_text, newest_value)


def _decoded(chain: Sequence[tuple[Any, Any]], newest_text: Any, newest_value: Any) -> tuple[str | None, str]:
    """The text and the value of the oldest state of a chain of deltas, given newest first."""
    value = deltas.decode_last(newest_value, [former for _, former in chain])
    if chain[-1][0] is None:
        return None, value
    # A text that was replaced by a state without a text was stored whole.
    return deltas.decode_last(newest_text, [former for former, _ in chain if former is not None]), value
