"""Whole namespaces out of the tables and into them: every state, live and former, with nothing lost on the way.

States go entry by entry, the newest first, so that each former text is made from the one read just before it, and
kept as a delta to the one written just before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from psycopg import errors

from commonplace.backends.postgres import kept
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.incoming import Incoming
from commonplace.backends.postgres.index import NamespaceRow
from commonplace.backends.postgres.reading import Spot, tenant_of
from commonplace.backends.replaying import NO_CONTENT, adopt_states, former_state, live_state
from commonplace.backends.states import COLUMNS, FORMER_COLUMNS, Former, Live
from commonplace.checks import Namespace, stored_namespace
from commonplace.errors import Conflict, InvalidInput
from commonplace.store import NamespaceHead, State, Usage

ENTRIES_A_READ = 200
_HEADS = "SELECT tenant, id, path, commit_number, commit_time, history_floor FROM namespace"
_ENDING = "ended_by, ended_commit, valid_to, ended_actor"


# Out


def export(session: Session, namespaces: Sequence[Namespace] | None) -> Iterator[NamespaceHead | State]:
    if namespaces is None:
        heads = session.rows(f"{_HEADS} ORDER BY path")
    else:
        heads = session.rows(
            f"{_HEADS} WHERE path = ANY(%s) ORDER BY path", (["/".join(namespace) for namespace in namespaces],)
        )
    for tenant, namespace_id, path, *counters in heads:
        spot = Spot(stored_namespace(path), tenant, namespace_id)
        yield NamespaceHead(spot.namespace, *counters)
        last = 0
        while ids := _next_ids(session, spot, last):
            yield from _states(session, spot, ids)
            last = ids[-1]


def _next_ids(session: Session, spot: Spot, last: int) -> list[int]:
    place = (spot.tenant, spot.id, last, ENTRIES_A_READ)
    rows = session.rows(
        "(SELECT id FROM entry WHERE tenant = %s AND namespace = %s AND id > %s ORDER BY id LIMIT %s) UNION"
        " (SELECT DISTINCT entry FROM history WHERE tenant = %s AND namespace = %s AND entry > %s"
        f" ORDER BY entry LIMIT %s) ORDER BY 1 LIMIT {ENTRIES_A_READ}",
        (*place, *place),
    )
    return [entry_id for (entry_id,) in rows]


def _states(session: Session, spot: Spot, ids: Sequence[int]) -> Iterator[State]:
    place = (spot.tenant, list(ids))
    found = session.rows(f"SELECT {COLUMNS}, begun_by, deltas FROM entry WHERE tenant = %s AND id = ANY(%s)", place)
    live = {row.id: row for row in map(Live._make, found)}
    former: dict[int, list[Former]] = {}
    for columns in session.rows(
        f"SELECT {FORMER_COLUMNS}, begun_by, {_ENDING} FROM history WHERE tenant = %s AND entry = ANY(%s)"
        " ORDER BY entry, revision DESC",
        place,
    ):
        row = kept.former_of(columns)
        former.setdefault(row.entry, []).append(row)
    for entry_id in ids:
        newest, newer = live.get(entry_id), NO_CONTENT
        if newest is not None:
            state, newer = live_state(spot.namespace, newest)
            yield state
        for row in former.get(entry_id, ()):
            state, newer = former_state(spot.namespace, row, newer)
            yield state


# In


def adopt(
    session: Session, head: NamespaceHead, states: Iterable[State], check: Callable[[Usage], object] | None
) -> int:
    tenant = tenant_of(head.namespace)
    row, last = _empty_namespace(session, tenant, head)
    incoming = Incoming(session, Spot(head.namespace, tenant, row.id), row)
    try:
        count = adopt_states(head, states, incoming)
        incoming.finish()
    except errors.UniqueViolation as error:
        raise InvalidInput(
            f"two states of namespace {'/'.join(head.namespace)} claim the same place"
            f" ({error.diag.message_detail}); nothing was imported"
        ) from error
    if check is not None:
        check(Usage(row.entry_count, row.byte_count, row.former_states, row.former_bytes))
    if last and count:
        # Readers of the old feed would miss what came in below their cursor: the floor tells them to read all again.
        session.send(
            "UPDATE namespace SET commit_number = greatest(commit_number, %(floor)s),"
            " former_commit = greatest(commit_number, %(floor)s),"
            " history_floor = greatest(history_floor, %(floor)s) WHERE tenant = %(tenant)s AND id = %(id)s",
            {"floor": last + 1, "tenant": tenant, "id": row.id},
        )
    return count


def _empty_namespace(session: Session, tenant: str, head: NamespaceHead) -> tuple[NamespaceRow, int]:
    """The namespace's row, made or brought to the head's counters, and the last commit that it had before.

    Numbers that were given out never come back.
    """
    path = "/".join(head.namespace)
    session.send(
        "INSERT INTO namespace (tenant, path, id) VALUES (%s, %s, nextval('identifier'))"
        " ON CONFLICT (tenant, path) DO NOTHING",
        (tenant, path),
    )
    namespace_id, commit, time, floor, chunks_ended = session.rows(
        "SELECT id, commit_number, commit_time, history_floor, chunks_ended FROM namespace"
        " WHERE tenant = %s AND path = %s FOR UPDATE",
        (tenant, path),
    )[0]
    if session.rows(
        "SELECT 1 FROM entry WHERE tenant = %(tenant)s AND namespace = %(id)s UNION ALL"
        " SELECT 1 FROM history WHERE tenant = %(tenant)s AND namespace = %(id)s LIMIT 1",
        {"tenant": tenant, "id": namespace_id},
    ):
        raise Conflict(f"namespace {path} holds entries or history already; import into an empty one, or merge")
    row = NamespaceRow(
        namespace_id, max(commit, head.commit), max(time, head.commit_time), 0, 0, chunks_ended, 0, 0, None
    )
    session.send(
        "UPDATE namespace SET commit_number = %s, commit_time = %s, history_floor = %s WHERE tenant = %s AND path = %s",
        (row.commit_number, row.commit_time, max(floor, head.history_floor), tenant, path),
    )
    return row, commit
