"""Migrates a database to this program's schema: ordered steps, each applied once, however many servers start together.

Servers with the previous schema may be running. Each step is one transaction, so a step that is killed leaves nothing
behind, and the next program continues from there. A step changes only what differs. It waits only briefly for a lock,
then gives way to whoever holds it, and tries again.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql

from commonplace.backends.postgres.connection import Place, check_vector, translate
from commonplace.errors import ConfigurationError, Unavailable

T = TypeVar("T")
IDS_AT_ONCE = 32
LOCK_SECONDS = 0.5
"""Below PostgreSQL's `deadlock_timeout` of one second, so that a migration gives way before a server's write has to."""

PATIENCE_SECONDS = 120.0
LONGEST_PAUSE_SECONDS = 2.0
_LOCK = 0x434D4E50  # "CMNP"
_SHARED = ("model",)
_SEARCHED = ("chunk", "embedding", "entry", "namespace", "pending")
"""Searches read the partitions of these tables by name."""


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """The numbered .sql files next to this module, in order."""
    folder = files("commonplace.backends.postgres").joinpath("migrations")
    found = []
    for resource in folder.iterdir():
        if match := re.fullmatch(r"(\d{3})_\w+\.sql", resource.name):
            found.append((int(match[1]), resource.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def newest() -> int:
    return migrations()[-1][0]


def schema_version(connection: psycopg.Connection[Any], place: Place) -> int:
    """The number of the last step that was applied; 0 if there is none."""
    if not _is_true(
        connection,
        "SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'migration')",
        place.schema,
    ):
        return 0
    with connection.transaction():  # a login need not have the rights of a role before SET ROLE
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(place.system_role)))
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
    """Apply the missing steps; returns how many."""
    # An advisory lock, because before the first migration there is no row to lock. It is taken before the transaction,
    # so that the transaction sees everything that the previous holder has done.
    lock = (_LOCK, place.schema)
    try:
        if check_schema(connection, place):
            return 0
        connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", lock)
        applied = _apply(connection, place)
        connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", lock)
        return applied
    except errors.InsufficientPrivilege as error:
        raise ConfigurationError(_admin_advice(connection, place, error)) from error
    except psycopg.Error as error:
        raise translate(error, place.shown) from error


def _apply(connection: psycopg.Connection[Any], place: Place) -> int:
    patiently = _Patience(connection, place)
    if schema_version(connection, place) not in (0, newest()):
        # One table per transaction: a transaction that locks only one table cannot be part of a deadlock.
        for change in patiently.run(lambda: _unguarded(connection, place)):
            patiently.run(partial(_change, connection, place, change))
    applied = 0
    while patiently.run(lambda: _take_step(connection, place)):
        applied += 1
    return applied


class _Patience:
    """Runs work in a transaction, and again if someone held a lock that it needs. Raises Unavailable if all of it took
    too long.
    """

    def __init__(self, connection: psycopg.Connection[Any], place: Place) -> None:
        self._connection = connection
        self._place = place
        self._deadline = time.monotonic() + PATIENCE_SECONDS

    def run(self, work: Callable[[], T]) -> T:
        tries = 0
        while True:
            tries += 1
            try:
                with self._connection.transaction():
                    milliseconds = f"{LOCK_SECONDS * 1_000:.0f}"
                    self._connection.execute("SELECT set_config('lock_timeout', %s, true)", (milliseconds,))
                    return work()
            except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
                # Between two attempts, the servers can use the tables.
                pause = random.uniform(0.5, 1) * min(LONGEST_PAUSE_SECONDS, 0.1 * 2**tries)
                if time.monotonic() + pause > self._deadline:
                    raise Unavailable(
                        f"{self._place.shown} could not be upgraded: for {PATIENCE_SECONDS:.0f} seconds other "
                        "programs, such as an export or a backup, have locked tables that must change; wait until "
                        "they are done, or stop them, and start again"
                    ) from error
                time.sleep(pause)


def _take_step(connection: psycopg.Connection[Any], place: Place) -> bool:
    """Apply the next step; False if there is none."""
    if check_schema(connection, place):
        return False
    version = schema_version(connection, place)
    if version == 0:
        _prepare(connection, place)
        check_vector(connection, place)
    _become_owner(connection, place)
    if version:
        # Since schema 4, programs lock this table in every transaction before any other.
        connection.execute("LOCK TABLE migration IN ACCESS EXCLUSIVE MODE")
    else:
        schema, app = sql.Identifier(place.schema), sql.Identifier(place.app_role)
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, app))
    number, text = next(step for step in migrations() if step[0] > version)
    connection.execute(text.format(schema=place.schema, ids_at_once=IDS_AT_ONCE).encode())
    if number == 1:
        connection.execute("CREATE TABLE migration (number integer PRIMARY KEY)")
    connection.execute("INSERT INTO migration (number) VALUES (%s)", (number,))
    connection.execute(_made_again("program.sql").format(schema=place.schema).encode())
    _divide(connection, place)
    for change in _unguarded(connection, place):
        connection.execute(change)
    return True


def _become_owner(connection: psycopg.Connection[Any], place: Place) -> None:
    """For the rest of the transaction."""
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(place.system_role)))
    connection.execute("SELECT set_config('search_path', %s, true)", (_path(connection, place),))


def _change(connection: psycopg.Connection[Any], place: Place, change: sql.Composed) -> None:
    _become_owner(connection, place)
    connection.execute(change)


def _prepare(connection: psycopg.Connection[Any], place: Place) -> None:
    """Create the roles, the extension and the schema, which may need an administrator."""
    for role in (place.system_role, place.app_role):
        name = sql.Identifier(role)
        if not _is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)", role):
            # Roles belong to all databases of a server, and another one may be creating them at the same time.
            connection.execute(
                sql.SQL(
                    "DO $$ BEGIN CREATE ROLE {} NOLOGIN; "
                    "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
                ).format(name)
            )
        if not _may_become(connection, role):
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


def _may_become(connection: psycopg.Connection[Any], role: str) -> bool:
    """Since PostgreSQL 16, the creator of a role may grant it, also to itself, but not SET ROLE to it."""
    right = "SET" if connection.info.server_version >= 160_000 else "MEMBER"
    return _is_true(connection, "SELECT pg_has_role(current_user, %s, %s)", role, right)


def _path(connection: psycopg.Connection[Any], place: Place) -> str:
    row = connection.execute(
        "SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace"
        " WHERE e.extname = 'vector'"
    ).fetchone()
    assert row is not None
    return f"{place.schema}, {row[0]}, pg_temp"


def tables(connection: psycopg.Connection[Any], place: Place) -> list[tuple[str, bool, list[str]]]:
    """Our tables in order, whether each is partitioned by tenant, and the names of its partitions."""
    return [
        (name, kind == "p", parts)
        for name, kind, parts in connection.execute(
            "SELECT c.relname, c.relkind, array(SELECT p.relname::text FROM pg_inherits AS i"
            " JOIN pg_class AS p ON p.oid = i.inhrelid WHERE i.inhparent = c.oid ORDER BY p.relname) FROM pg_class AS c"
            " WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            " ORDER BY c.relname",
            (place.schema,),
        )
    ]


def _made_again(name: str) -> str:
    """A file next to the steps, whose functions are created again with each step."""
    return files("commonplace.backends.postgres").joinpath("migrations", name).read_text(encoding="utf-8")


def _divide(connection: psycopg.Connection[Any], place: Place) -> None:
    """Give every partitioned table that has no partitions yet as many as the other tables have."""
    known = tables(connection, place)
    counted = max(len(parts) for _, _, parts in known) or place.partitions
    own = _made_again("part.sql")
    for table, is_divided, parts in known:
        for number in range(counted if is_divided else 0):
            if f"{table}_p{number}" not in parts:
                connection.execute(
                    sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(
                        sql.Identifier(f"{table}_p{number}"), sql.Identifier(table), counted, number
                    )
                )
    for number in range(counted):
        connection.execute(own.format(schema=place.schema, part=f"p{number}").encode())


_POLICIES = """
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
    DROP POLICY IF EXISTS tenant ON {table};
    DROP POLICY IF EXISTS everything ON {table};
    CREATE POLICY tenant ON {table} TO {app} USING (tenant = current_setting('commonplace.tenant', true));
    CREATE POLICY everything ON {table} TO {system} USING (true)
"""

_GUARDED = """
    SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity
            AND array(SELECT polname::text FROM pg_policy WHERE polrelid = c.oid ORDER BY 1) = '{everything,tenant}',
        array(SELECT named FROM unnest(%(rights)s::text[]) AS named WHERE has_table_privilege(%(app)s, c.oid, named))
    FROM pg_class AS c WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p')
"""
_READS, _CHANGES = ("SELECT",), ("SELECT", "INSERT", "UPDATE", "DELETE")


def _unguarded(connection: psycopg.Connection[Any], place: Place) -> list[sql.Composed]:
    """What is missing for forced row-level security: one change for each table that lacks something.

    The app role sees only its transaction's tenant, or nothing without one. A complete table is not touched, because
    the change would wait for all its users, and they for the change.
    """
    known = {
        name: (is_guarded, rights)
        for name, is_guarded, rights in connection.execute(
            _GUARDED, {"rights": list(_CHANGES), "app": place.app_role, "schema": place.schema}
        )
    }
    app, system = sql.Identifier(place.app_role), sql.Identifier(place.system_role)
    changes: list[sql.Composed] = []

    def guard(name: str, wanted: tuple[str, ...], *, by_tenant: bool) -> None:
        is_guarded, rights = known[name]
        statements = []
        if by_tenant and not is_guarded:
            statements.append(_POLICIES)
        if not set(wanted) <= set(rights):
            statements.append(f"GRANT {', '.join(wanted)} ON {{table}} TO {{app}}")
        if statements:
            change = sql.SQL("; ".join(statements))
            changes.append(change.format(table=sql.Identifier(name), app=app, system=system))

    for name, is_divided, parts in tables(connection, place):
        if is_divided:
            guard(name, _CHANGES, by_tenant=True)
        elif name in _SHARED:
            guard(name, _READS, by_tenant=False)
        if name in _SEARCHED:
            # A parent's policies do not apply to queries that name a partition.
            for part in parts:
                guard(part, _READS, by_tenant=True)
    sequence = f"{place.schema}.identifier"
    if not _is_true(connection, "SELECT has_sequence_privilege(%s, %s, 'USAGE')", place.app_role, sequence):
        changes.append(sql.SQL("GRANT USAGE ON SEQUENCE identifier TO {}").format(app))
    return changes


def _is_true(connection: psycopg.Connection[Any], query: str, *parameters: object) -> bool:
    row = connection.execute(query.encode(), parameters).fetchone()
    return bool(row is not None and row[0])


def _admin_advice(connection: psycopg.Connection[Any], place: Place, error: Exception) -> str:
    """What an administrator must run: everything that is missing, unless the login can create it itself."""
    login = connection.info.user
    can_create, has_vector, has_schema = connection.execute(
        "SELECT rolcreaterole AND has_database_privilege(current_database(), 'CREATE'),"
        " EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector'), to_regnamespace(%s) IS NOT NULL"
        " FROM pg_roles WHERE rolname = current_user",
        (place.schema,),
    ).fetchall()[0]
    statements = [] if has_vector else ["CREATE EXTENSION IF NOT EXISTS vector"]
    barred = []
    for role in (place.system_role, place.app_role):
        is_known = _is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)", role)
        if not is_known and not can_create:
            statements.append(f"CREATE ROLE {role} NOLOGIN")
        if not can_create if not is_known else not _may_become(connection, role):
            barred.append(role)
    if barred:
        statements.append(f'GRANT {", ".join(barred)} TO "{login}"')
    if not has_schema and not can_create:
        statements.append(f"CREATE SCHEMA {place.schema} AUTHORIZATION {place.system_role}")
    reason = str(error).strip().partition("\n")[0]
    return (
        f"the role {login} may not prepare {place.shown} ({reason}). Let an administrator run this in that database, "
        "then start again:\n" + "\n".join(f"  {statement};" for statement in statements)
    )
