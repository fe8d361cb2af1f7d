"""Agents' memories, awaited: the synchronous ones, method by method."""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction, isfunction

import pytest

from commonplace import agents
from commonplace.agents import AgentMemory, aio, close_all


def public_names(cls):
    return {name for name in vars(cls) if not name.startswith("_")}


def test_every_public_method_is_mirrored():
    assert public_names(aio.AsyncAgentMemory) - {"agent_id", "space"} == public_names(AgentMemory)


@pytest.mark.promise("agents-awaited")
def test_every_function_is_mirrored():
    functions = {name for name in agents.__all__ if isfunction(getattr(agents, name))}
    assert {name for name in functions if iscoroutinefunction(getattr(aio, name, None))} == functions


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
        assert await aio.get_agent_folder_name(memory.agent_id) == f"ann-{memory.agent_id}"
        await aio.invalidate(memory.agent_id)
        assert (await aio.get_agent_memory(memory.agent_id))._wrapped is not memory._wrapped
        await aio.close_all()

    asyncio.run(scenario())
