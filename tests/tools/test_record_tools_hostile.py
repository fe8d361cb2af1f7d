"""What the record tools refuse, in which words, and that nothing they are sent reaches another namespace."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Limits, Space
from commonplace.tools.record_tools import TOOLS, RecordTools
from doubles import rounds

GOOD: dict[str, Any] = {"type": "note", "content": {"text": "deploy"}, "source": "s", "confidence": 0.5}
CONFIDENCE = "confidence is required and must be a number between 0 and 1"
LIMIT = "limit must be a positive number"
QUERY = "query is required and must be a non-empty string"
TAG = "a tag has 1 to 100 of the characters a-z 0-9 : _ -, such as project:alpha"
NAN = float("nan")


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def tools(space: Space) -> RecordTools:
    return RecordTools(space)


@pytest.mark.promise("record-tools-messages")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"type": None}, "type is required and must be a non-empty string"),
        ({"type": " "}, "type is required and must be a non-empty string"),
        ({"type": 5}, "type is required and must be a non-empty string"),
        ({"content": None}, "content is required"),
        ({"source": ""}, "source is required and must be a non-empty string"),
        ({"source": ["s"]}, "source is required and must be a non-empty string"),
        *[({"confidence": bad}, CONFIDENCE) for bad in (None, "high", -0.1, 1.1, "1.1", True, NAN, [1], "", "nan")],
        ({"tags": [f"t{number}" for number in range(21)]}, "tags array cannot have more than 20 items"),
        ({"tags": ["a b"]}, f'invalid tag: "a b"; {TAG}'),
        ({"tags": ["x" * 101]}, f'invalid tag: "{"x" * 101}"; {TAG}'),
        ({"tags": [""]}, f'invalid tag: ""; {TAG}'),
        ({"tags": [7]}, f'invalid tag: "7"; {TAG}'),
        ({"tags": "a,b"}, "tags must be a list of strings"),
        ({"content": "x" * 9_999}, "content is too large (max 10000 characters)"),
        ({"content": deep(10_000)}, "content is nested more than 100 levels deep; flatten it"),
        ({"content": {"n": NAN}}, "content contains nan, which JSON cannot hold"),
        ({"content": {"n": float("inf")}}, "content contains inf, which JSON cannot hold"),
        ({"content": "\ud800"}, "content contains a lone surrogate at character 0; send valid Unicode text"),
        ({"id": 5}, "id must be a non-empty string; leave it out for any"),
        (
            {"namespace": "user/u2"},
            'unknown argument "namespace"; memory_create takes type, content, source, confidence, tags, importance, id',
        ),
    ],
)
def test_a_wrong_memory_is_refused_in_these_words(tools: RecordTools, changed: dict[str, Any], message: str) -> None:
    answer = tools.create({**GOOD, **changed})
    assert (answer.text, answer.is_error, answer.structured, answer.links) == (message, True, {}, ())
    assert tools.list({}).structured == {"items": []}


@pytest.mark.promise("record-tools-messages")
def test_everything_that_is_wrong_with_a_memory_is_told_at_once(tools: RecordTools) -> None:
    """Missing fields were told one at a time: a model needed five calls to learn of all."""
    assert tools.create({"tags": ["a b"]}).text == (
        "type is required and must be a non-empty string; content is required; "
        f'source is required and must be a non-empty string; {CONFIDENCE}; invalid tag: "a b"; {TAG}'
    )


@pytest.mark.promise("record-tools-messages")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, QUERY),
        ({"query": ""}, QUERY),
        ({"query": " \n"}, QUERY),
        ({"query": 5}, QUERY),
        ({"query": "x" * 1_001}, "query length cannot exceed 1000 characters"),
        *[({"query": "x", "limit": bad}, LIMIT) for bad in (0, -1, "0", "many", "", NAN, True, [5], 0.5)],
        ({"query": "x", "tags": ["a"] * 21}, "tags array cannot have more than 20 items"),
        ({"query": "x", "tags": ["É"]}, f'invalid tag: "É"; {TAG}'),
        ({"query": "x", "match": "some"}, 'match must be "all" or "any"'),
        ({"query": "x", "kinds": ["working"]}, "kinds must be a list of file, record, message, item"),
        ({"query": "x", "kinds": "file"}, "kinds must be a list of file, record, message, item"),
        ({"query": "x", "type": ""}, "type must be a non-empty string; leave it out for any"),
    ],
)
def test_a_wrong_search_is_refused_in_these_words(tools: RecordTools, arguments: dict[str, Any], message: str) -> None:
    answer = tools.search(arguments)
    assert (answer.text, answer.is_error) == (message, True)


@pytest.mark.promise("record-tools-messages")
def test_the_longest_query_and_the_largest_content_pass(tools: RecordTools) -> None:
    assert not tools.search({"query": "ü" * 1_000}).is_error
    assert not tools.create({**GOOD, "content": "x" * 9_998}).is_error


@pytest.mark.promise("record-tools-numbers-as-strings")
def test_numbers_may_come_as_strings(tools: RecordTools) -> None:
    for text, number in (("0.25", 0.25), ("1", 1.0), (" 0 ", 0.0), ("5e-1", 0.5)):
        answer = tools.create({**GOOD, "content": text, "confidence": text})
        assert answer.structured["items"][0]["confidence"] == number
    assert len(tools.list({"limit": "2"}).structured["items"]) == 2


@pytest.mark.promise("record-tools-configured-limits")
def test_limits_of_the_book_are_those_of_the_tools(open_book: Any) -> None:
    book = open_book(limits=Limits(record_characters=20, tags=2))
    tools = RecordTools(book.space("user", "u1"))
    assert tools.create({**GOOD, "content": "x" * 19}).text == "content is too large (max 20 characters)"
    assert tools.create({**GOOD, "content": 1, "tags": list("abc")}).text == "tags array cannot have more than 2 items"
    for tag in "abcd":
        assert not tools.create({**GOOD, "content": "x", "tags": [tag]}).is_error
    assert tools.recent()[0]["tags"] == list("abcd")


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec=None), max_size=8)),
    lambda children: st.one_of(
        st.lists(children, max_size=3), st.dictionaries(st.text(max_size=4), children, max_size=3)
    ),
    max_leaves=6,
)
names = st.one_of(
    st.sampled_from(sorted({name for tool in TOOLS for name in tool.input_schema["properties"]})), st.text(max_size=4)
)


@pytest.mark.promise("record-tools-never-raise")
@settings(max_examples=rounds(200))
@given(
    name=st.sampled_from([tool.name for tool in TOOLS]),
    arguments=st.one_of(anything, st.dictionaries(names, anything, max_size=5)),
    is_good=st.booleans(),
)
def test_whatever_is_sent_there_is_an_answer_fit_for_the_wire(
    shared_tools: RecordTools, name: str, arguments: Any, is_good: bool
) -> None:
    if is_good and isinstance(arguments, dict):
        arguments = {**GOOD, **arguments} if name == "memory_create" else {"query": "deploy", **arguments}
    answer = shared_tools.call(name, arguments)
    answer.text.encode()
    json.dumps(answer.structured, allow_nan=False).encode()
    assert answer.is_error == (answer.structured == {})
    assert not answer.is_error or 0 < len(answer.text) <= 1_000


@pytest.mark.promise("record-tools-never-raise")
@pytest.mark.parametrize("arguments", [{"tags": ["\ud800" + "x" * 10**6]}, {"\udfff": 1}, {"match": "\ud800"}])
def test_a_refusal_that_quotes_what_was_sent_is_short_and_fit_for_the_wire(
    tools: RecordTools, arguments: dict[str, Any]
) -> None:
    answer = tools.search({"query": "x", **arguments})
    assert answer.is_error
    assert len(answer.text.encode()) <= 1_010


@pytest.fixture(scope="module")
def shared_book() -> Any:
    with commonplace.open(":memory:", background=False, embedder=_Same()) as book:
        yield book


@pytest.fixture(scope="module")
def shared_tools(shared_book: commonplace.Book) -> RecordTools:
    return RecordTools(shared_book.space("fuzz"))


class _Same:
    """Every text is as near as any other: nothing stays hidden because it is far."""

    identity = "same@1"
    dimensions = 2
    calibration = (0.0, 1.0)

    def embed(self, texts: Any, *, purpose: str) -> Any:
        import numpy as np

        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


MINE = ("user", "u1")
OTHERS = [("user", "u2"), ("user",), ("user", "u1", "sub"), ("org", "u1"), ("user", "u1 ")]
SECRET = "zebra secret"


@pytest.fixture(scope="module")
def secrets(shared_book: commonplace.Book) -> list[str]:
    """What the other namespaces hold: every id, path, tag and type of it."""
    known: list[str] = [SECRET, "secret-type", "secret:tag", "/secret/file", "/", "..", "/../u2", "mem://file/../u2"]
    for labels in OTHERS:
        space = shared_book.space(*labels)
        record = RecordTools(space).create(
            {"type": "secret-type", "content": SECRET, "source": "s", "confidence": 1, "tags": ["secret:tag"]}
        )
        id = record.structured["items"][0]["id"]
        space.files.write("/secret/file", SECRET)
        [message] = space.threads.add(space.threads.create().id, [{"role": "user", "content": SECRET}])
        page = space.records.list(limit=1)
        known += [id, f"mem://item/{id}", message.id, f"mem://message/{message.id}", "mem://file/secret/file"]
        known += ["/".join((*labels, id)), "\x01".join((*labels, id)), page.records[0].hash, *labels]
        known += [f"../{labels[-1]}/{id}", f"{id}%", f"' OR 1=1 --{id}"]
    own = shared_book.space(*MINE)
    for number in range(3):
        assert not RecordTools(own).create({**GOOD, "content": number}).is_error
    own.files.write("/mine", "mine")
    return known


@pytest.mark.promise("record-tools-isolation")
@settings(max_examples=rounds(300))
@given(data=st.data())
def test_no_argument_reaches_another_namespace(
    shared_book: commonplace.Book, secrets: list[str], data: st.DataObject
) -> None:
    tools = RecordTools(shared_book.space(*MINE))
    guess = st.sampled_from(secrets)
    name = data.draw(st.sampled_from([tool.name for tool in TOOLS]))
    arguments: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "id": guess,
                "type": guess,
                "tags": st.lists(guess, max_size=3),
                "match": st.sampled_from(["all", "any"]),
                "kinds": st.lists(st.sampled_from(["file", "record", "message", "thread", "working"]), max_size=3),
                "cursor": guess,
                "limit": st.just(100),
                "namespace": guess,
                "filter": st.dictionaries(guess, guess, max_size=1),
            },
        )
    )
    if name == "memory_search":
        arguments["query"] = SECRET
    if name == "memory_create":
        arguments |= {"content": "mine", "source": "s", "confidence": 0.1, "type": "note"}
    before = _everything_of_the_others(shared_book)
    answer = tools.call(name, arguments)
    if not answer.is_error:
        assert SECRET not in answer.text + json.dumps(answer.structured) + str(answer.links)
    assert _everything_of_the_others(shared_book) == before


def _everything_of_the_others(book: commonplace.Book) -> list[Any]:
    return [(book.space(*labels).changes(), RecordTools(book.space(*labels)).recent()) for labels in OTHERS]


@pytest.mark.promise("record-tools-isolation")
def test_no_resource_reads_another_namespace(shared_book: commonplace.Book, secrets: list[str]) -> None:
    tools = RecordTools(shared_book.space(*MINE))
    for guess in secrets:
        for read in (tools.item, tools.message):
            with pytest.raises(commonplace.CommonplaceError):
                read(guess)
        assert tools.by_type(guess) == []
        with suppress(commonplace.InvalidInput):  # most guesses are no tags
            assert SECRET not in json.dumps(tools.by_tags([guess]))
    assert SECRET not in json.dumps(tools.recent(100))
