"""The passages of a namespace in memory: a search with them finds exactly what a search that reads the rows finds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_calls import HERE, THERE, delete, move, put

from commonplace.backends.sqlite import SQLiteStore, candidates
from commonplace.entry import Draft
from commonplace.filters import Filter
from commonplace.language.passages import LENGTH_STEPS
from commonplace.language.tokenizer import query_terms
from commonplace.store import Candidates, SearchQuery, Store, Transaction
from doubles import Clock, WordEmbedder, rounds

MODEL = WordEmbedder()
WORDS = ("red", "green", "blue", "black", "white", "stone", "river", "cloud", "tree", "bird", "running", "winter")
TAGS = ("a", "b", "c")
FILTERS = (
    Filter(),
    Filter(kinds=("file", "record")),
    Filter(kinds=("record",)),
    Filter(kinds=("nothing",)),
    Filter(types=("note",)),
    Filter(types=("note", "fact"), all_tags=("a",)),
    Filter(all_tags=("a", "b")),
    Filter(any_tags=("b", "c")),
    Filter(kinds=("file",), resource="r1"),
    Filter(key_prefix="1"),
    Filter(any_tags=("missing",)),
)


def embed(store: Store) -> None:
    store.set_target_model(MODEL.identity, MODEL.dimensions)
    while claimed := store.claim(1_000, 60.0, even_leased=True):
        vectors = MODEL.embed([one.text for one in claimed], purpose="passage")
        store.index(MODEL.identity, [(one.chunk_id, vector) for one, vector in zip(claimed, vectors, strict=True)])


def search(store: Store, query: str, filter: Filter = FILTERS[0], limit: int = 5) -> Candidates:
    """The candidates of a search with their entries, each list in its own order."""
    vector = MODEL.embed([query], purpose="query")[0]
    asked = SearchQuery(query_terms(query), (MODEL.identity, vector), filter, limit)
    found = store.search(HERE, asked, lambda by_words, by_meaning: [one.entry_id for one in (*by_words, *by_meaning)])
    assert found is not None
    return Candidates(found.by_words, sorted(found.by_meaning), found.entries)


def ranked(found: Candidates, filter: Filter) -> tuple[object, ...]:
    """What must be equal. Of an entry whose heading is found with a filter, the passage to show may differ.

    It is looked for among the first passages, and these are fewer if the filter is applied afterwards.
    """
    words = found.by_words if filter == Filter() else [(one.entry_id, one.score) for one in found.by_words]
    return words, found.by_meaning, found.entries


def read_anew(path: Path, clock: Clock, query: str, filter: Filter, limit: int) -> Candidates:
    """The same in a program that has just opened the book, which has nothing in memory."""
    store = SQLiteStore(path, durability="normal", clock=clock)
    try:
        return search(store, query, filter, limit)
    finally:
        store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each search was answered: from `memory` or from `rows`."""
    how: list[str] = []

    def note(name: str, function: Any) -> Any:
        def noted(*arguments: Any) -> Any:
            how.append(name)
            return function(*arguments)

        return noted

    monkeypatch.setattr(candidates, "_search_table", note("memory", candidates._search_table))
    monkeypatch.setattr(candidates, "_search_both", note("rows", candidates._search_both))
    return how


class Program:
    """Random changes of a namespace by two programs that have the same book open."""

    def __init__(self, path: Path, clock: Clock, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = clock
        self.stores = [SQLiteStore(path, durability="normal", clock=clock) for _ in range(2)]
        self.keys: list[tuple[str, str]] = []

    def text(self) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.choice((1, 4, 8, 400))))

    def draft(self, kind: str, key: str) -> Draft:
        attributes: dict[str, Any] = {"type": self.chance.choice(("note", "fact"))}
        attributes["tags"] = self.chance.sample(TAGS, self.chance.randrange(3))
        if self.chance.random() < 0.3:
            attributes["resourceId"] = "r1"
        expires = self.clock.now + 5_000_000 if self.chance.random() < 0.1 else None
        heading = self.chance.choice((None, " ".join(self.chance.choices(WORDS, k=2))))
        return Draft(kind, key, self.text(), attributes=attributes, heading=heading, expires_at=expires)

    def step(self) -> None:
        store, what = self.chance.choice(self.stores), self.chance.random()
        if what < 0.35 or not self.keys:
            drafts = [
                self.draft(self.chance.choice(("file", "record", "other")), str(self.chance.randrange(1_000)))
                for _ in range(self.chance.choice((1, 1, 3, 12)))
            ]

            def work(transaction: Transaction) -> None:
                for draft in drafts:
                    transaction.put(draft)

            store.write(HERE, work)
            self.keys += [(draft.kind, draft.key) for draft in drafts]
        elif what < 0.55:
            draft = self.draft(*self.chance.choice(self.keys))
            store.write(HERE, lambda transaction: transaction.put(draft))
        elif what < 0.7:
            kind, key = self.keys.pop(self.chance.randrange(len(self.keys)))
            delete(store, key, kind=kind)
        elif what < 0.75:
            kind, key = self.keys.pop(self.chance.randrange(len(self.keys)))
            store.purge(HERE, kind=kind, key=key)
        elif what < 0.8:
            store.purge(HERE, history_before=self.clock.now)
        elif what < 0.83:
            store.rebuild_keywords()
        elif what < 0.86:
            put(store, "elsewhere", self.text(), namespace=THERE)
        elif what < 0.9 and self.keys:
            kind, key = self.chance.choice(self.keys)
            end = self.clock.now + 9_000_000
            store.write(HERE, lambda transaction: transaction.renew(kind, key, end))
        elif what < 0.93 and self.keys:
            kind, key = self.keys.pop(self.chance.randrange(len(self.keys)))
            store.write(HERE, lambda transaction: transaction.move(kind, key, f"{key}-moved", None))
            self.keys.append((kind, f"{key}-moved"))
        else:
            self.clock.advance(2)

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.mark.promise("sqlite-memory-is-exact")
@pytest.mark.parametrize("seed", range(rounds(24)))
def test_a_search_in_memory_finds_what_a_search_of_the_rows_finds(
    tmp_path: Path, clock: Clock, answered: list[str], seed: int
) -> None:
    path = tmp_path / "book.db"
    program = Program(path, clock, seed)
    for _ in range(25):
        for _ in range(program.chance.choice((1, 1, 4))):
            program.step()
        if program.chance.random() < 0.9:
            embed(program.chance.choice(program.stores))
        query = " ".join(program.chance.sample(WORDS, 3))
        filter, limit = program.chance.choice(FILTERS), program.chance.choice((3, 10))
        expected = ranked(read_anew(path, clock, query, filter, limit), filter)
        for store in program.stores:
            assert ranked(search(store, query, filter, limit), filter) == expected
    assert {"memory", "rows"} <= {*answered}
    program.close()


def filled(path: Path, clock: Clock, count: int = 40) -> SQLiteStore:
    store = SQLiteStore(path, durability="normal", clock=clock)
    for number in range(count):
        put(store, str(number), f"{WORDS[number % len(WORDS)]} number {number}", attributes={"tags": ["a"]})
    embed(store)
    return store


def test_the_first_search_of_a_program_reads_rows_and_later_ones_memory(
    tmp_path: Path, clock: Clock, answered: list[str]
) -> None:
    store = filled(tmp_path / "book.db", clock)
    first, second = search(store, "red number"), search(store, "red number")
    assert answered == ["rows", "memory"]
    assert first == second
    store.close()


def test_a_search_in_memory_reads_no_passage_again(tmp_path: Path, clock: Clock, answered: list[str]) -> None:
    store = filled(tmp_path / "book.db", clock)
    tagged = Filter(all_tags=("a",))
    for _ in range(2):
        search(store, "red number", tagged)
    connection: Any = store._readers.connection
    statements: list[str] = []

    def note(cursor: object, statement: str, bindings: object) -> bool:
        statements.append(statement)
        return True

    connection.exec_trace = note
    search(store, "red number", tagged)
    assert answered[-1] == "memory"
    assert not [one for one in statements if "chunk AS c" in one or "label" in one or "MATCH" in one]
    store.close()


def test_words_that_were_written_since_are_found_in_memory(tmp_path: Path, clock: Clock, answered: list[str]) -> None:
    store, other = filled(tmp_path / "book.db", clock), SQLiteStore(tmp_path / "book.db", clock=clock)
    for _ in range(2):
        search(store, "red winter")
    new = put(other, "new", "a red winter")
    embed(other)
    found = search(store, "red winter")
    assert found.by_words[0].entry_id == new.id
    assert answered[-1] == "memory"
    moved = move(other, "new", "moved")
    assert search(store, "red winter").entries[moved.id].key == "moved"
    delete(other, "moved")
    assert new.id not in search(store, "red winter").entries
    store.close()
    other.close()


def test_an_older_snapshot_does_not_see_what_a_newer_search_has_read(tmp_path: Path, clock: Clock) -> None:
    store = filled(tmp_path / "book.db", clock)
    for _ in range(2):
        search(store, "red winter")
    with store._reading(HERE, snapshot=True) as connection:
        before = candidates.read_namespace(connection, HERE)
        assert before is not None
        memory = store._vectors.hold((before.id, "passages"), candidates.NamespaceMemory)
        put(store, "new", "a red winter")
        embed(store)
        newer = SQLiteStore(tmp_path / "book.db", clock=clock)
        with newer._reading(HERE, snapshot=True) as later:
            after = candidates.read_namespace(later, HERE)
            assert after is not None
            assert memory.table(later, after) is not None
        assert memory.table(connection, before) is None
    newer.close()
    store.close()


def test_entries_that_expire_leave_the_searches_in_memory(tmp_path: Path, clock: Clock, answered: list[str]) -> None:
    store = filled(tmp_path / "book.db", clock)
    short = put(store, "short", "a red winter", expires_at=clock.now + 1_000_000)
    embed(store)
    for _ in range(2):
        assert short.id in search(store, "red winter").entries
    clock.advance(2)
    assert short.id not in search(store, "red winter").entries
    assert answered[-1] == "memory"
    store.close()


def test_a_renewed_entry_stays_in_the_searches_in_memory(tmp_path: Path, clock: Clock, answered: list[str]) -> None:
    store = filled(tmp_path / "book.db", clock)
    short = put(store, "short", "a red winter", expires_at=clock.now + 1_000_000)
    embed(store)
    for _ in range(2):
        search(store, "red winter")
    store.write(HERE, lambda transaction: transaction.renew("file", "short", clock.now + 9_000_000))
    clock.advance(2)
    assert short.id in search(store, "red winter").entries
    assert answered[-1] == "memory"
    store.close()


@pytest.mark.parametrize("change", ["delete", "move", "tag", "update"])
def test_after_a_change_only_what_changed_is_read_again(
    tmp_path: Path, clock: Clock, answered: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    store = filled(tmp_path / "book.db", clock)
    put(store, "new", "a red winter", heading="of the river")
    embed(store)
    for _ in range(2):
        search(store, "red winter")
    monkeypatch.setattr(candidates.Table, "read", lambda *_: pytest.fail("the whole namespace is read again"))
    if change == "delete":
        delete(store, "new")
    elif change == "move":
        move(store, "new", "moved")
    else:
        text = "a red winter" if change == "tag" else "a blue winter"
        put(store, "new", text, heading="of the river", attributes={"tags": ["b"]})
        embed(store)
    found = search(store, "red winter of the river")
    assert ranked(found, Filter()) == ranked(
        read_anew(tmp_path / "book.db", clock, "red winter of the river", Filter(), 5), Filter()
    )
    assert answered[-2:] == ["memory", "rows"]
    store.close()


def test_a_damaged_passage_is_not_kept_in_memory(tmp_path: Path, clock: Clock, answered: list[str]) -> None:
    store = filled(tmp_path / "book.db", clock)
    store._writing.execute("UPDATE chunk SET start = 'x' WHERE id = (SELECT max(id) FROM chunk)")
    for _ in range(3):
        assert search(store, "red number", limit=2).entries
    assert {*answered} == {"rows"}
    store.close()


def test_what_memory_holds_counts_towards_its_bound(tmp_path: Path, clock: Clock) -> None:
    store = filled(tmp_path / "book.db", clock)
    search(store, "red number")
    before = store.vector_bytes
    search(store, "red number")
    assert store.vector_bytes >= before + 40 * 5 * np.dtype(np.int64).itemsize
    store.close()


def test_a_namespace_that_is_too_large_for_memory_is_searched_by_its_rows(
    tmp_path: Path, clock: Clock, answered: list[str]
) -> None:
    filled(tmp_path / "book.db", clock).close()
    store = SQLiteStore(tmp_path / "book.db", clock=clock, cache_bytes=2_000)
    for _ in range(3):
        assert search(store, "red number").entries
    assert {*answered} == {"rows"}
    store.close()


def traced(store: SQLiteStore) -> list[tuple[str, Any]]:
    """The statements of the searches from now on, with their parameters."""
    connection: Any = store._readers.connection
    statements: list[tuple[str, Any]] = []

    def note(cursor: object, statement: str, bindings: object) -> bool:
        statements.append((statement, bindings))
        return True

    connection.exec_trace = note
    return statements


def test_of_a_word_that_was_asked_for_only_the_new_passages_are_read_after_a_write(
    tmp_path: Path, clock: Clock, answered: list[str]
) -> None:
    store = filled(tmp_path / "book.db", clock)
    for _ in range(2):
        search(store, "red number")
    [(last,)] = store._writing.execute("SELECT max(id) FROM chunk").fetchall()
    new = put(store, "new", "a red number")
    embed(store)
    statements = traced(store)
    assert new.id in {one.entry_id for one in search(store, "red number", limit=50).by_words}
    [lists] = [bindings for statement, bindings in statements if "MATCH" in statement]
    assert lists[1] == (last + 1) * LENGTH_STEPS
    delete(store, "new")
    statements.clear()
    found = search(store, "red number", limit=50)
    assert new.id not in {one.entry_id for one in found.by_words}
    assert not [statement for statement, _ in statements if "MATCH" in statement]
    assert {*answered[1:]} == {"memory"}
    assert found.by_words == read_anew(tmp_path / "book.db", clock, "red number", Filter(), 50).by_words
    store.close()


def test_words_that_many_searches_ask_for_take_bounded_memory(
    tmp_path: Path, clock: Clock, answered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "book.db"
    store = filled(path, clock)
    search(store, "red number")
    search(store, "red number")
    before = store.vector_bytes
    monkeypatch.setattr(candidates, "MOST_POSTING_BYTES", 3 * candidates.BYTES_A_TERM)
    for number in range(20):
        query = f"{WORDS[number % len(WORDS)]} number missing{number} absent{number}"
        assert ranked(search(store, query), Filter()) == ranked(read_anew(path, clock, query, Filter(), 5), Filter())
        assert store.vector_bytes <= before + 3 * candidates.BYTES_A_TERM
    assert answered.count("memory") == 21
    store.close()
