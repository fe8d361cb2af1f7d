"""No tool call without its result, and no result or thought without what it belongs to, in what a model is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from commonplace.space.message_text import ties_of
from turns import OPENAI, THOUGHT, assistant, call, function_call, function_output, result, user, words

START = datetime(2025, 6, 15, tzinfo=UTC)


def sdk_call(id, *parts):
    return assistant([{"type": "tool-call", "toolCallId": id, "toolName": "look", "input": {}}, *parts])


def sdk_result(id):
    return {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": id, "output": {"type": "text", "value": "x"}}],
    }


ANTHROPIC = [
    assistant([{"type": "text", "text": "let me look"}, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}]),
    user([{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]),
]
ONE_PART = [
    assistant({"type": "tool_use", "id": "c1", "name": "look", "input": {}}),
    user({"type": "tool_result", "tool_use_id": "c1", "content": "found"}),
]
SPOKEN = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me see"}]}
REQUEST = {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"}
RESPONSE = {"role": "tool", "content": [{"type": "tool-approval-response", "approvalId": "a1", "approved": True}]}
AI_SDK = [sdk_call("c1"), sdk_result("c1")]
AI_SDK_APPROVAL = [sdk_call("c1", REQUEST), RESPONSE, sdk_result("c1")]
RESPONSES = [THOUGHT, function_call("c1"), function_output("c1")]
PARALLEL = [THOUGHT, function_call("c1"), function_call("c2"), function_output("c2"), function_output("c1")]
SPOKEN_BETWEEN = [THOUGHT, SPOKEN, function_call("c1"), function_output("c1")]
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
    THOUGHT,
    {"type": "program", "call_id": "c1", "code": "look()", "fingerprint": "f"},
    {"type": "program_output", "call_id": "c1", "result": "found", "status": "completed"},
]
APPROVAL = [
    THOUGHT,
    {"type": "mcp_approval_request", "id": "c1", "name": "look", "arguments": "{}", "server_label": "s"},
    {"type": "mcp_approval_response", "approval_request_id": "c1", "approve": True},
]
SHAPES = {
    "openai": OPENAI,
    "anthropic": ANTHROPIC,
    "one part": ONE_PART,
    "ai-sdk": AI_SDK,
    "ai-sdk approval": AI_SDK_APPROVAL,
    "responses": RESPONSES,
    "responses in parallel": PARALLEL,
    "responses that speak first": SPOKEN_BETWEEN,
    "local shell": LOCAL_SHELL,
    "tool search": TOOL_SEARCH,
    "tool search by the service": SEARCH_BY_THE_SERVICE,
    "program": PROGRAM,
    "approval": APPROVAL,
    "function": BEFORE_IDS,
}
shapes = pytest.mark.parametrize("uses", SHAPES.values(), ids=SHAPES.keys())


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

    assert list(thread.context().messages) == [user("go"), user("never mind")]


WAITING = {
    "responses": [THOUGHT, function_call("c1"), function_call("c2")],
    "responses that speak between": [THOUGHT, function_call("c1"), SPOKEN, function_call("c2")],
    "responses without thoughts": [function_call("c1"), {"type": "web_search_call"}, function_call("c2")],
    "responses with several thoughts": [THOUGHT, THOUGHT, function_call("c1"), THOUGHT, function_call("c2")],
    "one answered": [function_call("c1"), function_call("c2"), function_output("c1")],
    "another answered": [function_call("c1"), function_call("c2"), function_output("c2")],
    "openai": [call("c1"), call("c2"), call("c3"), result("c2")],
    "ai-sdk": [sdk_call("c1"), sdk_call("c2")],
    "ai-sdk, one allowed": [sdk_call("c1", REQUEST), sdk_call("c2"), sdk_result("c2"), RESPONSE],
    "called by a program": [
        {"type": "program", "call_id": "p1", "code": "look()"},
        function_call("c1"),
        function_output("c1"),
        function_call("c2"),
    ],
}
waiting = pytest.mark.parametrize("uses", WAITING.values(), ids=WAITING.keys())


@waiting
@pytest.mark.promise("context-keeps-tools-together")
def test_all_calls_that_wait_at_the_end_of_a_thread_are_given(space, uses):
    thread = space.threads.create()
    said = [user("go"), *uses]
    space.threads.add(thread.id, said, verbatim=True)

    assert list(thread.context().messages) == said
    still_open = [message for message in uses if ties_of(message).calls - _answered(uses)]
    for last in range(1, len(said)):
        context = thread.context(last=last)  # what waits comes along
        assert [message for message in context.messages if message in still_open] == still_open
        assert context.messages[-1] == said[-1]

    space.threads.add(thread.id, [user("never mind")])
    left = thread.context().messages
    assert not [message for message in left if message in still_open]
    assert left[-1] == user("never mind")


@waiting
def test_under_any_budget_the_calls_that_wait_are_all_there_or_all_not(space, uses):
    thread = space.threads.create()
    space.threads.add(thread.id, [user("one two"), *uses], verbatim=True)
    still_open = [message for message in uses if ties_of(message).calls - _answered(uses)]
    whole = thread.context(count_tokens=words).tokens

    kept = []
    for budget in range(1, whole + 1):
        context = thread.context(max_tokens=budget, count_tokens=words)
        kept.append([message for message in context.messages if message in still_open])
        assert context.tokens <= budget
        assert kept[-1] in ([], still_open)
    assert kept == sorted(kept, key=len)
    assert kept[-1] == still_open


def _answered(uses):
    return {id for message in uses for id in ties_of(message).results}


def test_calls_that_wait_come_before_the_results_of_others(space):
    thread = space.threads.create()
    long = dict(function_output("c2"), output="long " * 100)
    space.threads.add(thread.id, [function_call("c1"), function_call("c2"), long])
    assert list(thread.context(max_tokens=50, count_tokens=words).messages) == [function_call("c1")]


def test_a_call_far_from_the_end_waits_with_those_that_are_there(space):
    thread = space.threads.create()
    said = [call("c1", "c2"), *(user(f"wait {number}") for number in range(60)), result("c1"), call("c3")]
    space.threads.add(thread.id, said)
    assert list(thread.context(last=1).messages) == [said[0], *said[-2:]]


def test_nothing_of_another_thread_comes_between_calls_that_wait(space):
    one, other = space.threads.create(), space.threads.create()
    times = [START + timedelta(seconds=second) for second in range(5)]
    uses = [call("c1"), call("c2"), result("c2")]
    space.threads.add(one.id, [dict(use, createdAt=at) for use, at in zip(uses, times[::2], strict=True)])
    space.threads.add(other.id, [user("zebra", createdAt=times[1]), user("zebra", createdAt=times[3])])

    context = one.context("zebra", scope="resource")

    assert list(context.messages) == [user("zebra"), user("zebra"), *uses]


def test_a_call_that_waits_is_not_kept_by_what_is_said_after_it(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [function_call("c1"), assistant("well"), function_call("c2")])
    assert list(thread.context().messages) == [assistant("well"), function_call("c2")]


@pytest.mark.parametrize("thoughts", [[THOUGHT], [THOUGHT, THOUGHT]], ids=["one", "two"])
@pytest.mark.parametrize(
    ("before", "after"), [(user("go"), user("never mind")), (function_call("c1"), function_output("c1"))]
)
def test_a_thought_that_led_to_nothing_is_left_out_but_at_the_end(space, thoughts, before, after):
    thread = space.threads.create()
    space.threads.add(thread.id, [before, *thoughts])
    assert list(thread.context().messages) == [before, *thoughts]

    space.threads.add(thread.id, [after, assistant("hello")])

    context = thread.context()
    assert list(context.messages) == [before, after, assistant("hello")]
    assert context.omitted == len(thoughts)
    assert THOUGHT not in thread.context(last=3).messages


def test_a_thought_does_not_belong_to_what_comes_later(space):
    thread = space.threads.create()
    said = [user("zebra"), THOUGHT, user("never mind"), THOUGHT, SPOKEN, user("thanks")]
    saved = space.threads.add(thread.id, said)
    assert list(thread.context("zebra see", last=0, top=2).messages) == [user("zebra"), *said[3:]]
    space.threads.delete_messages([saved[4].id])
    assert list(thread.context().messages) == [user("zebra"), user("never mind"), user("thanks")]


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


def test_an_answer_about_a_call_needs_the_question_but_the_question_no_answer(space):
    thread = space.threads.create()
    same_id = dict(REQUEST, approvalId="c1")
    said = [sdk_call("c1", REQUEST), sdk_result("c1"), user("x"), sdk_call("c1", same_id), user("y")]
    allowed = {"role": "tool", "content": [{"type": "tool-approval-response", "approvalId": "c1", "approved": True}]}
    [*_, asked, _] = space.threads.add(thread.id, said)
    space.threads.add(thread.id, [allowed, user("z")])
    assert list(thread.context().messages) == [*said[:3], user("y"), user("z")]
    space.threads.delete_messages([asked.id])
    assert list(thread.context().messages) == [*said[:3], user("y"), user("z")]


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


def test_a_call_with_two_results_is_given_once(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [call("c1"), result("c1", "zebra"), user("wait"), result("c1", "giraffe")])
    context = thread.context("zebra giraffe", last=0, top=2, neighbours=0)
    assert [message for message in context.messages if message["role"] == "assistant"] == [call("c1")]


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
    space.threads.add(other.id, [user("giraffe"), THOUGHT])
    space.threads.add(one.id, [user("hello")])
    assert list(one.context("giraffe", scope="resource").messages) == [user("giraffe"), user("hello")]
    assert list(other.context().messages) == [user("giraffe"), THOUGHT]


@pytest.mark.promise("context-keeps-tools-together")
def test_nothing_of_another_thread_comes_after_a_call_that_waits(space):
    one, other = space.threads.create(), space.threads.create()
    asked = [user("look"), call("c1", "c2"), result("c1")]
    space.threads.add(one.id, asked)
    space.threads.add(other.id, [user("zebra")])

    context = one.context("zebra", scope="resource", top=1)

    assert list(context.messages) == [user("look"), user("zebra"), *asked[1:]]
