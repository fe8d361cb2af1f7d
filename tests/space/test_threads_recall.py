"""Recall: the last messages, and what the query brings to mind with its neighbours, each once, in time order."""

from __future__ import annotations

import pytest

from commonplace import InvalidInput

FILLERS = ["morning", "lunch", "weather", "football", "music", "garden", "holiday", "train", "coffee", "book"]


def talk(space, thread, *texts):
    return [space.threads.add(thread.id, [{"role": "user", "content": text}])[0] for text in texts]


def texts(recalled):
    return [message.content for message in recalled]


@pytest.fixture
def thread(space):
    """`kayak` stands at place 3 of 24 messages, and in none of the last ten."""
    thread = space.threads.create()
    said = [f"{word} {number}" for number in range(3) for word in FILLERS[:8]]
    said[3] = "we rent a kayak on sunday"
    talk(space, thread, *said)
    return thread


@pytest.mark.promise("conversations-last-ten")
def test_recall_gives_the_last_ten_in_time_order_by_default(space, thread):
    everything = texts(space.threads.messages(thread.id).messages)
    assert texts(space.threads.recall(thread.id)) == everything[-10:]
    assert texts(space.threads.recall(thread.id, last=3)) == everything[-3:]


@pytest.mark.promise("conversations-semantic-recall")
def test_recall_adds_what_the_query_finds_with_one_message_before_and_after(space, thread):
    everything = texts(space.threads.messages(thread.id).messages)
    recalled = space.threads.recall(thread.id, query="kayak", top=1)

    assert texts(recalled) == everything[2:5] + everything[-10:]
    assert [(hit.kind, hit.key) for hit in recalled.hits] == [("message", recalled[1].id)]


@pytest.mark.promise("conversations-semantic-recall")
def test_recall_takes_the_best_four_and_gives_each_message_once(space, thread):
    recalled = space.threads.recall(thread.id, query="we rent a kayak on sunday morning lunch weather")
    ids = [message.id for message in recalled]

    assert len(recalled.hits) == 4
    assert len(ids) == len(set(ids))
    assert ids == [m.id for m in space.threads.messages(thread.id).messages if m.id in set(ids)]


def test_neighbouring_hits_overlap_without_repetition(space):
    thread = space.threads.create()
    talk(space, thread, "start", "kayak one", "kayak two", "end", "x", "y", "z")

    recalled = space.threads.recall(thread.id, query="kayak", top=2, last=1)

    assert texts(recalled) == ["start", "kayak one", "kayak two", "end", "z"]


def test_recall_of_one_thread_sees_no_other(space, thread):
    other = space.threads.create()
    talk(space, other, "another kayak")
    assert "another kayak" not in texts(space.threads.recall(thread.id, query="another kayak"))


@pytest.mark.promise("conversations-fresh-thread-recalls")
def test_a_fresh_thread_recalls_from_the_other_threads_of_its_resource_only(space):
    mine, theirs = space.threads.create(resource="A"), space.threads.create(resource="B")
    talk(space, mine, "before", "my kayak", "after")
    talk(space, theirs, "their kayak")
    fresh = space.threads.create(resource="A")

    assert texts(space.threads.recall(fresh.id, query="kayak")) == []
    assert texts(space.threads.recall(fresh.id, query="kayak", scope="resource", top=1)) == [
        "before",
        "my kayak",
        "after",
    ]
    everything = space.threads.recall(fresh.id, query="kayak", scope="resource")
    assert "their kayak" not in texts(everything)


def test_messages_of_several_threads_come_in_time_order(space, clock):
    one, two = space.threads.create(id="b"), space.threads.create(id="a")
    for thread, text in ((one, "kayak 1"), (two, "kayak 2"), (one, "kayak 3"), (two, "kayak 4")):
        talk(space, thread, text)
        clock.advance()

    assert texts(space.threads.recall(one.id, query="kayak", scope="resource")) == [
        "kayak 1",
        "kayak 2",
        "kayak 3",
        "kayak 4",
    ]


@pytest.mark.parametrize("query", [None, "", "  \n", "?!"])
def test_a_query_without_words_leaves_the_last_messages(space, thread, query):
    recalled = space.threads.recall(thread.id, query=query, top=0 if query == "?!" else 4)
    assert (len(recalled), recalled.hits) == (10, ())


def test_a_turn_longer_than_any_query_still_recalls(space, thread):
    recalled = space.threads.recall(thread.id, query="kayak " * 100_000, top=1)
    assert "we rent a kayak on sunday" in texts(recalled)


def test_what_was_said_a_moment_ago_is_recalled_by_meaning(space, thread, embedder, monkeypatch):
    monkeypatch.setattr("commonplace.engine.search.LAG_SECONDS", 30.0)  # enough on a machine that is busy
    talk(space, thread, "the canoe is red")
    recalled = space.threads.recall(thread.id, query="canoe", top=1, last=0)

    assert "the canoe is red" in embedder.embedded
    assert "meaning" in recalled.hits[0].parts
    assert recalled.notices == ()


def test_a_model_that_fails_leaves_recall_by_words_and_says_so(space, thread, embedder):
    from commonplace import Unavailable

    embedder.error = Unavailable("no model")
    recalled = space.threads.recall(thread.id, query="kayak", top=1)

    assert "we rent a kayak on sunday" in texts(recalled)
    assert "no model" in recalled.notices[0]


@pytest.mark.parametrize(
    "wrong",
    [{"last": -1}, {"top": 101}, {"neighbours": "1"}, {"last": True}, {"scope": "world"}, {"query": 5}],
    ids=str,
)
def test_wrong_arguments_are_refused(space, thread, wrong):
    with pytest.raises(InvalidInput):
        space.threads.recall(thread.id, **wrong)
