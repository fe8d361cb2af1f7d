"""The facts tools: every scenario of the seed, and every string and refusal of the contract."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel

import commonplace
from commonplace import Book, Limits
from commonplace.errors import ConfigurationError
from commonplace.tools import Fact, RecordTools, create_manage_memory_tool, create_search_memory_tool
from doubles import rounds

ANN: dict[str, Any] = {"user_id": "ann"}
BOB: dict[str, Any] = {"user_id": "bob"}
NEEDS_ID = "You must provide a MEMORY ID when deleting or updating a MEMORY."
HAS_ID = "You cannot provide a MEMORY ID when creating a MEMORY. Please try again, omitting the id argument."


class Tools:
    """Both tools on one book, called for Ann unless told otherwise."""

    def __init__(self, book: Book, **options: Any) -> None:
        self.manage_tool = create_manage_memory_tool(store=book, **options)
        self.search_tool = create_search_memory_tool(store=book)

    def manage(self, *args: Any, config: Any = ANN, **kwargs: Any) -> str:
        return self.manage_tool(*args, config=config, **kwargs)

    def create(self, content: Any, config: Any = ANN) -> str:
        said = self.manage(content, config=config)
        assert said.startswith("created memory ")
        return said.removeprefix("created memory ")

    def search(self, query: str, config: Any = ANN, **options: Any) -> list[dict[str, Any]]:
        answer = self.search_tool(query, config=config, **options)
        assert isinstance(answer, str)
        found = json.loads(answer)
        assert isinstance(found, list)
        return found

    def keys(self, query: str, config: Any = ANN, **options: Any) -> list[str]:
        return [fact["key"] for fact in self.search(query, config, **options)]


@pytest.fixture
def tools(book: Book) -> Tools:
    return Tools(book)


# manage_memory


@pytest.mark.promise("facts-create")
def test_a_created_fact_gets_an_id_of_its_own_and_says_so(tools: Tools) -> None:
    said = tools.manage(content="likes dark mode", action="create")
    word, noun, id = said.split(" ")
    assert (word, noun, uuid.UUID(id).version) == ("created", "memory", 4)
    [fact] = tools.search("dark mode")
    assert (fact["key"], fact["value"]) == (id, {"content": "likes dark mode"})


@pytest.mark.promise("facts-create")
def test_equal_facts_are_two_facts(tools: Tools) -> None:
    assert tools.create("likes tea") != tools.create("likes tea")
    assert len(tools.search("tea")) == 2


@pytest.mark.promise("facts-update")
def test_an_updated_fact_keeps_its_id_and_has_the_new_content(tools: Tools, clock: Any) -> None:
    id = tools.create("likes tea")
    clock.advance(60)
    assert tools.manage(content={"drink": "coffee"}, action="update", id=id) == f"updated memory {id}"
    [fact] = tools.search("coffee")
    assert (fact["key"], fact["value"]) == (id, {"content": {"drink": "coffee"}})
    assert (fact["created_at"], fact["updated_at"]) == ("2025-06-15T15:06:40+00:00", "2025-06-15T15:07:40+00:00")
    assert tools.manage(content="x", action="update", id=uuid.UUID(id)) == f"updated memory {id}"


@pytest.mark.promise("facts-delete")
def test_a_deleted_fact_is_gone(tools: Tools) -> None:
    id, kept = tools.create("likes tea"), tools.create("likes coffee")
    assert tools.manage(action="delete", id=id) == f"Deleted memory {id}"
    assert tools.keys("likes") == [kept]


@pytest.mark.promise("facts-refusals")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "update", "content": "x"}, NEEDS_ID),
        ({"action": "delete"}, NEEDS_ID),
        ({"action": "delete", "id": ""}, NEEDS_ID),
        ({"action": "create", "content": "x", "id": str(uuid.uuid4())}, HAS_ID),
        ({"action": "forget", "content": "x"}, "Invalid action forget. Must be one of ('create', 'update', 'delete')."),
        ({"action": "create"}, "content is required"),
        ({"content": float("nan")}, "content contains nan, which JSON cannot hold"),
        ({"content": "x" * 10_000}, "content is too large (max 10000 characters)"),
    ],
)
def test_a_wrong_call_is_a_value_error_in_these_words_and_changes_nothing(
    tools: Tools, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        tools.manage(**arguments)
    assert str(caught.value) == message
    assert tools.search("x") == []


@pytest.mark.promise("facts-unknown-id")
@pytest.mark.parametrize("arguments", [{"action": "delete"}, {"action": "update", "content": "x"}])
def test_an_unknown_id_is_not_found_and_changes_nothing(tools: Tools, arguments: dict[str, Any]) -> None:
    kept = tools.create("likes tea")
    foreign = tools.create("of bob", BOB)
    for id in (str(uuid.uuid4()), foreign):
        with pytest.raises(ValueError, match=f"^Memory {id} not found$"):
            tools.manage(id=id, **arguments)
    assert (tools.keys("likes tea"), tools.keys("bob", BOB)) == ([kept], [foreign])


@pytest.mark.promise("facts-update")
def test_an_update_needs_a_content(tools: Tools) -> None:
    id = tools.create("likes tea")
    with pytest.raises(ValueError, match=r"^content is required$"):
        tools.manage(action="update", id=id)
    assert tools.search("tea")[0]["value"] == {"content": "likes tea"}


@pytest.mark.promise("facts-permitted-actions")
def test_an_action_that_is_not_permitted_is_neither_offered_nor_done(book: Book) -> None:
    tools = Tools(book, actions_permitted=("create", "update"))
    id = tools.create("likes tea")
    with pytest.raises(ValueError) as caught:
        tools.manage(action="delete", id=id)
    assert str(caught.value) == "Invalid action delete. Must be one of ('create', 'update')."
    assert tools.manage_tool.args_schema["properties"]["action"]["enum"] == ["create", "update"]
    assert tools.manage_tool.description.startswith("Create or update a memory to persist across conversations.\n")
    assert tools.keys("tea") == [id]


@pytest.mark.promise("facts-permitted-actions")
def test_the_schema_has_only_what_the_permitted_actions_need(book: Book) -> None:
    def fields(*actions: Any) -> set[str]:
        return set(create_manage_memory_tool(store=book, actions_permitted=actions).args_schema["properties"])

    assert fields("create") == {"content", "action"}
    assert fields("delete") == {"action", "id"}
    assert fields("update") == fields("create", "delete") == {"content", "action", "id"}
    only_delete = create_manage_memory_tool(store=book, actions_permitted=("delete",))
    with pytest.raises(ValueError, match=NEEDS_ID):
        only_delete(config=ANN)


@pytest.mark.promise("facts-permitted-actions")
@pytest.mark.parametrize("actions", [(), [], None, ("create", "forget"), "create"])
def test_permitted_actions_that_are_empty_or_unknown_are_refused(book: Book, actions: Any) -> None:
    with pytest.raises(ValueError, match=r"^actions_permitted "):
        create_manage_memory_tool(store=book, actions_permitted=actions)


@pytest.mark.promise("facts-instructions")
def test_the_description_is_made_of_the_actions_and_the_instructions(book: Book) -> None:
    tool = create_manage_memory_tool(store=book, instructions="Only what the user asks to keep.", name="keep")
    assert tool.name == "keep"
    assert tool.description == (
        "Create, update, or delete a memory to persist across conversations.\n"
        "Include the MEMORY ID when updating or deleting a MEMORY. "
        "Omit when creating a new MEMORY - it will be created for you.\n"
        "Only what the user asks to keep."
    )
    assert "1. Identify a new USER preference." in create_manage_memory_tool(store=book).description
    search = create_search_memory_tool(store=book, instructions="Call it first.")
    assert search.description == (
        "Search your long-term memories for information relevant to your current context. Call it first."
    )


class Pet(BaseModel):
    name: str


class Profile(BaseModel):
    """Who the user is."""

    name: str
    age: int | None = None
    pets: list[Pet] = []


@pytest.mark.promise("facts-schema")
def test_a_schema_describes_and_checks_the_content(book: Book) -> None:
    tools = Tools(book, schema=Profile)
    schema = tools.manage_tool.args_schema
    Draft202012Validator.check_schema(schema)
    valid = Draft202012Validator(schema)
    assert valid.is_valid({"content": {"name": "Ann", "pets": [{"name": "Rex"}]}})
    assert not valid.is_valid({"content": {"name": "Ann", "pets": [{}]}})
    tools.create(Profile(name="Ann", age=61, pets=[Pet(name="Rex")]))
    tools.create({"name": "Joe"})
    assert [fact["value"]["content"] for fact in tools.search("Ann Rex 61")] == [
        {"name": "Ann", "age": 61, "pets": [{"name": "Rex"}]},
        {"name": "Joe", "age": None, "pets": []},
    ]
    for wrong in ({"age": 5}, "Ann", ["Ann"], 5):
        with pytest.raises(ValueError, match="content does not fit its schema"):
            tools.create(wrong)


@pytest.mark.promise("facts-schema")
def test_plain_types_and_json_schemas_describe_the_content_too(book: Book) -> None:
    def content(schema: Any) -> Any:
        return create_manage_memory_tool(store=book, schema=schema).args_schema["properties"]["content"]

    assert content(str)["type"] == "string"
    assert content(dict)["type"] == "object"
    assert content({"type": "array", "items": {"type": "string"}})["items"] == {"type": "string"}
    assert content(list[int])["items"] == {"type": "integer"}


# search_memory


@pytest.mark.promise("facts-search")
def test_a_search_gives_a_json_list_of_facts_by_words_and_meaning(tools: Tools) -> None:
    dark = tools.create("has a preference for dark mode")
    tools.create("lives in Ghent")
    facts = tools.search(query="preference for dark mode", limit=10)
    assert facts[0] == {
        "namespace": ["user", "ann"],
        "key": dark,
        "value": {"content": "has a preference for dark mode"},
        "created_at": "2025-06-15T15:06:40+00:00",
        "updated_at": "2025-06-15T15:06:40+00:00",
        "score": facts[0]["score"],
    }
    assert 1 >= facts[0]["score"] > facts[1]["score"] >= 0


@pytest.mark.promise("facts-search")
def test_both_sides_of_the_search_take_part(tools: Tools, book: Book, embedder: Any) -> None:
    id = tools.create("has a preference for dark mode")
    hits = book.space("user", "ann").search("dark mode preference", kinds=["record"])
    assert set(hits[0].parts) == {"keyword", "meaning"}
    embedder.error = commonplace.Unavailable("away")
    assert tools.keys("dark mode again") == [id]


@pytest.mark.promise("facts-search")
def test_limit_and_offset_page_through_the_facts(tools: Tools) -> None:
    for number in range(15):
        tools.create(f"likes number {number}")
    every = tools.keys("likes number", limit=15)
    assert len(set(every)) == 15
    assert tools.keys("likes number") == every[:10]
    assert tools.keys("likes number", limit=4, offset=10) == every[10:14]
    assert tools.keys("likes number", limit="4", offset="14") == every[14:]
    for wrong in ({"limit": 0}, {"limit": "many"}, {"limit": 1.5}, {"limit": True}, {"offset": -1}, {"limit": 10**6}):
        with pytest.raises(ValueError, match=r"^(limit|offset) must be "):
            tools.search("likes", **wrong)


def test_an_argument_that_is_null_counts_as_not_given(tools: Tools) -> None:
    id = tools.create("likes tea")
    found = tools.search_tool.call({"query": "tea", "limit": None, "offset": None, "filter": None}, ANN)
    assert isinstance(found, str)
    assert [fact["key"] for fact in json.loads(found)] == [id]
    with pytest.raises(ValueError, match=r"^query is required"):
        tools.search_tool.call({"query": None}, ANN)


@pytest.mark.promise("facts-search")
@pytest.mark.parametrize("query", ["", "  ", None, 5])
def test_an_empty_query_is_refused(tools: Tools, query: Any) -> None:
    with pytest.raises(ValueError, match=r"^query is required and must be a non-empty string$"):
        tools.search(query)


@pytest.mark.promise("facts-filter")
@pytest.mark.parametrize(
    ("filter", "names"),
    [
        ({"category": "preference"}, {"dark", "tea"}),
        ({"category": "preference", "weight": {"$gt": 1}}, {"tea"}),
        ({"weight": {"$gte": 1, "$lt": 2}}, {"dark"}),
        ({"weight": {"$lte": 1}}, {"dark"}),
        ({"weight": {"$ne": 1}}, {"tea", "home", "text"}),
        ({"weight": {"$eq": 1.0}}, {"dark"}),
        ({"about": {"who": "ann"}}, {"dark"}),
        ({"about": {"who": "ann", "missing": 1}}, set()),
        ({"missing": {"$gt": 3}}, set()),
        ({"type": "fact"}, {"dark", "tea", "home", "text"}),
        ({"content": "likes text"}, {"text"}),
        ({"content": {"category": "preference"}}, {"dark", "tea"}),
        ({"content": {"category": "preference"}, "weight": 1}, {"dark"}),
        ({"content": {"$ne": "likes text"}}, {"dark", "tea", "home"}),
        ({}, {"dark", "tea", "home", "text"}),
        (None, {"dark", "tea", "home", "text"}),
    ],
)
def test_a_filter_narrows_what_is_found(tools: Tools, filter: Any, names: set[str]) -> None:
    made = {
        "dark": tools.create({"category": "preference", "weight": 1, "about": {"who": "ann", "what": "likes"}}),
        "tea": tools.create({"category": "preference", "weight": 2, "text": "likes"}),
        "home": tools.create({"category": "place", "text": "likes"}),
        "text": tools.create("likes text"),
    }
    assert set(tools.keys("likes", filter=filter)) == {made[name] for name in names}


@pytest.mark.promise("facts-filter")
def test_a_field_named_content_inside_an_object_comes_first(tools: Tools) -> None:
    inner = tools.create({"content": "inner likes"})
    tools.create("likes")
    assert tools.keys("likes", filter={"content": "inner likes"}) == [inner]


@pytest.mark.promise("facts-filter")
def test_a_filter_on_the_whole_content_pages_like_any_other(tools: Tools) -> None:
    for number in range(6):
        tools.create({"kind": "even" if number % 2 == 0 else "odd", "text": f"likes {number}"})
    every = tools.keys("likes", filter={"content": {"kind": "even"}})
    assert len(every) == 3
    assert tools.keys("likes", filter={"content": {"kind": "even"}}, limit=1, offset=1) == every[1:2]


@pytest.mark.promise("facts-filter")
@pytest.mark.parametrize(
    "filter", [{"a": {"$regex": "x"}}, {"$or": []}, {"content": {"$like": "x"}}, ["a"], "a", {"a": {"$gt": None}}]
)
def test_an_unknown_operator_or_a_filter_that_is_none_is_an_error(tools: Tools, filter: Any) -> None:
    with pytest.raises(ValueError):
        tools.search("likes", filter=filter)


@pytest.mark.promise("facts-response-format")
def test_content_and_artifact_gives_the_text_and_the_facts_themselves(tools: Tools, book: Book) -> None:
    id = tools.create({"likes": "tea"})
    search = create_search_memory_tool(store=book, response_format="content_and_artifact")
    answer = search("tea", config=ANN)
    assert isinstance(answer, tuple)
    text, facts = answer
    assert [type(fact) for fact in facts] == [Fact]
    assert (facts[0].key, facts[0].value, facts[0].namespace) == (id, {"content": {"likes": "tea"}}, ("user", "ann"))
    assert json.loads(text) == [fact.dict() for fact in facts]
    with pytest.raises(ValueError, match=r"^response_format must be"):
        create_search_memory_tool(store=book, response_format="xml")  # type: ignore[arg-type]


@pytest.mark.promise("facts-search-scope")
def test_a_search_looks_at_records_of_exactly_its_namespace_unless_told_otherwise(book: Book) -> None:
    for labels in (("team",), ("team", "a"), ("teams",)):
        create_manage_memory_tool(labels, store=book)(f"tea of {labels[-1]}")
    space = book.space("team")
    space.files.write("/tea", "tea leaves")
    space.threads.add(space.threads.create().id, [{"role": "user", "content": "tea please"}])

    def contents(**options: Any) -> set[str]:
        return {fact.value["content"] for fact in create_search_memory_tool("team", store=book, **options).find("tea")}  # type: ignore[misc]

    assert contents() == {"tea of team"}
    assert contents(below=True) == {"tea of team", "tea of a"}
    assert contents(kinds=["record", "file", "message"]) == {"tea of team", "tea leaves", "tea please"}


# A fact is a record


@pytest.mark.promise("facts-are-records")
def test_a_fact_is_a_record_and_the_record_tools_find_it(tools: Tools, book: Book) -> None:
    id = tools.create("likes tea")
    records = RecordTools(book.space("user", "ann"))
    full = records.item(id)
    assert [full[name] for name in ("type", "source", "confidence", "tags", "content")] == [
        "fact",
        f"fact://{id}",
        1.0,
        [],
        "likes tea",
    ]
    [item] = records.search({"query": "tea", "type": "fact"}).structured["items"]
    assert (item["id"], item["uri"]) == (id, f"mem://item/{id}")


@pytest.mark.promise("facts-are-records")
def test_a_record_is_found_and_updated_by_the_facts_tools_and_keeps_what_it_is(tools: Tools, book: Book) -> None:
    records = RecordTools(book.space("user", "ann"))
    saved = records.create(
        {"type": "note", "content": {"text": "tea"}, "source": "s", "confidence": 0.4, "tags": ["a"]}
    )
    id = saved.structured["items"][0]["id"]
    assert tools.keys("tea") == [id]
    old = records.item(id)
    assert tools.manage(content="coffee", action="update", id=id) == f"updated memory {id}"
    new = records.item(id)
    changed = {name for name in old if old[name] != new[name]}
    assert changed <= {"content", "hash", "updatedAt"}
    assert (new["content"], new["hash"] != old["hash"]) == ("coffee", True)


@pytest.mark.promise("facts-are-records")
def test_limits_of_the_book_hold_for_facts_too(open_book: Any) -> None:
    tools = Tools(open_book(limits=Limits(record_characters=10)))
    with pytest.raises(ValueError, match="content is too large"):
        tools.create("x" * 9)


# Whose facts


@pytest.mark.promise("facts-isolation")
def test_each_configuration_sees_its_own_facts_alone(book: Book) -> None:
    tools = Tools(book)
    configs = [ANN, BOB, {"configurable": {"org_id": "acme", "agent_id": "alpha"}}, {"org_id": "ac", "agent_id": "x"}]
    made = [tools.create("likes tea", config) for config in configs]
    assert [tools.keys("tea", config) for config in configs] == [[id] for id in made]
    assert [fact["namespace"] for config in configs for fact in tools.search("tea", config)] == [
        ["user", "ann"],
        ["user", "bob"],
        ["org", "acme", "alpha"],
        ["org", "ac", "x"],
    ]


@pytest.mark.promise("facts-isolation")
def test_a_missing_key_is_a_configuration_error_and_nothing_is_saved(book: Book) -> None:
    tool = create_manage_memory_tool(namespace=("{user_id}", "memories"), store=book)
    with pytest.raises(ConfigurationError, match="lacks user_id"):
        tool("likes tea", config={"org_id": "acme"})
    assert book.namespaces() == []
    assert tool("likes tea", config=ANN).startswith("created memory ")
    assert book.namespaces() == [("ann", "memories")]


@pytest.mark.promise("facts-isolation")
@pytest.mark.parametrize("name", ["config", "namespace", "user_id", "store", "self"])
def test_a_models_arguments_cannot_say_whose_facts_they_are(tools: Tools, name: str) -> None:
    tools.create("likes tea", BOB)
    for tool, arguments in ((tools.manage_tool, {"content": "x"}), (tools.search_tool, {"query": "tea"})):
        with pytest.raises(ValueError, match=f'^unknown argument "{name}"'):
            tool.call({**arguments, name: BOB}, ANN)
    assert tools.search_tool.call({"query": "tea"}, ANN) == "[]"
    assert tools.manage_tool.call({"content": "x"}, ANN).startswith("created memory ")


@pytest.mark.promise("facts-isolation")
@settings(max_examples=rounds(60))
@given(data=st.data())
def test_no_value_filter_or_id_reaches_the_facts_of_another(data: st.DataObject) -> None:
    text = st.one_of(
        st.sampled_from(["ann", "bob", "user", "ann/x", "{user_id}", "ann ", "a%", "_", "ann\x01"]), st.text(max_size=5)
    )
    owners = [owner for owner in data.draw(st.lists(text, min_size=2, max_size=4, unique=True)) if _may_own(owner)]
    with commonplace.open(":memory:", background=False, embedder=_Same()) as book:
        tools = Tools(book)
        ids = {owner: tools.create({"secret": owner, "text": "a secret"}, {"user_id": owner}) for owner in owners}
        for owner in owners:
            config = {"user_id": owner}
            wanted = data.draw(st.sampled_from(owners))
            for filter in (None, {"secret": wanted}, {"secret": {"$ne": owner}}, {"content": {"secret": wanted}}):
                keys = tools.keys("secret", config, filter=filter, limit=100)
                assert set(keys) <= {ids[owner]}, (owner, filter)
            for other in owners:
                if other != owner:
                    with pytest.raises(ValueError, match="not found"):
                        tools.manage(action="delete", id=ids[other], config=config)
        assert [tools.keys("secret", {"user_id": owner}) for owner in owners] == [[ids[owner]] for owner in owners]


def _may_own(owner: str) -> bool:
    try:
        create_search_memory_tool(store=None)._place.resolve({"user_id": owner})
    except ConfigurationError:
        return False
    return True


class _Same:
    identity = "same@1"
    dimensions = 2
    calibration = (0.0, 1.0)

    def embed(self, texts: Any, *, purpose: str) -> Any:
        import numpy as np

        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


@pytest.mark.promise("facts-create")
def test_32_threads_creating_facts_make_32_facts(book: Book) -> None:
    tools = Tools(book)
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(tools.create("likes tea"))) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 32
    assert set(tools.keys("tea", limit=100)) == set(made)


@pytest.mark.promise("facts-own-book")
def test_without_a_store_the_facts_are_in_the_users_own_book(tmp_path: Any, monkeypatch: Any) -> None:
    from commonplace.tools import fact_tools

    opened = commonplace.open(tmp_path / "own.db", background=False, embedder=_Same())
    monkeypatch.setattr("commonplace.book.open_book", lambda: opened)
    fact_tools._own_book.cache_clear()
    try:
        said = create_manage_memory_tool()("likes tea", config=ANN)
        assert said.removeprefix("created memory ") in str(create_search_memory_tool()("tea", config=ANN))
    finally:
        fact_tools._own_book.cache_clear()
        opened.close()
