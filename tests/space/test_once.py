"""A creation under a caller's key is made once, however often and by however many it is asked for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import get_args

import pytest

import commonplace
from commonplace import Space
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.space.handle import KEPT_SECONDS, Operation
from doubles import Clock, OpenBook


def remember(space: Space, key: str, text: str = "tea", fingerprint: str = "f") -> object:
    return space.once(key, fingerprint).records.create(type="note", content={"text": text}, source="s", confidence=0.9)


@pytest.mark.promise("once-creation")
def test_a_repeated_creation_gives_the_first_answer_and_makes_nothing(space: Space) -> None:
    first = remember(space, "k")
    commit = space.stats().commit
    assert remember(space, "k") == first
    assert space.stats().commit == commit
    assert space.stats().entries == {"record": 1}
    assert remember(space, "other key") != first


def test_the_first_answer_comes_even_when_it_was_changed_or_deleted_since(space: Space) -> None:
    thread = space.once("k", "f").threads.create("first")
    space.threads.update(thread.id, title="second")
    assert space.once("k", "f").threads.create("first").title == "first"
    space.threads.delete(thread.id)
    assert space.once("k", "f").threads.create("first").id == thread.id
    assert space.stats().entries == {}


@pytest.mark.promise("once-creation")
def test_a_call_that_had_nothing_to_change_is_not_made_later(space: Space) -> None:
    thread = space.threads.create("mine")
    space.files.write("/f", "mine")
    space.threads.working.write({"name": "mine"})
    calls = (
        lambda: space.once("edit", "f").files.edit("/f", lambda _: "mine"),
        lambda: space.once("directory", "f").files.make_directory("/d"),
        lambda: space.once("title", "f").threads.update(thread.id, title="mine"),
        lambda: space.once("working", "f").threads.working.write({"name": "mine"}),
        lambda: space.once("messages", "f").threads.add(thread.id, []),
    )
    space.files.make_directory("/d")
    first = [call() for call in calls]
    space.files.write("/f", "another's")
    space.files.delete("/d")
    space.threads.update(thread.id, title="another's")
    space.threads.working.write({"name": "another's"})
    commit = space.stats().commit
    assert [call() for call in calls] == first
    assert space.stats().commit == commit
    with pytest.raises(Conflict, match="used for another request; send a new one"):
        space.once("edit", "g").files.edit("/f", lambda _: "other")


def test_messages_are_added_once(space: Space) -> None:
    thread = space.threads.create()
    said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    first = space.once("k", "f").threads.add(thread.id, said)
    assert space.once("k", "f").threads.add(thread.id, said) == first
    assert space.threads.messages(thread.id).messages == first


@pytest.mark.promise("once-conflict")
def test_a_key_for_another_request_is_refused(space: Space) -> None:
    remember(space, "k")
    with pytest.raises(Conflict, match="used for another request; send a new one"):
        remember(space, "k", "coffee", "g")
    assert space.stats().entries == {"record": 1}


@pytest.mark.promise("once-conflict")
def test_a_key_for_another_call_is_refused(space: Space) -> None:
    thread = space.threads.create()
    space.once("k", "f").files.write("/a", "text")
    again = space.once("k", "f")
    for call in (
        lambda: remember(space, "k"),
        lambda: again.threads.create(),
        lambda: again.threads.add(thread.id, [{"role": "user", "content": "x"}]),
        lambda: again.threads.working.write({"a": 1}),
        lambda: again.files.append("/a", "more"),
        lambda: again.files.delete("/a"),
    ):
        with pytest.raises(Conflict, match="used for another request; send a new one"):
            call()
    assert again.files.write("/a", "text").revision == 1
    assert space.stats().entries == {"file": 1, "thread": 1}


def test_a_failed_creation_leaves_its_key_free(space: Space) -> None:
    with pytest.raises(NotFound):
        space.once("k", "f").threads.add("missing", [{"role": "user", "content": "x"}])
    thread = space.once("k", "f").threads.create()
    assert space.threads.get(thread.id) == thread


def test_keys_are_of_one_namespace_and_last_a_day(open_book: OpenBook, clock: Clock) -> None:
    book = open_book()
    one, two = book.space("user", "one"), book.space("user", "two")
    first = remember(one, "k")
    assert remember(two, "k") != first
    clock.advance(KEPT_SECONDS - 1)
    assert remember(one, "k") == first
    clock.advance(2)
    assert remember(one, "k") != first


def test_of_eight_who_ask_at_once_all_get_the_same_record(space: Space) -> None:
    made: list[object] = []
    threads = [threading.Thread(target=lambda: made.append(remember(space, "k"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert all(record == made[0] for record in made)
    assert space.stats().entries == {"record": 1}


def test_erased_creations_are_told(space: Space) -> None:
    thread = space.once("k", "f").threads.create()
    space.purge("thread", thread.id)
    with pytest.raises(NotFound, match="erased since"):
        space.once("k", "f").threads.create()


def test_a_purge_leaves_no_name_of_what_was_made_under_a_key(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        space = book.space("user", "u1")
        space.once("k", "f").threads.create(id="chat-with-ada")
        space.purge("thread", "chat-with-ada")
        assert not [file for file in tmp_path.iterdir() if b"chat-with-ada" in file.read_bytes()]
        with pytest.raises(NotFound, match="erased since"):
            space.once("k", "f").threads.create(id="chat-with-ada")


def test_bad_keys_and_calls_that_make_nothing_are_told(space: Space) -> None:
    for bad in ("", " ", "a\nb", "x" * 300):
        with pytest.raises(InvalidInput, match="idempotency key"):
            space.once(bad, "f")
    with pytest.raises(InvalidInput, match="does not support an idempotency key"):
        space.once("d", "f").threads.delete_messages(["x"])
    space.files.write("/a", "a a a")
    with pytest.raises(InvalidInput, match="an idempotency key cannot be used for a replacement; leave it out"):
        space.once("r", "f").files.replace("/a", "a", "b")
    assert space.files.read("/a") == "a a a"


STORED_NAMES = {
    "Files.append.<locals>.work": lambda space: space.files.append("/f", "more"),
    "Files.edit.<locals>.work": lambda space: space.files.edit("/f", str.upper),
    "Files.make_directory.<locals>.work": lambda space: space.files.make_directory("/d"),
    "Files.write.<locals>.work": lambda space: space.files.write("/new", "text"),
    "Items.write_all.<locals>.work": lambda space: space.items.put("k", {"n": 1}),
    "Records.create.<locals>.work": lambda space: space.records.create(
        type="note", content={"text": "tea"}, source="s", confidence=0.9
    ),
    "Records.update.<locals>.work": lambda space: space.records.update("r", confidence=0.5),
    "ThreadMessages.add.<locals>.work": lambda space: space.threads.add("t", [{"role": "user", "content": "hi"}]),
    "ThreadMessages.replace_messages.<locals>.work": lambda space: space.threads.replace_messages(
        "t", [{"role": "user", "content": "hi"}], seen={"m": 1}
    ),
    "ThreadMessages.update_message.<locals>.work": lambda space: space.threads.update_message("m", content="bye"),
    "Threads.begin.<locals>.work": lambda space: space.threads.begin([{"role": "user", "content": "hi"}]),
    "Threads.clone.<locals>.work": lambda space: space.threads.clone("t"),
    "Threads.create.<locals>.work": lambda space: space.threads.create("title"),
    "Threads.suggest_title.<locals>.work": lambda space: space.threads.suggest_title("untitled", "title"),
    "Threads.transfer.<locals>.work": lambda space: space.threads.transfer("t", "other"),
    "Threads.update.<locals>.work": lambda space: space.threads.update("t", title="new"),
    "WorkingMemories.write.<locals>.work": lambda space: space.threads.working.write({"name": "Ana"}),
}
"""Every name that is stored with a key. Keys are remembered over an upgrade, so a name here must never change."""

WITHOUT_RESULT = {
    "Files.delete",
    "Files.move",
    "Files.write_all",
    "Items.clear",
    "Items.delete",
    "Items.refresh",
    "MemoryStores.delete_memory",
    "MemoryStores.update_memory",
    "Records.delete",
    "Records.delete_all",
    "Records.tag_all",
    "Space.import",
    "Records.undelete",
    "Space.restore",
    "Space.undo",
    "ThreadMessages.clear",
    "ThreadMessages.delete_messages",
    "Threads.delete",
    "WorkingMemories.clear",
}
"""Operations that return no entry and so cannot be made once, or that no key reaches (memory stores)."""


def test_every_operation_name_is_pinned() -> None:
    with_result = {name.removesuffix(".<locals>.work") for name in STORED_NAMES}
    assert set(get_args(Operation)) == with_result | WITHOUT_RESULT


@pytest.mark.parametrize("name", STORED_NAMES)
def test_a_key_from_before_an_upgrade_still_answers(space: Space, book: commonplace.Book, name: str) -> None:
    space.files.write("/f", "text")
    space.records.create(type="note", content={"text": "coffee"}, source="s", confidence=0.9, id="r")
    space.threads.create("first", id="t")
    space.threads.create(id="untitled")
    space.threads.add("t", [{"id": "m", "role": "user", "content": "hello"}])
    first = STORED_NAMES[name](space.once("k", "f"))
    known = []
    book.store.write(space.namespace, lambda transaction: known.append(transaction.operation("k")))
    assert known[0]["operation"] == name
    commit = space.stats().commit
    assert STORED_NAMES[name](space.once("k", "f")) == first
    assert space.stats().commit == commit
