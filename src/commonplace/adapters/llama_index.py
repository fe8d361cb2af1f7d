"""LlamaIndex on a space: a chat store, and a memory block for its `Memory`.

    memory = Memory.from_defaults(session_id="s-1", memory_blocks=[CommonplaceMemoryBlock(space=space)])
    buffer = ChatMemoryBuffer.from_defaults(chat_store=CommonplaceChatStore(space=space), chat_store_key="ana")

A key of the chat store, and a session of the block, is a thread of the space; its messages are found by every search.

Needs `pip install 'commonplace-memory[llama-index]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from commonplace.adapters.thread_items import ThreadItems, said
from commonplace.errors import ConfigurationError, NotFound, install_command
from commonplace.space.messages import Message
from commonplace.space.names import MESSAGE
from commonplace.space.space import Space

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import Field
    from llama_index.core.memory.memory import BaseMemoryBlock
    from llama_index.core.storage.chat_store.base import BaseChatStore
except ImportError as error:
    raise ConfigurationError(
        f"LlamaIndex is not installed, or too old; run: {install_command('llama-index')}"
    ) from error

__all__ = ["CommonplaceChatStore", "CommonplaceMemoryBlock"]

DEFAULT_SESSION = "llama-index"


class CommonplaceChatStore(BaseChatStore):
    """Conversations by key."""

    space: Any = Field(exclude=True)

    @classmethod
    def class_name(cls) -> str:
        return "CommonplaceChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace a conversation, in one commit. What was there stays in history."""
        if messages:
            self._stored(key).replace([_to_item(message) for message in messages])
        else:
            self._stored(key).clear()

    def get_messages(self, key: str) -> list[ChatMessage]:
        return [_from_item(item) for item in self._stored(key).read()]

    def add_message(self, key: str, message: ChatMessage) -> None:
        self._stored(key).add([_to_item(message)])

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a conversation; return what it held, or None if there is none."""
        try:
            found = self.get_messages(key)
            self.space.threads.delete(key)
        except NotFound:
            return None
        return found

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        messages = list(self._stored(key).messages())
        if not -len(messages) <= idx < len(messages):
            return None
        return self._deleted(messages[idx])

    def delete_last_message(self, key: str) -> ChatMessage | None:
        item = self._stored(key).pop()
        return None if item is None else _from_item(item)

    def get_keys(self) -> list[str]:
        keys: list[str] = []
        cursor: str | None = None
        while True:
            page = self.space.threads.list(limit=1_000, cursor=cursor)
            keys += [thread.id for thread in page.threads]
            cursor = page.cursor
            if cursor is None:
                return keys

    def _stored(self, key: str) -> ThreadItems:
        return ThreadItems(self.space, key)

    def _deleted(self, message: Message) -> ChatMessage | None:
        if self.space.threads.delete_messages([message.id]) is None:
            return None  # another program deleted it first
        assert message.entry is not None
        return _from_item(message.entry.value)


class CommonplaceMemoryBlock(BaseMemoryBlock[str]):
    """What was said before and fits the question: it saves what leaves the short-term memory, and finds it again."""

    name: str = "commonplace"
    space: Any = Field(exclude=True)
    limit: int = 5

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        query = next(
            (one.content for one in reversed(messages or ()) if one.role.value == "user" and one.content), None
        )
        return "" if query is None else await asyncio.to_thread(self._found, query)

    def _found(self, query: str) -> str:
        hits = self.space.search(query[:8_000], limit=self.limit, min_relevance="default")
        return "\n".join(hit.entry.text if hit.kind == MESSAGE else hit.snippet for hit in hits)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        sessions: dict[str, list[ChatMessage]] = {}
        for message in messages:
            sessions.setdefault(str(message.additional_kwargs.get("session_id", DEFAULT_SESSION)), []).append(message)
        for session, some in sessions.items():
            await asyncio.to_thread(self._save, session, some)

    def _save(self, session: str, messages: Sequence[ChatMessage]) -> None:
        space: Space = self.space
        ThreadItems(space, session).add([_to_item(message) for message in messages])


def _to_item(message: ChatMessage) -> dict[str, Any]:
    """A message as other programs read it, with role and content, and the whole as LlamaIndex writes it."""
    return {
        "role": message.role.value,
        "content": message.content or "",
        "llama_index": message.model_dump(mode="json"),
    }


def _from_item(item: Any) -> ChatMessage:
    if "llama_index" in item:
        return ChatMessage.model_validate(item["llama_index"])
    role, text = said(item)  # of another program
    return ChatMessage(role=role, content=text)
