"""What a model is given of a conversation: within its tokens, in order, and no tool call without its result."""

from __future__ import annotations

import pytest

from commonplace import Forbidden, InvalidInput, NotFound
from commonplace.space.context import TOKENS_AROUND_A_MESSAGE
from turns import OPENAI, assistant, call, contents, result, user, words

# What is given


@pytest.mark.promise("context-ready-for-a-model")
def test_a_thread_gives_its_last_messages_as_they_came_with_the_working_memory(space):
    thread = space.threads.create()
    said = [user("hello", name="Ann"), assistant("hi"), *OPENAI, assistant("done")]
    space.threads.add(thread.id, said)
    space.threads.working.write("# Facts\n- Ann")
    space.threads.working.write({"task": "deploy"}, thread=thread.id)

    context = thread.context()

    assert list(context.messages) == said
    assert context.system is not None
    assert "- Ann" in context.system
    assert '"task": "deploy"' in context.system
    assert (context.omitted, context.notices) == (0, ())
    assert thread.context(working=False).system is None
    assert contents(thread.context(last=1)) == ["done"]
    assert thread.context() == space.threads.get(thread.id).context() == space.threads.context(thread.id)


def test_the_query_brings_older_messages_with_their_neighbours_in_time_order(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [user(f"about topic{number}") for number in range(30)])

    context = thread.context("topic4", last=2, top=1, neighbours=1)

    assert contents(context) == ["about topic3", "about topic4", "about topic5", "about topic28", "about topic29"]


def test_a_thread_with_its_way_to_the_space_is_equal_to_one_without(space):
    thread = space.threads.create("Deploys")
    plain = type(thread)(
        thread.id, thread.resource_id, thread.title, thread.metadata, thread.created_at, thread.updated_at
    )
    assert plain == thread
    assert "_context" not in repr(thread)
    with pytest.raises(InvalidInput, match=r"space\.threads\.context"):
        plain.context()


def test_other_threads_of_the_resource_are_recalled_when_asked_for(space):
    old, new = space.threads.create(), space.threads.create()
    space.threads.add(old.id, [user("the zebra checklist")])
    space.threads.add(new.id, [user("hello")])

    assert contents(new.context("zebra")) == ["hello"]
    assert contents(new.context("zebra", scope="resource")) == ["the zebra checklist", "hello"]


def test_an_empty_thread_gives_nothing(space):
    thread = space.threads.create()
    context = thread.context("anything", max_tokens=10)
    assert (context.messages, context.system, context.tokens, context.omitted) == ((), None, 0, 0)


# Tokens


@pytest.mark.promise("context-within-its-tokens")
def test_what_does_not_fit_is_left_out_from_the_oldest_on_and_counted(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [user(f"word word {number}") for number in range(5)])

    context = thread.context(max_tokens=3 * (3 + TOKENS_AROUND_A_MESSAGE) + 1, count_tokens=words)

    assert contents(context) == ["word word 2", "word word 3", "word word 4"]
    assert (context.tokens, context.omitted) == (3 * (3 + TOKENS_AROUND_A_MESSAGE), 2)


def test_the_past_has_no_gap_where_a_long_message_does_not_fit(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("short"), user("long " * 100), user("new")])
    assert contents(thread.context(max_tokens=50, count_tokens=words)) == ["new"]


def test_hits_have_their_share_beside_a_long_recent_past(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("zebra fact"), *(user("talk " * 10) for _ in range(20))])

    context = thread.context("zebra", max_tokens=60, top=1, neighbours=0, count_tokens=words)

    assert contents(context)[0] == "zebra fact"
    assert len(context.messages) >= 3


def test_hits_take_no_more_than_half_of_the_room_from_the_recent_past(space):
    thread = space.threads.create()
    hits = [user(f"zebra {number} " + "fact " * 20) for number in range(4)]
    space.threads.add(thread.id, [*hits, *(user(f"talk {number}") for number in range(10))])

    context = thread.context("zebra", max_tokens=100, top=4, neighbours=0, count_tokens=words)

    recent = [text for text in contents(context) if text.startswith("talk")]
    assert recent[-1] == "talk 9"
    assert len(recent) >= 6
    assert any(text.startswith("zebra") for text in contents(context))


def test_a_working_memory_beyond_the_budget_is_told_and_not_dropped(space):
    thread = space.threads.create()
    space.threads.working.write("word " * 100)
    with pytest.raises(InvalidInput, match=r"max_tokens is 50, but the working memory alone has \d+.*working=False"):
        thread.context(max_tokens=50, count_tokens=words)
    assert thread.context(max_tokens=50, count_tokens=words, working=False).messages == ()


@pytest.mark.parametrize("max_tokens", [0, -1, True, 1.5, "many"])
def test_a_budget_is_a_whole_number_above_0(space, max_tokens):
    thread = space.threads.create()
    with pytest.raises(InvalidInput, match="max_tokens"):
        thread.context(max_tokens=max_tokens)


def test_a_counter_is_a_function(space):
    thread = space.threads.create()
    with pytest.raises(InvalidInput, match="count_tokens"):
        thread.context(count_tokens="cl100k")


@pytest.mark.parametrize("count", [None, "5", -100, 1.5, True])
def test_a_count_is_a_whole_number_of_0_or_more(space, count):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("hello"), user("named", name="Ann")])
    with pytest.raises(InvalidInput, match="count_tokens must return a whole number of 0 or more, not "):
        thread.context(count_tokens=lambda text: count)
    assert thread.context(count_tokens=lambda text: 0).tokens == 2 * TOKENS_AROUND_A_MESSAGE


def test_an_unknown_thread_and_one_of_another_resource_are_refused(space):
    thread = space.threads.create(resource="ann")
    with pytest.raises(NotFound, match="No thread found with id nope"):
        space.threads.context("nope")
    with pytest.raises(Forbidden, match="is for resource with id ann but resource bob was queried"):
        thread.context(resource="bob")


@pytest.mark.promise("context-within-its-tokens")
def test_the_result_of_a_stream_is_no_way_around_the_budget(space):
    thread = space.threads.create()
    stream = "data: " + "the quick brown fox jumps over the lazy dog. " * 500
    space.threads.add(thread.id, [call("c1"), result("c1", stream), user("thanks")])
    assert list(thread.context(max_tokens=2_000).messages) == [user("thanks")]
