"""Rows derived from live entries: labels, passages with their terms, models and vectors.

Keywords are our own terms, stored with a passage as hashes (`packed_terms` of ranking.py); searches read them into
memory.

Except for `pending` and `passage_vectors`, functions on models and vectors work on all tenants, under the system role.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from commonplace.backends.entry_index import HEADING, BaseEntryIndex, Numbered, match_passages
from commonplace.backends.postgres.connection import Halfvec, Session, floats
from commonplace.backends.postgres.migrate import IDS_AT_ONCE
from commonplace.backends.postgres.reader import NOW, Location, tenant_of
from commonplace.backends.ranking import packed_terms, posting
from commonplace.checks import Namespace, stored_namespace
from commonplace.errors import ConfigurationError
from commonplace.store import Pending

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

ENTRIES_A_STEP = 500
RETIRED_A_STEP = 2_000
MARKED_A_STEP = 5_000
FEW_PENDING = 500
"""A change of models looks at so many passages in a step, and takes the next step when fewer than these are pending."""

LONGEST_LEASE_SECONDS = 3_600
MOST_DOUBLINGS = 20  # of a lease; more would overflow a float

_INSERT_CHUNK = (
    "INSERT INTO chunk (tenant, id, namespace, entry, number, start, stop, length, posting, commit_number, terms)"
    f" VALUES ({', '.join(['%s'] * 11)})"
)


@dataclass(slots=True)
class NamespaceRow:
    """The namespace's counters as they will be written with the transaction."""

    id: int
    commit_number: int
    commit_time: int
    chunk_count: int
    term_total: int
    chunks_ended: int
    entry_count: int
    byte_count: int
    expires_next: int | None
    former_states: int = 0
    former_bytes: int = 0
    former_commit: int = 0


class Identifiers:
    """Ids from the database's sequence, a block at a time."""

    def __init__(self, session: Session, first: int | None = None) -> None:
        self._session = session
        self._next = first or 0
        self._stop = self._next + IDS_AT_ONCE if first else 0

    def take(self) -> int:
        if self._next == self._stop:
            self._next = self._session.rows("SELECT nextval('identifier')")[0][0]
            self._stop = self._next + IDS_AT_ONCE
        self._next += 1
        return self._next - 1


class EntryIndex(BaseEntryIndex):
    """Writes the derived rows of entries in one namespace, as part of a transaction."""

    def __init__(self, session: Session, tenant: str, row: NamespaceRow, ids: Identifiers) -> None:
        super().__init__(row)
        self._session = session
        self._tenant = tenant
        self._row = row
        self._ids = ids

    def remove_labels(self, entry_id: int, removed: set[tuple[str, str]]) -> None:
        if removed:
            names, values = zip(*sorted(removed), strict=True)
            self._session.send(
                "DELETE FROM label AS l USING unnest(%s::text[], %s::text[]) AS gone (name, value)"
                " WHERE l.tenant = %s AND l.namespace = %s AND l.name = gone.name AND l.value = gone.value"
                " AND l.entry = %s",
                (list(names), list(values), self._tenant, self._row.id, entry_id),
            )

    def chunks_of(self, entry_ids: Sequence[int], *, only_headings: bool = False) -> list[tuple[int, int]]:
        which = f" AND number = {HEADING}" if only_headings else ""
        rows = self._session.rows(
            f"SELECT id, length FROM chunk WHERE tenant = %s AND entry = ANY(%s) AND ended_commit IS NULL{which}",
            (self._tenant, list(entry_ids)),
        )
        return [(chunk, length) for chunk, length in rows]

    def _text_chunks(self, entry_id: int) -> list[tuple[Any, ...]]:
        return self._session.rows(
            "SELECT id, length, start, stop FROM chunk"
            " WHERE tenant = %s AND entry = %s AND ended_commit IS NULL AND number >= 0 ORDER BY number",
            (self._tenant, entry_id),
        )

    def _end_chunk_rows(self, ended: Sequence[tuple[int, int]]) -> int:
        chunks = [chunk for chunk, _ in ended]
        place, where = (self._tenant, self._row.id, chunks), "tenant = %s AND namespace = %s"
        # The pending mark goes first. It is locked while a vector is stored, so the update below sees that vector.
        self._session.send(f"DELETE FROM pending WHERE {where} AND chunk = ANY(%s)", place)
        self._session.send(
            f"UPDATE chunk SET ended_commit = %s, tokens = NULL, repeated = NULL, terms = NULL WHERE {where}"
            " AND id = ANY(%s)",
            (self._row.commit_number, *place),
        )
        self._session.send(f"UPDATE embedding SET former = true WHERE {where} AND chunk = ANY(%s)", place)
        return len(ended)

    def _insert_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None:
        if added:
            if self._session.is_distributed:
                place = (self._tenant, self._row.id)
                rows = [(*place, name, value, entry_id) for name, value in sorted(added)]
                self._session.insert("label", "tenant, namespace, name, value, entry", rows)
                return
            names, values = zip(*sorted(added), strict=True)
            self._session.send(
                "INSERT INTO label (tenant, namespace, name, value, entry)"
                " SELECT %s, %s, new.name, new.value, %s FROM unnest(%s::text[], %s::text[]) AS new (name, value)",
                (self._tenant, self._row.id, entry_id, list(names), list(values)),
            )

    def _insert_chunks(self, commit: int, added: Sequence[Numbered]) -> None:
        _insert_chunks(self._session, (self._tenant, self._row.id), self._ids, commit, added)


def _insert_chunks(
    session: Session, place: tuple[str, int], ids: Identifiers, commit: int, added: Sequence[Numbered]
) -> None:
    tenant, namespace_id = place
    waiting = []
    for entry_id, number, found in added:
        chunk = ids.take()
        session.send(
            _INSERT_CHUNK,
            (
                tenant,
                chunk,
                namespace_id,
                entry_id,
                number,
                found.start,
                found.end,
                found.length,
                posting(chunk, found.length),
                commit,
                packed_terms(found.terms),
            ),
        )
        if number != HEADING and found.terms:
            waiting.append(chunk)
    if waiting and session.is_distributed:
        session.insert("pending", "tenant, chunk, namespace", [(tenant, chunk, namespace_id) for chunk in waiting])
    elif waiting:
        session.send(
            "INSERT INTO pending (tenant, chunk, namespace) SELECT %s, new.chunk, %s"
            " FROM unnest(%s::bigint[]) AS new (chunk)",
            (tenant, namespace_id, waiting),
        )


# Rebuilding


def rebuild_keywords(session: Session, namespace: Namespace, report: Callable[[int], None]) -> None:
    """Rebuild passages and terms from the texts of one namespace, and keep every vector whose passage stays the same.

    Writers wait. `report` is called with how many more entries are done.
    """
    tenant, path = tenant_of(namespace), "/".join(namespace)
    namespace_id = session.rows("SELECT id FROM namespace WHERE tenant = %s AND path = %s FOR UPDATE", (tenant, path))[
        0
    ][0]
    ids = Identifiers(session)
    last = 0
    while rows := session.rows(
        "SELECT id, commit_number, heading, coalesce(text, CASE WHEN is_json THEN '' ELSE value END) FROM entry"
        f" WHERE tenant = %s AND namespace = %s AND id > %s ORDER BY id LIMIT {ENTRIES_A_STEP}",
        (tenant, namespace_id, last),
    ):
        known: dict[int, dict[tuple[int, int, int], int]] = {}
        for entry_id, number, start, stop, chunk in session.rows(
            "SELECT entry, number, start, stop, id FROM chunk WHERE tenant = %s AND entry = ANY(%s)"
            " AND ended_commit IS NULL",
            (tenant, [entry_id for entry_id, _, _, _ in rows]),
        ):
            known.setdefault(entry_id, {})[number, start, stop] = chunk
        for entry_id, commit, heading, text in rows:
            place = (tenant, namespace_id, entry_id, commit)
            _rebuild_entry(session, place, heading, text, known.get(entry_id, {}), ids)
            last = entry_id
        report(len(rows))
    session.send(
        "UPDATE namespace SET chunks_ended = chunks_ended + 1, (chunk_count, term_total) = ("
        " SELECT count(*), coalesce(sum(c.length), 0) FROM chunk AS c"
        " WHERE c.tenant = %s AND c.namespace = namespace.id AND c.ended_commit IS NULL)"
        " WHERE tenant = %s AND path = %s",
        (tenant, tenant, path),
    )


def _rebuild_entry(
    session: Session,
    place: tuple[str, int, int, int],
    heading: str | None,
    text: str,
    known: dict[tuple[int, int, int], int],
    ids: Identifiers,
) -> None:
    tenant, namespace_id, entry_id, commit = place
    kept, new, gone = match_passages(text, heading, known)
    for chunk, found in kept:
        session.send(
            "UPDATE chunk SET length = %s, posting = %s, tokens = NULL, repeated = NULL, terms = %s"
            " WHERE tenant = %s AND namespace = %s AND id = %s",
            (found.length, posting(chunk, found.length), packed_terms(found.terms), tenant, namespace_id, chunk),
        )
    added = [(entry_id, *numbered) for numbered in new]
    _insert_chunks(session, (tenant, namespace_id), ids, commit, added)
    if gone:
        for table, column in (("pending", "chunk"), ("embedding", "chunk"), ("chunk", "id")):
            session.send(
                f"DELETE FROM {table} WHERE tenant = %s AND namespace = %s AND {column} = ANY(%s)",
                (tenant, namespace_id, gone),
            )


# Models and vectors


@dataclass(frozen=True, slots=True)
class Model:
    id: int
    identity: str
    dimensions: int
    role: str


def models(session: Session) -> list[Model]:
    return [Model(*row) for row in session.rows("SELECT id, identity, dimensions, role FROM model", last=True)]


def pending_count(session: Session, spot: Location | None) -> int:
    if spot is None:
        # While a change of models has passages to mark, there is at least one that waits.
        to_mark = "SELECT max(greatest(unmarked, 1)) FROM model WHERE unmarked IS NOT NULL"
        sql = f"SELECT (SELECT count(*) FROM pending) + coalesce(({to_mark}), 0)"
        return int(session.rows(sql, last=True)[0][0])
    place = (spot.tenant, spot.id)
    sql = f"SELECT count(*) FROM {spot.of('pending')} WHERE tenant = %s AND namespace = %s"
    return int(session.rows(sql, place, last=True)[0][0])


def set_target_model(session: Session, model: str, dimensions: int) -> None:
    """Make `model` the target. A book's first model serves at once, a later one when all passages have been embedded
    with it. `advance` marks the passages, in transactions after this one: whoever stores a vector of the former model
    has seen its role before this one is committed, so its passage is seen by those that mark.
    """
    session.send("LOCK TABLE model IN SHARE ROW EXCLUSIVE MODE")
    for (stored,) in session.rows("SELECT dimensions FROM model WHERE identity = %s", (model,)):
        if stored != dimensions:
            raise ConfigurationError(
                f"model {model} gives {dimensions} dimensions, but this book holds vectors of it with {stored}; "
                "give the changed model another identity"
            )
    known = {identity: (role, is_begun) for identity, role, is_begun in session.rows(_ROLES)}
    if known.get(model) in (("target", True), ("serving", True)):
        return  # the change was stopped, and goes on where it was
    session.send("UPDATE model SET unmarked = NULL, at_chunk = 0, role = 'retired' WHERE role = 'target'")
    session.send("UPDATE model SET unmarked = NULL WHERE unmarked IS NOT NULL")
    is_first = not any(role == "serving" for role, _ in known.values())
    [(passages,)] = session.rows("SELECT coalesce(sum(chunk_count), 0)::bigint FROM namespace")
    session.send(
        "INSERT INTO model AS known (identity, dimensions, role, unmarked)"
        " VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (identity) DO UPDATE SET unmarked = excluded.unmarked, at_tenant = '', at_namespace = 0,"
        " at_chunk = 0, role = CASE WHEN known.role = 'serving' THEN known.role ELSE excluded.role END",
        (model, dimensions, "serving" if is_first else "target", passages),
    )


def advance(session: Session) -> tuple[bool, bool]:
    """A step of a change of models, if few passages are pending: mark the next ones, or let the target serve.

    Returns whether the target serves now, and whether a step was taken. `model.unmarked` is about how many passages are
    left to mark, NULL after the last one; the place is that of the last passage that was looked at.
    """
    session.send("LOCK TABLE model IN ROW EXCLUSIVE MODE")  # before its rows, as `set_target_model` does
    changing = session.rows(
        "SELECT id, role, unmarked, at_tenant, at_namespace, at_chunk FROM model"
        f" WHERE {_CHANGING} AND {_FEW_PENDING} FOR UPDATE"
    )
    if not changing:
        return False, False
    [(model, role, unmarked, *place)] = changing
    if unmarked is not None:
        _mark(session, model, unmarked, tuple(place))
        return False, True
    target = session.rows("SELECT id FROM model WHERE role = 'target' AND NOT EXISTS (SELECT 1 FROM pending)")
    if role != "target" or not target:
        return False, False
    session.send("UPDATE model SET role = 'retired', at_chunk = 0 WHERE role = 'serving'")
    session.send("UPDATE model SET role = 'serving' WHERE id = %s", (model,))
    return True, True


_ROLES = "SELECT identity, role, unmarked IS NOT NULL FROM model"
_CHANGING = "(role = 'target' OR unmarked IS NOT NULL)"
_FEW_PENDING = f"(SELECT count(*) FROM (SELECT chunk FROM pending LIMIT {FEW_PENDING}) AS few) < {FEW_PENDING}"


def _mark(session: Session, model: int, unmarked: int, place: tuple[str, int, int]) -> None:
    """Mark the passages after a place that lack a vector of the model."""
    rows = (
        _next_of_all(session, model, place)
        if session.is_distributed
        else session.rows(
            "SELECT c.tenant, c.namespace, c.id, c.ended_commit IS NULL AND c.number >= 0 AND c.length > 0, EXISTS ("
            " SELECT FROM embedding AS v WHERE v.tenant = c.tenant AND v.chunk = c.id AND v.model = %s"
            " AND vector_dims(v.value) = (SELECT dimensions FROM model WHERE id = v.model))"
            " FROM (SELECT * FROM chunk WHERE (tenant, namespace, id) > (%s, %s, %s)"
            f" ORDER BY tenant, namespace, id LIMIT {MARKED_A_STEP}) AS c ORDER BY 1, 2, 3",
            (model, *place),
        )
    )
    if not rows:
        session.send("UPDATE model SET unmarked = NULL WHERE id = %s", (model,))
        return
    # A vector with the wrong length would make every search of its namespace fail.
    tenants, _, chunks, *_ = map(list, zip(*rows, strict=True))
    wanted = [row[:3] for row in rows if row[3] and not row[4]]
    done = [(row[0], row[2]) for row in rows if row[4]]
    if session.is_distributed:
        _mark_by_chunk(session, chunks, wanted, [chunk for _, chunk in done])
        _note_place(session, model, unmarked, rows)
        return
    session.send(
        "DELETE FROM embedding AS v USING model AS m, unnest(%s::text[], %s::bigint[]) AS seen (tenant, chunk)"
        " WHERE v.tenant = seen.tenant AND v.chunk = seen.chunk AND m.id = v.model"
        " AND vector_dims(v.value) <> m.dimensions",
        (tenants, chunks),
    )
    if wanted:
        session.send(
            "INSERT INTO pending (tenant, namespace, chunk)"
            " SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) ON CONFLICT (chunk, tenant) DO NOTHING",
            tuple(map(list, zip(*wanted, strict=True))),
        )
    if done:
        session.send(
            "DELETE FROM pending AS p USING unnest(%s::text[], %s::bigint[]) AS done (tenant, chunk)"
            " WHERE p.tenant = done.tenant AND p.chunk = done.chunk",
            tuple(map(list, zip(*done, strict=True))),
        )
    _note_place(session, model, unmarked, rows)


def _next_of_all(session: Session, model: int, place: tuple[str, int, int]) -> list[tuple[Any, ...]]:
    """The next passages on Citus, in two statements."""
    rows = session.rows(
        "SELECT tenant, namespace, id, ended_commit IS NULL AND number >= 0 AND length > 0 FROM chunk"
        f" WHERE (tenant, namespace, id) > (%s, %s, %s) ORDER BY tenant, namespace, id LIMIT {MARKED_A_STEP}",
        place,
    )
    [(dimensions,)] = session.rows("SELECT dimensions FROM model WHERE id = %s", (model,))
    with_vector = {
        chunk
        for (chunk,) in session.rows(
            "SELECT chunk FROM embedding WHERE model = %s AND chunk = ANY(%s) AND vector_dims(value) = %s",
            (model, [row[2] for row in rows], dimensions),
        )
    }
    return [(*row, row[2] in with_vector) for row in rows]


def _mark_by_chunk(
    session: Session, chunks: list[int], wanted: Sequence[tuple[str, int, int]], done: list[int]
) -> None:
    """Change marks on Citus. Numbers of passages are unique, so no statement over all shards needs the tenants."""
    session.send(
        "DELETE FROM embedding AS v USING model AS m WHERE v.chunk = ANY(%s) AND m.id = v.model"
        " AND vector_dims(v.value) <> m.dimensions",
        (chunks,),
    )
    otherwise = "ON CONFLICT (chunk, tenant) DO NOTHING"
    session.insert("pending", "tenant, namespace, chunk", wanted, otherwise)
    session.send("DELETE FROM pending WHERE chunk = ANY(%s)", (done,))


def _note_place(session: Session, model: int, unmarked: int, rows: Sequence[tuple[Any, ...]]) -> None:
    session.send(
        "UPDATE model SET unmarked = %s, at_tenant = %s, at_namespace = %s, at_chunk = %s WHERE id = %s",
        (max(0, unmarked - len(rows)) if len(rows) == MARKED_A_STEP else None, *rows[-1][:3], model),
    )


def claim(
    session: Session, limit: int, lease_seconds: float, now: int | None, *, even_leased: bool
) -> tuple[list[Pending], bool]:
    """Lease the newest passages, because the next search most likely asks for what was written last.

    Passages that another worker is claiming are skipped. The lease uses the database's clock. Also returns whether a
    change of models may go on, since the last marks may have been of passages that no longer exist.
    """
    while True:
        if session.is_distributed:
            chosen = _claim_by_tenant(session, limit, lease_seconds, now, even_leased=even_leased)
        else:
            chosen = session.rows(
                f"""
            WITH chosen AS (
                SELECT tenant, chunk FROM pending WHERE ready_at <= {NOW} OR %s
                ORDER BY chunk DESC LIMIT %s FOR UPDATE SKIP LOCKED
            )
            UPDATE pending AS p SET attempts = attempts + 1,
                ready_at = {NOW} + (least(%s::float8 * power(2, least(attempts, %s)), %s) * 1000000)::bigint
            FROM chosen WHERE p.tenant = chosen.tenant AND p.chunk = chosen.chunk
            RETURNING p.tenant, p.namespace, p.chunk
            """,
                (now, even_leased, limit, now, lease_seconds, MOST_DOUBLINGS, LONGEST_LEASE_SECONDS),
            )
        found = _passages(session, chosen)
        live = {passage.chunk_id for passage in found}
        gone = [chunk for _, _, chunk in chosen if chunk not in live]
        if not chosen:
            return [], bool(session.rows(f"SELECT 1 FROM model WHERE {_CHANGING} AND {_FEW_PENDING}"))
        if not gone:
            return found, False
        # A mark made for a model may be of a passage that was ended or erased at the same moment.
        session.send("DELETE FROM pending WHERE chunk = ANY(%s)", (gone,))
        if found:
            return found, False


def _claim_by_tenant(
    session: Session, limit: int, lease_seconds: float, now: int | None, *, even_leased: bool
) -> list[tuple[str, int, int]]:
    """The same on Citus, where a statement that locks rows is of one tenant. Two workers may choose the same passages;
    the second one waits, and then finds their lease.
    """
    [(at,)] = session.rows(f"SELECT {NOW}", (now,))
    by_tenant: dict[str, list[int]] = {}
    for tenant, chunk in session.rows(
        "SELECT tenant, chunk FROM pending WHERE ready_at <= %s OR %s ORDER BY chunk DESC LIMIT %s",
        (at, even_leased, limit),
    ):
        by_tenant.setdefault(tenant, []).append(chunk)
    asked = [
        session.ask(
            "UPDATE pending SET attempts = attempts + 1,"
            " ready_at = %s::bigint + (least(%s::float8 * power(2, least(attempts, %s)), %s) * 1000000)::bigint"
            " WHERE tenant = %s AND chunk = ANY(%s) AND (ready_at <= %s OR %s) RETURNING tenant, namespace, chunk",
            (at, lease_seconds, MOST_DOUBLINGS, LONGEST_LEASE_SECONDS, tenant, chunks, at, even_leased),
        )
        for tenant, chunks in sorted(by_tenant.items())
    ]
    return [row for one in asked for row in one.fetchall()]


def pending(session: Session, spot: Location, limit: int, among: Sequence[tuple[int, int]] | None) -> list[Pending]:
    """The newest waiting passages of a namespace, leased or not, or the first of those named by entry and start."""
    if among is None:
        chosen = session.rows(
            "SELECT tenant, namespace, chunk FROM pending WHERE tenant = %s AND namespace = %s"
            " ORDER BY chunk DESC LIMIT %s",
            (spot.tenant, spot.id, limit),
        )
    else:
        chosen = session.rows(
            "SELECT p.tenant, p.namespace, p.chunk"
            " FROM unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY AS wanted (entry, start, place)"
            " JOIN chunk AS c ON c.tenant = %s AND c.entry = wanted.entry AND c.start = wanted.start"
            " AND c.number >= 0 AND c.ended_commit IS NULL"
            " JOIN pending AS p ON p.tenant = c.tenant AND p.chunk = c.id AND p.namespace = %s"
            " ORDER BY wanted.place LIMIT %s",
            ([entry for entry, _ in among], [start for _, start in among], spot.tenant, spot.id, limit),
        )
    return _passages(session, chosen, spot.tenant)


def _passages(session: Session, chunks: Sequence[tuple[str, int, int]], tenant: str | None = None) -> list[Pending]:
    """The live ones of these passages; name the tenant if it is known that all are of one."""
    if not chunks:
        return []
    of_tenant, parameters = ("", []) if tenant is None else ("WHERE c.tenant = %s", [tenant])
    rows = session.rows(
        # `+ 0` keeps the planner, when it has no statistics, from starting with namespaces: it would read all passages
        # of one for each that is wanted.
        "SELECT c.id, n.path, substr(coalesce(e.text, e.value), c.start + 1, c.stop - c.start)"
        " FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS wanted (tenant, namespace, chunk)"
        " JOIN chunk AS c ON c.tenant = wanted.tenant AND c.namespace = wanted.namespace AND c.id = wanted.chunk"
        " AND c.ended_commit IS NULL"
        " JOIN entry AS e ON e.tenant = c.tenant AND e.id = c.entry"
        f" JOIN namespace AS n ON n.tenant = c.tenant AND n.id = c.namespace + 0 {of_tenant} ORDER BY c.id DESC",
        [*map(list, zip(*chunks, strict=True)), *parameters],
    )
    return [Pending(chunk, stored_namespace(path), text) for chunk, path, text in rows]


def store_vectors(session: Session, model: str, vectors: Sequence[tuple[int, NDArray[float32]]]) -> bool:
    """Store vectors of the target model.

    Vectors of ended passages and of other models are dropped. Returns whether a change of models may go on.
    """
    roles = {
        role: (id, identity, is_changing)
        for id, identity, role, is_changing in session.rows(f"SELECT id, identity, role, {_CHANGING} FROM model")
    }
    model_id, identity, is_changing = roles.get("target") or roles.get("serving") or (0, None, False)
    if identity != model:
        return False
    given = dict(vectors)
    if session.is_distributed:
        waiting = _lock_by_tenant(session, list(given))
    else:
        waiting = _lock_waiting(session, list(given))
    for tenant, chunk, namespace_id in waiting:
        session.send(
            "INSERT INTO embedding (tenant, namespace, model, chunk, former, value, sequence)"
            " VALUES (%s, %s, %s, %s, false, %s, nextval('identifier')) ON CONFLICT (chunk, model, tenant)"
            " DO UPDATE SET value = excluded.value, former = false, sequence = excluded.sequence",
            (tenant, namespace_id, model_id, chunk, Halfvec.of(given[chunk])),
        )
    if waiting and session.is_distributed:
        for tenant, of_tenant in groupby(waiting, key=itemgetter(0)):
            done = [chunk for _, chunk, _ in of_tenant]
            session.send("DELETE FROM pending WHERE tenant = %s AND chunk = ANY(%s)", (tenant, done))
    elif waiting:
        session.send(
            "DELETE FROM pending AS p USING unnest(%s::text[], %s::bigint[]) AS done (tenant, chunk)"
            " WHERE p.tenant = done.tenant AND p.chunk = done.chunk",
            ([tenant for tenant, _, _ in waiting], [chunk for _, chunk, _ in waiting]),
        )
    return is_changing and bool(session.rows(f"SELECT {_FEW_PENDING}")[0][0])


def _lock_waiting(session: Session, chunks: list[int]) -> list[tuple[str, int, int]]:
    """Lock the marks of these passages; returns those that still wait."""
    # Vectors of a namespace are committed in the order of their numbers, because memory reads those above the last one
    # it knows. Who stores some waits here for others that do, always in the same order. Writers do not take this lock.
    locked = session.rows(
        "SELECT of.namespace, pg_advisory_xact_lock(hashtextextended(current_schema() || ':vectors', of.namespace))"
        " FROM (SELECT DISTINCT namespace FROM pending WHERE chunk = ANY(%s) ORDER BY namespace) AS of",
        (chunks,),
    )
    # The mark is the lock: a writer that ends the passage waits for it, or has already deleted it. A mark that appeared
    # meanwhile in a namespace that is not locked stays, and its passage is claimed again.
    return session.rows(
        "SELECT p.tenant, p.chunk, p.namespace FROM pending AS p"
        " JOIN chunk AS c ON c.tenant = p.tenant AND c.namespace = p.namespace AND c.id = p.chunk"
        " AND c.ended_commit IS NULL WHERE p.chunk = ANY(%s) AND p.namespace = ANY(%s) FOR UPDATE OF p SKIP LOCKED",
        (chunks, [namespace for namespace, _ in locked]),
    )


def _lock_by_tenant(session: Session, chunks: list[int]) -> list[tuple[str, int, int]]:
    """The same on Citus: the coordinator has the locks of namespaces, the nodes those of marks."""
    found = session.rows("SELECT DISTINCT tenant, namespace FROM pending WHERE chunk = ANY(%s)", (chunks,))
    of_tenant: dict[str, list[int]] = {}
    for tenant, namespace_id in sorted(found):
        of_tenant.setdefault(tenant, []).append(namespace_id)
    session.send(
        "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ':vectors', of)) FROM"
        " (SELECT of FROM unnest(%s::bigint[]) AS named (of) ORDER BY of) AS ordered",
        (sorted(namespace_id for _, namespace_id in found),),
    )
    asked = [
        session.ask(
            "SELECT p.tenant, p.chunk, p.namespace FROM pending AS p"
            " JOIN chunk AS c ON c.tenant = p.tenant AND c.namespace = p.namespace AND c.id = p.chunk"
            " AND c.ended_commit IS NULL WHERE p.tenant = %s AND p.chunk = ANY(%s) AND p.namespace = ANY(%s)"
            " FOR UPDATE OF p SKIP LOCKED",
            (tenant, chunks, namespaces),
        )
        for tenant, namespaces in of_tenant.items()
    ]
    return [row for one in asked for row in one.fetchall()]


def passage_vectors(
    session: Session, spot: Location, model: int, states: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int, NDArray[float32]]]:
    """A state's passages are those that had begun with its commit or before and ended after it."""
    rows = session.rows(
        "SELECT c.entry, c.start, c.stop, v.value FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (entry, commit)"
        f" JOIN {spot.of('chunk')} AS c ON c.tenant = %s AND c.entry = wanted.entry"
        " AND c.commit_number <= wanted.commit AND (c.ended_commit IS NULL OR c.ended_commit > wanted.commit)"
        f" JOIN {spot.of('embedding')} AS v ON v.tenant = c.tenant AND v.chunk = c.id"
        " WHERE v.model = %s",
        ([entry for entry, _ in states], [commit for _, commit in states], spot.tenant, model),
        last=True,
        binary=True,
    )
    if not rows:
        return []
    matrix = floats([value for _, _, _, value in rows])
    return [(entry, start, stop, vector) for (entry, start, stop, _), vector in zip(rows, matrix, strict=True)]


def drop_retired(session: Session) -> bool:
    """Remove some vectors of a model that no longer serves; returns whether there may be more to remove."""
    session.send("LOCK TABLE model IN ROW EXCLUSIVE MODE")
    for model_id, place in session.rows(
        "SELECT id, at_chunk FROM model WHERE role = 'retired' LIMIT 1 FOR UPDATE SKIP LOCKED"
    ):
        # In the order of the primary key from where the last step ended, so that no row is looked at twice.
        rows = session.rows(
            "SELECT tenant, chunk FROM embedding WHERE chunk > %s AND model = %s"
            f" ORDER BY chunk LIMIT {RETIRED_A_STEP}",
            (place, model_id),
        )
        if not rows:
            session.send("DELETE FROM model WHERE id = %s", (model_id,))
            return True
        if session.is_distributed:
            retired = [chunk for _, chunk in rows]
            session.send("DELETE FROM embedding WHERE model = %s AND chunk = ANY(%s)", (model_id, retired))
        else:
            session.send(
                "DELETE FROM embedding AS v USING unnest(%s::text[], %s::bigint[]) AS old (tenant, chunk)"
                " WHERE v.tenant = old.tenant AND v.chunk = old.chunk AND v.model = %s",
                (*map(list, zip(*rows, strict=True)), model_id),
            )
        session.send("UPDATE model SET at_chunk = %s WHERE id = %s", (rows[-1][1], model_id))
        return True
    return False
