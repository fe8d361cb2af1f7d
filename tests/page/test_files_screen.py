"""Files on the page: reading, editing, conflicts that lose nothing, moving, deleting."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

import pytest
from browsing import Browser, Forms

import commonplace
from commonplace.server.page.files_screen import beginning, with_line_ends_of


def form_of(page: str, action: str) -> dict[str, str]:
    return next(fields for _, address, fields in Forms(page).forms if address.split("?")[0] == action)


def test_a_file_is_shown_as_text_and_rendered_with_its_tree(browser: Browser, space: commonplace.Space):
    space.files.write("/notes/2026/a.md", "# Plan\n\nsome **bold** words")
    space.files.write("/other/b.md", "b")
    page = browser.get("/ui/files?open=file:/notes/2026/a.md").text
    assert "# Plan\n\nsome **bold** words" in page
    assert "<h3>Plan</h3>" in page
    assert "<strong>bold</strong>" in page
    assert "<bdi>2026/</bdi>" in page
    assert "<bdi>other/</bdi>" in page
    assert "b.md" not in page
    assert "revision 1" in page
    assert "by <bdi>a test</bdi>" in page


def test_the_tree_is_unfolded_a_step_at_a_time_and_in_pages(browser: Browser, space: commonplace.Space):
    space.files.write_all({f"/many/{number:04}.md": "x" for number in range(250)})
    top = browser.get("/ui/files").text
    assert "many/" in top
    assert "0001.md" not in top
    part = browser.get("/ui/files/folder?open=directory:/many", **{"HX-Request": "true"}).text
    assert "<html" not in part
    assert "0199.md" in part
    assert "0200.md" not in part
    rest = unescape(part.rsplit('href="', 1)[1].split('"')[0])
    assert "0249.md" in browser.get(rest).text


@pytest.mark.promise("page-undo")
def test_an_edit_is_saved_and_named_with_its_commit(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "\nfirst line is empty\n")
    page = browser.get("/ui/files/edit?open=file:/a.md")
    assert form_of(page.text, "/ui/files/save")["text"] == "\nfirst line is empty\n"
    saved = browser.send(page, "/ui/files/save", text="one\r\ntwo & <three>\r\n")
    assert space.files.read("/a.md") == "one\ntwo & <three>\n"
    assert f"Saved as commit {space.stats().commit}." in saved.text
    assert space.history("file", "/a.md")[-1].actor == "local page"
    same = browser.send(browser.get("/ui/files/edit?open=file:/a.md"), "/ui/files/save")
    assert "data-toast" not in same.text
    assert len(space.history("file", "/a.md")) == 2


@pytest.mark.promise("page-conflict-loses-nothing")
def test_a_conflict_shows_both_texts_and_keeps_what_was_typed(
    browser: Browser, new_browser: Callable[[], Browser], space: commonplace.Space
):
    space.files.write("/a.md", "as it was")
    mine, other = browser.get("/ui/files/edit?open=file:/a.md"), new_browser()
    other.send(other.get("/ui/files/edit?open=file:/a.md"), "/ui/files/save", text="what they wrote")
    conflict = browser.send(mine, "/ui/files/save", text="what I wrote")
    assert conflict.status_code == 409
    assert "what they wrote" in conflict.text
    assert form_of(conflict.text, "/ui/files/save")["text"] == "what I wrote"
    assert space.files.read("/a.md") == "what they wrote"
    browser.send(conflict, "/ui/files/save")
    assert space.files.read("/a.md") == "what I wrote"
    assert space.state("file", "/a.md", 2).value == "what they wrote"


@pytest.mark.promise("page-conflict-loses-nothing")
def test_a_file_that_was_deleted_or_made_meanwhile_is_a_conflict_too(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "as it was")
    editing = browser.get("/ui/files/edit?open=file:/a.md")
    space.files.delete("/a.md")
    conflict = browser.send(editing, "/ui/files/save", text="mine")
    assert "was deleted while you were editing" in conflict.text
    browser.send(conflict, "/ui/files/save")
    assert space.files.read("/a.md") == "mine"
    new = browser.get("/ui/files/new?open=directory:/")
    conflict = browser.send(new, "/ui/files/save", path="/a.md", text="another")
    assert conflict.status_code == 409
    assert space.files.read("/a.md") == "mine"


@pytest.mark.promise("page-conflict-loses-nothing")
def test_what_was_changed_meanwhile_is_deleted_only_after_its_change_was_seen(
    browser: Browser, space: commonplace.Space
):
    space.files.write("/a.md", "as it was")
    id = space.records.create(type="fact", content="the crane is red", source="test", confidence=1).id
    file, record = browser.get("/ui/files?open=file:/a.md"), browser.get(f"/ui/records?open=record:{id}")
    space.files.write("/a.md", "as it became")
    space.records.update(id, content="the crane is green")
    for page, action, changed in ((file, "/ui/files/delete", "became"), (record, "/ui/records/delete", "green")):
        conflict = browser.send(page, action)
        assert conflict.status_code == 409
        assert "Nothing was deleted" in conflict.text
        assert f"added: </span>{changed}<" in conflict.text
        assert space.stats().entries["file" if "file" in action else "record"] == 1
        assert "Deleted as commit" in browser.send(conflict, action).text
    assert (space.stats().entries.get("file", 0), space.stats().entries.get("record", 0)) == (0, 0)
    assert browser.send(file, "/ui/files/delete").status_code == 404


def test_a_file_keeps_its_expiry_and_its_ends_of_line(browser: Browser, space: commonplace.Space):
    space.files.write("/a.txt", "one\r\ntwo\r\n", ttl_seconds=3_600)
    before = space.state("file", "/a.txt", 1).expires_at
    browser.send(browser.get("/ui/files/edit?open=file:/a.txt"), "/ui/files/save", text="one\r\n2\r\n")
    assert space.files.read("/a.txt") == "one\r\n2\r\n"
    assert space.state("file", "/a.txt", 2).expires_at == before
    assert with_line_ends_of("a\r\nb\n", "x\ny") == "x\ny"


def test_a_new_file_is_made_where_its_path_says(browser: Browser, space: commonplace.Space):
    new = browser.get("/ui/files/new?open=directory:/notes")
    assert form_of(new.text, "/ui/files/save")["path"] == "/notes/"
    made = browser.send(new, "/ui/files/save", path="/notes/zoë & co.md", text="hello")
    assert made.status_code == 200
    assert "zoë &amp; co.md" in made.text
    assert space.files.read("/notes/zoë & co.md") == "hello"
    refused = browser.send(browser.get("/ui/files/new?open=directory:/"), "/ui/files/save", path="/../x", text="t")
    assert refused.status_code == 422


def test_files_and_folders_are_moved_and_deleted(browser: Browser, space: commonplace.Space):
    space.files.write("/notes/a.md", "alpha")
    moved = browser.send(browser.get("/ui/files?open=file:/notes/a.md"), "/ui/files/move", to="/old/b.md")
    assert "Moved as commit" in moved.text
    assert space.files.read("/old/b.md") == "alpha"
    folder = browser.send(browser.get("/ui/files?open=directory:/old"), "/ui/files/move", to="/older")
    assert "<bdi>/older</bdi>" in folder.text
    deleted = browser.send(folder, "/ui/files/delete")
    assert "Deleted as commit" in deleted.text
    assert not space.files.exists("/older")


def test_a_long_file_is_shown_in_part_and_downloaded_whole(browser: Browser, space: commonplace.Space):
    text = "a line of words\n" * 20_000
    space.files.write("/long.md", text)
    page = browser.get("/ui/files?open=file:/long.md")
    assert len(page.text) < 150_000
    assert "Show all of it" in page.text
    assert len(browser.get("/ui/files?open=file:/long.md&whole=1").text) > len(text)
    found = browser.get("/ui/files/download?open=file:/long.md")
    assert found.text == text
    assert found.headers["content-disposition"].startswith("attachment")
    assert beginning("one\ntwo\nthree", 9) == "one\ntwo\n"
    assert beginning("a" * 20, 9) == "a" * 9


def test_the_past_is_read_only(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "as it was")
    then = space.files.stat("/a.md").updated_at.isoformat().replace("+", "%2B")
    space.files.write("/a.md", "as it is")
    page = browser.get(f"/ui/files?open=file:/a.md&as_of={then}").text
    assert "as it was" in page
    for word in ("Edit", "Delete", "Move", "New file"):
        assert f">{word}<" not in page
