"""The PostgreSQL backend on Citus passes the conformance suite; and what only a cluster can show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from conformance import StoreConformance
from conformance_search import SearchConformance
from store_calls import found_keys, put

import commonplace
from citus_cluster import address, empty, new_book, nodes, query, schema_of, shared_book, undistributed_book
from commonplace.backends.postgres import PostgresStore
from commonplace.backends.postgres.connection import Session
from commonplace.errors import ConfigurationError
from commonplace.store import Store
from doubles import OpenBook


class TestCitus(StoreConformance):
    @pytest.fixture
    def store(self, clock: Any) -> Iterator[PostgresStore]:
        empty(shared_book())
        store = PostgresStore(shared_book(), clock=clock)
        yield store
        store.close()

    def open_copy(self, path: Path) -> Store:
        store = PostgresStore(new_book())
        store.restore(path)
        return store


class TestSearchWithoutMemory(SearchConformance):
    """The same searches where memory holds no namespace: keywords and vectors are ranked by the nodes."""

    @pytest.fixture
    def store(self, clock: Any) -> Iterator[PostgresStore]:
        empty(shared_book())
        store = PostgresStore(shared_book(), clock=clock, cache_bytes=0)
        yield store
        assert store.vector_bytes == 0
        store.close()


# Which nodes are asked


class Explained:
    """The plan of every statement that is sent for one tenant, asked for in the same transaction before it is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        self._asked: list[tuple[str, Any]] = []
        self._send = Session._do
        monkeypatch.setattr(Session, "_do", self._do_explained())

    def _do_explained(self) -> Any:
        def do(session: Session, sql: str, parameters: Any = (), **options: Any) -> Any:
            start = session._start
            is_of_tenant = start is not None and start[1].endswith("_app")
            if self.is_on and is_of_tenant and not sql.startswith(("SET", "BEGIN", "COMMIT", "ROLLBACK")):
                self._asked.append((sql, self._send(session, f"EXPLAIN (COSTS OFF) {sql}", parameters, prepare=False)))
            return self._send(session, sql, parameters, **options)

        return do

    def plans(self) -> list[tuple[str, str]]:
        return [(sql, "\n".join(line for (line,) in plan.fetchall())) for sql, plan in self._asked]


def _use(space: commonplace.Space) -> None:
    for number in range(3):
        space.files.write(f"/d/f{number}", "a pineapple")
    space.files.append("/d/f1", "and a pear")
    space.files.move("/d", "/e")
    space.files.list("/")
    space.files.read("/e/f1")
    space.files.delete("/e/f0")
    note = space.records.create(type="note", content="pineapple", source="user", confidence=1.0, tags=["fruit"])
    space.records.update(note.id, content="pear")
    space.undo(space.changes()[-1].commit)
    space.stats()
    before = space.files.stat("/e/f1").updated_at
    space.files.read("/e/f1", as_of=before)
    space.files.list("/", as_of=before)
    space.history("file", "/e/f1")
    thread = space.threads.create()
    space.threads.add(thread.id, [{"role": "user", "content": "a pineapple"}])
    space.threads.messages(thread.id, last=10)
    space.items.put("a", {"of": "pineapple"})
    space.items.get("a")
    for text in ("pineapple", "pear"):
        space.search(text)
        space.search(text, tags=["fruit"])
        space.search(text, as_of=before)


@pytest.mark.promise("citus-one-shard")
def test_every_statement_of_a_tenant_goes_to_one_shard(open_book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    empty(shared_book())
    book = open_book(shared_book())
    spaces = [book.space("user", f"u{number}") for number in range(6)]
    spaces[0].files.write("/first", "text")
    book.indexer.run()  # which gives the book its model
    explained = Explained(monkeypatch)
    for space in spaces:
        explained.is_on = True
        _use(space)
        explained.is_on = False  # the indexer works for all tenants at once
        book.indexer.run()
        explained.is_on = True
        space.search("pineapple")
        space.purge()
        explained.is_on = False
    used = set()
    kinds = set()
    for sql, plan in explained.plans():
        if "Citus" not in plan:
            assert not re.search(r"Scan (using \w+ )?on", plan.replace("Function Scan on", "")), (sql, plan)
            continue
        assert re.findall(r"Task Count: (\d+)", plan) == ["1"], (sql, plan)
        used |= set(re.findall(r"Node: host=\S+ port=(\d+)", plan))
        kinds.add(sql.split()[0])
    assert used == {str(port) for _, port in nodes()}
    assert kinds >= {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}


# The second lock


@pytest.mark.promise("citus-row-security")
def test_row_security_holds_on_every_node(open_book: OpenBook) -> None:
    url = new_book()
    book = open_book(url)
    tenants = [f"user/u{number}" for number in range(8)]
    for tenant in tenants:
        book.space(*tenant.split("/")).files.write("/secret", "a pineapple")
    tables = ("namespace", "entry", "chunk", "pending")
    store = PostgresStore(url)

    def seen(tenant: str) -> set[str]:
        return store._runner.read(
            tenant,
            lambda session: {
                found for table in tables for (found,) in session.rows(f"SELECT DISTINCT tenant FROM {table}")
            },
        )

    def write_to_first(tenant: str) -> int:
        def work(session: Session) -> tuple[int, bool]:
            values = "('user/u0', gen_random_uuid(), 0)"
            return session.count(f"INSERT INTO attempt (tenant, id, made_at) VALUES {values}"), True

        return store._runner.write(tenant, work)

    for tenant in tenants:  # which are on both nodes
        assert seen(tenant) == {tenant}
    assert seen("user/nobody") == seen("") == set()
    assert write_to_first("user/u0") == 1
    with pytest.raises(commonplace.CommonplaceError, match="row-level security"):
        write_to_first("user/u1")
    store.close()


# Preparing a database


def test_a_book_that_has_entries_can_be_distributed(clock: Any) -> None:
    url = undistributed_book()
    store = PostgresStore(url, clock=clock)
    for number in range(8):
        for text in ("one", "two"):
            put(store, "a", text, namespace=("user", f"u{number}"))
    before = list(store.export())
    store.distribute()
    store = PostgresStore(url, clock=clock)
    assert list(store.export()) == before
    assert store.verify() == []
    store.distribute()
    store = PostgresStore(url, clock=clock)
    put(store, "b", "after", namespace=("user", "u0"))
    assert found_keys(store, "after", namespace=("user", "u0")) == ["b"]
    store.close()


def test_a_role_without_rights_is_told_what_it_lacks() -> None:
    url = undistributed_book()
    PostgresStore(url).close()
    role = f"{schema_of(url)}_login"
    query(f"CREATE ROLE {role} LOGIN")
    try:
        query(f"GRANT {schema_of(url)}_app, {schema_of(url)}_system TO {role}")
        parts = urlsplit(url)
        store = PostgresStore(urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}")))
        with pytest.raises(ConfigurationError, match="may not distribute"):
            store.distribute()
        store.close()
    finally:
        query(f"DROP ROLE {role}")


def test_a_read_replica_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no read replicas"):
        PostgresStore(shared_book(), replica_url=address())
