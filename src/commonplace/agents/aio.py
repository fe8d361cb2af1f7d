"""Agents' memories for asyncio. Every call runs in a worker thread.

agent_id = await commonplace.agents.aio.create_agent("Support helper")
memory = await commonplace.agents.aio.get_agent_memory(agent_id)
thread = await memory.create_thread("u-123")
"""

from __future__ import annotations

import asyncio
from functools import cached_property

from commonplace import agents
from commonplace.agents.agent_memory import AgentMemory
from commonplace.aio import AsyncSpace
from commonplace.space.handle import awaited


class AsyncAgentMemory:
    """`AgentMemory` for asyncio."""

    def __init__(self, wrapped: AgentMemory) -> None:
        self._wrapped = wrapped

    @property
    def agent_id(self) -> str:
        return self._wrapped.agent_id

    @cached_property
    def space(self) -> AsyncSpace:
        return AsyncSpace(self._wrapped.space)

    create_thread = awaited(AgentMemory.create_thread)
    get_thread = awaited(AgentMemory.get_thread)
    list_threads = awaited(AgentMemory.list_threads)
    update_thread = awaited(AgentMemory.update_thread)
    delete_thread = awaited(AgentMemory.delete_thread)
    clone_thread = awaited(AgentMemory.clone_thread)
    save_messages = awaited(AgentMemory.save_messages)
    list_messages = awaited(AgentMemory.list_messages)
    delete_messages = awaited(AgentMemory.delete_messages)
    recall = awaited(AgentMemory.recall)
    context = awaited(AgentMemory.context)
    working_memory = awaited(AgentMemory.working_memory)
    update_working_memory = awaited(AgentMemory.update_working_memory)
    system_message = awaited(AgentMemory.system_message)
    tools = awaited(AgentMemory.tools)


async def create_agent(name: str) -> str:
    """`create_agent`, awaited."""
    return await asyncio.to_thread(agents.create_agent, name)


async def get_agent_memory(agent_id: str) -> AsyncAgentMemory:
    """`get_agent_memory`, awaited."""
    return AsyncAgentMemory(await asyncio.to_thread(agents.get_agent_memory, agent_id))


async def get_agent_folder_name(agent_id: str) -> str | None:
    """`get_agent_folder_name`, awaited."""
    return await asyncio.to_thread(agents.get_agent_folder_name, agent_id)


async def invalidate(agent_id: str) -> None:
    """`invalidate`, awaited."""
    await asyncio.to_thread(agents.invalidate, agent_id)


async def close_all() -> None:
    """`close_all`, awaited."""
    await asyncio.to_thread(agents.close_all)
