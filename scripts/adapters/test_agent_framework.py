"""Microsoft's Agent Framework on a book, with the real package. It carries no suite for providers."""

from __future__ import annotations

import asyncio

from agent_framework import AgentSession, Content, Message, SessionContext
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.agent_framework import CommonplaceContextProvider, CommonplaceHistoryProvider


def said(role: str, text: str, **options: object) -> Message:
    return Message(role=role, contents=[Content.from_text(text)], **options)


class TestHistory(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        provider = CommonplaceHistoryProvider(book.space("chats"))
        asyncio.run(provider.save_messages(owner, [said("user", text, message_id=name)]))

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        found = asyncio.run(CommonplaceHistoryProvider(book.space("chats")).get_messages(owner))
        assert len({message.message_id for message in found}) == len(found)
        return {message.message_id: message.text for message in found}


def test_messages_come_back_as_they_were(book: commonplace.Book) -> None:
    provider = CommonplaceHistoryProvider(book.space("user", "ana"))
    call = Content.from_function_call(call_id="c-1", name="look", arguments={"q": "tea"})
    messages = [
        said("user", "where is the tea?"),
        Message(role="assistant", contents=[call]),
        said("assistant", "there"),
    ]
    asyncio.run(provider.save_messages("s-1", messages))
    found = asyncio.run(provider.get_messages("s-1"))
    assert [message.to_dict() for message in found] == [message.to_dict() for message in messages]
    assert asyncio.run(provider.get_messages("s-2")) == []
    assert asyncio.run(provider.get_messages(None)) == []


def test_messages_of_other_programs_are_read_as_text(book: commonplace.Book) -> None:
    space = book.space("user", "ana")
    space.threads.create(id="s-1")
    parts = [{"type": "input_text", "text": "hello"}]
    space.threads.add("s-1", [{"role": "user", "content": parts}, {"role": "tool", "content": "42"}], verbatim=True)
    found = asyncio.run(CommonplaceHistoryProvider(space).get_messages("s-1"))
    assert [(str(message.role), message.text) for message in found] == [("user", "hello"), ("assistant", "42")]


def test_a_run_loads_and_stores_the_history_and_gets_what_the_memory_holds(book: commonplace.Book) -> None:
    space = book.space("user", "ana")
    space.records.create(type="note", content={"text": "Ana likes green tea"}, source="mcp", confidence=1)
    history = CommonplaceHistoryProvider(space)
    memory = CommonplaceContextProvider(space, kinds=["record"])
    session = AgentSession(session_id="s-1")

    async def run(text: str) -> SessionContext:
        context = SessionContext(session_id="s-1", input_messages=[said("user", text)])
        for provider in (history, memory):
            await provider.before_run(agent=None, session=session, context=context, state={})
        await history.after_run(agent=None, session=session, context=context, state={})
        return context

    asyncio.run(run("hello"))
    context = asyncio.run(run("green tea"))
    assert [message.text for message in context.get_messages()] == ["hello"]
    assert "Ana likes green tea" in context.instructions[0]
    assert [message.text for message in asyncio.run(history.get_messages("s-1"))] == ["hello", "green tea"]
