"""A LangGraph agent with our tools: whose facts they are comes from the run's configurable, at each call."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

from commonplace import Book
from commonplace.adapters.langchain import create_manage_memory_tool, create_search_memory_tool
from commonplace.embedding.catalog import MINILM_L6
from commonplace.errors import ConfigurationError, Corrupt, Unavailable
from commonplace.tools import Fact, fact_tools
from doubles import OpenBook, WordEmbedder

ANN: Any = {"configurable": {"user_id": "ann"}}
BOB: Any = {"configurable": {"user_id": "bob"}}


class ScriptedModel(GenericFakeChatModel):
    """Calls the tools that the test names, then says that it is done."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def agent_that_calls(tools: Sequence[Any], *calls: tuple[str, dict[str, Any]], make: Any = create_agent) -> Any:
    def script() -> Iterator[AIMessage]:
        for number, (name, args) in enumerate(calls):
            call = {"name": name, "args": args, "id": str(number), "type": "tool_call"}
            yield AIMessage(content="", tool_calls=[call])
        yield AIMessage(content="done")

    return make(ScriptedModel(messages=script()), tools=list(tools))


def tool_messages(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


ASK: Any = {"messages": [{"role": "user", "content": "remember that I like tea"}]}


@pytest.mark.promise("facts-langgraph-agent")
@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_saves_and_finds_facts_of_the_user_whose_run_it_is(book: Book, is_async: bool) -> None:
    tools = [create_manage_memory_tool(store=book), create_search_memory_tool(store=book)]

    def run(config: Any, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        agent = agent_that_calls(tools, *calls)
        state = asyncio.run(agent.ainvoke(ASK, config)) if is_async else agent.invoke(ASK, config)
        return [str(message.content) for message in tool_messages(state)]

    said, found = run(
        ANN, ("manage_memory", {"content": "likes tea", "action": "create"}), ("search_memory", {"query": "tea"})
    )
    id = said.removeprefix("created memory ")
    assert [(fact["key"], fact["namespace"]) for fact in json.loads(found)] == [(id, ["user", "ann"])]
    assert run(BOB, ("search_memory", {"query": "tea"})) == ["[]"]
    assert run(ANN, ("manage_memory", {"action": "delete", "id": id})) == [f"Deleted memory {id}"]
    assert run(ANN, ("search_memory", {"query": "tea"})) == ["[]"]


@pytest.mark.promise("facts-langgraph-agent")
def test_a_template_is_filled_from_the_run_and_a_missing_key_stops_it(book: Book) -> None:
    tool = create_manage_memory_tool(("{user_id}", "memories"), store=book)
    call = ("manage_memory", {"content": "likes tea"})
    agent_that_calls([tool], call).invoke(ASK, ANN)
    assert book.namespaces() == [("ann", "memories")]
    with pytest.raises(ConfigurationError, match="lacks user_id"):
        tool.invoke({"content": "likes tea"}, {"configurable": {"org_id": "acme"}})
    with pytest.raises(ConfigurationError, match="lacks user_id"):
        tool.invoke({"content": "likes tea"})


@pytest.mark.promise("facts-langgraph-agent")
def test_the_artifact_is_the_list_of_facts(book: Book) -> None:
    create_manage_memory_tool(store=book).invoke({"content": "likes tea"}, ANN)
    search = create_search_memory_tool(store=book, response_format="content_and_artifact")
    state = agent_that_calls([search], ("search_memory", {"query": "tea"})).invoke(ASK, ANN)
    [message] = tool_messages(state)
    [fact] = message.artifact
    assert isinstance(fact, Fact)
    assert json.loads(str(message.content)) == [fact.dict()]


def nested(levels: int) -> Any:
    value: Any = "tea"
    for _ in range(levels):
        value = [value]
    return value


UNKNOWN = "00000000-0000-0000-0000-000000000000"
WRONG_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("manage_memory", {}, "content is required"),
    ("manage_memory", {"content": None}, "content is required"),
    ("manage_memory", {"action": "destroy"}, "Invalid action destroy"),
    ("manage_memory", {"action": ["create"], "content": "x"}, "Invalid action"),
    ("manage_memory", {"action": "update", "content": "x", "id": UNKNOWN}, f"Memory {UNKNOWN} not found"),
    ("manage_memory", {"action": "delete", "id": "nothing"}, "Memory nothing not found"),
    ("manage_memory", {"action": "delete", "id": {"is": 7}}, "not found"),
    ("manage_memory", {"action": "delete", "id": "\ud800"}, "lone surrogate"),
    ("manage_memory", {"action": "delete", "id": "x" * 100_000}, "at most 200"),
    ("manage_memory", {"action": "delete"}, "You must provide a MEMORY ID"),
    ("manage_memory", {"action": "update", "content": "x"}, "You must provide a MEMORY ID"),
    ("manage_memory", {"content": "x", "id": UNKNOWN}, "You cannot provide a MEMORY ID"),
    ("manage_memory", {"content": "x", "colour": "red"}, 'unknown argument "colour"'),
    ("manage_memory", {"content": "x", "self": 1}, 'unknown argument "self"'),
    ("manage_memory", {"content": "x", "\ud800": 1}, "unknown argument"),
    ("manage_memory", {"content": "tea\x00"}, "NUL"),
    ("manage_memory", {"content": "\ud800"}, "lone surrogate"),
    ("manage_memory", {"content": "x" * 20_000}, "too large"),
    ("manage_memory", {"content": nested(200)}, "nested"),
    ("search_memory", {}, "query is required"),
    ("search_memory", {"query": ""}, "query is required"),
    ("search_memory", {"query": 7}, "query is required"),
    ("search_memory", {"query": "tea\x00"}, "NUL"),
    ("search_memory", {"query": "\ud800"}, "lone surrogate"),
    ("search_memory", {"query": "x" * 2_000_000}, "at most"),
    ("search_memory", {"query": "tea", "limit": 0}, "limit must be"),
    ("search_memory", {"query": "tea", "limit": "many"}, "limit must be"),
    ("search_memory", {"query": "tea", "limit": 10**400}, "limit must be"),
    ("search_memory", {"query": "tea", "offset": -1}, "offset must be"),
    ("search_memory", {"query": "tea", "filter": "red"}, "filter must be"),
    ("search_memory", {"query": "tea", "filter": {"age": {"$near": 1}}}, "unknown operator $near"),
    ("search_memory", {"query": "tea", "filter": {"age": nested(200)}}, "nested"),
    ("search_memory", {"query": "tea", "top_k": 3}, 'unknown argument "top_k"'),
]


@pytest.mark.promise("facts-langchain-refusals")
@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
@pytest.mark.parametrize("make", [create_agent, create_react_agent])
@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_no_wrong_call_of_a_model_ends_the_run(book: Book, make: Any, is_async: bool) -> None:
    """A model that gave an unknown id, or an argument that there is not, ended the whole run of its agent."""
    tools = [create_manage_memory_tool(store=book), create_search_memory_tool(store=book)]
    calls = [(name, arguments) for name, arguments, _ in WRONG_CALLS]
    agent = agent_that_calls(tools, *calls, make=make)
    config = {**ANN, "recursion_limit": 3 * len(calls)}
    state = asyncio.run(agent.ainvoke(ASK, config)) if is_async else agent.invoke(ASK, config)
    assert state["messages"][-1].content == "done"
    messages = tool_messages(state)
    assert {message.status for message in messages} == {"error"}
    for message, (name, arguments, said) in zip(messages, WRONG_CALLS, strict=True):
        assert said in str(message.content), (name, str(arguments)[:80])
        assert len(str(message.content).encode()) < 2_000
    assert book.space("user", "ann").records.list().records == ()


@pytest.mark.promise("facts-langchain-refusals")
def test_content_that_does_not_fit_its_schema_is_told_to_the_model(book: Book) -> None:
    tool = create_manage_memory_tool(store=book, schema=Profile)
    state = agent_that_calls([tool], ("manage_memory", {"content": {"age": "old"}})).invoke(ASK, ANN)
    [message] = tool_messages(state)
    assert message.status == "error"
    assert str(message.content).startswith("content does not fit its schema")


@pytest.mark.promise("facts-langchain-refusals")
def test_a_caller_may_ask_for_the_error_and_the_plain_tools_raise_it(book: Book) -> None:
    tool = create_manage_memory_tool(store=book)
    assert tool.invoke({"action": "delete"}, ANN).startswith("You must provide a MEMORY ID")
    tool.handle_tool_error = False
    plain = fact_tools.create_manage_memory_tool(store=book)
    for call in (lambda: tool.invoke({"action": "delete"}, ANN), lambda: plain.call({"action": "delete"}, ANN)):
        with pytest.raises(ValueError, match="You must provide a MEMORY ID"):
            call()


@pytest.mark.promise("facts-langchain-refusals")
def test_what_no_model_can_mend_is_raised_to_the_program(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = create_search_memory_tool(store=book)
    for failure in (Corrupt("page 7 is damaged"), ConfigurationError("no key"), RuntimeError("a bug of ours")):

        def fail(*arguments: Any, failure: Exception = failure) -> Any:
            raise failure

        monkeypatch.setattr(tool.tool, "call", fail)
        with pytest.raises(type(failure)):
            agent_that_calls([tool], ("search_memory", {"query": "tea"})).invoke(ASK, ANN)
    monkeypatch.setattr(tool.tool, "call", lambda *arguments: _raise(Unavailable("the book is busy; try again")))
    state = agent_that_calls([tool], ("search_memory", {"query": "tea"})).invoke(ASK, ANN)
    assert [message.content for message in tool_messages(state)] == ["the book is busy; try again"]


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.promise("facts-isolation")
@pytest.mark.parametrize("name", ["config", "configurable", "user_id", "namespace", "run_manager", "store", "tool"])
def test_what_a_model_adds_to_its_arguments_leads_to_no_other_user(book: Book, name: str) -> None:
    manage, search = create_manage_memory_tool(store=book), create_search_memory_tool(store=book)
    manage.invoke({"content": "the tea of bob"}, BOB)
    for tool, arguments in ((search, {"query": "tea"}), (manage, {"content": "tea"})):
        for value in (BOB, "bob"):
            assert "the tea of bob" not in tool.invoke({**arguments, name: value}, ANN)
    assert len(json.loads(search.invoke({"query": "tea"}, BOB))) == 1


class Profile(BaseModel):
    name: str
    age: int | None = None


@pytest.mark.promise("facts-langgraph-agent")
def test_models_are_told_what_the_plain_tools_say(book: Book) -> None:
    options: dict[str, Any] = {"schema": Profile, "actions_permitted": ("create", "update"), "name": "keep"}
    told = convert_to_openai_tool(create_manage_memory_tool(store=book, **options))["function"]
    plain = fact_tools.create_manage_memory_tool(store=book, **options)
    assert (told["name"], told["description"]) == ("keep", plain.description)
    assert told["parameters"]["properties"]["action"]["enum"] == ["create", "update"]
    assert set(told["parameters"]["properties"]["content"]["properties"]) == {"name", "age"}


@pytest.mark.promise("facts-langchain-missing")
def test_without_langchain_the_error_names_the_install_command() -> None:
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "import commonplace.tools.fact_tools, commonplace.tools\n"
        "try:\n"
        "    import commonplace.adapters.langchain\n"
        "except commonplace.ConfigurationError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip().endswith("pip install 'commonplace-memory[langchain]'")


def test_the_plain_tools_load_neither_langchain_nor_pydantic() -> None:
    code = (
        "import sys, commonplace.tools as tools\n"
        "tools.create_manage_memory_tool(), tools.create_search_memory_tool(), tools.RecordTools\n"
        "print([name for name in ('langchain_core', 'pydantic', 'numpy', 'apsw') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.promise("relevance-tools")
def test_an_agent_is_told_that_nothing_is_relevant(open_book: OpenBook) -> None:
    book = open_book(embedder=WordEmbedder(MINILM_L6.identity, dimensions=1_024))
    tools = [create_manage_memory_tool(store=book), create_search_memory_tool(store=book)]
    saved = ("manage_memory", {"content": "Tea is in the blue tin on the upper shelf", "action": "create"})
    agent_that_calls(tools, saved).invoke(ASK, ANN)
    query = "quantum chromodynamics lattice"
    calls = (("search_memory", {"query": query}), ("search_memory", {"query": query, "min_relevance": 0}))
    none, everything = tool_messages(agent_that_calls(tools, *calls).invoke(ASK, ANN))
    assert none.content == "[]\n1 less relevant memory was left out; min_relevance 0 shows them"
    assert len(json.loads(str(everything.content))) == 1
