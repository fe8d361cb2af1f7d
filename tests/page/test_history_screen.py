"""History, the past and what is new, as a person meets them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from html import unescape
from urllib.parse import quote, urlsplit

import pytest
from browsing import PAGE, Browser

import commonplace
from commonplace.server.http.auth_middleware import EventStreams
from commonplace.server.http.service import Service
from commonplace.server.page.templates import Author, author_of
from commonplace.server.page.visit import SPARK_HEIGHT, SPARKS, outline

SQLITE_ONLY = pytest.mark.parametrize("book", ["sqlite"], indirect=True)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\u202e"


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def moment_of(space: commonplace.Space, path: str) -> str:
    return space.files.stat(path).updated_at.isoformat().replace("+00:00", "Z")


def link_to(page: str, path: str) -> str:
    """The first link of a page that leads to a path."""
    return unescape(next(url for url in re.findall(r'href="([^"]+)"', page) if url.split("?")[0] == path))


# Commits


@pytest.mark.promise("page-history")
def test_commits_show_who_did_what_through_which_interface(browser: Browser, book: commonplace.Book):
    book.space("user", "default", actor="ada mcp claude-code").files.write("/notes/a.md", "one")
    book.space("user", "default", actor="bot rest").records.create(
        type="fact", content="The harbour opens at nine", source="a test", confidence=0.5
    )
    book.space("user", "default", actor="cli").files.delete("/notes")
    page = browser.get("/ui/history").text
    shown = plain(page)
    assert shown.index("Commit 3") < shown.index("Commit 2") < shown.index("Commit 1")
    assert re.search(r"by\s+ada\s+through MCP \(claude-code\)", shown)
    assert re.search(r"by\s+bot\s+through REST", shown)
    assert "through the command line" in shown
    assert "The harbour opens at nine" in shown
    assert shown.count("2 changes") == 2
    assert "/notes/a.md" in shown


def test_a_deleted_record_is_named_by_how_its_text_began_until_it_is_erased(browser: Browser, space: commonplace.Space):
    text = "The harbour opens at nine, " + "and the crane starts when the tide turns, " * 10
    record = space.records.create(type="fact", content=text, source="a test", confidence=0.5)
    space.records.delete(record.id)
    beginning = text[:80].rstrip() + "…"
    assert plain(browser.get("/ui/history").text).count(beginning) == 2
    assert beginning in plain(browser.get("/ui/history/commit?commit=2").text)
    space.purge("record", record.id)
    assert "harbour" not in browser.get("/ui/history").text


def test_an_actor_is_read_as_who_through_what():
    assert author_of("ada page") == Author("ada", "the page", None)
    assert author_of("ann lee mcp Claude Code 1.2") == Author("ann lee", "MCP", "Claude Code 1.2")
    assert author_of("mcp") == Author(None, "MCP", None)
    assert author_of("a cron job") == Author("a cron job", None, None)
    assert author_of(None) == author_of("") == Author(None, None, None)


@SQLITE_ONLY
def test_commits_come_in_pages(browser: Browser, space: commonplace.Space):
    for number in range(30):
        space.files.write("/a.md", f"text {number}")
    first = browser.get("/ui/history")
    assert first.text.count('class="commit"') == 25
    second = browser.get(link_to(first.text.split('rel="next"')[1], "/ui/history"))
    assert second.text.count('class="commit"') == 5
    assert "Older →" not in second.text
    for bad in ("before=x", "before=-1", "before=1e3", "open=nonsense:a", "open=file:/never"):
        assert browser.get(f"/ui/history?{bad}").status_code in (404, 422)


@pytest.mark.promise("page-word-diff")
def test_a_commit_shows_each_change_as_a_word_diff(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "We deploy on Tuesday at ten.")
    record = space.records.create(type="fact", content="tea", source="chat", confidence=0.5, tags=["drinks"])
    space.files.write("/a.md", "We deploy on Thursday at ten.")
    page = browser.get("/ui/history/commit?commit=3").text
    assert re.search(r"on <del><span[^>]*> removed: </span>Tuesday<span", page)
    assert re.search(r"</del><ins><span[^>]*> added: </span>Thursday<span[^>]*> \(end\) </span></ins> at ten\.", page)
    space.records.update(record.id, content="coffee", tags=["drinks", "mornings"])
    page = plain(browser.get("/ui/history/commit?commit=4").text)
    assert "removed: tea" in page
    assert "added: coffee" in page
    assert re.search(r"tags\s+drinks added: , mornings", page)
    space.files.delete("/a.md")
    assert "removed: We deploy on Thursday at ten." in plain(browser.get("/ui/history/commit?commit=5").text)
    assert browser.get("/ui/history/commit?commit=99").status_code == 404
    assert browser.get("/ui/history/commit?commit=0").status_code == 404


@SQLITE_ONLY
def test_a_commit_of_many_changes_comes_in_pages(browser: Browser, space: commonplace.Space):
    space.files.write_all({f"/many/{number}.md": f"text {number}" for number in range(50)})
    pages = [browser.get(f"/ui/history/commit?commit=1&page={number}").text for number in (1, 2, 3)]
    assert [page.count('<section class="changed"') for page in pages] == [20, 20, 11]
    assert "51 changes" in plain(browser.get("/ui/history").text)
    assert "and 48 more" in plain(browser.get("/ui/history").text)


@SQLITE_ONLY
def test_hostile_texts_paths_and_actors_are_escaped_everywhere(browser: Browser, book: commonplace.Book):
    space = book.space("user", "default", actor=f"{HOSTILE} mcp {HOSTILE}")
    path = "/" + HOSTILE.replace("/", "_").replace("\u202e", "")
    space.files.write(path, f"old {HOSTILE}")
    space.files.write(path, f"new {HOSTILE} text")
    record = space.records.create(type=HOSTILE[:20], content=HOSTILE, source="s", confidence=1)
    space.records.update(record.id, content=f"{HOSTILE} 2")
    then = moment_of(space, path)
    opened = quote(f"file:{path}")
    for address in (
        "/ui/history",
        "/ui/history/commit?commit=2",
        "/ui/history/commit?commit=4",
        f"/ui/history?open={opened}",
        f"/ui/history?open=record:{record.id}",
        f"/ui/history/compare?from=1&to=4&open={opened}",
        "/ui/history/compare?from=0&to=4",
        "/ui/undo?commit=4",
        f"/ui/restore?open={opened}&revision=1",
        "/ui/as-of",
        f"/ui/files?as_of={then}",
        f"/ui/as-of/moment?at={quote('9' * 15)}",
    ):
        page = browser.get(address)
        assert page.status_code == 200, address
        for raw in ("<script>alert", "<img src=x"):
            assert raw not in page.text, address
    assert "alert(1)" in browser.get(f"/ui/history?open={opened}").text


# One entry


def test_an_entry_has_its_history_with_the_newest_first(browser: Browser, space: commonplace.Space):
    for text in ("one", "one two", "one two three"):
        space.files.write("/a.md", text)
    page = browser.get("/ui/history?open=file:/a.md").text
    shown = plain(page)
    assert shown.index("Revision 3") < shown.index("Revision 2") < shown.index("Revision 1")
    assert "added:  three" in shown
    assert page.count("Restore this…") == 2
    assert page.count('type="radio" name="from"') == 3
    compared = plain(browser.get("/ui/history/compare?open=file:/a.md&from=1&to=3").text)
    assert re.search(r"one added:  two three", compared)
    swapped = plain(browser.get("/ui/history/compare?open=file:/a.md&from=3&to=1").text)
    assert "added:  two three" in swapped
    assert "did not exist" in plain(browser.get("/ui/history/compare?open=file:/a.md&from=0&to=3").text)


@pytest.mark.promise("page-restore")
def test_one_entry_is_restored_after_its_difference_was_shown(browser: Browser, space: commonplace.Space):
    space.files.write("/notes/a.md", "as it was")
    space.files.write("/notes/a.md", "as it is")
    preview = browser.get("/ui/restore?open=file:/notes/a.md&revision=1")
    assert "removed: is" in plain(preview.text)
    assert "added: was" in plain(preview.text)
    assert space.files.read("/notes/a.md") == "as it is"
    restored = browser.send(preview, "/ui/restore")
    assert restored.url.path == "/ui/files"
    assert "Restored as commit 3." in restored.text
    assert space.files.read("/notes/a.md") == "as it was"
    space.files.delete("/notes")
    restored = browser.send(browser.get("/ui/restore?open=file:/notes/a.md&revision=2"), "/ui/restore")
    assert space.files.read("/notes/a.md") == "as it is"


@pytest.mark.promise("page-restore")
def test_a_restore_of_what_was_changed_meanwhile_asks_again(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "one")
    space.files.write("/a.md", "two")
    preview = browser.get("/ui/restore?open=file:/a.md&revision=1")
    space.files.write("/a.md", "three")
    refused = browser.send(preview, "/ui/restore")
    assert refused.status_code == 409
    assert "Nothing was changed" in plain(refused.text)
    assert "removed: three" in plain(refused.text)
    assert space.files.read("/a.md") == "three"
    browser.send(refused, "/ui/restore")
    assert space.files.read("/a.md") == "one"


# Undo


@pytest.mark.promise("page-undo-preview")
def test_undo_shows_what_would_change_and_names_conflicts(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "alpha")
    space.files.write_all({"/a.md": "beta", "/b.md": "new"}, overwrite=True)
    preview = browser.get("/ui/undo?commit=2")
    shown = plain(preview.text)
    assert re.search(r"/a.md\s+goes back to what it was", shown)
    assert re.search(r"/b.md\s+is removed", shown)
    assert "removed: beta" in shown
    assert "added: alpha" in shown
    space.files.write("/b.md", "edited since")
    refused = browser.send(preview, "/ui/undo")
    assert refused.status_code == 409
    assert "file /b.md was changed since" in plain(refused.text)
    assert space.files.read("/a.md") == "beta"
    again = browser.get("/ui/undo?commit=2").text
    assert "file /b.md was changed since" in plain(again)
    assert "<button" not in again.split("<main")[1]


# Two moments


@pytest.mark.promise("page-compare")
def test_two_moments_are_compared_entry_by_entry(browser: Browser, space: commonplace.Space):
    space.files.write("/kept.md", "kept")
    space.files.write("/changed.md", "old words")
    space.files.write("/changed.md", "new words")
    space.files.write("/created.md", "created")
    page = browser.get("/ui/history/compare?from=2&to=4").text
    shown = plain(page)
    assert re.search(r"/changed.md\s+changed", shown)
    assert re.search(r"/created.md\s+created", shown)
    assert "/kept.md" not in shown
    entry = plain(browser.get(link_to(page.split("/created.md")[-1], "/ui/history/compare")).text)
    assert "removed: old" in entry
    assert "Nothing differs" in browser.get("/ui/history/compare?from=4&to=4").text
    assert browser.get("/ui/history/compare?from=a&to=4").status_code == 422
    assert browser.get("/ui/history/compare?from=0&to=4&cursor=x").status_code == 422


@SQLITE_ONLY
def test_many_differences_come_in_pages(browser: Browser, space: commonplace.Space):
    space.files.write("/first.md", "first")
    space.files.write_all({f"/many/{number}.md": "text" for number in range(450)})
    found: set[str] = set()
    page = browser.get("/ui/history/compare?from=1&to=2").text
    for _ in range(10):
        found.update(re.findall(r"<bdi>(/many/\d+\.md)</bdi>", page))
        if 'rel="next"' not in page:
            break
        page = browser.get(link_to(page.split('rel="next"')[1], "/ui/history/compare")).text
    assert len(found) == 450


# As of


@pytest.mark.promise("page-as-of")
def test_the_slider_leads_to_a_moment_that_every_screen_shows(browser: Browser, space: commonplace.Space):
    space.files.write("/notes/a.md", "The old harbour")
    space.files.write("/other/b.md", "elsewhere")
    then = space.files.stat("/other/b.md").updated_at
    space.files.write("/notes/a.md", "The new lighthouse")
    space.files.move("/other", "/moved")
    space.files.write("/later.md", "written later")
    slider = browser.get("/ui/as-of").text
    form = slider.split("data-time-bar")[1]
    least, most = (int(re.findall(rf'{name}="(\d+)"', form)[0]) for name in ("min", "max"))
    at = int(then.timestamp() * 1_000_000) + 1
    assert least <= at <= most
    moved = browser.get(f"/ui/as-of?at={at}&back={quote('/ui/files?open=file:/notes/a.md')}")
    assert moved.url.path == "/ui/files"
    assert "as_of=" in str(moved.url)
    assert "The old harbour" in moved.text
    assert "You are looking at the past" in moved.text
    assert 'type="range"' in moved.text
    assert 'class="past"' in moved.text
    assert "<bdi>other/</bdi>" in moved.text
    for later in ("later.md", "moved/"):
        assert f"<bdi>{later}</bdi>" not in moved.text
    as_of = then.isoformat().replace("+00:00", "Z")
    assert "b.md" in browser.get(f"/ui/files?open=directory:/other&as_of={as_of}").text
    part = browser.get(f"/ui/files/folder?open=directory:/other&as_of={as_of}", **{"HX-Request": "true"})
    assert "<bdi>b.md</bdi>" in part.text
    assert browser.get(f"/ui/files?open=directory:/moved&as_of={as_of}").status_code == 404
    found = plain(browser.get(f"/ui?q=harbour+lighthouse&as_of={as_of}").text)
    assert "The old harbour" in found
    assert "new lighthouse" not in found
    history = plain(browser.get(f"/ui/history?as_of={as_of}").text)
    assert "Commit 2" in history
    assert "Commit 3" not in history.split("<main")[-1].split("History", 1)[1].replace("Later: commit 3", "")


@pytest.mark.promise("page-as-of")
def test_links_lead_to_the_commits_around_a_moment(browser: Browser, space: commonplace.Space):
    for number in range(1, 5):
        space.files.write("/a.md", f"text number {number}")
    page = browser.get("/ui/files?open=file:/a.md&as_of=" + moment_of(space, "/a.md"))
    for number in (3, 2, 1):
        page = browser.get(link_to(page.text.split('rel="prev"')[1], "/ui/files"))
        assert f"text number {number}" in page.text
    assert 'rel="prev"' not in page.text
    page = browser.get(link_to(page.text.split('rel="next"')[1], "/ui/files"))
    assert "text number 2" in page.text
    now = browser.get(link_to(page.text.split("Nothing can be changed here.")[1], "/ui/files"))
    assert "text number 4" in now.text
    assert "the past" not in now.text


@SQLITE_ONLY
def test_the_slider_previews_a_moment(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "one")
    at = int(space.files.stat("/a.md").updated_at.timestamp() * 1_000_000) + 1
    space.files.write("/b.md", "two")
    part = browser.get(f"/ui/as-of/moment?at={at}", **{"HX-Request": "true"}).text
    assert "Commit 1" in part
    assert "/a.md" in part
    assert "<html" not in part
    assert "Before the first commit" in browser.get("/ui/as-of/moment?at=5").text
    assert "Commit 2" in browser.get(f"/ui/as-of/moment?at={'9' * 18}").text
    for bad in ("x", "-1", "9" * 30, ""):
        assert browser.get(f"/ui/as-of/moment?at={bad}").status_code == 422
    elsewhere = browser.get(f"/ui/as-of?at={at}&back=https://elsewhere.example/")
    assert elsewhere.url.host == browser.http.base_url.host
    assert elsewhere.url.path == "/ui/as-of"


@SQLITE_ONLY
def test_an_empty_memory_has_no_past(browser: Browser):
    for path in ("/ui/history", "/ui/as-of", "/ui/history/compare", "/ui?as_of=2026-01-01T00:00:00Z"):
        page = browser.get(path)
        assert page.status_code == 200
        assert 'type="range"' not in page.text


@pytest.mark.promise("page-restore")
def test_the_past_is_read_only_and_one_entry_is_taken_back(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "as it was")
    then = moment_of(space, "/a.md")
    space.files.delete("/a.md")
    page = browser.get(f"/ui/files?open=file:/a.md&as_of={then}")
    assert "<form" not in page.text.split("<main")[1]
    assert "Undo" not in browser.get(f"/ui/history?as_of={then}").text
    preview = browser.get(link_to(page.text, "/ui/restore"))
    assert "as it was" in preview.text
    restored = browser.send(preview, "/ui/restore")
    assert "as_of" not in str(restored.url)
    assert space.files.read("/a.md") == "as it was"


def test_a_sparkline_has_a_step_for_each_part():
    assert outline([0, 4, 1]) == f"M0 {SPARK_HEIGHT}V{SPARK_HEIGHT}h1V0h1V{SPARK_HEIGHT // 2}h1V{SPARK_HEIGHT}Z"
    assert outline([0.0] * SPARKS).count("h1") == SPARKS


# Live


def counts(browser: Browser, address: str, wanted: int, done: Callable[[], None]) -> list[str]:
    """The first messages of a stream; `done` is called once it is open."""
    found: list[str] = []
    with browser.http.stream("GET", address, headers={"Accept": "text/event-stream"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        writer = threading.Thread(target=done)
        writer.start()
        for line in stream.iter_lines():
            if line.startswith("data: "):
                found.append(line.removeprefix("data: "))
            if len(found) == wanted:
                break
        writer.join()
    return found


@pytest.mark.promise("page-live")
def test_a_page_is_told_how_much_is_new_since_it_was_opened(
    browser: Browser, space: commonplace.Space, make_key: Callable[..., str]
):
    space.files.write("/a.md", "before")
    browser.sign_in(make_key("ada"))
    page = browser.get("/ui/files").text
    address = unescape(page.split('data-live="')[1].split('"')[0])
    assert urlsplit(address).query == "after=1"
    assert 'role="status" aria-live="polite"' in page

    def write() -> None:
        space.files.write("/b.md", "new")
        space.files.write_all({"/c.md": "new", "/d.md": "new"})

    assert counts(browser, address, 2, write) == ["1", "3"]
    assert counts(browser, address, 2, lambda: None) == ["1", "3"]  # a stream that begins again counts again
    assert "data-live" not in browser.get("/ui/files?as_of=2030-01-01T00:00:00Z").text
    assert "data-live" not in browser.get("/ui/files/edit?open=file:/a.md").text


@pytest.mark.promise("page-live")
def test_a_stream_needs_the_rights_of_its_page(browser: Browser, new_browser: Callable[[], Browser], make_key):
    browser.sign_in(make_key("ada", "user/ada"))
    refused = browser.http.get("/ui/live?after=0&ns=user/bob", headers=PAGE)
    assert refused.status_code == 403
    assert not refused.headers["content-type"].startswith("text/event-stream")
    assert new_browser().http.get("/ui/live?after=0", headers=PAGE).status_code == 303
    assert browser.http.get("/ui/live?after=x", headers=PAGE).status_code == 422


@pytest.mark.promise("page-live")
@pytest.mark.parametrize("how", ["revoked", "signed out"])
def test_a_stream_ends_when_its_key_is_revoked_or_its_person_signs_out(
    quick_looks: None, browser: Browser, service: Service, make_key: Callable[..., str], how: str
):
    make_key("other")
    browser.sign_in(make_key("ada"))
    page = browser.get("/ui/connect")
    begin = time.monotonic()
    with browser.http.stream("GET", "/ui/live?after=0", headers=PAGE) as stream:
        assert stream.status_code == 200
        if how == "revoked":
            service.access.keys.revoke("ada")
        else:
            browser.send(page, "/ui/sign-out")
        assert not [line for line in stream.iter_lines() if line.startswith("data: ")]
    assert time.monotonic() - begin < 10  # by itself it would end after ten minutes


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open streams are checked at once, not every two seconds."""
    monkeypatch.setitem(EventStreams.__init__.__kwdefaults__, "look_seconds", 0.02)


@SQLITE_ONLY
def test_more_than_can_be_read_is_not_counted(browser: Browser, space: commonplace.Space):
    space.files.write_all({f"/{number}.md": "new" for number in range(120)})
    assert counts(browser, "/ui/live?after=0", 1, lambda: None) == ["99+"]
    assert counts(browser, "/ui/live?after=500", 1, lambda: None) == ["99+"]  # a book restored from a backup


# Rights


@pytest.mark.promise("page-rights")
def test_a_reader_sees_history_and_takes_nothing_back(
    browser: Browser, space: commonplace.Space, make_key: Callable[..., str]
):
    space.files.write("/a.md", "one")
    then = moment_of(space, "/a.md")
    space.files.write("/a.md", "two")
    browser.sign_in(make_key("reader", actions=["read"]))
    for address in ("/ui/history", "/ui/history/commit?commit=2", "/ui/history?open=file:/a.md", "/ui/as-of"):
        page = browser.get(address)
        assert page.status_code == 200
        for word in ("Undo", "Restore"):
            assert word not in plain(page.text), address
    assert "Restore" not in browser.get(f"/ui/files?open=file:/a.md&as_of={then}").text
    token = browser.get("/ui").text.split('name="token" value="')[1].split('"')[0]
    for path, fields in (
        ("/ui/undo", {"commit": "2"}),
        ("/ui/restore", {"kind": "file", "key": "/a.md", "revision": "1", "seen": "0"}),
    ):
        refused = browser.http.post(path, data={"token": token, **fields}, headers=PAGE)
        assert refused.status_code == 403
    assert space.files.read("/a.md") == "two"


@SQLITE_ONLY
@pytest.mark.promise("page-get-changes-nothing")
def test_looking_at_history_changes_nothing(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "one")
    space.files.write("/gone.md", "soon", ttl_seconds=0.001)
    space.files.write("/a.md", "two")
    commit = space.stats().commit
    for address in (
        "/ui/history",
        "/ui/history?open=file:/a.md",
        "/ui/history/commit?commit=2",
        "/ui/history/compare?from=1&to=3",
        "/ui/undo?commit=1",
        "/ui/restore?open=file:/a.md&revision=1",
        "/ui/as-of",
    ):
        assert browser.get(address).status_code == 200, address
    assert space.stats().commit == commit
    assert browser.http.post("/ui/restore", headers=PAGE).status_code == 403
