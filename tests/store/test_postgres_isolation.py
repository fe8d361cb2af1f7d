"""Row-level security as the second lock, and the query plans under it: what a forgotten WHERE shows, and costs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from store_calls import unit

from commonplace.backends.postgres import PostgresStore
from commonplace.backends.postgres.connection import Session, numbers_of
from commonplace.backends.postgres.maintenance import KeywordIndex, build
from commonplace.entry import Draft
from commonplace.errors import ConfigurationError
from commonplace.filters import Filter, parse_conditions
from commonplace.language.tokenizer import query_terms
from commonplace.store import Scan, Transaction
from postgres_server import empty, shared_book, shared_server

ALICE = ("user", "alice")
BELOW_ALICE = ("user", "alice", "work")
BOB = ("user", "bob")
SETTINGS = "SELECT set_config('role', 'commonplace_app', true), set_config('commonplace.tenant', %s, true)"
PATH = "SET search_path = commonplace, public, pg_temp"


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    store = PostgresStore(shared_book())
    empty(shared_book())
    for namespace in (ALICE, BELOW_ALICE, BOB):
        store.write(namespace, fill)
    store.set_target_model("m", 8)
    while waiting := store.claim(100, 60):
        store.index("m", [(passage.chunk_id, unit(1)) for passage in waiting])
    store.write(BOB, lambda transaction: transaction.put(Draft("file", "waiting", "for a vector")))
    yield store
    store.close()


def fill(transaction: Transaction) -> None:
    for number in range(30):
        attributes = {"tags": [f"t{number % 3}"], "type": "note"}
        draft = Draft("file", f"d\x01{number:02}", f"words {number}", heading="head", attributes=attributes)
        transaction.put(draft)
    transaction.put(Draft("file", "d\x0101", "changed", identity="i"))
    transaction.put(Draft("file", "fleeting", "soon gone", expires_at=transaction.time + 10**12))
    transaction.record_operation("once", {"done": True}, expires_at=transaction.time + 10**12)


@pytest.fixture
def connection(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    """A connection like the store's own, in a transaction."""
    with psycopg.connect(shared_book().partition("?")[0]) as connection:
        connection.execute(PATH)
        yield connection
        connection.rollback()


def tables(connection: psycopg.Connection[Any]) -> list[str]:
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'commonplace'::regnamespace AND relkind = 'p'"
    )
    return sorted(name for (name,) in rows)


@pytest.mark.promise("postgres-row-level-security")
def test_a_forgotten_condition_shows_the_rows_of_one_tenant_and_without_a_tenant_none(
    connection: psycopg.Connection[Any],
) -> None:
    names = tables(connection)
    assert len(names) >= 9
    counted = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}  # type: ignore[index]
    assert all(counted.values()), f"a table without rows shows nothing: {counted}"
    for tenant, expected in (("user/bob", {"user/bob"}), ("", set()), ("user", set())):
        connection.execute(SETTINGS, (tenant,))
        for name in names:
            seen = {row[0] for row in connection.execute(f"SELECT tenant FROM {name}").fetchall()}
            assert seen <= expected, (name, tenant)
            if name in ("entry", "chunk", "namespace", "history", "label", "embedding", "pending"):
                assert seen == expected, (name, tenant)


@pytest.mark.promise("postgres-row-level-security")
def test_a_part_that_is_named_shows_the_rows_of_one_tenant_and_changes_none(
    connection: psycopg.Connection[Any],
) -> None:
    read_by_name = ("chunk", "embedding", "entry", "namespace", "pending")
    parts = [f"{name}_p{number}" for name in read_by_name for number in range(3)]
    for tenant, expected in (("user/bob", {"user/bob"}), ("", set())):
        connection.execute(SETTINGS, (tenant,))
        seen = {row[0] for part in parts for row in connection.execute(f"SELECT tenant FROM {part}").fetchall()}
        assert seen == expected
    others = [f"{name}_p0" for name in tables(connection) if name not in read_by_name]
    forbidden = [f"SELECT 1 FROM {part}" for part in others] + [f"DELETE FROM {part}" for part in parts]
    for statement in forbidden:
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute(statement)


@pytest.mark.promise("postgres-row-level-security")
def test_without_the_setting_there_are_no_rows(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET LOCAL ROLE commonplace_app")
    for name in tables(connection):
        assert connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,)
    for part in range(3):
        assert connection.execute(f"SELECT postings_p{part}(1, ARRAY['word'])").fetchall() == [([None],)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO operation (tenant, namespace, key, value, expires_at) VALUES ('user/alice', 1, 'k', '1', 1)",
        "INSERT INTO pending (tenant, chunk, namespace) VALUES ('user/alice', 1, 1)",
        "UPDATE entry SET tenant = 'user/alice'",
        "SELECT * FROM system",
        "UPDATE model SET role = 'retired'",
        "DROP TABLE entry",
        "CREATE TABLE mine (x int)",
    ],
)
def test_the_app_role_may_write_its_own_tenant_only(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute(SETTINGS, ("user/bob",))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


def test_what_the_app_role_changes_without_a_condition_is_its_tenants_alone(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    connection.execute(SETTINGS, ("user/bob",))
    connection.execute("UPDATE entry SET heading = 'changed'")
    connection.execute("DELETE FROM label")
    connection.commit()
    assert {entry.heading for entry in store.scan(BOB, Scan()).entries} == {"changed"}
    for namespace in (ALICE, BELOW_ALICE):
        assert {entry.heading for entry in store.scan(namespace, Scan()).entries} == {"head", None}
        assert len(store.scan(namespace, Scan(Filter(types=("note",)))).entries) == 29


def test_every_table_forces_row_level_security_on_its_owner(connection: psycopg.Connection[Any]) -> None:
    rows = connection.execute(
        "SELECT relname, relrowsecurity, relforcerowsecurity, pg_get_userbyid(relowner) FROM pg_class"
        " WHERE relnamespace = 'commonplace'::regnamespace AND relkind = 'p'"
    ).fetchall()
    assert {row[1:] for row in rows} == {(True, True, "commonplace_system")}


# Plans


class Recorder:
    """Every statement that sessions send, with its parameters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: dict[str, Any] = {}
        for name in ("send", "rows", "count"):
            monkeypatch.setattr(Session, name, self._wrapped(getattr(Session, name)))

    def _wrapped(self, method: Any) -> Any:
        def call(session: Session, sql: str, parameters: Any = (), **options: Any) -> Any:
            if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|\()", sql) and "set_config" not in sql:
                self.statements.setdefault(sql, parameters)
            return method(session, sql, parameters, **options)

        return call


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def use_everything(store: PostgresStore) -> None:
    """Every call of the waist about one namespace."""
    filter = Filter(
        kinds=("file",),
        types=("note",),
        any_tags=("t1", "t2"),
        key_prefix="d",
        conditions=parse_conditions({"a": {"$ne": 1}}),
    )

    def work(transaction: Transaction) -> None:
        transaction.put(Draft("file", "new", "fresh words", identity="j", attributes={"tags": ["t9"]}))
        transaction.put(Draft("file", "d\x0102", "other words", attributes={"tags": ["t1"]}))
        transaction.move("file", "d\x0103", "moved", "head")
        transaction.delete("file", "d\x0104")
        transaction.touch("file", "d\x0105")
        transaction.operation("once")
        transaction.record_operation("twice", 1, expires_at=2**60)
        transaction.states_begun(1)
        transaction.states_ended(1)
        transaction.move_range("file", "d\x011", "e\x011", lambda key: None)
        transaction.delete_range("file", "e\x01")

    store.write(ALICE, work)
    for order in ("key", "created", "updated"):
        store.scan(ALICE, Scan(order=order, limit=3))  # type: ignore[arg-type]
        cursor = store.scan(ALICE, Scan(filter, order=order, limit=1)).cursor  # type: ignore[arg-type]
        store.scan(ALICE, Scan(filter, order=order, limit=3, after=cursor))  # type: ignore[arg-type]
    store.scan(ALICE, Scan(as_of=1))
    store.get(ALICE, "file", ["a", "b"])
    store.get(ALICE, "file", ["a", "b"], as_of=1)
    store.find(ALICE, "file", "i")
    store.children(ALICE, "file", "d\x01")
    store.history(ALICE, "file", "d\x0101")
    store.state(ALICE, "file", "d\x0101", 1)
    store.changes(ALICE)
    store.namespace_stats(ALICE)
    found = store.search_text(ALICE, query_terms("words"), filter, 3)
    store.search_text(ALICE, query_terms("words"), Filter(), 3, [candidate.entry_id for candidate in found])
    store.load(ALICE, [candidate.entry_id for candidate in found])
    store.search_vectors(ALICE, "m", unit(1), filter, 3)
    store.passage_vectors(ALICE, "m", [(candidate.entry_id, 2**60) for candidate in found])
    store.indexing(ALICE)
    store.pending(ALICE, 3)
    store.pending(ALICE, 3, among=[(1, 0)])


@pytest.mark.promise("postgres-plans")
def test_every_statement_of_a_namespace_searches_indexes_of_one_part_under_the_app_role(
    store: PostgresStore, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    use_everything(store)
    assert len(recorder.statements) > 50
    for dumper in (Int8Dumper, Int8BinaryDumper):
        connection.adapters.register_dumper(int, dumper)
    connection.execute(SETTINGS, ("user/alice",))
    connection.execute("SET LOCAL enable_seqscan = off")  # few rows: what matters is whether an index can be used
    problems = []
    for sql, parameters in recorder.statements.items():
        if "<#>" in sql:
            continue  # needs the store's own adapters; its plan is the next test's
        plan = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}".encode(), parameters).fetchone()[0][0]["Plan"]  # type: ignore[index]
        for node in nodes(plan):
            table = node.get("Relation Name", "")
            if node["Node Type"] == "Seq Scan" and table != "model":
                problems.append(("no index", table, sql))
        parts = {match[1] for match in re.finditer(r'"Relation Name": "\w+_p(\d+)"', json.dumps(plan))}
        if len(parts) > 1 and node_is_read(plan):
            problems.append((f"{len(parts)} parts", "", sql))
    assert problems == []


def node_is_read(plan: dict[str, Any]) -> bool:
    return plan["Node Type"] != "ModifyTable" or plan["Operation"] != "Insert"


@pytest.mark.promise("postgres-plans")
def test_keywords_are_found_by_the_gin_index_under_the_app_role(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    used = (
        "SELECT coalesce(sum(pg_stat_get_xact_numscans(i.indexrelid)), 0) FROM pg_index AS i"
        " JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS a ON a.oid = c.relam WHERE a.amname = 'gin'"
    )
    place = connection.execute(
        "SELECT id, tableoid::regclass::text FROM namespace WHERE path = 'user/alice'"
    ).fetchone()
    assert place is not None
    connection.rollback()  # an index is built once no older transaction is open
    index = KeywordIndex(int(place[1].rpartition("_p")[2]))
    assert build(store._connect, store.place.system_role, index)
    try:
        connection.execute(PATH)
        connection.execute("SET LOCAL enable_seqscan = off")
        connection.execute(SETTINGS, ("user/alice",))
        direct = connection.execute(
            "EXPLAIN (FORMAT JSON) SELECT id FROM chunk WHERE ended_commit IS NULL"
            " AND term_keys(namespace, coalesce(terms, packed_terms(tokens, repeated))) @> ARRAY[1::bigint]"
        ).fetchone()
        assert index.name not in json.dumps(direct), "then the function that works around it is not needed any more"
        assert connection.execute(used).fetchone() == (0,)
        ask = f"SELECT {place[1].replace('namespace', 'postings')}(%s, ARRAY['word'])".encode()
        (found,) = connection.execute(ask, (place[0],)).fetchall()
        assert len(numbers_of(found[0][0])) == 29
        assert connection.execute(used).fetchone() == (1,)
        connection.execute(SETTINGS, ("user/bob",))
        assert connection.execute(ask, (place[0],)).fetchall() == [([None],)]
    finally:
        connection.rollback()
        connection.autocommit = True
        connection.execute(f"DROP INDEX commonplace.{index.name}".encode())
        connection.autocommit = False


# Roles


@pytest.mark.promise("postgres-admin-sql")
def test_a_login_that_may_not_create_roles_is_told_what_an_administrator_must_run() -> None:
    url = shared_server().create_database()
    name = url.rpartition("/")[2]
    login = f"plain_{name}"
    schema = f"own_{name}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {login} LOGIN")
        plain = f"{shared_server().url(name, login)}?schema={schema}&partitions=2"
        with pytest.raises(ConfigurationError) as refusal:
            PostgresStore(plain)
        advice = str(refusal.value)
        for statement in advice.partition("start again:\n")[2].splitlines():
            admin.execute(statement.encode())
    store = PostgresStore(plain)
    try:
        store.write(ALICE, fill)
        assert len(store.scan(ALICE, Scan()).entries) == 31
        store.set_target_model("m", 8)
        (passage, *_) = store.claim(1, 60)
        store.index("m", [(passage.chunk_id, np.ones(8, np.float32))])
        assert store.verify() == []
    finally:
        store.close()


def test_a_schema_of_another_program_is_left_alone() -> None:
    url = shared_server().create_database()
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA commonplace")
        admin.execute("CREATE TABLE commonplace.theirs (x int)")
    with pytest.raises(ConfigurationError, match="another program"):
        PostgresStore(url)


def test_two_books_in_one_database_know_nothing_of_each_other() -> None:
    url = shared_server().create_database()
    stores = [PostgresStore(f"{url}?schema={schema}&partitions=2") for schema in ("first", "second")]
    try:
        stores[0].write(ALICE, fill)
        assert stores[1].namespaces() == []
        assert stores[1].scan(ALICE, Scan()).entries == ()
        stores[1].write(BOB, fill)
        assert [store.namespaces() for store in stores] == [[ALICE], [BOB]]
    finally:
        for store in stores:
            store.close()
