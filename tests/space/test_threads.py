"""Threads: made, found by id and resource, listed by last use, changed, deleted with all they hold, and copied."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from commonplace import AlreadyExists, Conflict, Forbidden, InvalidInput, NotFound, TooLarge
from commonplace.space.conversation import Thread

START = datetime(2025, 6, 15, 15, 6, 40, tzinfo=UTC)


def say(space, thread, *texts, role="user"):
    return space.threads.add(thread.id, [{"role": role, "content": text} for text in texts])


def texts(messages):
    return [message.content for message in messages]


def all_texts(space, thread):
    return texts(space.threads.messages(thread.id).messages)


# Made and found


def test_a_new_thread_has_an_id_and_belongs_to_the_last_label_of_its_namespace(space):
    thread = space.threads.create(title="Deploys")

    assert thread == Thread(thread.id, "u1", "Deploys", {}, thread.created_at, thread.created_at)
    assert space.threads.get(thread.id) == thread


def test_a_thread_takes_the_id_resource_and_metadata_that_it_is_given(space):
    thread = space.threads.create("Hi", resource="u2", metadata={"pinned": True}, id="t-1")

    assert (thread.id, thread.resource_id, thread.metadata) == ("t-1", "u2", {"pinned": True})
    with pytest.raises(AlreadyExists, match="a thread with id t-1 exists already"):
        space.threads.create(id="t-1")


def test_a_thread_begins_with_its_messages_in_one_change_and_is_the_same_when_they_are_sent_again(space):
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello", "id": "m1"},
        {"role": "assistant", "content": "good day", "id": "m2"},
    ]
    messages = space.threads.begin(said, "Greetings", resource="u2")
    [thread] = space.threads.list().threads

    assert {message.thread_id for message in messages} == {thread.id}
    assert (thread.title, thread.resource_id, all_texts(space, thread)) == ("Greetings", "u2", ["hello", "good day"])
    assert {change.commit for change in space.changes()} == {1}
    assert space.threads.begin(said, "Greetings", resource="u2") == messages
    assert space.stats().commit == 1


@pytest.mark.parametrize(
    ("messages", "error", "reason"),
    [
        ([], InvalidInput, "there is nothing to save"),
        ([{"role": "system", "content": "x"}], InvalidInput, "there is nothing to save"),
        ([{"role": "user", "content": "x", "resourceId": "u2"}], InvalidInput, "has the resourceId 'u2'"),
        ([{"role": "user", "content": "x", "id": "m1"}], Conflict, "with a different content"),
        (
            [{"role": "user", "content": "hi", "id": "m1"}, {"role": "user", "content": "x"}],
            Conflict,
            "in thread t already",
        ),
        (
            [{"role": "user", "content": "x", "id": "n"}, {"role": "user", "content": "y", "id": "n"}],
            Conflict,
            "another",
        ),
        ([{"role": "user", "content": "hi", "id": "other"}], Conflict, "in thread theirs already"),
    ],
)
def test_a_beginning_that_is_refused_leaves_nothing(space, messages, error, reason):
    for thread, resource, message in (("t", None, "m1"), ("theirs", "u2", "other")):
        space.threads.create(id=thread, resource=resource)
        space.threads.add(thread, [{"role": "user", "content": "hi", "id": message}])
    before = space.stats()
    with pytest.raises(error, match=reason):
        space.threads.begin(messages)
    assert space.stats() == before


@pytest.mark.promise("conversations-thread-missing")
def test_a_missing_thread_is_told_by_its_id(space):
    for call in (
        lambda: space.threads.get("nope"),
        lambda: space.threads.messages("nope"),
        lambda: space.threads.add("nope", [{"role": "user", "content": "x"}]),
        lambda: space.threads.recall("nope"),
        lambda: space.threads.delete("nope"),
        lambda: space.threads.update("nope", title="x"),
        lambda: space.threads.clone("nope"),
        lambda: space.threads.working.read(thread="nope"),
        lambda: space.threads.working.write("x", thread="nope"),
    ):
        with pytest.raises(NotFound, match=r"^No thread found with id nope$"):
            call()


@pytest.mark.promise("conversations-thread-of-another-resource")
def test_a_thread_of_another_resource_is_refused_by_every_call_that_names_one(space):
    thread = space.threads.create(resource="A", id="X")
    [message] = say(space, thread, "hello")
    before = space.threads.get("X")
    message_text = "Thread with id X is for resource with id A but resource B was queried."

    for call in (
        lambda: space.threads.get("X", resource="B"),
        lambda: space.threads.messages("X", resource="B"),
        lambda: space.threads.add("X", [{"role": "user", "content": "x"}], resource="B"),
        lambda: space.threads.recall("X", resource="B"),
        lambda: space.threads.delete("X", resource="B"),
        lambda: space.threads.update("X", title="x", resource="B"),
        lambda: space.threads.clone("X", resource="B"),
        lambda: space.threads.get_message(message.id, resource="B"),
        lambda: space.threads.around(message.id, resource="B"),
        lambda: space.threads.update_message(message.id, content="x", resource="B"),
        lambda: space.threads.delete_messages([message.id], resource="B"),
        lambda: space.threads.working.write("x", thread="X", resource="B"),
    ):
        with pytest.raises(Forbidden) as refused:
            call()
        assert str(refused.value) == message_text

    assert space.threads.get("X", resource="A") == before
    assert all_texts(space, thread) == ["hello"]


def test_threads_of_one_namespace_are_unknown_in_another(book):
    thread = book.space("agent", "a1").threads.create()

    with pytest.raises(NotFound):
        book.space("agent", "a2").threads.get(thread.id)


@pytest.mark.parametrize("id", ["", "  ", "a\x01b", "a\nb", "\x00", "x" * 201, 7, "\ud800"])
def test_an_id_that_no_key_can_hold_is_refused(space, id):
    with pytest.raises(InvalidInput):
        space.threads.create(id=id)
    with pytest.raises(InvalidInput):
        space.threads.get(id)
    assert space.threads.list().threads == ()


def test_a_thread_id_that_begins_like_another_keeps_its_own_messages(space):
    one, other = space.threads.create(id="a"), space.threads.create(id="ab")
    say(space, one, "one")
    say(space, other, "other")

    space.threads.delete("a")

    assert all_texts(space, other) == ["other"]


# Listed


@pytest.mark.promise("conversations-threads-by-last-use")
def test_threads_of_a_resource_are_listed_by_last_use_and_paged(space, clock):
    made = [space.threads.create(str(number), resource="A") for number in range(5)]
    space.threads.create("other", resource="B")
    clock.advance()
    say(space, made[1], "used again")

    first = space.threads.list(resource="A", limit=3)
    rest = space.threads.list(resource="A", limit=3, cursor=first.cursor)

    assert [thread.title for thread in (*first.threads, *rest.threads)] == ["1", "4", "3", "2", "0"]
    assert rest.cursor is None
    assert len(space.threads.list().threads) == 6


def test_adding_a_message_updates_the_time_of_its_thread_but_makes_no_revision(space, clock):
    thread = space.threads.create()
    clock.advance(60)
    say(space, thread, "hello")

    assert space.threads.get(thread.id).updated_at == START + timedelta(seconds=60)
    assert space.threads.get(thread.id).created_at == thread.created_at
    assert [line.action for line in space.history("thread", thread.id)] == ["created"]


@pytest.mark.parametrize("limit", [0, -1, 1_001, True, "5", 2.0, None])
def test_a_limit_that_is_no_count_is_refused(space, limit):
    with pytest.raises(InvalidInput, match="limit must be a whole number"):
        space.threads.list(limit=limit)


# Changed


def test_an_update_changes_what_is_given_and_keeps_the_rest(space):
    thread = space.threads.create("Old", metadata={"a": 1, "b": {"c": 2}, "gone": 3})
    space.threads.update(thread.id, title="New")
    changed = space.threads.update(thread.id, metadata={"b": {"d": 3}, "gone": None})

    assert (changed.title, changed.metadata) == ("New", {"a": 1, "b": {"d": 3}})
    assert space.threads.update(thread.id, title=None).title is None


@pytest.mark.promise("conversations-title-keeps-memory")
def test_a_new_title_erases_neither_metadata_nor_working_memory(space):
    thread = space.threads.create(metadata={"a": 1})
    space.threads.working.write("# Anna", thread=thread.id)
    space.threads.working.write({"keyContext": ["x"]})

    space.threads.update(thread.id, title="Titled")

    assert space.threads.get(thread.id).metadata == {"a": 1}
    assert space.threads.working.read(thread=thread.id).content == "# Anna"
    assert space.threads.working.read().content == {"keyContext": ["x"]}


def test_an_update_from_1_to_true_is_one(space):
    thread = space.threads.create(metadata={"done": 1})
    assert space.threads.update(thread.id, metadata={"done": True}).metadata["done"] is True
    space.threads.add(thread.id, [{"role": "user", "content": [{"type": "data", "value": 1}], "id": "m"}])
    assert space.threads.update_message("m", content=[{"type": "data", "value": True}]).content[0]["value"] is True


def test_an_update_keeps_a_null_that_it_does_not_name(space):
    thread = space.threads.create(metadata={"a": None, "b": 1})
    assert space.threads.update(thread.id, metadata={"b": None, "c": 2}).metadata == {"a": None, "c": 2}
    space.threads.add(thread.id, [{"role": "user", "content": "x", "id": "m", "metadata": {"a": None, "b": 1}}])
    assert space.threads.update_message("m", metadata={"b": None}).extra["metadata"] == {"a": None}


def test_a_suggested_title_comes_with_a_thread_that_knows_its_space(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [{"role": "user", "content": "hello"}])
    assert len(space.threads.suggest_title(thread.id, "Greetings").context().messages) == 1


def test_an_update_that_changes_nothing_makes_no_revision(space):
    thread = space.threads.create("Same", metadata={"a": 1})

    assert space.threads.update(thread.id, title="Same", metadata={"a": 1}) == thread
    assert len(space.history("thread", thread.id)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"title": 5},
        {"title": "x" * 2_001},
        {"title": "nul \x00"},
        {"metadata": ["a"]},
        {"metadata": {"a": float("nan")}},
        {"metadata": {"a": datetime.now(UTC)}},
        {"metadata": {"a": 10**5_000}},
        {"metadata": {"a": "x" * 1_000_001}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_wrong_title_or_metadata_is_refused_and_nothing_is_made(space, fields):
    with pytest.raises(InvalidInput):
        space.threads.create(**fields)
    thread = space.threads.create("kept")
    with pytest.raises(InvalidInput):
        space.threads.update(thread.id, **fields)
    assert space.threads.list().threads == (thread,)


def test_metadata_cannot_grow_past_its_limit_by_updates(space):
    thread = space.threads.create(metadata={"a": "x" * 600_000})
    with pytest.raises(TooLarge):
        space.threads.update(thread.id, metadata={"b": "x" * 600_000})


# Deleted


@pytest.mark.promise("conversations-delete-thread")
def test_deleting_a_thread_takes_its_messages_and_working_memory_in_one_commit_that_undo_brings_back(space):
    thread = space.threads.create("Deploys")
    said = say(space, thread, "blue", "green")
    space.threads.working.write("# Facts\n- blue", thread=thread.id)
    space.threads.working.write({"kept": True})

    commit = space.threads.delete(thread.id)

    with pytest.raises(NotFound):
        space.threads.get(thread.id)
    with pytest.raises(NotFound):
        space.threads.get_message(said[0].id)
    assert space.threads.working.read().content == {"kept": True}
    assert {change.commit for change in space.changes() if change.action == "deleted"} == {commit}
    assert space.stats().entries == {"working": 1}

    space.undo(commit)

    assert space.threads.get(thread.id).title == "Deploys"
    assert space.threads.messages(thread.id).messages == said
    assert space.threads.working.read(thread=thread.id).content == "# Facts\n- blue"


@pytest.mark.promise("conversations-no-embeddings-left")
def test_a_deleted_thread_is_found_by_no_search_and_leaves_no_passage_until_undo_brings_it_back(space, book):
    thread = space.threads.create()
    say(space, thread, "the zebra crossing checklist")
    other = space.threads.create()
    say(space, other, "something else")
    assert [hit.entry.text for hit in space.search("zebra")][:1] == ["the zebra crossing checklist"]

    commit = space.threads.delete(thread.id)

    assert "the zebra crossing checklist" not in [hit.entry.text for hit in space.search("zebra crossing checklist")]
    assert space.stats().chunks == 1
    assert book.verify() == []

    space.undo(commit)
    assert [hit.entry.text for hit in space.search("zebra")][:1] == ["the zebra crossing checklist"]


def test_a_thread_made_again_under_the_same_id_begins_empty_and_blocks_the_undo(space):
    thread = space.threads.create(id="t")
    say(space, thread, "old")
    commit = space.threads.delete("t")
    again = space.threads.create(id="t")

    assert all_texts(space, again) == []
    with pytest.raises(Conflict):
        space.undo(commit)


# Copied


@pytest.mark.promise("conversations-clone")
def test_a_clone_has_the_messages_in_order_under_ids_of_their_own(space):
    thread = space.threads.create("Deploys", resource="A", metadata={"a": 1})
    said = say(space, thread, "one", "two", "three")
    space.threads.working.write("# Facts\n- one", thread=thread.id)

    clone = space.threads.clone(thread.id)
    copied = space.threads.messages(clone.id).messages

    assert (clone.title, clone.resource_id, clone.metadata["a"]) == ("Clone of Deploys", "A", 1)
    assert clone.metadata["clone"]["sourceThreadId"] == thread.id
    assert clone.metadata["clone"]["lastMessageId"] == said[-1].id
    assert texts(copied) == ["one", "two", "three"]
    assert [message.created_at for message in copied] == [message.created_at for message in said]
    assert not {message.id for message in copied} & {message.id for message in said}
    assert space.threads.working.read(thread=clone.id).content == "# Facts\n- one"

    say(space, clone, "four")
    assert all_texts(space, thread) == ["one", "two", "three"]
    assert all_texts(space, clone) == ["one", "two", "three", "four"]


@pytest.mark.promise("conversations-clone")
def test_a_clone_may_end_at_a_message_or_a_time(space, clock):
    thread = space.threads.create()
    said = []
    for text in ("one", "two", "three"):
        said += say(space, thread, text)
        clock.advance()
    space.threads.working.write("# Facts\n- three", thread=thread.id)

    upto_message = space.threads.clone(thread.id, upto_message=said[1].id, title="Half")
    upto_time = space.threads.clone(thread.id, upto=said[0].created_at)

    assert upto_message.title == "Half"
    assert all_texts(space, upto_message) == ["one", "two"]
    assert all_texts(space, upto_time) == ["one"]
    assert space.threads.working.read(thread=upto_message.id) is None


def test_a_clone_up_to_a_message_of_another_thread_is_refused_and_leaves_nothing(space):
    thread, other = space.threads.create(), space.threads.create()
    [elsewhere] = say(space, other, "elsewhere")
    before = space.stats().entries

    with pytest.raises(NotFound, match=f"No message found with id {elsewhere.id} in thread {thread.id}"):
        space.threads.clone(thread.id, upto_message=elsewhere.id)
    assert space.stats().entries == before


def test_a_clone_of_a_thread_with_the_longest_title_has_one_that_a_thread_may_have(space):
    thread = space.threads.create("ä" * 1_000)
    copy = space.threads.clone(thread.id)
    assert copy.title.startswith("Clone of ää")
    assert space.threads.update(copy.id, title=copy.title) == copy


def test_a_clone_of_more_than_a_page_is_complete(space):
    thread = space.threads.create()
    say(space, thread, *map(str, range(1_050)))

    clone = space.threads.clone(thread.id)

    newest = texts(space.threads.messages(clone.id, last=1_000).messages)
    assert newest == [str(number) for number in range(50, 1_050)]
    assert space.stats().entries == {"thread": 2, "message": 2_100}


@pytest.mark.promise("conversations-clone-part")
def test_a_clone_may_take_some_messages_under_an_id_and_for_a_resource_of_choice(space, clock):
    thread = space.threads.create("Deploys", resource="A", metadata={"a": 1}, id="t")
    for number in range(6):
        clock.advance()
        space.threads.add(thread.id, [{"id": f"m{number}", "role": "user", "content": f"{number}"}])
    times = [message.created_at for message in space.threads.messages(thread.id).messages]

    def copied(**choice):
        clone = space.threads.clone("t", **choice)
        return [message.content for message in space.threads.messages(clone.id).messages]

    assert copied(last=2) == ["4", "5"]
    assert copied(only=["m3", "m1", "elsewhere"]) == ["1", "3"]
    assert copied(after=times[2], upto=times[4]) == ["2", "3", "4"]
    assert copied(after=times[1], upto_message="m4", last=1) == ["4"]
    assert copied(last=0) == []
    clone = space.threads.clone("t", new_id="copy", to="B", metadata={"b": 2}, title="Mine")
    assert (clone.id, clone.resource_id, clone.title) == ("copy", "B", "Mine")
    assert clone.metadata == {"b": 2, "clone": clone.metadata["clone"]}
    assert {message.resource_id for message in space.threads.messages("copy", resource="B").messages} == {"B"}
    with pytest.raises(AlreadyExists, match="a thread with id copy exists already"):
        space.threads.clone("t", new_id="copy")


@pytest.mark.promise("conversations-transfer")
def test_a_thread_changes_hands_whole_and_back_with_one_undo(space, clock):
    created = space.threads.create("Deploys", resource="A", id="t")
    said = space.threads.add("t", [{"id": "m", "role": "user", "content": "blue or green"}])
    space.threads.working.write({"x": 1}, thread="t")
    clock.advance()
    given = space.threads.transfer("t", "B")
    assert (given.resource_id, given.title, given.created_at) == ("B", "Deploys", created.created_at)
    assert space.threads.messages("t", resource="B").messages == tuple(replace(one, resource_id="B") for one in said)
    assert [thread.id for thread in space.threads.list(resource="A").threads] == []
    assert space.threads.recall("t", resource="B", query="green", scope="resource", last=0).messages
    assert space.threads.working.read(thread="t", resource="B").content == {"x": 1}
    with pytest.raises(Forbidden, match=r"Thread with id t is for resource with id B but resource A was queried\."):
        space.threads.transfer("t", "C", resource="A")
    assert space.threads.transfer("t", "B") == given
    space.undo(space.changes()[-1].commit)
    assert space.threads.messages("t", resource="A").messages == said
