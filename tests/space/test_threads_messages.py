"""Messages: saved whole and once, kept as they came, read in one total order by pages, times and neighbours."""

from __future__ import annotations

import base64
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import Conflict, Forbidden, InvalidInput, Limits, NotFound, Outdated, TooLarge
from commonplace.space.messages import Message
from postgres_server import empty, shared_book

START = datetime(2025, 6, 15, 15, 6, 40, tzinfo=UTC)


@pytest.fixture
def thread(space):
    return space.threads.create(id="t")


def user(content, **fields):
    return {"role": "user", "content": content, **fields}


def contents(messages):
    return [message.content for message in messages]


def everything(space, thread):
    return contents(space.threads.messages(thread.id).messages)


# Saved


@pytest.mark.promise("conversations-message-as-it-came")
def test_a_message_comes_back_as_it_came(space, thread):
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    given_time = START - timedelta(days=1)
    [saved] = space.threads.add(
        thread.id,
        [user(parts, id="m1", createdAt=given_time.isoformat(), threadId="t", name="Ann", metadata={"a": [1, None]})],
    )

    assert saved == Message("m1", "t", "u1", "user", parts, given_time, {"name": "Ann", "metadata": {"a": [1, None]}})
    assert space.threads.get_message("m1") == saved
    assert space.threads.messages(thread.id).messages == (saved,)


def test_a_message_without_id_and_time_gets_both(space, thread, clock):
    clock.advance(5)
    one, two = space.threads.add(thread.id, [user("a"), user("b")])

    assert one.id != two.id
    assert one.created_at == two.created_at == START + timedelta(seconds=5)


def test_ids_of_new_messages_are_uuids_in_the_order_of_time(space, thread):
    now = time.time() * 1000
    ids = [uuid.UUID(message.id) for _ in range(3) for message in space.threads.add(thread.id, [user("a"), user("b")])]
    assert {(id.version, id.variant) for id in ids} == {(7, uuid.RFC_4122)}
    assert [str(id) for id in ids] == [message.id for message in space.threads.messages(thread.id).messages]
    times = [id.int >> 80 for id in ids]
    assert [id.int >> 64 for id in ids] == sorted(id.int >> 64 for id in ids)
    assert now - 1 <= times[0] <= times[-1] <= time.time() * 1000
    assert len(set(ids)) == len(ids)


def test_a_time_may_be_a_datetime_of_any_zone(space, thread):
    time = datetime(2025, 1, 1, 12, tzinfo=timezone(timedelta(hours=9)))
    [saved] = space.threads.add(thread.id, [user("a", createdAt=time)])
    assert saved.created_at == time


@pytest.mark.promise("conversations-system-not-stored")
@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_messages_are_accepted_and_not_stored(space, thread, role):
    saved = space.threads.add(thread.id, [{"role": role, "content": "You are helpful."}, user("hi")])

    assert contents(saved) == everything(space, thread) == ["hi"]
    assert space.threads.add(thread.id, [{"role": role, "content": "again"}]) == ()


@pytest.mark.promise("conversations-idempotent-by-id")
def test_saving_the_same_messages_again_changes_nothing(space, thread, clock):
    batch = [user("a", id="1"), {"role": "assistant", "content": [{"type": "text", "text": "b"}], "id": "2"}]
    first = space.threads.add(thread.id, batch)
    commit, used = space.stats().commit, space.threads.get(thread.id)
    clock.advance()

    assert space.threads.add(thread.id, batch) == first
    assert (space.stats().commit, space.threads.get(thread.id)) == (commit, used)
    assert space.threads.add(thread.id, [*batch, user("c", id="3"), user("c", id="3")])[:2] == first
    assert everything(space, thread) == ["a", [{"type": "text", "text": "b"}], "c"]


@pytest.mark.promise("conversations-idempotent-by-id")
@pytest.mark.parametrize(
    "changed",
    [
        user("other", id="1"),
        {"role": "assistant", "content": "a", "id": "1"},
        user("a", id="1", metadata={"n": 1}),
        user(["a"], id="1"),
    ],
)
def test_the_same_id_with_another_content_is_refused_and_nothing_of_the_call_is_saved(space, thread, changed):
    space.threads.add(thread.id, [user("a", id="1")])

    with pytest.raises(Conflict, match="a message with id 1 exists already with a different content"):
        space.threads.add(thread.id, [user("new", id="2"), changed])
    assert everything(space, thread) == ["a"]


def test_an_id_is_unique_across_the_threads_of_a_namespace(space, thread):
    space.threads.add(thread.id, [user("a", id="1")])
    other = space.threads.create()

    with pytest.raises(Conflict, match="a message with id 1 is in thread t already"):
        space.threads.add(other.id, [user("a", id="1")])


def test_two_different_messages_with_one_id_in_a_call_are_refused(space, thread):
    with pytest.raises(Conflict):
        space.threads.add(thread.id, [user("a", id="1"), user("b", id="1")])
    assert everything(space, thread) == []


@pytest.mark.promise("conversations-tags-stripped")
def test_working_memory_tags_are_stripped_from_what_is_saved(space, thread):
    tagged = "Hi <working_memory>name: Ann</working_memory>there"
    tool = {"type": "tool_result", "content": tagged}
    saved = space.threads.add(
        thread.id,
        [
            user(tagged),
            user([{"type": "text", "text": tagged}, tool]),
            user({"format": 2, "parts": [{"type": "text", "text": tagged}], "content": tagged}),
        ],
    )

    assert contents(saved) == [
        "Hi there",
        [{"type": "text", "text": "Hi there"}, tool],
        {"format": 2, "parts": [{"type": "text", "text": "Hi there"}], "content": "Hi there"},
    ]


# Refused


HOSTILE = [
    ("not a list", "messages must be a list"),
    ({"role": "user", "content": "x"}, "messages must be a list"),
    (None, "messages must be a list"),
    (["x"], "message 1 must be an object"),
    ([{"content": "x"}], "message 1: role is required"),
    ([{"role": "robot", "content": "x"}], "message 1: role is required"),
    ([{"role": ["user"], "content": "x"}], "message 1: role is required"),
    ([user("fine"), {"role": "user"}], "message 2: content is required"),
    ([user(None)], "message 1: content is required"),
    ([user(5)], "message 1: content must be"),
    ([user(True)], "message 1: content must be"),
    ([user(["ok", 5])], "message 1: part 2 of content must be"),
    ([user(["ok", ["nested"]])], "message 1: part 2 of content must be"),
    ([user("x", id="")], "message 1: id is required"),
    ([user("x", id=5)], "message 1: id is required"),
    ([user("x", id="a\x01b")], "control character"),
    ([user("x", id="x" * 201)], "at most 200"),
    ([user("x", createdAt="yesterday")], "message 1: createdAt must be a time"),
    ([user("x", createdAt="2025-01-01T00:00:00")], "no time zone"),
    ([user("x", createdAt=1_750_000_000)], "message 1: createdAt must be a datetime"),
    ([user("x", createdAt="1969-12-31T23:59:59Z")], "between the years 1970 and 5138"),
    ([user("x", createdAt="9999-01-01T00:00:00Z")], "between the years 1970 and 5138"),
    ([user("x", threadId="other")], "message 1 has the threadId 'other'"),
    ([user("x", resourceId="other")], "message 1 has the resourceId 'other'"),
    ([user("nul \x00")], "NUL"),
    ([user("lone \ud800")], "lone surrogate"),
    ([user({"text": float("inf")})], "JSON cannot hold"),
    ([user({"text": b"bytes"})], "JSON cannot hold"),
    ([user({1: "x"})], "must be a string"),
    ([user({"n": 10**5_000})], "number that is too long"),
]


@pytest.mark.parametrize(("messages", "reason"), HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
def test_a_malformed_message_is_refused_with_its_reason_and_nothing_is_saved(space, thread, messages, reason):
    with pytest.raises(InvalidInput, match=reason):
        space.threads.add(thread.id, messages)
    assert everything(space, thread) == []


def test_a_deeply_nested_content_is_refused(space, thread):
    nested: object = "x"
    for _ in range(5_000):
        nested = {"content": [nested]}
    with pytest.raises(InvalidInput, match="nested"):
        space.threads.add(thread.id, [user(nested)])


def test_a_message_past_the_size_limit_is_refused(open_book):
    space = open_book(limits=Limits(message_bytes=100)).space("user", "u1")
    thread = space.threads.create()
    space.threads.add(thread.id, [user("é" * 30)])

    with pytest.raises(TooLarge, match=r"message 2 has \d+ bytes; at most 100 are allowed"):
        space.threads.add(thread.id, [user("x"), user("é" * 60)])
    assert len(everything(space, thread)) == 1


def test_more_messages_than_a_call_takes_are_refused(space, thread):
    with pytest.raises(TooLarge, match="10,001 messages"):
        space.threads.add(thread.id, [user("x")] * 10_001)


def test_objects_of_any_mapping_type_are_taken(space, thread):
    [saved] = space.threads.add(thread.id, [MappingProxyType(user(MappingProxyType({"text": ("a", "b")})))])
    assert saved.content == {"text": ["a", "b"]}


# In order


@pytest.mark.promise("conversations-total-order")
def test_8_threads_adding_to_one_conversation_keep_every_message_in_a_total_order(open_book):
    space = open_book().space("user", "u1")
    thread = space.threads.create()

    def talk(speaker: int) -> None:
        for turn in range(12):
            space.threads.add(thread.id, [user(f"{speaker} {turn} {part}") for part in "ab"])

    with ThreadPoolExecutor(8) as speakers:
        list(speakers.map(talk, range(8)))

    messages = space.threads.messages(thread.id, limit=1_000).messages
    said = [tuple(message.content.split()) for message in messages]
    assert len(said) == len(set(said)) == 8 * 12 * 2
    for speaker in range(8):
        own = [(turn, part) for who, turn, part in said if who == str(speaker)]
        assert own == [(str(turn), part) for turn in range(12) for part in "ab"]
    for one, two in zip(said[::2], said[1::2], strict=True):  # a call's messages stay together
        assert (one[:2], one[2], two[2]) == (two[:2], "a", "b")
    assert all(one.created_at <= two.created_at for one, two in pairwise(messages))


@given(st.lists(st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=4), max_size=6))
def test_messages_are_in_the_order_of_their_times_then_of_their_calls(calls):
    with commonplace.open(":memory:", embedder=Silent(), background=False) as book:
        space = book.space("user", "u1")
        thread = space.threads.create()
        expected = []
        for number, call in enumerate(calls):
            batch = [
                user(f"{number} {place}", **({} if day is None else {"createdAt": START + timedelta(days=day)}))
                for place, day in enumerate(call)
            ]
            expected += space.threads.add(thread.id, batch)
        expected.sort(key=lambda message: message.created_at)  # stable: the order of calls is kept

        assert list(space.threads.messages(thread.id).messages) == expected
        paged, cursor = [], None
        while True:
            page = space.threads.messages(thread.id, limit=2, cursor=cursor)
            paged += page.messages
            cursor = page.cursor
            if cursor is None:
                break
        assert paged == expected
        assert list(space.threads.messages(thread.id, last=3).messages) == expected[-3:]
        for place, message in enumerate(expected):
            near = space.threads.around(message.id, before=2, after=1)
            assert list(near) == expected[max(0, place - 2) : place + 2]


class Silent:
    identity = "silent@1"
    dimensions = 1
    calibration = (0.0, 1.0)

    def embed(self, texts, *, purpose):
        raise AssertionError("nothing here is to be embedded")


def test_a_message_dated_to_the_moment_of_a_later_commit_is_not_overwritten(space, thread, clock):
    later = START + timedelta(seconds=7)
    space.threads.add(thread.id, [user(f"dated {number}", createdAt=later, id=f"d{number}") for number in range(2)])
    space.threads.delete_messages(["d0"])
    clock.advance(7)

    space.threads.add(thread.id, [user("now"), user("now too")])

    assert everything(space, thread) == ["dated 1", "now", "now too"]
    assert space.threads.messages(thread.id).messages[1].created_at == later


# Read


@pytest.mark.promise("conversations-list-messages")
def test_messages_are_listed_by_pages_by_number_by_time_and_around_one(space, thread, clock):
    said = []
    for number in range(6):
        said += space.threads.add(thread.id, [user(str(number))])
        clock.advance()
    at = [message.created_at for message in said]

    assert contents(space.threads.messages(thread.id, last=2).messages) == ["4", "5"]
    assert contents(space.threads.messages(thread.id, limit=2).messages) == ["0", "1"]
    assert contents(space.threads.messages(thread.id, after=at[1], before=at[3]).messages) == ["1", "2"]
    assert contents(space.threads.messages(thread.id, before=at[3], last=2).messages) == ["1", "2"]
    assert contents(space.threads.around(said[3].id)) == ["2", "3", "4"]
    assert contents(space.threads.around(said[0].id, before=3, after=2)) == ["0", "1", "2"]
    assert contents(space.threads.around(said[3].id, before=0, after=0)) == ["3"]


def test_a_message_in_the_midst_of_many_of_the_same_time_has_its_neighbours(space, thread):
    said = space.threads.add(thread.id, [user(str(number)) for number in range(100)])
    assert contents(space.threads.around(said[50].id, before=2, after=2)) == ["48", "49", "50", "51", "52"]


def test_deleted_neighbours_make_room_for_the_next(space, thread):
    said = space.threads.add(thread.id, [user(str(number)) for number in range(30)])
    space.threads.delete_messages([said[number].id for number in (12, 13, 14, 16)])

    assert contents(space.threads.around(said[15].id, before=2, after=2)) == ["10", "11", "15", "17", "18"]


def test_the_last_and_a_cursor_exclude_each_other(space, thread):
    space.threads.add(thread.id, [user("a"), user("b")])
    cursor = space.threads.messages(thread.id, limit=1).cursor
    with pytest.raises(InvalidInput, match="cursor"):
        space.threads.messages(thread.id, last=1, cursor=cursor)


def test_a_cursor_of_one_thread_shows_nothing_of_it_in_another(space, thread):
    space.threads.add(thread.id, [user("mine"), user("mine too")])
    other = space.threads.create(id="s")
    space.threads.add(other.id, [user("theirs")])
    cursor = space.threads.messages(thread.id, limit=1).cursor

    assert "mine too" not in contents(space.threads.messages(other.id, cursor=cursor).messages)


_NESTED = base64.urlsafe_b64encode(b"[" * 3_000).decode().rstrip("=")


@pytest.mark.parametrize("cursor", ["nonsense", 5, "x" * 20_000, "\ud800", _NESTED])
def test_a_cursor_that_no_page_gave_is_refused(space, thread, cursor):
    with pytest.raises(InvalidInput):
        space.threads.messages(thread.id, cursor=cursor)
    with pytest.raises(InvalidInput):
        space.threads.list(cursor=cursor)


@pytest.mark.promise("conversations-verbatim")
def test_items_are_the_last_messages_as_they_came_in(space, thread):
    came = [{"type": "function_call", "id": "fc_1", "name": "look"}, {"role": "user", "content": [{"text": "ü"}]}, {}]
    space.threads.add(thread.id, came, verbatim=True)
    assert space.threads.items(thread.id, last=10) == tuple(came)
    assert space.threads.items(thread.id, last=2) == tuple(came[1:])
    assert space.threads.items(thread.id, last=0) == ()


def test_items_of_an_empty_thread_are_none_and_of_an_unknown_or_anothers_thread_refused(space, thread):
    assert space.threads.items(thread.id, last=1) == ()
    with pytest.raises(NotFound, match="nowhere"):
        space.threads.items("nowhere", last=1)
    space.threads.add(thread.id, [{"role": "user", "content": "mine"}])
    with pytest.raises(Forbidden):
        space.threads.items(thread.id, last=1, resource="another")
    with pytest.raises(InvalidInput, match="last"):
        space.threads.items(thread.id, last=-1)


@pytest.mark.promise("conversations-last-cost")
@pytest.mark.usefixtures("on_file")
def test_what_adding_and_reading_the_last_ten_cost_does_not_depend_on_the_length_of_the_thread(space, thread, book):
    def steps() -> int:
        # SQLite counts the steps of its virtual machine, which no other program on this machine disturbs.
        counted = [0]

        def count() -> bool:
            counted[0] += 1
            return False

        store = book.store
        store.get(("user", "u1"), "thread", ["t"])  # opens this thread's reading connection
        for connection in store._connections:
            connection.set_progress_handler(count, 10)
        space.threads.add(thread.id, [user("one more")])
        assert len(space.threads.messages(thread.id, last=10).messages) == 10
        for connection in store._connections:
            connection.set_progress_handler(None)
        return counted[0]

    space.threads.add(thread.id, [user(f"message {number}") for number in range(20)])
    steps()  # opens the connections that a service uses
    short = steps()
    space.threads.add(thread.id, [user(f"message {number}") for number in range(3_000)])
    assert steps() < 2 * short


# Changed and deleted


@pytest.mark.promise("conversations-update-message")
def test_an_updated_message_keeps_its_place_its_time_and_its_history(space, thread):
    said = space.threads.add(thread.id, [user("about cats"), user("about dogs"), user("about birds")])
    space.threads.update_message(said[1].id, metadata={"a": 1, "b": 2})
    changed = space.threads.update_message(said[1].id, content="about horses", metadata={"a": None})

    assert (changed.id, changed.created_at, changed.extra) == (said[1].id, said[1].created_at, {"metadata": {"b": 2}})
    assert everything(space, thread) == ["about cats", "about horses", "about birds"]
    assert [hit.entry.text for hit in space.search("horses", limit=1)] == ["about horses"]
    assert "about dogs" not in [hit.entry.text for hit in space.search("dogs")]

    space.undo(space.stats().commit)
    assert everything(space, thread) == ["about cats", "about dogs", "about birds"]


@pytest.mark.parametrize("content", [None, 5, "\x00", "x" * 16_000_001, [5]])
def test_an_update_to_what_no_message_may_be_is_refused(space, thread, content):
    [said] = space.threads.add(thread.id, [user("kept")])
    with pytest.raises(InvalidInput):
        space.threads.update_message(said.id, content=content)
    assert space.threads.get_message(said.id) == said


def test_a_missing_message_is_told_by_its_id(space, thread):
    for call in (space.threads.get_message, space.threads.around, space.threads.update_message):
        with pytest.raises(NotFound, match=r"^No message found with id nope$"):
            call("nope")


@pytest.mark.promise("conversations-delete-messages")
def test_deleted_messages_are_gone_from_lists_and_search_until_undo(space, thread):
    said = space.threads.add(thread.id, [user("alpha zebra"), user("beta"), user("gamma zebra")])

    commit = space.threads.delete_messages([said[0].id, said[2].id, "unknown"])

    assert everything(space, thread) == ["beta"]
    assert "alpha zebra" not in [hit.entry.text for hit in space.search("zebra")]
    assert space.threads.delete_messages([said[0].id]) is None
    space.undo(commit)
    assert space.threads.messages(thread.id).messages == said


@pytest.mark.promise("conversations-replace-messages")
def test_messages_are_replaced_in_one_commit_and_undo_brings_them_back(space, thread):
    other = space.threads.add(space.threads.create().id, [user("elsewhere zebra")])
    said = space.threads.add(thread.id, [user(f"zebra {number}") for number in range(4)])
    seen = {message.id: message.entry.revision for message in said[1:]}

    space.threads.replace_messages(thread.id, [user("a summary")], seen=seen)

    assert everything(space, thread) == ["zebra 0", "a summary"]
    commit = space.stats().commit
    assert {change.commit for change in space.changes()[-4:]} == {commit}
    space.undo(commit)
    assert everything(space, thread) == contents(said)
    said = space.threads.messages(thread.id).messages

    replaced = space.threads.replace_messages(thread.id, [{"role": 5}, {"id": said[0].id}], verbatim=True)

    assert space.threads.messages(thread.id).messages == replaced
    assert [message.entry.value for message in replaced] == [{"role": 5}, {"id": said[0].id}]
    space.undo(space.stats().commit)
    assert space.threads.messages(thread.id).messages == said
    assert space.threads.replace_messages(thread.id, []) == ()
    assert everything(space, thread) == []
    assert space.threads.messages(other[0].thread_id).messages == other


@pytest.mark.promise("conversations-replace-messages")
def test_nothing_is_replaced_once_the_messages_have_changed(space, thread):
    foreign = space.threads.add(space.threads.create().id, [user("elsewhere")])[0]
    said = space.threads.add(thread.id, [user("one"), user("two"), user("three")])
    seen = {message.id: 1 for message in said[1:]}
    for wrong in ({**seen, foreign.id: 1}, {**seen, "unknown": 1}, {**seen, said[0].id: 2}):
        with pytest.raises(Outdated, match="has changed or is gone; read the messages again"):
            space.threads.replace_messages(thread.id, [user("a summary")], seen=wrong)
    with pytest.raises(Outdated) as raised:
        space.threads.replace_messages(thread.id, [], seen={foreign.id: 2})
    assert raised.value.revision == 0  # nothing of another thread is told
    space.threads.update_message(said[1].id, content="two, edited")
    with pytest.raises(Outdated):
        space.threads.replace_messages(thread.id, [user("a summary")], seen=seen)
    space.threads.add(thread.id, [user("four")])
    with pytest.raises(Outdated, match="the thread t has a newer message"):
        space.threads.replace_messages(thread.id, [user("a summary")], seen={said[2].id: 1})
    with pytest.raises(Forbidden):
        space.threads.replace_messages(thread.id, [], resource="somebody else")
    with pytest.raises(NotFound):
        space.threads.replace_messages("missing", [user("a summary")])
    assert everything(space, thread) == ["one", "two, edited", "three", "four"]
    assert space.threads.get_message(foreign.id).content == "elsewhere"


@pytest.mark.parametrize("seen", ["m1", ["m1"], {"m1": 0}, {"m1": "1"}, {"m1": True}, {"": 1}, {"m1": None}])
def test_seen_messages_are_ids_with_revisions(space, thread, seen):
    with pytest.raises(InvalidInput):
        space.threads.replace_messages(thread.id, [], seen=seen)


def test_one_of_many_replaces_the_same_messages(space, thread):
    said = space.threads.add(thread.id, [user("one"), user("two")])
    seen = {message.id: 1 for message in said}

    def replaced(number):
        try:
            space.threads.replace_messages(thread.id, [user(str(number))], seen=seen)
        except Outdated:
            return None
        return str(number)

    with ThreadPoolExecutor(8) as pool:
        done = [number for number in pool.map(replaced, range(8)) if number is not None]
    assert len(done) == 1
    assert everything(space, thread) == done


@pytest.mark.parametrize("ids", ["m1", [5], [""], None])
def test_ids_to_delete_are_a_list_of_ids(space, ids):
    with pytest.raises(InvalidInput):
        space.threads.delete_messages(ids)


@pytest.mark.promise("conversations-clear")
def test_a_cleared_thread_stays_without_its_messages_until_undo(space, thread):
    other = space.threads.create()
    space.threads.add(other.id, [user("elsewhere")])
    said = space.threads.add(thread.id, [user(f"zebra {number}") for number in range(5)])

    commit = space.threads.clear(thread.id)

    assert everything(space, thread) == []
    assert everything(space, other) == ["elsewhere"]
    assert [hit.key for hit in space.search("zebra") if hit.key in {message.id for message in said}] == []
    assert space.threads.get(thread.id).created_at == thread.created_at
    assert space.threads.clear(thread.id) is None
    space.undo(commit)
    assert space.threads.messages(thread.id).messages == said


def test_a_clear_of_an_unknown_thread_or_of_another_resource_is_refused(space, thread):
    space.threads.add(thread.id, [user("kept")])
    with pytest.raises(NotFound, match="No thread found with id nope"):
        space.threads.clear("nope")
    with pytest.raises(Forbidden):
        space.threads.clear(thread.id, resource="bob")
    assert everything(space, thread) == ["kept"]


PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 400_000


@pytest.mark.promise("limits-of-a-message")
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_a_message_holds_a_picture_and_is_found_by_its_words_alone(open_book, place):
    """A message over 1 MB, such as one with an image as base64, was refused, and with it the whole run of an agent."""
    if place == "postgres":
        empty(shared_book())
    space = open_book(shared_book() if place == "postgres" else None).space("user", "u1")
    parts = [
        {"type": "text", "text": f"the zebra at the lake ![it]({PICTURE})"},
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "text", "text": "QUJD" * 3_000},
    ]
    answer = json.dumps({"name": "a lion", "png": "QUJD" * 300_000})
    answered = {"role": "tool", "tool_call_id": "c1", "content": answer}
    saved, _ = space.threads.begin([{"role": "user", "content": parts}, answered])
    assert space.threads.get_message(saved.id).content == parts
    hit, *_ = space.search("zebra lake", kinds=["message"])
    assert hit.entry.text == "the zebra at the lake ![it]()"
    hit, *_ = space.search("lion", kinds=["message"])
    assert hit.entry.text == '{"name": "a lion", "png": ""}'
    assert space.stats().chunks == 2


@pytest.mark.promise("limits-of-a-message")
def test_a_message_past_the_limit_is_refused_and_metadata_and_working_memory_have_their_own(open_book):
    space = open_book(limits=Limits(message_bytes=2_000, metadata_bytes=1_000)).space("user", "u1")
    thread = space.threads.create()
    space.threads.add(thread.id, [user("x" * 1_900)])
    for write in (
        lambda: space.threads.add(thread.id, [user("x" * 2_000)]),
        lambda: space.threads.update(thread.id, metadata={"a": "x" * 1_000}),
        lambda: space.threads.working.write("x" * 1_001),
    ):
        with pytest.raises(TooLarge, match=r"at most [12],000 are allowed"):
            write()


def test_a_message_of_a_million_empty_values_is_refused(space, thread):
    """Few bytes of JSON, but twenty times as much memory."""
    with pytest.raises(TooLarge, match="message 1 holds more than 1,000,000 values"):
        space.threads.add(thread.id, [{"role": "user", "content": [{"type": "text", "x": [[]] * 1_000_001}]}])


# Some with a time, and some without

CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": ""}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "42"}
AHEAD, BEHIND = "2025-06-15T15:06:45Z", "2025-06-15T15:06:30Z"


@pytest.mark.promise("conversations-order-of-a-call")
@pytest.mark.parametrize(
    "times",
    [
        (None, AHEAD, None, None),
        (BEHIND, None, None, AHEAD),
        (None, None, BEHIND, None),
        (None, BEHIND, None, BEHIND),
        (AHEAD, None, BEHIND, None),
    ],
)
def test_the_messages_of_one_call_keep_their_order_whichever_of_them_are_dated(space, thread, times):
    """With a client's clock ahead of ours, an undated result came before its dated call, and a model got neither."""
    said = [user("how many?"), CALL, RESULT, {"role": "assistant", "content": "It is 42."}]
    dated = [{**one, **({} if time is None else {"createdAt": time})} for one, time in zip(said, times, strict=True)]
    saved = space.threads.add(thread.id, dated)
    given = [datetime.fromisoformat(time) for time in times if time is not None]
    assert [one.created_at for one, time in zip(saved, times, strict=True) if time is not None] == given
    if given == sorted(given):
        assert [*space.threads.messages(thread.id).messages] == [*saved]
        assert [*space.threads.context(thread.id).messages] == said


def test_an_undated_message_comes_after_those_of_a_clock_that_is_ahead(space, thread):
    """A result that came in a call of its own was put before its call, which a client had dated some seconds ahead."""
    space.threads.add(thread.id, [user("how many?"), {**CALL, "createdAt": AHEAD}])
    space.threads.add(thread.id, [RESULT])
    space.threads.add(thread.id, [{"role": "assistant", "content": "It is 42."}])
    context = space.threads.context(thread.id)
    assert [message["role"] for message in context.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_message_dated_far_ahead_does_not_date_those_that_come_after_it(space, thread, clock):
    space.threads.add(thread.id, [user("later", createdAt="2096-01-01T00:00:00Z")])
    [saved] = space.threads.add(thread.id, [user("now")])
    assert saved.created_at < START + timedelta(seconds=1)
