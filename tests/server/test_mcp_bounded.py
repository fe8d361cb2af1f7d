"""What a model is given at once is bounded, whatever the memory holds, and each answer says how to get the rest."""

from __future__ import annotations

import json
import re

import pytest

from commonplace.server.mcp import profiles, resources
from commonplace.server.mcp.lazy_memory import Memory

MOST = 60_000
"""Fifty thousand characters of what is stored, and the words around them."""


@pytest.fixture
def memory(space):
    return Memory(lambda: space)


@pytest.fixture
def call(memory):
    box = profiles.Toolbox(memory, "all")

    def run(name, **arguments):
        answer = box.call(name, arguments)
        assert len("".join(answer.texts)) <= MOST
        assert len(json.dumps(answer.structured, ensure_ascii=False)) <= MOST
        return answer

    return run


@pytest.fixture
def many_files(space):
    """More names in one directory than fit into an answer."""
    names = [f"{number:04}-{'x' * 100}" for number in range(600)]
    for name in names:
        space.files.write(f"/many/{name}", name)
    return names


TEXT = "".join(f"line {number}\n" for number in range(15_000))


@pytest.mark.promise("mcp-bounded-answers")
def test_a_long_file_is_read_by_the_unified_tool_in_parts(call, space):
    """A read of a file of some megabytes filled a model's whole context."""
    space.files.write("/long", TEXT)
    read, offset = "", 0
    while True:
        result = call("memory", command="read", path="/long", offset=offset).structured["result"]
        read += result["content"]
        if "go on" not in result["note"]:
            break
        offset = int(re.search(r"go on with offset (\d+)$", result["note"])[1])
    assert read == TEXT
    past = call("memory", command="read", path="/long", offset=len(TEXT))
    assert f"offset {len(TEXT)} is past the end; there are {len(TEXT):,} characters" in past.text
    assert "offset is for read and list" in call("memory", command="delete", path="/long", offset=1).text
    assert "offset must be a whole number" in call("memory", command="read", path="/long", offset="x").text
    space.files.write("/short", "tea")
    assert call("memory", command="read", path="/short").structured["result"] == {"content": "tea"}


@pytest.mark.promise("mcp-bounded-answers")
def test_a_large_directory_is_listed_in_parts(call, many_files):
    """A list of 20,000 entries had 559 kB."""
    listed, offset = [], 0
    while offset < len(many_files):
        result = call("memory", command="list", path="/many", offset=offset).structured["result"]
        listed += [entry["name"] for entry in result["entries"]]
        assert f"of {len(many_files)}" in result["note"]
        offset = len(listed)
    assert listed == many_files


@pytest.mark.promise("mcp-bounded-answers")
def test_claudes_view_of_a_large_directory_goes_on_with_a_range(call, many_files):
    """A view of 20,000 entries had 559 kB."""
    seen, first = [], 1
    while True:
        text = call("claude_memory", command="view", path="/memories/many", view_range=[first, -1]).text
        heading, itself, *rows = text.split("\n")
        assert (heading[:7], itself) == ("Here're", "4.0K\t/memories/many")
        if not rows[-1].startswith("[entries "):
            break
        first = int(re.search(r"view_range \[(\d+), -1\] shows the next\]$", rows.pop())[1])
        seen += rows
    seen += rows
    assert [row.rpartition("/")[2] for row in seen] == many_files


@pytest.mark.promise("mcp-bounded-answers")
def test_claudes_view_of_a_long_file_goes_on_with_a_range(call, space):
    space.files.write("/long", TEXT)
    seen, first = [], 1
    while True:
        _, *lines = call("claude_memory", command="view", path="/memories/long", view_range=[first, -1]).text.split(
            "\n"
        )
        if not lines[-1].startswith("[lines "):
            break
        assert "of 15,001;" in lines[-1]
        first = int(re.search(r"view_range \[(\d+), -1\]", lines.pop())[1])
        seen += lines
    seen += lines
    assert "\n".join(line.split("\t", 1)[1] for line in seen) == TEXT
    space.files.write("/one-line", "x" * 90_000)
    assert call("claude_memory", command="view", path="/memories/one-line").text.endswith(
        "\n[line 1 is cut after 50,000 of 90,000 characters]"
    )
    replaced = call(
        "claude_memory", command="str_replace", path="/memories/long", old_str="line 7\n", new_str="seven\n"
    )
    assert replaced.text.endswith(" characters; view with a view_range shows the rest]")


@pytest.mark.promise("mcp-bounded-answers")
def test_a_collection_of_large_records_goes_on_at_the_address_that_it_names(memory, space):
    """mem://recent gave 196,000 characters."""
    for number in range(30):
        space.records.create(type="note", content=f"{number} " + "x" * 9_000, source="s", confidence=1, tags=["t"])
    for first in ("mem://recent", "mem://by-tags/t,t?match=any&limit=20", "mem://by-type/note?limit=20"):
        uri, seen, notes = first, [], []
        while uri:
            found = resources.read(memory, uri)
            assert len(found.text) <= MOST
            seen += [int(record["content"].split()[0]) for record in json.loads(found.text)]
            notes.append(found.note.removesuffix(f" The rest is at {found.rest}"))
            uri = found.rest
        assert seen == list(range(29, 9, -1))
        assert notes == ["5 of 20 memories.", "5 of 15 memories.", "5 of 10 memories.", ""]


@pytest.mark.promise("mcp-bounded-answers")
def test_a_long_file_and_a_long_message_have_the_address_of_their_rest(opened, memory, space):
    space.files.write("/a b.txt", TEXT)
    thread = space.threads.create()
    [message] = space.threads.add(thread.id, [{"role": "user", "content": TEXT}])
    for first, text_of in (
        ("mem://file/a%20b.txt", lambda text: text),
        (f"mem://message/{message.id}", lambda text: json.loads(text)["content"]),
    ):
        uri, read = first, ""
        while uri:
            found = resources.read(memory, uri)
            assert len(found.text) <= MOST
            read += text_of(found.text)
            uri = found.rest
        assert read == TEXT
    opened.call("memory_create", type="note", content="tea", source="s", confidence=1)
    assert len(opened.ask("resources/read", {"uri": "mem://recent"})["result"]["contents"]) == 1


@pytest.mark.promise("mcp-bounded-answers")
def test_long_messages_and_facts_leave_room_for_the_others(call, space):
    thread = space.threads.create()
    said = [{"role": "user", "content": f"{number} " + "x" * 9_000} for number in range(20)]
    space.threads.add(thread.id, said)
    items = call("thread_read", thread=thread.id, last=20).structured["items"]
    assert [item["text"].split()[0] for item in items] == [str(number) for number in range(20)]
    assert "[cut; the whole message has 9,00" in items[0]["text"]
    for number in range(12):
        call("manage_memory", content=f"tea {number} " + "x" * 9_000)
    answer = call("search_memory", query="tea", limit=12)
    assert len(answer.structured["items"]) == 5
    assert answer.notices[-1] == "5 of 12 facts fit into this answer; a larger offset shows the others"
