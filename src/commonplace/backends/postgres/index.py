"""Rows derived from live entries: labels, passages with their tokens, models and vectors.

Keywords are our own terms as tokens in a GIN index over the passages. A token carries its namespace's number in front,
so a posting list holds one namespace.

Except for `pending` and `passage_vectors`, functions on models and vectors work on all tenants, under the system role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.backends.entry_index import HEADING, BaseEntryIndex, Numbered, match_passages
from commonplace.backends.postgres.connection import Halfvec, Session, floats
from commonplace.backends.postgres.migrate import IDS_AT_ONCE
from commonplace.backends.postgres.reader import NOW, Location, tenant_of
from commonplace.backends.ranking import packed_terms, posting
from commonplace.checks import Namespace, stored_namespace
from commonplace.errors import ConfigurationError
from commonplace.language.passages import frequency_level
from commonplace.store import Pending

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

ENTRIES_A_STEP = 500
RETIRED_A_STEP = 2_000
LONGEST_LEASE_SECONDS = 3_600
MOST_DOUBLINGS = 20  # of a lease; more would overflow a float

_LEVEL_MARKS = {2: "\x02", 3: "\x03"}  # no term contains a control character
_CHUNK_COLUMNS = (
    "tenant, id, namespace, entry, number, start, stop, length, posting, commit_number, tokens, repeated, terms"
)
_INSERT_CHUNK = f"INSERT INTO chunk ({_CHUNK_COLUMNS}) VALUES ({', '.join(['%s'] * 13)})"


def tokens(namespace_id: int, terms: Mapping[str, int]) -> tuple[list[str], list[str] | None]:
    """The tokens of a passage, and with a mark those of terms that occur more than once."""
    prefix = f"{namespace_id:x}:"
    repeated = [f"{prefix}{term}{_LEVEL_MARKS[frequency_level(count)]}" for term, count in terms.items() if count > 1]
    return [prefix + term for term in terms], repeated or None


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

    def _end_chunk_rows(self, ended: Sequence[tuple[int, int]]) -> None:
        chunks = [chunk for chunk, _ in ended]
        place = (self._tenant, chunks)
        # The pending mark goes first. It is locked while a vector is stored, so the update below sees that vector.
        self._session.send("DELETE FROM pending WHERE tenant = %s AND chunk = ANY(%s)", place)
        self._session.send(
            "UPDATE chunk SET ended_commit = %s, tokens = NULL, repeated = NULL, terms = NULL"
            " WHERE tenant = %s AND id = ANY(%s)",
            (self._row.commit_number, *place),
        )
        self._session.send("UPDATE embedding SET former = true WHERE tenant = %s AND chunk = ANY(%s)", place)

    def _insert_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None:
        if added:
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
                *tokens(namespace_id, found.terms),
                packed_terms(found.terms),
            ),
        )
        if number != HEADING and found.terms:
            waiting.append(chunk)
    if waiting:
        session.send(
            "INSERT INTO pending (tenant, chunk, namespace) SELECT %s, new.chunk, %s"
            " FROM unnest(%s::bigint[]) AS new (chunk)",
            (tenant, namespace_id, waiting),
        )


# Rebuilding


def rebuild_keywords(session: Session, namespace: Namespace, report: Callable[[int], None]) -> None:
    """Rebuild passages and tokens from the texts of one namespace, and keep every vector whose passage stays the same.

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
        " WHERE c.tenant = namespace.tenant AND c.namespace = namespace.id AND c.ended_commit IS NULL)"
        " WHERE tenant = %s AND path = %s",
        (tenant, path),
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
            "UPDATE chunk SET length = %s, posting = %s, tokens = %s, repeated = %s, terms = %s"
            " WHERE tenant = %s AND id = %s",
            (
                found.length,
                posting(chunk, found.length),
                *tokens(namespace_id, found.terms),
                packed_terms(found.terms),
                tenant,
                chunk,
            ),
        )
    added = [(entry_id, *numbered) for numbered in new]
    _insert_chunks(session, (tenant, namespace_id), ids, commit, added)
    if gone:
        session.send("DELETE FROM pending WHERE tenant = %s AND chunk = ANY(%s)", (tenant, gone))
        session.send("DELETE FROM embedding WHERE tenant = %s AND chunk = ANY(%s)", (tenant, gone))
        session.send("DELETE FROM chunk WHERE tenant = %s AND id = ANY(%s)", (tenant, gone))


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
        return int(session.rows("SELECT count(*) FROM pending", last=True)[0][0])
    place = (spot.tenant, spot.id)
    sql = f"SELECT count(*) FROM {spot.of('pending')} WHERE tenant = %s AND namespace = %s"
    return int(session.rows(sql, place, last=True)[0][0])


def set_target_model(session: Session, model: str, dimensions: int) -> None:
    """Make `model` the target. A book's first model serves at once, a later one when all passages have been embedded
    with it.
    """
    session.send("LOCK TABLE model IN SHARE ROW EXCLUSIVE MODE")
    for (stored,) in session.rows("SELECT dimensions FROM model WHERE identity = %s", (model,)):
        if stored != dimensions:
            raise ConfigurationError(
                f"model {model} gives {dimensions} dimensions, but this book holds vectors of it with {stored}; "
                "give the changed model another identity"
            )
    serving = {
        identity: number for number, identity in session.rows("SELECT id, identity FROM model WHERE role = 'serving'")
    }
    session.send("UPDATE model SET role = 'retired' WHERE role = 'target'")
    model_id = serving.get(model)
    if model_id is None:
        model_id = session.rows(
            "INSERT INTO model (identity, dimensions, role) VALUES (%s, %s, %s)"
            " ON CONFLICT (identity) DO UPDATE SET role = excluded.role RETURNING id",
            (model, dimensions, "target" if serving else "serving"),
        )[0][0]
    # A vector with the wrong length would make every search of its namespace fail.
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
    """Lease the newest passages, because the next search most likely asks for what was written last.

    Passages that another worker is claiming are skipped. The lease uses the database's clock. Also returns whether the
    target serves now, since the last marks may be of passages that no longer exist.
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
        # A mark made for a model may be of a passage that was ended or erased at the same moment.
        session.send("DELETE FROM pending WHERE chunk = ANY(%s)", (gone,))
        if found:
            return found, False
        if _promote_when_done(session):
            return [], True


def pending(session: Session, spot: Location, limit: int, among: Sequence[tuple[int, int]] | None) -> list[Pending]:
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
        # `+ 0` keeps the planner, when it has no statistics, from starting with namespaces: it would read all passages
        # of one for each that is wanted.
        "SELECT c.id, n.path, substr(coalesce(e.text, e.value), c.start + 1, c.stop - c.start)"
        " FROM unnest(%s::text[], %s::bigint[]) AS wanted (tenant, chunk)"
        " JOIN chunk AS c ON c.tenant = wanted.tenant AND c.id = wanted.chunk AND c.ended_commit IS NULL"
        " JOIN entry AS e ON e.tenant = c.tenant AND e.id = c.entry"
        " JOIN namespace AS n ON n.tenant = c.tenant AND n.id = c.namespace + 0 ORDER BY c.id DESC",
        ([tenant for tenant, _ in chunks], [chunk for _, chunk in chunks]),
    )
    return [Pending(chunk, stored_namespace(path), text) for chunk, path, text in rows]


def store_vectors(session: Session, model: str, vectors: Sequence[tuple[int, NDArray[float32]]]) -> bool:
    """Store vectors of the target model.

    Vectors of ended passages and of other models are dropped. Returns whether the target serves now, so that vectors of
    the previous model can be removed.
    """
    roles = {role: (id, identity) for id, identity, role in session.rows("SELECT id, identity, role FROM model")}
    model_id, identity = roles.get("target") or roles.get("serving") or (0, None)
    if identity != model:
        return False
    given = dict(vectors)
    # Vectors of a namespace are committed in the order of their numbers, because memory reads those above the last one
    # it knows. Who stores some waits here for others that do, always in the same order. Writers do not take this lock.
    locked = session.rows(
        "SELECT of.namespace, pg_advisory_xact_lock(hashtextextended(current_schema() || ':vectors', of.namespace))"
        " FROM (SELECT DISTINCT namespace FROM pending WHERE chunk = ANY(%s) ORDER BY namespace) AS of",
        (list(given),),
    )
    # The mark is the lock: a writer that ends the passage waits for it, or has already deleted it. A mark that appeared
    # meanwhile in a namespace that is not locked stays, and its passage is claimed again.
    waiting = session.rows(
        "SELECT p.tenant, p.chunk, p.namespace FROM pending AS p"
        " JOIN chunk AS c ON c.tenant = p.tenant AND c.id = p.chunk AND c.ended_commit IS NULL"
        " WHERE p.chunk = ANY(%s) AND p.namespace = ANY(%s) FOR UPDATE OF p SKIP LOCKED",
        (list(given), [namespace for namespace, _ in locked]),
    )
    for tenant, chunk, namespace_id in waiting:
        session.send(
            "INSERT INTO embedding (tenant, namespace, model, chunk, former, value, sequence)"
            " VALUES (%s, %s, %s, %s, false, %s, nextval('identifier')) ON CONFLICT (chunk, model, tenant)"
            " DO UPDATE SET value = excluded.value, former = false, sequence = excluded.sequence",
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


def _promote_when_done(session: Session) -> bool:
    target = session.rows("SELECT id FROM model WHERE role = 'target' AND NOT EXISTS (SELECT 1 FROM pending)")
    if target:
        session.send("UPDATE model SET role = 'retired' WHERE role = 'serving'")
        session.send("UPDATE model SET role = 'serving' WHERE id = %s", target[0])
    return bool(target)


def drop_retired(session: Session) -> bool:
    """Remove some vectors of models that no longer serve; returns whether there may be more."""
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
