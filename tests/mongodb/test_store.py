"""The MongoDB backend passes the conformance suite on a real replica set; and what only it can show."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymongo
import pytest
from conformance import StoreConformance
from store_calls import HERE, THERE, found_keys, get, put, unit

import commonplace
import postgres_server
from commonplace.backends.mongodb import MongoStore, exchange, index
from commonplace.backends.mongodb.connection import OF_TENANTS, Session
from commonplace.backends.mongodb.reader import NamespaceRow
from commonplace.entry import Draft
from commonplace.errors import ConfigurationError, Conflict, TooLarge, Unavailable
from commonplace.exchange.move import move_book
from commonplace.store import Scan, State, Transaction
from doubles import OpenBook
from mongodb_server import Process, ReplicaSet, empty, free_port, need_server, shared_book, shared_set


class TestMongo(StoreConformance):
    @pytest.fixture
    def store(self, clock: Any) -> Iterator[MongoStore]:
        store = MongoStore(shared_book(), clock=clock)
        empty(shared_book())
        yield store
        store.close()

    def test_a_backup_holds_everything_and_is_a_store_of_its_own(self, store: MongoStore, tmp_path: Any) -> None:  # type: ignore[override]
        with pytest.raises(ConfigurationError, match="tools of its database"):
            store.backup(tmp_path / "copy")


def test_times_do_not_depend_on_the_time_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        store = MongoStore(shared_book())
        empty(shared_book())
        assert abs(put(store, "a").created_at - time.time_ns() // 1_000) < 10_000_000
        store.close()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_model_serves_although_two_programs_stored_the_last_vectors_at_once(clock: Any) -> None:
    empty(shared_book())
    one, other = (MongoStore(shared_book(), clock=clock) for _ in range(2))
    one.set_target_model("first", 8)
    for namespace in (HERE, THERE):
        put(one, "a", namespace=namespace)
    one.index("first", [(passage.chunk_id, unit(1)) for passage in one.claim(10, 60)])
    one.set_target_model("second", 8)
    newest, oldest = one.claim(10, 60)
    with one._session() as driver:
        driver.start_transaction(**one._options)
        assert not index.store_vectors(
            Session(one._database, driver, is_snapshot=True), "second", [(newest.chunk_id, unit(1))]
        )
        other.index("second", [(oldest.chunk_id, unit(1))])
        driver.commit_transaction()
    assert other.models() == ("first", "second")
    assert other.claim(10, 60) == []
    assert other.models() == ("second", "second")
    assert one.verify() == []
    for store in (one, other):
        store.close()


def test_a_passage_with_neither_a_vector_nor_a_mark_is_a_problem(clock: Any) -> None:
    store = MongoStore(shared_book(), clock=clock)
    empty(shared_book())
    put(store, "a")
    database()["pending"].delete_many({})
    assert store.verify() == ["index: namespace user/u1 has 1 live passages with neither a vector nor a pending mark"]
    store.close()


# What MongoDB would change, or not take


@pytest.fixture
def book(open_book: OpenBook) -> commonplace.Book:
    opened = open_book(shared_book())
    empty(shared_book())
    return opened


def database() -> Any:
    return pymongo.MongoClient[dict[str, Any]](shared_book()).get_default_database()


@pytest.mark.promise("mongodb-values-exact")
def test_json_that_mongodb_would_change_is_read_as_it_was_written(clock: Any) -> None:
    value = {
        "$set": {"a.b": 1, "": [], "$where": "x", "nul": "a\x00b", "a\x00b": 1},
        "numbers": [2**63 - 1, -(2**63), 2**53 + 1, 10**40, 1.0, 1, -0.0, 1e300, 5e-324, 0.1],
        "z": 1,
        "a": {"y": None, "x": [True, False, {}]},
        "text": "\u2028 \U0001f642 \ufeff",
    }
    store = MongoStore(shared_book(), clock=clock)
    empty(shared_book())
    put(store, "a.$b", value, kind="record", attributes={"$x": {"a.b": [1, 2.0]}})
    put(store, "a.$b", {**value, "z": 2}, kind="record")
    [live] = store.get(HERE, "record", ["a.$b"])
    former = store.state(HERE, "record", "a.$b", 1)
    assert live is not None
    assert former is not None
    assert json.dumps(live.value) == json.dumps({**value, "z": 2})
    assert json.dumps(former.value) == json.dumps(value)
    assert former.attributes == {"$x": {"a.b": [1, 2.0]}}
    store.close()


@pytest.mark.promise("mongodb-large-values")
def test_a_value_above_the_size_of_a_document_is_divided_and_leaves_nothing_when_it_is_purged(clock: Any) -> None:
    need_server()
    roomy = ReplicaSet(cache_gb="1")  # what a transaction changes has to fit into the cache
    try:
        store, copy = (MongoStore(roomy.create_database(), clock=clock) for _ in range(2))
        text = random.Random(1).randbytes(9_000_000).hex()
        large = put(store, "large", {"of": text}, kind="record", text="small")
        put(store, "large", {"of": "small"}, kind="record", text="small")
        restored = put(store, "large", {"of": text}, kind="record", text="small")
        clock.advance()
        store.write(HERE, lambda transaction: transaction.move("record", "large", "moved", None))
        store.write(HERE, lambda transaction: transaction.renew("record", "moved", clock.now + 10**12))
        assert store.get(HERE, "record", ["moved"])[0].value == restored.value  # type: ignore[union-attr]
        assert store.state(HERE, "record", "large", 1) == large
        assert store.verify() == []
        head, *states = store.export([HERE])
        assert copy.adopt(head, lambda: states) == len(states)  # type: ignore[arg-type]
        copied = [item.entry.value for item in copy.export([HERE]) if isinstance(item, State)]
        assert copied == [item.entry.value for item in states if isinstance(item, State)]
        assert store.purge(HERE) == 4
        left = {name: store._database[name].count_documents({}) for name in OF_TENANTS}
        assert left == {**dict.fromkeys(OF_TENANTS, 0), "namespace": 1}
        store.close()
        copy.close()
    finally:
        roomy.remove()


@pytest.mark.promise("mongodb-purge")
def test_a_purge_leaves_no_document_of_the_entry_in_any_collection(book: commonplace.Book) -> None:
    space = book.space("user", "u1")
    space.files.write("/secret", "the codeword is xyzzy")
    space.records.create(type="note", content="the codeword is xyzzy", source="user", confidence=1.0, tags=["xyzzy"])
    space.search("codeword")
    space.files.write("/secret", "nothing")
    space.files.delete("/secret")
    space.purge()
    left = {name: list(database()[name].find({})) for name in database().list_collection_names()}
    assert "xyzzy" not in str(left)
    assert {name for name in OF_TENANTS if left[name]} <= {"namespace", "sequence"}


def test_a_standalone_server_is_refused_with_the_command_that_makes_it_a_replica_set() -> None:
    need_server()
    alone = Process("mongod", [])
    try:
        with pytest.raises(ConfigurationError, match=r"mongod --replSet rs0.*rs\.initiate"):
            MongoStore(f"mongodb://{alone.address}/book")
    finally:
        alone.remove()


def test_an_unreachable_server_is_unavailable_and_its_password_is_not_told() -> None:
    with pytest.raises(Unavailable) as caught:
        MongoStore(f"mongodb://me:hunter2@127.0.0.1:{free_port()}/book?serverSelectionTimeoutMS=200")
    assert "hunter2" not in str(caught.value)
    assert "refused" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mongodb://", "not valid"),
        ("mongodb://me:hunter2@127.0.0.1:99999/book", "not valid.*Port"),
        ("mongodb://me:hunter2@127.0.0.1/book?timeout=1", "not valid.*timeout"),
        ("mongodb://me:hunter2@127.0.0.1/agents.v2", "no dots.*agents.v2"),
        ("mongodb://me:hunter2@127.0.0.1/admin", "the server's own.*authSource=admin"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        MongoStore(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(("=rs0", "=rs1"), 'cannot be reached: .*"rs1"'), (("=rs0", "=rs0&tls=true"), "cannot be reached: .*SSL")],
    ids=["another set", "no TLS"],
)
def test_a_server_that_does_not_answer_as_asked_is_unavailable_with_the_reason(
    change: tuple[str, str], reason: str
) -> None:
    url = shared_set().create_database().replace(*change)
    with pytest.raises(Unavailable, match=reason):
        MongoStore(f"{url}&serverSelectionTimeoutMS=300")


# What outlasts a transaction


@pytest.mark.promise("mongodb-long-changes")
def test_a_change_that_outlasts_a_transaction_is_refused_whole_and_an_import_does_not_need_one(clock: Any) -> None:
    need_server()
    quick = ReplicaSet(options=("--setParameter", "transactionLifetimeLimitSeconds=1"))
    try:
        store = MongoStore(quick.create_database(), clock=clock)
        put(store, "before")

        def slow(transaction: Transaction) -> None:
            for number in range(10**9):
                transaction.put(Draft("file", f"k{number}", "text"))
                time.sleep(0.05)

        with pytest.raises(TooLarge, match="transactionLifetimeLimitSeconds"):
            store.write(HERE, slow)
        assert [entry.key for entry in store.scan(HERE, Scan()).entries] == ["before"]
        head, *states = store.export([HERE])

        def slow_states() -> Iterator[State]:
            for number in range(30):
                [state] = states
                entry = replace(state.entry, namespace=THERE, id=number + 1, key=f"k{number}")  # type: ignore[union-attr]
                yield replace(state, entry=entry)  # type: ignore[type-var]
                time.sleep(0.1)

        assert store.adopt(replace(head, namespace=THERE), slow_states) == 30  # type: ignore[type-var]
        assert len(store.scan(THERE, Scan()).entries) == 30
        assert store.verify() == []
        store.close()
    finally:
        quick.remove()


def test_an_interrupted_import_shows_nothing_and_what_it_left_is_removed(clock: Any) -> None:
    store = MongoStore(shared_book(), clock=clock)
    empty(shared_book())
    put(store, "a", "text")
    head, *states = store.export([HERE])
    row = NamespaceRow(number=10**9)
    database()["adoption"].insert_one({"_id": row.number, "path": "user/u10", "began_at": clock.now})
    with store._session() as driver:
        session = Session(store._database, driver, is_snapshot=True)
        exchange.stage(session, replace(head, namespace=THERE), states, row, store._ids)  # type: ignore
    assert store.namespaces() == [HERE]
    assert found_keys(store, "text", namespace=THERE) == []
    assert store.verify() == []
    assert not store.maintain()
    clock.advance(2 * exchange.ADOPTION_SECONDS)
    assert store.maintain()
    assert not store.maintain()
    assert database()["entry"].count_documents({}) == 1
    assert database()["chunk"].count_documents({}) == 1
    store.close()


@pytest.mark.promise("mongodb-purge")
def test_a_purge_erases_what_unfinished_imports_of_the_namespace_have_written(clock: Any) -> None:
    store = MongoStore(shared_book(), clock=clock)
    empty(shared_book())
    put(store, "a", "the codeword is xyzzy")
    head, *states = store.export([HERE])
    elsewhere = replace(head, namespace=THERE)  # type: ignore[type-var]
    moved = [replace(state, entry=replace(state.entry, namespace=THERE)) for state in states]  # type: ignore
    store.purge(HERE)

    def states_and_a_purge() -> Iterator[State]:
        yield from moved
        for number in range(2_000):  # which are sent 1,000 at a time
            entry = replace(moved[0].entry, id=number + 10**6, key=f"k{number}")
            yield replace(moved[0], entry=entry)
        assert "xyzzy" in str(list(database()["entry"].find({})))
        store.purge(THERE)
        assert not list(database()["entry"].find({}))
        yield from moved[:0]

    with pytest.raises(Conflict, match="purged during the import"):
        store.adopt(elsewhere, states_and_a_purge)
    left = {name: list(database()[name].find({})) for name in database().list_collection_names()}
    assert "xyzzy" not in str(left)
    assert not left["adoption"]
    assert store.verify() == []
    assert store.adopt(elsewhere, lambda: moved) == 1
    store.close()


# Several programs


def test_two_programs_that_write_to_one_namespace_lose_no_update(clock: Any) -> None:
    empty(shared_book())
    stores = [MongoStore(shared_book(), clock=clock) for _ in range(2)]

    def add(transaction: Transaction) -> None:
        known = transaction.get("file", "counter")
        transaction.put(Draft("file", "counter", 1 if known is None else known.value + 1))  # type: ignore[operator]
        transaction.put(Draft("file", f"of {transaction.time}", "text"))

    def run(store: MongoStore) -> None:
        for _ in range(30):
            store.write(HERE, add)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, [*stores, *stores]))
    assert get(stores[0], "counter").value == 120  # type: ignore[union-attr]
    ids = [entry.id for entry in stores[1].scan(HERE, Scan(order="created")).entries]
    assert ids == sorted(ids)
    assert stores[0].verify() == []
    for store in stores:
        store.close()


def test_a_program_finds_what_another_imported_after_a_purge(clock: Any) -> None:
    empty(shared_book())
    one, other = (MongoStore(shared_book(), clock=clock) for _ in range(2))
    put(one, "a", "pear")
    head, *states = one.export([HERE])
    assert get(other, "a").value == "pear"  # type: ignore[union-attr]
    for _ in range(2):
        one.purge(HERE)
        assert get(other, "a") is None
        assert one.adopt(head, lambda: states) == 1  # type: ignore[arg-type]
        assert get(other, "a") == get(one, "a")
        assert other.history(HERE, "file", "a") == one.history(HERE, "file", "a") != []
        assert found_keys(other, "pear") == ["a"]
    assert one.verify() == []
    for store in (one, other):
        store.close()


# Between backends


@pytest.mark.promise("mongodb-moves")
def test_a_book_moves_through_all_three_backends_and_its_export_stays_byte_for_byte(
    open_book: OpenBook, clock: Any, tmp_path: Path
) -> None:
    source = open_book(tmp_path / "source.db")
    for name in ("u1", "u2"):
        space = source.space("user", name, actor="ann")
        space.files.write("/notes/today", "hello $where a.b")
        space.files.append("/notes/today", "world")
        content = {"of": "likes tea", "$a.b": 2**60, "f": 1.0}
        space.records.create(type="taste", content=content, source="user", confidence=1.0, tags=["food"])
        clock.advance()
        space.files.move("/notes/today", "/notes/then")
        space.files.write("/gone", "soon")
        space.files.delete("/gone")
        clock.advance()
    empty(shared_book())
    postgres_server.empty(postgres_server.shared_book())
    chain = [source, open_book(shared_book()), open_book(postgres_server.shared_book())]
    chain += [open_book(shared_set().create_database()), open_book(tmp_path / "back.db")]
    exports = [_exported(source)]
    for one, next_one in pairwise(chain):
        assert move_book(one.store, next_one.store).namespaces == 2
        exports.append(_exported(next_one))
        assert next_one.verify() == []
    assert len(set(exports)) == 1
    assert move_book(source.store, chain[1].store).already_there == 2


def _exported(book: commonplace.Book) -> bytes:
    lines: list[bytes] = []
    book.export(lines.append)  # type: ignore[arg-type]
    return b"".join(line if isinstance(line, bytes) else str(line).encode() for line in lines)


def test_searches_find_the_same_as_on_sqlite(open_book: OpenBook, book: commonplace.Book) -> None:
    topics = ("rain", "tea and cake", "tea")
    texts = [f"note {number} about {topics[number % 3]} {'again ' * (number % 5)}" for number in range(60)]
    books = [book, open_book()]
    for one in books:
        space = one.space("user", "u1")
        for number, text in enumerate(texts):
            content = {"text": text, "n": number}
            tags = [f"t{number % 4}"]
            space.records.create(type="note", content=content, source="user", confidence=1.0, tags=tags)
            space.files.write(f"/d{number % 3}/f{number}", text * (number % 7 + 1))
        one.indexer.run()
    for query, options in (
        ("tea", {}),
        ("rain again", {"tags": ["t1"]}),
        ("note 17", {"kinds": ["file"]}),
        ("cake", {"filter": {"n": {"$gt": 30}}}),
        ("nothing of this", {}),
    ):
        found = [
            [(hit.snippet, hit.kind, round(hit.score, 9)) for hit in one.space("user", "u1").search(query, **options)]  # type: ignore[arg-type]
            for one in books
        ]
        assert found[0] == found[1]
