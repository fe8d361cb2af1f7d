"""Strands' memory store and session repository on a book, with the real package. It carries no suite for either."""

from __future__ import annotations

import asyncio

import pytest
from shared_behaviour import AdapterBehaviour
from strands import Agent
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import commonplace
from commonplace.adapters.strands import CommonplaceMemoryStore, CommonplaceSessionRepository
from commonplace.space.names import label_of


class TestMemoryStore(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        store = CommonplaceMemoryStore(book.space("strands", label_of(owner)))
        asyncio.run(store.add(text, {"name": name}))

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        listed = book.space("strands", label_of(owner)).records.list(limit=1_000).records
        return {record.content["metadata"]["name"]: record.content["text"] for record in listed}


class TestSessions(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        repository = CommonplaceSessionRepository(book.space("sessions"))
        repository.create_agent(owner, SessionAgent(agent_id=name, state={"text": text}, conversation_manager_state={}))

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        from urllib.parse import quote

        repository = CommonplaceSessionRepository(book.space("sessions"))
        page = book.space("sessions").items.list(f"strands/{quote(owner, safe='')}/agent/", limit=1_000)
        agents = [repository.read_agent(owner, item.value["agent_id"]) for item in page.items]
        return {agent.agent_id: agent.state["text"] for agent in agents}


def test_a_store_finds_what_it_saved_and_what_others_saved(book: commonplace.Book) -> None:
    space = book.space("user", "ana")
    store = CommonplaceMemoryStore(space, max_search_results=5)
    first = asyncio.run(store.add("Ana likes green tea", {"topic": "drinks"}))
    assert asyncio.run(store.add("Ana likes green tea", {"topic": "drinks"})) == first
    space.records.create(type="note", content={"text": "The green tea is in the kitchen"}, source="mcp", confidence=1)
    found = asyncio.run(store.search("green tea"))
    assert {entry.content for entry in found} == {"Ana likes green tea", "The green tea is in the kitchen"}
    assert next(entry for entry in found if "Ana" in entry.content).metadata["topic"] == "drinks"
    assert len(asyncio.run(store.search("green tea", {"max_search_results": 1}))) == 1


def test_the_repository_keeps_sessions_agents_and_messages(book: commonplace.Book) -> None:
    repository = CommonplaceSessionRepository(book.space("user", "ana"))
    assert repository.read_session("s/1") is None
    repository.create_session(Session(session_id="s/1", session_type=SessionType.AGENT))
    with pytest.raises(SessionException):
        repository.create_session(Session(session_id="s/1", session_type=SessionType.AGENT))
    assert repository.read_session("s/1").session_id == "s/1"
    agent = SessionAgent(agent_id="a", state={"n": 1}, conversation_manager_state={})
    with pytest.raises(SessionException):
        repository.update_agent("s/1", agent)
    repository.create_agent("s/1", agent)
    agent.state = {"n": 2}
    repository.update_agent("s/1", agent)
    assert repository.read_agent("s/1", "a").state == {"n": 2}
    for number in range(12):
        content = [{"text": f"message {number}"}, {"image": {"source": {"bytes": b"\x00\xff"}}}]
        repository.create_message("s/1", "a", SessionMessage({"role": "user", "content": content}, number))
    listed = repository.list_messages("s/1", "a", limit=3, offset=9)
    assert [one.message_id for one in listed] == [9, 10, 11]
    assert listed[0].message["content"][1]["image"]["source"]["bytes"] == b"\x00\xff"
    redacted = repository.read_message("s/1", "a", 3)
    redacted.redact_message = {"role": "user", "content": [{"text": "[redacted]"}]}
    redacted.message = redacted.redact_message
    repository.update_message("s/1", "a", redacted)
    assert repository.read_message("s/1", "a", 3).to_message()["content"] == [{"text": "[redacted]"}]
    assert book.space("user", "ana").stats().former_states == 0
    with pytest.raises(SessionException):
        repository.update_message("s/1", "a", SessionMessage({"role": "user", "content": []}, 99))
    repository.delete_session("s/1")
    assert repository.list_messages("s/1", "a") == []
    with pytest.raises(SessionException):
        repository.delete_session("s/1")


def test_an_agent_is_restored_from_its_session(book: commonplace.Book) -> None:
    space = book.space("user", "ana")

    def agent() -> tuple[Agent, RepositorySessionManager]:
        manager = RepositorySessionManager("chat-1", CommonplaceSessionRepository(space))
        return Agent(agent_id="a", session_manager=manager, state={"theme": "dark"}, callback_handler=None), manager

    first, manager = agent()
    manager.append_message({"role": "user", "content": [{"text": "hello"}]}, first)
    first.state.set("theme", "light")
    manager.sync_agent(first)
    second, _ = agent()
    assert second.messages[0]["content"] == [{"text": "hello"}]
    assert second.state.get("theme") == "light"
