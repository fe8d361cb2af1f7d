"""The record tools as a client sees them: every shape, text and default of the contract."""

from __future__ import annotations

import json
import re
import threading
import uuid
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import commonplace
from commonplace import NotFound, Space
from commonplace.tools.records import TOOLS, Answer, Link, RecordTools

NOTE: dict[str, Any] = {
    "type": "note",
    "content": {"text": "Use /healthz for readiness; /livez for liveness"},
    "source": "agent://pipeline/step-42",
    "tags": ["project:alpha", "topic:observability", "env:prod"],
    "confidence": 0.9,
}
AT = "2025-06-15T15:06:40.000000Z"


@pytest.fixture
def tools(space: Space) -> RecordTools:
    return RecordTools(space)


def save(tools: RecordTools, **changed: Any) -> str:
    answer = tools.create({**NOTE, **changed})
    assert not answer.is_error, answer.text
    return str(answer.structured["items"][0]["id"])


def ids(answer: Answer) -> list[str]:
    assert not answer.is_error, answer.text
    return [item["id"] for item in answer.structured["items"]]


# memory_create


@pytest.mark.promise("record-tools-create-answer")
def test_a_saved_memory_is_answered_with_text_a_link_and_its_item(tools: RecordTools) -> None:
    answer = tools.create(NOTE)
    id = answer.structured["items"][0]["id"]
    assert uuid.UUID(id).version == 4
    assert answer == Answer(
        text=f"Memory upserted.\nID: {id}\nType: note\n"
        f'Tags: ["project:alpha","topic:observability","env:prod"]\nConfidence: 0.9\nCreated: {AT}',
        structured={"items": [{"id": id, "type": "note", "tags": NOTE["tags"], "confidence": 0.9, "createdAt": AT}]},
        links=(
            Link(
                uri=f"mem://item/{id}",
                name=f"memory:{id}",
                mime_type="application/json",
                title="Use /healthz for readiness; /livez for liveness",
                description=f"Full content of note {id}",
            ),
        ),
    )


@pytest.mark.promise("record-tools-upsert")
def test_the_same_memory_again_joins_tags_and_keeps_the_larger_confidence(tools: RecordTools, clock: Any) -> None:
    id = save(tools, content={"a": 1, "b": {"c": [1, 2], "d": "ü"}})
    clock.advance(60)
    again = tools.create(
        {**NOTE, "content": {"b": {"d": "ü", "c": [1, 2]}, "a": 1.0}, "tags": ["new", "env:prod"], "confidence": 0.5}
    )
    assert ids(again) == [id]
    full = tools.item(id)
    assert (full["tags"], full["confidence"]) == ([*NOTE["tags"], "new"], 0.9)
    assert (full["createdAt"], full["updatedAt"]) == (AT, AT.replace("06:40", "07:40"))
    assert len(ids(tools.list({}))) == 1


@pytest.mark.promise("record-tools-upsert")
@pytest.mark.parametrize("changed", [{"type": "todo"}, {"source": "t"}, {"content": {"text": ["a"]}}])
def test_another_type_source_or_content_is_another_memory(tools: RecordTools, changed: dict[str, Any]) -> None:
    assert save(tools) != save(tools, **changed)


@pytest.mark.promise("record-tools-upsert-at-once")
def test_32_threads_saving_the_same_record_leave_one_with_all_tags_and_the_largest_confidence(
    open_book: Any,
) -> None:
    book = open_book()
    barrier = threading.Barrier(32)
    answers: list[Answer] = []

    def run(number: int) -> None:
        tools = RecordTools(book.space("user", "u1"))
        barrier.wait()
        arguments = {**NOTE, "tags": [f"t{number}", "shared"], "confidence": number / 100}
        answers.append(tools.create(arguments))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({ids(answer)[0] for answer in answers}) == 1
    [record] = RecordTools(book.space("user", "u1")).recent()
    assert sorted(record["tags"]) == sorted(["shared", *(f"t{number}" for number in range(32))])
    assert record["confidence"] == 0.31


@pytest.mark.promise("record-tools-edit-in-place")
def test_an_id_edits_in_place_and_without_tags_keeps_them(tools: RecordTools, clock: Any) -> None:
    id = save(tools)
    old = tools.item(id)
    clock.advance(1)
    assert save(tools, id=id, content="changed", confidence=0.2, tags=None) == id
    new = tools.item(id)
    assert (new["content"], new["confidence"], new["tags"]) == ("changed", 0.2, NOTE["tags"])
    assert (new["createdAt"], new["hash"] == old["hash"]) == (AT, False)
    save(tools, id=f"mem://item/{id}", content="changed", tags=["only"])
    assert tools.item(id)["tags"] == ["only"]
    assert ids(tools.list({})) == [id]


@pytest.mark.promise("record-tools-edit-in-place")
def test_an_edit_that_makes_two_memories_equal_joins_them_under_the_older_id(tools: RecordTools, clock: Any) -> None:
    older = save(tools, content="one", tags=["a"], confidence=0.3)
    clock.advance(1)
    newer = save(tools, content="two", tags=["b"], confidence=0.8)
    assert save(tools, id=newer, content="one", tags=None, confidence=0.8) == older
    assert ids(tools.list({})) == [older]
    assert (sorted(tools.item(older)["tags"]), tools.item(older)["confidence"]) == (["a", "b"], 0.8)


@pytest.mark.promise("record-tools-edit-in-place")
def test_an_edit_of_an_unknown_id_is_refused_and_saves_nothing(tools: RecordTools) -> None:
    unknown = str(uuid.uuid4())
    assert tools.create({**NOTE, "id": unknown}) == Answer(f"Memory {unknown} not found", is_error=True)
    assert ids(tools.list({})) == []


# memory_search


@pytest.mark.promise("record-tools-search-answer")
def test_a_search_gives_ranked_items_with_links_and_never_the_content(tools: RecordTools) -> None:
    long = {"steps": ["rollback the deploy of service-x"] + ["a line that is no part of the summary"] * 40}
    best = save(tools, type="runbook", content=long, tags=["project:x"])
    other = save(tools, content={"text": "gardening in spring"})
    answer = tools.search({"query": "rollback deploy service-x"})
    assert ids(answer) == [best, other]
    first, second = answer.structured["items"]
    assert 1 >= first["similarity"] > second["similarity"] >= 0
    summary, similarity = first.pop("summary"), first.pop("similarity")
    assert first == {
        "id": best,
        "type": "runbook",
        "tags": ["project:x"],
        "createdAt": AT,
        "uri": f"mem://item/{best}",
    }
    assert "rollback the deploy" in summary
    assert len(summary) <= 160
    lines = answer.text.split("\n")
    assert lines[0] == "Found 2 memories:"
    assert lines[1] == f"• [runbook] sim={similarity:.3f} tags=project:x mem://item/{best} {summary}"
    assert len(lines) == 3
    assert [(link.uri, link.name, link.mime_type) for link in answer.links] == [
        (f"mem://item/{id}", f"memory:{id}", "application/json") for id in (best, other)
    ]
    assert json.dumps(long["steps"]) not in json.dumps(answer.structured)


@pytest.mark.promise("record-tools-none-found")
def test_nothing_found_is_said_in_these_words_with_no_items(tools: RecordTools) -> None:
    nothing = Answer("No memories found.", {"items": []})
    assert tools.search({"query": "anything"}) == nothing
    assert tools.list({"type": "todo"}) == nothing


@pytest.mark.promise("record-tools-limits")
def test_a_search_gives_ten_by_default_and_a_hundred_at_most(tools: RecordTools, space: Space) -> None:
    for number in range(105):
        save(tools, content=f"same words {number}")
    assert len(ids(tools.search({"query": "same words"}))) == 10
    for limit, count in ((3, 3), ("3", 3), (2.0, 2), (100, 100), (101, 100), (10**400, 100), ("1e300", 100)):
        assert len(ids(tools.search({"query": "same words", "limit": limit}))) == count
    narrow = RecordTools(space, default_limit=2, max_limit=4)
    assert len(ids(narrow.search({"query": "same words"}))) == 2
    assert len(ids(narrow.search({"query": "same words", "limit": 100}))) == 4
    assert len(ids(narrow.list({}))) == 4


@pytest.mark.promise("record-tools-search-everything")
def test_a_search_looks_at_records_files_and_messages_and_kinds_restricts_it(tools: RecordTools, space: Space) -> None:
    record = save(tools, content="blue green deploy", tags=["project:x"])
    space.files.write("/notes/a b.md", "blue green deploy")
    thread = space.threads.create()
    [message] = space.threads.add(thread.id, [{"role": "user", "content": "blue green deploy"}])
    found = {item["type"]: item for item in tools.search({"query": "blue green deploy"}).structured["items"]}
    assert {type: (item["id"], item["uri"], item["tags"]) for type, item in found.items()} == {
        "note": (record, f"mem://item/{record}", ["project:x"]),
        "file": ("/notes/a b.md", "mem://file/notes/a%20b.md", []),
        "message": (message.id, f"mem://message/{message.id}", []),
    }
    for kinds, types in (
        (["file"], {"file"}),
        (["record", "message"], {"note", "message"}),
        ([], {"note", "file", "message"}),
    ):
        answer = tools.search({"query": "blue green deploy", "kinds": kinds})
        assert {item["type"] for item in answer.structured["items"]} == types
    for type, id in (("file", "/notes/a b.md"), ("message", message.id), ("note", record)):
        assert ids(tools.search({"query": "blue green deploy", "type": type})) == [id]
    assert ids(tools.search({"query": "blue green deploy", "type": "file", "kinds": ["message"]})) == []
    assert ids(tools.search({"query": "blue green deploy", "tags": ["project:x"]})) == [record]


@pytest.mark.promise("record-tools-search-everything")
def test_a_record_whose_type_is_file_stands_beside_the_files(tools: RecordTools, space: Space) -> None:
    record = save(tools, type="file", content="blue green deploy")
    space.files.write("/notes", "blue deploy")
    answer = tools.search({"query": "blue green deploy", "type": "file"})
    assert ids(answer) == [record, "/notes"]
    assert ids(tools.search({"query": "blue green deploy", "type": "file", "limit": 1})) == [record]


@pytest.mark.promise("record-tools-tags")
def test_tags_narrow_to_all_of_them_and_any_opts_out(tools: RecordTools) -> None:
    both = save(tools, content="deploy one", tags=["project:x", "topic:release"])
    one = save(tools, content="deploy two", tags=["project:x"])
    asked = {"tags": [" Project:X ", "topic:release"]}
    for run in (lambda more: tools.search({"query": "deploy", **more}), tools.list):
        assert ids(run(asked)) == [both]
        assert sorted(ids(run({**asked, "match": "any"}))) == sorted([both, one])
    assert [record["id"] for record in tools.by_tags(asked["tags"])] == [both]
    assert {record["id"] for record in tools.by_tags(asked["tags"], match="any")} == {both, one}


@pytest.mark.promise("record-tools-search-notices")
def test_a_search_without_its_model_answers_by_words_and_says_so(tools: RecordTools, embedder: Any) -> None:
    id = save(tools)
    embedder.error = commonplace.Unavailable("the model is away")
    answer = tools.search({"query": "readiness"})
    assert ids(answer) == [id]
    assert "the model is away" in " ".join(answer.structured["notices"])


# memory_list, memory_get, memory_delete


@pytest.mark.promise("record-tools-list")
def test_a_list_is_newest_first_twenty_at_a_time_with_links_and_a_cursor(tools: RecordTools, clock: Any) -> None:
    saved = []
    for number in range(45):
        saved.append(save(tools, type="todo", content={"n": number}))
        clock.advance(1)
    save(tools, type="note")
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    for size in (20, 20, 5):
        answer = tools.list({"type": "todo", **cursor})
        assert len(ids(answer)) == len(answer.links) == size
        seen += ids(answer)
        cursor = {"cursor": answer.structured.get("nextCursor")}
        assert (cursor["cursor"] is None) == (size == 5)
        if cursor["cursor"]:
            assert answer.text.endswith(f"\nMore with cursor {cursor['cursor']}")
    assert seen == saved[::-1]
    item = tools.list({"type": "todo", "limit": "1"}).structured["items"][0]
    assert item == {
        "id": saved[-1],
        "type": "todo",
        "tags": NOTE["tags"],
        "createdAt": "2025-06-15T15:07:24.000000Z",
        "uri": f"mem://item/{saved[-1]}",
        "summary": "44",
    }


@pytest.mark.promise("record-tools-get")
def test_every_found_thing_is_read_in_full_by_its_id_and_by_its_address(tools: RecordTools, space: Space) -> None:
    save(tools)
    space.files.write("/notes/healthz 100%.md", "readiness\nof healthz")
    thread = space.threads.create()
    space.threads.add(thread.id, [{"role": "user", "content": "healthz readiness?"}])
    contents = {
        "note": NOTE["content"],
        "file": "readiness\nof healthz",
        "message": "healthz readiness?",
    }
    items = tools.search({"query": "healthz readiness"}).structured["items"]
    assert len(items) == 3
    for item in items:
        for id in (item["id"], item["uri"]):
            answer = tools.get({"id": id})
            [full] = answer.structured["items"]
            assert (full["id"], full["content"]) == (item["id"], contents[item["type"]])
            assert json.loads(answer.text) == full


@pytest.mark.promise("record-tools-resources")
def test_a_full_record_is_all_that_was_saved(tools: RecordTools) -> None:
    id = save(tools, content={"text": "ü", "n": 1.5, "list": [True, None]})
    full = tools.item(id)
    assert re.fullmatch("[0-9a-f]{64}", full.pop("hash"))
    assert full == {
        "id": id,
        "type": "note",
        "content": {"text": "ü", "n": 1.5, "list": [True, None]},
        "source": "agent://pipeline/step-42",
        "tags": NOTE["tags"],
        "confidence": 0.9,
        "createdAt": AT,
        "updatedAt": AT,
    }
    assert json.loads(json.dumps(tools.recent())) == [tools.item(id)]


@pytest.mark.promise("record-tools-resources")
def test_collections_are_newest_first_and_their_limit_is_clamped(tools: RecordTools, clock: Any) -> None:
    saved = []
    for number in range(105):
        saved.append(save(tools, type="note" if number % 2 else "todo", content=number, tags=["t"]))
        clock.advance(1)
    newest = saved[::-1]

    def ids_of(records: list[dict[str, Any]]) -> list[str]:
        return [record["id"] for record in records]

    assert ids_of(tools.recent()) == newest[:20]
    for limit, count in ((0, 1), (-3, 1), ("7", 7), (1000, 100)):
        assert ids_of(tools.recent(limit)) == newest[:count]
        assert ids_of(tools.by_tags(["t"], limit)) == newest[:count]
    assert ids_of(tools.by_type("todo", 5)) == newest[0:10:2]
    with pytest.raises(commonplace.InvalidInput, match="limit must be a positive number"):
        tools.recent("many")


@pytest.mark.promise("record-tools-specs")
def test_a_message_is_read_with_its_other_fields_which_do_not_hide_ours(tools: RecordTools, space: Space) -> None:
    thread = space.threads.create()
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}], "type": "x", "tags": ["x"]}
    [said] = space.threads.add(thread.id, [call])
    answer = tools.get({"id": said.id})
    assert answer.structured["items"] == [
        {
            "id": said.id,
            "type": "message",
            "content": None,
            "role": "assistant",
            "threadId": thread.id,
            "tags": [],
            "createdAt": said.created_at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "tool_calls": [{"id": "c"}],
        }
    ]
    [get] = [tool for tool in TOOLS if tool.name == "memory_get"]
    Draft202012Validator(get.output_schema).validate(json.loads(json.dumps(answer.structured, default=dict)))


@pytest.mark.promise("record-tools-resources")
def test_a_missing_item_is_an_error_and_not_null(tools: RecordTools) -> None:
    for read in (tools.item, tools.message):
        with pytest.raises(NotFound):
            read(str(uuid.uuid4()))


@pytest.mark.promise("record-tools-delete")
def test_a_deleted_memory_is_gone_everywhere_and_cannot_be_deleted_twice(tools: RecordTools) -> None:
    id = save(tools)
    assert tools.delete({"id": id}) == Answer(f"Memory deleted.\nID: {id}", {"items": [{"id": id}]})
    refused = Answer(f"Memory {id} not found", is_error=True)
    assert tools.delete({"id": id}) == tools.get({"id": id}) == refused
    assert ids(tools.search({"query": "readiness"})) == ids(tools.list({})) == []


# What a model is told


def test_a_book_that_takes_more_tags_has_a_schema_that_takes_them() -> None:
    [create] = [tool for tool in TOOLS if tool.name == "memory_create"]
    arguments = {**NOTE, "tags": [f"t{number}" for number in range(30)]}
    Draft202012Validator(create.input_schema).validate(arguments)
    with commonplace.open(":memory:", limits=commonplace.Limits(tags=30)) as book:
        tools = RecordTools(book.space("user", "u1"))
        assert not tools.create(arguments).is_error
        refused = tools.create({**arguments, "tags": [*arguments["tags"], "t30"]})
        assert refused.text == "tags array cannot have more than 30 items"


@pytest.mark.promise("record-tools-specs")
def test_every_answer_fits_the_schema_that_its_tool_declares(tools: RecordTools) -> None:
    calls = {
        "memory_create": NOTE,
        "memory_search": {"query": "readiness", "tags": ["project:alpha"], "kinds": ["record"], "match": "any"},
        "memory_list": {"type": "note", "limit": 1},
        "memory_get": {},
        "memory_delete": {},
    }
    id = save(tools)
    assert [tool.name for tool in TOOLS] == list(calls)
    for tool in TOOLS:
        Draft202012Validator.check_schema(tool.input_schema)
        Draft202012Validator.check_schema(tool.output_schema)
        arguments = calls[tool.name] or {"id": id}
        Draft202012Validator(tool.input_schema).validate(arguments)
        answer = tools.call(tool.name, arguments)
        assert not answer.is_error, answer.text
        Draft202012Validator(tool.output_schema).validate(answer.structured)
        assert tool.title
        assert tool.description
    assert len(json.dumps([(tool.description, tool.input_schema, tool.output_schema) for tool in TOOLS])) < 6_000


@pytest.mark.promise("record-tools-specs")
def test_annotations_are_honest() -> None:
    hints = {tool.name: (tool.is_read_only, tool.is_destructive, tool.is_idempotent) for tool in TOOLS}
    assert hints == {
        "memory_create": (False, True, True),
        "memory_search": (True, False, True),
        "memory_list": (True, False, True),
        "memory_get": (True, False, True),
        "memory_delete": (False, True, True),
    }
