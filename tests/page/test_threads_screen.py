"""Threads on the page: the list, a chat in pages, working memory as a form, renaming, deleting, the past."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from browsing import Browser, Forms

import commonplace
from commonplace.server.page import threads_screen
from commonplace.server.page.threads_screen import MOST_FIELDS, form_fields

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
WORKING, RENAME = "/ui/threads/working", "/ui/threads/rename"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Full name"},
        "style": {"type": "string", "enum": ["formal", "casual"], "description": "How to answer."},
        "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "score": {"type": "number", "maximum": 10},
        "likes": {"type": "array", "items": {"type": "string"}},
        "busy": {"type": "boolean"},
        "home": {"$ref": "#/$defs/Home"},
        "projects": {"type": "array", "items": {"type": "object"}},
    },
    "$defs": {"Home": {"type": "object", "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}}}},
}


def form_of(page: str, action: str) -> dict[str, str]:
    return next(fields for _, address, fields in Forms(page).forms if address.split("?")[0] == action)


def said(page: str) -> list[str]:
    """What the messages of a page say, in order."""
    return [unescape(text) for text in re.findall(r'<div class="said" dir="auto">(.*?)</div>', page, re.DOTALL)]


def link_of(page: str, words: str) -> str:
    return unescape(re.findall(rf'<a[^>]*?href="([^"]+)"[^>]*>{words}</a>', page)[0])


def talk(space: commonplace.Space, id: str, count: int) -> None:
    space.threads.create(f"Thread {id}", id=id)
    space.threads.add(id, [{"role": "user", "content": f"{id} {n}", "id": f"{id}-{n}"} for n in range(count)])


def field(*path: str) -> str:
    return threads_screen.FormField(path, "text", path[-1]).name


@pytest.mark.promise("page-threads")
def test_threads_are_listed_with_titles_counts_and_pages(
    browser: Browser, space: commonplace.Space, monkeypatch: pytest.MonkeyPatch
):
    talk(space, "a", 3)
    talk(space, "b", 0)
    space.threads.create(None, id="untitled", resource="somebody")
    page = browser.get("/ui/threads").text
    assert re.findall(r'class="count">(\d+)<', page) == ["0", "0", "3"]
    assert "Without a title" in page
    assert "<bdi>somebody</bdi>" in page
    monkeypatch.setattr(threads_screen, "PAGE_SIZE", 2)
    first = browser.get("/ui/threads").text
    assert "Thread a" not in first
    assert "Thread a" in browser.get(link_of(first, "Older →")).text


@pytest.mark.promise("page-threads")
def test_a_thread_is_a_chat_with_tool_calls_folded(browser: Browser, space: commonplace.Space):
    space.threads.create("Deploys", id="t")
    space.threads.add(
        "t",
        [
            {"role": "user", "content": "When do we deploy?", "name": "Ana"},
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [{"id": "c", "function": {"name": "search", "arguments": '{"query":"deploy"}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "name": "search", "content": '[{"text":"Tuesdays"}]'},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "It says Tuesdays."},
                    {"type": "text", "text": "On **Tuesdays**."},
                    {"type": "tool_use", "id": "u", "name": "remember", "input": {"fact": "x"}},
                    {"type": "image", "source": {"type": "base64", "data": "QUJD"}},
                ],
            },
            {"role": "assistant", "parts": [{"type": "tool-weather", "input": {"city": "Lisbon"}, "output": "rain"}]},
        ],
    )
    page = browser.get("/ui/threads?open=thread:t").text
    assert said(page) == ["When do we deploy?", "Let me look.", "On **Tuesdays**."]
    assert "<bdi>user</bdi>, <bdi>Ana</bdi>" in page
    folded = [" ".join(text.split()) for text in re.findall(r"<summary>(.*?)</summary>", page)]
    assert folded == [
        "Calls <code>search</code>",
        "Result of <code>search</code>",
        "Reasoning",
        "Calls <code>remember</code>",
        "Other content <code>image</code>",
        "Calls <code>weather</code>",
        "Result of <code>weather</code>",
    ]
    assert "{\n  &#34;query&#34;: &#34;deploy&#34;\n}" in page
    assert "<details open" not in page


@pytest.mark.promise("page-threads")
def test_a_long_thread_is_shown_in_pages_from_the_newest(browser: Browser, space: commonplace.Space):
    talk(space, "t", 130)
    talk(space, "other", 2)
    page = browser.get("/ui/threads?open=thread:t").text
    assert said(page) == [f"t {n}" for n in range(80, 130)]
    older = browser.get(link_of(page, "← Older")).text
    assert said(older) == [f"t {n}" for n in range(30, 80)]
    oldest = browser.get(link_of(older, "← Older")).text
    assert said(oldest) == [f"t {n}" for n in range(30)]
    assert "← Older" not in oldest
    assert said(browser.get(link_of(oldest, "Newer →")).text) == [f"t {n}" for n in range(30, 80)]
    around = browser.get("/ui/threads?open=message:t-60").text
    assert said(around) == [f"t {n}" for n in range(35, 86)]
    assert around.count('aria-current="true"') == 1
    assert "Newer →" in around
    for lost in ("before=gone", "before=other-1"):
        assert said(browser.get(f"/ui/threads?open=thread:t&{lost}").text)[-1] == "t 129"


def test_a_long_message_is_cut_and_opened_alone(browser: Browser, space: commonplace.Space):
    space.threads.create("t", id="t")
    space.threads.add("t", [{"role": "user", "content": "w" * 20_000 + "end", "id": "m"}])
    page = browser.get("/ui/threads?open=thread:t").text
    assert len(page) < 15_000
    assert "wend" in browser.get(link_of(page, "Show all of this message")).text


@pytest.mark.promise("page-working-memory")
def test_a_working_memory_is_a_form_made_from_its_schema(browser: Browser, space: commonplace.Space):
    space.threads.create("t", id="t")
    content = {"name": "Ana", "likes": ["tea", "maps"], "projects": [{"name": "alpha"}], "extra": {"deep": True}}
    space.threads.working.write(content, thread="t", schema=SCHEMA)
    page = browser.get("/ui/threads?open=working:thread/t")
    fields = form_of(page.text, WORKING)
    assert ">Full name<" in page.text
    assert "How to answer." in page.text
    assert fields[field("name")] == "Ana"
    assert fields[field("likes")] == "tea\nmaps"
    assert '"alpha"' in fields[field("projects")]
    assert fields[field("extra", "deep")] == "true"
    assert fields[field("style")] == fields[field("age")] == fields[field("home", "city")] == ""
    typed = {
        field("name"): "",
        field("style"): "casual",
        field("age"): "41",
        field("likes"): "tea\r\n\r\ncoffee",
        field("busy"): "false",
        field("home", "city"): "lisbon",
        "more": '{"new": [1]}',
    }
    saved = browser.send(page, WORKING, **typed)
    assert f"Saved as commit {space.stats().commit}." in saved.text
    memory = space.threads.working.read(thread="t")
    assert memory is not None
    assert memory.content == {
        "likes": ["tea", "coffee"],
        "projects": [{"name": "alpha"}],
        "extra": {"deep": True},
        "style": "casual",
        "age": 41,
        "busy": False,
        "home": {"city": "lisbon"},
        "new": [1],
    }
    assert memory.schema == SCHEMA
    same = browser.send(browser.get("/ui/threads?open=working:thread/t"), WORKING)
    assert "data-toast" not in same.text
    for wrong, words in (
        ({field("age"): "old"}, "age must be a whole number"),
        ({field("score"): "11"}, "does not fit its schema"),
        ({field("projects"): "[oops"}, "projects must be JSON"),
        ({"more": "[1]"}, "More fields must be a JSON object"),
    ):
        refused = browser.send(browser.get("/ui/threads?open=working:thread/t"), WORKING, **wrong)
        assert refused.status_code == 422
        assert words.lower() in refused.text.lower()
        [(name, value)] = wrong.items()
        assert form_of(refused.text, WORKING)[name] == value


@pytest.mark.promise("conversations-working-schema-kept")
def test_a_memory_keeps_the_schema_that_it_was_last_written_with(space: commonplace.Space):
    working = space.threads.working
    assert working.write({"name": "Ann"}, schema=SCHEMA).schema == SCHEMA
    assert working.write({"name": "Ben"}).schema == SCHEMA
    other = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert working.write({"name": "Cleo"}, schema=other).schema == other
    present = working.read()
    assert present is not None
    assert present.schema == other
    assert working.write("a text", resource="r").schema is None


@pytest.mark.promise("page-working-memory")
def test_a_working_memory_without_a_schema_is_a_form_of_its_values_or_a_text(
    browser: Browser, space: commonplace.Space
):
    space.threads.working.write({"n": 1.5, "s": "x", "mixed": [1, "a"], "note": "two\nlines"}, resource="r")
    page = browser.get("/ui/threads?open=working:resource/r")
    browser.send(page, WORKING, **{field("n"): "2", field("s"): ""})
    memory = space.threads.working.read(resource="r")
    assert memory is not None
    assert memory.content == {"n": 2, "mixed": [1, "a"], "note": "two\nlines"}
    text = browser.get("/ui/threads?open=working:resource/default")
    assert form_of(text.text, WORKING)["text"] == ""
    written = browser.send(text, WORKING, text="# User\r\n- **Name**: Ana")
    assert "Saved as commit" in written.text
    assert space.threads.working.read().content == "# User\n- **Name**: Ana"  # type: ignore[union-attr]
    emptied = browser.send(written, WORKING, text=" ")
    assert emptied.status_code == 409
    assert "Attempted to replace existing working memory" in emptied.text
    cleared = browser.send(written, "/ui/threads/clear-working")
    assert "Deleted as commit" in cleared.text
    assert space.threads.working.read() is None
    assert browser.get("/ui/threads?open=working:nobody").status_code == 422


@pytest.mark.promise("page-conflict-loses-nothing")
def test_a_conflict_of_working_memory_shows_both_and_keeps_what_was_typed(browser: Browser, space: commonplace.Space):
    space.threads.create("t", id="t")
    space.threads.working.write({"name": "Ana", "old": "x"}, thread="t")
    page = browser.get("/ui/threads?open=thread:t")
    space.threads.working.write({"name": "Ben", "old": None}, thread="t")
    conflict = browser.send(page, WORKING, **{field("name"): "Cleo", field("old"): "typed", "more": '{"z": 1}'})
    assert conflict.status_code == 409
    assert "&#34;Ben&#34;" in conflict.text
    fields = form_of(conflict.text, WORKING)
    assert (fields[field("name")], fields[field("old")], fields["more"]) == ("Cleo", "typed", '{"z": 1}')
    browser.send(conflict, WORKING)
    assert space.threads.working.read(thread="t").content == {"name": "Cleo", "old": "typed", "z": 1}  # type: ignore[union-attr]
    text = browser.get("/ui/threads?open=working:resource/default")
    space.threads.working.write("theirs")
    lost = browser.send(text, WORKING, text="mine")
    assert "theirs" in lost.text
    assert form_of(lost.text, WORKING)["text"] == "mine"


@pytest.mark.promise("page-conflict-loses-nothing")
def test_a_value_with_fields_of_its_own_is_named_and_kept(browser: Browser, space: commonplace.Space):
    space.threads.working.write({"home": {"city": "lisbon"}}, resource="r")
    page = browser.get("/ui/threads?open=working:resource/r")
    space.threads.working.write({"home": "a boat"}, resource="r")
    conflict = browser.send(page, WORKING, **{field("home", "city"): "porto"})
    refused = browser.send(conflict, WORKING, **{field("home"): "a van"})
    assert refused.status_code == 422
    assert "Home has a value and fields of its own" in refused.text
    fields = form_of(refused.text, WORKING)
    assert (fields[field("home")], fields[field("home", "city")]) == ("a van", "porto")
    browser.send(refused, WORKING, **{field("home"): ""})
    assert space.threads.working.read(resource="r").content == {"home": {"city": "porto"}}  # type: ignore[union-attr]


def test_a_working_memory_of_an_unknown_scope_is_refused(browser: Browser, space: commonplace.Space):
    space.threads.working.write("kept", resource="r")
    page = browser.get("/ui/threads?open=working:resource/r")
    for action, fields in ((WORKING, {"text": "changed"}), ("/ui/threads/clear-working", {})):
        assert browser.send(page, action, scope="nobody", **fields).status_code == 422
    assert space.threads.working.read(resource="r").content == "kept"  # type: ignore[union-attr]


def test_a_schema_that_refers_to_itself_gives_a_form_of_bounded_size():
    names = [f"n{number}" for number in range(100)]
    schema = {"type": "object", "properties": {name: {"$ref": "#"} for name in names}}
    fields = form_fields(schema, {})
    assert sum(1 for one in fields for _ in one.leaves()) <= MOST_FIELDS
    endless = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert form_fields(endless, {"x": "y"})[0].written == "y"


@pytest.mark.promise("page-undo")
def test_threads_and_messages_are_renamed_and_deleted_with_a_commit_to_undo(browser: Browser, space: commonplace.Space):
    talk(space, "t", 3)
    page = browser.get("/ui/threads?open=thread:t")
    space.threads.add("t", [{"role": "user", "content": "a new message is no conflict"}])
    renamed = browser.send(page, RENAME, title="Another title")
    assert f"Saved as commit {space.stats().commit}." in renamed.text
    assert space.threads.get("t").title == "Another title"
    conflict = browser.send(page, RENAME, title="A third one")
    assert conflict.status_code == 409
    assert "Another title" in conflict.text
    assert form_of(conflict.text, RENAME)["title"] == "A third one"
    browser.send(conflict, RENAME)
    assert space.threads.get("t").title == "A third one"
    deleted = browser.send(page, "/ui/threads/delete-message", message="t-1")
    assert f"Deleted as commit {space.stats().commit}." in deleted.text
    assert said(deleted.text) == ["t 0", "t 2", "a new message is no conflict"]
    assert browser.send(page, "/ui/threads/delete-message", message="t-1").status_code == 404
    gone = browser.send(page, "/ui/threads/delete")
    assert "There are no threads yet" in gone.text
    undo = browser.get(unescape(re.findall(r'data-undo href="([^"]+)"', gone.text)[0]))
    browser.send(undo, "/ui/undo")
    assert len(space.threads.messages("t").messages) == 3


@pytest.mark.promise("page-past")
def test_threads_are_shown_as_they_were_and_read_only(browser: Browser, space: commonplace.Space):
    talk(space, "t", 3)
    talk(space, "gone", 1)
    space.threads.working.write({"name": "Ana"}, thread="t")
    then = space.threads.working.read(thread="t").updated_at.isoformat().replace("+", "%2B")  # type: ignore[union-attr]
    space.threads.update("t", title="Renamed since")
    space.threads.update_message("t-0", content="changed since")
    space.threads.delete_messages(["t-1"])
    space.threads.add("t", [{"role": "user", "content": "later"}])
    space.threads.working.write({"name": "Ben"}, thread="t")
    space.threads.delete("gone")
    space.threads.create("Made later")
    listed = browser.get(f"/ui/threads?as_of={then}").text
    assert "Thread t" in listed
    assert "Thread gone" in listed
    assert "Made later" not in listed
    page = browser.get(f"/ui/threads?open=thread:t&as_of={then}").text
    assert said(page) == ["t 0", "t 1", "t 2"]
    assert "Thread t" in page
    assert form_of(page, WORKING)[field("name")] == "Ana"
    assert said(browser.get(f"/ui/threads?open=message:t-1&as_of={then}").text) == ["t 0", "t 1", "t 2"]
    assert said(browser.get(f"/ui/threads?open=thread:t&before=t-2&as_of={then}").text) == ["t 0", "t 1"]
    assert said(browser.get(f"/ui/threads?open=thread:gone&as_of={then}").text) == ["gone 0"]
    for text in (">Rename<", ">Delete<", "Delete thread", "Save working memory", "Clear working"):
        assert text not in page


@pytest.mark.promise("page-rights")
def test_a_reader_sees_threads_without_buttons(
    browser: Browser, space: commonplace.Space, make_key: Callable[..., str]
):
    talk(space, "t", 1)
    space.threads.working.write({"name": "Ana"}, thread="t")
    browser.sign_in(make_key("reader", actions=["read"]))
    page = browser.get("/ui/threads?open=thread:t")
    assert said(page.text) == ["t 0"]
    assert "readonly" in page.text
    for text in (">Rename<", ">Delete<", "Delete thread", "Save working memory", "Clear working"):
        assert text not in page.text
    assert browser.send(page, WORKING, **{field("name"): "Ben"}).status_code == 403
    assert space.threads.working.read(thread="t").content == {"name": "Ana"}  # type: ignore[union-attr]


@pytest.mark.promise("page-hostile-records")
def test_hostile_text_stays_text_in_every_place_of_a_thread(browser: Browser, space: commonplace.Space):
    space.threads.create(HOSTILE, id=HOSTILE, resource=HOSTILE)
    call = {"id": "c", "function": {"name": HOSTILE, "arguments": HOSTILE}}
    message = {"role": "user", "content": HOSTILE, "name": HOSTILE, "id": HOSTILE, "tool_calls": [call]}
    space.threads.add(HOSTILE, [message, {"role": "assistant", "content": [{"type": HOSTILE, "x": HOSTILE}]}])
    schema = {"properties": {HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "enum": [HOSTILE]}}}
    space.threads.working.write({HOSTILE: HOSTILE, "b": {HOSTILE: [HOSTILE]}}, thread=HOSTILE, schema=schema)
    for address in (
        "/ui/threads",
        f"/ui/threads?open=thread:{HOSTILE}",
        f"/ui/threads?open=message:{HOSTILE}",
        f"/ui/threads?open=working:thread/{HOSTILE}",
    ):
        page = browser.get(address)
        assert page.status_code == 200
        assert "alert(1)" in page.text
        for bad in ("<script>alert", "<img", 'onerror=alert(1)">'):
            assert bad not in page.text, address
    saved = browser.send(
        browser.get(f"/ui/threads?open=working:thread/{HOSTILE}"), WORKING, **{field("b", HOSTILE): "ok"}
    )
    assert saved.status_code == 200
    assert space.threads.working.read(thread=HOSTILE).content == {HOSTILE: HOSTILE, "b": {HOSTILE: ["ok"]}}  # type: ignore[union-attr]
