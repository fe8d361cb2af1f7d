"""The tool `updateWorkingMemory`: what its schema lets a model send, and what it tells one that can do nothing."""

from __future__ import annotations

from typing import Literal

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field

from commonplace.space.context import estimate_tokens
from commonplace.tools.working_memory_tool import WorkingMemoryOptions, WorkingMemoryTool, tool_spec


class Address(BaseModel):
    model_config = ConfigDict(extra="forbid")
    street: str
    city: str


class AddressUpdate(BaseModel):
    day: str


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str
    naps: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str
    walks: int


class Person(BaseModel):
    name: str | None = None
    address: Address | None = None
    moved: AddressUpdate | None = None
    former: list[Address] = []
    offices: dict[str, Address] = {}
    pet: Cat | Dog | None = Field(default=None, discriminator="kind")
    friend: Person | None = None


@pytest.fixture
def shown():
    """A validator of what the tool takes, for a schema of working memory."""

    def validator(schema):
        spec = tool_spec(WorkingMemoryOptions(schema=schema))
        jsonschema.Draft202012Validator.check_schema(spec.input_schema)
        return jsonschema.Draft202012Validator(spec.input_schema)

    return validator


ROME = {"street": "Via Appia", "city": "Rome"}


@pytest.mark.promise("conversations-working-tool")
@pytest.mark.parametrize(
    "update",
    [
        {},
        {"address": {"city": "Basel"}},
        {"address": {"city": None}},
        {"address": None},
        {"former": [ROME], "name": None},
        {"former": None},
        {"offices": {"home": {"city": "Rome"}, "old": None}},
        {"pet": {"name": "Tom"}},
        {"pet": {"kind": "dog", "walks": None}},
        {"friend": {"address": {"city": "Basel"}, "former": [ROME], "friend": {"address": None}}},
        {"moved": {}},
    ],
)
def test_a_part_of_nested_data_may_be_sent_and_is_merged(shown, space, update):
    assert shown(Person).is_valid({"memory": update})
    tool = WorkingMemoryTool(space, WorkingMemoryOptions(schema=Person))
    pet = {"kind": "dog", "name": "Rex", "walks": 2}
    whole = {"address": ROME, "moved": {"day": "Monday"}, "offices": {"home": ROME, "old": ROME}, "pet": pet}
    tool.update({**whole, "friend": whole})
    answer = tool.call({"memory": update})
    # What the merge leaves must fit; a field that the model requires cannot go.
    assert answer.is_error == (update in ({"address": {"city": None}}, {"pet": {"kind": "dog", "walks": None}}))


@pytest.mark.promise("conversations-working-tool")
@pytest.mark.parametrize(
    "update",
    [
        None,
        {"address": {"city": 5}},
        {"address": {"zip": "4051"}},
        {"former": [{"city": "Basel"}]},
        {"former": [None]},
        {"offices": {"home": 5}},
        {"pet": {"kind": "cow"}},
        {"friend": {"friend": {"address": {"city": 5}}}},
        {"friend": {"former": [{"city": "Basel"}]}},
        {"moved": {"day": 5}},
    ],
)
def test_what_cannot_become_right_by_a_merge_is_not_in_the_schema(shown, update):
    assert not shown(Person).is_valid({"memory": update})


def test_a_model_that_refers_to_itself_at_its_top_takes_a_part(shown):
    class Node(BaseModel):
        name: str
        below: Node | None = None
        children: list[Node] = []

    shows = shown(Node)
    assert shows.is_valid({"memory": {"below": {"below": {"name": "x"}}, "children": [{"name": "y"}]}})
    assert not shows.is_valid({"memory": {"below": {"children": [{}]}}})
    assert not shows.is_valid({"memory": None})


@pytest.mark.parametrize(
    "whole",
    [
        {"minProperties": 2},
        {"maxProperties": 0},
        {"dependentRequired": {"a": ["b"]}},
        {"dependentSchemas": {"a": {"required": ["b"]}}},
        {"if": {"required": ["b"]}, "else": {"required": ["b"]}},
        {"not": {"properties": {"a": {}}}},
        {"allOf": [{"required": ["b"]}]},
        {"oneOf": [{"required": ["b"]}, {"required": ["c"]}]},
        {"anyOf": [True], "oneOf": [False]},
    ],
)
def test_what_only_the_whole_can_satisfy_is_not_asked_of_a_part(shown, whole):
    assert shown({"type": "object", **whole}).is_valid({"memory": {"a": 1}})


@pytest.mark.parametrize(
    "target", ["#/$defs/A/properties/b", "#/$defs/none", "#/$defs/x~1y", "#/$defs/x/y", "#", "#/properties/a"]
)
def test_a_schema_with_other_references_than_to_a_definition_is_not_spelt_out(shown, target):
    definitions = {"A": {"properties": {"b": {}}}, "x/y": {}}
    schema = {"properties": {"a": {"type": "string"}, "z": {"$ref": target}}, "$defs": definitions}
    memory = tool_spec(WorkingMemoryOptions(schema=schema)).input_schema
    assert memory["properties"] == {"memory": {"type": "object", "description": "The fields to change."}}
    assert "$defs" not in memory
    assert shown(schema).is_valid({"memory": {"z": 5}})


@pytest.mark.parametrize(
    "unknown", [5, {"A": {"$ref": 5, "properties": 5, "additionalProperties": 5, "allOf": 5, "oneOf": 5}}]
)
def test_what_is_no_keyword_of_an_older_draft_may_be_anything(unknown):
    draft = "http://json-schema.org/draft-07/schema#"
    schema = {"$schema": draft, "definitions": {"B": {}}, "$defs": unknown}
    shows = tool_spec(WorkingMemoryOptions(schema={**schema, "properties": {"a": {"$ref": "#/definitions/B"}}}))
    assert shows.input_schema["definitions"] == {"BUpdate": {}}


def test_only_definitions_that_are_used_are_shown():
    shows = tool_spec(WorkingMemoryOptions(schema=Person)).input_schema
    assert sorted(shows["$defs"]) == [
        "Address",
        "AddressUpdateUpdate",
        "AddressUpdate_",
        "CatUpdate",
        "DogUpdate",
        "PersonUpdate",
    ]


# A memory of another form


@pytest.mark.promise("conversations-working-tool")
@pytest.mark.parametrize("sent", [{"keyContext": ["tea"]}, '{"keyContext": ["tea"]}', "# Ann likes tea", 5])
def test_a_model_is_told_that_it_cannot_change_a_text_into_data(space, sent):
    kept = space.threads.working.write("# Ann likes tea: green")
    answer = WorkingMemoryTool(space).call({"memory": sent})
    assert answer.is_error
    assert answer.text.endswith(
        "this working memory is a text that a person or a program wrote; this tool cannot change it; continue without"
    )
    assert space.threads.working.read() == kept


@pytest.mark.promise("conversations-working-tool")
@pytest.mark.parametrize("sent", [{"keyContext": ["coffee"]}, "# Ann likes tea"])
def test_a_model_is_told_that_it_cannot_change_data_into_a_text(space, sent):
    kept = space.threads.working.write({"keyContext": ["tea"]})
    tool = WorkingMemoryTool(space, WorkingMemoryOptions(template="# User\n- **Name**:\n"))
    answer = tool.call({"memory": sent})
    assert answer.is_error
    assert answer.text.endswith(
        "this working memory is data that a person or a program wrote; this tool cannot change it; continue without"
    )
    assert space.threads.working.read() == kept


def test_a_tool_of_a_thread_that_is_gone_says_so(space):
    tool = WorkingMemoryTool(space, thread="none")
    assert "No thread found with id none" in tool.call({"memory": {}}).text
    assert tool.call({"memory": 5}).is_error


def test_the_system_text_of_the_default_memory_is_short(space):
    """It had 600 tokens in every prompt, most of them the schema that the tool's arguments spell out as well."""
    tool = WorkingMemoryTool(space)
    assert estimate_tokens(tool.system_message()) < 200
    assert "activeProjects" in str(tool.spec.input_schema)
    own = {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}}}
    told = WorkingMemoryTool(space, WorkingMemoryOptions(schema=own)).system_message()
    assert '{"$ref":"#/properties/b"}' in told  # a schema that the arguments cannot spell out
