"""Upkeep that can wait: marks of old attempts go, and parts of the table with a large namespace get a vector index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from commonplace.backends.postgres import candidates
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.postgres.running import READ, Runner

ATTEMPTS_KEPT_SECONDS = 3_600
ATTEMPTS_A_STEP = 10_000
BUILDING = 0x434D4E51
BUILD_MEMORY = "256MB"

_PART = "substring(n.tableoid::regclass::text FROM '_p([0-9]+)$')::bigint"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """An HNSW index over the vectors of one model in one part of the table, or of one namespace there."""

    part: int
    model: int
    dimensions: int
    namespace: int | None = None

    @property
    def name(self) -> str:
        own = "" if self.namespace is None else f"_n{self.namespace}"
        return f"embedding_p{self.part}_hnsw_m{self.model}{own}"

    def statement(self) -> sql.Composed:
        own = sql.SQL("") if self.namespace is None else sql.SQL(" AND namespace = {}").format(self.namespace)
        return sql.SQL(
            "CREATE INDEX CONCURRENTLY {name} ON {table} USING hnsw ((value::halfvec({dimensions})) halfvec_ip_ops)"
            " WHERE NOT former AND model = {model}{own}"
        ).format(
            name=sql.Identifier(self.name),
            table=sql.Identifier(f"embedding_p{self.part}"),
            dimensions=sql.Literal(self.dimensions),
            model=sql.Literal(self.model),
            own=own,
        )


def tidy(runner: Runner, connect: Callable[[], psycopg.Connection[Any]], role: str) -> bool:
    """Do a little; whether there was something to do."""
    if runner.system(_forget_attempts) >= ATTEMPTS_A_STEP:
        return True
    known = runner.system(known_indexes, mode=READ)
    wanted, models = runner.system(_wanted_indexes, mode=READ)
    for name, is_valid in known.items():
        if not is_valid or int(name.partition("_m")[2].partition("_")[0]) not in models:
            return _drop(connect, role, name)
    for index in wanted:
        if index.name not in known:
            return build(connect, role, index)
    return False


def _forget_attempts(session: Session) -> int:
    return session.count(
        "DELETE FROM attempt AS a USING (SELECT tenant, id FROM attempt"
        " WHERE made_at < now_micros() - %s LIMIT %s FOR UPDATE SKIP LOCKED) AS old"
        " WHERE a.tenant = old.tenant AND a.id = old.id",
        (ATTEMPTS_KEPT_SECONDS * 1_000_000, ATTEMPTS_A_STEP),
    )


def known_indexes(session: Session) -> dict[str, bool]:
    """The vector indexes by name, and whether each is complete: one whose building was cut short is not."""
    return dict(
        session.rows(
            "SELECT c.relname, i.indisvalid FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
            " JOIN pg_am AS a ON a.oid = c.relam WHERE a.amname = 'hnsw'"
            " AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('embedding'))"
        )
    )


def _wanted_indexes(session: Session) -> tuple[list[VectorIndex], set[int]]:
    models = session.rows("SELECT id, dimensions FROM model WHERE role <> 'retired' ORDER BY id")
    parts = session.rows(
        f"SELECT DISTINCT {_PART} FROM namespace AS n WHERE chunk_count > %s ORDER BY 1", (candidates.EXACT_ROWS,)
    )
    wanted = [VectorIndex(part, model, dimensions) for (part,) in parts for model, dimensions in models]
    return wanted, {model for model, _ in models}


def index_of(session: Session, spot: Spot) -> list[VectorIndex]:
    """What a namespace's own indexes would be: one for each model that serves or will."""
    rows = session.rows(
        f"SELECT {_PART}, m.id, m.dimensions FROM namespace AS n, model AS m"
        " WHERE n.tenant = %s AND n.id = %s AND m.role <> 'retired'",
        (spot.tenant, spot.id),
    )
    return [VectorIndex(part, model, dimensions, spot.id) for part, model, dimensions in rows]


def build(connect: Callable[[], psycopg.Connection[Any]], role: str, index: VectorIndex) -> bool:
    """Build an index while everything goes on; False where another server is at it."""
    with _alone(connect, role) as connection:
        if connection is None:
            return False
        connection.execute("SELECT set_config('maintenance_work_mem', %s, false)", (BUILD_MEMORY,))
        connection.execute(index.statement())
        return True


def _drop(connect: Callable[[], psycopg.Connection[Any]], role: str, name: str) -> bool:
    with _alone(connect, role) as connection:
        if connection is None:
            return False
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name)))
        return True


@contextmanager
def _alone(connect: Callable[[], psycopg.Connection[Any]], role: str) -> Iterator[psycopg.Connection[Any] | None]:
    """A connection of its own, if no other server builds. No row could be held as long as building without a
    transaction takes, so this is an advisory lock; it ends with the connection."""
    with connect() as connection:
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", (BUILDING,)).fetchone()
        if row is None or not row[0]:
            yield None
            return
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        yield connection
