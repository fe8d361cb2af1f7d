"""The relevance of hits and the floor: what is left out, what never is, and that pages stay parts of one list."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import Book, InvalidInput, Space, Unavailable
from commonplace.checks import moment
from commonplace.embedding.catalog import BGE_SMALL_EN, DEFAULT_MODEL, MINILM_L6
from commonplace.engine.embedders import with_sentences
from commonplace.engine.search import UNCALIBRATED
from commonplace.language.question import content_terms
from commonplace.language.relevance import (
    CALIBRATIONS,
    DEFAULT_FLOOR,
    KEYWORDS_ONLY,
    Calibration,
    calibration_of,
    holds_every_word,
)
from commonplace.tools import create_search_memory_tool
from commonplace.tools.record_tools import RecordTools
from doubles import Clock, OpenBook, WordEmbedder
from postgres_server import empty, shared_book

CALIBRATED = MINILM_L6.identity
"""A model with a calibration: the words of the double are near or far as its texts would be."""

NOTHING_TO_DO_WITH_IT = "quantum chromodynamics lattice"


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder(CALIBRATED, dimensions=1_024)  # so that hardly any two words are near


def keys(found: Any) -> list[str]:
    return [hit.key for hit in found]


@pytest.mark.promise("relevance-floor")
def test_a_floor_leaves_out_what_has_nothing_to_do_with_the_query(space: Space) -> None:
    space.files.write("/ana", "Ana likes tea")
    assert keys(space.search(NOTHING_TO_DO_WITH_IT)) == ["/ana"]  # the library has no floor unless asked
    assert keys(space.search(NOTHING_TO_DO_WITH_IT, min_relevance=0)) == ["/ana"]
    found = space.search(NOTHING_TO_DO_WITH_IT, min_relevance=DEFAULT_FLOOR)
    assert (found.hits, found.left_out, found.notices) == ((), 1, ())
    kept = space.search("what does Ana like?", min_relevance=DEFAULT_FLOOR)
    assert (keys(kept), kept.left_out) == (["/ana"], 0)
    assert (kept[0].relevance or 0) > 0.5


@pytest.mark.promise("relevance-of-a-hit")
def test_the_relevance_of_a_hit_depends_on_its_own_evidence_only(space: Space, clock: Clock) -> None:
    """Neither the rest of a conversation nor a time in the query changes it, although both raise the score."""
    thread = space.threads.create()
    lines = ("the blue kettle leaks", "the blue kettle is old", "a kettle for the cabin")
    space.threads.add(thread.id, [{"role": "user", "name": "Ana", "content": line} for line in lines])
    plain = space.search("blue kettle today", now=moment(clock())).hits
    assert any("conversation" in hit.parts for hit in plain)
    assert any("time" in hit.parts for hit in plain)
    for hit in plain:
        expected = CALIBRATIONS[CALIBRATED].relevance(hit.parts.get("keyword", 0.0), hit.parts["meaning"])
        assert hit.relevance == expected


@pytest.mark.promise("relevance-uncalibrated")
def test_a_model_without_a_calibration_says_so_and_nothing_is_left_out(open_book: OpenBook) -> None:
    space = open_book(embedder=WordEmbedder("somebody's-model")).space("u")
    space.files.write("/ana", "Ana likes tea")
    found = space.search(NOTHING_TO_DO_WITH_IT, min_relevance=0.9)
    assert [(hit.key, hit.relevance) for hit in found] == [("/ana", None)]
    assert ["somebody's-model" in notice for notice in found.notices] == [True]
    assert space.search(NOTHING_TO_DO_WITH_IT).notices == ()
    if isinstance(space, Space) and not hasattr(space, "_caller"):
        assert [getattr(notice, "code", None) for notice in found.notices] == [UNCALIBRATED]


@pytest.mark.promise("relevance-every-known-model")
@pytest.mark.parametrize("model", [DEFAULT_MODEL, MINILM_L6, BGE_SMALL_EN], ids=lambda model: model.id)
def test_every_known_model_has_a_calibration_of_its_own(model: Any) -> None:
    embedder = with_sentences(commonplace.embedding.create_embedder(model.id))
    assert embedder.identity in CALIBRATIONS
    other = with_sentences(commonplace.embedding.create_embedder(model.id, pooling="mean", normalize=False))
    assert other.identity not in CALIBRATIONS
    assert calibration_of(None) is KEYWORDS_ONLY


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.sampled_from([KEYWORDS_ONLY, *CALIBRATIONS.values()]))
def test_more_evidence_never_lowers_a_relevance(
    one: float, other: float, part: float, calibration: Calibration
) -> None:
    less, more = sorted((one, other))
    assert 0 <= calibration.relevance(less, part) <= calibration.relevance(more, part) <= 1
    assert calibration.relevance(part, less) <= calibration.relevance(part, more)


def test_keywords_alone_have_a_calibration(open_book: OpenBook, embedder: WordEmbedder) -> None:
    space = open_book().space("u")
    space.files.write("/ana", "Ana likes green tea in the morning, and sometimes a little later in the day")
    embedder.error = Unavailable("no model here")
    query = "how do colleagues celebrate birthdays, promotions, weddings, anniversaries and a new day in the office"
    assert keys(space.search(query)) == ["/ana"]
    found = space.search(query, min_relevance=0.5)
    assert (found.hits, found.left_out) == ((), 1)
    (hit,) = space.search("green tea in the morning", min_relevance=0.5)
    assert hit.relevance == KEYWORDS_ONLY.relevance(hit.parts["keyword"], 0.0)


# What is never left out


def _unrelated(space: Space, count: int = 60) -> None:
    for number in range(count):
        space.files.write(f"/other/{number}", f"filler text number {number} about harbours and lamps")


FAR = "harbours lamps filler number"
"""Words of other texts."""


def _every_word(space: Space) -> tuple[str, str]:
    parts = ("kettle", "glacier", "violin", "ledger")
    padding = "\n\n".join(f"Paragraph {number} of the minutes says nothing of note." for number in range(60))
    space.files.write("/minutes", "\n\n".join(f"{padding}\n\nAlso: {part}." for part in parts))
    return "the kettle and the glacier, a violin or a ledger?", "/minutes"


def _path(space: Space) -> tuple[str, str]:
    space.files.write("/plans/q3.md", "unrelated")
    return f"{FAR} {FAR} and /plans/q3.md, please", "/plans/q3.md"


def _tag(space: Space) -> tuple[str, str]:
    saved = space.records.create(type="note", content="unrelated", source="s", confidence=1, tags=["project:alpha"])
    return f"{FAR} sundry further words project:alpha", saved.id


@pytest.mark.promise("relevance-never-left-out")
@pytest.mark.parametrize("write", [_every_word, _path, _tag])
def test_an_entry_with_every_word_or_that_the_query_names_is_never_left_out(
    space: Space, write: Callable[[Space], tuple[str, str]]
) -> None:
    _unrelated(space)
    query, name = write(space)
    found = space.search(query, limit=100, min_relevance=1.0)
    assert name in keys(found)
    assert found.left_out > 0


@pytest.mark.promise("relevance-never-left-out")
def test_all_entries_with_a_tag_that_the_query_names_are_kept(space: Space) -> None:
    for number in range(100):
        space.records.create(
            type="note", content=f"harbour lamp {number} " + "and a boat " * (number % 9), tags=["project:alpha"]
        )
    query = "harbour lamp ferry dock project:alpha"
    assert len(space.search(query, limit=200, min_relevance=0)) == 100
    assert len(space.search(query, limit=200, min_relevance=1.0)) == 100


@pytest.mark.promise("relevance-never-left-out")
def test_an_entry_whose_vector_is_pending_is_never_left_out(open_book: OpenBook, embedder: WordEmbedder) -> None:
    space = open_book().space("u")
    space.files.write("/old", "harbours and lamps")
    assert space.search("lamps").notices == ()
    embed = embedder.embed

    def only_queries(texts: Any, *, purpose: str) -> Any:
        if purpose == "passage":
            raise Unavailable("busy")
        return embed(texts, purpose=purpose)

    embedder.embed = only_queries  # type: ignore[method-assign]
    space.files.write("/new", "harbours and ferries, and a great many things that nobody will ever ask for")
    found = space.search("harbours whales oceans storms currents anchors sailors", min_relevance=1.0)
    assert keys(found) == ["/new"]
    assert "meaning" not in found[0].parts
    assert found.left_out == 1


def test_words_that_frame_a_question_need_not_be_in_the_entry() -> None:
    words = content_terms("how many weeks ago did I buy the kettle?")
    assert holds_every_word(words, None, "I bought it: buy a kettle, they said")
    assert not holds_every_word(words, "buy", "a pan")
    assert holds_every_word(words, "kettle", "buy")
    assert not holds_every_word(frozenset(), "kettle")


# Pages


@pytest.mark.promise("relevance-pages")
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_pages_with_a_floor_are_parts_of_the_list_without_those_below_it(open_book: OpenBook, place: str) -> None:
    if place == "postgres":
        empty(shared_book())
    book = open_book(shared_book() if place == "postgres" else None)
    space, chance = book.space("org"), random.Random(7)
    words = ["tea", "ferry", "ana", "garden", "lamp", "cabin", "deploy", "kettle", "harbour", "violin"]
    for number in range(400):
        some = " ".join(chance.choice(words) for _ in range(chance.randint(2, 30)))
        where = space if number % 2 else book.space("org", "a")
        where.files.write(f"/{number}", some)
    thread = space.threads.create()
    space.threads.add(thread.id, [{"role": "user", "content": " ".join(chance.sample(words, 4))} for _ in range(60)])
    for labels in (("org",), ("org", "a")):
        while book.space(*labels).search("tea").notices:
            pass
    for query in ("tea on the ferry with ana", "violin", "cabin deploy garden zebra giraffe"):
        for options in ({}, {"below": True}, {"kinds": ["message"]}):
            everything = space.search(query, limit=1_000, **options).hits  # type: ignore[arg-type]
            for floor in (0.2, 0.6, 0.95):
                whole = space.search(query, limit=1_000, min_relevance=floor, **options).hits  # type: ignore[arg-type]
                terms = content_terms(query)
                assert whole == tuple(
                    hit
                    for hit in everything
                    if (hit.relevance or 0) >= floor or holds_every_word(terms, hit.entry.heading, hit.entry.text)
                )
                for offset, limit in ((0, 1), (0, 10), (7, 10), (len(whole), 5), (chance.randrange(90), 40)):
                    page = space.search(query, limit=limit, offset=offset, min_relevance=floor, **options)  # type: ignore[arg-type]
                    assert page.hits == whole[offset : offset + limit], (query, options, floor, offset, limit)


def test_a_floor_reads_no_more_than_it_must(open_book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that finds only noise would otherwise go through the whole namespace to fill its page."""
    book = open_book()
    space = book.space("u")
    _unrelated(space, 500)
    while space.search("x").notices:
        pass
    limits: list[int] = []
    search = type(book.store).search

    def counted(self: Any, namespace: Any, query: Any, *args: Any, **options: Any) -> Any:
        limits.append(query.limit)
        return search(self, namespace, query, *args, **options)

    monkeypatch.setattr(type(book.store), "search", counted)
    assert len(space.search(NOTHING_TO_DO_WITH_IT, min_relevance=0.5)) == 0
    assert len(limits) == 1


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, "0.5", True])
def test_a_floor_is_a_number_from_0_to_1(space: Space, value: Any) -> None:
    thread = space.threads.create()
    for call in (
        lambda: space.search("tea", min_relevance=value),
        lambda: space.threads.search("tea", min_relevance=value),
        lambda: space.threads.recall(thread.id, query="tea", min_relevance=value),
        lambda: space.threads.context(thread.id, "tea", min_relevance=value),
    ):
        with pytest.raises(InvalidInput, match="min_relevance must be a number from 0 to 1"):
            call()


# Conversations and tools


@pytest.mark.promise("relevance-floor")
def test_recall_context_and_the_search_for_threads_have_a_floor(space: Space) -> None:
    thread = space.threads.create(title="Drinks")
    space.threads.add(thread.id, [{"role": "user", "content": "Ana likes tea"}])
    floor: Mapping[str, Any] = {"min_relevance": DEFAULT_FLOOR}
    assert len(space.threads.search(NOTHING_TO_DO_WITH_IT)) == 1
    assert len(space.threads.search(NOTHING_TO_DO_WITH_IT, **floor)) == 0
    assert len(space.threads.search("Ana tea", **floor)) == 1
    assert len(space.threads.recall(thread.id, query=NOTHING_TO_DO_WITH_IT, last=0)) == 1
    assert len(space.threads.recall(thread.id, query=NOTHING_TO_DO_WITH_IT, last=0, **floor)) == 0
    assert len(space.threads.context(thread.id, NOTHING_TO_DO_WITH_IT, last=0, **floor).messages) == 0
    assert len(space.threads.context(thread.id, "Ana tea", last=0, **floor).messages) == 1


LEFT_OUT = "1 less relevant memory was left out; min_relevance 0 shows them"


@pytest.mark.promise("relevance-tools")
def test_memory_search_says_that_nothing_is_relevant_and_how_to_see_the_rest(space: Space) -> None:
    tools = RecordTools(space)
    space.records.create(type="note", content="Ana likes tea", source="s", confidence=1)
    none = tools.search({"query": NOTHING_TO_DO_WITH_IT})
    assert none.texts == ("No relevant memories found.", f"Note: {LEFT_OUT}.")
    assert none.structured == {"items": [], "notices": [LEFT_OUT]}
    assert len(tools.search({"query": NOTHING_TO_DO_WITH_IT, "min_relevance": 0}).structured["items"]) == 1
    assert len(tools.search({"query": "what does Ana like"}).structured["items"]) == 1
    refused = tools.search({"query": "tea", "min_relevance": 2})
    assert (refused.is_error, "min_relevance must be a number between 0 and 1" in refused.text) == (True, True)


@pytest.mark.promise("relevance-tools")
def test_search_memory_says_that_nothing_is_relevant_and_how_to_see_the_rest(book: Book) -> None:
    space = book.space("user", "u1")
    space.records.create(type="fact", content="Ana likes tea", source="s", confidence=1)
    search = create_search_memory_tool(("user", "u1"), store=book)
    assert search(NOTHING_TO_DO_WITH_IT) == "[]"  # a program gets JSON
    assert search.call({"query": NOTHING_TO_DO_WITH_IT}) == f"[]\n{LEFT_OUT}"
    assert search.answer({"query": NOTHING_TO_DO_WITH_IT}).notices == (LEFT_OUT,)
    assert len(json.loads(str(search.call({"query": NOTHING_TO_DO_WITH_IT, "min_relevance": 0})))) == 1
    assert len(json.loads(str(search("what does Ana like")))) == 1
    with pytest.raises(InvalidInput, match="min_relevance must be a number between 0 and 1"):
        search("tea", min_relevance=2)
