"""Reads of one namespace in a session: live and former states, ranges, children, history, the feed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal, cast

from commonplace.backends import deltas, pages
from commonplace.backends.deltas import Stored
from commonplace.backends.filter_sql import add_filter, add_former
from commonplace.backends.pages import after_prefix
from commonplace.backends.postgres.connection import Result, Session, array_of
from commonplace.backends.postgres.where import Where
from commonplace.backends.ranking import Counts
from commonplace.backends.rows import COLUMNS, FORMER_COLUMNS, HEAD, NAMES, Former, columns, damaged, entry_of, prefixed
from commonplace.checks import Namespace
from commonplace.entry import SEPARATOR, Action, Change, Entry, Revision
from commonplace.filters import Filter
from commonplace.store import FORMER_STATE_BYTES, Child, NamespaceStats, Page, Reader, Scan, States, Usage

RARE_ENTRIES = 500
NOW = "coalesce(%s::bigint, now_micros())"
_LIVE_AT = "valid_from <= %s AND (expires_at IS NULL OR expires_at > %s)"
_FORMER_HEAD = ", ".join([*prefixed(FORMER_COLUMNS, "e").split(", ")[HEAD], "NULL", "NULL"])
_FORMER_AT = "valid_from <= %s AND valid_to > %s"
_NAMED_FORMER_AT = "valid_from <= %s AND valid_to + 0 > %s"
"""The same for named keys: the sum keeps PostgreSQL from the index of all that ended later."""
FORMER_BYTES = (
    f"{FORMER_STATE_BYTES} + octet_length(attributes) + coalesce(octet_length(text), 0) + octet_length(value)"
)
"""What a row of history counts for in its namespace's usage."""
_LOSSES: tuple[Action, ...] = ("deleted", "expired", "moved_away")


@dataclass(frozen=True, slots=True)
class Location:
    """A namespace and its row, which every statement names."""

    namespace: Namespace
    tenant: str
    id: int
    part: int | None = None
    """Which partition of every table holds its rows, if known."""

    def of(self, table: str) -> str:
        """The table to read from. A query on one partition has a simple plan; one on all partitions takes several times
        as long.
        """
        return part_of(table, self.part)


def part_of(table: str, part: int | None) -> str:
    """The name of a table's partition; on Citus tables have none."""
    return table if part is None else f"{table}_p{part:d}"


def tenant_of(namespace: Namespace) -> str:
    """The first two labels: the unit of sharding and of row-level security."""
    return "/".join(namespace[:2])


# The counts of former states come from the row if they are of its last commit; otherwise they are counted here.
def _counted(tenant: str) -> str:
    """For one namespace pass its tenant, so that one partition is read; for several pass `n.tenant`."""
    return (
        "namespace AS n LEFT JOIN LATERAL (SELECT count(*) AS states,"
        f" coalesce(sum({FORMER_BYTES}), 0)::bigint AS bytes FROM history AS h"
        f" WHERE n.former_commit <> n.commit_number AND h.tenant = {tenant} AND h.namespace = n.id)"
        " AS counted ON true"
    )


_FORMER_STATES, _FORMER_BYTES = (
    f"CASE WHEN n.former_commit = n.commit_number THEN n.former_{what} ELSE counted.{what} END"
    for what in ("states", "bytes")
)


# Written so that no statistics lead to a plan that reads all rows of the namespace for each child. The statistics say
# that only a row or two have a given tenant, namespace and kind. So each step returns its whole row, since a later join
# may compare every child with every row. And each step starts at a key and tenant, in the order of the index: for a
# bound on the key alone PostgreSQL 18 expects a skip scan, and considers sorting all rows cheaper.
_CHILDREN = """
    WITH RECURSIVE found AS (
        (SELECT e.key, e.attributes, e.revision, e.created_at, e.updated_at, e.expires_at FROM entry AS e
         WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s AND e.kind = %(kind)s
             AND (e.key, e.tenant) > (%(start)s, %(tenant)s) ORDER BY e.key LIMIT 1)
        UNION ALL
        SELECT next.* FROM found CROSS JOIN LATERAL (
            SELECT e.key, e.attributes, e.revision, e.created_at, e.updated_at, e.expires_at FROM entry AS e
            WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s AND e.kind = %(kind)s
                AND (e.key, e.tenant) >= ((%(prefix)s || CASE
                    WHEN strpos(substr(found.key, %(skip)s::int), %(separator)s) > 0 THEN
                        split_part(substr(found.key, %(skip)s::int), %(separator)s, 1) || %(after_separator)s
                    ELSE substr(found.key, %(skip)s::int) || %(separator)s
                END) COLLATE "C", %(tenant)s)
            ORDER BY e.key LIMIT 1
        ) AS next WHERE found.key < %(stop)s
    )
    SELECT key, attributes, revision, created_at, updated_at FROM found
    WHERE key < %(stop)s AND strpos(substr(key, %(skip)s::int), %(separator)s) = 0
        AND (expires_at IS NULL OR expires_at > coalesce(%(now)s::bigint, now_micros()))
    LIMIT %(limit)s
"""


def _direct_keys(table: str, index: str, least: str) -> str:
    """The same for the keys alone, live or former, by an index on `namespace, kind, key` and another column."""
    return f"""
        WITH RECURSIVE found AS (
            (SELECT e.key FROM {table} AS e
             WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s AND e.kind = %(kind)s
                 AND (e.key, e.{index}) > (%(start)s, {least}) ORDER BY e.key, e.{index} LIMIT 1)
            UNION ALL
            SELECT next.* FROM found CROSS JOIN LATERAL (
                SELECT e.key FROM {table} AS e
                WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s AND e.kind = %(kind)s
                    AND (e.key, e.{index}) >= ((%(prefix)s || CASE
                        WHEN strpos(substr(found.key, %(skip)s::int), %(separator)s) > 0 THEN
                            split_part(substr(found.key, %(skip)s::int), %(separator)s, 1) || %(after_separator)s
                        ELSE substr(found.key, %(skip)s::int) || %(separator)s
                    END) COLLATE "C", {least})
                ORDER BY e.key, e.{index} LIMIT 1
            ) AS next WHERE found.key < %(stop)s
        )
        SELECT key FROM found WHERE key < %(stop)s AND strpos(substr(key, %(skip)s::int), %(separator)s) = 0
        LIMIT %(limit)s
    """


_LIVE_KEYS = _direct_keys("entry", "tenant", "%(tenant)s")
_FORMER_KEYS = _direct_keys("history", "revision", "0")

# A commit is given by two bounds and in order: for an equality, PostgreSQL without statistics reads all rows of the
# namespace. `OFFSET 0` keeps the search for a commit from being repeated in each part.
_HERE = "tenant = %(tenant)s AND namespace = %(namespace)s"


def _in_commit(table: str, commit: str, columns: str, condition: str = "true") -> str:
    return (
        f"(SELECT {commit}, {columns} FROM {table} WHERE {_HERE} AND {commit} >= known.number"
        f" AND {commit} <= known.number AND {condition} ORDER BY {commit} LIMIT %(most)s)"
    )


_BEGUN = "valid_from, begun_by, kind, key, revision, actor"
_ENDED = "valid_to, ended_by, kind, key, revision + 1, ended_actor"
_COMMITS = f"""
    SELECT wanted.place, coalesce(known.number, 0), change.* FROM
        unnest(%(numbers)s::bigint[]) WITH ORDINALITY AS wanted (number, place)
    CROSS JOIN LATERAL (SELECT greatest(
        (SELECT max(commit_number) FROM entry WHERE {_HERE} AND commit_number <= wanted.number),
        (SELECT max(commit_number) FROM history WHERE {_HERE} AND commit_number <= wanted.number),
        (SELECT max(ended_commit) FROM history WHERE {_HERE} AND ended_commit <= wanted.number)
    ) AS number OFFSET 0) AS known
    LEFT JOIN LATERAL (
        {_in_commit("entry", "commit_number", _BEGUN)}
        UNION ALL {_in_commit("history", "commit_number", _BEGUN)}
        UNION ALL {_in_commit("history", "ended_commit", _ENDED, "ended_by NOT IN ('updated', 'expired')")}
        UNION ALL {_in_commit("history", "ended_commit", _ENDED, "ended_by = 'expired'")}
        LIMIT %(limit)s OFFSET %(skip)s
    ) AS change ON true
    ORDER BY wanted.place
"""


def load(
    session: Session, spot: Location, ids: Sequence[int], now: int | None, *, last: bool = True
) -> dict[int, Entry]:
    """The live entries with these ids, in their order. `last` ends the session's transaction."""
    rows = session.rows(
        f"SELECT {columns('e')} FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (id, place)"
        f" JOIN {spot.of('entry')} AS e ON e.tenant = %s AND e.id = wanted.id"
        f" WHERE e.namespace = %s AND (e.expires_at IS NULL OR e.expires_at > {NOW}) ORDER BY wanted.place",
        (array_of(ids), spot.tenant, spot.id, now),
        last=last,
        binary=True,
        prepare=True,
    )
    entries = (entry_of(spot.namespace, row) for row in rows)
    return {entry.id: entry for entry in entries}


class PostgresReader(Reader):
    """Reads a namespace in a session. Transactions read in the same way.

    `now` is a time, or None for the database's own. With `is_single`, a read ends the session's transaction in the same
    round trip; the next read begins another one.
    """

    def __init__(self, session: Session, spot: Location, now: int | None, *, is_single: bool) -> None:
        self._session = session
        self._spot = spot
        self._now = now
        self._is_single = is_single

    # Live entries

    def get_all(
        self, kind: str, names: Sequence[str], *, by: Literal["key", "identity"] = "key", as_of: int | None = None
    ) -> list[Entry | None]:
        if as_of is not None:
            return self._get_as_of(kind, names, as_of)
        rows = self._session.rows(
            f"SELECT {COLUMNS} FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND {by} = ANY(%s)"
            f" AND (expires_at IS NULL OR expires_at > {NOW})",
            (self._spot.tenant, self._spot.id, kind, list(names), self._now),
            last=self._is_single,
        )
        entries = [entry_of(self._spot.namespace, row) for row in rows]
        found = {entry.key if by == "key" else entry.identity: entry for entry in entries}
        return [found.get(name) for name in names]

    def _get_as_of(self, kind: str, keys: Sequence[str], as_of: int) -> list[Entry | None]:
        place = (self._spot.tenant, self._spot.id, kind, list(keys), as_of, as_of)
        live = self._session.rows(
            f"SELECT {COLUMNS} FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND key = ANY(%s)"
            f" AND {_LIVE_AT}",
            place,
        )
        former = self._session.rows(
            f"SELECT DISTINCT ON (key) {FORMER_COLUMNS} FROM history WHERE tenant = %s AND namespace = %s AND kind = %s"
            f" AND key = ANY(%s) AND {_NAMED_FORMER_AT} ORDER BY key, revision DESC",
            place,
        )
        entries = self._former_entries(former) + [entry_of(self._spot.namespace, row) for row in live]
        found = {entry.key: entry for entry in entries}
        return [found.get(key) for key in keys]

    def _former_entries(self, rows: list[tuple[Any, ...]]) -> list[Entry]:
        return former_entries(self._session, self._spot.tenant, self._spot.namespace, rows)

    def load(self, ids: Sequence[int]) -> dict[int, Entry]:
        return load(self._session, self._spot, ids, self._now, last=self._is_single)

    def next_keys(self, kind: str, keys: Sequence[str]) -> list[str | None]:
        rows = self._session.rows(
            "SELECT (SELECT e.key FROM entry AS e WHERE e.tenant = %s AND e.namespace = %s AND e.kind = %s"
            f" AND e.key > wanted.key AND (e.expires_at IS NULL OR e.expires_at > {NOW}) ORDER BY e.key LIMIT 1)"
            " FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (key, place) ORDER BY wanted.place",
            (self._spot.tenant, self._spot.id, kind, self._now, list(keys)),
            last=self._is_single,
            prepare=True,
        )
        return [key for (key,) in rows]

    def scan(self, scan: Scan) -> Page:
        """One page. With `as_of`, the live rows that were valid then and the former states, merged."""
        pages.check_limit(scan.limit)
        place = pages.position_of(scan, partial(self._number_of, scan.as_of))
        is_rare = self._is_rare(scan.filter)
        by_kind = pages.by_kind(scan)
        asked = [self._ask_live(one, place, driving_labels=is_rare) for one in by_kind]
        if self._is_single and scan.as_of is None:
            self._session.end()
        found = [entry_of(self._spot.namespace, row) for rows in asked for row in rows.fetchall()]
        if scan.as_of is not None:
            found += self._former_page(scan, place, tuple(found))
        if scan.as_of is not None or len(by_kind) > 1:
            found.sort(key=lambda entry: pages.position(scan, entry), reverse=scan.descending)
        page = found[: scan.limit]
        more = len(found) > scan.limit
        return Page(tuple(page), pages.cursor_of(scan, page[-1]) if more else None)

    def _ask_live(self, scan: Scan, place: pages.Position | None, *, driving_labels: bool) -> Result:
        spot = self._spot
        order = pages.ORDER_COLUMNS[scan.order]
        comparison, direction = ("<", "DESC") if scan.descending else (">", "ASC")
        where = Where()
        where.add("e.tenant = %s AND e.namespace = %s", spot.tenant, spot.id)
        filter = scan.filter
        if place is not None and scan.order == "key" and filter.kinds == (place[0],):
            filter = pages.from_key(filter, place[1], scan.descending)
        elif place is not None:
            where.add(f"(e.{order[0]}, e.{order[1]}) {comparison} (%s, %s)", *place)
        if scan.order != "key" and len(filter.kinds) == 1:
            # The collation of the indexes by time (migrations/006).
            where.add('e.kind COLLATE "POSIX" = %s', filter.kinds[0])
            filter = replace(filter, kinds=())
        add_filter(where, spot.id, filter, driving_labels=driving_labels)
        where.add(f"(e.expires_at IS NULL OR e.expires_at > {NOW})", self._now if scan.as_of is None else scan.as_of)
        if scan.as_of is not None:
            where.add("e.valid_from <= %s", scan.as_of)
        return self._session.ask(
            f"SELECT {columns('e')} FROM entry AS e WHERE {where.sql}"
            # The plan must know how short a page is, or it reads and sorts all entries that have a label.
            f" ORDER BY e.{order[0]} {direction}, e.{order[1]} {direction} LIMIT {int(scan.limit) + 1}",
            where.parameters,
        )

    def _former_page(self, scan: Scan, place: pages.Position | None, live: Sequence[Entry]) -> list[Entry]:
        """The first former states of a page, in order. Without conditions on fields, the others are not decoded."""
        where = Where()
        where.add("e.tenant = %s AND e.namespace = %s", self._spot.tenant, self._spot.id)
        where.add("e.valid_from <= %s AND e.valid_to > %s", scan.as_of, scan.as_of)
        order = add_former(where, scan, place, live)
        filter = scan.filter
        is_exact = not (filter.types or filter.all_tags or filter.any_tags or filter.resource or filter.conditions)
        rows = self._session.rows(
            f"SELECT {_FORMER_HEAD} FROM history AS e WHERE {where.sql} ORDER BY {order} LIMIT %s",
            (*where.parameters, scan.limit + 1 if is_exact else None),
        )
        labels = replace(scan.filter, conditions=())
        rows = [row for row in rows if labels.matches(entry_of(self._spot.namespace, (*row[HEAD], None, "null")))]
        if not scan.filter.conditions:
            return self._former_entries(rows[: scan.limit + 1])
        return [state for state in self._former_entries(rows) if scan.filter.matches(state)]

    def _number_of(self, as_of: int | None, kind: str, key: str) -> int | None:
        """The id of the entry that has a key, or else of the last one that had it. With `as_of`, of the one that had it
        then.
        """
        place: tuple[Any, ...] = (self._spot.tenant, self._spot.id, kind, key)
        live = "SELECT id FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s"
        former = "FROM history WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s"
        if as_of is None:
            rows = self._session.rows(f"{live} UNION ALL SELECT max(entry) {former} LIMIT 1", (*place, *place))
        else:
            rows = self._session.rows(
                f"{live} AND valid_from <= %s UNION ALL SELECT entry {former} AND valid_from <= %s AND valid_to > %s",
                (*place, as_of, *place, as_of, as_of),
            )
        return rows[0][0] if rows else None

    def _is_rare(self, filter: Filter) -> bool:
        """Whether few entries have one of the filter's labels, so that it is faster to start with these."""
        for name, value in pages.single_labels(filter):
            counted = self._session.rows(
                "SELECT count(*) FROM (SELECT 1 FROM label WHERE tenant = %s AND namespace = %s AND name = %s"
                " AND value = %s LIMIT %s) AS counted",
                (self._spot.tenant, self._spot.id, name, value, RARE_ENTRIES),
            )
            if counted[0][0] < RARE_ENTRIES:
                return True
        return False

    def counts(self, kind: str, prefixes: Sequence[str]) -> list[int]:
        # Those that have expired and are not ended yet are few. The index of keys, which is counted, has no expiry.
        below = (
            "FROM entry AS e WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s AND e.kind = %(kind)s"
            " AND e.key >= wanted.first AND e.key < wanted.stop"
        )
        rows = self._session.rows(
            f"SELECT (SELECT count(*) {below}) - (SELECT count(*) {below} AND e.expires_at <="
            " coalesce(%(now)s::bigint, now_micros()))"
            " FROM unnest(%(first)s::text[], %(stop)s::text[]) WITH ORDINALITY AS wanted (first, stop, place)"
            " ORDER BY wanted.place",
            {
                "tenant": self._spot.tenant,
                "namespace": self._spot.id,
                "kind": kind,
                "first": list(prefixes),
                "stop": list(map(after_prefix, prefixes)),
                "now": self._now,
            },
        )
        return [count for (count,) in rows]

    def children(
        self, kind: str, prefix: str, *, as_of: int | None = None, after: str = "", limit: int | None = None
    ) -> list[Child]:
        """The names directly below a prefix, by jumping from child to child over whatever lies deeper."""
        below = {
            "tenant": self._spot.tenant,
            "namespace": self._spot.id,
            "kind": kind,
            "prefix": prefix,
            "start": pages.first_below(prefix, after),
            "stop": after_prefix(prefix),
            "skip": len(prefix) + 1,
            "separator": SEPARATOR,
            "after_separator": after_prefix(SEPARATOR),
            "now": self._now,
            "limit": limit,
        }
        if as_of is not None:
            return self._former_children(below, as_of)
        rows = self._session.rows(_CHILDREN, below, last=self._is_single)
        return sorted((_child(prefix, row) for row in rows), key=attrgetter("name"))

    def _former_children(self, below: dict[str, Any], as_of: int) -> list[Child]:
        prefix, limit = below["prefix"], below["limit"]
        place = (below["tenant"], below["namespace"], below["kind"])
        found: list[Child] = []
        while True:
            both = [key for keys in (_LIVE_KEYS, _FORMER_KEYS) for (key,) in self._session.rows(keys, below)]
            keys = sorted(set(both))[:limit]
            rows = [
                row
                for table, condition in (("entry", _LIVE_AT), ("history", _NAMED_FORMER_AT))
                for row in self._session.rows(
                    f"SELECT key, attributes, revision, created_at, updated_at FROM {table} WHERE tenant = %s"
                    f" AND namespace = %s AND kind = %s AND key = ANY(%s) AND {condition}",
                    (*place, keys, as_of, as_of),
                )
            ]
            found += sorted((_child(prefix, row) for row in rows), key=attrgetter("name"))
            if limit is None or len(keys) < limit or len(found) >= limit:
                return found[:limit]
            below = {**below, "start": pages.first_below(prefix, keys[-1][len(prefix) :])}

    # History

    def history(self, kind: str, key: str) -> list[Revision]:
        """Every state that a key had, and every time it lost one, oldest first."""
        place = (self._spot.tenant, self._spot.id, kind, key)
        lines: list[Revision] = []
        for *state, ended_commit, valid_to, ended_by, ended_actor in self._session.rows(
            "SELECT revision, begun_by, commit_number, valid_from, actor, ended_commit, valid_to, ended_by, ended_actor"
            " FROM history WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s ORDER BY revision",
            place,
        ):
            begun = Revision(*state)
            lines.append(begun)
            if ended_by in _LOSSES:
                lines.append(Revision(begun.revision + 1, ended_by, ended_commit, valid_to, ended_actor))
        for *state, expires_at, has_expired in self._session.rows(
            f"SELECT revision, begun_by, commit_number, valid_from, actor, expires_at, expires_at <= {NOW} FROM entry"
            " WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s",
            (self._now, *place),
        ):
            live = Revision(*state)
            lines.append(live)
            if has_expired:
                lines.append(Revision(live.revision + 1, "expired", live.commit, expires_at, None))
        return lines

    def states(self, which: States) -> list[Entry]:
        conditions = which.conditions
        where = "tenant = %s AND namespace = %s" + "".join([f" AND {name} = %s" for name in conditions])
        parameters = [self._spot.tenant, self._spot.id, *conditions.values()]
        found: list[Entry] = []
        if which.has_live:
            rows = self._session.rows(f"SELECT {COLUMNS} FROM entry WHERE {where} ORDER BY id", parameters)
            found = [entry_of(self._spot.namespace, row) for row in rows]
            if found and which.is_one:
                return found
        if which.ended is not None:
            where, parameters = f"{where} AND ended_commit = %s", [*parameters, which.ended]
        if which.former_at is not None:
            where, parameters = f"{where} AND {_FORMER_AT}", [*parameters, which.former_at, which.former_at]
        order = "ended_commit DESC LIMIT 1" if which.newest else "entry"
        rows = self._session.rows(f"SELECT {FORMER_COLUMNS} FROM history WHERE {where} ORDER BY {order}", parameters)
        return found + self._former_entries(rows)

    def last_key(self, kind: str, identity: str) -> str | None:
        place = (self._spot.tenant, self._spot.id, kind, identity)
        rows = self._session.rows(
            "SELECT key FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND identity = %s"
            " UNION ALL (SELECT key FROM history WHERE tenant = %s AND namespace = %s AND kind = %s AND identity = %s"
            " ORDER BY ended_commit DESC LIMIT 1) LIMIT 1",
            (*place, *place),
            last=self._is_single,
        )
        return rows[0][0] if rows else None

    def was_used(self, kind: str, first: str, last: str) -> bool:
        place = (self._spot.tenant, self._spot.id, kind, first, last)
        [(was_used,)] = self._session.rows(
            "SELECT EXISTS (SELECT 1 FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s"
            " AND key BETWEEN %s AND %s) OR EXISTS (SELECT 1 FROM history WHERE tenant = %s AND namespace = %s"
            " AND kind = %s AND key BETWEEN %s AND %s)",
            (*place, *place),
        )
        return bool(was_used)

    def changes(self, after: int, limit: int) -> list[Change]:
        [(floor, commit)] = self._session.rows(
            "SELECT history_floor, commit_number FROM namespace WHERE tenant = %s AND id = %s",
            (self._spot.tenant, self._spot.id),
        )
        pages.check_feed(after, floor, commit)
        return pages.whole_commits(limit, partial(self._changes, after))

    def _changes(self, after: int, limit: int) -> list[Change]:
        """Every state's beginning and every key's loss of one, in commit order."""
        # Each branch has an index in commit order and returns at most a page, so only pages are merged.
        part = (
            "(SELECT {commit} AS commit_number, {at} AS at, {by} AS by, kind, key, {revision} AS revision,"
            " {actor} AS actor FROM {table} WHERE tenant = %(tenant)s AND namespace = %(namespace)s"
            " AND {commit} > %(after)s {more} ORDER BY {commit}, key, {revision} LIMIT %(limit)s)"
        )
        began = {"commit": "commit_number", "at": "valid_from", "by": "begun_by", "revision": "revision"}
        ends = {"commit": "ended_commit", "at": "valid_to", "by": "ended_by", "revision": "revision + 1"}
        parts = [
            part.format(**began, actor="actor", table="entry", more=""),
            part.format(**began, actor="actor", table="history", more=""),
            part.format(**ends, actor="ended_actor", table="history", more="AND ended_by <> 'updated'"),
        ]
        rows = self._session.rows(
            " UNION ALL ".join(parts) + " ORDER BY 1, 5, 6 LIMIT %(limit)s",
            {"tenant": self._spot.tenant, "namespace": self._spot.id, "after": after, "limit": limit},
        )
        return [Change(*row) for row in rows]

    def commits(self, numbers: Sequence[int], limit: int, *, skip: int = 0) -> list[tuple[int, list[Change]]]:
        rows = self._session.rows(
            _COMMITS,
            {
                "tenant": self._spot.tenant,
                "namespace": self._spot.id,
                "numbers": list(numbers),
                "limit": limit,
                "skip": skip,
                "most": limit + skip,
            },
        )
        found: list[tuple[int, list[Change]]] = [(0, []) for _ in numbers]
        for place, commit, *change in rows:
            if not found[place - 1][1]:
                found[place - 1] = (commit, [])
            if change[0] is not None:
                found[place - 1][1].append(Change(*change))
        return found

    # Counts

    def has_expired(self) -> bool:
        rows = self._session.rows(
            f"SELECT 1 FROM namespace WHERE tenant = %s AND id = %s AND expires_next <= {NOW}",
            (self._spot.tenant, self._spot.id, self._now),
            last=self._is_single,
        )
        return bool(rows)

    def usage(self) -> Usage:
        [counts] = self._session.rows(
            f"SELECT n.entry_count, n.byte_count, {_FORMER_STATES}, {_FORMER_BYTES} FROM {_counted('%s')}"
            " WHERE n.tenant = %s AND n.id = %s",
            (self._spot.tenant, self._spot.tenant, self._spot.id),
            last=self._is_single,
        )
        return Usage(*counts)

    def last_commit(self) -> int:
        [(commit,)] = self._session.rows(
            "SELECT commit_number FROM namespace WHERE tenant = %s AND id = %s", (self._spot.tenant, self._spot.id)
        )
        return int(commit)

    def stats(self) -> NamespaceStats:
        spot = self._spot
        place = (spot.tenant, spot.id)
        [(commit, time, chunks, pending, size, former, former_size)] = self._session.rows(
            "SELECT n.commit_number, n.commit_time, n.chunk_count,"
            " (SELECT count(*) FROM pending WHERE tenant = %s AND namespace = %s),"
            f" n.byte_count, {_FORMER_STATES}, {_FORMER_BYTES} FROM {_counted('%s')} WHERE n.tenant = %s AND n.id = %s",
            (*place, spot.tenant, *place),
        )
        # Two counts, each by an index alone: one that looks at `expires_at` reads every row. To count kind by kind is
        # faster than `GROUP BY`, for which PostgreSQL compares every kind with the next.
        entries = f"FROM {spot.of('entry')} AS e WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s"
        named = {"tenant": spot.tenant, "namespace": spot.id, "now": self._now}
        kinds = self._session.rows(
            f"WITH RECURSIVE known AS ((SELECT e.kind {entries} ORDER BY e.kind LIMIT 1) UNION ALL"
            f" SELECT (SELECT e.kind {entries} AND e.kind > known.kind ORDER BY e.kind LIMIT 1) FROM known"
            " WHERE known.kind IS NOT NULL)"
            f" SELECT kind, (SELECT count(*) {entries} AND e.kind = known.kind) FROM known WHERE kind IS NOT NULL",
            named,
        )
        expired = self._session.rows(
            f"SELECT kind, count(*) {entries} AND e.expires_at <= coalesce(%(now)s::bigint, now_micros())"
            " GROUP BY kind",
            named,
        )
        return NamespaceStats(
            spot.namespace, pages.without(kinds, expired), commit, time, chunks, pending, former, size, former_size
        )


def keyword_index(spot: Location) -> str:
    """The name of the index of keywords that a partition has if memory does not hold one of its namespaces."""
    return f"{spot.of('chunk')}_terms"


def read_counts(session: Session, spot: Location) -> Counts | None:
    """How many passages a namespace has, and how long they are together; None if there is no such namespace."""
    rows = session.rows(
        f"SELECT chunk_count, term_total FROM {spot.of('namespace')} WHERE tenant = %s AND id = %s",
        (spot.tenant, spot.id),
    )
    return Counts(spot.id, *rows[0]) if rows else None


def _child(prefix: str, row: Sequence[Any]) -> Child:
    key, attributes, *rest = row
    return Child(key[len(prefix) :], json.loads(attributes), *rest)


def usage_below(session: Session, prefix: Namespace) -> Usage:
    """The total usage of the namespaces at and below a prefix."""
    path = "/".join(prefix)
    where = "path = %s OR (path >= %s AND path < %s)" if prefix else "true"
    parts = ("n.entry_count", "n.byte_count", _FORMER_STATES, _FORMER_BYTES)
    sums = ", ".join(f"coalesce(sum({part}), 0)::bigint" for part in parts)
    rows = session.rows(
        f"SELECT {sums} FROM {_counted('n.tenant')} WHERE {where}",
        (path, path + "/", after_prefix(path + "/")) if prefix else (),
        last=True,
    )
    return Usage(*rows[0])


# Former rows. A delta as bytes is `n` and a number, `t` and a text, or a compressed form from deltas.py.


def pack_delta(stored: Stored) -> bytes:
    if isinstance(stored, int):
        return b"n%d" % stored
    return b"t" + stored.encode() if isinstance(stored, str) else stored


def unpack_delta(kept: bytes) -> Stored:
    mark = kept[:1]
    if mark == b"n":
        return int(kept[1:])
    return kept[1:].decode() if mark == b"t" else kept


def former_of(columns: Sequence[Any]) -> Former:
    """A former row with its text and value as deltas."""
    row = Former._make(columns)
    text, value = cast("bytes | None", row.text), cast("bytes", row.value)
    return row._replace(text=None if text is None else unpack_delta(text), value=unpack_delta(value))


def former_entries(session: Session, tenant: str, namespace: Namespace, rows: list[tuple[Any, ...]]) -> list[Entry]:
    """Former rows, in the order of FORMER_COLUMNS, with their texts decoded from the states after them."""
    states = [(entry_id, revision) for entry_id, _, _, _, _, _, revision, *_ in rows]
    try:
        contents = decode_former(session, tenant, states)
    except deltas.DAMAGE as error:
        if len(rows) > 1:  # which of them it is
            return [entry for row in rows for entry in former_entries(session, tenant, namespace, [row])]
        [(kind, key)] = [row[NAMES] for row in rows]
        raise damaged(namespace, kind, key, revision=states[0][1]) from error
    return [entry_of(namespace, (*row[HEAD], *contents[state])) for row, state in zip(rows, states, strict=True)]


def decode_former(
    session: Session, tenant: str, states: list[tuple[int, int]]
) -> dict[tuple[int, int], tuple[str | None, str]]:
    """The stored `text` and `value` of former states, given by entry and revision."""
    if not states:
        return {}
    oldest: dict[int, int] = {}
    for entry_id, revision in states:
        oldest[entry_id] = min(revision, oldest.get(entry_id, revision))
    chains: dict[int, list[tuple[int, bytes | None, bytes]]] = {}
    for entry_id, revision, text, value in session.rows(
        "SELECT h.entry, h.revision, h.text, h.value FROM unnest(%s::bigint[], %s::bigint[]) AS s (entry, revision)"
        " JOIN history AS h ON h.tenant = %s AND h.entry = s.entry AND h.revision >= s.revision"
        " ORDER BY h.entry, h.revision",
        (list(oldest), list(oldest.values()), tenant),
    ):
        chains.setdefault(entry_id, []).append((revision, text, value))
    live = {
        entry_id: (text, value)
        for entry_id, text, value in session.rows(
            "SELECT id, text, value FROM entry WHERE tenant = %s AND id = ANY(%s)", (tenant, list(oldest))
        )
    }
    return {state: _decode_one(chains[state[0]], live.get(state[0], (None, None)), state[1]) for state in states}


def _decode_one(
    states: list[tuple[int, bytes | None, bytes]], live: tuple[str | None, str | None], revision: int
) -> tuple[str | None, str]:
    chain: list[tuple[Stored | None, Stored]] = []
    for number, text, value in states:
        if number < revision:
            continue
        chain.append((None if text is None else unpack_delta(text), unpack_delta(value)))
        if deltas.is_whole(chain[-1][1]) and (chain[-1][0] is None or deltas.is_whole(chain[-1][0])):
            break
    chain.reverse()
    decoded = deltas.decode_last(live[1], [value for _, value in chain])
    if chain[-1][0] is None:
        return None, decoded
    # A text that was replaced by a state without a text was stored whole.
    return deltas.decode_last(live[0], [text for text, _ in chain if text is not None]), decoded
