"""Bringing a database to this program's schema: ordered steps, once, however many servers start together."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import errors, sql

from commonplace.backends.postgres.failures import translate
from commonplace.backends.postgres.place import Place
from commonplace.errors import ConfigurationError

IDS_AT_ONCE = 32
OLDEST_SERVER = 150_000
_LOCK = 0x434D4E50  # "CMNP"
_SHARED = ("model",)
_SEARCHED = ("chunk", "embedding", "entry", "namespace", "pending")
"""Searches read the parts of these by name."""


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """The numbered .sql files beside this module, in order."""
    folder = files("commonplace.backends.postgres").joinpath("migrations")
    found = []
    for resource in folder.iterdir():
        if match := re.fullmatch(r"(\d{3})_\w+\.sql", resource.name):
            found.append((int(match[1]), resource.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def newest() -> int:
    return migrations()[-1][0]


def schema_version(connection: psycopg.Connection[Any], place: Place) -> int:
    """The number of the last step that was applied; 0 where nothing of ours is there."""
    if not _is_true(
        connection,
        "SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'migration')",
        place.schema,
    ):
        return 0
    row = connection.execute(
        sql.SQL("SELECT max(number) FROM {}.migration").format(sql.Identifier(place.schema))
    ).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0


def check_schema(connection: psycopg.Connection[Any], place: Place) -> bool:
    """Whether the schema is this program's. A newer one is refused."""
    version = schema_version(connection, place)
    if version > newest():
        raise ConfigurationError(
            f"{place.shown} was written by a newer commonplace (schema {version}; this one knows up to {newest()}); "
            "upgrade commonplace to open it"
        )
    return version == newest()


def migrate(connection: psycopg.Connection[Any], place: Place) -> int:
    """Apply what is missing, in one transaction; how many steps that were."""
    if connection.info.server_version < OLDEST_SERVER:
        raise ConfigurationError(
            f"{place.shown} is PostgreSQL {connection.info.server_version // 10_000}; 15 is needed"
        )
    # No row to lock exists before the first migration: this is what an advisory lock is for. It is taken before the
    # transaction, so that this sees all that whoever had it before has done.
    lock = (_LOCK, place.schema)
    try:
        connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", lock)
        with connection.transaction():
            applied = _apply(connection, place)
        connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", lock)
        return applied
    except errors.InsufficientPrivilege as error:
        raise ConfigurationError(_admin_advice(connection, place, error)) from error
    except psycopg.Error as error:
        raise translate(error, place.shown) from error


def _apply(connection: psycopg.Connection[Any], place: Place) -> int:
    if check_schema(connection, place):
        return 0
    version = schema_version(connection, place)
    if version == 0:
        _prepare(connection, place)
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(place.system_role)))
    connection.execute("SELECT set_config('search_path', %s, true)", (_path(connection, place),))
    missing = [(number, text) for number, text in migrations() if number > version]
    for number, text in missing:
        connection.execute(text.format(schema=place.schema, ids_at_once=IDS_AT_ONCE).encode())
        if number == 1:
            connection.execute("CREATE TABLE migration (number integer PRIMARY KEY)")
        connection.execute("INSERT INTO migration (number) VALUES (%s)", (number,))
    _divide(connection, place)
    _guard(connection, place)
    return len(missing)


def _prepare(connection: psycopg.Connection[Any], place: Place) -> None:
    """The roles, the extension and the schema: what may need an administrator."""
    for role in (place.system_role, place.app_role):
        name = sql.Identifier(role)
        if not _is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)", role):
            # Roles belong to all databases of a server: another one may be creating them at this moment.
            connection.execute(
                sql.SQL(
                    "DO $$ BEGIN CREATE ROLE {} NOLOGIN; "
                    "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
                ).format(name)
            )
        if not _is_true(connection, "SELECT pg_has_role(current_user, %s, 'MEMBER')", role):
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(name))
    if not _is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector')"):
        try:
            connection.execute("CREATE EXTENSION vector")
        except (errors.UndefinedFile, errors.FeatureNotSupported) as error:
            raise ConfigurationError(
                f"{place.shown} has no pgvector; install it on the server (package postgresql-NN-pgvector)"
            ) from error
    schema, owner = sql.Identifier(place.schema), sql.Identifier(place.system_role)
    if not _is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s)", place.schema):
        connection.execute(sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(schema, owner))
    elif _is_true(
        connection, "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = %s::regnamespace)", place.schema
    ):
        raise ConfigurationError(
            f"the schema {place.schema} holds tables of another program; choose another with ?schema=NAME"
        )
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, sql.Identifier(place.app_role)))


def _path(connection: psycopg.Connection[Any], place: Place) -> str:
    row = connection.execute(
        "SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace"
        " WHERE e.extname = 'vector'"
    ).fetchone()
    assert row is not None
    return f"{place.schema}, {row[0]}, pg_temp"


def tables(connection: psycopg.Connection[Any], place: Place) -> list[tuple[str, bool]]:
    """Our tables without their parts, in order, and whether each is divided by tenant."""
    return [
        (name, kind == "p")
        for name, kind in connection.execute(
            "SELECT relname, relkind FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition ORDER BY relname",
            (place.schema,),
        )
    ]


def _divide(connection: psycopg.Connection[Any], place: Place) -> None:
    """Give every divided table that has no parts yet as many as its sisters have."""
    counted = connection.execute(
        "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('namespace')"
    ).fetchone()
    parts = int(counted[0]) if counted and counted[0] else place.partitions
    own = files("commonplace.backends.postgres").joinpath("migrations", "part.sql").read_text(encoding="utf-8")
    for table, is_divided in tables(connection, place):
        if not is_divided:
            continue
        for number in range(parts):
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})"
                ).format(sql.Identifier(f"{table}_p{number}"), sql.Identifier(table), parts, number)
            )
    for number in range(parts):
        connection.execute(own.format(schema=place.schema, part=f"p{number}").encode())


_POLICIES = """
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
    DROP POLICY IF EXISTS tenant ON {table};
    DROP POLICY IF EXISTS everything ON {table};
    CREATE POLICY tenant ON {table} TO {app} USING (tenant = current_setting('commonplace.tenant', true));
    CREATE POLICY everything ON {table} TO {system} USING (true)
"""


def _guard(connection: psycopg.Connection[Any], place: Place) -> None:
    """Row-level security, forced: the app role sees its transaction's tenant, and without one nothing."""
    app, system = sql.Identifier(place.app_role), sql.Identifier(place.system_role)
    for name, is_divided in tables(connection, place):
        table = sql.Identifier(name)
        if not is_divided:
            if name in _SHARED:
                connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(table, app))
            continue
        connection.execute(sql.SQL(_POLICIES).format(table=table, app=app, system=system))
        connection.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(table, app))
        if name in _SEARCHED:
            # A parent's policies do not hold for who names its part.
            for part in _parts(connection, name):
                table = sql.Identifier(part)
                connection.execute(sql.SQL(_POLICIES).format(table=table, app=app, system=system))
                connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(table, app))
    connection.execute(sql.SQL("GRANT USAGE ON SEQUENCE identifier TO {}").format(app))


def _parts(connection: psycopg.Connection[Any], table: str) -> list[str]:
    rows = connection.execute(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = to_regclass(%s) ORDER BY c.relname",
        (table,),
    )
    return [name for (name,) in rows]


def _is_true(connection: psycopg.Connection[Any], query: str, *parameters: object) -> bool:
    row = connection.execute(query.encode(), parameters).fetchone()
    return bool(row is not None and row[0])


def _admin_advice(connection: psycopg.Connection[Any], place: Place, error: Exception) -> str:
    login = connection.info.user
    reason = str(error).strip().partition("\n")[0]
    return (
        f"the role {login} may not prepare {place.shown} ({reason}). Let an administrator run this in that database, "
        "then start again:\n"
        f"  CREATE EXTENSION IF NOT EXISTS vector;\n"
        f"  CREATE ROLE {place.system_role} NOLOGIN;\n"
        f"  CREATE ROLE {place.app_role} NOLOGIN;\n"
        f'  GRANT {place.system_role}, {place.app_role} TO "{login}";\n'
        f"  CREATE SCHEMA {place.schema} AUTHORIZATION {place.system_role};"
    )
