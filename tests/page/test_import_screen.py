"""Import on the page: choose a file, see what it holds, import it, undo it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from browsing import PAGE, Browser, Forms

import commonplace

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
    assert "tick the box" in browser.send(done, "/ui/import/undo", sure="").text
    assert len(space.threads.list().threads) == 4
    undone = browser.send(done, "/ui/import/undo", sure="yes")
    assert "Undid 2 commits" in undone.text
    assert space.threads.list().threads == ()


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
