"""Working memory with a schema: what the merge makes must fit, and no schema can do harm."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from pydantic import BaseModel, ConfigDict, Field

from commonplace import Conflict, InvalidInput, TooLarge
from commonplace.space import working_memory
from commonplace.space.working_memory import EMPTIED, Schema

PROJECTS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "projects": {"type": "array", "items": {"$ref": "#/$defs/project"}},
        "prefs": {"type": "object", "properties": {"style": {"enum": ["formal", "casual"]}}},
    },
    "$defs": {
        "project": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}


@pytest.fixture
def working(space):
    return space.threads.working


@pytest.mark.promise("conversations-working-schema")
def test_what_the_merge_makes_must_fit_the_schema(working):
    schema = {**PROJECTS, "required": ["owner"]}
    with pytest.raises(InvalidInput, match="at its top: 'owner' is a required property"):
        working.write({"prefs": {"style": "formal"}}, schema=schema)
    assert working.read() is None

    working.write({"owner": "Ann"}, schema=schema)
    kept = working.write({"prefs": {"style": "formal"}}, schema=schema)
    assert kept.content == {"owner": "Ann", "prefs": {"style": "formal"}}
    for wrong in ({"owner": None}, {"prefs": {"style": "rude"}}, {"owner": 5}):
        with pytest.raises(InvalidInput, match="working memory does not fit its schema: "):
            working.write(wrong, schema=schema)
    assert working.read() == kept
    assert working.write({"prefs": {"style": None}}, schema=schema).content == {"owner": "Ann", "prefs": {}}


@pytest.mark.promise("conversations-working-schema")
def test_a_refusal_names_every_field_at_fault_up_to_five(working):
    wrong = {"owner": 5, "projects": [{"name": "a"}, {}, {"name": 7}], "prefs": {"style": "rude"}}
    with pytest.raises(InvalidInput) as refused:
        working.write(wrong, schema=PROJECTS)
    assert str(refused.value) == (
        "working memory does not fit its schema: owner: 5 is not of type 'string'; "
        "prefs.style: 'rude' is not one of ['formal', 'casual']; projects[1]: 'name' is a required property; "
        "projects[2].name: 7 is not of type 'string'"
    )
    with pytest.raises(InvalidInput) as refused:
        working.write({"projects": ["x" * 10_000] * 100}, schema=PROJECTS)
    assert len(str(refused.value)) < 2_000
    assert working.read() is None


def test_a_text_does_not_go_into_a_memory_with_a_schema(working):
    with pytest.raises(InvalidInput, match="send an object"):
        working.write("# Ann", schema=PROJECTS)


@pytest.mark.promise("conversations-working-not-emptied")
def test_an_update_that_empties_every_field_is_refused_and_one_field_may_go(working):
    kept = working.write({"owner": "Ann", "projects": [{"name": "roof"}]}, schema=PROJECTS)
    for empty in ({"owner": "", "projects": [], "prefs": {}}, {"owner": None, "projects": None, "prefs": None}):
        with pytest.raises(Conflict) as refused:
            working.write(empty, schema=PROJECTS)
        assert str(refused.value) == EMPTIED
    assert working.read() == kept
    assert working.write({"owner": None, "projects": []}, schema=PROJECTS).content == {"projects": []}


class Node(BaseModel):
    name: str | None = None
    children: list[Node] = []


class Address(BaseModel):
    city: str = ""
    floor: int = 0


class User(BaseModel):
    name: str = ""
    age: int = 0
    premium: bool = False
    address: Address = Field(default_factory=Address)


@pytest.mark.promise("conversations-working-not-emptied")
@pytest.mark.parametrize(
    "schema",
    [
        Node,
        {"allOf": [{"properties": {"name": {}}}, {"allOf": [{"properties": {"children": {}}}]}]},
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b~1c"}]}, "b/c": {"properties": {"name": {}}}},
            "properties": {"children": {}},
        },
    ],
)
def test_the_fields_of_a_schema_are_found_behind_references_and_in_all_of(working, schema):
    kept = working.write({"name": "Ann", "children": [{"name": "Bob"}]}, schema=schema)
    assert sorted(Schema(schema).fields) == ["children", "name"]
    with pytest.raises(Conflict) as refused:
        working.write({"name": None, "children": []}, schema=schema)
    assert str(refused.value) == EMPTIED
    assert working.read() == kept


@pytest.mark.parametrize("target", ["#", "#/$defs/a", "#/$defs/none", "#nowhere", "#/required/0", "#/properties"])
def test_looking_for_fields_ends_whatever_a_reference_leads_to(target):
    schema = {"$ref": target, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 2}}, "properties": {"b": True}}
    assert Schema({**schema, "required": ["b"]}).fields == ("b",)


@pytest.mark.promise("conversations-working-not-emptied")
def test_a_field_that_is_at_its_default_says_nothing(working):
    nothing = User().model_dump()
    first = working.write(nothing, schema=User)
    assert working.write(nothing, schema=User) == first

    kept = working.write({"age": 40, "address": {"city": "Bern"}}, schema=User)
    for empty in (nothing, {**nothing, "age": None, "address": {"floor": 0}}):
        with pytest.raises(Conflict) as refused:
            working.write(empty, schema=User)
        assert str(refused.value) == EMPTIED
    assert working.read() == kept
    assert working.write({**nothing, "premium": True}, schema=User).content == {**nothing, "premium": True}


def test_a_default_counts_also_where_the_schema_refers_to_its_own_root():
    schema = Schema({"properties": {"size": {"default": 1}, "next": {"$ref": "#"}}})
    assert schema.is_empty_template({"size": 1, "next": {"size": 1, "next": None}})
    assert not schema.is_empty_template({"size": 1, "next": {"size": 2}})
    assert not schema.is_empty_template({"size": True, "next": {}})


def test_the_only_field_of_a_schema_may_be_deleted(working):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    working.write({"name": "Ann"}, schema=schema)
    assert working.write({"name": None}, schema=schema).content == {}


def test_data_from_before_the_schema_is_kept_and_can_be_corrected(working):
    working.write({"owner": 5, "other": 1})
    with pytest.raises(InvalidInput, match="owner: 5 is not of type 'string'"):
        working.write({"prefs": {"style": "formal"}}, schema=PROJECTS)
    now = working.write({"prefs": {"style": "formal"}, "owner": None}, schema=PROJECTS)
    assert now.content == {"other": 1, "prefs": {"style": "formal"}}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    next: Strict | None = None


@pytest.mark.promise("conversations-working-schema")
def test_a_pydantic_model_is_taken_by_its_json_schema_also_a_recursive_one(working):
    assert working.write({"next": {"name": "b", "next": {"name": "c"}}}, schema=Strict).revision == 1
    with pytest.raises(InvalidInput, match=r"next\.next"):
        working.write({"next": {"next": {"nmae": "x"}}}, schema=Strict)


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        ("object", InvalidInput, "a schema is a JSON Schema object or a pydantic model class"),
        (dict, InvalidInput, "a schema is a JSON Schema object or a pydantic model class"),
        ({"type": "array"}, InvalidInput, "a working memory is an object"),
        ({"type": "objekt"}, InvalidInput, "this is not a JSON Schema: type: 'objekt'"),
        ({"$schema": 5}, InvalidInput, "this is not a JSON Schema: \\$schema: 5"),
        ({"properties": []}, InvalidInput, "this is not a JSON Schema: properties"),
        ({"properties": {"a": {"pattern": "("}}}, InvalidInput, "not a JSON Schema: properties.a.pattern"),
        ({"description": "x" * 200_000}, TooLarge, "schema has"),
        ({"default": float("nan")}, InvalidInput, "nan"),
    ],
)
def test_a_schema_that_is_none_is_refused(working, schema, error, message):
    with pytest.raises(error, match=message):
        working.write({}, schema=schema)
    assert working.read() is None


class WithCallable(BaseModel):
    call: Callable[[int], int]


class WithUnknown(BaseModel):
    other: "Nowhere"  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (WithCallable, "the model WithCallable has no JSON schema: .*CallableSchema; correct it"),
        (WithUnknown, "the model WithUnknown has no JSON schema: .*define `Nowhere`"),
        (BaseModel, "the model BaseModel has no JSON schema: .*must be called on a subclass"),
    ],
)
def test_a_model_without_a_json_schema_is_refused_with_the_reason(model, message):
    with pytest.raises(InvalidInput, match=message):
        Schema(model)


# Data in a schema is data


@pytest.mark.parametrize("data", [{"$schema": "x"}, {"$ref": "other.json"}, {"unevaluatedItems": False}])
def test_data_in_a_schema_is_taken_as_it_is(data):
    schema = Schema({"properties": {"a": {"const": data, "enum": [data], "default": data, "examples": [data]}}})
    schema.check("memory", {"a": data})
    with pytest.raises(InvalidInput, match="does not fit its schema: a: "):
        schema.check("memory", {"a": {}})


def test_a_property_may_have_the_name_of_a_keyword():
    named = {"const": {"$ref": "other.json"}, "$ref": {"type": "string"}, "unevaluatedItems": {"type": "string"}}
    with pytest.raises(InvalidInput, match="nothing is fetched"):
        Schema({"properties": named})
    del named["const"]
    Schema({"properties": named}).check("memory", {"$ref": "x", "unevaluatedItems": "y"})


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, True, "1", [1], {"1": 1}, None, 0, False, "", [], {}], True),
        ([{"a": 1}, {"a": True}, {"a": 1.5}, [["a", 1]], "[1]", ["1"]], True),
        ([10**30, 10**30 + 1, 1e30, 0.1, 0.2], True),
        ([1, 1.0], False),
        ([0, -0.0], False),
        ([2**70, float(2**70)], False),
        ([{"a": 1, "b": [1.0]}, {"b": [1], "a": 1}], False),
        (["ä", "a", "ä"], False),
        ([None, None], False),
    ],
)
def test_items_are_unique_by_the_equality_of_json_schema(items, is_unique):
    schema = Schema({"properties": {"a": {"uniqueItems": True}, "b": {"uniqueItems": False}}})
    schema.check("memory", {"b": items * 2})
    if is_unique:
        schema.check("memory", {"a": items})
    else:
        with pytest.raises(InvalidInput, match=r"a: .* has non-unique elements"):
            schema.check("memory", {"a": items})


@pytest.mark.promise("conversations-schema-is-harmless")
@pytest.mark.parametrize(
    "items",
    [[{"n": n} for n in range(20_000)], [[n * (2**61 - 1), None] for n in range(20_000)]],
    ids=["objects", "one hash"],
)
def test_many_items_are_found_unique_soon(items):
    began = time.monotonic()
    Schema({"properties": {"a": {"uniqueItems": True}}}).check("memory", {"a": items})
    assert time.monotonic() - began < 10


# Harmless


@pytest.mark.promise("conversations-schema-is-harmless")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"properties": {"a": {"$ref": "https://example.org/schema.json#/a"}}},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"$id": "http://127.0.0.1:9/", "allOf": [{"$ref": "other.json"}]},
        {"properties": {"a": {"$dynamicRef": "http://127.0.0.1:9/x"}}},
    ],
)
def test_no_schema_makes_us_fetch_anything(working, schema, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *address: pytest.fail(f"connected to {address}"))
    with pytest.raises(InvalidInput, match="nothing is fetched"):
        working.write({"a": 1}, schema=schema)


@pytest.mark.promise("conversations-schema-is-harmless")
def test_a_reference_that_was_let_in_is_not_followed_out_either(working, monkeypatch):
    monkeypatch.setattr(working_memory, "_check_references", lambda schema: None)
    monkeypatch.setattr(socket.socket, "connect", lambda *address: pytest.fail(f"connected to {address}"))
    with pytest.raises(InvalidInput, match="unresolvable"):
        working.write({"a": 1}, schema={"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}})


@pytest.mark.promise("conversations-schema-is-harmless")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#nowhere"},
        {"$ref": "#/required/0", "required": ["a"]},
        {"$ref": "#/required/x", "required": ["a"]},
        {"allOf": [{"$ref": "#/default/a"}], "default": {"a": 5}},
        {"properties": {"b": {"multipleOf": 0.5}}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)} | {"40": {}}}
        | {"$ref": "#/$defs/0"},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {
                str(n): {
                    "$schema": "http://json-schema.org/draft-07/schema#",
                    "allOf": [{"$ref": f"#/definitions/{n + 1}"}] * 2,
                }
                for n in range(40)
            }
            | {"40": {}},
            "allOf": [{"$ref": "#/definitions/0"}],
        },
    ],
    ids=[
        "itself",
        "nothing",
        "no anchor",
        "a text",
        "no place",
        "a number",
        "beyond a float",
        "itself twice",
        "doubling",
        "doubling in an older draft",
    ],
)
def test_a_schema_that_leads_nowhere_or_on_and_on_is_refused_soon(working, schema):
    began = time.monotonic()
    with pytest.raises(InvalidInput, match=r"correct the schema|simplify it"):
        working.write({"a": 1, "b": 10**400}, schema=schema)
    assert time.monotonic() - began < 10
    assert working.read() is None


def doubling(keyword):
    """A schema that takes exponential time to apply where jsonschema's own `unevaluatedProperties` runs."""
    definitions = {str(n): {"dependentSchemas": {key: {"$ref": f"#/$defs/{n + 1}"} for key in "ab"}} for n in range(40)}
    return {keyword: False, "dependentSchemas": {"a": {"$ref": "#/$defs/0"}}, "$defs": {**definitions, "40": {}}}


@pytest.mark.promise("conversations-schema-is-harmless")
@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_what_follows_references_past_the_counter_is_refused_with_what_to_use(keyword):
    instead = {"unevaluatedProperties": "additionalProperties", "unevaluatedItems": "items"}[keyword]
    for schema in (doubling(keyword), {"properties": {"a": {"allOf": [{keyword: False}]}}}):
        with pytest.raises(InvalidInput, match=f"{keyword} .*use {instead} instead"):
            Schema(schema)


@pytest.mark.promise("conversations-schema-is-harmless")
@pytest.mark.parametrize("place", ["default", "const", "examples"])
def test_a_reference_into_data_finds_no_way_past_the_counter(place):
    draft = "https://json-schema.org/draft/2020-12/schema"
    twice = {"$schema": draft, "allOf": [{"$ref": f"#/properties/x/{place}/0"}] * 2}
    slow = doubling("unevaluatedProperties")
    for hidden in (twice, slow, {"$ref": "http://127.0.0.1:9/schema.json"}):
        schema = {"properties": {"x": {place: [hidden]}}, "$defs": slow["$defs"], "$ref": f"#/properties/x/{place}/0"}
        began = time.monotonic()
        with pytest.raises(InvalidInput, match=r"correct the schema|simplify it|use additionalProperties"):
            Schema(schema).check("memory", {"a": 1, "b": 2})
        assert time.monotonic() - began < 10


def test_a_checked_schema_is_used_as_it_is(working):
    schema = Schema(PROJECTS)
    assert schema.fields == ("owner", "projects", "prefs")
    assert working.write({"owner": "Ann"}, schema=schema).content == {"owner": "Ann"}


def test_a_schema_without_its_patterns_checks_all_else():
    schema = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "pattern": "^(a+)+$", "default": {"pattern": "x"}},
            "n": {"type": "integer"},
        },
        "patternProperties": {"^(b+)+$": {"type": "null"}},
    }
    applied = Schema(schema, with_patterns=False)
    assert applied.written == schema
    applied.check("it", {"pattern": "a" * 40 + "!", "b" * 40 + "!": 1})
    with pytest.raises(InvalidInput, match="pattern: 1 is not of type 'string'"):
        applied.check("it", {"pattern": 1})


def test_the_shape_of_a_part_has_no_detours():
    class Home(BaseModel):
        city: str = Field(description="Where")

    class Person(BaseModel):
        home: Home | None = Field(default=None, title="At home")
        age: int | None = None

    schema = Person.model_json_schema()
    home = working_memory.shape_of(schema, schema["properties"]["home"])
    assert (home["title"], home["type"]) == ("At home", "object")
    assert working_memory.shape_of(schema, schema["properties"]["age"])["type"] == "integer"
    assert working_memory.shape_of(schema, {"$ref": "#/$defs/Missing", "title": "x"})["title"] == "x"
    assert working_memory.shape_of({"$defs": {"a": {"$ref": "#/$defs/a"}}}, {"$ref": "#/$defs/a"}) == {}
    assert working_memory.shape_of(schema, True) == {}
