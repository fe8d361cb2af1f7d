"""Google's Agent Development Kit on a book: a memory service.

    runner = Runner(agent=agent, app_name="app", memory_service=CommonplaceMemoryService(book), …)

Each app and user has a namespace of its own below a prefix. An event is an item, by its id: a session that is added
again changes nothing, and what was deleted stays deleted.

Needs `pip install 'commonplace-memory[google-adk]'`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from commonplace.book import Book
from commonplace.checks import check_namespace
from commonplace.errors import ConfigurationError, InvalidInput, install_command
from commonplace.space.items import NewItem
from commonplace.space.names import ITEM, item_key_of, label_of, text_of_item_key
from commonplace.space.space import Space

try:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.genai import types
except ImportError as error:
    raise ConfigurationError(
        f"google-adk is not installed, or too old; run: {install_command('google-adk')}"
    ) from error

__all__ = ["CommonplaceMemoryService"]

RESULTS = 10
PREFIX = "memory/"
DELETED = "deleted/"
"""Marks of memories that were deleted, so that adding the session again does not bring them back."""


class CommonplaceMemoryService(BaseMemoryService):
    """Memories by app and user, in namespaces below `prefix`; a search returns at most `results`."""

    def __init__(self, book: Book, *, prefix: Sequence[str] = ("adk",), results: int = RESULTS) -> None:
        self._book = book
        self._prefix = check_namespace(prefix)
        self._results = results

    async def add_session_to_memory(self, session: Any) -> None:
        await asyncio.to_thread(self._add_events, session.app_name, session.user_id, session.events, session.id, None)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        await asyncio.to_thread(self._add_events, app_name, user_id, events, session_id, custom_metadata)

    def _add_events(
        self,
        app: str,
        user: str,
        events: Iterable[Any],
        session: str | None,
        metadata: Mapping[str, object] | None,
    ) -> None:
        wanted = {
            _key(event.id): _value(event.content, event.author, event.timestamp, session, metadata)
            for event in events
            if event.content and event.content.parts
        }
        space = self._space(app, user)
        keys = [*wanted]
        marks = [DELETED + key.removeprefix(PREFIX) for key in keys]
        known = space.items.get_all([*keys, *marks])
        new = [
            NewItem(key, wanted[key], fields=["text"])
            for place, key in enumerate(keys)
            if known[place] is None and known[len(keys) + place] is None
        ]
        if new:
            space.items.write_all(new)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        puts = [
            NewItem(
                _key(entry.id or uuid.uuid4().hex),
                _value(
                    entry.content,
                    entry.author,
                    entry.timestamp,
                    None,
                    {**(custom_metadata or {}), **entry.custom_metadata},
                ),
                fields=["text"],
            )
            for entry in memories
        ]
        if puts:
            await asyncio.to_thread(self._space(app_name, user_id).items.write_all, puts)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        if not query.strip():
            return SearchMemoryResponse(memories=[])
        hits = await asyncio.to_thread(
            lambda: self._space(app_name, user_id).search(
                query[:8_000], kinds=[ITEM], limit=self._results, min_relevance="default"
            )
        )
        return SearchMemoryResponse(memories=[_entry(hit.key, hit.entry.value) for hit in hits])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if not memory_id:
            return
        key = _key(memory_id)
        mark = NewItem(DELETED + key.removeprefix(PREFIX), True, history=False)
        await asyncio.to_thread(self._space(app_name, user_id).items.write_all, [mark], [key])

    def _space(self, app: str, user: str) -> Space:
        if not app or not user:
            raise InvalidInput("app_name and user_id are required")
        return self._book.space(*self._prefix, label_of(app), label_of(user))


def _key(id: str) -> str:
    return PREFIX + item_key_of(id)


def _value(
    content: types.Content,
    author: str | None,
    timestamp: float | str | None,
    session: str | None,
    metadata: Mapping[str, object] | None,
) -> dict[str, Any]:
    at = datetime.fromtimestamp(timestamp, UTC).isoformat() if isinstance(timestamp, (int, float)) else timestamp
    return {
        "text": "\n".join(part.text for part in content.parts or () if part.text),
        "content": content.model_dump(mode="json", exclude_none=True),
        "author": author,
        "timestamp": at,
        "session": session,
        "metadata": dict(metadata or {}),
    }


def _entry(key: str, value: Any) -> MemoryEntry:
    stored = cast("Mapping[str, Any]", value)
    return MemoryEntry(
        id=text_of_item_key(key.removeprefix(PREFIX)),
        content=types.Content.model_validate(stored["content"]),
        author=stored["author"],
        timestamp=stored["timestamp"],
        custom_metadata=dict(stored["metadata"]),
    )
