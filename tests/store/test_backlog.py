"""Entries that wait for their derived rows: every search and filter finds them, from any process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace.backends.sqlite import SQLiteStore
from commonplace.backends.sqlite import index as sqlite_index
from commonplace.backends.sqlite import reader as sqlite_reader
from commonplace.backends.sqlite.backlog import BULK, LONG_CHARACTERS, MOST_WAITING
from commonplace.entry import Draft
from commonplace.errors import Corrupt
from commonplace.filters import Filter
from commonplace.language.tokenizer import query_terms
from commonplace.store import Scan, SearchQuery, States, Store, Transaction
from doubles import WordEmbedder

HERE = ("user", "ana")
KILLED = 9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "book.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    with opened(path) as store:
        yield store


def opened(path: Path, **options: Any) -> AbstractContextManager[SQLiteStore]:
    return closing(SQLiteStore(path, durability="normal", **options))


def note(number: int, *, tag: str = "tea") -> Draft:
    text = f"note {number} about lighthouses"
    return Draft("record", f"r{number}", {"text": text}, text=text, attributes={"tags": [tag], "type": "note"})


def put(store: SQLiteStore, *drafts: Draft) -> None:
    store.write(HERE, lambda transaction: [transaction.put(draft) for draft in drafts])


def found(store: SQLiteStore, words: str, filter: Filter | None = None) -> list[int]:
    candidates = store.search_text(HERE, query_terms(words), filter or Filter(), 100)
    return [candidate.entry_id for candidate in candidates]


def waiting(path: Path) -> int:
    """How many entries wait, read without the library."""
    connection = apsw.Connection(str(path))
    counts: list[Any] = connection.execute("SELECT waiting_count FROM namespace").fetchall()
    connection.close()
    return sum(count or 0 for (count,) in counts)


def test_a_new_entry_waits_and_is_found_at_once_by_words_and_labels(store: SQLiteStore, path: Path) -> None:
    put(store, note(1), note(2, tag="coffee"))
    assert waiting(path) == 2
    assert found(store, "lighthouses") == [2, 1]
    assert found(store, "lighthouses", Filter(all_tags=("tea",))) == [1]
    by_label = [
        [entry.key for entry in store.scan(HERE, Scan(filter)).entries]
        for filter in (Filter(all_tags=("tea",)), Filter(any_tags=("tea", "coffee")), Filter(types=("fact",)))
    ]
    assert by_label == [["r1"], ["r1", "r2"], []]
    assert store.term_counts(HERE, ["lighthouse"]).passages == 2
    assert store.verify() == []


def test_search_and_counts_are_the_same_before_and_after_they_are_settled(store: SQLiteStore, path: Path) -> None:
    for number in range(MOST_WAITING - 1):
        put(store, note(number))

    def answers() -> object:
        return (
            store.search_text(HERE, query_terms("note 7 about lighthouses"), Filter(), 100),
            store.search_text(HERE, query_terms("lighthouses"), Filter(), 3, also=[4, 5]),
            store.term_counts(HERE, ["lighthouse", "note"]),
            store.read(HERE, lambda reader: reader.usage()),
            store.usage(HERE[:1]),
            store.read(HERE, lambda reader: reader.stats()),
            store.indexing(HERE),
            store.indexing(),
            replace(store.stats(), bytes=0),
        )

    before = answers()
    assert waiting(path) == MOST_WAITING - 1
    store.maintain()
    assert waiting(path) == 0
    assert answers() == before
    assert store.verify() == []


def test_a_search_with_a_vector_ranks_the_words_of_what_waits_like_one_without(store: SQLiteStore, path: Path) -> None:
    embedder = WordEmbedder()
    store.set_target_model(embedder.identity, embedder.dimensions)
    for number in range(MOST_WAITING - 1):
        put(store, note(number))
    assert waiting(path) == MOST_WAITING - 1
    terms = query_terms("note 7 about lighthouses")
    for limit in (3, 100):
        query = SearchQuery(terms, (embedder.identity, embedder.embed(["note"], purpose="query")[0]), Filter(), limit)
        candidates = store.search(HERE, query, lambda by_words, by_meaning: [])
        assert candidates is not None
        assert candidates.by_words == store.search_text(HERE, terms, Filter(), limit) != []


def test_what_waits_is_bounded(store: SQLiteStore, path: Path) -> None:
    counts = []
    for number in range(3 * MOST_WAITING):
        put(store, note(number))
        counts.append(waiting(path))
    assert max(counts) == MOST_WAITING - 1
    put(store, *(note(1_000 + number) for number in range(BULK)))
    assert waiting(path) == 0
    put(store, note(2_000))
    put(store, Draft("file", "long", "lighthouse " * (LONG_CHARACTERS // 11 + 1)))
    assert waiting(path) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda transaction: transaction.put(note(1, tag="milk")),
        lambda transaction: transaction.delete("record", "r1"),
        lambda transaction: transaction.move("record", "r1", "r9", None),
        lambda transaction: transaction.delete_range("record", "r"),
        lambda transaction: transaction.move_range("record", "r", "s", lambda key: None),
    ],
)
def test_a_change_in_the_namespace_settles_first(store: SQLiteStore, path: Path, change: Callable[..., object]) -> None:
    put(store, note(1), note(2))
    store.write(HERE, change)
    assert waiting(path) == 0
    assert store.verify() == []
    live = {entry.id for entry in store.scan(HERE, Scan(Filter())).entries}
    assert set(found(store, "lighthouses")) == live


def test_a_change_in_the_same_transaction_settles_first(store: SQLiteStore, path: Path) -> None:
    put(store, note(1))

    def work(transaction: Transaction) -> None:
        transaction.put(note(2))
        transaction.put(note(2, tag="milk"))
        transaction.put(note(3))
        transaction.delete("record", "r1")
        transaction.put(note(4))

    store.write(HERE, work)
    assert waiting(path) == 1
    assert found(store, "lighthouses") == [4, 3, 2]
    assert store.verify() == []


def test_an_expired_entry_that_waits_is_not_found_and_is_ended(path: Path) -> None:
    now = [1_800_000_000_000_000]
    with opened(path, clock=lambda: now[0]) as store:
        put(store, note(1).with_expiry(now[0] + 1_000))
        put(store, note(2))
        now[0] += 2_000
        assert found(store, "lighthouses") == [2]
        put(store, note(3))
        assert store.verify() == []
        assert found(store, "lighthouses") == [3, 2]
        assert store.read(HERE, lambda reader: reader.usage()).entries == 2


def test_a_program_killed_before_it_settles_loses_no_keywords(path: Path) -> None:
    child = os.fork()
    if not child:
        with opened(path) as store:
            put(store, note(1))
            put(store, note(2))
            os._exit(KILLED)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == KILLED
    with opened(path) as store:
        assert found(store, "lighthouses") == [2, 1]
        put(store, note(3))
        assert found(store, "lighthouses") == [3, 2, 1]
        assert store.verify() == []


def test_a_program_killed_while_it_settles_leaves_all_of_it_to_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as store:
        put(store, note(1), note(2))
    child = os.fork()
    if not child:
        monkeypatch.setattr(sqlite_index, "_count_usage", lambda *_: os._exit(KILLED))
        with opened(path) as store:
            store.maintain()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == KILLED
    assert waiting(path) == 2
    with opened(path) as store:
        assert found(store, "lighthouses") == [2, 1]
        store.maintain()
        assert found(store, "lighthouses") == [2, 1]
        assert store.verify() == []


def test_two_programs_that_settle_at_once_write_each_row_once(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        for number in range(20):
            put(one, note(2 * number))
            put(other, note(2 * number + 1))
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda store: store.maintain(), (one, other)))
            assert len(found(other, "lighthouses")) == 2 * number + 2
        assert one.verify() == []


def test_another_program_finds_what_waits_and_what_it_settles_stays_found(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        put(one, note(1))
        assert found(other, "lighthouses") == [1]
        put(other, note(2))
        assert found(one, "lighthouses") == [2, 1]
        other.maintain()
        assert found(one, "lighthouses") == [2, 1]


def test_a_reader_that_may_not_write_finds_what_waits(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as store:
        put(store, note(1), note(2, tag="coffee"))
    folder = tmp_path / "still"
    folder.mkdir()
    shutil.copy(path, folder / "book.db")
    monkeypatch.setattr(SQLiteStore, "_is_only_readable", lambda self: True)
    with opened(folder / "book.db") as still:
        assert waiting(folder / "book.db") == 2
        assert found(still, "lighthouses") == [2, 1]
        assert found(still, "lighthouses", Filter(all_tags=("coffee",))) == [2]
        assert still.indexing().pending == 2
        assert [passage.text for passage in still.pending(HERE, 9)] == [
            "note 2 about lighthouses",
            "note 1 about lighthouses",
        ]
        assert still.verify() == []
    assert os.listdir(folder) == ["book.db"]


def test_vectors_are_made_of_what_waits(path: Path) -> None:
    with commonplace.open(path, embedder=WordEmbedder(), background=False, durability="normal") as book:
        space = book.space(*HERE)
        space.records.create(type="note", content={"text": "the lamp burns oil"}, source="s", confidence=1.0)
        assert waiting(path) == 1
        assert book.store.indexing(HERE).pending == 1
        (hit,) = space.search("the lamp burns oil").hits
        assert "meaning" in hit.parts
        assert waiting(path) == 0
        assert book.verify() == []


def test_search_as_of_a_time_before_an_entry_that_waits_does_not_find_it(path: Path) -> None:
    with commonplace.open(path, embedder=WordEmbedder(), background=False, durability="normal") as book:
        space = book.space(*HERE)
        first = space.records.create(type="note", content={"text": "lighthouse one"}, source="s", confidence=1.0)
        second = space.records.create(type="note", content={"text": "lighthouse two"}, source="s", confidence=1.0)
        assert waiting(path) == 2
        now = {hit.key for hit in space.search("lighthouse").hits}
        then = {hit.key for hit in space.search("lighthouse", as_of=first.created_at).hits}
        assert (now, then) == ({first.id, second.id}, {first.id})


def test_purge_erases_what_waits(store: SQLiteStore, path: Path) -> None:
    put(store, note(1), note(2))
    assert store.purge(HERE, kind="record", key="r1") == 1
    assert found(store, "lighthouses") == [2]
    assert store.read(HERE, lambda reader: reader.states(States("record", "r1"))) == []
    assert store.verify() == []
    store.close()
    assert b"note 1 about" not in path.read_bytes()


def test_backups_and_exports_have_what_waits(store: SQLiteStore, path: Path, tmp_path: Path) -> None:
    put(store, note(1), note(2))
    store.backup(tmp_path / "copy.db")
    exported = list(store.export())
    assert len(exported) == 3
    with opened(tmp_path / "copy.db") as copy:
        assert found(copy, "lighthouses") == [2, 1]
        assert copy.verify() == []
    store.rebuild_keywords()
    assert waiting(path) == 0
    assert found(store, "lighthouses") == [2, 1]
    assert store.verify() == []


def test_verify_finds_a_wrong_mark_of_what_waits(store: SQLiteStore, path: Path) -> None:
    put(store, note(1), note(2))
    store.maintain()
    put(store, note(3))
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE namespace SET waiting_entry = 1, checksum = NULL")
    connection.close()
    assert any("row of namespace user/ana" in problem for problem in store.verify())


def test_settling_ends_while_others_write_all_the_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store, opened(path) as other:
        put(store, note(0))
        run, commits = store._run, []

        def run_before_another_write(work: Callable[..., Any], **options: Any) -> Any:
            result = run(work, **options)
            commits.append(work)
            assert len(commits) < 5
            put(other, note(len(commits)))
            return result

        monkeypatch.setattr(store, "_run", run_before_another_write)
        claimed = store.claim(9, 60.0)
        assert [passage.text for passage in claimed] == ["note 0 about lighthouses"]
        assert waiting(path) == 2


def test_a_listing_by_labels_sees_one_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store, opened(path) as other:
        put(store, note(1))
        labels = sqlite_reader.waiting_labels

        def labels_before_a_change(*arguments: Any) -> Any:
            found = labels(*arguments)
            put(other, note(1, tag="coffee"))
            return found

        monkeypatch.setattr(sqlite_reader, "waiting_labels", labels_before_a_change)
        (entry,) = store.scan(HERE, Scan(Filter(all_tags=("tea",)))).entries
        assert entry.attributes["tags"] == ["tea"]


def test_usage_is_of_one_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store, opened(path) as other:
        put(store, note(1))
        place = sqlite_reader.waiting_place

        def place_before_it_is_settled(*arguments: Any) -> Any:
            found = place(*arguments)
            other.maintain()
            return found

        class Condition(str):
            def format(self, *arguments: Any, **names: Any) -> str:
                other.maintain()
                return super().format(*arguments, **names)

        monkeypatch.setattr(sqlite_reader, "waiting_place", place_before_it_is_settled)
        assert Store.usage(store, HERE[:1]).entries == 1
        monkeypatch.undo()
        put(store, note(2))
        monkeypatch.setattr(sqlite_reader, "WAITING", Condition(sqlite_reader.WAITING))
        assert store.usage(HERE[:1]).entries == 2


def test_keywords_are_rebuilt_in_the_commit_that_creates_a_namespace(store: SQLiteStore) -> None:
    def work(transaction: Transaction) -> None:
        transaction.put(note(1))
        rebuilding.append(pool.submit(store.rebuild_keywords))
        while len(store._writer._jobs) < 2:
            pass

    rebuilding: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        store.write(HERE, work)
    rebuilding[0].result()
    assert store.verify() == []
    put(store, note(2))
    store.maintain()
    assert found(store, "lighthouses") == [2, 1]
    assert store.verify() == []


@pytest.mark.parametrize("damage", ["value || ' '", "CAST(x'ff' || value AS TEXT)", "CAST('[' AS BLOB)"])
def test_a_damaged_entry_that_waits_stops_no_other(store: SQLiteStore, path: Path, damage: str) -> None:
    put(store, note(1), note(2))
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE entry SET value = {damage} WHERE key = 'r1'")
    connection.close()
    assert 2 in found(store, "lighthouses")
    put(store, note(2, tag="coffee"))
    assert waiting(path) == 0
    assert "note 2 about lighthouses" in [passage.text for passage in store.claim(9, 60.0)]
    for number in range(3, 2 * MOST_WAITING):
        put(store, note(number))
    assert store.read(HERE, lambda reader: reader.usage()).entries == 2 * MOST_WAITING - 1
    with pytest.raises(Corrupt):
        store.get(HERE, "record", ["r1"])
    (problem,) = store.verify()
    assert problem.startswith("entry: record r1 of namespace user/ana ")
