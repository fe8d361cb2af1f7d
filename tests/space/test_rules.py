"""What a handle may do holds below every face: its actions, how much its namespace holds, what its texts contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import commonplace
from commonplace import Space
from commonplace.entry import Draft
from commonplace.errors import Forbidden, InvalidInput, TooLarge
from commonplace.space.rules import Action, Rules

NOTE = {"type": "note", "content": {"text": "tea"}, "source": "s", "confidence": 0.9}

Change = Callable[[Space], object]
WRITES: dict[str, Change] = {
    "files.write": lambda space: space.files.write("/b", "x"),
    "files.append": lambda space: space.files.append("/a", "x"),
    "files.replace": lambda space: space.files.replace("/a", "text", "x"),
    "files.insert": lambda space: space.files.insert("/a", 0, "x"),
    "files.make_directory": lambda space: space.files.make_directory("/d"),
    "files.move": lambda space: space.files.move("/a", "/b"),
    "records.create": lambda space: space.records.create(**{**NOTE, "content": {"text": "x"}}),  # type: ignore[arg-type]
    "records.update": lambda space: space.records.update("r", confidence=0.1),
    "threads.create": lambda space: space.threads.create(),
    "threads.update": lambda space: space.threads.update("t", title="x"),
    "threads.clone": lambda space: space.threads.clone("t"),
    "threads.add": lambda space: space.threads.add("t", [{"role": "user", "content": "x"}]),
    "threads.update_message": lambda space: space.threads.update_message("m", content="x"),
    "working.write": lambda space: space.threads.working.write({"a": 2}),
    "restore": lambda space: space.restore("file", "/a", 1),
    "undo": lambda space: space.undo(1),
}
DELETES: dict[str, Change] = {
    "files.delete": lambda space: space.files.delete("/a"),
    "records.delete": lambda space: space.records.delete("r"),
    "threads.delete": lambda space: space.threads.delete("t"),
    "threads.delete_messages": lambda space: space.threads.delete_messages(["m"]),
    "working.clear": lambda space: space.threads.working.clear(),
}
ERASURES: dict[str, Change] = {"purge": lambda space: space.purge()}


@pytest.fixture
def filled(book: commonplace.Book) -> commonplace.Book:
    space = book.space("user", "u1")
    space.files.write("/a", "text")
    space.files.write("/a", "text again")
    space.records.create(**NOTE, id="r")  # type: ignore[arg-type]
    space.threads.create(id="t")
    space.threads.add("t", [{"role": "user", "content": "hello", "id": "m"}])
    space.threads.working.write({"a": 1})
    return book


def space_with(book: commonplace.Book, *actions: Action) -> Space:
    return book.space("user", "u1", rules=Rules(frozenset(actions)))


@pytest.mark.promise("rules-actions")
@pytest.mark.parametrize(
    "change", [*WRITES.values(), *DELETES.values(), *ERASURES.values()], ids=[*WRITES, *DELETES, *ERASURES]
)
def test_who_may_only_read_changes_nothing_by_any_method(filled: commonplace.Book, change: Change) -> None:
    before = filled.space("user", "u1").stats()
    with pytest.raises(Forbidden, match="may not"):
        change(space_with(filled, "read"))
    assert filled.space("user", "u1").stats() == before


@pytest.mark.parametrize("change", [*DELETES.values(), *ERASURES.values()], ids=[*DELETES, *ERASURES])
def test_who_may_write_deletes_nothing(filled: commonplace.Book, change: Change) -> None:
    with pytest.raises(Forbidden):
        change(space_with(filled, "read", "write"))


def test_each_method_works_with_its_action(filled: commonplace.Book) -> None:
    writer, deleter = space_with(filled, "read", "write"), space_with(filled, "read", "delete")
    assert writer.search("tea").hits
    for name, change in WRITES.items():
        if name not in ("files.move", "undo"):
            change(writer)
    for change in DELETES.values():
        change(deleter)
    space_with(filled, "admin").purge()
    assert filled.space("user", "u1").stats().entries == {}


@pytest.mark.promise("rules-namespace-limits")
def test_a_namespace_that_is_full_takes_nothing_more_but_gives_up_what_it_has(book: commonplace.Book) -> None:
    space = book.space("user", "u1", rules=Rules(max_entries=3))
    for number in range(3):
        space.files.write(f"/{number}", "x")
    with pytest.raises(TooLarge, match="would hold 4 entries; at most 3 are allowed; delete some first"):
        space.files.write("/3", "x")
    space.files.write("/2", "another text is no entry more")
    smaller = book.space("user", "u1", rules=Rules(max_entries=2))
    with pytest.raises(TooLarge):
        smaller.files.write("/3", "x")
    smaller.files.write("/1", "a change is allowed even when there are too many")
    smaller.files.delete("/1")
    book.space("user", "u2", rules=Rules(max_entries=1)).files.write("/only", "x")


def test_bytes_are_limited_too(book: commonplace.Book) -> None:
    space = book.space("user", "u1", rules=Rules(max_bytes=1_000))
    space.files.write("/a", "x" * 900)
    with pytest.raises(TooLarge, match="bytes; at most 1,000 are allowed"):
        space.files.append("/a", "y" * 200)
    assert space.files.read("/a") == "x" * 900


def test_a_screen_holds_on_every_way_of_writing(filled: commonplace.Book) -> None:
    def screen(draft: Draft) -> Draft:
        if "forbidden" in draft.searchable:
            raise InvalidInput("no such words")
        return replace(draft, text="masked", value={"masked": True}) if draft.kind == "record" else draft

    space = filled.space("user", "u1", rules=Rules(screen=screen))
    with pytest.raises(InvalidInput):
        space.files.append("/a", "forbidden")
    with pytest.raises(InvalidInput):
        space.threads.add("t", [{"role": "user", "content": "forbidden"}])
    assert space.files.read("/a") == "text again"
    space.threads.add("t", [{"role": "user", "content": "allowed"}])
