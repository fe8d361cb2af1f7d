"""The record tools as a client sees them: every shape, text and default of the contract."""

from __future__ import annotations

import json
import re
import threading
import uuid
from importlib import import_module
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import commonplace
from commonplace import NotFound, Space
from commonplace.tools.record_tools import TOOLS, RecordTools
from commonplace.tools.tool import Link, ToolAnswer

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


def ids(answer: ToolAnswer) -> list[str]:
    assert not answer.is_error, answer.text
    return [item["id"] for item in answer.structured["items"]]


# memory_create


@pytest.mark.promise("record-tools-create-answer")
def test_a_saved_memory_is_answered_with_text_a_link_and_its_item(tools: RecordTools) -> None:
    answer = tools.create(NOTE)
    id = answer.structured["items"][0]["id"]
    assert uuid.UUID(id).version == 4
    assert answer == ToolAnswer(
        text=f"Memory upserted.\nID: {id}\nType: note\n"
        f'Tags: ["project:alpha","topic:observability","env:prod"]\nConfidence: 0.9\nCreated: {AT}',
        structured={"items": [{"id": id, "type": "note", "tags": NOTE["tags"], "confidence": 0.9, "createdAt": AT}]},
        links=(
            Link(
                uri=f"mem://item/{id}",
                name=f"memory:{id}",
                mime_type="application/json",
            ),
        ),
    )


@pytest.mark.promise("records-importance")
def test_a_memory_may_have_an_importance(tools: RecordTools) -> None:
    item = tools.create({**NOTE, "importance": 0.7}).structured["items"][0]
    assert item["importance"] == 0.7
    assert tools.item(item["id"])["importance"] == 0.7
    assert save(tools, id=item["id"], importance="0.2") == item["id"]
    assert tools.item(item["id"])["importance"] == 0.2
    assert "importance" not in tools.item(save(tools, content="another"))
    refused = tools.create({**NOTE, "importance": 2, "confidence": None})
    assert refused.text == (
        "confidence is required and must be a number between 0 and 1; importance must be a number between 0 and 1"
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
    answers: list[ToolAnswer] = []

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
@pytest.mark.parametrize(
    "changed",
    [
        {"type": "todo"},
        {"content": "new"},
        {"source": "elsewhere"},
        {"confidence": 0.1},
        {"tags": ["only"]},
        {"importance": 0.1},
    ],
)
def test_an_edit_needs_only_what_changes(tools: RecordTools, changed: dict[str, Any]) -> None:
    """An edit by id was refused unless type, content, source and confidence were all sent again."""
    id = save(tools)
    old = tools.item(id)
    answer = tools.create({"id": id, **changed})
    assert ids(answer) == [id]
    assert {**tools.item(id), "hash": "", "updatedAt": ""} == {**old, **changed, "hash": "", "updatedAt": ""}
    [name] = changed
    assert (
        tools.create({"id": id}).text
        == f"give what to change of {id}: type, content, source, confidence, tags, importance"
    )
    assert tools.create({"id": id, name: []}).is_error or name in ("content", "tags")


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
    assert tools.create({**NOTE, "id": unknown}) == ToolAnswer(f"Memory {unknown} not found", is_error=True)
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
    start = f"• [runbook] sim={similarity:.3f} tags=project:x mem://item/{best} "
    assert lines[1] == f"{start}{summary[:129].rstrip(' …')}…", "the text has 130 characters of it"
    assert len(lines) == 3
    assert [(link.uri, link.name, link.mime_type) for link in answer.links] == [
        (f"mem://item/{id}", f"memory:{id}", "application/json") for id in (best, other)
    ]
    assert json.dumps(long["steps"]) not in json.dumps(answer.structured)


@pytest.mark.promise("record-tools-none-found")
def test_nothing_found_is_said_in_these_words_with_no_items(tools: RecordTools) -> None:
    nothing = ToolAnswer("No memories found.", structured={"items": []})
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
    assert answer.texts == (answer.text, "Note: keywords only: the model is away.")


@pytest.mark.promise("record-tools-search-notices")
def test_nothing_found_while_passages_wait_says_so_in_the_text(open_book: Any, embedder: Any) -> None:
    """A client that shows the text alone read "No memories found." while 101 passages had no vectors yet."""
    book = open_book()
    tools = RecordTools(book.space("user", "u1"))
    save(tools)
    tools.search({"query": "readiness"})
    embedder.error = commonplace.Unavailable("the model is away")
    save(tools, content="tea")
    answer = tools.search({"query": "quarterly figures", "kinds": ["file"]})
    [notice] = answer.structured["notices"]
    assert answer.texts == ("No memories found.", f"Note: {notice}.")


@pytest.mark.promise("record-tools-search-times")
def test_a_search_is_narrowed_by_the_time_of_the_last_change(tools: RecordTools, clock: Any) -> None:
    """The library searches between two times; a model could not."""
    first = save(tools, content="deploy on Monday")
    clock.advance(86_400)
    second = save(tools, content="deploy on Tuesday")
    for narrowed, found in (
        ({"after": "2025-06-16"}, [second]),
        ({"before": "2025-06-16T00:00:00Z"}, [first]),
        ({"after": "2025-06-15T15:06:40", "before": "2025-06-15T17:06:41+02:00"}, [first]),
        ({"after": "2025-06-17"}, []),
    ):
        assert ids(tools.search({"query": "deploy", **narrowed})) == found
    assert tools.search({"query": "deploy", "after": "yesterday"}).text == (
        "after must be a day or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z, not 'yesterday'"
    )


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


@pytest.mark.promise("record-tools-get")
def test_several_memories_are_read_in_one_call_by_any_name_that_they_were_shown_with(
    tools: RecordTools, space: Space
) -> None:
    """A model needed a call for each hit, and the names that links show were not found."""
    one, two = save(tools, content="one"), save(tools, content="two")
    space.files.write("/notes.md", "three")
    answer = tools.get({"id": [one, f"memory:{two}", "file:/notes.md", "gone", f"mem://item/{one}"]})
    contents = [item["content"] for item in answer.structured["items"]]
    assert contents == ["one", "two", "three", "one"]
    assert answer.structured["missing"] == ["gone"]
    assert answer.text.endswith("\nNot found: gone.")
    assert json.loads(tools.get({"id": [one, two]}).text) == answer.structured["items"][:2]
    assert tools.get({"id": f"memory:{one}"}) == tools.get({"id": [one]}) == tools.get({"id": one})
    for wrong, message in (
        ([], "id must be a non-empty string, or a list of 1 to 20 of them"),
        (["x"] * 21, "id must be a non-empty string, or a list of 1 to 20 of them"),
        ([one, 5], "id must be a non-empty string, or a list of 1 to 20 of them"),
        (["a", "b"], "none of these memories was found: a, b"),
        (7, "id is required and must be a non-empty string"),
    ):
        assert tools.get({"id": wrong}) == ToolAnswer(message, is_error=True)


@pytest.mark.promise("record-tools-get")
def test_a_long_memory_is_read_in_parts_and_each_says_how_to_get_the_next(tools: RecordTools, space: Space) -> None:
    """A file of 5.5 MB was answered in full, twice: 11 MB for a model to read."""
    text = "".join(f"line {number}\n" for number in range(15_000))
    space.files.write("/long.txt", text)
    read, offset = "", 0
    while True:
        answer = tools.get({"id": "/long.txt", "offset": offset})
        [item] = answer.structured["items"]
        assert len(answer.text) < 60_000
        read += item["content"]
        offset = item["characters"]["to"]
        if offset == len(text):
            break
        assert answer.text.endswith(f"of {len(text):,} of /long.txt. Read on with offset {offset}.")
    assert read == text
    assert "Read on" not in answer.text
    assert tools.get({"id": "/long.txt", "offset": len(text)}).text == (
        f"offset {len(text)} is past the end; /long.txt has {len(text):,} characters"
    )
    assert tools.get({"id": "/long.txt", "offset": -1}).text == "offset must be a whole number, 0 or more"
    thread = space.threads.create()
    parts = [{"type": "text", "text": "x" * 60_000}]
    [message] = space.threads.add(thread.id, [{"role": "user", "content": parts, "raw": "y" * 60_000}])
    [item] = tools.get({"id": message.id}).structured["items"]
    assert item["characters"] == {"from": 0, "to": 50_000, "of": len(json.dumps(parts))}
    assert "raw" not in item
    several = tools.get({"id": ["/long.txt", save(tools), save(tools, content="two")]})
    assert [item["id"] for item in several.structured["items"]] == ["/long.txt"]
    assert len(several.structured["left"]) == 2


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
    undo = "To take this back, call memory_delete with this id and undo: true."
    assert tools.delete({"id": id}) == ToolAnswer(
        f"Memory deleted.\nID: {id}\n{undo}", structured={"items": [{"id": id}]}
    )
    refused = ToolAnswer(f"Memory {id} not found", is_error=True)
    assert tools.delete({"id": id}) == tools.get({"id": id}) == refused
    assert ids(tools.search({"query": "readiness"})) == ids(tools.list({})) == []


@pytest.mark.promise("record-tools-delete")
def test_a_deletion_can_be_taken_back_with_the_tool_that_did_it(tools: RecordTools) -> None:
    """A model that deleted the wrong memory had no way to take that back."""
    id = save(tools)
    before = tools.item(id)
    tools.delete({"id": id})
    assert tools.delete({"id": f"memory:{id}", "undo": True}) == ToolAnswer(
        f"Memory restored.\nID: {id}", structured={"items": [{"id": id}]}
    )
    assert {**tools.item(id), "updatedAt": ""} == {**before, "updatedAt": ""}
    assert ids(tools.search({"query": "readiness"})) == [id]
    for refused, message in (
        ({"id": id, "undo": True}, f"Memory {id} is not deleted; there is nothing to take back"),
        ({"id": "x", "undo": "true"}, "Memory x not found"),
        ({"id": id, "undo": "maybe"}, "undo must be true or false"),
        ({"id": id, "undo": 1}, "undo must be true or false"),
    ):
        assert tools.delete(refused) == ToolAnswer(message, is_error=True)


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
    assert len(json.dumps([(tool.description, tool.input_schema, tool.output_schema) for tool in TOOLS])) < 6_500


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


def test_the_former_name_of_the_module_still_leads_to_it() -> None:
    former = "records"
    with pytest.warns(DeprecationWarning, match="is now commonplace.tools.record_tools"):
        assert getattr(commonplace.tools, former).TOOLS is TOOLS
    with pytest.warns(DeprecationWarning, match="is now commonplace.tools.record_tools"):
        assert import_module(f"commonplace.tools.{former}").RecordTools is RecordTools
    assert not hasattr(import_module(f"commonplace.tools.{former}"), "no_such_name")
