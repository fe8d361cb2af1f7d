"""Strands Agents on a space: a memory store for its `MemoryManager`, and a session repository.

    agent = Agent(
        memory_manager=MemoryManager(stores=[CommonplaceMemoryStore(space)]),
        session_manager=RepositorySessionManager("s-1", CommonplaceSessionRepository(space)),
    )

What a store remembers is a record of the space: search finds it everywhere, and saving it again changes nothing.
Sessions are items without history, so that a message that a guardrail redacted is gone.

Needs `pip install 'commonplace-memory[strands]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

from commonplace.checks import JSON
from commonplace.errors import ConfigurationError, InvalidInput, Outdated, install_command
from commonplace.space.items import Item
from commonplace.space.records import line_of, record_of
from commonplace.space.space import Space

try:
    from strands.memory.types import MemoryEntry
    from strands.session.session_repository import SessionRepository
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage
except ImportError as error:
    raise ConfigurationError(f"Strands is not installed, or too old; run: {install_command('strands')}") from error

__all__ = ["CommonplaceMemoryStore", "CommonplaceSessionRepository"]

TYPE = "memory"
SOURCE = "strands"
DEFAULT_RESULTS = 10


class CommonplaceMemoryStore:
    """A store of a `MemoryManager`: what an agent should remember of a user."""

    def __init__(
        self,
        space: Space,
        *,
        name: str = "commonplace",
        description: str | None = None,
        max_search_results: int | None = None,
        writable: bool = True,
        extraction: Any = None,
    ) -> None:
        self._space = space
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction

    async def search(self, query: str, options: Any = None) -> list[MemoryEntry]:
        """What is relevant for a query, the best first: records of the space, from whichever program."""
        asked = (options or {}).get("max_search_results")
        limit = asked or self.max_search_results or DEFAULT_RESULTS
        return await asyncio.to_thread(self._search, query, limit)

    def _search(self, query: str, limit: int) -> list[MemoryEntry]:
        hits = self._space.search(query, kinds=["record"], limit=limit, min_relevance="default")
        return [
            MemoryEntry(
                content=_text(hit.entry.value, line_of(record_of(hit.entry))),
                metadata={**_metadata(hit.entry.value), "id": hit.key, "score": hit.score},
            )
            for hit in hits
        ]

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Save a memory; return its id. The same content again is the same memory."""
        value: dict[str, JSON] = {"text": content}
        if metadata:
            value["metadata"] = cast("JSON", dict(metadata))
        saved = await asyncio.to_thread(
            lambda: self._space.records.create(type=TYPE, content=value, source=SOURCE, confidence=1.0)
        )
        return saved.id


def _text(value: JSON, otherwise: str) -> str:
    text = value.get("text") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) else otherwise


def _metadata(value: JSON) -> dict[str, Any]:
    found = value.get("metadata") if isinstance(value, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


class CommonplaceSessionRepository(SessionRepository):
    """Sessions, their agents and messages, as items of a space."""

    def __init__(self, space: Space) -> None:
        self._items = space.items

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        self._create(_key(session.session_id, "session"), session.to_dict(), f"session {session.session_id}")
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        found = self._read(_key(session_id, "session"))
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with its agents and messages."""
        if not self._items.clear(_key(session_id, "")):
            raise SessionException(f"Session {session_id} does not exist")

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        key = _key(session_id, "agent", session_agent.agent_id)
        self._put(key, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        found = self._read(_key(session_id, "agent", agent_id))
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        known = self.read_agent(session_id, session_agent.agent_id)
        if known is None:
            raise SessionException(f"Agent {session_agent.agent_id} in session {session_id} does not exist")
        session_agent.created_at = known.created_at
        self._put(_key(session_id, "agent", session_agent.agent_id), session_agent.to_dict())

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        self._put(_message_key(session_id, agent_id, session_message.message_id), session_message.to_dict())

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        found = self._read(_message_key(session_id, agent_id, message_id))
        return None if found is None else SessionMessage.from_dict(found)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        known = self.read_message(session_id, agent_id, session_message.message_id)
        if known is None:
            raise SessionException(f"Message {session_message.message_id} does not exist")
        session_message.created_at = known.created_at
        self._put(_message_key(session_id, agent_id, session_message.message_id), session_message.to_dict())

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        items = list(self._pages(_key(session_id, "message", agent_id, "")))
        stop = None if limit is None else offset + limit
        return [SessionMessage.from_dict(cast("Any", item.value)) for item in items[offset:stop]]

    def create_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        self._put(_key(session_id, "multi-agent", multi_agent.id), multi_agent.serialize_state())

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        return self._read(_key(session_id, "multi-agent", multi_agent_id))

    def update_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        key = _key(session_id, "multi-agent", multi_agent.id)
        if self._read(key) is None:
            raise SessionException(f"MultiAgent state {multi_agent.id} in session {session_id} does not exist")
        self._put(key, multi_agent.serialize_state())

    def _create(self, key: str, value: Mapping[str, Any], what: str) -> None:
        try:
            self._items.put(key, cast("JSON", value), revision=0, history=False)
        except Outdated as error:
            raise SessionException(f"{what} exists already") from error

    def _put(self, key: str, value: Mapping[str, Any]) -> None:
        self._items.put(key, cast("JSON", value), history=False)

    def _read(self, key: str) -> dict[str, Any] | None:
        (found,) = self._items.get_all([key])
        return None if found is None else cast("dict[str, Any]", found.value)

    def _pages(self, prefix: str) -> Iterator[Item]:
        cursor: str | None = None
        while True:
            page = self._items.list(prefix, limit=1_000, cursor=cursor)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return


def _key(*parts: str) -> str:
    return "/".join(("strands", *(quote(part, safe="") for part in parts)))


def _message_key(session_id: str, agent_id: str, message_id: int) -> str:
    if isinstance(message_id, bool) or not isinstance(message_id, int) or not 0 <= message_id < 10**12:
        raise InvalidInput(f"message_id must be a whole number from 0, not {message_id!r:.100}")
    return _key(session_id, "message", agent_id, f"{message_id:012}")
