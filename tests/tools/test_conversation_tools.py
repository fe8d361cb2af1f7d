"""The conversation tools: few, exact, and every refusal an answer that a model can act on."""

from __future__ import annotations

import jsonschema
import pytest

from commonplace.space.rules import Rules
from commonplace.tools.conversation_tools import TOOLS, ConversationTools

USER = {"role": "user", "content": "We could hike in the Dolomites in July."}
ASSISTANT = {"role": "assistant", "content": "The huts fill early; reserve before March."}


@pytest.fixture
def tools(space):
    """Calls a tool by name, and checks both sides against its schemas."""
    offered = {spec.name: spec for spec in TOOLS}
    conversation = ConversationTools(space)

    def call(name, **arguments):
        jsonschema.validate(arguments, offered[name].input_schema)
        answer = conversation.call(name, arguments)
        assert not answer.is_error, answer.text
        jsonschema.validate(answer.structured, offered[name].output_schema)
        return answer

    return call


@pytest.mark.promise("mcp-conversations")
def test_the_tools_have_honest_hints_and_valid_schemas():
    for spec in TOOLS:
        jsonschema.Draft202012Validator.check_schema(spec.input_schema)
        jsonschema.Draft202012Validator.check_schema(spec.output_schema)
    assert {spec.name for spec in TOOLS if spec.is_read_only} == {
        "thread_list",
        "thread_read",
        "conversation_search",
        "working_memory_read",
    }
    assert {spec.name for spec in TOOLS if spec.is_destructive} == {"updateWorkingMemory"}


@pytest.mark.promise("mcp-conversations")
def test_a_conversation_is_begun_continued_listed_and_read(tools, clock):
    first = tools("message_add", messages=[USER, ASSISTANT])
    thread = first.structured["thread"]["id"]
    assert first.structured["thread"]["title"] == "We could hike in the Dolomites in July"
    assert first.text.startswith("2 messages saved.\nThread ")
    clock.advance()
    tools("message_add", thread=thread, messages=[{"role": "user", "content": [{"type": "text", "text": "Good."}]}])
    clock.advance()
    other = tools("message_add", title="Own title", messages=[{"role": "user", "content": "Hello"}])

    listed = tools("thread_list")
    assert [item["title"] for item in listed.structured["items"]] == [
        "Own title",
        "We could hike in the Dolomites in July",
    ]
    page = tools("thread_list", limit=1).structured
    assert [item["id"] for item in page["items"]] == [other.structured["thread"]["id"]]
    assert [item["id"] for item in tools("thread_list", cursor=page["nextCursor"]).structured["items"]] == [thread]

    read = tools("thread_read", thread=thread)
    assert [(item["role"], item["text"]) for item in read.structured["items"]] == [
        ("user", USER["content"]),
        ("assistant", ASSISTANT["content"]),
        ("user", "Good."),
    ]
    assert read.structured["items"][2]["content"] == [{"type": "text", "text": "Good."}]
    assert read.text.splitlines()[0] == f"Thread {thread}: We could hike in the Dolomites in July"
    assert [item["text"] for item in tools("thread_read", thread=thread, last=1).structured["items"]] == ["Good."]


@pytest.mark.promise("mcp-conversations")
def test_what_was_said_is_found_and_shown_in_its_place(tools):
    said = tools("message_add", messages=[USER, ASSISTANT, {"role": "user", "content": "Remind me of my passport."}])
    tools("message_add", messages=[{"role": "user", "content": "Something else entirely"}])
    thread = said.structured["thread"]["id"]

    (best, *_) = tools("conversation_search", query="passport", limit=2).structured["items"]
    assert (best["threadId"], best["id"]) == (thread, said.structured["items"][2]["id"])
    assert (best["role"], best["text"], 0 < best["similarity"] <= 1) == ("user", "Remind me of my passport.", True)
    around = tools("thread_read", thread=thread, around=best["id"], last=1).structured["items"]
    assert [item["text"] for item in around] == [ASSISTANT["content"], "Remind me of my passport."]
    recalled = tools("thread_read", thread=thread, query="Dolomites", last=0).structured["items"]
    assert USER["content"] in [item["text"] for item in recalled]


@pytest.mark.promise("mcp-conversations")
def test_working_memory_is_read_and_updated_with_the_default_schema(tools, space):
    assert tools("working_memory_read").structured == {"memory": None}
    tools("updateWorkingMemory", memory={"keyContext": ["tea"], "activeProjects": [{"name": "roof"}]})
    tools("updateWorkingMemory", memory={"activeProjects": None})
    read = tools("working_memory_read")
    assert read.structured["memory"] == space.threads.working.read().content == {"keyContext": ["tea"]}
    assert '"tea"' in read.text


def test_a_message_with_an_id_is_saved_once(tools):
    thread = tools("message_add", messages=[{**USER, "id": "m1"}]).structured["thread"]["id"]
    again = tools("message_add", thread=thread, messages=[{**USER, "id": "m1"}])
    assert [item["id"] for item in again.structured["items"]] == ["m1"]
    assert len(tools("thread_read", thread=thread).structured["items"]) == 1


def test_a_call_that_began_a_conversation_may_be_sent_again(tools):
    call = {"messages": [{**USER, "id": "m1"}, {**ASSISTANT, "id": "m2"}]}
    first = tools("message_add", **call)
    again = tools("message_add", **call)
    assert (again.text, again.structured) == (first.text, first.structured)
    assert [item["id"] for item in tools("thread_list").structured["items"]] == [first.structured["thread"]["id"]]


def test_an_answer_has_the_thread_as_it_is_after_the_messages(tools, clock):
    thread = tools("message_add", messages=[USER]).structured["thread"]
    assert tools("thread_list").structured["items"] == [thread]
    clock.advance()
    added = tools("message_add", thread=thread["id"], messages=[ASSISTANT]).structured
    assert added["thread"]["updatedAt"] == added["items"][0]["createdAt"] > thread["updatedAt"]
    assert tools("thread_list").structured["items"] == [added["thread"]]


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("thread_list", {"limit": 0}, "limit must be a positive number"),
        ("thread_list", {"resource": "x"}, 'unknown argument "resource"; thread_list takes limit, cursor'),
        ("thread_list", {"cursor": "nonsense"}, "cursor"),
        ("thread_read", {}, "thread is required and must be a non-empty string"),
        ("thread_read", {"thread": "none"}, "No thread found with id none"),
        ("thread_read", {"thread": "t1", "last": -1}, "last must be a whole number, 0 or more"),
        ("thread_read", {"thread": "t1", "last": 1.5}, "last must be a whole number, 0 or more"),
        ("thread_read", {"thread": "t1", "around": "none"}, "No message found with id none"),
        ("thread_read", {"thread": "t1", "around": "m2"}, "message m2 is not in thread t1"),
        ("thread_read", {"thread": "t1", "around": "m1", "query": "x"}, "give one of them"),
        ("conversation_search", {}, "query is required and must be a non-empty string"),
        ("conversation_search", {"query": "x" * 1_001}, "query length cannot exceed 1000 characters"),
        ("message_add", {}, "messages must be a list"),
        ("message_add", {"messages": []}, "messages must be a list"),
        ("message_add", {"messages": "hello"}, "messages must be a list"),
        ("message_add", {"messages": [{"content": "x"}]}, "message 1: role is required"),
        ("message_add", {"messages": [USER, {"role": "user"}]}, "message 2: content is required"),
        ("message_add", {"messages": [{**USER, "id": "m1"}, ASSISTANT]}, "in thread t1 already; name that thread"),
        ("message_add", {"messages": [{**USER, "id": "m1"}, {**USER, "id": "m2"}]}, "in thread t1, t2 already"),
        ("message_add", {"messages": [{**ASSISTANT, "id": "m1"}]}, "exists already with a different content"),
        ("message_add", {"messages": [{"role": "system", "content": "x"}]}, "there is nothing to save"),
        ("message_add", {"thread": "none", "messages": [USER]}, "No thread found with id none"),
        ("message_add", {"thread": "t1", "title": "x", "messages": [USER]}, "title is for a new conversation"),
        ("working_memory_read", {"thread": "t1"}, 'unknown argument "thread"'),
        ("updateWorkingMemory", {"memory": {"keyContext": "x"}}, "keyContext: 'x' is not of type 'array'"),
        ("updateWorkingMemory", {"memory": 5}, "working memory must be a text or an object"),
    ],
)
def test_what_is_refused_says_what_to_correct_and_leaves_nothing_behind(space, tool, arguments, reason):
    for thread, message in (("t1", "m1"), ("t2", "m2")):
        space.threads.create(id=thread)
        space.threads.add(thread, [{**USER, "id": message}])
    answer = ConversationTools(space).call(tool, arguments)
    assert (answer.is_error, answer.structured) == (True, {})
    assert reason in answer.text
    assert {thread.id for thread in space.threads.list().threads} == {"t1", "t2"}
    assert space.threads.working.read() is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "bad", "content": "x"}, "message 1: role is required"),
        ({**ASSISTANT, "id": "m1"}, "exists already with a different content"),
        ({**USER, "resourceId": "u2"}, "has the resourceId 'u2'"),
        ({**USER, "content": "x" * 3_000}, "at most 3,000 are allowed"),
    ],
)
def test_a_refused_message_leaves_no_thread_even_where_nothing_may_be_deleted(book, message, reason):
    space = book.space("user", "u1", rules=Rules(actions=frozenset({"read", "write"}), max_bytes=3_000))
    began = space.threads.create(id="t1")
    space.threads.add("t1", [{**USER, "id": "m1"}])
    answer = ConversationTools(space).call("message_add", {"messages": [message]})
    assert (answer.is_error, reason in answer.text) == (True, True), answer.text
    assert [thread.id for thread in space.threads.list().threads] == [began.id]


def test_a_thread_is_titled_by_its_first_user_message_not_by_the_one_just_added(tools, space):
    thread = space.threads.create()
    space.threads.add(thread.id, [{"role": "user", "content": "My roof leaks"}])
    added = tools("message_add", thread=thread.id, messages=[{"role": "user", "content": "Thanks a lot"}])
    assert added.structured["thread"]["title"] == "My roof leaks"
