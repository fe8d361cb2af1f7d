"""LangChain's chat history and store of bytes, and py-key-value's store, on a book, with the real packages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from key_value.aio.errors import InvalidTTLError
from key_value.aio.protocols.key_value import AsyncEnumerateKeysProtocol, AsyncKeyValue
from key_value.aio.wrappers.prefix_keys import PrefixKeysWrapper
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.key_value import CommonplaceKeyValue
from commonplace.adapters.langchain import CommonplaceByteStore, CommonplaceChatHistory
from commonplace.space.names import label_of
from doubles import Clock

ROOT = Path(__file__).resolve().parent.parent.parent


class TestChatHistoryBehaviour(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        CommonplaceChatHistory(book.space("chats"), owner).add_messages([HumanMessage(text, id=name)])

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        found = CommonplaceChatHistory(book.space("chats"), owner).messages
        assert len({message.id for message in found}) == len(found)
        return {str(message.id): str(message.content) for message in found}


class TestByteStoreBehaviour(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        CommonplaceByteStore(book.space("bytes", label_of(owner))).mset([(name, text.encode())])

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        store = CommonplaceByteStore(book.space("bytes", label_of(owner)))
        keys = list(store.yield_keys())
        return {key: (value or b"").decode() for key, value in zip(keys, store.mget(keys), strict=True)}


class TestKeyValueBehaviour(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        asyncio.run(CommonplaceKeyValue(book.space("kv")).put(name, {"text": text}, collection=owner))

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        async def read() -> dict[str, str]:
            store = CommonplaceKeyValue(book.space("kv"))
            keys = await store.keys(owner)
            found = await store.get_many(keys, collection=owner)
            return {key: (value or {})["text"] for key, value in zip(keys, found, strict=True)}

        return asyncio.run(read())


# LangChain


@pytest.mark.promise("langchain-chat-history")
def test_messages_come_back_as_they_were_and_are_found_by_search(every_book: commonplace.Book) -> None:
    space = every_book.space("user", "ana")
    history = CommonplaceChatHistory(space, "chat-1")
    assert history.messages == []
    said = [
        SystemMessage("be brief"),
        HumanMessage("when do we deploy?", id="h-1", additional_kwargs={"x": 1}),
        AIMessage("", tool_calls=[{"name": "look", "args": {"q": "deploy"}, "id": "c-1", "type": "tool_call"}]),
        ToolMessage("on Tuesdays", tool_call_id="c-1", artifact={"n": 1}),
        AIMessage([{"type": "text", "text": "On Tuesdays."}], response_metadata={"model": "m"}),
    ]
    history.add_messages(said)
    assert CommonplaceChatHistory(space, "chat-1").messages == said
    assert "Tuesdays" in space.search("Tuesdays", kinds=["message"])[0].snippet
    history.add_messages([HumanMessage("a\x00b")])
    assert history.messages[-1].content == "a\N{REPLACEMENT CHARACTER}b"
    history.clear()
    assert history.messages == []
    space.undo(space.stats().commit)
    assert history.messages[:5] == said


def test_messages_of_other_programs_are_read_as_text(every_book: commonplace.Book) -> None:
    space = every_book.space("user", "ana")
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"role": "tool", "tool_call_id": "c-1", "content": "42"},
        {"type": "function_call", "call_id": "c-2", "name": "look", "arguments": "{}"},
    ]
    space.threads.create(id="chat-1")
    space.threads.add("chat-1", said, verbatim=True)
    history = CommonplaceChatHistory(space, "chat-1")
    history.add_messages([HumanMessage("ours")])
    found = [(message.type, message.content) for message in history.messages]
    assert found[:3] == [("system", "be brief"), ("human", "hello"), ("ai", "42")]
    assert found[3][0] == "ai"
    assert "look" in found[3][1]
    assert found[4] == ("human", "ours")


def test_a_runnable_remembers_through_the_history(every_book: commonplace.Book) -> None:
    space = every_book.space("user", "ana")

    def model(messages: list[Any]) -> AIMessage:
        return AIMessage(f"{len(messages)} messages")

    chain = RunnableWithMessageHistory(
        RunnableLambda(model), lambda session_id: CommonplaceChatHistory(space, session_id)
    )
    config: Any = {"configurable": {"session_id": "s-1"}}
    assert chain.invoke([HumanMessage("hello")], config).content == "1 messages"
    assert chain.invoke([HumanMessage("again")], config).content == "3 messages"
    assert asyncio.run(chain.ainvoke([HumanMessage("and")], config)).content == "5 messages"


@pytest.mark.promise("langchain-byte-store")
def test_bytes_are_set_read_listed_and_deleted_and_leave_nothing(every_book: commonplace.Book) -> None:
    space = every_book.space("cache")
    store = CommonplaceByteStore(space)
    store.mset([("a/1", b"\x00\xff"), ("a/2", b""), ("b", b"x"), ("", b"empty"), ("a\nb%", b"odd")])
    assert store.mget(["a/1", "none", "a/2", "", "a\nb%"]) == [b"\x00\xff", None, b"", b"empty", b"odd"]
    assert sorted(store.yield_keys(prefix="a/")) == ["a/1", "a/2"]
    assert sorted(store.yield_keys()) == ["", "a\nb%", "a/1", "a/2", "b"]
    store.mset([("b", b"y")])
    store.mdelete(["b", "none"])
    assert store.mget(["b"]) == [None]
    assert space.stats().former_states == 0
    assert asyncio.run(store.amget(["a/1"])) == [b"\x00\xff"]
    assert store.mget([*map(str, range(10_001)), "a/1"])[-1] == b"\x00\xff"
    assert list(CommonplaceByteStore(space, prefix="other/").yield_keys()) == []


# py-key-value


@pytest.mark.promise("key-value-store")
def test_values_are_kept_by_collection_and_key(every_book: commonplace.Book) -> None:
    space = every_book.space("kv")

    async def scenario() -> None:
        store = CommonplaceKeyValue(space)
        assert isinstance(store, AsyncKeyValue)
        assert isinstance(store, AsyncEnumerateKeysProtocol)
        await store.put("k", {"n": 1})
        await store.put("k", {"n": 2}, collection="other/one")
        assert await store.get("k") == {"n": 1}
        assert await store.get("k", collection="other/one") == {"n": 2}
        assert await store.get("none") is None
        await store.put_many(["a", "b"], [{"n": 1}, {"n": 2}], collection="many")
        assert await store.get_many(["b", "none", "a"], collection="many") == [{"n": 2}, None, {"n": 1}]
        assert await store.keys("many") == ["a", "b"]
        assert await store.collections() == ["default_collection", "many", "other/one"]
        assert await store.delete("k")
        assert not await store.delete("k")
        assert await store.delete_many(["a", "a", "none"], collection="many") == 1
        assert await store.destroy_collection("many")
        assert not await store.destroy_collection("many")
        with pytest.raises(ValueError, match="different number"):
            await store.put_many(["a"], [])
        for wrong in (0, -1, "x", True):
            with pytest.raises(InvalidTTLError):
                await store.put("k", {}, ttl=wrong)  # type: ignore[arg-type]
        wrapped = PrefixKeysWrapper(store, prefix="p")  # type: ignore[arg-type]
        await wrapped.put("k", {"n": 3})
        assert await wrapped.get("k") == {"n": 3}

    asyncio.run(scenario())
    assert space.stats().former_states == 0
    assert space.search("n").hits == ()


@pytest.mark.promise("key-value-store")
def test_a_value_expires(every_book: commonplace.Book, clock: Clock) -> None:
    async def scenario() -> None:
        store = CommonplaceKeyValue(every_book.space("kv"))
        await store.put("k", {"n": 1}, ttl=60)
        assert (await store.ttl("k"))[0] == {"n": 1}
        assert await store.ttl("none") == (None, None)
        await store.put("for ever", {"n": 2})
        assert await store.ttl("for ever") == ({"n": 2}, None)
        clock.advance(61)
        assert await store.ttl_many(["k", "for ever"]) == [(None, None), ({"n": 2}, None)]

    asyncio.run(scenario())


MISSING = {
    "agent_framework": "agent_framework",
    "anthropic": "anthropic",
    "crewai": "crewai",
    "google_adk": "google",
    "hermes": "agent",
    "key_value": "key_value",
    "langchain": "langchain_core",
    "langgraph": "langgraph",
    "llama_index": "llama_index",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai_harness",
    "strands": "strands",
}
"""The adapters, and the package that each cannot do without."""


def test_without_its_package_each_adapter_names_the_extra_that_installs_it() -> None:
    program = (
        f"import importlib, sys\nfor module, missing in {MISSING}.items():\n    sys.modules[missing] = None\n"
        "    try:\n        importlib.import_module(f'commonplace.adapters.{module}')\n"
        "    except Exception as error:\n        print(module, type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for module, line in zip(MISSING, lines, strict=True):
        extra = module.replace("_", "-")
        assert line.startswith(f"{module} ConfigurationError")
        assert line.endswith(f"pip install 'commonplace-memory[{extra}]'")
        assert extra in extras
    others = {"__init__", "mcp_memory", "thread_items"}  # of no package, or of two
    assert {path.stem for path in (ROOT / "src/commonplace/adapters").glob("*.py")} == {*MISSING} | others
