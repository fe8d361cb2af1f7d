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
_END = "\0"
_COMMIT = "\n-- COMMIT\n"
"""Ends a transaction within a step. What is before it may run twice, if a program is killed before the step is done."""
_PARTITIONED = " PARTITION BY HASH (tenant)"
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


def is_distributed(connection: psycopg.Connection[Any], place: Place) -> bool:
    """Whether Citus divides the tables (see below): then they have no partitions."""
    return is_true(
        connection,
        "SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'namespace' AND c.relkind = 'r')",
        place.schema,
    )


def schema_version(connection: psycopg.Connection[Any], place: Place) -> int:
    """The number of the last step that was applied; 0 if there is none."""
    if not is_true(
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
        for change in patiently.run(lambda: unguarded(connection, place)):
            patiently.run(partial(_change, connection, place, change))
    applied = 0
    while True:
        for part in patiently.run(lambda: _first_parts(connection, place)):
            patiently.run(partial(_run_part, connection, place, part))
        if not patiently.run(lambda: _take_step(connection, place)):
            return applied
        applied += 1


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
                    if not is_distributed(self._connection, self._place):
                        # In a database with Citus, a book is on the coordinator alone until it is distributed.
                        self._connection.execute("SELECT set_config('citus.enable_ddl_propagation', 'off', true)")
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


def _first_parts(connection: psycopg.Connection[Any], place: Place) -> list[str]:
    """What the next step does in transactions of their own, for the same reason: one for each table."""
    version = schema_version(connection, place)
    if check_schema(connection, place) or not version:
        return []
    return next(text for number, text in migrations() if number > version).split(_COMMIT)[:-1]


def _run_part(connection: psycopg.Connection[Any], place: Place, part: str) -> None:
    become_owner(connection, place)
    run_all(connection, part.format(schema=place.schema, ids_at_once=IDS_AT_ONCE))


def _take_step(connection: psycopg.Connection[Any], place: Place) -> bool:
    """Apply the next step; False if there is none."""
    if check_schema(connection, place):
        return False
    version = schema_version(connection, place)
    if version == 0:
        _prepare(connection, place)
        check_vector(connection, place)
    become_owner(connection, place)
    if version:
        # Since schema 4, programs lock this table in every transaction before any other.
        connection.execute("LOCK TABLE migration IN ACCESS EXCLUSIVE MODE")
    else:
        schema, app = sql.Identifier(place.schema), sql.Identifier(place.app_role)
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, app))
    number, text = next(step for step in migrations() if step[0] > version)
    is_on_citus = is_distributed(connection, place)
    if is_on_citus:
        text = text.replace(_PARTITIONED, "")
    run_all(connection, text.split(_COMMIT)[-1].format(schema=place.schema, ids_at_once=IDS_AT_ONCE))
    if number == 1:
        connection.execute("CREATE TABLE migration (number integer PRIMARY KEY)")
    connection.execute("INSERT INTO migration (number) VALUES (%s)", (number,))
    run_all(connection, _made_again("program.sql").format(schema=place.schema))
    if is_on_citus:
        create_of_part(connection, place, "")
        divide_by_tenant(connection, place)
    else:
        _divide(connection, place)
    for change in unguarded(connection, place):
        run_all(connection, change.as_string(connection))
    return True


def run_all(connection: psycopg.Connection[Any], script: str) -> None:
    """Run statements one by one, because Citus sends the whole text of a call to the nodes."""
    quoted = re.split(r"(\$\$.*?\$\$)", re.sub(r"^\s*--.*$", "", script, flags=re.MULTILINE), flags=re.DOTALL)
    marked = "".join(part if part.startswith("$$") else part.replace(";", _END) for part in quoted)
    for statement in filter(None, map(str.strip, marked.split(_END))):
        connection.execute(statement.encode())


def become_owner(connection: psycopg.Connection[Any], place: Place) -> None:
    """For the rest of the transaction."""
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(place.system_role)))
    connection.execute("SELECT set_config('search_path', %s, true)", (_path(connection, place),))


def _change(connection: psycopg.Connection[Any], place: Place, change: sql.Composed) -> None:
    become_owner(connection, place)
    run_all(connection, change.as_string(connection))


def _prepare(connection: psycopg.Connection[Any], place: Place) -> None:
    """Create the roles, the extension and the schema, which may need an administrator."""
    for role in (place.system_role, place.app_role):
        name = sql.Identifier(role)
        if not is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)", role):
            # Roles belong to all databases of a server, and another one may be creating them at the same time.
            connection.execute(
                sql.SQL(
                    "DO $$ BEGIN CREATE ROLE {} NOLOGIN; "
                    "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
                ).format(name)
            )
        if not _may_become(connection, role):
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(name))
    if not is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector')"):
        try:
            connection.execute("CREATE EXTENSION vector")
        except (errors.UndefinedFile, errors.FeatureNotSupported) as error:
            raise ConfigurationError(
                f"{place.shown} has no pgvector; install it on the server (package postgresql-NN-pgvector)"
            ) from error
    schema, owner = sql.Identifier(place.schema), sql.Identifier(place.system_role)
    if not is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s)", place.schema):
        connection.execute(sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(schema, owner))
    elif is_true(
        connection, "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = %s::regnamespace)", place.schema
    ):
        raise ConfigurationError(
            f"the schema {place.schema} holds tables of another program; choose another with ?schema=NAME"
        )


def _may_become(connection: psycopg.Connection[Any], role: str) -> bool:
    """Since PostgreSQL 16, the creator of a role may grant it, also to itself, but not SET ROLE to it."""
    right = "SET" if connection.info.server_version >= 160_000 else "MEMBER"
    return is_true(connection, "SELECT pg_has_role(current_user, %s, %s)", role, right)


def _path(connection: psycopg.Connection[Any], place: Place) -> str:
    row = connection.execute(
        "SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace"
        " WHERE e.extname = 'vector'"
    ).fetchone()
    assert row is not None
    return f"{place.schema}, {row[0]}, pg_temp"


def tables(connection: psycopg.Connection[Any], place: Place) -> list[tuple[str, bool, list[str]]]:
    """Our tables in order, whether each is divided by tenant, and the names of its partitions."""
    return [
        (name, has_tenant, parts)
        for name, has_tenant, parts in connection.execute(
            "SELECT c.relname, EXISTS (SELECT 1 FROM pg_attribute AS a WHERE a.attrelid = c.oid"
            " AND a.attname = 'tenant' AND NOT a.attisdropped), array(SELECT p.relname::text FROM pg_inherits AS i"
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
    for table, is_divided, parts in known:
        for number in range(counted if is_divided else 0):
            if f"{table}_p{number}" not in parts:
                connection.execute(
                    sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(
                        sql.Identifier(f"{table}_p{number}"), sql.Identifier(table), counted, number
                    )
                )
    for number in range(counted):
        create_of_part(connection, place, f"_p{number}")


def divide_by_tenant(connection: psycopg.Connection[Any], place: Place) -> None:
    """On Citus, divide the tables that are not yet. They follow the first one, so a tenant's rows are on one node."""
    divided = {name for (name,) in connection.execute("SELECT logicalrelid::regclass::text FROM pg_dist_partition")}
    names = [name for name, has_tenant, _ in tables(connection, place) if has_tenant and name not in divided]
    for name in sorted(names, key=lambda name: name != "namespace"):
        together = "none" if name == "namespace" else "namespace"
        connection.execute("SELECT create_distributed_table(%s, 'tenant', colocate_with => %s)", (name, together))


def create_of_part(connection: psycopg.Connection[Any], place: Place, part: str) -> None:
    """Create what each partition has of its own; with an empty name, for tables without partitions."""
    run_all(connection, _made_again("part.sql").replace("_{part}", part).format(schema=place.schema))


_POLICIES = """
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    DROP POLICY IF EXISTS tenant ON {table};
    DROP POLICY IF EXISTS everything ON {table};
    CREATE POLICY tenant ON {table} TO {app} USING (tenant = current_setting('commonplace.tenant', true));
    CREATE POLICY everything ON {table} TO {system} USING (true)
"""

_FORCED = "ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
_GUARDED = """
    SELECT c.relname, c.relrowsecurity AND (c.relforcerowsecurity OR NOT %(forced)s)
            AND array(SELECT polname::text FROM pg_policy WHERE polrelid = c.oid ORDER BY 1) = '{everything,tenant}',
        array(SELECT named FROM unnest(%(rights)s::text[]) AS named WHERE has_table_privilege(%(app)s, c.oid, named))
    FROM pg_class AS c WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p')
"""
_READS, _CHANGES = ("SELECT",), ("SELECT", "INSERT", "UPDATE", "DELETE")


def unguarded(connection: psycopg.Connection[Any], place: Place) -> list[sql.Composed]:
    """What is missing for forced row-level security: one change for each table that lacks something.

    The app role sees only its transaction's tenant, or nothing without one. A complete table is not touched, because
    the change would wait for all its users, and they for the change.
    """
    known_tables = tables(connection, place)
    is_forced = any(parts for _, _, parts in known_tables)  # not on Citus, see below
    known = {
        name: (is_guarded, rights)
        for name, is_guarded, rights in connection.execute(
            _GUARDED,
            {"rights": list(_CHANGES), "app": place.app_role, "schema": place.schema, "forced": is_forced},
        )
    }
    app, system = sql.Identifier(place.app_role), sql.Identifier(place.system_role)
    changes: list[sql.Composed] = []

    def guard(name: str, wanted: tuple[str, ...], *, by_tenant: bool) -> None:
        is_guarded, rights = known[name]
        statements = []
        if by_tenant and not is_guarded:
            statements.append(_POLICIES)
            if is_forced:
                statements.append(_FORCED)
        if not set(wanted) <= set(rights):
            statements.append(f"GRANT {', '.join(wanted)} ON {{table}} TO {{app}}")
        if statements:
            change = sql.SQL("; ".join(statements))
            changes.append(change.format(table=sql.Identifier(name), app=app, system=system))

    for name, is_divided, parts in known_tables:
        if is_divided:
            guard(name, _CHANGES, by_tenant=True)
        elif name in _SHARED:
            guard(name, _READS, by_tenant=False)
        if name in _SEARCHED:
            # A parent's policies do not apply to queries that name a partition.
            for part in parts:
                guard(part, _READS, by_tenant=True)
    sequence = f"{place.schema}.identifier"
    if not is_true(connection, "SELECT has_sequence_privilege(%s, %s, 'USAGE')", place.app_role, sequence):
        changes.append(sql.SQL("GRANT USAGE ON SEQUENCE identifier TO {}").format(app))
    return changes


def is_true(connection: psycopg.Connection[Any], query: str, *parameters: object) -> bool:
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
        is_known = is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)", role)
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


# Citus. Tables are not partitioned there, so no statement names a partition. Policies of row security are on the
# shards, too: Citus creates them there, and each transaction tells the nodes its tenant with `SET LOCAL`. The owner of
# the tables is not subject to them (no FORCE), because Citus writes the result of INSERT ... SELECT with COPY. The
# owner sees all rows with FORCE as well, by a policy. See decision 023.

OLDEST_CITUS = 12
_ON_NODES = (
    ("now_micros", ""),
    ("json_number", "text"),
    ("json_normal", "json"),
    ("packed_terms", "text[], text[]"),
    ("term_keys", "bigint, bytea"),
)
"""The functions that statements on shards call."""


def distribute(connection: psycopg.Connection[Any], place: Place) -> None:
    """Divide the tables by tenant over the nodes, in one transaction. Once they are, this only checks the nodes."""
    _check_cluster(connection, place)
    try:
        if not is_distributed(connection, place):
            # A later statement of the transaction sees what the former ones did only on the same connection to a node.
            connection.execute("SELECT set_config('citus.multi_shard_modify_mode', 'sequential', false)")
            _let_roles_log_in(connection, place)
            with connection.transaction():
                _distribute(connection, place)
        _check_roles(connection, place)
    except errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"the role {connection.info.user} may not distribute {place.shown} ({_first_line(error)}); run this as a "
            "superuser, or as a role with CREATEROLE that owns the database"
        ) from error
    except psycopg.Error as error:
        raise translate(error, place.shown) from error


def _check_cluster(connection: psycopg.Connection[Any], place: Place) -> None:
    row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'citus'").fetchone()
    if row is None:
        raise ConfigurationError(
            f"{place.shown} has no Citus; put citus into shared_preload_libraries of every node, run `CREATE EXTENSION "
            "citus` in this database on every node, and add the nodes with citus_add_node"
        )
    if int(row[0].partition(".")[0].partition("-")[0]) < OLDEST_CITUS:
        raise ConfigurationError(f"{place.shown} has Citus {row[0]}; {OLDEST_CITUS} or newer is needed")
    if not is_true(connection, "SELECT citus_is_coordinator()"):
        raise ConfigurationError(f"{place.shown} is not the coordinator of its Citus cluster; give its address")
    if not is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_dist_node WHERE shouldhaveshards AND isactive)"):
        raise ConfigurationError(
            f"{place.shown} has no nodes for shards; run `SELECT citus_set_coordinator_host('HOST', PORT)` and "
            "`SELECT citus_add_node('HOST', PORT)` for each worker"
        )
    if not is_true(connection, "SELECT EXISTS (SELECT 1 FROM pg_dist_node WHERE groupid = 0)"):
        raise ConfigurationError(
            f"the coordinator of {place.shown} is not one of its nodes; run "
            "`SELECT citus_set_coordinator_host('HOST', PORT)` with its own address"
        )


def _let_roles_log_in(connection: psycopg.Connection[Any], place: Place) -> None:
    """The coordinator connects to the nodes as the role that works. How they let it in is said in pg_hba.conf there."""
    login = sql.Identifier(connection.info.user)
    for role in (place.system_role, place.app_role):
        # A node would tell the others, too, and they it.
        statement = sql.SQL(
            "DO $$ BEGIN PERFORM set_config('citus.enable_ddl_propagation', 'off', true);"
            " BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;"
            " ALTER ROLE {role} LOGIN; GRANT {role} TO {login}; END $$"
        ).format(role=sql.Identifier(role), login=login)
        connection.execute(statement)
        for node, port, is_done, answer in connection.execute(
            "SELECT nodename, nodeport, success, result FROM run_command_on_workers(%s) AS ran"
            " JOIN pg_dist_node USING (nodename, nodeport)",
            (statement.as_string(connection),),
        ):
            if not is_done:
                raise ConfigurationError(f"the role {role} cannot be created on {node}:{port}: {answer}")


def _distribute(connection: psycopg.Connection[Any], place: Place) -> None:
    become_owner(connection, place)
    connection.execute("LOCK TABLE migration IN ACCESS EXCLUSIVE MODE")
    divided = [name for name, is_divided, _ in tables(connection, place) if is_divided]
    # Numbers of vectors are given by their writers; the trigger was for programs of before.
    connection.execute("DROP TRIGGER IF EXISTS number_vector ON embedding")
    for name in divided:
        _undivide(connection, place, name)
    connection.execute("ALTER FUNCTION now_micros() STABLE")  # a volatile function may not be in an UPDATE
    connection.execute(
        sql.SQL("ALTER FUNCTION json_normal(json) SET search_path = {}, pg_temp").format(sql.Identifier(place.schema))
    )
    create_of_part(connection, place, "")
    connection.execute("SELECT create_reference_table('model')")
    connection.execute("SELECT set_config('citus.shard_count', %s, true)", (str(place.partitions),))
    divide_by_tenant(connection, place)
    for name, arguments in _ON_NODES:
        connection.execute("SELECT create_distributed_function(%s)", (f"{place.schema}.{name}({arguments})",))
    for change in unguarded(connection, place):
        run_all(connection, change.as_string(connection))


def _undivide(connection: psycopg.Connection[Any], place: Place, name: str) -> None:
    """Make a table without partitions of one with them, with the same rows, indexes and constraints."""
    table, whole = sql.Identifier(name), sql.Identifier(f"{name}_whole")
    indexes = [
        statement
        for (statement,) in connection.execute(
            "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i WHERE i.indrelid = to_regclass(%s)"
            " AND NOT i.indisprimary ORDER BY i.indexrelid",
            (name,),
        )
    ]
    [(key, definition)] = connection.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = to_regclass(%s) AND contype = 'p'",
        (name,),
    ).fetchall()
    options = "INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING CONSTRAINTS"
    connection.execute(sql.SQL(f"CREATE TABLE {{}} (LIKE {{}} {options})").format(whole, table))
    connection.execute(sql.SQL("INSERT INTO {} SELECT * FROM {}").format(whole, table))
    connection.execute(sql.SQL("DROP TABLE {}").format(table))
    connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(whole, table))
    connection.execute(
        sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(table, sql.Identifier(key), sql.SQL(definition))
    )
    for statement in indexes:
        connection.execute(statement.replace(" ON ONLY ", " ON ", 1).encode())


def _check_roles(connection: psycopg.Connection[Any], place: Place) -> None:
    """Read from every shard as both roles."""
    for role in (place.system_role, place.app_role):
        try:
            with connection.transaction():
                connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
                connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(place.schema, "namespace")))
        except psycopg.OperationalError as error:
            raise ConfigurationError(
                f"the coordinator cannot log in to a node as {role} ({_first_line(error)}); let it in with pg_hba.conf "
                "of the nodes, with a password in pg_dist_authinfo, or with ~/.pgpass of the coordinator"
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
