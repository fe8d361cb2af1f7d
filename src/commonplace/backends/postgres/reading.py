"""Reads in a session: live and former states, ranges, children, history. Shared by readers and transactions.

`now` is a time, or None for the database's own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from commonplace.backends import paging
from commonplace.backends.paging import after_prefix
from commonplace.backends.postgres.connection import Session, array_of
from commonplace.backends.postgres.kept import former_entries
from commonplace.backends.postgres.where import Where, add_filter
from commonplace.backends.states import COLUMNS, FORMER_COLUMNS, columns, entry_of
from commonplace.checks import Namespace
from commonplace.entry import SEPARATOR, Action, Change, Entry, Revision
from commonplace.filters import Filter
from commonplace.store import Child, Page, Scan

RARE_ENTRIES = 500
NOW = "coalesce(%s::bigint, now_micros())"
_LIVE_AT = "valid_from <= %s AND (expires_at IS NULL OR expires_at > %s)"
_FORMER_AT = "valid_from <= %s AND valid_to > %s"
_LOSSES: tuple[Action, ...] = ("deleted", "expired", "moved_away")


@dataclass(frozen=True, slots=True)
class Spot:
    """A namespace and its row: what every statement about it names."""

    namespace: Namespace
    tenant: str
    id: int
    part: int | None = None
    """Which part of every table holds its rows, where that is known."""

    def of(self, table: str) -> str:
        """The table to read from: of one part the plan is simple, one over all parts takes several times as long."""
        return table if self.part is None else f"{table}_p{self.part:d}"


def tenant_of(namespace: Namespace) -> str:
    """The first two labels: the unit of sharding and of row-level security."""
    return "/".join(namespace[:2])


def get(
    session: Session, spot: Spot, kind: str, keys: Sequence[str], now: int | None, *, last: bool = False
) -> list[Entry | None]:
    rows = session.rows(
        f"SELECT {COLUMNS} FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND key = ANY(%s)"
        f" AND (expires_at IS NULL OR expires_at > {NOW})",
        (spot.tenant, spot.id, kind, list(keys), now),
        last=last,
    )
    found = {row[2]: entry_of(spot.namespace, row) for row in rows}
    return [found.get(key) for key in keys]


def get_as_of(session: Session, spot: Spot, kind: str, keys: Sequence[str], as_of: int) -> list[Entry | None]:
    place = (spot.tenant, spot.id, kind, list(keys), as_of, as_of)
    live = session.rows(
        f"SELECT {COLUMNS} FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND key = ANY(%s)"
        f" AND {_LIVE_AT}",
        place,
    )
    former = session.rows(
        f"SELECT DISTINCT ON (key) {FORMER_COLUMNS} FROM history WHERE tenant = %s AND namespace = %s AND kind = %s"
        f" AND key = ANY(%s) AND {_FORMER_AT} ORDER BY key, revision DESC",
        place,
    )
    found = {entry.key: entry for entry in former_entries(session, spot.tenant, spot.namespace, former)}
    found |= {row[2]: entry_of(spot.namespace, row) for row in live}
    return [found.get(key) for key in keys]


def find(
    session: Session, spot: Spot, kind: str, identity: str, now: int | None, *, last: bool = False
) -> Entry | None:
    rows = session.rows(
        f"SELECT {COLUMNS} FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND identity = %s"
        f" AND (expires_at IS NULL OR expires_at > {NOW})",
        (spot.tenant, spot.id, kind, identity, now),
        last=last,
    )
    return entry_of(spot.namespace, rows[0]) if rows else None


def last_key(session: Session, spot: Spot, kind: str, identity: str, *, last: bool = False) -> str | None:
    place = (spot.tenant, spot.id, kind, identity)
    rows = session.rows(
        "SELECT key FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND identity = %s"
        " UNION ALL (SELECT key FROM history WHERE tenant = %s AND namespace = %s AND kind = %s AND identity = %s"
        " ORDER BY ended_commit DESC LIMIT 1) LIMIT 1",
        (*place, *place),
        last=last,
    )
    return rows[0][0] if rows else None


def load(session: Session, spot: Spot, ids: Sequence[int], now: int | None) -> dict[int, Entry]:
    rows = session.rows(
        f"SELECT {columns('e')} FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (id, place)"
        f" JOIN {spot.of('entry')} AS e ON e.tenant = %s AND e.id = wanted.id"
        f" WHERE e.namespace = %s AND (e.expires_at IS NULL OR e.expires_at > {NOW}) ORDER BY wanted.place",
        (array_of(ids), spot.tenant, spot.id, now),
        last=True,
        binary=True,
        prepare=True,
    )
    return {row[0]: entry_of(spot.namespace, row) for row in rows}


def scan(session: Session, spot: Spot, scan: Scan, now: int | None, *, last: bool = False) -> Page:
    """One page. What `as_of` asks is the live rows that were valid then and the former states, merged."""
    order = paging.ORDER_COLUMNS[scan.order]
    place = paging.position_of(scan, partial(_number_of, session, spot, scan.as_of))
    comparison, direction = ("<", "DESC") if scan.descending else (">", "ASC")
    where = Where()
    where.add("e.tenant = %s AND e.namespace = %s", spot.tenant, spot.id)
    filter = scan.filter
    if place is not None and scan.order == "key" and filter.kinds == (place[0],):
        filter = paging.from_key(filter, place[1], scan.descending)
    elif place is not None:
        where.add(f"(e.{order[0]}, e.{order[1]}) {comparison} (%s, %s)", *place)
    add_filter(where, spot.id, filter, driving_labels=_is_rare(session, spot, filter))
    where.add(f"(e.expires_at IS NULL OR e.expires_at > {NOW})", now if scan.as_of is None else scan.as_of)
    if scan.as_of is not None:
        where.add("e.valid_from <= %s", scan.as_of)
    rows = session.rows(
        f"SELECT {columns('e')} FROM entry AS e WHERE {where.sql}"
        f" ORDER BY e.{order[0]} {direction}, e.{order[1]} {direction} LIMIT %s",
        (*where.parameters, scan.limit + 1),
        last=last and scan.as_of is None,
    )
    found = [entry_of(spot.namespace, row) for row in rows]
    if scan.as_of is not None:
        former = states_ended_after(session, spot, scan.as_of, scan.filter)
        found += [state for state in former if paging.is_after(scan, state, place)]
        found.sort(key=lambda entry: paging.position(scan, entry), reverse=scan.descending)
    page = found[: scan.limit]
    more = len(found) > scan.limit
    return Page(tuple(page), paging.cursor_of(scan, page[-1]) if more else None)


def _number_of(session: Session, spot: Spot, as_of: int | None, kind: str, key: str) -> int | None:
    """The number of the entry that has a key, or else of the last one that had it; of the one that had it `as_of`."""
    place: tuple[Any, ...] = (spot.tenant, spot.id, kind, key)
    live = "SELECT id FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s"
    former = "FROM history WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s"
    if as_of is None:
        rows = session.rows(f"{live} UNION ALL SELECT max(entry) {former} LIMIT 1", (*place, *place))
    else:
        rows = session.rows(
            f"{live} AND valid_from <= %s UNION ALL SELECT entry {former} AND valid_from <= %s AND valid_to > %s",
            (*place, as_of, *place, as_of, as_of),
        )
    return rows[0][0] if rows else None


def _is_rare(session: Session, spot: Spot, filter: Filter) -> bool:
    """Whether some label of the filter is on few entries, so that these are better looked at than all in order."""
    wanted = [("type", filter.types), ("tags", filter.any_tags), *(("tags", (tag,)) for tag in filter.all_tags)]
    if filter.resource is not None:
        wanted.append(("resourceId", (filter.resource,)))
    for name, values in wanted:
        if values and len(values) == 1:
            counted = session.rows(
                "SELECT count(*) FROM (SELECT 1 FROM label WHERE tenant = %s AND namespace = %s AND name = %s"
                " AND value = %s LIMIT %s) AS counted",
                (spot.tenant, spot.id, name, values[0], RARE_ENTRIES),
            )
            if counted[0][0] < RARE_ENTRIES:
                return True
    return False


def states_ended_after(session: Session, spot: Spot, as_of: int, filter: Filter) -> list[Entry]:
    """The former states that were valid at a time; their filter is decided here, since values are deltas."""
    rows = session.rows(
        f"SELECT {FORMER_COLUMNS} FROM history WHERE tenant = %s AND namespace = %s AND {_FORMER_AT} ORDER BY entry",
        (spot.tenant, spot.id, as_of, as_of),
    )
    states = former_entries(session, spot.tenant, spot.namespace, rows)
    return [state for state in states if filter.matches(state)]


# Made so that no statistics lead to a plan that looks at all rows of the namespace for each child. They say of tenant,
# namespace and kind that a row or two have them: each step brings its row along, since a join afterwards may compare
# every child with every row; and it begins at a key and tenant, as the index is ordered, since of a bound on the key
# alone PostgreSQL 18 expects a skip scan, and takes to sort all rows for the cheaper way.
_CHILDREN = """
    WITH RECURSIVE found AS (
        (SELECT e.key, e.attributes, e.revision, e.created_at, e.updated_at, e.expires_at FROM entry AS e
         WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s AND e.kind = %(kind)s
             AND (e.key, e.tenant) > (%(prefix)s, %(tenant)s) ORDER BY e.key LIMIT 1)
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
    ORDER BY key
"""


def children(
    session: Session, spot: Spot, kind: str, prefix: str, now: int | None, *, last: bool = False
) -> list[Child]:
    """The names directly below a prefix, by jumping from child to child over whatever lies deeper."""
    rows = session.rows(
        _CHILDREN,
        {
            "tenant": spot.tenant,
            "namespace": spot.id,
            "kind": kind,
            "prefix": prefix,
            "stop": after_prefix(prefix),
            "skip": len(prefix) + 1,
            "separator": SEPARATOR,
            "after_separator": after_prefix(SEPARATOR),
            "now": now,
        },
        last=last,
    )
    return [Child(key[len(prefix) :], json.loads(attributes), *rest) for key, attributes, *rest in rows]


def history(session: Session, spot: Spot, kind: str, key: str, now: int | None) -> list[Revision]:
    """Every state that a key had, and every time it lost one, oldest first."""
    place = (spot.tenant, spot.id, kind, key)
    lines: list[Revision] = []
    for *state, ended_commit, valid_to, ended_by, ended_actor in session.rows(
        "SELECT revision, begun_by, commit_number, valid_from, actor, ended_commit, valid_to, ended_by, ended_actor"
        " FROM history WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s ORDER BY revision",
        place,
    ):
        lines.append(Revision(*state))
        if ended_by in _LOSSES:
            lines.append(Revision(state[0] + 1, ended_by, ended_commit, valid_to, ended_actor))
    for *state, expires_at, has_expired in session.rows(
        f"SELECT revision, begun_by, commit_number, valid_from, actor, expires_at, expires_at <= {NOW} FROM entry"
        " WHERE tenant = %s AND namespace = %s AND kind = %s AND key = %s",
        (now, *place),
    ):
        lines.append(Revision(*state))
        if has_expired:
            lines.append(Revision(state[0] + 1, "expired", state[2], expires_at, None))
    return lines


def was_used(session: Session, spot: Spot, kind: str, first: str, last: str) -> bool:
    place = (spot.tenant, spot.id, kind, first, last)
    [(was_used,)] = session.rows(
        "SELECT EXISTS (SELECT 1 FROM entry WHERE tenant = %s AND namespace = %s AND kind = %s"
        " AND key BETWEEN %s AND %s) OR EXISTS (SELECT 1 FROM history WHERE tenant = %s AND namespace = %s"
        " AND kind = %s AND key BETWEEN %s AND %s)",
        (*place, *place),
    )
    return bool(was_used)


def state(session: Session, spot: Spot, kind: str, key: str, revision: int) -> Entry | None:
    return next(iter(_states(session, spot, "kind = %s AND key = %s AND revision = %s", (kind, key, revision))), None)


def begun(session: Session, spot: Spot, commit: int) -> list[Entry]:
    return _states(session, spot, "commit_number = %s", (commit,))


def _states(session: Session, spot: Spot, condition: str, parameters: Sequence[Any]) -> list[Entry]:
    """The live states that a condition on both tables names, then the former ones."""
    place = (spot.tenant, spot.id, *parameters)
    live = session.rows(
        f"SELECT {COLUMNS} FROM entry WHERE tenant = %s AND namespace = %s AND {condition} ORDER BY id", place
    )
    former = session.rows(
        f"SELECT {FORMER_COLUMNS} FROM history WHERE tenant = %s AND namespace = %s AND {condition} ORDER BY entry",
        place,
    )
    found = [entry_of(spot.namespace, row) for row in live]
    return found + former_entries(session, spot.tenant, spot.namespace, former)


def ended(session: Session, spot: Spot, commit: int) -> list[Entry]:
    rows = session.rows(
        f"SELECT {FORMER_COLUMNS} FROM history WHERE tenant = %s AND namespace = %s AND ended_commit = %s"
        " ORDER BY entry",
        (spot.tenant, spot.id, commit),
    )
    return former_entries(session, spot.tenant, spot.namespace, rows)


def changes(session: Session, spot: Spot, after: int, limit: int) -> list[Change]:
    """The feed: every state's beginning and every key's loss of one, in commit order, whole commits only."""
    place = {"tenant": spot.tenant, "namespace": spot.id, "after": after, "limit": limit + 1}
    # Each part has an index in commit order and gives no more than a page; only their pages are merged.
    part = (
        "(SELECT {commit} AS commit_number, {at} AS at, {by} AS by, kind, key, {revision} AS revision, {actor} AS actor"
        " FROM {table} WHERE tenant = %(tenant)s AND namespace = %(namespace)s AND {commit} > %(after)s {more}"
        " ORDER BY {commit}, key, {revision} LIMIT %(limit)s)"
    )
    began = {"commit": "commit_number", "at": "valid_from", "by": "begun_by", "revision": "revision", "actor": "actor"}
    ends = {"commit": "ended_commit", "at": "valid_to", "by": "ended_by", "revision": "revision + 1"}
    parts = [
        part.format(**began, table="entry", more=""),
        part.format(**began, table="history", more=""),
        part.format(**ends, actor="ended_actor", table="history", more="AND ended_by <> 'updated'"),
    ]
    rows = session.rows(" UNION ALL ".join(parts) + " ORDER BY 1, 5, 6 LIMIT %(limit)s", place)
    if len(rows) > limit:
        newest = rows[-1][0]
        whole = [row for row in rows if row[0] < newest]
        if not whole:  # one commit larger than the page comes whole all the same
            return changes(session, spot, after, limit * 10)
        rows = whole
    return [Change(*row) for row in rows]
