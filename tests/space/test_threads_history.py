"""Conversations and their past: what undo and restore bring back is whole, and a deleted message keeps its history."""

from __future__ import annotations

import pytest

from commonplace import Conflict, NotFound


@pytest.fixture
def thread(space):
    return space.threads.create(id="t", resource="ann")


def user(content, **fields):
    return {"role": "user", "content": content, **fields}


def last_commit(space):
    return space.changes(limit=1_000)[-1].commit


def owners(space, thread):
    return {message.resource_id for message in space.threads.messages(thread.id).messages}


# Undo and restore


def transfer(space):
    space.threads.add("t", [user("first")])
    space.threads.transfer("t", "bob")
    commit = last_commit(space)
    space.threads.add("t", [user("of bob")])
    return commit


def transfer_with_working_memory_since(space):
    space.threads.transfer("t", "bob")
    commit = last_commit(space)
    space.threads.working.write("- of bob", thread="t")
    return commit


def creation(space):
    commit = last_commit(space)
    space.threads.add("t", [user("since then")])
    return commit


def creation_with_working_memory_since(space):
    commit = last_commit(space)
    space.threads.working.write("- since then", thread="t")
    return commit


def message_deleted_before_a_transfer(space):
    space.threads.add("t", [user("first", id="m1"), user("second")])
    commit = space.threads.delete_messages(["m1"])
    space.threads.transfer("t", "bob")
    return commit


def clearing_before_a_deletion(space):
    space.threads.add("t", [user("first")])
    commit = space.threads.clear("t")
    space.threads.delete("t")
    return commit


def working_memory_cleared_before_a_deletion(space):
    space.threads.working.write("- plan", thread="t")
    commit = space.threads.working.clear(thread="t")
    space.threads.delete("t")
    return commit


@pytest.mark.promise("conversations-undo-whole")
@pytest.mark.parametrize(
    "change",
    [
        transfer,
        transfer_with_working_memory_since,
        creation,
        creation_with_working_memory_since,
        message_deleted_before_a_transfer,
        clearing_before_a_deletion,
        working_memory_cleared_before_a_deletion,
    ],
)
def test_an_undo_that_would_tear_a_conversation_is_refused_and_changes_nothing(space, thread, change):
    commit = change(space)
    before = last_commit(space)

    with pytest.raises(Conflict, match="nothing was changed"):
        space.undo(commit)

    assert last_commit(space) == before


def test_a_clone_that_was_written_to_is_not_undone(space, thread):
    space.threads.add("t", [user("first")])
    copy = space.threads.clone("t")
    commit = last_commit(space)
    space.threads.add(copy.id, [user("since then")])

    with pytest.raises(Conflict, match="used since"):
        space.undo(commit)


def test_a_restore_that_would_tear_a_conversation_is_refused(space, thread):
    space.threads.add("t", [user("first", id="m1")])
    space.threads.transfer("t", "bob")
    with pytest.raises(Conflict, match="two resources"):
        space.restore("thread", "t", 1)
    with pytest.raises(Conflict, match="two resources"):
        space.restore("message", "m1", 1)
    space.threads.delete("t")
    with pytest.raises(Conflict, match="does not exist any more"):
        space.restore("message", "m1", 2)


def test_what_leaves_a_conversation_whole_is_undone_and_restored(space, thread):
    space.threads.add("t", [user("first", id="m1")])
    space.threads.transfer("t", "bob")
    space.undo(last_commit(space))
    assert (space.threads.get("t").resource_id, owners(space, thread)) == ("ann", {"ann"})
    space.threads.update("t", title="one")
    space.threads.update("t", title="two")
    space.undo(last_commit(space))
    assert space.threads.get("t").title == "one"
    space.undo(space.threads.delete("t"))
    space.threads.update_message("m1", content="changed")
    space.restore("message", "m1", 1)
    assert space.threads.get_message("m1").content == "first"
    fresh = space.threads.create()
    space.undo(last_commit(space))
    with pytest.raises(NotFound):
        space.threads.get(fresh.id)


# The history of a message


@pytest.mark.promise("conversations-message-history")
def test_a_deleted_message_keeps_its_history_under_its_id_and_comes_back_from_it(space, thread):
    space.threads.add("t", [user("first", id="m1"), user("second", id="m2")])
    space.threads.delete_messages(["m1"])

    assert [revision.action for revision in space.history("message", "m1")] == ["created", "deleted"]
    space.restore("message", "m1", 1)
    assert [message.content for message in space.threads.messages("t").messages] == ["first", "second"]
    assert [revision.action for revision in space.history("message", "m1")] == ["created", "deleted", "restored"]


def test_a_message_of_the_same_time_takes_neither_the_place_nor_the_history_of_a_deleted_one(space, thread):
    then = "2025-01-01T00:00:00Z"
    space.threads.add("t", [user(f"old {number}", id=f"m{number}", createdAt=then) for number in range(3)])
    deletion = space.threads.delete_messages(["m1", "m2"])
    space.threads.add("t", [user(f"new {number}", id=f"n{number}", createdAt=then) for number in range(2)])

    assert [revision.action for revision in space.history("message", "n0")] == ["created"]
    assert space.state("message", "n0", 1).value["content"] == "new 0"
    space.undo(deletion)
    assert [message.content for message in space.threads.messages("t").messages] == [
        "old 0",
        "old 1",
        "old 2",
        "new 0",
        "new 1",
    ]


def test_a_clone_under_the_id_of_a_deleted_thread_takes_over_none_of_its_histories(space, thread):
    then = "2025-01-01T00:00:00Z"
    space.threads.add("t", [user("first", createdAt=then), user("second", createdAt=then), user("third")])
    space.threads.clone("t", new_id="copy")
    old = space.threads.messages("copy").messages
    space.threads.update_message(old[0].id, content="said in the first copy only")
    space.threads.delete("copy")
    space.threads.clone("t", new_id="copy", to="bob")
    new = space.threads.messages("copy").messages

    assert [message.content for message in new] == ["first", "second", "third"]
    assert [message.created_at for message in new] == [message.created_at for message in old]
    for message in new:
        assert [revision.action for revision in space.history("message", message.id)] == ["created"]
    assert [revision.action for revision in space.history("message", old[0].id)] == ["created", "updated", "deleted"]


@pytest.mark.promise("conversations-message-history")
def test_names_of_the_feed_lead_to_histories_even_where_an_id_has_a_slash(space):
    space.threads.create(id="a/b")
    space.threads.add("a/b", [user("first")])
    space.threads.working.write("- of a team", resource="org/1")
    space.threads.working.write("- of a thread", thread="a/b")

    changes = space.changes()
    assert len(changes) == 4
    for change in changes:
        assert [revision.action for revision in space.history(change.kind, change.key)] == ["created"]
    assert space.purge("working", "resource/org/1") == 1
    assert space.threads.working.read(resource="org/1") is None


# Erased


@pytest.mark.promise("engine-purge")
def test_a_purged_thread_takes_along_its_messages_and_its_working_memory(space, thread):
    space.threads.create(id="t2")
    for id in ("t", "t2"):
        space.threads.add(id, [user("secret")])
        space.threads.working.write("- secret", thread=id)
    space.threads.working.write("- of all", resource="ann")

    assert space.purge("thread", "t") == 3
    assert [hit.entry.attributes["threadId"] for hit in space.search("secret")] == ["t2"]
    assert space.threads.working.read(thread="t2").content == "- secret"
    space.threads.create(id="t")
    assert space.threads.messages("t").messages == ()
    assert space.threads.working.read(thread="t") is None
    space.purge("thread")
    assert space.stats().entries.get("message", 0) == 0
    assert space.threads.working.read(resource="ann").content == "- of all"


# The past


@pytest.mark.promise("conversations-as-of")
def test_threads_messages_and_working_memory_are_read_as_they_were(space, clock):
    space.threads.create("before", id="t")
    space.threads.create("gone", id="g")
    space.threads.add("t", [user("one", id="m1"), user("two", id="m2"), user("three", id="m3")])
    space.threads.working.write({"name": "Ann"}, thread="t")
    then = space.threads.working.read(thread="t").updated_at
    listed = {thread.title for thread in space.threads.list().threads}
    messages = space.threads.messages("t").messages
    around = space.threads.around("m2", before=1, after=1)
    clock.advance()
    space.threads.update("t", title="after")
    space.threads.update_message("m1", content="changed")
    space.threads.delete_messages(["m2"])
    space.threads.add("t", [user("four", id="m4")])
    space.threads.working.write({"name": "Ben"}, thread="t")
    space.threads.delete("g")
    space.threads.create("new", id="n")
    assert {thread.title for thread in space.threads.list(as_of=then).threads} == listed == {"before", "gone"}
    assert space.threads.get("t", as_of=then).title == "before"
    assert space.threads.messages("t", as_of=then).messages == messages
    assert space.threads.messages("t", last=2, as_of=then).messages == messages[1:]
    first = space.threads.messages("t", limit=2, as_of=then)
    assert space.threads.messages("t", limit=2, cursor=first.cursor, as_of=then).messages == messages[2:]
    assert space.threads.around("m2", before=1, after=1, as_of=then) == around
    assert space.threads.working.read(thread="t", as_of=then).content == {"name": "Ann"}
    for missing in (
        lambda: space.threads.get("n", as_of=then),
        lambda: space.threads.messages("n", as_of=then),
        lambda: space.threads.around("m4", as_of=then),
        lambda: space.threads.working.read(thread="n", as_of=then),
    ):
        with pytest.raises(NotFound):
            missing()


def test_the_messages_of_threads_are_counted(space):
    for id in ("a", "a/b", "b"):
        space.threads.create(id=id)
    space.threads.add("a", [user("1", id="x"), user("2"), user("3")])
    space.threads.add("a/b", [user("1")])
    space.threads.delete_messages(["x"])
    assert space.threads.count_messages(["a", "a/b", "b", "missing"]) == {"a": 2, "a/b": 1, "b": 0, "missing": 0}
    assert space.threads.count_messages([]) == {}
