"""Records on the page: the table and its filters, several at once, one record, edits and their conflicts, the past."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from browsing import Browser, Forms

import commonplace
from commonplace.server.page import records_screen

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def create(space: commonplace.Space, content: Any = "Deploys go out on Tuesdays", **fields: Any) -> commonplace.Record:
    return space.records.create(
        **{"type": "fact", "content": content, "source": "meeting", "confidence": 0.9, **fields}
    )


def form_of(page: str, action: str) -> dict[str, str]:
    return next(fields for _, address, fields in Forms(page).forms if address.split("?")[0] == action)


def rows_of(page: str) -> list[str]:
    """The ids of the records in a table."""
    return re.findall(r'name="id" value="([^"]+)" aria-label="Choose this record"', page)


def link_of(page: str, words: str) -> str:
    [address] = re.findall(rf'<a[^>]* ?href="([^"]+)"[^>]*>{words}</a>', page)[:1]
    return unescape(address)


def moment_of(record: commonplace.Record) -> str:
    return record.updated_at.isoformat().replace("+", "%2B")


@pytest.mark.promise("page-records")
def test_the_table_shows_what_is_known_of_each_record(browser: Browser, space: commonplace.Space):
    create(
        space, {"text": "Ana prefers tea", "n": 7}, tags=["project:alpha", "ops"], importance=0.25, type="preference"
    )
    page = browser.get("/ui/records").text
    for text in (
        "Ana prefers tea 7",
        "preference",
        "project:alpha",
        "ops",
        "0.9",
        "0.25",
        "meeting",
        "a test",
        "just now",
    ):
        assert text in page
    for column in ("Text", "Type", "Tags", "Confidence", "Importance", "Source", "Changed", "By"):
        assert re.search(rf'<th scope="col"[^>]*>{column}</th>', page)


@pytest.mark.promise("page-records")
def test_filters_are_in_the_address_and_narrow_the_table(browser: Browser, space: commonplace.Space):
    deploys = create(space, "Deploys go out on Tuesdays", tags=["ops"])
    tea = create(
        space, "Ana prefers tea", type="preference", source="Chat with Ana", confidence=0.5, tags=["ops", "ana"]
    )
    shadow = create(space, {"source": "meeting", "confidence": 1}, source="elsewhere", confidence=0.2)
    every = {"": [shadow, tea, deploys], "type=preference": [tea], "tag=ops": [tea, deploys], "tag=ops,ANA": [tea]}
    more = {
        "source=chat": [tea],
        "confidence=0.6": [deploys],
        "source=meeting": [deploys],
        "tag=ops&confidence=.5": [tea, deploys],
    }
    for query, expected in {**every, **more}.items():
        assert rows_of(browser.get(f"/ui/records?{query}").text) == [record.id for record in expected], query
    found = browser.get("/ui/records?q=deploys").text
    assert rows_of(found)[0] == deploys.id
    assert "<mark>Deploys</mark>" in found
    assert rows_of(browser.get("/ui/records?q=deploys&source=chat&type=fact").text) == []
    assert 'name="type" value="fact"' in browser.get("/ui/records?type=fact").text
    assert browser.get("/ui/records?confidence=high").status_code == 422
    assert browser.get("/ui/records?tag=%3Cb%3E").status_code == 422


def test_the_table_is_paged_and_a_rare_source_is_looked_for_in_steps(
    browser: Browser, space: commonplace.Space, monkeypatch: pytest.MonkeyPatch
):
    rare = create(space, "the first", source="rare")
    for number in range(120):
        create(space, f"number {number}")
    seen = []
    page = browser.get("/ui/records").text
    while True:
        seen += rows_of(page)
        if 'rel="next"' not in page:
            break
        page = browser.get(link_of(page, "Older →")).text
    assert len(seen) == len(set(seen)) == 121
    assert "← Newest" in page
    monkeypatch.setattr(records_screen, "READ_FIRST", 30)
    monkeypatch.setattr(records_screen, "MOST_READ", 100)
    step = browser.get("/ui/records?source=rare").text
    assert rows_of(step) == []
    assert "Looked through 100 records so far" in step
    assert rows_of(browser.get(link_of(step, "Look further")).text) == [rare.id]


def test_hits_with_a_rare_source_are_looked_for_in_steps(
    browser: Browser, space: commonplace.Space, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(records_screen, "HITS_READ", 5)
    for number in range(8):
        create(space, f"the crane {number}")
    rare = create(space, "of all things that were seen here, one was a crane", source="rare")
    step = browser.get("/ui/records?q=crane&source=rare").text
    assert rows_of(step) == []
    assert "No record matches" not in step
    assert "Looked through 5 records so far" in step
    assert rows_of(browser.get(link_of(step, "Look further")).text) == [rare.id]


@pytest.mark.promise("page-records-at-once")
def test_several_records_are_tagged_and_deleted_in_one_commit_that_can_be_undone(
    browser: Browser, space: commonplace.Space
):
    one, two, other = (
        create(space, "one", tags=["old"]),
        create(space, "two", ttl_seconds=3_600),
        create(space, "other"),
    )
    before = space.stats().commit
    page = browser.get("/ui/records?type=fact")
    tagged = browser.send(page, "/ui/records/several", id=[one.id, two.id], do="tag", tags="Project:X, new")
    assert space.stats().commit == before + 1
    assert f"Tagged as commit {before + 1}." in tagged.text
    assert tagged.url.params["type"] == "fact"
    assert space.records.get(one.id).tags == ("old", "project:x", "new")
    assert space.records.get(two.id).tags == ("project:x", "new")
    assert space.records.get(two.id).expires_at is not None
    assert space.records.get(other.id).revision == 1
    untagged = browser.send(page, "/ui/records/several", id=[one.id, two.id], do="untag", tags="old new")
    assert "Tagged as commit" in untagged.text
    assert [space.records.get(id).tags for id in (one.id, two.id)] == [("project:x",), ("project:x",)]
    deleted = browser.send(page, "/ui/records/several", id=[one.id, two.id], do="delete")
    assert f"Deleted as commit {before + 3}." in deleted.text
    assert rows_of(deleted.text) == [other.id]
    undo = browser.get(unescape(re.findall(r'data-undo href="([^"]+)"', deleted.text)[0]))
    assert undo.text.count('kind-record">record') == 2
    browser.send(undo, "/ui/undo")
    assert {record.id for record in space.records.list().records} == {one.id, two.id, other.id}
    for refused in (
        {"do": "delete"},
        {"id": one.id, "do": "tag", "tags": ""},
        {"id": one.id, "do": "burn"},
    ):
        assert browser.send(page, "/ui/records/several", **refused).status_code == 422


def test_a_record_that_names_a_directory_is_shown_as_it_was(browser: Browser, space: commonplace.Space):
    space.files.write("/notes/a.md", "alpha")
    record = create(space, "see file:/notes", source="file:/notes")
    page = browser.get(f"/ui/records?open=record:{record.id}&as_of={moment_of(record)}")
    assert page.status_code == 200
    assert "open=file%3A%2Fnotes" in page.text


@pytest.mark.promise("page-records")
def test_a_record_shows_where_it_was_learned_and_what_it_links_to(browser: Browser, space: commonplace.Space):
    space.threads.create("About deploys", id="t-1")
    space.threads.add("t-1", [{"role": "user", "content": "They go out on Tuesdays", "id": "m-1"}])
    space.files.write("/notes/a.md", "a")
    other = create(space, "the other record")
    content = {"text": f"see mem://item/{other.id}, file:/notes/a.md. and record:gone", "threadId": "t-1"}
    record = create(space, content, source="message:m-1")
    page = browser.get(f"/ui/records?open=record:{record.id}").text
    learned, links = page.split('id="learned"')[1].split('id="links"')
    assert "They go out on Tuesdays" in learned
    assert "open=message%3Am-1" in learned
    assert "open=thread%3At-1" in learned
    assert "the other record" in links
    assert "open=file%3A%2Fnotes%2Fa.md" in links
    assert "record%3Agone" not in links
    assert f"/ui/history?open=record%3A{record.id}" in page
    assert "by <bdi>a test</bdi>" in page


@pytest.mark.promise("page-conflict-loses-nothing")
def test_a_record_is_edited_at_the_revision_that_was_read(
    browser: Browser, new_browser: Callable[[], Browser], space: commonplace.Space
):
    record = create(space, "as it was", tags=["a"], ttl_seconds=3_600)
    address, save = f"/ui/records/edit?open=record:{record.id}", "/ui/records/save"
    editing = browser.get(address)
    unchanged = browser.send(editing, save)
    assert "data-toast" not in unchanged.text
    other = new_browser()
    saved = other.send(other.get(address), save, content="what they wrote", tags="a b", importance="0.5")
    assert f"Saved as commit {space.stats().commit}." in saved.text
    conflict = browser.send(editing, save, content="what I wrote", confidence="0.25")
    assert conflict.status_code == 409
    assert "what they wrote" in conflict.text
    assert "<bdi>a b</bdi>" in conflict.text
    assert form_of(conflict.text, save)["content"] == "what I wrote"
    assert form_of(conflict.text, save)["confidence"] == "0.25"
    assert space.records.get(record.id).content == "what they wrote"
    browser.send(conflict, save)
    present = space.records.get(record.id)
    assert (present.content, present.confidence, present.importance) == ("what I wrote", 0.25, None)
    assert present.expires_at == record.expires_at
    assert space.state("record", record.id, 2).value == "what they wrote"
    space.records.delete(record.id)
    gone = browser.send(conflict, save, content="mine again")
    assert "was deleted while you were editing" in gone.text
    browser.send(gone, save)
    assert space.records.get(record.id).content == "mine again"


def test_a_record_is_created_as_a_text_or_as_json_and_what_is_wrong_stays_in_the_form(
    browser: Browser, space: commonplace.Space
):
    new, save = browser.get("/ui/records/new"), "/ui/records/save"
    made = browser.send(new, save, content="\r\nfirst line is empty", tags="x, y")
    assert "Created as commit" in made.text
    [record] = space.records.list().records
    assert (record.content, record.tags, record.source, record.confidence) == (
        "\nfirst line is empty",
        ("x", "y"),
        "page",
        1,
    )
    assert record.actor == "local page"
    for wrong in ({"format": "json", "content": "{nonsense"}, {"confidence": "2"}, {"tags": "<b>"}, {"type": " "}):
        refused = browser.send(new, save, **{"content": "what I typed", **wrong})
        assert refused.status_code == 422, wrong
        assert "Nothing was saved" in refused.text
        assert form_of(refused.text, save)["content"] == wrong.get("content", "what I typed")
    browser.send(new, save, content='{"a": [1, "two"]}', format="json")
    assert space.records.list().records[0].content == {"a": [1, "two"]}
    page = browser.get(f"/ui/records/edit?open=record:{space.records.list().records[0].id}")
    assert form_of(page.text, save)["format"] == "json"
    assert '"two"' in form_of(page.text, save)["content"]


def test_a_record_is_deleted_and_what_equals_another_becomes_one_with_it(browser: Browser, space: commonplace.Space):
    older, newer = create(space, "same"), create(space, "almost the same")
    merged = browser.send(browser.get(f"/ui/records/edit?open=record:{newer.id}"), "/ui/records/save", content="same")
    assert merged.url.params["open"] == f"record:{older.id}"
    assert "Saved as commit" in merged.text
    deleted = browser.send(merged, "/ui/records/delete")
    assert "Deleted as commit" in deleted.text
    assert "There are no records yet" in deleted.text
    assert browser.get(f"/ui/records?open=record:{older.id}").status_code == 404


@pytest.mark.promise("page-past")
def test_records_are_shown_as_they_were_and_read_only(browser: Browser, space: commonplace.Space):
    kept, gone = create(space, "kept as it was"), create(space, "gone since", tags=["t"])
    changed = space.records.update(kept.id, tags=["before"])
    then = moment_of(changed)
    space.records.update(kept.id, content="as it is now", tags=["after"])
    space.records.delete(gone.id)
    create(space, "made later")
    page = browser.get(f"/ui/records?as_of={then}").text
    for text in ("kept as it was", "gone since", "before"):
        assert text in page
    for text in ("as it is now", "made later", ">after<", "Delete chosen", "New record", 'type="checkbox"'):
        assert text not in page
    assert "gone since" in browser.get(f"/ui/records?as_of={then}&tag=t").text
    assert "kept as it was" not in browser.get(f"/ui/records?as_of={then}&tag=t").text
    one = browser.get(f"/ui/records?open=record:{gone.id}&as_of={then}").text
    assert "gone since" in one
    for word in ("Edit", "Delete"):
        assert f">{word}<" not in one
    assert f"as_of={then[:10]}" in one


@pytest.mark.promise("page-rights")
def test_a_reader_sees_records_without_buttons_and_changes_nothing(
    browser: Browser, space: commonplace.Space, make_key: Callable[..., str]
):
    record = create(space)
    editor = make_key("editor")
    browser.sign_in(editor)
    form = browser.get("/ui/records")
    browser.http.cookies.clear()
    browser.sign_in(make_key("reader", actions=["read"]))
    page = browser.get("/ui/records")
    assert "Deploys go out" in page.text
    for text in ("Delete chosen", "Tag chosen", "New record", 'type="checkbox"'):
        assert text not in page.text
    token = form_of(page.text, "/ui/sign-out")["token"]
    refused = browser.send(form, "/ui/records/several", token=token, id=record.id, do="delete")
    assert refused.status_code == 403
    assert space.records.get(record.id) == record


@pytest.mark.promise("page-hostile-records")
def test_hostile_text_stays_text_in_every_place_of_a_record(browser: Browser, space: commonplace.Space):
    record = create(space, {HOSTILE: HOSTILE, "text": HOSTILE}, type=HOSTILE, source=HOSTILE)
    text = create(space, f"{HOSTILE} [x](javascript:alert(1)) ![y](https://e.example/y.png)")
    for address in (
        "/ui/records",
        "/ui/records?q=alert",
        f"/ui/records?type={HOSTILE}&source={HOSTILE}",
        f"/ui/records?open=record:{record.id}",
        f"/ui/records?open=record:{text.id}",
        f"/ui/records/edit?open=record:{record.id}",
    ):
        page = browser.get(address)
        assert page.status_code == 200
        assert "alert(1)" in page.text
        for bad in ("<script>alert", "<img", 'href="javascript:', 'src="https'):
            assert bad not in page.text, address
