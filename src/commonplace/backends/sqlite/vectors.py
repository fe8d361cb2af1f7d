"""Vectors in the file: models and their roles, what waits for a vector, and storing what was embedded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonplace.backends.sqlite import damage
from commonplace.backends.sqlite.checksums import damaged_row, damaged_vector, vector_sum
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import Group
from commonplace.checks import stored_namespace
from commonplace.errors import ConfigurationError
from commonplace.store import Indexing, Pending

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

RETIRED_A_STEP = 2_000
LONGEST_LEASE_SECONDS = 3_600
MOST_DOUBLINGS = 20  # of a lease: what is tried without end would come to more than a float holds


def models(connection: Connection) -> tuple[str | None, str | None]:
    roles = dict(connection.execute("SELECT role, identity FROM model WHERE role <> 'retired'").fetchall())
    serving = roles.get("serving")
    return serving, roles.get("target", serving)


def indexing(connection: Connection, namespace_id: int | None) -> Indexing:
    if namespace_id is None:
        waiting = connection.execute("SELECT count(*) FROM pending").fetchall()[0][0]
    else:
        waiting = connection.execute("SELECT count(*) FROM pending WHERE namespace = ?", (namespace_id,)).fetchall()[0][
            0
        ]
    return Indexing(*models(connection), waiting)


def aim(connection: Connection, model: str, dimensions: int) -> None:
    """Make `model` the target. The first one of a book serves at once; a later one when all is embedded anew."""
    known = connection.execute("SELECT id, dimensions, role FROM model WHERE identity = ?", (model,)).fetchall()
    if known and known[0][1] != dimensions:
        raise ConfigurationError(
            f"model {model} gives {dimensions} dimensions, but this book holds vectors of it with {known[0][1]}; "
            "give the changed model another identity"
        )
    serving = connection.execute("SELECT id, identity FROM model WHERE role = 'serving'").fetchall()
    connection.execute("UPDATE model SET role = 'retired' WHERE role = 'target'")
    if serving and serving[0][1] == model:
        model_id = serving[0][0]
    else:
        role = "target" if serving else "serving"
        connection.execute(
            "INSERT INTO model (identity, dimensions, role) VALUES (?, ?, ?)"
            " ON CONFLICT (identity) DO UPDATE SET role = excluded.role",
            (model, dimensions, role),
        )
        model_id = connection.execute("SELECT id FROM model WHERE identity = ?", (model,)).fetchall()[0][0]
    # A vector of another length than its model's, or a damaged one, would fail every search of its namespace.
    for chunk in list(damage.damaged_vectors(connection)):
        connection.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
    connection.execute(
        "DELETE FROM vector WHERE length(value) <> 2 * (SELECT m.dimensions FROM model AS m WHERE m.id = vector.model)"
    )
    connection.execute(
        """
        INSERT OR IGNORE INTO pending (chunk, namespace, ready_at, attempts)
        SELECT c.id, e.namespace, 0, 0 FROM chunk AS c JOIN entry AS e ON e.id = c.entry
        WHERE c.ended_commit IS NULL AND c.number >= 0 AND c.length > 0
            AND NOT EXISTS (SELECT 1 FROM vector AS v WHERE v.chunk = c.id AND v.model = ?)
        """,
        (model_id,),
    )
    connection.execute(
        "DELETE FROM pending WHERE EXISTS (SELECT 1 FROM vector AS v WHERE v.chunk = pending.chunk AND v.model = ?)",
        (model_id,),
    )
    _promote_when_done(connection)


def claim(connection: Connection, limit: int, lease_seconds: float, now: int, *, even_leased: bool) -> list[Pending]:
    """Lease the newest passages: what was written last is what the next search most likely asks for."""
    # A namespace that another write of this very group begins has no row yet: its passages wait for the next turn.
    chosen = connection.execute(
        "SELECT chunk, attempts FROM pending WHERE (ready_at <= ? OR ?)"
        " AND EXISTS (SELECT 1 FROM namespace AS n WHERE n.id = pending.namespace) ORDER BY chunk DESC LIMIT ?",
        (now, even_leased, limit),
    ).fetchall()
    for chunk, attempts in chosen:
        if type(attempts) is not int:
            raise damaged_row("the mark of a passage")
        seconds = min(lease_seconds * 2 ** min(attempts, MOST_DOUBLINGS), LONGEST_LEASE_SECONDS)
        connection.execute(
            "UPDATE pending SET ready_at = ?, attempts = attempts + 1 WHERE chunk = ?",
            (now + int(seconds * 1e6), chunk),
        )
    return _passages(connection, [chunk for chunk, _ in chosen])


def pending(
    connection: Connection, namespace_id: int, limit: int, among: Sequence[tuple[int, int]] | None
) -> list[Pending]:
    """The newest waiting passages of a namespace, leased or not, or the first of those named by entry and start."""
    if among is None:
        chosen = connection.execute(
            "SELECT chunk FROM pending WHERE namespace = ? ORDER BY chunk DESC LIMIT ?", (namespace_id, limit)
        ).fetchall()
    else:
        chosen = connection.execute(
            "SELECT p.chunk FROM json_each(?) AS j CROSS JOIN chunk AS c"
            " ON c.entry = j.value ->> 0 AND c.ended_commit IS NULL AND c.number >= 0 AND c.start = j.value ->> 1"
            " CROSS JOIN pending AS p ON p.chunk = c.id WHERE p.namespace = ? ORDER BY j.key LIMIT ?",
            (json.dumps(among), namespace_id, limit),
        ).fetchall()
    return _passages(connection, [chunk for (chunk,) in chosen])


def _passages(connection: Connection, chunks: Sequence[int]) -> list[Pending]:
    try:
        rows = connection.execute(
            "SELECT c.id, n.path, substr(coalesce(e.text, e.value), c.start + 1, c.stop - c.start)"
            " FROM json_each(?) AS j CROSS JOIN chunk AS c ON c.id = j.value CROSS JOIN entry AS e ON e.id = c.entry"
            " CROSS JOIN namespace AS n ON n.id = e.namespace",
            (json.dumps(chunks),),
        ).fetchall()
        return [Pending(chunk, stored_namespace(path), text) for chunk, path, text in rows]
    except (UnicodeDecodeError, TypeError):
        if len(chunks) == 1:
            return []  # it keeps waiting; whoever reads its entry is told of the damage
        return [found for chunk in chunks for found in _passages(connection, [chunk])]


def index(connection: Connection, group: Group, model: str, vectors: Sequence[tuple[int, NDArray[float32]]]) -> None:
    """Store vectors of the target model; a passage that ended, or another model's vector, is dropped."""
    from commonplace.backends.vectors import pack

    roles = {role: (id, identity) for id, identity, role in connection.execute("SELECT id, identity, role FROM model")}
    model_id, identity = roles.get("target") or roles.get("serving") or (0, None)
    if identity != model:
        return
    for chunk, vector in vectors:
        waiting = connection.execute(
            "SELECT p.namespace, c.start, c.stop, c.length, c.commit_number FROM pending AS p"
            " JOIN chunk AS c ON c.id = p.chunk WHERE p.chunk = ?",
            (chunk,),
        ).fetchall()
        if not waiting:
            continue
        namespace_id, *place = waiting[0]
        packed = pack(vector)
        connection.execute(
            "INSERT OR REPLACE INTO vector (namespace, model, former, sequence, chunk, value, checksum)"
            " VALUES (?, ?, 0, ?, ?, ?, ?)",
            (namespace_id, model_id, group.next_id("vector"), chunk, packed, vector_sum((chunk, *place), packed)),
        )
        connection.execute("DELETE FROM pending WHERE chunk = ?", (chunk,))
    _promote_when_done(connection)


def passage_vectors(
    connection: Connection, model: str, states: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int, NDArray[float32]]]:
    """A state's passages are those that had begun with its commit or before and ended after it."""
    from commonplace.backends.vectors import unpack

    rows = connection.execute(
        "SELECT c.entry, c.start, c.stop, v.value, m.dimensions, c.id, v.checksum, c.length, c.commit_number"
        " FROM model AS m CROSS JOIN json_each(?) AS j"
        " CROSS JOIN chunk AS c ON c.entry = j.value ->> 0 CROSS JOIN vector AS v ON v.chunk = c.id AND v.model = m.id"
        " WHERE m.identity = ? AND c.commit_number <= j.value ->> 1"
        " AND (c.ended_commit IS NULL OR c.ended_commit > j.value ->> 1)",
        (json.dumps(states), model),
    ).fetchall()
    if not rows:
        return []
    for _, start, stop, value, dimensions, chunk, checksum, length, commit in rows:
        is_right = checksum is None or checksum == vector_sum((chunk, start, stop, length, commit), value)
        if not is_right or len(value) != 2 * dimensions:
            raise damaged_vector()
    vectors = unpack([row[3] for row in rows], rows[0][4])
    return [(*row[:3], vector) for row, vector in zip(rows, vectors, strict=True)]


def _promote_when_done(connection: Connection) -> None:
    target = connection.execute("SELECT id FROM model WHERE role = 'target'").fetchall()
    if target and not connection.execute("SELECT 1 FROM pending LIMIT 1").fetchall():
        connection.execute("UPDATE model SET role = 'retired' WHERE role = 'serving'")
        connection.execute("UPDATE model SET role = 'serving' WHERE id = ?", target[0])


def drop_retired(connection: Connection) -> bool:
    """Remove some vectors of models that no longer serve; whether there may be more."""
    for (model_id,) in connection.execute("SELECT id FROM model WHERE role = 'retired'").fetchall():
        rows = connection.execute(
            "SELECT chunk FROM vector WHERE model = ? LIMIT ?", (model_id, RETIRED_A_STEP)
        ).fetchall()
        for (chunk,) in rows:
            connection.execute("DELETE FROM vector WHERE chunk = ? AND model = ?", (chunk, model_id))
        if rows:
            return True
        connection.execute("DELETE FROM model WHERE id = ?", (model_id,))
    return False
