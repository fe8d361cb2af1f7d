"""Vectors: models and their roles, what waits for a vector, and storing what was embedded.

All of it but `pending` and `passage_vectors` is work over all tenants, under the system role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commonplace.backends.postgres.connection import Halfvec, Session, floats
from commonplace.backends.postgres.reading import NOW, Spot
from commonplace.checks import stored_namespace
from commonplace.errors import ConfigurationError
from commonplace.store import Pending

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

RETIRED_A_STEP = 2_000
LONGEST_LEASE_SECONDS = 3_600
MOST_DOUBLINGS = 20  # of a lease: what is tried without end would come to more than a float holds


@dataclass(frozen=True, slots=True)
class Model:
    id: int
    identity: str
    dimensions: int
    role: str


def models(session: Session) -> list[Model]:
    return [Model(*row) for row in session.rows("SELECT id, identity, dimensions, role FROM model", last=True)]


def pending_count(session: Session, spot: Spot | None) -> int:
    if spot is None:
        return int(session.rows("SELECT count(*) FROM pending", last=True)[0][0])
    place = (spot.tenant, spot.id)
    sql = f"SELECT count(*) FROM {spot.of('pending')} WHERE tenant = %s AND namespace = %s"
    return int(session.rows(sql, place, last=True)[0][0])


def aim(session: Session, model: str, dimensions: int) -> None:
    """Make `model` the target. The first one of a book serves at once; a later one when all is embedded anew."""
    session.send("LOCK TABLE model IN SHARE ROW EXCLUSIVE MODE")
    known = session.rows("SELECT id, dimensions, role FROM model WHERE identity = %s", (model,))
    if known and known[0][1] != dimensions:
        raise ConfigurationError(
            f"model {model} gives {dimensions} dimensions, but this book holds vectors of it with {known[0][1]}; "
            "give the changed model another identity"
        )
    serving = session.rows("SELECT id, identity FROM model WHERE role = 'serving'")
    session.send("UPDATE model SET role = 'retired' WHERE role = 'target'")
    if serving and serving[0][1] == model:
        model_id = serving[0][0]
    else:
        model_id = session.rows(
            "INSERT INTO model (identity, dimensions, role) VALUES (%s, %s, %s)"
            " ON CONFLICT (identity) DO UPDATE SET role = excluded.role RETURNING id",
            (model, dimensions, "target" if serving else "serving"),
        )[0][0]
    # A vector of another length than its model's would fail every search of its namespace.
    session.send(
        "DELETE FROM embedding AS v USING model AS m WHERE m.id = v.model AND vector_dims(v.value) <> m.dimensions"
    )
    session.send(
        """
        INSERT INTO pending (tenant, chunk, namespace)
        SELECT c.tenant, c.id, c.namespace FROM chunk AS c
        WHERE c.ended_commit IS NULL AND c.number >= 0 AND c.length > 0 AND NOT EXISTS (
            SELECT 1 FROM embedding AS v WHERE v.tenant = c.tenant AND v.chunk = c.id AND v.model = %s)
        ON CONFLICT (chunk, tenant) DO NOTHING
        """,
        (model_id,),
    )
    session.send(
        "DELETE FROM pending AS p WHERE EXISTS"
        " (SELECT 1 FROM embedding AS v WHERE v.tenant = p.tenant AND v.chunk = p.chunk AND v.model = %s)",
        (model_id,),
    )
    _promote_when_done(session)


def claim(
    session: Session, limit: int, lease_seconds: float, now: int | None, *, even_leased: bool
) -> tuple[list[Pending], bool]:
    """Lease the newest passages: what was written last is what the next search most likely asks for.

    What another worker is just claiming is passed over, and the lease is by the database's clock. Then whether the
    target serves now: the last marks may be of passages that are gone.
    """
    while True:
        chosen = session.rows(
            f"""
            WITH chosen AS (
                SELECT tenant, chunk FROM pending WHERE ready_at <= {NOW} OR %s
                ORDER BY chunk DESC LIMIT %s FOR UPDATE SKIP LOCKED
            )
            UPDATE pending AS p SET attempts = attempts + 1,
                ready_at = {NOW} + (least(%s::float8 * power(2, least(attempts, %s)), %s) * 1000000)::bigint
            FROM chosen WHERE p.tenant = chosen.tenant AND p.chunk = chosen.chunk RETURNING p.tenant, p.chunk
            """,
            (now, even_leased, limit, now, lease_seconds, MOST_DOUBLINGS, LONGEST_LEASE_SECONDS),
        )
        found = _passages(session, chosen)
        live = {passage.chunk_id for passage in found}
        gone = [chunk for _, chunk in chosen if chunk not in live]
        if not gone:
            return found, False
        # A mark made for a model may meet a passage that ended or was erased in the same moment.
        session.send("DELETE FROM pending WHERE chunk = ANY(%s)", (gone,))
        if found:
            return found, False
        if _promote_when_done(session):
            return [], True


def pending(session: Session, spot: Spot, limit: int, among: Sequence[tuple[int, int]] | None) -> list[Pending]:
    """The newest waiting passages of a namespace, leased or not, or the first of those named by entry and start."""
    if among is None:
        chosen = session.rows(
            "SELECT tenant, chunk FROM pending WHERE tenant = %s AND namespace = %s ORDER BY chunk DESC LIMIT %s",
            (spot.tenant, spot.id, limit),
        )
    else:
        chosen = session.rows(
            "SELECT p.tenant, p.chunk"
            " FROM unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY AS wanted (entry, start, place)"
            " JOIN chunk AS c ON c.tenant = %s AND c.entry = wanted.entry AND c.start = wanted.start"
            " AND c.number >= 0 AND c.ended_commit IS NULL"
            " JOIN pending AS p ON p.tenant = c.tenant AND p.chunk = c.id AND p.namespace = %s"
            " ORDER BY wanted.place LIMIT %s",
            ([entry for entry, _ in among], [start for _, start in among], spot.tenant, spot.id, limit),
        )
    return _passages(session, chosen)


def _passages(session: Session, chunks: Sequence[tuple[str, int]]) -> list[Pending]:
    if not chunks:
        return []
    rows = session.rows(
        "SELECT c.id, n.path, substr(coalesce(e.text, e.value), c.start + 1, c.stop - c.start)"
        " FROM unnest(%s::text[], %s::bigint[]) AS wanted (tenant, chunk)"
        " JOIN chunk AS c ON c.tenant = wanted.tenant AND c.id = wanted.chunk AND c.ended_commit IS NULL"
        " JOIN entry AS e ON e.tenant = c.tenant AND e.id = c.entry"
        " JOIN namespace AS n ON n.tenant = c.tenant AND n.id = c.namespace ORDER BY c.id DESC",
        ([tenant for tenant, _ in chunks], [chunk for _, chunk in chunks]),
    )
    return [Pending(chunk, stored_namespace(path), text) for chunk, path, text in rows]


def index(session: Session, model: str, vectors: Sequence[tuple[int, NDArray[float32]]]) -> bool:
    """Store vectors of the target model; a passage that ended, or another model's vector, is dropped.

    Whether the target serves now, so that vectors of the model before it can go.
    """
    roles = {role: (id, identity) for id, identity, role in session.rows("SELECT id, identity, role FROM model")}
    model_id, identity = roles.get("target") or roles.get("serving") or (0, None)
    if identity != model:
        return False
    given = dict(vectors)
    # Who holds the mark decides: a writer that ends the passage waits for it, or has taken it away.
    waiting = session.rows(
        "SELECT p.tenant, p.chunk, p.namespace FROM pending AS p"
        " JOIN chunk AS c ON c.tenant = p.tenant AND c.id = p.chunk AND c.ended_commit IS NULL"
        " WHERE p.chunk = ANY(%s) FOR UPDATE OF p SKIP LOCKED",
        (list(given),),
    )
    for tenant, chunk, namespace_id in waiting:
        session.send(
            "INSERT INTO embedding (tenant, namespace, model, chunk, former, value) VALUES (%s, %s, %s, %s, false, %s)"
            " ON CONFLICT (chunk, model, tenant) DO UPDATE SET value = excluded.value, former = false",
            (tenant, namespace_id, model_id, chunk, Halfvec.of(given[chunk])),
        )
    if waiting:
        session.send(
            "DELETE FROM pending AS p USING unnest(%s::text[], %s::bigint[]) AS done (tenant, chunk)"
            " WHERE p.tenant = done.tenant AND p.chunk = done.chunk",
            ([tenant for tenant, _, _ in waiting], [chunk for _, chunk, _ in waiting]),
        )
    return "target" in roles and _promote_when_done(session)


def passage_vectors(
    session: Session, spot: Spot, model: int, states: Sequence[tuple[int, int]]
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
    matrix = floats([row[3] for row in rows])
    return [(*row[:3], vector) for row, vector in zip(rows, matrix, strict=True)]


def _promote_when_done(session: Session) -> bool:
    target = session.rows("SELECT id FROM model WHERE role = 'target' AND NOT EXISTS (SELECT 1 FROM pending)")
    if target:
        session.send("UPDATE model SET role = 'retired' WHERE role = 'serving'")
        session.send("UPDATE model SET role = 'serving' WHERE id = %s", target[0])
    return bool(target)


def drop_retired(session: Session) -> bool:
    """Remove some vectors of models that no longer serve; whether there may be more."""
    for (model_id,) in session.rows("SELECT id FROM model WHERE role = 'retired'"):
        removed = session.count(
            "DELETE FROM embedding AS v USING (SELECT tenant, chunk FROM embedding WHERE model = %s LIMIT %s) AS old"
            " WHERE v.tenant = old.tenant AND v.chunk = old.chunk AND v.model = %s",
            (model_id, RETIRED_A_STEP, model_id),
        )
        if removed:
            return True
        session.send("DELETE FROM model WHERE id = %s", (model_id,))
    return False
