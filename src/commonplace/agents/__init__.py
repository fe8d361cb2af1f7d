"""A memory for each agent: `create_agent(name)` creates one, `get_agent_memory(agent_id)` returns its memory.

    agent_id = create_agent("Support helper")
    memory = get_agent_memory(agent_id)
    thread = memory.create_thread("u-123")
    memory.save_messages(thread.id, [{"role": "user", "content": "Hello"}])

These functions share one `AgentMemories` per process, on the folder in the setting COMMONPLACE_AGENTS
(`_tables/agents` below the working directory). You can create your own, on another folder or on a shared book.
"""

from __future__ import annotations

import threading

from commonplace.agents.agent_memory import AgentMemory, MemoryConfig, SemanticRecall
from commonplace.agents.memories import AgentMemories, BookOptions
from commonplace.errors import ConfigurationError
from commonplace.tools.working_memory_tool import WorkingMemoryOptions

__all__ = [
    "AgentMemories",
    "AgentMemory",
    "BookOptions",
    "MemoryConfig",
    "SemanticRecall",
    "WorkingMemoryOptions",
    "close_all",
    "create_agent",
    "get_agent_folder_name",
    "get_agent_memory",
    "invalidate",
]

_mutex = threading.Lock()
_shared: AgentMemories | None = None


def create_agent(name: str) -> str:
    """Create an agent's folder, `{name-slug}-{uuid}`; returns the agent's id, a UUID."""
    return _memories().create_agent(name)


def get_agent_memory(agent_id: str) -> AgentMemory:
    """The memory of an agent, the same instance for every caller in this process."""
    return _memories().get_agent_memory(agent_id)


def get_agent_folder_name(agent_id: str) -> str | None:
    """The name of an agent's folder, or None; never raises."""
    try:
        return _memories().get_agent_folder_name(agent_id)
    except ConfigurationError:  # from the settings; the other functions raise it
        return None


def invalidate(agent_id: str) -> None:
    """Forget what is cached for an agent: its file is closed, and the next use looks for its folder again."""
    _memories().invalidate(agent_id)


def close_all() -> None:
    """Close every agent's file. The next call reads the settings again."""
    global _shared
    with _mutex:
        closing, _shared = _shared, None
    if closing is not None:
        closing.close()


def _memories() -> AgentMemories:
    global _shared
    with _mutex:
        if _shared is None:
            import atexit
            import os

            from commonplace.settings import Settings

            settings = Settings.from_environment(os.environ)
            options = BookOptions(
                embedder=settings.embedder(),
                make_embedder=settings.embedder,
                limits=settings.limits,
                busy_seconds=settings.db_query_timeout_ms / 1_000,
                redaction=settings.redaction(),
                date_order=settings.date_order,
            )
            _shared = AgentMemories(settings.agents_folder, options=options)
            atexit.unregister(close_all)
            atexit.register(close_all)
        return _shared
