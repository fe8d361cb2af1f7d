"""Google ADK's memory service on a book, with the real package. Its own tests are not in its package."""

from __future__ import annotations

import asyncio

import pytest
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.google_adk import CommonplaceMemoryService


def content(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


def event(id: str, text: str) -> Event:
    return Event(id=id, author="user", content=content(text), timestamp=1_700_000_000.0)


def found(service: CommonplaceMemoryService, query: str, user: str = "ana") -> list[MemoryEntry]:
    return asyncio.run(service.search_memory(app_name="app", user_id=user, query=query)).memories


class TestMemoryService(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        service = CommonplaceMemoryService(book)
        asyncio.run(service.add_events_to_memory(app_name="app", user_id=owner, events=[event(name, text)]))

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        from commonplace.space.names import label_of

        page = book.space("adk", "app", label_of(owner)).items.list("memory/", limit=1_000)
        return {item.key.removeprefix("memory/"): item.value["text"] for item in page.items}


def test_a_session_is_added_found_and_added_again_without_doubles(book: commonplace.Book) -> None:
    service = CommonplaceMemoryService(book)
    events = [event("e-1", "Ana likes green tea"), event("e-2", "The red car is fast"), Event(id="e-3", author="agent")]
    session = Session(id="s-1", app_name="app", user_id="ana", events=events)
    asyncio.run(service.add_session_to_memory(session))
    asyncio.run(service.add_session_to_memory(session))
    hits = found(service, "green tea")
    assert hits[0].id == "e-1"
    assert hits[0].content == content("Ana likes green tea")
    assert hits[0].author == "user"
    assert hits[0].timestamp.startswith("2023-11-14T22:13:20")
    assert len([hit for hit in hits if hit.id == "e-1"]) == 1
    assert found(service, "green tea", user="bob") == []
    assert found(service, " ") == []


def test_a_deleted_memory_stays_deleted(book: commonplace.Book) -> None:
    service = CommonplaceMemoryService(book)
    session = Session(id="s-1", app_name="app", user_id="ana", events=[event("e-1", "Ana likes green tea")])
    asyncio.run(service.add_session_to_memory(session))
    asyncio.run(service.delete_memory(app_name="app", user_id="ana", memory_id="e-1"))
    asyncio.run(service.delete_memory(app_name="app", user_id="ana", memory_id="none"))
    asyncio.run(service.add_session_to_memory(session))
    assert found(service, "green tea") == []


def test_memories_are_added_directly_with_metadata(book: commonplace.Book) -> None:
    service = CommonplaceMemoryService(book)
    entry = MemoryEntry(content=content("Ana likes green tea"), custom_metadata={"topic": "drinks"}, author="ana")
    asyncio.run(service.add_memory(app_name="app", user_id="ana", memories=[entry], custom_metadata={"from": "form"}))
    (hit,) = found(service, "green tea")
    assert hit.custom_metadata == {"from": "form", "topic": "drinks"}
    assert hit.id
    asyncio.run(service.delete_memory(app_name="app", user_id="ana", memory_id=hit.id))
    assert found(service, "green tea") == []


def test_an_app_and_a_user_are_needed(book: commonplace.Book) -> None:
    service = CommonplaceMemoryService(book)
    with pytest.raises(commonplace.InvalidInput):
        asyncio.run(service.search_memory(app_name="", user_id="ana", query="tea"))
