"""Maintenance of the tables: purge, counts, checks of the indexes against the rows, and background work.

The background work deletes old marks of attempts, and creates indexes of keywords and vectors on partitions with a
namespace that memory does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg
from psycopg import sql

from commonplace.backends.deltas import is_whole, whole
from commonplace.backends.entry_index import passages_alone
from commonplace.backends.filter_sql import add_names
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.reader import (
    FORMER_BYTES,
    Location,
    decode_former,
    pack_delta,
    part_of,
    unpack_delta,
)
from commonplace.backends.postgres.runner import READ, Runner
from commonplace.backends.postgres.transaction import PostgresTransaction, steps
from commonplace.backends.postgres.where import Where
from commonplace.backends.ranking import HASH_BYTES, packed_terms, posting
from commonplace.language.passages import passage
from commonplace.language.tokenizer import STEM
from commonplace.store import Progress, StoreStats

VERIFY_ROWS_A_STEP = 1_000
ATTEMPTS_KEPT_SECONDS = 3_600
ATTEMPTS_A_STEP = 10_000
BUILDING = 0x434D4E51
BUILD_MEMORY = "256MB"

_PART = "substring(n.tableoid::regclass::text FROM '_p([0-9]+)$')::bigint"
_NO_PART = "NULL::bigint"


def purge(
    session: Session,
    transaction: PostgresTransaction,
    kind: str | None,
    key: str | None,
    prefix: str | None,
    history_before: int | None,
    revision: int | None = None,
) -> int:
    """Erase the named states, live and former; returns how many there were."""
    spot = transaction.spot
    named = Where()
    named.add("tenant = %s AND namespace = %s", spot.tenant, spot.id)
    add_names(named, kind, key, prefix)
    where, parameters = named.sql, named.parameters
    if revision is not None:
        where, parameters = f"{where} AND revision = %s", [*parameters, revision]
    elif history_before is None:
        for live_kind, live_key in session.rows(f"SELECT kind, key FROM entry WHERE {where}", parameters):
            transaction.delete(live_kind, live_key)
        # An entry that ended here is erased under its earlier names too; one that moved away is erased only here.
        ended_here = f"SELECT entry FROM history WHERE {where} AND ended_by IN ('deleted', 'expired')"
        where = f"({where}) OR (tenant = %s AND entry IN ({ended_here}))"
        parameters = [*parameters, spot.tenant, *parameters]
        if kind is None:
            transaction.mark_changed()
            transaction.forget_operations()
    else:
        where, parameters = f"{where} AND valid_to < %s", [*parameters, history_before]
    rows = session.rows(
        f"SELECT entry, revision, commit_number, ended_commit FROM history WHERE {where} ORDER BY entry, revision",
        parameters,
    )
    if not rows:
        return 0
    transaction.mark_erased()
    _erase_states(session, spot, [(entry_id, one) for entry_id, one, _, _ in rows])
    if revision is None:
        erased = [(entry_id, 0, ended) for entry_id, _, _, ended in rows]
    else:
        others = "SELECT commit_number FROM history WHERE tenant = %s AND entry = %s"
        erased = [
            (entry_id, *passages_alone(begun, ended, (one for (one,) in session.rows(others, (spot.tenant, entry_id)))))
            for entry_id, _, begun, ended in rows
        ]
    _erase_ended_chunks(session, spot, erased)
    session.send(
        "UPDATE namespace SET history_floor = greatest(history_floor, %s), former_states = %s, former_bytes = %s,"
        " former_commit = commit_number, chunks_ended = chunks_ended + 1 WHERE tenant = %s AND path = %s",
        (
            max(ended for _, _, _, ended in rows),
            *transaction.count_former(),
            spot.tenant,
            "/".join(spot.namespace),
        ),
    )
    return len(rows)


def _erase_states(session: Session, spot: Location, states: Sequence[tuple[int, int]]) -> None:
    """Remove rows of history. A state whose delta depends on one of them is first stored whole."""
    gone = set(states)
    entries = sorted({entry_id for entry_id, _ in states})
    chains: dict[int, list[tuple[int, bytes | None, bytes]]] = {}
    for entry_id, revision, text, value in session.rows(
        "SELECT entry, revision, text, value FROM history WHERE tenant = %s AND entry = ANY(%s)"
        " ORDER BY entry, revision",
        (spot.tenant, entries),
    ):
        chains.setdefault(entry_id, []).append((revision, text, value))
    orphans = []
    for entry_id, chain in chains.items():
        for (revision, text, value), (newer, _, _) in pairwise(chain):
            is_kept = is_whole(unpack_delta(value)) and (text is None or is_whole(unpack_delta(text)))
            if (entry_id, newer) in gone and (entry_id, revision) not in gone and not is_kept:
                orphans.append((entry_id, revision))
    for (entry_id, revision), (full_text, full_value) in decode_former(session, spot.tenant, orphans).items():
        session.send(
            "UPDATE history SET text = %s, value = %s WHERE tenant = %s AND entry = %s AND revision = %s",
            (
                None if full_text is None else pack_delta(whole(full_text)),
                pack_delta(whole(full_value)),
                spot.tenant,
                entry_id,
                revision,
            ),
        )
    session.send(
        "DELETE FROM history AS h USING unnest(%s::bigint[], %s::bigint[]) AS gone (entry, revision)"
        " WHERE h.tenant = %s AND h.entry = gone.entry AND h.revision = gone.revision",
        ([entry_id for entry_id, _ in states], [revision for _, revision in states], spot.tenant),
    )


def _erase_ended_chunks(session: Session, spot: Location, ended: Sequence[tuple[int, int, int]]) -> None:
    """Remove the passages, with their vectors, that began and ended between two commits, both included."""
    ranges: dict[int, tuple[int, int]] = {}
    for entry_id, first, last in ended:
        ranges[entry_id] = (first, max(last, ranges.get(entry_id, (first, last))[1]))
    for entries in steps(list(ranges)):
        # Filtered here, because for a join with the entries the planner may compare every passage with every entry.
        found = session.rows(
            "SELECT id, entry, commit_number, ended_commit FROM chunk"
            " WHERE tenant = %s AND entry = ANY(%s) AND ended_commit IS NOT NULL",
            (spot.tenant, entries),
        )
        gone = [
            chunk
            for chunk, entry_id, begun, ended_by in found
            if ranges[entry_id][0] <= begun and ended_by <= ranges[entry_id][1]
        ]
        place = (spot.tenant, spot.id, gone)
        session.send("DELETE FROM chunk WHERE tenant = %s AND namespace = %s AND id = ANY(%s)", place)
        session.send("DELETE FROM embedding WHERE tenant = %s AND namespace = %s AND chunk = ANY(%s)", place)


def stats(session: Session, schema: str) -> StoreStats:
    measured = "pg_total_relation_size(oid)"
    if session.is_distributed:
        distributed = "oid IN (SELECT logicalrelid FROM pg_dist_partition)"
        measured = f"CASE WHEN {distributed} THEN citus_total_relation_size(oid) ELSE {measured} END"
    size = f"SELECT coalesce(sum({measured}), 0)::bigint FROM pg_class"
    row = [
        session.rows(statement)[0][0]
        for statement in (
            "SELECT max(number) FROM migration",
            "SELECT count(*) FROM namespace",
            "SELECT count(*) FROM history",
            "SELECT count(*) FROM chunk WHERE ended_commit IS NULL",
            "SELECT count(*) FROM embedding WHERE NOT former",
            "SELECT count(*) FROM pending",
            "SELECT max(identity) FROM model WHERE role = 'serving'",
            f"{size} WHERE relnamespace = to_regnamespace('{schema}') AND relkind = 'r'",
        )
    ]
    kinds = session.rows("SELECT kind, count(*) FROM entry GROUP BY kind ORDER BY kind")
    version, namespaces, former, chunks, vectors, pending, model, size = row
    return StoreStats(version, namespaces, dict(kinds), former, chunks, vectors, pending, model, size)


_LIVE_CHUNKS = "SELECT * FROM chunk WHERE ended_commit IS NULL"
_MUST_BE_ZERO = {
    "vectors with another length than their model's; `commonplace reindex` rebuilds them": (
        "SELECT count(*) FROM embedding AS v JOIN model AS m ON m.id = v.model"
        " WHERE vector_dims(v.value) <> m.dimensions"
    ),
    "live passages without a live entry": (
        f"SELECT count(*) FROM ({_LIVE_CHUNKS}) AS c"
        " WHERE NOT EXISTS (SELECT 1 FROM entry AS e WHERE e.tenant = c.tenant AND e.id = c.entry)"
    ),
    "live passages with neither a vector nor a pending mark": (
        f"SELECT count(*) FROM ({_LIVE_CHUNKS}) AS c WHERE number >= 0 AND length > 0"
        " AND NOT EXISTS (SELECT 1 FROM embedding AS v WHERE v.tenant = c.tenant AND v.chunk = c.id)"
        " AND NOT EXISTS (SELECT 1 FROM pending AS p WHERE p.tenant = c.tenant AND p.chunk = c.id)"
    ),
    "vectors without a passage": (
        "SELECT count(*) FROM embedding AS v"
        " WHERE NOT EXISTS (SELECT 1 FROM chunk AS c WHERE c.tenant = v.tenant AND c.id = v.chunk)"
    ),
    "vectors of ended passages among the live ones": (
        "SELECT count(*) FROM embedding AS v JOIN chunk AS c ON c.tenant = v.tenant AND c.id = v.chunk"
        " WHERE v.former = (c.ended_commit IS NULL)"
    ),
    "pending marks without a live passage": (
        "SELECT count(*) FROM pending AS p WHERE NOT EXISTS"
        f" (SELECT 1 FROM ({_LIVE_CHUNKS}) AS c WHERE c.tenant = p.tenant AND c.id = p.chunk)"
    ),
    "labels without an entry": (
        "SELECT count(*) FROM label AS l"
        " WHERE NOT EXISTS (SELECT 1 FROM entry AS e WHERE e.tenant = l.tenant AND e.id = l.entry)"
    ),
    "entries of an unknown namespace, or of another tenant than theirs": (
        "SELECT count(*) FROM entry AS e"
        " WHERE NOT EXISTS (SELECT 1 FROM namespace AS n WHERE n.tenant = e.tenant AND n.id = e.namespace)"
    ),
    "namespaces whose passage counts are wrong": (
        "SELECT count(*) FROM namespace AS n LEFT JOIN (SELECT tenant, namespace, count(*) AS passages,"
        f" sum(length) AS terms FROM ({_LIVE_CHUNKS}) AS c GROUP BY tenant, namespace) AS held"
        " ON held.tenant = n.tenant AND held.namespace = n.id"
        " WHERE n.chunk_count <> coalesce(held.passages, 0) OR n.term_total <> coalesce(held.terms, 0)"
    ),
    "namespaces whose usage is wrong": (
        "SELECT count(*) FROM namespace AS n LEFT JOIN (SELECT tenant, namespace, count(*) AS entries, sum("
        " octet_length(value) + coalesce(octet_length(text), 0) + octet_length(attributes)) AS bytes"
        " FROM entry GROUP BY tenant, namespace) AS held ON held.tenant = n.tenant AND held.namespace = n.id"
        " WHERE n.entry_count <> coalesce(held.entries, 0) OR n.byte_count <> coalesce(held.bytes, 0)"
    ),
    "namespaces whose usage by history is wrong": (
        "SELECT count(*) FROM namespace AS n LEFT JOIN (SELECT tenant, namespace, count(*) AS states,"
        f" sum({FORMER_BYTES}) AS bytes FROM history GROUP BY tenant, namespace) AS held"
        " ON held.tenant = n.tenant AND held.namespace = n.id WHERE n.former_commit = n.commit_number"
        " AND (n.former_states <> coalesce(held.states, 0) OR n.former_bytes <> coalesce(held.bytes, 0))"
    ),
    "namespaces whose next expiry is wrong": (
        "SELECT count(*) FROM namespace AS n WHERE coalesce(n.expires_next, 9223372036854775807) > ("
        " SELECT min(expires_at) FROM entry AS e WHERE e.tenant = n.tenant AND e.namespace = n.id)"
    ),
    "entries newer than their namespace's commit": (
        "SELECT count(*) FROM entry AS e JOIN namespace AS n ON n.tenant = e.tenant AND n.id = e.namespace"
        " WHERE e.commit_number > n.commit_number"
    ),
}


def verify(session: Session, progress: Progress | None) -> list[str]:
    """Every mismatch between the rows and what is derived from them."""
    found = []
    for name, statement in _MUST_BE_ZERO.items():
        count = session.rows(statement)[0][0]
        if count:
            found.append(f"index: {count:,} {name}")
    return found + _keyword_problems(session, progress)


def _keyword_problems(session: Session, progress: Progress | None) -> list[str]:
    """Compare every passage's terms with its text."""
    total = session.rows(f"SELECT count(*) FROM ({_LIVE_CHUNKS}) AS c")[0][0]
    checked, place = 0, ("", 0, 0)
    while True:
        rows = session.rows(
            "SELECT c.tenant, c.namespace, c.id, c.length, c.posting,"
            " coalesce(c.terms, packed_terms(c.tokens, c.repeated)),"
            " CASE WHEN c.number < 0 THEN e.heading"
            " ELSE substr(coalesce(e.text, e.value), c.start + 1, c.stop - c.start) END"
            f" FROM ({_LIVE_CHUNKS}) AS c JOIN entry AS e ON e.tenant = c.tenant AND e.id = c.entry"
            " WHERE (c.tenant, c.namespace, c.id) > (%s, %s, %s) ORDER BY c.tenant, c.namespace, c.id LIMIT %s",
            (*place, VERIFY_ROWS_A_STEP),
        )
        for _, _, chunk, length, number, terms, text in rows:
            made = passage(text or "", 0, len(text or ""))
            agrees = (made.length, posting(chunk, length)) == (length, number)
            if not agrees or not _agree(terms, made.terms):
                return [f"index: passage {chunk} does not match its text; run `commonplace reindex --keywords`"]
        checked += len(rows)
        if progress is not None and rows:
            progress(checked, total, "passages")
        if len(rows) < VERIFY_ROWS_A_STEP:
            return []
        place = rows[-1][:3]


def _agree(stored: bytes, expected: Mapping[str, int]) -> bool:
    """Whether the terms of a passage are those of its text. Stems of other languages may be missing: a program from
    before them wrote none.
    """
    has = {stored[place : place + HASH_BYTES] for place in range(0, len(stored), HASH_BYTES)}
    wants = {packed_terms({term: count}): term for term, count in expected.items()}
    return has <= wants.keys() and not any(STEM not in term for packed, term in wants.items() if packed not in has)


# Background work


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """An HNSW index on the vectors of one model in one partition, or of one namespace there."""

    part: int | None
    model: int
    dimensions: int
    namespace: int | None = None

    @property
    def name(self) -> str:
        own = "" if self.namespace is None else f"_n{self.namespace}"
        return f"{self.table}_hnsw_m{self.model}{own}"

    @property
    def table(self) -> str:
        return part_of("embedding", self.part)

    def statement(self) -> sql.Composed:
        own = sql.SQL("") if self.namespace is None else sql.SQL(" AND namespace = {}").format(self.namespace)
        return sql.SQL(
            "CREATE INDEX CONCURRENTLY {name} ON {table} USING hnsw ((value::halfvec({dimensions})) halfvec_ip_ops)"
            " WHERE NOT former AND model = {model}{own}"
        ).format(
            name=sql.Identifier(self.name),
            table=sql.Identifier(self.table),
            dimensions=sql.Literal(self.dimensions),
            model=sql.Literal(self.model),
            own=own,
        )


@dataclass(frozen=True, slots=True)
class KeywordIndex:
    """A GIN index on the terms of the live passages in one partition."""

    part: int | None

    @property
    def name(self) -> str:
        return f"{self.table}_terms"

    @property
    def table(self) -> str:
        return part_of("chunk", self.part)

    def statement(self) -> sql.Composed:
        # What `postings` of part.sql asks for.
        return sql.SQL(
            "CREATE INDEX CONCURRENTLY {name} ON {table} USING gin"
            " (term_keys(namespace, coalesce(terms, packed_terms(tokens, repeated)))) WITH (fastupdate = off)"
            " WHERE ended_commit IS NULL"
        ).format(name=sql.Identifier(self.name), table=sql.Identifier(self.table))


def maintain(
    runner: Runner,
    connect: Callable[[], psycopg.Connection[Any]],
    role: str,
    weights: Callable[[int], tuple[float, float, float]],
) -> bool:
    """Do some of it; returns whether there was something to do."""
    if runner.system(_forget_attempts) >= ATTEMPTS_A_STEP:
        return True
    known = runner.system(lambda session: known_indexes(session, "hnsw", "gin"), mode=READ)
    wanted, models = runner.system(lambda session: _wanted_indexes(session, weights), mode=READ)
    for name, is_valid in known.items():
        model = name.partition("_m")[2].partition("_")[0]
        if not is_valid or (model and int(model) not in models):
            return _drop(connect, role, name)
    for index in wanted:
        if index.name not in known:
            return build(connect, role, index)
    return False


def _forget_attempts(session: Session) -> int:
    if session.is_distributed:
        [(oldest,)] = session.rows("SELECT now_micros() - %s", (ATTEMPTS_KEPT_SECONDS * 1_000_000,))
        return session.count("DELETE FROM attempt WHERE made_at < %s", (oldest,))
    return session.count(
        "DELETE FROM attempt AS a USING (SELECT tenant, id FROM attempt"
        " WHERE made_at < now_micros() - %s LIMIT %s FOR UPDATE SKIP LOCKED) AS old"
        " WHERE a.tenant = old.tenant AND a.id = old.id",
        (ATTEMPTS_KEPT_SECONDS * 1_000_000, ATTEMPTS_A_STEP),
    )


def known_indexes(session: Session, *methods: str) -> dict[str, bool]:
    """The indexes of these kinds by name, and whether each is complete. One whose creation was interrupted is not."""
    return dict(
        session.rows(
            "SELECT c.relname, i.indisvalid FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
            " JOIN pg_am AS a ON a.oid = c.relam WHERE a.amname = ANY(%s)"
            " AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('embedding'))",
            (list(methods),),
        )
    )


def _wanted_indexes(
    session: Session, weights: Callable[[int], tuple[float, float, float]]
) -> tuple[list[VectorIndex | KeywordIndex], set[int]]:
    """The indexes of each partition that has a namespace which does not fit into memory, and all models that are used.

    `weights` gives for a number of dimensions the bytes that a passage and a term take, and how many there may be.
    """
    models = session.rows("SELECT id, dimensions FROM model WHERE role <> 'retired' ORDER BY id")

    def large(dimensions: int) -> list[int]:
        rows = session.rows(
            f"SELECT DISTINCT {_NO_PART if session.is_distributed else _PART} FROM namespace AS n"
            " WHERE chunk_count * %s::float8 + term_total * %s::float8 > %s::float8 ORDER BY 1",
            weights(dimensions),
        )
        return [part for (part,) in rows]

    largest = max((dimensions for _, dimensions in models), default=0)
    wanted: list[VectorIndex | KeywordIndex] = [KeywordIndex(part) for part in large(largest)]
    wanted += [VectorIndex(part, model, dimensions) for model, dimensions in models for part in large(dimensions)]
    return wanted, {model for model, _ in models}


def index_of(session: Session, spot: Location) -> list[VectorIndex]:
    """The indexes for one namespace only: one for each model that serves or will serve."""
    rows = session.rows(
        f"SELECT {_NO_PART if session.is_distributed else _PART}, m.id, m.dimensions FROM namespace AS n, model AS m"
        " WHERE n.tenant = %s AND n.id = %s AND m.role <> 'retired'",
        (spot.tenant, spot.id),
    )
    return [VectorIndex(part, model, dimensions, spot.id) for part, model, dimensions in rows]


def build(connect: Callable[[], psycopg.Connection[Any]], role: str, index: VectorIndex | KeywordIndex) -> bool:
    """Build an index without blocking anything; False if another server is building."""
    with _alone(connect, role) as connection:
        if connection is None:
            return False
        connection.execute("SELECT set_config('maintenance_work_mem', %s, false)", (BUILD_MEMORY,))
        connection.execute(index.statement())
        # Without statistics the planner prefers to compare every vector.
        connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(index.table)))
        return True


def _drop(connect: Callable[[], psycopg.Connection[Any]], role: str, name: str) -> bool:
    with _alone(connect, role) as connection:
        if connection is None:
            return False
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name)))
        return True


@contextmanager
def _alone(connect: Callable[[], psycopg.Connection[Any]], role: str) -> Iterator[psycopg.Connection[Any] | None]:
    """A new connection, if no other server is building an index. An index is built outside of a transaction, so no row
    lock can be held. This takes an advisory lock, which ends with the connection.
    """
    with connect() as connection:
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", (BUILDING,)).fetchone()
        if row is None or not row[0]:
            yield None
            return
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        yield connection
