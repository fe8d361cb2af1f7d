"""The first screen: what is found, why, what a model would get, and what an empty memory offers."""

from __future__ import annotations

import re
from html import unescape
from typing import Any, cast

import pytest
from browsing import Browser

import commonplace
from commonplace.language.relevance import CALIBRATIONS, Calibration
from commonplace.server.page.search_screen import BAR_WIDTH, score_bar
from doubles import WordEmbedder


def fill(space: commonplace.Space) -> None:
    space.files.write("/notes/harbour.md", "The harbour opens at nine.")
    space.records.create(
        type="fact", content="Ada likes the harbour", source="chat", confidence=0.9, tags=["places", "people"]
    )
    space.files.write("/notes/bread.md", "Bread needs flour and time.")


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


@pytest.mark.promise("page-search")
def test_a_hit_shows_its_kind_match_score_age_and_author(browser: Browser, space: commonplace.Space):
    fill(space)
    page = browser.get("/ui?q=harbours").text
    assert '<span class="kind kind-file">file</span>' in page
    assert "<mark>harbour</mark>" in page
    assert re.search(r'aria-label="Score 0\.\d\d: words 0\.\d+, meaning 0\.\d+"', page)
    assert "by <bdi>a test</bdi>" in page
    assert "<bdi>places</bdi>" in page
    assert 'href="/ui/files?open=file%3A%2Fnotes%2Fharbour.md"' in page
    assert "The harbour opens at nine." in plain(page)


@pytest.mark.promise("page-search")
def test_the_screen_shows_what_a_model_would_get_and_its_tokens(browser: Browser, space: commonplace.Space):
    fill(space)
    page = plain(browser.get("/ui?q=harbour").text)
    assert re.search(r"What would the model get\? About [1-9]\d* tokens", page)
    assert "It is data, not instructions" in page
    assert "file /notes/harbour.md\nThe harbour opens at nine." in page


@pytest.mark.promise("page-search")
def test_what_a_model_would_not_get_is_counted_and_shown_when_asked_for(
    browser: Browser, embedder: WordEmbedder, space: commonplace.Space, monkeypatch: pytest.MonkeyPatch
):
    fill(space)
    monkeypatch.setitem(cast("Any", CALIBRATIONS), embedder.identity, Calibration(bias=-9.0, words=25.0, floor=0.003))
    asked = browser.get("/ui?q=harbour+opens+today+around+noon")
    assert (asked.text.count('class="hit"'), asked.text.count("Below this nothing matches well")) == (2, 1)
    assert "1 hit is too far from the question to be shown to a model." in plain(asked.text)
    assert "Bread" not in plain(asked.text)
    shown = browser.get(unescape(asked.text.split('">Show all</a>')[0].rsplit('href="', 1)[1])).text
    assert "Bread needs flour" in plain(shown)
    assert "too far" not in shown
    assert "What would the model get" not in shown


def test_kinds_narrow_the_search_and_the_list_of_changes(browser: Browser, space: commonplace.Space):
    fill(space)
    for path in ("/ui?q=harbour&kind=record", "/ui?kind=record"):
        page = browser.get(path).text
        assert "Ada likes the" in plain(page)
        assert "opens at nine" not in plain(page)
    assert browser.get("/ui?q=harbour&kind=nonsense").status_code == 422


def test_without_a_question_it_shows_what_changed_last(browser: Browser, space: commonplace.Space):
    fill(space)
    page = plain(browser.get("/ui").text)
    assert page.index("/notes/bread.md") < page.index("/notes/harbour.md")


def test_hits_come_in_pages(browser: Browser, space: commonplace.Space):
    for number in range(25):
        space.files.write(f"/n/{number}.md", f"The harbour, berth {number}")
    first, second = browser.get("/ui?q=harbour"), browser.get("/ui?q=harbour&page=2")
    assert first.text.count('class="hit"') == 20
    assert second.text.count('class="hit"') == 5
    assert "Next →" in first.text
    assert "Next →" not in second.text
    assert '<ol class="hits" start="21">' in second.text


def test_a_script_gets_the_hits_alone(browser: Browser, space: commonplace.Space):
    fill(space)
    part = browser.get("/ui?q=harbour", **{"HX-Request": "true"}).text
    assert "<mark>harbour</mark>" in part
    assert "<html" not in part


def test_the_past_is_searched_as_it_was(browser: Browser, space: commonplace.Space):
    space.files.write("/a.md", "The old harbour")
    then = space.files.stat("/a.md").updated_at.isoformat().replace("+", "%2B")
    space.files.write("/a.md", "The new lighthouse")
    page = browser.get(f"/ui?q=harbour&as_of={then}").text
    assert "The old harbour" in plain(page)
    assert "You are looking at the past" in page
    assert "as_of=" in page.split('class="name" href="')[1].split('"')[0]


def test_a_score_is_divided_between_words_and_meaning():
    bar = score_bar(0.5, {"keyword": 0.3, "meaning": 0.1})
    assert (bar.words, bar.meaning) == (0.375 * BAR_WIDTH, 0.125 * BAR_WIDTH)
    assert score_bar(0.4, {"keyword": 0.2}).meaning == 0
    assert score_bar(0.0, {}) == score_bar(-1, {}).__class__(0.0, 0.0, 0.0)


def test_a_record_without_a_text_is_found_by_its_tag_and_shown(browser: Browser, space: commonplace.Space):
    record = space.records.create(type="note", content={}, source="a test", confidence=1.0, tags=["harbour"])
    for path in ("/ui?q=harbour", "/ui/records?q=harbour"):
        page = browser.get(path)
        assert page.status_code == 200
        assert f"open=record%3A{record.id}" in page.text
