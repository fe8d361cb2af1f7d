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
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

from commonplace import Book
from commonplace.adapters.langchain import create_manage_memory_tool, create_search_memory_tool
from commonplace.errors import ConfigurationError
from commonplace.tools import Fact, facts

ANN: Any = {"configurable": {"user_id": "ann"}}
BOB: Any = {"configurable": {"user_id": "bob"}}


class ScriptedModel(GenericFakeChatModel):
    """Calls the tools that the test names, then says that it is done."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def agent_that_calls(tools: Sequence[Any], *calls: tuple[str, dict[str, Any]]) -> Any:
    def script() -> Iterator[AIMessage]:
        for number, (name, args) in enumerate(calls):
            call = {"name": name, "args": args, "id": str(number), "type": "tool_call"}
            yield AIMessage(content="", tool_calls=[call])
        yield AIMessage(content="done")

    return create_agent(ScriptedModel(messages=script()), tools=list(tools))


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


@pytest.mark.promise("facts-langgraph-agent")
def test_what_a_model_does_wrong_can_be_told_to_it(book: Book) -> None:
    tool = create_manage_memory_tool(store=book)
    with pytest.raises(ValueError, match="You must provide a MEMORY ID"):
        tool.invoke({"action": "delete"}, ANN)
    call = {"name": "manage_memory", "args": {"action": "delete"}, "id": "1", "type": "tool_call"}
    node = ToolNode([tool], handle_tool_errors=True)
    graph = _graph_of(node)
    [message] = tool_messages(graph.invoke({"messages": [AIMessage(content="", tool_calls=[call])]}, ANN))
    assert message.status == "error"
    assert "You must provide a MEMORY ID when deleting or updating a MEMORY." in str(message.content)


def _graph_of(node: ToolNode) -> Any:
    from langgraph.graph import MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.set_entry_point("tools")
    return graph.compile()


@pytest.mark.promise("facts-isolation")
@pytest.mark.parametrize("name", ["config", "configurable", "user_id", "namespace", "run_manager", "store", "tool"])
def test_what_a_model_adds_to_its_arguments_leads_to_no_other_user(book: Book, name: str) -> None:
    manage, search = create_manage_memory_tool(store=book), create_search_memory_tool(store=book)
    manage.invoke({"content": "the tea of bob"}, BOB)
    for tool, arguments in ((search, {"query": "tea"}), (manage, {"content": "tea"})):
        for value in (BOB, "bob"):
            try:
                answer = tool.invoke({**arguments, name: value}, ANN)
            except ValueError as refused:
                answer = f"refused: {refused}"
            assert "the tea of bob" not in answer
    assert len(json.loads(search.invoke({"query": "tea"}, BOB))) == 1


class Profile(BaseModel):
    name: str
    age: int | None = None


@pytest.mark.promise("facts-langgraph-agent")
def test_models_are_told_what_the_plain_tools_say(book: Book) -> None:
    options: dict[str, Any] = {"schema": Profile, "actions_permitted": ("create", "update"), "name": "keep"}
    told = convert_to_openai_tool(create_manage_memory_tool(store=book, **options))["function"]
    plain = facts.create_manage_memory_tool(store=book, **options)
    assert (told["name"], told["description"]) == ("keep", plain.description)
    assert told["parameters"]["properties"]["action"]["enum"] == ["create", "update"]
    assert set(told["parameters"]["properties"]["content"]["properties"]) == {"name", "age"}


@pytest.mark.promise("facts-langchain-missing")
def test_without_langchain_the_error_names_the_install_command() -> None:
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "import commonplace.tools.facts, commonplace.tools\n"
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
