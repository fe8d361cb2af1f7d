"""What a handle may do holds below every face: its actions, how much its namespace holds, what its texts contain."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

import commonplace
from commonplace import Space
from commonplace.entry import Draft
from commonplace.errors import Forbidden, InvalidInput, TooLarge
from commonplace.space.rules import Action, Meter, Rules

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
    with pytest.raises(Forbidden, match="is not permitted"):
        change(space_with(filled, "read"))
    assert filled.space("user", "u1").stats() == before


@pytest.mark.parametrize("change", [*DELETES.values(), *ERASURES.values()], ids=[*DELETES, *ERASURES])
def test_who_may_write_deletes_nothing(filled: commonplace.Book, change: Change) -> None:
    with pytest.raises(Forbidden):
        change(space_with(filled, "read", "write"))


@pytest.mark.parametrize("only", ["write", "delete"])
def test_a_replacement_of_messages_needs_both_actions(filled: commonplace.Book, only: Action) -> None:
    with pytest.raises(Forbidden):
        space_with(filled, "read", only).threads.replace_messages("t", [], seen={"m": 1})
    space_with(filled, "read", "write", "delete").threads.replace_messages("t", [], seen={"m": 1})


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


@pytest.mark.promise("rules-namespace-limits")
def test_bytes_are_limited_and_history_counts(book: commonplace.Book) -> None:
    """310 states of 1.5 kB passed under a limit of 2,000 bytes: only the last of them counted."""
    space = book.space("user", "u1", rules=Rules(max_bytes=1_000))
    space.files.write("/a", "x" * 400)
    told = r"would hold 1,\d+ bytes; at most 1,000 are allowed, and 4\d\d are used by entries and 0 by their history"
    with pytest.raises(TooLarge, match=told):
        space.files.write("/b", "y" * 700)

    def replace_often() -> None:
        for number in range(10):
            space.files.write("/a", hashlib.sha256(b"%d" % number).hexdigest() * 6)

    with pytest.raises(TooLarge, match="purge it"):
        replace_often()
    stats = space.stats()
    assert stats.bytes + stats.former_bytes <= 1_000
    assert stats.former_bytes > 200
    space.files.delete("/a")  # who is full can still delete, though history keeps it
    with pytest.raises(TooLarge):
        space.restore("file", "/a", 1)
    space.purge()
    space.files.write("/a", "there is room again")


def test_limits_of_a_root_count_everything_below_it(book: commonplace.Book) -> None:
    rules = Rules(max_entries=3, root=("user", "u1"))
    spaces = [book.space("user", "u1", "agent", f"{number}", rules=rules) for number in range(4)]
    book.space("user", "u2").files.write("/other", "x")
    for space in spaces[:3]:
        space.files.write("/a", "x")
    with pytest.raises(TooLarge, match="user/u1 and below would hold 4 entries; at most 3 are allowed"):
        spaces[3].files.write("/a", "x")
    book.space("user", "u1", "agent", "0").files.delete("/a")  # not counted by these rules: it is read again
    spaces[3].files.write("/a", "x")


def test_what_is_below_a_root_is_not_summed_for_every_write(monkeypatch: pytest.MonkeyPatch) -> None:
    book = commonplace.open(":memory:", background=False)
    sums: list[object] = []
    usage = book.store.usage
    monkeypatch.setattr(book.store, "usage", lambda prefix: (sums.append(prefix), usage(prefix))[1])
    moment = [0.0]
    monkeypatch.setattr(book, "_meter", Meter(book.store, lambda: moment[0]))
    rules = Rules(max_bytes=1_000_000, root=("user",))
    for number in range(10):
        book.space("user", f"u{number}", rules=rules).files.write("/a", "x")
    assert sums == [("user",)]
    smaller = Rules(max_bytes=2_000, root=("user",))
    before = len(sums)
    while True:  # the room that is left gets smaller, and is looked at more often
        try:
            book.space("user", "u1", rules=smaller).files.write(f"/{len(sums)}", "x" * 50)
        except TooLarge:
            break
    assert len(sums) - before > 10
    sums[1:] = []
    moment[0] = 1.5
    book.space("user", "u1", rules=rules).files.write("/a", "y")
    assert len(sums) == 2


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
