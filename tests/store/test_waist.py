"""The waist itself: how much a backend must implement, and what it inherits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import conformance
import pytest
from conformance_care import CareConformance
from test_state_machine import StoreMachine

import commonplace.store
from commonplace.backends import deltas, entry_index, ledger, pages, ranking, rows, vectors
from commonplace.backends.entry_index import BaseEntryIndex
from commonplace.backends.ledger import Ledger
from commonplace.backends.rows import Former, Live
from commonplace.backends.sqlite import SQLiteStore
from commonplace.entry import Draft, Entry
from commonplace.errors import Conflict
from commonplace.filters import Filter
from commonplace.store import NamespaceHead, Reader, Scan, State, Store, Transaction, Waker
from doubles import Clock

HERE, THERE = ("user", "u1"), ("user", "u2")
KEYS = ["a", "a\x01b", "a\x01c", "a\x01c\x01d", "b"]


@pytest.fixture
def store(clock: Clock) -> Iterator[SQLiteStore]:
    store = SQLiteStore(":memory:", clock=clock)
    yield store
    store.close()


def fill(store: Store) -> None:
    for namespace in (HERE, THERE):
        for key in KEYS:
            draft = Draft("file", key, f"text of {key}", identity=f"i {key}")
            store.write(namespace, lambda transaction, draft=draft: transaction.put(draft))


def expire(transaction: Any, key: str) -> None:
    """Write something that has expired already; nothing has ended it yet."""
    transaction.put(Draft("file", key, "gone", expires_at=transaction.time))


def states(store: Store, namespace: Any) -> list[State]:
    found = [item for item in store.export([namespace]) if isinstance(item, State)]
    ids = sorted({state.entry.id for state in found})
    return [
        replace(state, entry=replace(state.entry, namespace=(), id=ids.index(state.entry.id)), valid_from=0)
        for state in found
    ]


def test_a_backend_implements_at_most_43_methods() -> None:
    classes = (Transaction, Store, Waker)
    assert Reader.__abstractmethods__ < Transaction.__abstractmethods__
    assert sum(len(one.__abstractmethods__) for one in classes) <= 43


def test_a_range_is_deleted_entry_by_entry_as_by_one_statement(store: SQLiteStore) -> None:
    def delete(transaction: Any, how: Any) -> int:
        expire(transaction, "a\x01gone")
        expire(transaction, "else")
        found: int = how(transaction, "file", "a\x01")
        return found

    fill(store)
    by_default, _ = store.write(HERE, lambda transaction: delete(transaction, Ledger.delete_range))
    by_statement, _ = store.write(THERE, lambda transaction: delete(transaction, type(transaction).delete_range))
    assert by_default == by_statement == 3
    assert states(store, HERE) == states(store, THERE)
    assert store.verify() == []


def test_a_range_is_moved_entry_by_entry_as_by_one_statement(store: SQLiteStore) -> None:
    fill(store)
    move = ("file", "a\x01", "z\x01", lambda key: f"head of {key}")

    def move_all(transaction: Any, how: Any) -> int:
        for key in ("a\x01gone", "z\x01gone", "else"):
            expire(transaction, key)
        found: int = how(transaction, *move)
        return found

    by_default, _ = store.write(HERE, lambda transaction: move_all(transaction, Ledger.move_range))
    by_statement, _ = store.write(THERE, lambda transaction: move_all(transaction, type(transaction).move_range))
    assert by_default == by_statement == 3
    assert states(store, HERE) == states(store, THERE)
    assert [entry.key for entry in store.scan(HERE, Scan()).entries] == ["a", "b", "z\x01b", "z\x01c", "z\x01c\x01d"]
    store.write(HERE, lambda transaction: transaction.put(Draft("file", "a\x01new", "x")))
    with pytest.raises(Conflict, match="with the new prefix already"):
        store.write(HERE, lambda transaction: Ledger.move_range(transaction, *move))  # type: ignore[arg-type]
    assert store.verify() == []


def test_what_a_backend_may_do_quicker_gives_the_same(store: SQLiteStore, clock: Clock) -> None:
    fill(store)
    store.write(HERE, lambda transaction: transaction.delete("file", "b"))
    assert Store.usage(store, ()) == store.usage(())
    assert Store.usage(store, HERE) == store.usage(HERE)

    def read(reader: Reader) -> None:
        for identity in ("i a", "i b", "i none"):
            assert Reader.last_key(reader, "file", identity) == reader.last_key("file", identity)
            assert Reader.find(reader, "file", identity) == reader.find("file", identity)
        assert Reader.get(reader, "file", "a") == reader.get("file", "a")
        assert [Reader.state(reader, "file", "b", n) for n in range(4)] == [
            reader.state("file", "b", n) for n in range(4)
        ]
        assert Reader.values(reader, Scan()) == reader.values(Scan())

    store.read(HERE, read)


def test_all_reads_of_a_snapshot_see_the_same_commit(tmp_path: Any, clock: Clock) -> None:
    store = SQLiteStore(tmp_path / "book.db", clock=clock, durability="normal")
    texts = iter("123")

    def write() -> None:
        store.write(HERE, lambda transaction: transaction.put(Draft("file", "k", next(texts))))

    def read(reader: Reader) -> list[Any]:
        first = reader.get("file", "k")
        write()
        return [entry and entry.value for entry in (first, reader.get("file", "k"))]

    write()
    assert store.read(HERE, read) == ["1", "1"]
    assert store.read(HERE, read, snapshot=False) == ["2", "3"]
    store.close()


# The guide for whoever writes another backend

CONTRIBUTING = Path(__file__).parent.parent.parent / "CONTRIBUTING.md"


def guide() -> str:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    return text[text.index("## Another backend") : text.index("## A decision")]


def test_the_guide_lists_every_method_that_a_backend_implements() -> None:
    implemented = {name for part in (Reader, Ledger, Store, Waker, BaseEntryIndex) for name in part.__abstractmethods__}
    named = set(re.findall(r"`(\w+)[`(]", guide()))
    assert implemented - named == set()


def test_the_guide_names_nothing_that_does_not_exist() -> None:
    classes = (Ledger, Store, Waker, BaseEntryIndex, NamespaceHead, Live, Former, Entry, Filter, CareConformance)
    modules = (ledger, rows, deltas, pages, entry_index, ranking, vectors, commonplace.store, conformance)
    known = {name for owner in (*classes, *modules) for name in (*vars(owner), *getattr(owner, "__annotations__", ()))}
    known |= {*dir(Ledger), *dir(StoreMachine), StoreMachine.__name__}
    known |= {"TestYours", "store", "kept", "work"}  # what you write, a line of the frozen files, a parameter
    assert set(re.findall(r"`(\w+)(?:\([\w, ]*\))?`", guide())) - known == set()


def test_commits_are_the_same_from_states_as_by_one_statement(store: SQLiteStore) -> None:
    fill(store)

    def change(transaction: Any) -> None:
        transaction.put(Draft("file", "a\x01b", "changed"))
        transaction.delete("file", "b")
        transaction.move("file", "a\x01c", "moved", None)
        expire(transaction, "gone")

    store.write(HERE, change)
    store.write(HERE, lambda transaction: transaction.put(Draft("file", "last", "text")))
    numbers = [2**62, *range(12)]

    def read(how: Any) -> list[tuple[int, list[Any]]]:
        found = store.read(HERE, lambda reader: how(reader, numbers, 100))
        return [(number, sorted(changes, key=repr)) for number, changes in found]

    assert read(Reader.commits) == read(type(store.read(HERE, lambda reader: reader)).commits)
