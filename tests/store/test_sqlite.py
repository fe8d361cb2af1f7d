"""The SQLite backend passes the conformance suite, as a file and in memory; and what only a file can show."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from conformance import StoreConformance
from store_calls import HERE, embed_all, found_keys, get, move, put

from commonplace.backends.rows import dump
from commonplace.backends.sqlite import SQLiteStore
from commonplace.backends.sqlite.connection import Connection, connect
from commonplace.backends.sqlite.migrate import check_schema, migrations
from commonplace.entry import Draft
from commonplace.errors import Unavailable
from commonplace.store import Scan, Store


class SQLiteConformance(StoreConformance):
    def open_copy(self, path: Path) -> Store:
        return SQLiteStore(path)


class TestFile(SQLiteConformance):
    @pytest.fixture
    def store(self, tmp_path: Path, clock: Any) -> Iterator[SQLiteStore]:
        store = SQLiteStore(tmp_path / "book.db", clock=clock, durability="normal")
        yield store
        store.close()


class TestMemory(SQLiteConformance):
    @pytest.fixture
    def store(self, clock: Any) -> Iterator[SQLiteStore]:
        store = SQLiteStore(":memory:", clock=clock)
        yield store
        store.close()


def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    first = SQLiteStore(tmp_path / "book.db")
    entry = put(first, "k", "text")
    first.close()
    second = SQLiteStore(tmp_path / "book.db")
    assert get(second, "k") == entry
    second.close()


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_book_that_another_makes_while_it_is_being_looked_at_is_not_taken_for_a_foreign_file(
    moment: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "book.db")

    class Interrupted:
        """A connection where somebody else makes the book after one of its statements."""

        def __init__(self, connection: Connection) -> None:
            self.connection = connection
            self.statements = 0

        def execute(self, statements: str) -> Interrupted:
            self.rows = self.connection.execute(statements).fetchall()
            self.statements += 1
            if self.statements == moment:
                SQLiteStore(path).close()
            return self

        def fetchall(self) -> list[Any]:
            return self.rows

    looking = connect(path, busy_seconds=1, durability="full")
    assert not check_schema(Interrupted(looking), path)  # type: ignore[arg-type]
    SQLiteStore(path).close()
    assert check_schema(looking, path)
    looking.close()


@pytest.mark.parametrize("version", [1, 2, 99])
def test_a_file_without_tables_becomes_a_book_whatever_version_another_program_gave_it(
    version: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "book.db")
    other = connect(path, busy_seconds=1, durability="full")
    other.execute(f"PRAGMA user_version = {version}").fetchall()
    other.close()
    for value in (1, 2):
        store = SQLiteStore(path)
        store.write(HERE, lambda transaction, value=value: transaction.put(Draft("file", "n", value)))  # type: ignore[misc]
        assert get(store, "n").value == value  # type: ignore[union-attr]
        assert store.verify() == []
        store.close()


def test_two_stores_in_one_process_on_one_file_see_each_other_and_lose_nothing(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "book.db") for _ in range(2)]

    def count(store: Store) -> None:
        for _ in range(40):
            store.write(
                HERE,
                lambda transaction: transaction.put(
                    Draft("file", "n", (known.value if (known := transaction.get("file", "n")) else 0) + 1)  # type: ignore[operator]
                ),
            )

    threads = [threading.Thread(target=count, args=(store,)) for store in stores for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [get(store, "n").value for store in stores] == [240, 240]  # type: ignore[union-attr]
    for store in stores:
        store.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_book_reached_by_a_link_is_the_same_book(is_there: bool, tmp_path: Path) -> None:
    book, link = tmp_path / "book.db", tmp_path / "link.db"
    link.symlink_to("book.db")
    if is_there:
        SQLiteStore(book).close()
    linked = SQLiteStore(link, busy_seconds=0.05)
    direct = SQLiteStore(book)
    assert direct._queue is not None
    with direct._queue.held(), pytest.raises(Unavailable, match="another process has been writing"):
        put(linked, "k")
    put(linked, "k")
    assert linked.stats() == direct.stats()
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == dict.fromkeys(
        ("book.db", "book.db-lock", "book.db-shm", "book.db-turn", "book.db-wal", "link.db"), 0o600
    )
    linked.close()
    direct.close()


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="counts locks as Linux shows them")
def test_opening_a_book_once_more_takes_no_lock_from_the_first(tmp_path: Path) -> None:
    def locks() -> int:
        inode = f":{os.stat(path).st_ino} "
        return sum(
            f" {os.getpid()} " in line and inode in line for line in Path("/proc/locks").read_text().splitlines()
        )

    path = tmp_path / "book.db"
    store = SQLiteStore(path)
    put(store, "k")
    with store._reading(snapshot=True) as connection:
        connection.execute("SELECT count(*) FROM entry").fetchall()
        before = locks()
        second = SQLiteStore(path)
        second.close()
        assert locks() == before > 0
    store.close()


def test_threads_that_come_and_go_leave_no_open_files_behind(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "book.db")
    put(store, "k")

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    for _ in range(3):
        thread = threading.Thread(target=get, args=(store, "k"))
        thread.start()
        thread.join()
    before = open_files()
    for _ in range(50):
        thread = threading.Thread(target=get, args=(store, "k"))
        thread.start()
        thread.join()
    assert open_files() <= before + 3
    store.close()


def test_a_backup_finishes_while_others_write_without_pause(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "book.db", durability="normal")

    def fill(transaction: Any) -> None:
        for number in range(250):
            transaction.put(Draft("file", f"k{number}", {"text": os.urandom(40_000).hex()}))

    store.write(HERE, fill)
    stop = threading.Event()
    steps = 0

    def saturate() -> None:
        while not stop.is_set():
            put(store, "busy", "x")

    def progress(done: int, total: int | None, word: str) -> None:
        nonlocal steps
        steps += 1
        assert steps < 100, "the copy begins again and again"

    writer = threading.Thread(target=saturate)
    writer.start()
    try:
        store.backup(tmp_path / "copy.db", progress)
    finally:
        stop.set()
        writer.join()
    copy = SQLiteStore(tmp_path / "copy.db")
    assert copy.verify() == []
    assert len(copy.scan(HERE, Scan()).entries) >= 250
    copy.close()
    store.close()


def test_an_index_that_was_rewritten_since_the_last_search_is_not_taken_for_damage(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "book.db")
    for number in range(40):
        put(store, f"k{number}", f"some words {number}")
    assert len(found_keys(store, "words")) == 40
    store.purge(HERE)
    assert store.verify() == []
    store.close()


def test_the_history_of_a_thousand_appends_stays_small(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "book.db", durability="normal")

    def append_some(transaction: Any, text: str, step: int) -> str:
        for number in range(50):
            text += f"{step}-{number}: a line of notes about the day, seventy letters or so in all.\n"
            transaction.put(Draft("file", "notes", text))
        return text

    text = ""
    for step in range(20):
        text = store.write(HERE, partial(append_some, text=text, step=step))[0]
    assert len(text) > 60_000
    assert len(store.history(HERE, "file", "notes")) == 1_000
    assert store.stats().bytes < 5_200_000  # the goal is 50 MB for 10,000
    assert store.state(HERE, "file", "notes", 500).text == text[: text.index("10-0:")]  # type: ignore[union-attr]
    store.close()


def test_appends_to_a_long_file_leave_no_free_pages_and_count_its_bytes(tmp_path: Path) -> None:
    """A file of 260 kB left 68 free pages, since SQLite wrote the new row before it freed the former one."""
    path = tmp_path / "book.db"
    text = "0123456789 one more short line\n" * 5_000
    with closing(SQLiteStore(path, durability="normal")) as store:
        put(store, "/log", text)
        for _ in range(20):
            text += "and a line\n"
            put(store, "/log", text)
        written = get(store, "/log")
        assert written is not None
        assert written.value == text
        assert store.verify() == []
        counted = store.usage(HERE)
    with closing(apsw.Connection(str(path))) as connection:
        ((free,),) = connection.execute("PRAGMA freelist_count").fetchall()
    assert free < 10
    with closing(SQLiteStore(tmp_path / "other.db")) as store:
        put(store, "/log", text)
        assert store.usage(HERE).bytes == counted.bytes


def test_a_book_that_was_written_before_has_its_history_counted() -> None:
    steps = migrations()
    number, step = next(one for one in steps if "former_bytes" in one[1])
    connection = apsw.Connection(":memory:")
    for _, earlier in steps[: number - 1]:
        connection.execute(earlier).fetchall()
    shared = "namespace, kind, key, is_json, attributes, commit_number, valid_from, begun_by, created_at, updated_at"
    state = "1, 'file', 'a', 0, '{}', 1, 1, 'created', 1, 1"
    kept = [(1, "NULL", "-1"), (1, "'ä'", "x'0102'"), (2, "NULL", "'xyz'")]
    for revision, (namespace, text, value) in enumerate(kept):
        connection.execute(
            f"INSERT INTO history ({shared}, entry, revision, ended_commit, valid_to, ended_by, text, value)"
            f" VALUES ({namespace}{state[1:]}, 1, {revision}, 2, 2, 'updated', {text}, {value})"
        ).fetchall()
    connection.execute(
        f"INSERT INTO entry ({shared}, id, revision, deltas, value) VALUES ({state}, 1, 9, 0, 'live')"
    ).fetchall()
    connection.execute(step).fetchall()
    usage = "SELECT namespace, entries, bytes, former_states, former_bytes FROM usage ORDER BY namespace"
    assert connection.execute(usage).fetchall() == [(1, 1, 6, 2, 200 + 2 + 2 + 200 + 2 + 2 + 2), (2, 0, 0, 1, 205)]
    connection.execute("UPDATE history SET value = 'longer' WHERE namespace = 2").fetchall()
    connection.execute("DELETE FROM history WHERE namespace = 1").fetchall()
    assert connection.execute(usage).fetchall() == [(1, 1, 6, 0, 0), (2, 0, 0, 1, 208)]


ODD_TEXTS = (
    "plain words",
    'two\nlines and a "quotation", a back\\slash, a tab\t and \x01',
    "ümlaut, 漢字, 🦊 and \u2028",
    '", "',
    "x",
    "",
)


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_a_text_that_is_a_string_in_its_value_is_stored_once_and_read_as_it_was(text: str, tmp_path: Path) -> None:
    states: list[tuple[Any, str]] = [
        ({"é": "🦊" * 3, "text": text, "more": [text]}, text),
        ({"text": f"{text} 2"}, f"{text} 2"),
        ({"n": 1}, text),
    ]
    with closing(SQLiteStore(tmp_path / "book.db")) as store:
        for value, searched in states:
            put(store, "k", value, text=searched)
            entry = get(store, "k")
            assert entry is not None
            assert (entry.value, entry.text) == (value, searched)
        former = store.read(HERE, lambda reader: [reader.state("file", "k", revision) for revision in (1, 2)])
        assert [state and (state.value, state.text) for state in former] == states[:2]
        held = store.usage(HERE).bytes
        put(store, "kept", {"text": text}, text=text)
        assert store.usage(HERE).bytes - held == len(dump({"text": text}).encode()) + len(text.encode()) + len("{}")
        move(store, "kept", "moved")
        assert store.verify() == []
    connection = apsw.Connection(str(tmp_path / "book.db"))
    [(own, computed)] = connection.execute("SELECT own_text, text FROM entry WHERE key = 'moved'").fetchall()
    connection.close()
    assert (own, computed) == (None if text else "", text)


def test_a_text_that_is_no_string_in_its_value_has_a_column_of_its_own(tmp_path: Path) -> None:
    with closing(SQLiteStore(tmp_path / "book.db")) as store:
        for key, value, text in (("a", {"n": 1}, "words"), ("b", {"t": "words and more"}, "words"), ("c", ["x"], "")):
            put(store, key, value, text=text)
            entry = get(store, key)
            assert entry is not None
            assert (entry.value, entry.text) == (value, text)
        assert store.verify() == []


HASH, UUID = "0f" * 32, "01234567-89ab-cdef-0123-456789abcdef"
FIELDS = {"type": "note", "source": "s", "tags": ["a", "b c"], "confidence": 0.5}
HEADED = [
    (FIELDS, "note a b c"),
    ({**FIELDS, "tags": []}, "note"),
    ({**FIELDS, "importance": 0.5}, "note a b c"),
    ({**FIELDS, "tags": ['"', "\x03", "é"]}, 'note " \x03 é'),
    ({**FIELDS, "type": 'a"b\x02', "source": "\x05"}, 'a"b\x02 a b c'),
    ({**FIELDS, "more": {"x": "y", "tags": ["z"], "confidence": 1}}, "note a b c"),
    ({**FIELDS, "tags": [], "more": {"x": "y", "tags": ["z"], "confidence": 1}}, "note"),
    ({"type": "note"}, 'note"}'),
    ({"type": "note", "x": 1, "source": "s"}, "note"),
    ({"type": "note", "source": "s", "tags": ["a"]}, "note a"),
    ({"type": "n", "tags": ["a"], "confidence": 1, "source": "s"}, "n a"),
    ({"type": "a", "x": "b", "tags": ["c"], "source": "s"}, "a c"),
    ({"role": "user", "resourceId": "r", "threadId": "t"}, None),
    ({"size": 1, "lines": 2, "x": [',"lines":', "\x10"]}, "k"),
    ({}, ""),
]


@pytest.mark.parametrize("kind", ["record", "message", "file", "other"])
@pytest.mark.parametrize(("attributes", "heading"), HEADED)
def test_columns_that_are_stored_in_short_are_read_as_they_were(
    kind: str, attributes: dict[str, Any], heading: str | None, tmp_path: Path
) -> None:
    with closing(SQLiteStore(tmp_path / "book.db")) as store:
        for number, identity in enumerate((HASH, UUID, HASH.upper(), UUID.upper(), "0" * 36, "-" * 36, "x", None)):
            draft = Draft(
                kind, f"\x01k{number}", {"n": number}, heading=heading, attributes=attributes, identity=identity
            )
            expected = (heading, attributes, identity)
            written = store.write(HERE, lambda transaction, draft=draft: transaction.put(draft))[0]
            changed = store.write(
                HERE, lambda transaction, draft=draft: transaction.put(replace(draft, value={"n": -1}))
            )[0]
            [live] = store.get(HERE, kind, [draft.key])
            former = store.state(HERE, kind, draft.key, 1)
            assert live is not None
            assert former is not None
            for found, was in ((live, changed), (former, written)):
                assert (found.heading, found.attributes, found.identity) == expected
                assert (found.created_at, found.updated_at) == (was.created_at, was.updated_at)
            if identity is not None:
                assert store.read(HERE, lambda reader, one=identity: reader.find(kind, one)) == live
                assert store.read(HERE, lambda reader, one=identity: reader.last_key(kind, one)) == draft.key
        assert [change.action for change in store.changes(HERE, 0, 100)] == ["created", "updated"] * 8
        assert store.verify() == []


def test_a_usual_record_says_nothing_twice(tmp_path: Path) -> None:
    with closing(SQLiteStore(tmp_path / "book.db")) as store:
        put(store, "k", {"n": 1}, kind="record", heading="note a b c", attributes=FIELDS, identity=HASH)
    connection = apsw.Connection(str(tmp_path / "book.db"))
    names = ("identity", "attributes", "heading", "valid_from", "updated_at", "begun_by")
    own = connection.execute(f"SELECT {', '.join(f'own_{name}' for name in names)} FROM entry").fetchall()
    connection.close()
    assert own == [(bytes.fromhex(HASH), "\x01note\x02s\x03a\x04b c\x050.5}", b"", b"", b"", b"")]


def chunk_rows(path: Path) -> list[tuple[int, int | None]]:
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute("SELECT id, ended_commit FROM chunk ORDER BY id").fetchall()


def test_of_the_passages_that_an_edit_ends_only_those_with_a_vector_keep_their_row(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    store = SQLiteStore(path)
    for text in ("one", "two", "three"):
        put(store, "a", text)
    assert chunk_rows(path) == [(3, None)]
    store.set_target_model("m", 2)
    embed_all(store, {"three": np.ones(2, np.float32)})
    next_one = put(store, "a", "four")
    put(store, "a", "five")
    assert chunk_rows(path) == [(3, next_one.commit), (5, None)]
    vectors = store.passage_vectors(HERE, "m", [(next_one.id, next_one.commit - 1)])
    assert [(entry, start, end) for entry, start, end, _ in vectors] == [(next_one.id, 0, 5)]
    assert store.verify() == []
    store.close()


def test_the_id_of_a_passage_whose_row_is_gone_is_not_used_again(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    for text in ("one", "", "two", "", "three"):  # an empty text has no passage
        store = SQLiteStore(path)
        put(store, "a", text)
        store.close()
    assert chunk_rows(path) == [(3, None)]
