"""LangMem's own tools and ours, called alike: the same strings and the same errors, but for what is listed here.

Deliberate differences:

- an unknown id on update or delete is a ValueError, `Memory {id} not found`; LangMem says that it was done
- create and update without a content are a ValueError; LangMem stores a null
- with one permitted action the description begins with a capital: `Create a memory`, not `create a memory`
- ConfigurationError is an ordinary Exception; LangMem's is a BaseException and passes every handler
- unknown arguments are refused; LangMem passes over them
- a refused call is answered with its reason, so that it does not end an agent's run; with `handle_tool_error=False`, as
  here, it raises as LangMem's does
- without a namespace the configuration decides; LangMem needs a template
- the score is that of keywords and meaning together; LangMem's is the distance of vectors
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import langmem
import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from langmem import errors as langmem_errors
from pydantic import BaseModel

from commonplace import Book
from commonplace.adapters.langchain import create_manage_memory_tool, create_search_memory_tool
from commonplace.errors import ConfigurationError

TEMPLATE = ("{user_id}", "memories")
ANN: Any = {"configurable": {"user_id": "ann"}}
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MESSAGES = re.compile("You (cannot|must) provide a MEMORY ID .*")


class Profile(BaseModel):
    name: str
    age: int | None = None


class Side:
    """LangMem's tools or ours, inside a graph: there LangMem finds its configuration, as ours do."""

    def __init__(self, manage: Any, search: Any) -> None:
        self.manage_tool = manage
        self.search_tool = search

    def run(self, tool: Any, arguments: dict[str, Any], config: Any = ANN) -> Any:
        graph = StateGraph(dict)
        graph.add_node("call", lambda state, config: {"answer": tool.invoke(arguments, config)})
        graph.add_edge(START, "call")
        return graph.compile().invoke({}, config)["answer"]

    def manage(self, config: Any = ANN, **arguments: Any) -> str:
        return str(self.run(self.manage_tool, arguments, config))

    def search(self, config: Any = ANN, **arguments: Any) -> list[dict[str, Any]]:
        found = json.loads(self.run(self.search_tool, arguments, config))
        assert isinstance(found, list)
        return found


def theirs(namespace: Any = TEMPLATE, **options: Any) -> Side:
    store = InMemoryStore()
    return Side(
        langmem.create_manage_memory_tool(namespace, store=store, **options),
        langmem.create_search_memory_tool(namespace, store=store),
    )


@pytest.fixture
def ours(book: Book) -> Any:
    def make(namespace: Any = TEMPLATE, **options: Any) -> Side:
        manage = create_manage_memory_tool(namespace, store=book, **options)
        manage.handle_tool_error = False
        return Side(manage, create_search_memory_tool(namespace, store=book))

    return make


def story(side: Side) -> list[Any]:
    """One life of a memory; ids are told apart by their order, times left out."""
    told: list[Any] = []
    created = side.manage(content="likes tea")
    id = ID.search(created)
    assert id is not None
    told.append(created.replace(id[0], "ID"))
    told.append(side.manage(content="likes coffee", action="update", id=id[0]).replace(id[0], "ID"))
    [item] = side.search(query="likes coffee", limit=10)
    told.append([list(item), item["namespace"], item["key"] == id[0], item["value"]])
    told.append([bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00", item["created_at"]))])
    told.append(side.search(query="likes coffee", filter={"category": "none"}))
    told.append(side.search(query="likes coffee", offset=1))
    told.append(side.search({"configurable": {"user_id": "bob"}}, query="likes coffee"))
    told.append(side.manage(action="delete", id=id[0]).replace(id[0], "ID"))
    told.append(side.search(query="likes coffee"))
    return told


@pytest.mark.promise("facts-langmem-strings")
def test_one_life_of_a_memory_reads_the_same(ours: Any) -> None:
    assert story(ours()) == story(theirs())
    assert story(ours())[0] == "created memory ID"


@pytest.mark.promise("facts-langmem-strings")
@pytest.mark.parametrize(
    ("permitted", "arguments"),
    [
        (("create", "update", "delete"), {"action": "update", "content": "x"}),
        (("create", "update", "delete"), {"action": "delete"}),
        (("create", "update", "delete"), {"action": "create", "content": "x", "id": str(uuid.uuid4())}),
        (("update", "delete"), {"content": "x"}),
        (("delete",), {}),
        (("delete", "create"), {"action": "delete"}),
    ],
)
def test_a_refused_call_has_the_same_words(ours: Any, permitted: Any, arguments: dict[str, Any]) -> None:
    said = []
    for side in (ours(actions_permitted=permitted), theirs(actions_permitted=permitted)):
        with pytest.raises(ValueError) as caught:
            side.manage(**arguments)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert MESSAGES.fullmatch(said[0])


@pytest.mark.promise("facts-langmem-strings")
@pytest.mark.parametrize("permitted", [("create", "update"), ("update",), ("update", "create")])
def test_an_action_that_is_not_permitted_has_the_same_words(ours: Any, permitted: Any) -> None:
    arguments = {"action": "delete", "id": str(uuid.uuid4())}
    said = []
    # Past LangMem's own check of the arguments, which words it in pydantic's way.
    for call in (
        lambda **given: ours(actions_permitted=permitted).manage(**given),
        theirs(actions_permitted=permitted).manage_tool.func,
    ):
        with pytest.raises(ValueError) as caught:
            call(**arguments)
        said.append(str(caught.value))
    assert said == [f"Invalid action delete. Must be one of {permitted}."] * 2


@pytest.mark.promise("facts-langmem-strings")
def test_no_permitted_actions_are_refused_alike(ours: Any) -> None:
    for make in (ours, theirs):
        with pytest.raises(ValueError, match=r"^actions_permitted cannot be empty$"):
            make(actions_permitted=())


@pytest.mark.promise("facts-langmem-strings")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"actions_permitted": ("create", "update")},
        {"actions_permitted": ("delete", "create")},
        {"actions_permitted": ("update", "delete", "create")},
        {"actions_permitted": ("create",)},
        {"instructions": "Keep only preferences."},
        {"name": "keep"},
    ],
)
def test_names_descriptions_and_offered_actions_are_the_same(ours: Any, options: dict[str, Any]) -> None:
    one, other = ours(**options), theirs(**options)
    their_description = other.manage_tool.description
    if options.get("actions_permitted") == ("create",):
        their_description = their_description[0].upper() + their_description[1:]
    assert one.manage_tool.name == other.manage_tool.name
    assert one.manage_tool.description.strip() == their_description.strip()
    assert one.search_tool.name == other.search_tool.name
    assert one.search_tool.description.strip() == other.search_tool.description.strip()
    their_action = other.manage_tool.tool_call_schema.model_json_schema()["properties"]["action"]
    our_action = one.manage_tool.args_schema["properties"]["action"]
    assert our_action["enum"] == their_action.get("enum", [their_action.get("const")])
    assert our_action["default"] == their_action["default"]


@pytest.mark.promise("facts-langmem-strings")
def test_a_model_as_schema_stores_the_same_value(ours: Any) -> None:
    values = []
    for side in (ours(schema=Profile), theirs(schema=Profile)):
        side.manage(content={"name": "Ann", "age": 61})
        side.manage(content={"name": "Joe"})
        values.append(
            sorted((item["value"]["content"]["name"], item["value"]) for item in side.search(query="Ann Joe"))
        )
        with pytest.raises(ValueError):
            side.manage(content={"age": 5})
    assert values[0] == values[1]


@pytest.mark.promise("facts-langmem-strings")
def test_a_missing_key_is_a_configuration_error_that_names_it_on_both_sides(ours: Any) -> None:
    for side, error in ((ours(), ConfigurationError), (theirs(), langmem_errors.ConfigurationError)):
        with pytest.raises(error) as caught:
            side.manage({"configurable": {"org_id": "acme"}}, content="x")
        assert "user_id" in str(caught.value)
        assert "org_id" in str(caught.value)


@pytest.mark.promise("facts-langmem-differences")
def test_the_listed_differences_are_there(ours: Any) -> None:
    unknown = str(uuid.uuid4())
    assert theirs().manage(action="delete", id=unknown) == f"Deleted memory {unknown}"
    assert theirs().manage(action="update", id=unknown, content="x") == f"updated memory {unknown}"
    assert theirs().manage(action="create").startswith("created memory ")
    for arguments, message in (
        ({"action": "delete", "id": unknown}, f"Memory {unknown} not found"),
        ({"action": "update", "id": unknown, "content": "x"}, f"Memory {unknown} not found"),
        ({"action": "create"}, "content is required"),
    ):
        with pytest.raises(ValueError) as caught:
            ours().manage(**arguments)
        assert str(caught.value) == message
    assert not issubclass(langmem_errors.ConfigurationError, Exception)
    assert issubclass(ConfigurationError, Exception)


@pytest.mark.promise("facts-langmem-strings")
def test_both_work_as_the_tools_of_one_node(ours: Any) -> None:
    for side in (ours(), theirs()):
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode([side.manage_tool, side.search_tool]))
        graph.add_edge(START, "tools")
        call = {"name": "manage_memory", "args": {"content": "likes tea"}, "id": "1", "type": "tool_call"}
        state = graph.compile().invoke({"messages": [_calling(call)]}, ANN)
        assert ID.sub("ID", str(state["messages"][-1].content)) == "created memory ID"


def _calling(call: dict[str, Any]) -> Any:
    from langchain_core.messages import AIMessage

    return AIMessage(content="", tool_calls=[call])
