"""What a database server must offer a book: its version, pgvector, and sessions that stay with their connection."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import psycopg

from commonplace.backends.postgres.connection import CONNECT_SECONDS
from commonplace.backends.postgres.place import Place
from commonplace.errors import ConfigurationError

OLDEST_SERVER = 150_000
OLDEST_VECTOR = (0, 8)
"""Searches in large namespaces scan an index on until enough was found; 0.8 is the first that can."""

_LOOKS = 3


def check_server(connection: psycopg.Connection[Any], place: Place) -> None:
    """Refuse a server that is too old, and a pooler that gives each transaction another session."""
    if connection.info.server_version < OLDEST_SERVER:
        raise ConfigurationError(
            f"{place.shown} is PostgreSQL {connection.info.server_version // 10_000}; 15 or newer is needed"
        )
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        # Whoever answers is not who let us in: a pooler.
        _check_pooler(connection, place)


def _check_pooler(connection: psycopg.Connection[Any], place: Place) -> None:
    """What a session sets, it must find again, and nobody else may."""
    mine = uuid4().hex
    connection.execute("SELECT set_config('commonplace.session', %s, false)", (mine,))
    with psycopg.connect(place.conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS) as other:
        for _ in range(_LOOKS):
            if _session(other) == mine or _session(connection) != mine:
                raise ConfigurationError(
                    f"{place.shown} is reached through a pooler that keeps no session, such as PgBouncer with "
                    "pool_mode = transaction; set pool_mode = session there, or give the address of the database itself"
                )


def check_vector(connection: psycopg.Connection[Any], place: Place) -> None:
    """Refuse a pgvector that is too old; one that is missing is the migration's concern."""
    row = connection.execute(
        "SELECT e.extversion, a.default_version FROM pg_extension AS e"
        " LEFT JOIN pg_available_extensions AS a ON a.name = e.extname WHERE e.extname = 'vector'"
    ).fetchone()
    if row is None or _version(row[0]) >= OLDEST_VECTOR:
        return
    install = "" if _version(row[1] or "") >= OLDEST_VECTOR else "install a newer pgvector on the server, then "
    raise ConfigurationError(
        f"{place.shown} has pgvector {row[0]}; {'.'.join(map(str, OLDEST_VECTOR))} or newer is needed: {install}"
        "let an administrator run `ALTER EXTENSION vector UPDATE` in that database"
    )


def _session(connection: psycopg.Connection[Any]) -> str | None:
    row = connection.execute("SELECT current_setting('commonplace.session', true)").fetchone()
    return None if row is None else row[0]


def _version(written: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", written)[:2]))
