"""The MongoDB backend on a sharded cluster: two shards, and collections divided by tenant."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conformance import StoreConformance
from pymongo import monitoring
from store_calls import HERE, put, unit
from test_failover import Load

import commonplace
from commonplace.backends.mongodb import MongoStore
from commonplace.backends.mongodb.connection import OF_TENANTS, IdleTransactions, Session
from commonplace.backends.mongodb.transaction import MongoTransaction
from commonplace.cli import main
from commonplace.cli.exit_codes import OK
from commonplace.errors import ConfigurationError
from commonplace.store import Scan, State
from doubles import OpenBook
from mongodb_server import Cluster, database_of, empty, new_sharded_book, sharded_book, shared_book, shared_cluster

ROUNDS = 6 if os.environ.get("COMMONPLACE_TESTS") == "long" else 1


class TestSharded(StoreConformance):
    @pytest.fixture
    def store(self, clock: Any) -> Iterator[MongoStore]:
        store = MongoStore(sharded_book(), clock=clock)
        empty(sharded_book())
        yield store
        store.close()

    def test_a_backup_holds_everything_and_is_a_store_of_its_own(self, store: MongoStore, tmp_path: Any) -> None:  # type: ignore[override]
        with pytest.raises(ConfigurationError, match="tools of its database"):
            store.backup(tmp_path / "copy")


# Which shards are asked


class Recorder(monitoring.CommandListener):
    """The statements on collections of tenants."""

    def __init__(self) -> None:
        self.is_on = False
        self.statements: list[dict[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        command = dict(event.command)
        if self.is_on and event.command_name != "getMore" and command.get(event.command_name) in OF_TENANTS:
            self.statements += _single(event.command_name, command)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


_OF_SESSIONS = ("lsid", "txnNumber", "startTransaction", "autocommit", "readConcern", "writeConcern", "ordered")


def _single(name: str, command: dict[str, Any]) -> list[dict[str, Any]]:
    """A command as those that can be explained: without its session, and one write each."""
    bare = {key: value for key, value in command.items() if key[0] != "$" and key not in _OF_SESSIONS}
    many = {"update": "updates", "delete": "deletes"}.get(name)
    if name == "insert":  # each document goes to the shard of its tenant
        assert all("tenant" in document for document in bare["documents"])
        return []
    return [{**bare, many: [one]} for one in bare[many]] if many else [bare]


def _shards(explained: Any) -> set[str]:
    """Every shard that an explanation names."""
    if isinstance(explained, list):
        return {name for one in explained for name in _shards(one)}
    if not isinstance(explained, dict):
        return set()
    found = {explained["shardName"]} if "shardName" in explained else set()
    if isinstance(explained.get("shards"), dict):
        found |= set(explained["shards"])
    return found | {name for one in explained.values() for name in _shards(one)}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    listener = Recorder()
    known = monitoring._LISTENERS
    monkeypatch.setattr(
        monitoring, "_LISTENERS", known._replace(command_listeners=[*known.command_listeners, listener])
    )
    return listener


@pytest.mark.promise("mongodb-one-shard")
def test_every_statement_on_a_namespace_asks_one_shard(open_book: OpenBook, recorder: Recorder) -> None:
    url = sharded_book()
    empty(url)
    book = open_book(url)
    book.space("user", "u0").files.write("/first", "text")
    book.indexer.run()  # which gives the book its model
    spaces = [book.space("user", f"u{number}") for number in range(6)]
    for space in spaces:
        recorder.is_on = True
        _use(space)
        recorder.is_on = False  # the indexer works for all tenants at once
        book.indexer.run()
        recorder.is_on = True
        space.search("pineapple")
        space.search("pear", tags=["fruit"])
        space.search("pineapple", as_of=space.files.stat("/e/f1").updated_at)
        space.purge()
        recorder.is_on = False
    used = set()
    with shared_cluster().client() as client:
        database = client[database_of(url)]
        for statement in recorder.statements:
            shards = _shards(database.command("explain", statement, verbosity="queryPlanner"))
            assert len(shards) == 1, statement
            used |= shards
    assert used == {"shard0", "shard1"}
    kinds = {next(iter(statement)) for statement in recorder.statements}
    assert kinds == {"find", "aggregate", "update", "delete", "findAndModify"}


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
    list(space._handle.store.export([space.namespace]))


def test_a_transaction_is_not_abandoned_because_it_is_idle_on_one_of_its_shards(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.backends.mongodb.connection._ABANDONED_SECONDS", 0.0)
    cluster = shared_cluster()
    url = new_sharded_book()
    cluster.move_all(url, ["entry"])
    store = MongoStore(f"mongodb://{cluster.routers[0].address}/{database_of(url)}", clock=clock)
    put(store, "before")  # the router learns where everything is
    idle = IdleTransactions()
    with store._session() as driver:
        driver.start_transaction(**store._options)
        session = Session(store._database, driver, is_snapshot=True)
        transaction = MongoTransaction(session, HERE, clock.now, None, store._ids)
        for _ in range(4):
            assert transaction.get("file", "before") is not None
            idle.end_abandoned(store._client)
        assert {session for session, *_ in idle._since} == {driver.session_id["id"]}
    store.close()


# Ranges that are moved to the other shard


class Indexing:
    """A program that gives every passage a vector while others write."""

    def __init__(self, url: str) -> None:
        self._store = MongoStore(url)
        self._store.set_target_model("m", 8)
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def _run(self) -> None:
        while True:
            is_last = self._stopped.is_set()
            claimed = self._store.claim(50, 0.01)
            self._store.index("m", [(passage.chunk_id, unit(1)) for passage in claimed])
            if is_last and not claimed and not self._store.indexing().pending:
                return

    def __enter__(self) -> Indexing:
        self._done = self._pool.submit(self._run)
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._done.result(120)
        self.count = self._store.stats().vectors
        self._store.close()


@pytest.mark.promise("mongodb-migrations-lose-nothing")
def test_nothing_is_lost_or_doubled_while_ranges_move_between_shards() -> None:
    cluster = shared_cluster()
    url = new_sharded_book()
    load = Load(url)
    moved = 0
    with Indexing(url) as indexing:
        try:
            for _ in range(ROUNDS):
                load.wait_for(20)
                moved += cluster.move_all(url)
                load.wait_for(20)
        finally:
            load.stop()
    load.check()
    assert moved == ROUNDS * 2 * len(OF_TENANTS)
    assert indexing.count >= load.count
    print(f"{moved} ranges moved: {load.count} acknowledged, {load.refused} refused")


def kill_router(cluster: Cluster, load: Load, number: int) -> None:
    router = cluster.routers[number % 2]
    router.stop(signal.SIGKILL)
    load.wait_for(20)
    router.start()


def kill_shard(cluster: Cluster, load: Load, number: int) -> None:
    [member] = cluster.shards[number % 2].members
    member.stop(signal.SIGKILL)
    member.start()
    load.wait_for(20)


@pytest.mark.promise("mongodb-loses-nothing")
@pytest.mark.parametrize("trouble", [kill_router, kill_shard], ids=["a router", "a shard"])
def test_nothing_acknowledged_is_lost_or_doubled_on_a_cluster_of_which_a_part_is_killed(
    trouble: Callable[[Cluster, Load, int], None],
) -> None:
    """Each tenant is on both shards, so that every commit has two phases."""
    cluster = shared_cluster()
    url = new_sharded_book()
    cluster.move_all(url, ["entry", "chunk"])
    load = Load(url)
    with Indexing(url):
        try:
            for number in range(2 * ROUNDS):
                load.wait_for(20)
                trouble(cluster, load, number)
        finally:
            load.stop()
    load.check()
    print(f"{trouble.__name__}: {load.count} acknowledged, {load.refused} refused")


def test_a_book_that_has_entries_can_be_sharded_and_moved(clock: Any) -> None:
    cluster = shared_cluster()
    url = cluster.create_database()
    store = MongoStore(url, clock=clock)
    for number in range(8):
        put(store, "a", f"text {number}", namespace=(HERE[0], f"u{number}"))
    before = list(store.export())
    store.distribute()
    assert main(["--db", url, "migrate", "--distributed"]) == OK  # once more, as people do it
    cluster.move_all(url)
    assert list(store.export()) == before
    assert store.verify() == []
    put(store, "b", "after")
    assert [entry.key for entry in store.scan(HERE, Scan()).entries] == ["a", "b"]
    store.close()


def test_a_replica_set_has_no_shards_to_divide_collections_over() -> None:
    store = MongoStore(shared_book())
    with pytest.raises(ConfigurationError, match=r"not a sharded cluster.*mongos"):
        store.distribute()
    store.close()


@pytest.mark.promise("mongodb-routers-agree")
@pytest.mark.parametrize("is_split", [False, True], ids=["on one shard", "on two shards"])
def test_a_read_through_one_router_sees_what_was_acknowledged_by_another(clock: Any, *, is_split: bool) -> None:
    cluster = shared_cluster()
    url = cluster.create_database()
    writer, reader = (
        MongoStore(f"mongodb://{router.address}/{database_of(url)}", clock=clock) for router in cluster.routers
    )
    writer.distribute()
    if is_split:  # the entries of a tenant on one shard and its namespaces on another
        cluster.move_all(url, ["entry"])
    ways: list[Callable[[MongoStore], Any]] = [
        lambda store: store.read(HERE, lambda one: one.get_all("file", ["a"]))[0],
        lambda store: store.get(HERE, "file", ["a"])[0],
        lambda store: next(item.entry for item in store.export([HERE]) if isinstance(item, State)),
    ]
    for number in range(21):
        written = put(writer, "a", f"text {number}")
        # One read a write, because a router that has read knows the shard's time.
        assert ways[number % 3](reader) == written
    writer.close()
    reader.close()
