"""A namespace is alone: nobody else's writes change its answers, and nobody else's data is in them."""

from __future__ import annotations

import json
import re
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace.entry import Draft
from commonplace.errors import Unavailable
from commonplace.filters import Filter
from commonplace.language.tokenizer import query_terms
from commonplace.store import Scan
from doubles import rounds

QUERY = "green deployment checklist"


def answers(book: commonplace.Book, *labels: str) -> list[Any]:
    space = book.space(*labels)
    return [
        [(hit.key, hit.score, dict(hit.parts), hit.snippet) for hit in space.search(query, limit=20)]
        for query in (QUERY, "deployment", "garden", "getUserById")
    ]


@pytest.mark.promise("engine-isolated-scores")
def test_the_writes_of_others_change_neither_scores_nor_order(book: commonplace.Book) -> None:
    mine = book.space("user", "u1")
    for number in range(12):
        mine.files.write(
            f"/notes/{number}", f"{'deployment ' * (number % 4 + 1)} of the green house {number} " * (number + 1)
        )
    mine.records.create(type="note", content={"text": QUERY}, source="s", confidence=0.5)
    mine.files.write("/code", "def getUserById(): pass")
    before = answers(book, "user", "u1")
    assert len(before[0]) == 14
    for labels in (("user", "u10"), ("user",), ("user", "u1", "sub"), ("user", "u"), ("org", "u1")):
        foreign = book.space(*labels)
        for number in range(15):
            foreign.files.write(f"/notes/{number}", f"deployment checklist green getUserById {number} " * 10)
        foreign.search(QUERY)
        foreign.files.delete("/notes/3")
    assert answers(book, "user", "u1") == before
    book.space("user", "u10").purge()
    assert answers(book, "user", "u1") == before


labels = st.sampled_from(["u", "u1", "u10", "u1 ", "U1", "ü", "%", "_", "u1%", ".", "1", "u\U0001f600"])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)


@pytest.mark.promise("engine-isolation")
@settings(max_examples=rounds(40))
@given(names=st.lists(namespaces, min_size=2, max_size=5, unique=True))
def test_no_read_of_one_namespace_returns_anything_of_another(names: list[tuple[str, ...]]) -> None:
    with commonplace.open(":memory:", background=False, embedder=_Same()) as book:
        ids: dict[tuple[str, ...], int] = {}
        for name in names:
            space = book.space(*name)
            secret = f"secret of {'|'.join(name)}"
            space.files.write("/notes/same", f"shared words, {secret}")
            space.files.append("/notes/same", "shared again")
            space.records.create(type="note", content={"text": f"shared record, {secret}"}, source="s", confidence=1)
            ids[name] = book.store.get(name, "file", ["\x01notes\x01same"])[0].id  # type: ignore[union-attr]
        for name in names:
            space = book.space(*name)
            store = book.store
            own = f"secret of {'|'.join(name)}"
            foreign = {f"secret of {'|'.join(other)}'" for other in names if other != name}
            seen = [
                space.files.read("/notes/same"),
                [hit.entry for hit in space.search("shared secret words", limit=100)],
                store.scan(name, Scan(limit=100)).entries,
                store.scan(name, Scan(limit=100, order="updated", as_of=2**60)).entries,
                store.former(name, store.changes(name)[0].at, Filter()),
                [space.state("file", "/notes/same", line.revision) for line in space.history("file", "/notes/same")],
                space.records.list().records,
                store.load(name, list(ids.values())),
                [store.load(name, [c.entry_id]) for c in store.search_text(name, query_terms("shared"), Filter(), 99)],
            ]
            told = repr(seen).replace("\\n", "'")
            assert own in told
            assert not [
                secret for secret in foreign if secret.rstrip("'") + "'" in told or secret.rstrip("'") + '"' in told
            ]
            for entry in store.scan(name, Scan(limit=100)).entries:
                assert entry.namespace == name
            assert set(store.load(name, list(ids.values()))) == {ids[name]}
            assert [change.commit for change in space.changes()] == [1, 1, 2, 3]
            assert [info.path for info in space.files.walk()] == ["/notes", "/notes/same"]
            assert len(space.search("shared", limit=100)) == 2
            assert store.namespace_stats(name).entries == {"directory": 1, "file": 1, "record": 1}


class _Same:
    """An embedder to whom all texts are alike, so that every stored text is a candidate."""

    identity, dimensions, calibration = "same@1", 4, (0.0, 1.0)

    def embed(self, texts: Any, *, purpose: str) -> Any:
        import numpy as np

        return np.full((len(texts), 4), 0.5, np.float32)


def test_a_search_below_a_namespace_ends_at_a_label(book: commonplace.Book) -> None:
    for name in (("user",), ("user", "u1"), ("user", "u1", "x"), ("user", "u10"), ("users",)):
        book.space(*name).files.write("/n", "pineapple")
    found = book.space("user", "u1").search("pineapple", below=True)
    assert sorted(hit.entry.namespace for hit in found) == [("user", "u1"), ("user", "u1", "x")]
    assert [hit.entry.namespace for hit in book.space("user").search("pineapple")] == [("user",)]


@pytest.mark.parametrize("label", ["", " ", "a/b", "/", "a\nb", "\x00", "x" * 201, "\ud800", "\u2028"])
def test_a_label_that_could_reach_another_namespace_is_refused(book: commonplace.Book, label: str) -> None:
    with pytest.raises(commonplace.InvalidInput):
        book.space("user", label)
    with pytest.raises(commonplace.InvalidInput):
        book.space()


# Erasing


def everything_in(path: Path) -> bytes:
    """Every byte beside the book, and every compressed piece in its rows unpacked."""
    raw = b"".join(
        file.read_bytes()
        for file in sorted(path.parent.iterdir())
        if file.is_file() and file.name.startswith(path.name)
    )
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    unpacked = []
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
    for table in tables:
        if table == "keywords":
            continue
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            for value in row:
                unpacked.append(json.dumps(value).encode() if not isinstance(value, bytes) else value)
                if isinstance(value, bytes):
                    for start in range(min(20, len(value))):
                        try:
                            unpacked.append(zlib.decompressobj().decompress(value[start:]))
                        except zlib.error:
                            continue
    connection.close()
    return raw + b"\n".join(unpacked)


def appears(path: Path, word: str) -> bool:
    held = everything_in(path)
    # FTS5 stores a term without what it shares with the one before it, so the end of a word is looked for.
    return any(form.encode() in held for form in (word, word[3:], word.upper()))


@pytest.mark.promise("engine-purge")
@pytest.mark.parametrize("how", ["live", "deleted", "edited", "appended", "moved", "long", "directory", "namespace"])
def test_a_purged_text_is_in_no_file_any_more(open_book: Any, tmp_path: Path, how: str, clock: Any) -> None:
    book = open_book(durability="full")
    path = tmp_path / "book.db"
    space = book.space("user", "u1")
    word, name = "xqzvtplkwrd", "jvqkznmfilename"
    for number in range(30):
        space.files.write(f"/other/{number}", f"other words {number} " * 30)
    file = f"/dir/{name}"
    text = f"before {word} after" if how != "long" else f"filler text {word} more. " * 400
    space.files.write(file, text)
    space.search(word)
    clock.advance()
    if how == "deleted":
        space.files.delete(file)
    elif how == "edited":
        space.files.replace(file, word, "harmless" * 40)
        space.files.write(file, "harmless altogether")
    elif how == "appended":
        space.files.append(file, f"and {word} " * 200)
        space.files.replace(file, "and", "or")
    elif how == "moved":
        space.files.move(file, "/dir/plain")
        file = "/dir/plain"
    elif how == "directory":
        space.files.move("/dir", "/renamed")
        file = f"/renamed/{name}"
    assert appears(path, word)
    if how == "namespace":
        space.purge()
    else:
        space.purge("file", file)
    assert not appears(path, word)
    assert not appears(path, name)
    if how != "namespace":
        assert len(space.search("other words", limit=50)) == 30
    assert book.verify() == []


@pytest.mark.promise("engine-purge")
def test_a_purge_beside_writers_of_the_same_book_erases_as_well(open_book: Any, tmp_path: Path) -> None:
    book = open_book(durability="full")
    path = tmp_path / "book.db"
    space, others = book.space("user", "u1"), book.space("user", "u2")
    is_over = threading.Event()

    def slow(text: str) -> str:
        time.sleep(0.002)
        return text + "x"

    def write_on() -> None:
        others.files.write("/w", "x")
        while not is_over.is_set():
            others.files.edit("/w", slow)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_on)
        try:
            for number in range(20):
                space.files.write("/secret", f"xqzvtplkwrd{number:02}")
                assert space.purge("file", "/secret") == 1
        finally:
            is_over.set()
        writing.result()
    assert not appears(path, "xqzvtplkwrd")


@pytest.mark.promise("engine-purge")
def test_a_purge_that_a_long_read_held_up_is_finished_by_the_next(open_book: Any, tmp_path: Path) -> None:
    book = open_book(durability="full", busy_seconds=0.2)
    space = book.space("user", "u1")
    space.files.write("/secret", "xqzvtplkwrd")
    reading = book.store.export()
    next(reading)
    with pytest.raises(Unavailable, match="purge again"):
        space.purge("file", "/secret")
    reading.close()
    space.purge("file", "/secret")
    assert not appears(tmp_path / "book.db", "xqzvtplkwrd")


@pytest.mark.promise("engine-purge")
def test_a_purged_record_and_its_tags_are_in_no_file_any_more(open_book: Any, tmp_path: Path) -> None:
    book = open_book(durability="full")
    space = book.space("user", "u1")
    word, tag = "kqzvtplkwrd", "zzqxjvtag"
    record = space.records.create(
        type="note", content={"secret": {word: [word * 30]}}, source=f"from-{word}", confidence=0.5, tags=[tag]
    )
    kept = space.records.create(type="note", content="kept words", source="s", confidence=0.5, tags=["kept"])
    space.search(word)
    space.records.update(record.id, content="harmless", tags=[], source="s2")
    assert appears(tmp_path / "book.db", word)
    space.purge("record", record.id)
    assert not appears(tmp_path / "book.db", word)
    assert not appears(tmp_path / "book.db", tag)
    assert [hit.key for hit in space.search("kept", tags=["kept"])] == [kept.id]
    assert book.verify() == []


def test_purging_old_history_erases_the_former_texts_only(open_book: Any, tmp_path: Path, clock: Any) -> None:
    book = open_book()
    space = book.space("user", "u1")
    space.files.write("/n", "first qqzxwordone")
    clock.advance(10)
    space.files.write("/n", "second qqzxwordtwo")
    clock.advance(10)
    space.files.write("/n", "third qqzxwordthree")
    middle = commonplace.checks.moment(clock.now - 5_000_000)  # type: ignore[attr-defined]
    assert space.purge(history_before=middle) == 1
    held = everything_in(tmp_path / "book.db")
    assert [bool(re.search(word, held)) for word in (b"qqzxwordone", b"qqzxwordtwo", b"qqzxwordthree")] == [
        False,
        True,
        True,
    ]
    assert space.files.read("/n", as_of=middle) == "second qqzxwordtwo"


def test_nothing_of_a_failed_write_stays_in_the_file(open_book: Any, tmp_path: Path) -> None:
    book = open_book(durability="full")

    def work(transaction: Any) -> None:
        transaction.put(Draft("file", "k", "vvqzxkword"))
        raise LookupError

    with pytest.raises(LookupError):
        book.store.write(("user", "u1"), work)
    assert not appears(tmp_path / "book.db", "vvqzxkword")
