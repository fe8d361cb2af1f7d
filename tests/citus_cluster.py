"""Books on the Citus cluster whose coordinator `CITUS` names, and its nodes."""

from __future__ import annotations

import atexit
import os
import time
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from commonplace.backends.postgres import PostgresStore

SHARDS = 8
_numbers = count()
_run = f"test_{uuid4().hex[:8]}"


def address() -> str:
    return os.environ["CITUS"].partition("?")[0]


def query(sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """On the coordinator, as the superuser."""
    with psycopg.connect(address(), autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


def undistributed_book() -> str:
    schema = f"{_run}_{next(_numbers)}"
    atexit.register(_drop, schema)
    return f"{address()}?schema={schema}&partitions={SHARDS}"


def new_book() -> str:
    """The address of an empty distributed book."""
    url = undistributed_book()
    PostgresStore(url).distribute()
    return url


@cache
def shared_book() -> str:
    return new_book()


def _drop(schema: str) -> None:
    query(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    for role in ("app", "system"):
        query(f"DROP ROLE IF EXISTS {schema}_{role}")


def empty(url: str) -> None:
    """Remove every row, and keep the schema."""
    schema = schema_of(url)
    names = [
        name
        for (name,) in query(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace"
            " AND relkind = 'r' AND relname <> 'migration'",
            schema,
        )
    ]
    with psycopg.connect(address(), autocommit=True) as connection:
        for name in names:
            connection.execute(f"DELETE FROM {schema}.{name}".encode())


def nodes() -> list[tuple[str, int]]:
    """The nodes that hold shards."""
    return query("SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards AND isactive ORDER BY 1, 2")


def crash(node: tuple[str, int]) -> None:
    """Kill a process of a node's PostgreSQL, which then ends all of its connections and recovers from its log; wait
    until it has.
    """
    host, port = node
    parts = urlsplit(address())
    url = urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{host}:{port}"))
    with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
        connection.execute("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'")
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def move_shards(schema: str) -> int:
    """Move every shard of the tenants' tables to another node, with all that belongs to it."""
    known = nodes()
    moved = 0
    for shard, host, port in query(
        "SELECT shardid, nodename, nodeport FROM citus_shards WHERE table_name = %s::regclass ORDER BY 1",
        f"{schema}.namespace",
    ):
        target = known[(known.index((host, port)) + 1) % len(known)]
        query(
            "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, shard_transfer_mode => 'block_writes')",
            shard,
            host,
            port,
            *target,
        )
        moved += 1
    return moved
