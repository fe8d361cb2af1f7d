"""Import on the page: choose a file, see what it holds, import it, undo it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from browsing import PAGE, Browser, Forms

import commonplace
from commonplace.server.page import import_screen

SAMPLES = Path(__file__).parent.parent / "exchange" / "samples"
SQLITE_ONLY = pytest.mark.parametrize("book", ["sqlite"], indirect=True)


def send(browser: Browser, name: str, do: str, raw: bytes | None = None, **headers: str) -> httpx.Response:
    found = [form for form in Forms(browser.get("/ui/import").text).forms if form[1].split("?")[0] == "/ui/import"]
    _, address, given = found[0]
    content = (SAMPLES / name).read_bytes() if raw is None else raw
    origin = {**PAGE, "Sec-Fetch-Site": "same-origin", "Origin": str(browser.http.base_url).rstrip("/"), **headers}
    fields = {name: value for name, value in given.items() if name == "token"}
    return browser.http.post(
        address, data={**fields, "do": do}, files={"file": (Path(name).name, content)}, headers=origin
    )


def undo_address(done: httpx.Response) -> str:
    """Where the result of an import leads, to undo it."""
    found = re.search(r'href="(/ui/import/undo\?[^"]+)"', done.text)
    assert found is not None
    return html.unescape(found[1])


@pytest.mark.promise("page-import")
def test_a_file_is_looked_at_imported_and_undone(browser: Browser, space: commonplace.Space):
    seen = send(browser, "chatgpt/conversations.json", "look")
    assert seen.status_code == 200
    assert "ChatGPT export: conversations.json" in seen.text
    assert "Tea in Porto" in seen.text
    assert "it is hidden" in seen.text
    assert space.threads.list().threads == ()
    done = send(browser, "chatgpt/conversations.json", "import")
    assert "Imported" in done.text
    assert len(space.threads.list().threads) == 4
    preview = browser.get(undo_address(done))
    assert "Undoing makes 2 new commits" in preview.text
    assert (
        preview.text.count("<bdi>is removed</bdi>")
        == space.stats().entries["thread"] + space.stats().entries["message"]
    )
    assert len(space.threads.list().threads) == 4
    undone = browser.send(preview, "/ui/import/undo")
    assert "Undid 2 commits" in undone.text
    assert space.threads.list().threads == ()


def test_the_preview_of_an_import_names_what_was_changed_since(browser: Browser, space: commonplace.Space):
    done = send(browser, "x.md", "import", b"tide tables")
    [change] = space.changes()[-1:]
    space.files.edit(change.key, lambda text: f"{text} of Porto")
    preview = browser.get(undo_address(done))
    assert f"file {change.key} was changed since" in preview.text
    kept = browser.send(preview, "/ui/import/undo")
    assert "Undid 0 commits" in kept.text
    assert space.files.read(change.key) == "tide tables of Porto"


@SQLITE_ONLY
def test_a_long_import_is_undone_without_a_preview_of_each_change(
    browser: Browser, space: commonplace.Space, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(import_screen, "MOST_PREVIEWED", 2)
    done = send(browser, "chatgpt/conversations.json", "import")
    preview = browser.get(undo_address(done))
    assert "It has more than 2 changes" in preview.text
    browser.send(preview, "/ui/import/undo")
    assert space.threads.list().threads == ()


@SQLITE_ONLY
def test_only_an_import_is_undone_there(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "alpha")
    assert browser.get(f"/ui/import/undo?commits={space.stats().commit}").status_code == 404
    assert browser.get("/ui/import/undo?commits=x").status_code == 422


@SQLITE_ONLY
def test_a_script_gets_the_result_alone(browser: Browser):
    part = send(browser, "server-memory/memory.jsonl", "look", **{"HX-Request": "true"})
    assert part.status_code == 200
    assert "<html" not in part.text
    assert "server-memory graph" in part.text


@SQLITE_ONLY
def test_what_cannot_be_imported_is_said_in_words(browser: Browser, space: commonplace.Space, book: commonplace.Book):
    refused = send(browser, "x.png", "import", b"\x89PNG\x00")
    assert refused.status_code == 422
    assert "nothing that can be imported" in refused.text
    assert "Choose a file first" in send(browser, "x.md", "import", b"").text
    space.files.write("/a", "b")
    lines: list[bytes] = []
    book.export(lines.append)
    own = send(browser, "memory.jsonl", "look", b"".join(lines))
    assert "this is an export of commonplace" in own.text
    assert "import_lines" not in own.text
    hostile = send(browser, "x.md", "look", b"<script>alert(1)</script>")
    assert "<script>alert" not in hostile.text


@SQLITE_ONLY
def test_a_reader_cannot_import_and_nobody_without_the_token(browser: Browser, make_key: Callable[..., str]):
    address = browser.http.base_url
    foreign = browser.http.post(
        "/ui/import", data={"do": "import"}, files={"file": ("x.md", b"x")}, headers={**PAGE, "Origin": str(address)}
    )
    assert foreign.status_code == 403
    browser.sign_in(make_key("reader", "user/r", actions=["read"]))
    page = browser.get("/ui/import")
    assert "cannot import" in page.text
    assert 'type="file"' not in page.text
