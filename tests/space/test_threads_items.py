"""Items of the Responses API, and anything else that is kept to the letter."""

from __future__ import annotations

import pytest

from commonplace import InvalidInput


@pytest.fixture
def thread(space):
    return space.threads.create(id="t")


def everything(space, thread):
    return [message.content for message in space.threads.messages(thread.id).messages]


ITEMS = [
    ({"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at":"zebra"}'}, "assistant", "zebra"),
    ({"type": "function_call_output", "call_id": "c", "output": "a zebra"}, "tool", "zebra"),
    ({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "zebra"}]}, "assistant", None),
    ({"type": "web_search_call", "action": {"type": "search", "query": "zebra"}}, "assistant", "zebra"),
    (
        {"type": "computer_call_output", "call_id": "c", "output": {"image_url": "data:image/png;base64,AA"}},
        "tool",
        None,
    ),
    ({"type": "mcp_call", "name": "look", "arguments": "{}", "output": "zebra"}, "assistant", "zebra"),
    ({"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}, "user", None),
    ({"type": "tool_search_call", "call_id": "c", "arguments": {"q": "zebra"}}, "assistant", "zebra"),
    ({"type": "tool_search_output", "call_id": "c", "tools": []}, "tool", None),
    ({"type": "program", "call_id": "c", "code": "zebra()", "fingerprint": "f"}, "assistant", "zebra"),
    ({"type": "program_output", "call_id": "c", "result": "a zebra", "status": "completed"}, "tool", "zebra"),
    ({"type": "shell_call", "call_id": "c", "action": {"commands": ["cat zebra"]}}, "assistant", "zebra"),
]


@pytest.mark.promise("conversations-items-without-role")
@pytest.mark.parametrize(("item", "role", "word"), ITEMS, ids=[item["type"] for item, _, _ in ITEMS])
def test_an_item_without_a_role_is_kept_as_it_came_and_gets_one(space, thread, item, role, word):
    [saved] = space.threads.add(thread.id, [{**item, "id": "i1"}])

    assert (saved.id, saved.role, saved.content) == ("i1", role, item.get("content"))
    assert saved.extra == {name: value for name, value in item.items() if name != "content"}
    assert space.threads.add(thread.id, [{**item, "id": "i1"}]) == (saved,)
    found = [hit.key for hit in space.search("zebra") if "zebra" in hit.entry.text]
    assert found == (["i1"] if word else [])


@pytest.mark.promise("conversations-items-without-role")
@pytest.mark.parametrize(
    "item",
    [
        {"type": "mcp_approval_request", "id": "i1", "name": "look", "arguments": '{"at":"zebra"}'},
        {"type": "local_shell_call_output", "id": "i1", "output": "a zebra"},
    ],
)
def test_an_id_that_ties_an_item_to_another_is_kept_with_it(space, thread, item):
    [saved] = space.threads.add(thread.id, [item])

    assert (saved.id, saved.entry.value) == ("i1", item)
    assert space.threads.add(thread.id, [item]) == (saved,)
    assert [hit.key for hit in space.search("zebra")] == ["i1"]


@pytest.mark.parametrize(
    "message", [{"type": "message", "content": "x"}, {"type": "banana"}, {"type": 5}, {"type": "text", "text": "x"}]
)
def test_another_message_without_a_role_stays_an_error(space, thread, message):
    with pytest.raises(InvalidInput, match="message 1: role is required"):
        space.threads.add(thread.id, [message])


@pytest.mark.promise("conversations-verbatim")
def test_with_verbatim_anything_is_kept_to_the_letter_and_every_time_anew(space, thread):
    objects = [
        {"id": "same", "role": "user", "content": "<working_memory>kept</working_memory>"},
        {"id": "same", "role": "system", "content": "be nice", "createdAt": "whenever", "threadId": "of someone"},
        {"type": "of next year"},
        {},
    ]
    first = space.threads.add(thread.id, objects, verbatim=True)
    second = space.threads.add(thread.id, objects, verbatim=True)

    assert [message.entry.value for message in (*first, *second)] == objects * 2
    assert len({message.id for message in (*first, *second)}) == 8
    assert [message.role for message in first] == ["user", "system", "assistant", "assistant"]
    assert space.threads.messages(thread.id).messages == (*first, *second)


@pytest.mark.promise("conversations-verbatim")
@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "Why does <working_memory>this</working_memory> not show?"},
        {"role": "system", "content": "be nice"},
        {"type": "my_event", "text": "zebra"},
        {},
    ],
)
def test_new_metadata_leaves_the_rest_of_a_verbatim_item_to_the_letter(space, thread, item):
    [said] = space.threads.add(thread.id, [item], verbatim=True)
    changed = space.threads.update_message(said.id, metadata={"rated": "good"})

    assert changed.entry.value == {**item, "metadata": {"rated": "good"}}
    assert (changed.role, changed.entry.text, changed.created_at) == (said.role, said.entry.text, said.created_at)
    assert space.threads.get_message(said.id) == changed


@pytest.mark.parametrize("objects", ["x", [5], [{"n": float("nan")}], [{1: 2}], [{"text": "\x00"}]])
def test_verbatim_still_refuses_what_json_cannot_hold(space, thread, objects):
    with pytest.raises(InvalidInput):
        space.threads.add(thread.id, objects, verbatim=True)
    assert everything(space, thread) == []
