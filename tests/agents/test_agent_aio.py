"""Agents' memories, awaited: the synchronous ones, method by method."""

from __future__ import annotations

import asyncio

import pytest

from commonplace.agents import AgentMemory, aio, close_all


def public_names(cls):
    return {name for name in vars(cls) if not name.startswith("_")}


def test_every_public_method_is_mirrored():
    assert public_names(aio.AsyncAgentMemory) - {"agent_id", "space"} == public_names(AgentMemory)


@pytest.mark.promise("agents-awaited")
def test_what_is_saved_with_await_is_recalled_with_await(tmp_path, monkeypatch):
    monkeypatch.setenv("COMMONPLACE_AGENTS", str(tmp_path))
    monkeypatch.setenv("COMMONPLACE_MODELS", str(tmp_path / "no-models"))
    close_all()

    async def scenario():
        memory = await aio.get_agent_memory(await aio.create_agent("Ann"))
        assert await aio.get_agent_memory(memory.agent_id) is not memory
        thread = await memory.create_thread("u-1")
        texts = [f"turn {number}" for number in range(8)]
        await asyncio.gather(*(memory.save_messages(thread.id, [{"role": "user", "content": text}]) for text in texts))
        recalled = await memory.recall(thread.id)
        assert sorted(message.content for message in recalled) == texts
        assert (await memory.space.threads.get(thread.id)).resource_id == "u-1"
        await aio.close_all()

    asyncio.run(scenario())
