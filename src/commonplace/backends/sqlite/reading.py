"""Reads on a connection: live and former states, ranges, children, history. Shared by readers and transactions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from commonplace.backends import paging
from commonplace.backends.paging import after_prefix
from commonplace.backends.sqlite.checksums import (
    FORMER,
    LIVE,
    check_former_head,
    check_live_head,
    head_columns,
    is_whole_content,
    live_entry,
)
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.rows import former_entry
from commonplace.backends.sqlite.where import Where, add_filter
from commonplace.backends.states import damaged, prefixed, value_of
from commonplace.checks import JSON, Namespace
from commonplace.entry import SEPARATOR, Action, Change, Entry, Revision
from commonplace.filters import Filter
from commonplace.store import Child, Page, Scan

RARE_ENTRIES = 500
_LIVE_HEAD = head_columns(LIVE)
_FORMER_HEAD = head_columns(FORMER)
_LIVE_AT = "valid_from <= ? AND (expires_at IS NULL OR expires_at > ?)"
_FORMER_AT = "valid_from <= ? AND valid_to > ?"
_LOSSES: tuple[Action, ...] = ("deleted", "expired", "moved_away")


def get(connection: Connection, namespace: Namespace, namespace_id: int, kind: str, key: str, now: int) -> Entry | None:
    rows = connection.execute(
        f"SELECT {LIVE} FROM entry WHERE namespace = ? AND kind = ? AND key = ?"
        " AND (expires_at IS NULL OR expires_at > ?)",
        (namespace_id, kind, key, now),
    ).fetchall()
    if rows and rows[0][1:3] != (kind, key):  # a damaged index leads to another entry
        raise damaged(namespace, kind, key)
    return live_entry(namespace, rows[0]) if rows else None


def get_as_of(
    connection: Connection, namespace: Namespace, namespace_id: int, kind: str, key: str, as_of: int
) -> Entry | None:
    live = connection.execute(
        f"SELECT {LIVE} FROM entry WHERE namespace = ? AND kind = ? AND key = ? AND {_LIVE_AT}",
        (namespace_id, kind, key, as_of, as_of),
    ).fetchall()
    if live:
        return live_entry(namespace, live[0])
    former = connection.execute(
        f"SELECT {FORMER} FROM history WHERE namespace = ? AND kind = ? AND key = ? AND {_FORMER_AT}"
        " ORDER BY revision DESC LIMIT 1",
        (namespace_id, kind, key, as_of, as_of),
    ).fetchall()
    return former_entry(connection, namespace, former[0]) if former else None


def find(
    connection: Connection, namespace: Namespace, namespace_id: int, kind: str, identity: str, now: int
) -> Entry | None:
    rows = connection.execute(
        f"SELECT {LIVE} FROM entry WHERE namespace = ? AND kind = ? AND identity = ?"
        " AND (expires_at IS NULL OR expires_at > ?)",
        (namespace_id, kind, identity, now),
    ).fetchall()
    return live_entry(namespace, rows[0]) if rows else None


def last_key(connection: Connection, namespace_id: int, kind: str, identity: str) -> str | None:
    place = (namespace_id, kind, identity)
    rows = connection.execute(
        "SELECT key FROM entry WHERE namespace = ? AND kind = ? AND identity = ?"
        " UNION ALL SELECT key FROM (SELECT key FROM history WHERE namespace = ? AND kind = ? AND identity = ?"
        " ORDER BY ended_commit DESC LIMIT 1) LIMIT 1",
        (*place, *place),
    ).fetchall()
    return rows[0][0] if rows else None


def scan(connection: Connection, namespace: Namespace, namespace_id: int, scan: Scan, now: int) -> Page:
    """One page. What `as_of` asks is the live rows that were valid then and the former states, merged."""
    position = _position(connection, namespace_id, scan)
    rows = _live_rows(connection, namespace_id, scan, position, now, prefixed(LIVE, "e"), scan.limit + 1)
    found = [live_entry(namespace, row) for row in rows]
    if scan.as_of is not None:
        former = states_ended_after(connection, namespace, namespace_id, scan.as_of, scan.filter)
        found += [state for state in former if paging.is_after(scan, state, position)]
        found.sort(key=lambda entry: paging.position(scan, entry), reverse=scan.descending)
    page = found[: scan.limit]
    more = len(found) > scan.limit
    return Page(tuple(page), paging.cursor_of(scan, page[-1]) if more else None)


def values(connection: Connection, namespace: Namespace, namespace_id: int, scan: Scan, now: int) -> list[JSON]:
    """The values of one page of live entries."""
    selected = "e.kind, e.key, e.is_json, e.text, e.value, e.checksum"
    position = _position(connection, namespace_id, scan)
    found = []
    for kind, key, is_json, text, value, checksum in _live_rows(
        connection, namespace_id, scan, position, now, selected, scan.limit
    ):
        if not is_whole_content(text, value, checksum):
            raise damaged(namespace, kind, key)
        found.append(value_of(is_json, value))
    return found


def _position(connection: Connection, namespace_id: int, scan: Scan) -> paging.Position | None:
    def number_of(kind: str, key: str) -> int | None:
        place: tuple[int | str, ...] = (namespace_id, kind, key)
        live = "SELECT id FROM entry WHERE namespace = ? AND kind = ? AND key = ?"
        former = "FROM history WHERE namespace = ? AND kind = ? AND key = ?"
        if scan.as_of is None:
            sql, parameters = f"{live} UNION ALL SELECT max(entry) {former} LIMIT 1", (*place, *place)
        else:  # another entry may have had the key at that time
            sql = f"{live} AND valid_from <= ? UNION ALL SELECT entry {former} AND valid_from <= ? AND valid_to > ?"
            parameters = (*place, scan.as_of, *place, scan.as_of, scan.as_of)
        rows = connection.execute(sql, parameters).fetchall()
        return rows[0][0] if rows else None

    return paging.position_of(scan, number_of)


def _live_rows(
    connection: Connection,
    namespace_id: int,
    scan: Scan,
    position: paging.Position | None,
    now: int,
    selected: str,
    limit: int,
) -> list[Sequence[Any]]:
    paging.check_limit(scan.limit)
    order = paging.ORDER_COLUMNS[scan.order]
    comparison, direction = ("<", "DESC") if scan.descending else (">", "ASC")
    where = Where()
    where.add("e.namespace = ?", namespace_id)
    filter = scan.filter
    if position is not None and scan.order == "key" and filter.kinds == (position[0],):
        filter = paging.from_key(filter, position[1], scan.descending)
    elif position is not None:
        where.add(f"(e.{order[0]}, e.{order[1]}) {comparison} (?, ?)", *position)
    add_filter(where, namespace_id, filter, driving_labels=_is_rare(connection, namespace_id, filter))
    at = now if scan.as_of is None else scan.as_of
    where.add("(e.expires_at IS NULL OR e.expires_at > ?)", at)
    if scan.as_of is not None:
        where.add("e.valid_from <= ?", scan.as_of)
    return connection.execute(
        f"SELECT {selected} FROM entry AS e WHERE {where.sql}"
        f" ORDER BY e.{order[0]} {direction}, e.{order[1]} {direction} LIMIT ?",
        (*where.parameters, limit),
    ).fetchall()


def _is_rare(connection: Connection, namespace_id: int, filter: Filter) -> bool:
    """Whether some label of the filter is on few entries, so that these are better looked at than all in order."""
    wanted = [("type", filter.types), ("tags", filter.any_tags), *(("tags", (tag,)) for tag in filter.all_tags)]
    if filter.resource is not None:
        wanted.append(("resourceId", (filter.resource,)))
    for name, values in wanted:
        if values and len(values) == 1:
            counted = connection.execute(
                "SELECT count(*) FROM (SELECT 1 FROM label WHERE namespace = ? AND name = ? AND value = ? LIMIT ?)",
                (namespace_id, name, values[0], RARE_ENTRIES),
            ).fetchall()
            if counted[0][0] < RARE_ENTRIES:
                return True
    return False


def states_ended_after(
    connection: Connection, namespace: Namespace, namespace_id: int, as_of: int, filter: Filter
) -> list[Entry]:
    """The former states that were valid at a time; their filter is decided here, since values are deltas."""
    rows = connection.execute(
        f"SELECT {FORMER} FROM history WHERE namespace = ? AND {_FORMER_AT} ORDER BY entry",
        (namespace_id, as_of, as_of),
    ).fetchall()
    states = (former_entry(connection, namespace, row) for row in rows)
    return [state for state in states if filter.matches(state)]


def children(
    connection: Connection, namespace: Namespace, namespace_id: int, kind: str, prefix: str, now: int
) -> list[Child]:
    """The names directly below a prefix, by jumping from child to child over whatever lies deeper."""
    rows = connection.execute(
        """
        WITH RECURSIVE found (key) AS (
            SELECT min(key) FROM entry WHERE namespace = :namespace AND kind = :kind AND key > :prefix AND key < :stop
            UNION ALL
            SELECT (
                SELECT min(key) FROM entry
                WHERE namespace = :namespace AND kind = :kind AND key < :stop AND key >= :prefix || CASE
                    WHEN instr(substr(found.key, :skip), :separator) THEN
                        substr(found.key, :skip, instr(substr(found.key, :skip), :separator) - 1) || :after_separator
                    ELSE substr(found.key, :skip) || :separator
                END
            )
            FROM found WHERE found.key IS NOT NULL
        )
        SELECT key FROM found WHERE key IS NOT NULL
        """,
        {
            "namespace": namespace_id,
            "kind": kind,
            "prefix": prefix,
            "stop": after_prefix(prefix),
            "skip": len(prefix) + 1,
            "separator": SEPARATOR,
            "after_separator": after_prefix(SEPARATOR),
        },
    ).fetchall()
    direct = {key: key[len(prefix) :] for (key,) in rows if SEPARATOR not in key[len(prefix) :]}
    found = {}
    for row in connection.execute(
        f"SELECT {_LIVE_HEAD} FROM entry WHERE namespace = ? AND kind = ?"
        " AND key IN (SELECT value FROM json_each(?)) AND (expires_at IS NULL OR expires_at > ?)",
        (namespace_id, kind, json.dumps(list(direct)), now),
    ):
        check_live_head(namespace, row)
        name = direct[row[2]]
        found[name] = Child(name, json.loads(row[5]), row[6], row[9], row[10])
    return [found[name] for name in direct.values() if name in found]


def history(
    connection: Connection, namespace: Namespace, namespace_id: int, kind: str, key: str, now: int
) -> list[Revision]:
    """Every state that a key had, and every time it lost one, oldest first."""
    lines: list[Revision] = []
    for row in connection.execute(
        f"SELECT {_FORMER_HEAD} FROM history WHERE namespace = ? AND kind = ? AND key = ? ORDER BY revision",
        (namespace_id, kind, key),
    ):
        check_former_head(namespace, row)
        revision, commit, valid_from = row[6:9]
        begun_by, _, ended_by, ended_commit, valid_to, ended_actor = row[14:20]
        lines.append(Revision(revision, begun_by, commit, valid_from, row[12]))
        if ended_by in _LOSSES:
            lines.append(Revision(revision + 1, ended_by, ended_commit, valid_to, ended_actor))
    for row in connection.execute(
        f"SELECT {_LIVE_HEAD} FROM entry WHERE namespace = ? AND kind = ? AND key = ?",
        (namespace_id, kind, key),
    ):
        check_live_head(namespace, row)
        revision, commit, valid_from = row[6:9]
        lines.append(Revision(revision, row[14], commit, valid_from, row[12]))
        if row[11] is not None and row[11] <= now:
            lines.append(Revision(revision + 1, "expired", commit, row[11], None))
    return lines


def was_used(connection: Connection, namespace_id: int, kind: str, first: str, last: str) -> bool:
    [(was_used,)] = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM entry WHERE namespace = ?1 AND kind = ?2 AND key BETWEEN ?3 AND ?4)"
        " OR EXISTS (SELECT 1 FROM history WHERE namespace = ?1 AND kind = ?2 AND key BETWEEN ?3 AND ?4)",
        (namespace_id, kind, first, last),
    ).fetchall()
    return bool(was_used)


def state(
    connection: Connection, namespace: Namespace, namespace_id: int, kind: str, key: str, revision: int
) -> Entry | None:
    place = (namespace_id, kind, key, revision)
    live = connection.execute(
        f"SELECT {LIVE} FROM entry WHERE namespace = ? AND kind = ? AND key = ? AND revision = ?", place
    ).fetchall()
    if live:
        return live_entry(namespace, live[0])
    former = connection.execute(
        f"SELECT {FORMER} FROM history WHERE namespace = ? AND kind = ? AND key = ? AND revision = ?",
        place,
    ).fetchall()
    return former_entry(connection, namespace, former[0]) if former else None


def begun(connection: Connection, namespace: Namespace, namespace_id: int, commit: int) -> list[Entry]:
    place = (namespace_id, commit)
    live = connection.execute(
        f"SELECT {LIVE} FROM entry WHERE namespace = ? AND commit_number = ? ORDER BY id", place
    ).fetchall()
    former = connection.execute(
        f"SELECT {FORMER} FROM history WHERE namespace = ? AND commit_number = ? ORDER BY entry",
        place,
    ).fetchall()
    return [live_entry(namespace, row) for row in live] + [former_entry(connection, namespace, row) for row in former]


def ended(connection: Connection, namespace: Namespace, namespace_id: int, commit: int) -> list[Entry]:
    former = connection.execute(
        f"SELECT {FORMER} FROM history WHERE namespace = ? AND ended_commit = ? ORDER BY entry",
        (namespace_id, commit),
    ).fetchall()
    return [former_entry(connection, namespace, row) for row in former]


def changes(connection: Connection, namespace_id: int, after: int, limit: int) -> list[Change]:
    """The feed: every state's beginning and every key's loss of one, in commit order, whole commits only."""
    rows: Sequence[Sequence[Any]] = connection.execute(
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
        {"namespace": namespace_id, "after": after, "limit": limit + 1},
    ).fetchall()
    if len(rows) > limit:
        last = rows[-1][0]
        whole = [row for row in rows if row[0] < last]
        if not whole:  # one commit larger than the page comes whole all the same
            return changes(connection, namespace_id, after, limit * 10)
        rows = whole
    return [Change(*row) for row in rows]
