"""A book moves between backends with everything and its history, and goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace.cli import main
from commonplace.errors import Conflict
from commonplace.exchange.move import Moved, move_book
from commonplace.store import NamespaceHead, Store
from doubles import START, Clock, WordEmbedder
from postgres_server import shared_server

HOUR = 3_600_000_000


@pytest.fixture
def books(tmp_path: Path) -> Iterator[dict[str, commonplace.Book]]:
    places = {
        "file": str(tmp_path / "book.db"),
        "other file": str(tmp_path / "other.db"),
        "server": shared_server().create_database() + "?partitions=2",
        "other server": shared_server().create_database() + "?partitions=3",
    }
    opened = {
        name: commonplace.open(url, embedder=WordEmbedder(), clock=Clock(), background=False)
        for name, url in places.items()
    }
    yield opened
    for book in opened.values():
        book.close()


def fill(book: commonplace.Book) -> None:
    clock: Any = book.store._clock  # type: ignore[attr-defined]
    for name in ("u1", "u2", "u3"):
        space = book.space("user", name, actor="tester")
        for number in range(12):
            clock.advance(1)
            space.files.write(f"/d/{number}", f"words {number} of {name}")
            space.files.append(f"/d/{number}", "and more ✓")
        space.files.move("/d/1", "/d/moved")
        space.files.delete("/d/2")
        space.records.create(type="note", content={"a": [1, 2.5, None]}, source="s", confidence=0.5, tags=["x"])
        thread = space.threads.create(title="talk")
        space.threads.add(thread.id, [{"role": "user", "content": "hello"}])
    book.store.system_put("keys", "k1", {"hash": "…"})


def told(store: Store) -> list[Any]:
    """Everything in a store, but for ids."""
    numbers: dict[int, int] = {}
    lines: list[Any] = []
    for item in store.export():
        if isinstance(item, NamespaceHead):
            lines.append(item)
        else:
            entry = item.entry
            number = numbers.setdefault(entry.id, len(numbers))
            lines.append((number, entry.key, entry.value, entry.revision, entry.commit, entry.actor, item))
    return [line if isinstance(line, NamespaceHead) else line[:-1] for line in lines]


@pytest.mark.promise("move-between-backends")
@pytest.mark.parametrize(
    ("source", "target"), [("file", "server"), ("server", "file"), ("server", "other server"), ("file", "other file")]
)
def test_a_moved_book_holds_everything_and_its_history(
    books: dict[str, commonplace.Book], source: str, target: str
) -> None:
    old, new = books[source], books[target]
    fill(old)
    seen: list[tuple[int, int | None, str]] = []
    moved = move_book(old.store, new.store, lambda *step: seen.append(step))
    assert moved.namespaces == 3
    assert moved.already_there == 0
    assert told(new.store) == told(old.store)
    assert new.verify() == []
    assert new.store.system_get("keys", "k1") == {"hash": "…"}
    assert seen[-1] == (moved.states, moved.states, "states")
    for book in (old, new):
        book.reindex()  # a search waits for missing vectors only for a moment
    spaces = [book.space("user", "u2") for book in (old, new)]
    assert [hit.entry.key for hit in spaces[0].search("words 7")] == [
        hit.entry.key for hit in spaces[1].search("words 7")
    ]
    assert spaces[1].history("file", "/d/2") == spaces[0].history("file", "/d/2")
    assert spaces[1].files.write("/new", "life goes on") is not None
    assert move_book(old.store, books["other file" if target != "other file" else "server"].store).namespaces == 3


@pytest.mark.promise("move-there-and-back")
def test_a_book_that_was_moved_there_and_back_is_the_same_and_can_be_undone_and_searched(tmp_path: Path) -> None:
    places = [
        str(tmp_path / "book.db"),
        shared_server().create_database() + "?partitions=2",
        str(tmp_path / "back.db"),
    ]

    def opened(place: str) -> commonplace.Book:
        return commonplace.open(place, embedder=WordEmbedder(), clock=Clock(START + HOUR), background=False)

    with opened(places[0]) as book:
        fill(book)
        space = book.space("user", "u2")
        removed = space.files.delete("/d")
        space.files.write("/d/3", "begun anew")
        book.reindex()
    assert main(["move", places[0], places[1]]) == 0
    assert main(["move", places[1], places[2]]) == 0
    seen: list[list[Any]] = []
    for place in places:
        with opened(place) as book:
            indexing = book.store.indexing()
            if place == places[0]:
                assert indexing.pending == 0
            else:
                assert (indexing.serving, indexing.pending > 0) == (None, True)  # its vectors stayed where they were
                book.reindex()
                assert book.store.indexing().pending == 0
            assert book.verify() == []
            space = book.space("user", "u2")
            hits = space.search("words begun anew").hits
            assert {"keyword", "meaning"} <= hits[0].parts.keys()
            look: list[Any] = [told(book.store), [(hit.key, pytest.approx(hit.score, abs=2e-4)) for hit in hits]]
            look += [space.history("file", f"/d/{name}") for name in ("1", "2", "3", "moved")]
            with pytest.raises(Conflict, match="directory /d exists again"):
                space.undo(removed.commit)
            space.files.delete("/d")
            assert space.undo(removed.commit) is not None
            look += [space.files.read("/d/3"), space.changes()]
            seen.append(look)
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


@pytest.mark.promise("move-resumes")
def test_a_move_that_was_stopped_goes_on_where_it_was(
    books: dict[str, commonplace.Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = books["file"], books["server"]
    fill(old)

    def stop(done: int, total: int | None, word: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move_book(old.store, new.store, stop)
    assert new.namespaces() == [("user", "u1")]
    again = move_book(old.store, new.store)
    assert (again.namespaces, again.already_there) == (2, 1)
    assert told(new.store) == told(old.store)
    states = sum(1 for item in old.store.export() if not isinstance(item, NamespaceHead))
    assert move_book(old.store, new.store) == Moved(0, 0, 3)
    assert again.states < states


def test_a_namespace_that_holds_something_else_is_not_overwritten(books: dict[str, commonplace.Book]) -> None:
    old, new = books["file"], books["server"]
    fill(old)
    new.space("user", "u2").files.write("/mine", "stays")
    with pytest.raises(Conflict, match="user/u2"):
        move_book(old.store, new.store)
    assert new.space("user", "u2").files.read("/mine") == "stays"


@pytest.mark.promise("cli-move-and-migrate")
def test_the_command_moves_and_migrates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(tmp_path / "book.db"), shared_server().create_database() + "?partitions=2"
    with commonplace.open(source, background=False) as book:
        book.space("user", "u1").files.write("/a", "text")
    assert main(["--db", target, "migrate"]) == 0
    assert "has the schema of this program" in capsys.readouterr().out
    assert main(["move", source, target]) == 0
    assert capsys.readouterr().out == "moved 1 namespace with 1 state, all compared\n"
    assert main(["move", source, target, "--json"]) == 0
    assert '"already_there": 1' in capsys.readouterr().out
    assert main(["--db", target, "--namespace", "user/u1", "cat", "/a"]) == 0
    assert capsys.readouterr().out.strip() == "text"
    assert main(["--db", target, "vector-index", "user/u1"]) == 0
    assert main(["--db", source, "vector-index", "user/u1"]) == 2
    assert main(["move", str(tmp_path / "missing.db"), target]) == 3
    assert main(["move", source, source]) == 2
    assert "postgres@" not in capsys.readouterr().out
