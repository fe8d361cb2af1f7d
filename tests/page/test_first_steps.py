"""An empty memory says what to do first, and the sample memory comes and goes without touching anything else."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from browsing import PAGE, Browser

import commonplace
from commonplace.exchange import namespaces_of
from commonplace.server.page.connect_screen import SAMPLE_FILE, SAMPLE_MARK, sample_lines

SQLITE_ONLY = pytest.mark.parametrize("book", ["sqlite"], indirect=True)
ALL = ["read", "write", "delete", "admin"]


# An empty memory


@pytest.mark.promise("page-first-steps")
@pytest.mark.parametrize("path", ["/ui", "/ui/files"])
def test_an_empty_memory_offers_a_client_a_note_and_the_sample(browser: Browser, path: str):
    page = browser.get(path)
    assert "Nothing is remembered here yet" in page.text
    assert 'href="/ui/connect"' in page.text
    saved = browser.send(page, "/ui/files/save", path="/notes/first.md", text="Hello")
    assert saved.url.path == "/ui/files"
    assert "Hello" in saved.text
    assert "Nothing is remembered here yet" not in browser.get(path).text


@SQLITE_ONLY
def test_a_memory_without_files_is_not_an_empty_one(browser: Browser, space: commonplace.Space):
    space.records.create(type="fact", content="alpha", source="a test", confidence=1.0)
    assert "Nothing is remembered here yet" not in browser.get("/ui/files").text


@SQLITE_ONLY
def test_the_first_steps_are_those_that_the_caller_may_take(browser: Browser, make_key: Callable[..., str]):
    for number, (options, has_form, has_sample) in enumerate(
        (
            ({"actions": ["read"]}, False, False),
            ({"actions": ALL}, True, False),
            ({"actions": ["read", "write"], "reach": "all"}, True, False),
            ({"actions": ALL, "reach": "below"}, True, True),
        )
    ):
        browser.sign_in(make_key(f"key{number}", f"user/{number}", **options))
        page = browser.get("/ui").text
        assert ("Save the note" in page) == has_form
        assert ("Load the sample memory" in page) == has_sample
        browser.send(browser.get("/ui"), "/ui/sign-out")


# The sample


@pytest.mark.promise("page-sample")
def test_the_sample_comes_with_one_click_and_goes_with_one(
    browser: Browser, space: commonplace.Space, book: commonplace.Book
):
    loaded = browser.send(browser.get("/ui"), "/ui/sample")
    assert str(loaded.url).endswith("/ui?ns=sample")
    assert "This is the sample memory" in loaded.text
    assert space.stats().entries == {}
    assert sum(book.space("sample").stats().entries.values()) > 50
    space.files.write("/mine.md", "mine")
    asked = browser.get("/ui/sample/remove?ns=sample")
    assert "is erased" in asked.text
    assert book.space("sample").stats().entries
    removed = browser.send(asked, "/ui/sample/remove")
    assert str(removed.url).endswith("/ui")
    assert not any(book.space("sample").stats().entries.values())
    assert book.space("sample").history("file", SAMPLE_MARK[0]) == []
    assert space.files.read("/mine.md") == "mine"
    assert browser.get("/ui/sample/remove").status_code == 404
    assert "Load the sample memory" in browser.get("/ui/namespaces").text


@SQLITE_ONLY
@pytest.mark.promise("page-sample")
def test_what_somebody_keeps_under_the_name_of_the_sample_is_not_touched(browser: Browser, book: commonplace.Book):
    own = book.space("sample", actor="me")
    own.files.write("/about-this-memory.md", "mine")
    page = browser.get("/ui")
    assert "Load the sample memory" not in page.text
    token = page.text.split('name="token" value="')[1].split('"')[0]
    assert browser.http.post("/ui/sample", data={"token": token}, headers=PAGE).status_code == 409
    assert browser.get("/ui/sample/remove").status_code == 404
    assert browser.http.post("/ui/sample/remove", data={"token": token}, headers=PAGE).status_code == 404
    assert own.files.read("/about-this-memory.md") == "mine"


@SQLITE_ONLY
@pytest.mark.promise("page-sample")
def test_the_sample_of_a_key_is_below_its_own_namespace(
    browser: Browser, make_key: Callable[..., str], book: commonplace.Book
):
    browser.sign_in(make_key("ada", "user/ada", reach="below", actions=ALL))
    browser.send(browser.get("/ui"), "/ui/sample")
    assert book.namespaces() == [("user", "ada", "sample")]
    browser.send(browser.get("/ui/sample/remove"), "/ui/sample/remove")
    assert not any(book.space("user", "ada", "sample").stats().entries.values())


@SQLITE_ONLY
def test_without_the_rights_the_sample_neither_comes_nor_goes(
    browser: Browser, make_key: Callable[..., str], book: commonplace.Book
):
    list(book.import_lines(BytesIO(sample_lines(("sample",)))))
    before = book.space("sample").stats()
    for name, options in (("own", {"actions": ALL}), ("writer", {"reach": "all"})):
        browser.sign_in(make_key(name, "user/ada", **options))
        page = browser.get("/ui")
        token = page.text.split('name="token" value="')[1].split('"')[0]
        for path in ("/ui/sample", "/ui/sample/remove"):
            assert browser.http.post(path, data={"token": token}, headers=PAGE).status_code == 403
        browser.send(browser.get("/ui"), "/ui/sign-out")
    assert book.space("sample").stats() == before


@SQLITE_ONLY
def test_the_sample_has_a_history_to_look_at(book: commonplace.Book):
    list(book.import_lines(BytesIO(sample_lines(("sample",)))))
    space = book.space("sample")
    changes = space.changes()
    assert {"created", "updated", "deleted", "restored", "moved_here", "moved_away"} <= {one.action for one in changes}
    assert {"file", "record", "thread", "message", "working"} <= set(space.stats().entries)
    assert "typed in by hand" in space.files.read("/tideline/decisions.md", as_of="2026-10-01T00:00:00Z")
    assert "predicted" in space.files.read("/tideline/decisions.md")
    first, last = changes[0].at, changes[-1].at
    assert (last - first) / 86_400e6 > 40
    assert space.search("how much water does a boat need?")[0].kind == "record"


@SQLITE_ONLY
def test_the_sample_is_what_its_script_makes(book: commonplace.Book):
    path = Path(__file__).parent.parent.parent / "scripts" / "sample_memory.py"
    spec = importlib.util.spec_from_file_location("sample_memory", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.made() == SAMPLE_FILE.read_bytes()
    assert list(namespaces_of(BytesIO(sample_lines(("team", "sample"))))) == [("team", "sample")]
