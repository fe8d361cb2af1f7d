"""Microsoft's Agent Framework on a space: a history provider and a context provider.

    agent = Agent(client, context_providers=[CommonplaceHistoryProvider(space), CommonplaceContextProvider(space)])

The history of a session is a thread of the space. The context provider adds what the memory holds about the question:
records, files, items and messages of other sessions, marked as data.

Needs `pip install 'commonplace-memory[agent-framework]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from commonplace.adapters.thread_items import HasSpace, ThreadItems, said
from commonplace.errors import ConfigurationError, install_command
from commonplace.space.space import Space
from commonplace.tools.as_data import hits_as_data

try:
    from agent_framework import Content, ContextProvider, HistoryProvider, Message
except ImportError as error:
    raise ConfigurationError(
        f"the Agent Framework is not installed, or too old; run: {install_command('agent-framework')}"
    ) from error

__all__ = ["CommonplaceContextProvider", "CommonplaceHistoryProvider"]

DEFAULT_SESSION = "agent-framework"
MAX_QUERY_CHARACTERS = 8_000


class CommonplaceHistoryProvider(HistoryProvider):
    """Conversations by session. The options are those of `HistoryProvider`."""

    def __init__(self, memory: Space | HasSpace, source_id: str = "commonplace_history", **options: Any) -> None:
        super().__init__(source_id, **options)
        self._memory = memory

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        items = await asyncio.to_thread(self._stored(session_id).read)
        return [_from_item(item) for item in items]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if messages:
            await asyncio.to_thread(self._stored(session_id).add, [_to_item(message) for message in messages])

    def _stored(self, session_id: str | None) -> ThreadItems:
        return ThreadItems(self._memory, session_id or DEFAULT_SESSION)


def _to_item(message: Message) -> dict[str, Any]:
    """A message as other programs read it, with role and content, and the whole as the framework writes it."""
    return {"role": str(message.role), "content": message.text or "", "agent_framework": message.to_dict()}


def _from_item(item: Mapping[str, Any]) -> Message:
    if "agent_framework" in item:
        return Message.from_dict(item["agent_framework"])
    role, text = said(item)  # of another program
    return Message(role=role, contents=[Content.from_text(text)])


class CommonplaceContextProvider(ContextProvider):
    """Adds to the instructions what a search for the user's message finds. `kinds` narrows it."""

    def __init__(
        self,
        space: Space,
        source_id: str = "commonplace_memory",
        *,
        limit: int = 5,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(source_id)
        self._space = space
        self._limit = limit
        self._kinds = kinds

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        query = " ".join(message.text for message in context.input_messages if message.text).strip()
        if not query:
            return
        hits = await asyncio.to_thread(
            lambda: self._space.search(
                query[:MAX_QUERY_CHARACTERS], limit=self._limit, kinds=self._kinds, min_relevance="default"
            )
        )
        if hits:
            context.extend_instructions(self.source_id, f"What the memory holds:\n{hits_as_data(hits)}")
