"""What a model is given of a conversation: within its tokens, in order, and no tool call without its result."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import Forbidden, InvalidInput, NotFound
from commonplace.space.tokens import TOKENS_AROUND_A_MESSAGE
from commonplace.space.tool_calls import ties_of
from doubles import WordEmbedder

START = datetime(2025, 6, 15, tzinfo=UTC)


def words(text: str) -> int:
    return len(text.split())


def user(text, **fields):
    return {"role": "user", "content": text, **fields}


def assistant(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def call(*ids, text=None):
    functions = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
    return assistant(text, tool_calls=functions)


def result(id, text="found"):
    return {"role": "tool", "tool_call_id": id, "content": text}


def contents(context):
    return [message["content"] for message in context.messages]


OPENAI = [call("c1"), result("c1")]
ANTHROPIC = [
    assistant([{"type": "text", "text": "let me look"}, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}]),
    user([{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]),
]
AI_SDK = [
    assistant([{"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {}}]),
    {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": "x"}}],
    },
]
ONE_PART = [
    assistant({"type": "tool_use", "id": "c1", "name": "look", "input": {}}),
    user({"type": "tool_result", "tool_use_id": "c1", "content": "found"}),
]
RESPONSES = [
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "found"},
]
BEFORE_IDS = [
    assistant(None, function_call={"name": "look", "arguments": "{}"}),
    {"role": "function", "name": "look", "content": "found"},
]
LOCAL_SHELL = [
    {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["look"]}},
    {"type": "local_shell_call_output", "id": "c1", "output": "found"},
]
TOOL_SEARCH = [
    {"type": "tool_search_call", "call_id": "c1", "arguments": {"q": "look"}, "execution": "client"},
    {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": []},
]
SEARCH_BY_THE_SERVICE = [
    {"type": "tool_search_call", "call_id": None, "arguments": {"q": "look"}, "execution": "server"},
    {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []},
]
PROGRAM = [
    {"type": "reasoning", "summary": []},
    {"type": "program", "call_id": "c1", "code": "look()", "fingerprint": "f"},
    {"type": "program_output", "call_id": "c1", "result": "found", "status": "completed"},
]
APPROVAL = [
    {"type": "reasoning", "summary": []},
    {"type": "mcp_approval_request", "id": "c1", "name": "look", "arguments": "{}", "server_label": "s"},
    {"type": "mcp_approval_response", "approval_request_id": "c1", "approve": True},
]
SHAPES = {
    "openai": OPENAI,
    "anthropic": ANTHROPIC,
    "one part": ONE_PART,
    "ai-sdk": AI_SDK,
    "responses": RESPONSES,
    "local shell": LOCAL_SHELL,
    "tool search": TOOL_SEARCH,
    "tool search by the service": SEARCH_BY_THE_SERVICE,
    "program": PROGRAM,
    "approval": APPROVAL,
    "function": BEFORE_IDS,
}
shapes = pytest.mark.parametrize("uses", SHAPES.values(), ids=SHAPES.keys())


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
    with pytest.raises(InvalidInput, match="count_tokens must give a whole number of 0 or more, not "):
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


# Tools


@shapes
@pytest.mark.promise("context-keeps-tools-together")
def test_a_result_brings_its_call_along_and_a_call_its_result(space, uses):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("before"), *uses, user("after")])

    newest_two = thread.context(last=2)

    assert list(newest_two.messages) == [*uses, user("after")]
    found = thread.context("look", last=0, top=1, neighbours=0)
    assert list(found.messages) == [*uses]
    assert list(thread.context(last=len(uses) + 1).messages) == [*uses, user("after")]


@shapes
@pytest.mark.promise("context-keeps-tools-together")
def test_under_any_budget_a_call_and_its_result_are_both_there_or_both_not(space, uses):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("one two three"), *uses, user("four five six"), user("seven")])
    whole = thread.context(count_tokens=words).tokens

    for budget in range(1, whole + 1):
        context = thread.context(max_tokens=budget, count_tokens=words)
        assert context.tokens <= budget
        kept = [message in context.messages for message in uses]
        assert all(kept) or not any(kept)


@shapes
def test_a_call_that_was_never_answered_is_left_out_but_at_the_end(space, uses):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("go"), *uses[:-1]])
    assert list(thread.context().messages) == [user("go"), *uses[:-1]]

    space.threads.add(thread.id, [user("never mind")])

    context = thread.context()
    kept = [message for message in context.messages if not ties_of(message).is_thought]
    assert kept == [user("go"), user("never mind")]


@shapes
def test_a_result_whose_call_is_gone_is_left_out(space, uses):
    thread = space.threads.create()
    saved = space.threads.add(thread.id, [*uses, user("thanks")])
    space.threads.delete_messages([message.id for message in saved[: len(uses) - 1]])

    context = thread.context()

    assert list(context.messages) == [user("thanks")]
    assert context.omitted == 1


def test_a_tool_used_within_one_message_is_complete(space):
    thread = space.threads.create()
    invocation = {"state": "result", "toolCallId": "c1", "toolName": "look", "args": {}, "result": "found"}
    complete = [
        assistant({"format": 2, "parts": [{"type": "tool-invocation", "toolInvocation": invocation}]}),
        {"role": "assistant", "parts": [{"type": "tool-look", "toolCallId": "c2", "state": "output-available"}]},
        assistant("", toolInvocations=[dict(invocation, toolCallId="c3")]),
    ]
    waiting = assistant("", toolInvocations=[{"state": "call", "toolCallId": "c4", "toolName": "look", "args": {}}])
    space.threads.add(thread.id, [*complete, waiting, user("thanks")])
    assert list(thread.context().messages) == [*complete, user("thanks")]


@pytest.mark.promise("context-keeps-tools-together")
@pytest.mark.parametrize("uses", [LOCAL_SHELL, APPROVAL], ids=["local shell", "approval"])
def test_what_an_id_ties_together_stays_so_in_a_copy_of_the_thread(space, uses):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("before"), *uses, user("after")])
    copied = space.threads.clone(thread.id)
    assert list(copied.context(last=2).messages) == [*uses, user("after")]


def test_ids_that_a_model_uses_again_belong_to_the_nearest_call(space):
    thread = space.threads.create()
    uses = [*OPENAI, user("again"), *OPENAI, user("thanks")]
    space.threads.add(thread.id, uses)
    assert list(thread.context(last=2).messages) == uses[-3:]
    assert list(thread.context().messages) == uses


USED_AGAIN = [
    call("c1", text="zebra lookup"),
    result("c1", "zebra result"),
    user("x"),
    call("c1", text="second lookup"),
    result("c1", "second result"),
]


def called_by_name(city):
    return assistant(None, function_call={"name": "get_weather", "arguments": f'{{"city": "{city}"}}'})


NAMED_AGAIN = [
    called_by_name("Berlin"),
    {"role": "function", "name": "get_weather", "content": "rain, 8 degrees"},
    user("and there?"),
    called_by_name("Rome"),
    {"role": "function", "name": "get_weather", "content": "sun, 25 degrees"},
]


@pytest.mark.promise("context-keeps-tools-together")
@pytest.mark.parametrize("last", [0, 1, 2])
@pytest.mark.parametrize(("said", "query"), [(USED_AGAIN, "zebra lookup"), (NAMED_AGAIN, "Berlin")])
def test_a_call_that_is_found_brings_its_own_result_where_its_id_is_used_again(space, said, query, last):
    thread = space.threads.create()
    space.threads.add(thread.id, said)
    context = thread.context(query, last=last, top=1, neighbours=0)
    assert list(context.messages) == (said[:2] if last == 0 else [*said[:2], *said[3:]])


def test_a_result_that_is_found_brings_its_own_call_where_its_id_is_used_again(space):
    thread = space.threads.create()
    said = [call("c1"), result("c1", "old"), *(user(f"wait {number}") for number in range(30)), *USED_AGAIN[:2]]
    [first, *_] = space.threads.add(thread.id, said)
    found = thread.context("zebra result", last=0, top=1, neighbours=0)
    assert list(found.messages) == USED_AGAIN[:2]
    space.threads.delete_messages([first.id])
    assert list(thread.context("old", last=2, top=1, neighbours=0).messages) == USED_AGAIN[:2]


def test_a_call_that_was_never_answered_does_not_take_the_result_of_a_later_one(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [call("c1", text="zebra lookup"), *USED_AGAIN[3:]])
    for last in (0, 1, 3):
        context = thread.context("zebra", last=last, top=1, neighbours=0)
        assert list(context.messages) == (USED_AGAIN[3:] if last else [])


def test_a_result_far_from_its_call_is_found(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [OPENAI[0], *(user(f"wait {number}") for number in range(60)), OPENAI[1]])
    assert list(thread.context(last=1).messages) == OPENAI


def test_nothing_of_another_thread_stands_between_a_call_and_its_result(space):
    one, other = space.threads.create(), space.threads.create()
    times = [START + timedelta(seconds=second) for second in range(4)]
    dated = [dict(message, createdAt=at) for message, at in zip(OPENAI, (times[0], times[2]), strict=True)]
    space.threads.add(one.id, dated)
    space.threads.add(other.id, [user("zebra", createdAt=times[1])])

    context = one.context("zebra", scope="resource", top=1)

    assert list(context.messages) == [*OPENAI, user("zebra")]


@pytest.mark.promise("context-keeps-tools-together")
def test_a_call_that_waits_in_another_thread_is_left_out(space):
    one, other = space.threads.create(), space.threads.create()
    space.threads.add(other.id, [call("p1", text="giraffe lookup")])
    space.threads.add(one.id, [user("hello")])

    context = one.context("giraffe lookup", scope="resource", top=1, neighbours=0)

    assert list(context.messages) == [user("hello")]
    assert context.omitted == 1


def test_a_thought_that_led_to_nothing_yet_stays_in_its_own_thread(space):
    one, other = space.threads.create(), space.threads.create()
    space.threads.add(other.id, [user("giraffe"), RESPONSES[0]])
    space.threads.add(one.id, [user("hello")])
    assert list(one.context("giraffe", scope="resource").messages) == [user("giraffe"), user("hello")]
    assert list(other.context().messages) == [user("giraffe"), RESPONSES[0]]


@pytest.mark.promise("context-keeps-tools-together")
def test_nothing_of_another_thread_comes_after_a_call_that_waits(space):
    one, other = space.threads.create(), space.threads.create()
    asked = [user("look"), call("c1", "c2"), result("c1")]
    space.threads.add(one.id, asked)
    space.threads.add(other.id, [user("zebra")])

    context = one.context("zebra", scope="resource", top=1)

    assert list(context.messages) == [user("look"), user("zebra"), *asked[1:]]


messages = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["a", "b c", "d e f"])),
        st.builds(
            lambda ids: assistant("calls", tool_calls=[{"id": id, "type": "function"} for id in ids]),
            st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=2, unique=True),
        ),
        st.builds(lambda id: {"role": "tool", "tool_call_id": id, "content": "r"}, st.sampled_from(["1", "2", "3"])),
    ),
    max_size=12,
)


@given(messages, st.integers(0, 12), st.integers(1, 80))
def test_any_context_is_one_that_a_model_accepts(said, last, budget):
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as book:
        thread = book.space("user", "u1").threads.create()
        book.space("user", "u1").threads.add(thread.id, said)
        context = thread.context("d", last=last, top=2, max_tokens=budget, count_tokens=words)

        assert context.tokens <= budget
        remaining = iter(said)
        assert all(message in remaining for message in context.messages)  # a subsequence, in order
        open_calls: set[str] = set()
        for message in context.messages:
            ties = ties_of(message)
            assert ties.results <= open_calls, "a result without its call"
            open_calls |= ties.calls
        answered = {id for message in context.messages for id in ties_of(message).results}
        if context.messages and context.messages[-1] != said[-1]:
            assert open_calls <= answered, "a call without its result"


ids = st.sampled_from(["1", "2"])
uses = st.lists(
    st.one_of(
        st.just(((), ())),
        st.lists(ids, min_size=1, max_size=2, unique=True).map(lambda called: (called, ())),
        ids.map(lambda id: ((), (id,))),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.promise("context-keeps-tools-together")
@given(uses, st.data())
def test_any_result_stands_with_the_nearest_call_of_its_id(said, data):
    caller: dict[int, int | None] = {}
    last_call: dict[str, int] = {}
    for place, (called, answered) in enumerate(said):
        for id in answered:
            caller[place] = last_call.get(id)
        last_call |= dict.fromkeys(called, place)
    written = [
        call(*called, text=f"word{place}") if called else result(*answered, f"word{place}") if answered else user("x")
        for place, (called, answered) in enumerate(said)
    ]
    with commonplace.open(":memory:", embedder=WordEmbedder(), background=False) as book:
        threads = book.space("user", "u1").threads
        thread = threads.create()
        threads.add(thread.id, [dict(message, place=place) for place, message in enumerate(written)])
        query = " ".join(f"word{place}" for place in data.draw(st.sets(st.integers(0, len(said) - 1), max_size=3)))
        context = thread.context(query, last=data.draw(st.integers(0, 3)), top=3, neighbours=0)

    kept = [message["place"] for message in context.messages]
    assert kept == sorted(kept)
    for place in kept:
        called, answered = said[place]
        if answered:
            assert caller[place] in kept, "a result without its call"
        got = {id for other in kept if caller.get(other) == place for id in said[other][1]}
        assert got == set(called) or kept[-1] == len(said) - 1, "a call without its result"
