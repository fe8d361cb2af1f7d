"""The profile `conversations`, spoken to as a client does."""

from __future__ import annotations

import pytest


@pytest.mark.promise("mcp-conversations")
def test_a_client_keeps_a_conversation_and_what_it_learned_for_the_next_one(start):
    first = start("--profile", "conversations")
    told = first.initialize()
    assert "working_memory_read" in told["instructions"]
    messages = [{"role": "user", "content": "My roof leaks"}, {"role": "assistant", "content": "Since when?"}]
    added = first.call("message_add", messages=messages)
    thread = added["structuredContent"]["thread"]
    assert thread["title"] == "My roof leaks"
    updated = first.call("updateWorkingMemory", memory={"activeProjects": [{"name": "roof", "status": "blocked"}]})
    assert updated["structuredContent"] == {"success": True}
    assert first.end() == 0

    second = start("--profile", "conversations")
    second.initialize()
    memory = second.call("working_memory_read")["structuredContent"]["memory"]
    assert memory == {"activeProjects": [{"name": "roof", "status": "blocked"}]}
    found = second.call("conversation_search", query="roof leaks")["structuredContent"]["items"]
    assert found[0]["threadId"] == thread["id"]
    read = second.call("thread_read", thread=thread["id"])["structuredContent"]["items"]
    assert [item["content"] for item in read] == ["My roof leaks", "Since when?"]

    refused = second.call("updateWorkingMemory", memory={"activeProjects": [{"status": "late"}]})
    assert refused["isError"]
    assert "activeProjects[0]" in refused["content"][0]["text"]


@pytest.mark.promise("mcp-namespace")
def test_conversations_of_another_namespace_cannot_be_reached(start):
    one, two = (start("--profile", "conversations", "--namespace", name) for name in ("user/one", "user/two"))
    for server in (one, two):
        server.initialize()
    added = one.call("message_add", messages=[{"role": "user", "content": "the kayak is red"}])["structuredContent"]
    one.call("updateWorkingMemory", memory={"keyContext": ["red kayak"]})

    assert two.call("thread_list")["structuredContent"]["items"] == []
    assert two.call("thread_read", thread=added["thread"]["id"])["isError"]
    assert two.call("conversation_search", query="kayak")["structuredContent"]["items"] == []
    assert two.call("working_memory_read")["structuredContent"] == {"memory": None}
    assert two.call("message_add", thread=added["thread"]["id"], messages=[{"role": "user", "content": "x"}])["isError"]
