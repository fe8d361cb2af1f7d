"""Google ADK's memory service on a book, with the real package. Its own tests are not in its package."""

from __future__ import annotations

import asyncio

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai import types
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.google_adk import CommonplaceMemoryService, CommonplaceSessionService


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


def test_items_of_other_programs_are_not_taken_for_memories(book: commonplace.Book) -> None:
    service = CommonplaceMemoryService(book)
    book.space("adk", "app", "ana").items.put("theme", {"text": "green tea"})
    asyncio.run(service.add_events_to_memory(app_name="app", user_id="ana", events=[event("e-1", "green tea")]))
    assert [hit.id for hit in found(service, "green tea")] == ["e-1"]


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


# Sessions


class TestSessionService(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        service = CommonplaceSessionService(book)
        asyncio.run(service.create_session(app_name="app", user_id=owner, session_id=name, state={"text": text}))

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        listed = asyncio.run(CommonplaceSessionService(book).list_sessions(app_name="app", user_id=owner)).sessions
        return {session.id: session.state["text"] for session in listed}


async def scenario(service) -> list[object]:
    """A program over the interface; what it sees must not depend on the service."""
    where = {"app_name": "app", "user_id": "ana"}
    seen: list[object] = []
    state = {"a": 1, "app:theme": "dark", "user:name": "Ana", "temp:x": 1}
    session = await service.create_session(**where, session_id="s-1", state=state)
    seen.append({name: value for name, value in session.state.items() if not name.startswith("temp:")})
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**where, session_id="s-1")
    other = await service.create_session(app_name="app", user_id="bob", session_id="s-2")
    seen.append(other.state)
    for number in range(5):
        delta = {"a": number, "app:count": number, "user:n": [number], "temp:y": 2, "nothing": None}
        said = event(f"e-{number}", f"text {number}")
        said.timestamp = 1_700_000_000.0 + number
        said.actions = EventActions(state_delta=delta)
        await service.append_event(session, said)
        await service.append_event(session, said)
    seen.append(session.state.get("temp:y"))
    got = await service.get_session(**where, session_id="s-1")
    seen.append([one.id for one in got.events])
    seen.append({name: value for name, value in got.state.items() if not name.startswith("temp:")})
    seen.append(got.last_update_time)
    seen.append(got.events[0].content == content("text 0"))
    recent = await service.get_session(**where, session_id="s-1", config=GetSessionConfig(num_recent_events=2))
    seen.append([one.id for one in recent.events])
    none = await service.get_session(**where, session_id="s-1", config=GetSessionConfig(num_recent_events=0))
    seen.append(none.events)
    after = GetSessionConfig(after_timestamp=1_700_000_003.0)
    seen.append([one.id for one in (await service.get_session(**where, session_id="s-1", config=after)).events])
    partial = event("p", "part")
    partial.partial = True
    await service.append_event(session, partial)
    seen.append(len((await service.get_session(**where, session_id="s-1")).events))
    seen.append(await service.get_user_state(**where))
    seen.append((await service.get_session(app_name="app", user_id="bob", session_id="s-2")).state)
    listed = (await service.list_sessions(app_name="app")).sessions
    seen.append(sorted((one.user_id, one.id, len(one.events)) for one in listed))
    seen.append([one.id for one in (await service.list_sessions(**where)).sessions])
    await service.delete_session(**where, session_id="s-1")
    await service.delete_session(**where, session_id="s-1")
    seen.append(await service.get_session(**where, session_id="s-1"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event("late", "x"))
    seen.append((await service.create_session(**where, session_id="s-1")).state)
    return seen


def test_a_program_sees_the_same_as_with_the_kits_own_service(book: commonplace.Book) -> None:
    assert asyncio.run(scenario(CommonplaceSessionService(book))) == asyncio.run(scenario(InMemorySessionService()))


def test_a_uri_names_the_book(tmp_path) -> None:
    service = CommonplaceSessionService(uri=f"commonplace://{tmp_path / 'memory.db'}", agents_dir="x")
    asyncio.run(service.create_session(app_name="app", user_id="ana", session_id="s"))
    assert (tmp_path / "memory.db").exists()
    for wrong in ({}, {"uri": "sqlite:///x"}, {"uri": "commonplace://x", "book": service._book}):
        with pytest.raises(commonplace.InvalidInput):
            CommonplaceSessionService(**wrong)
    service._book.close()
