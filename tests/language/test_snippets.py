"""A snippet shows the words that were asked for, whole, within its limit."""

from __future__ import annotations

import time
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commonplace.language import snippets
from commonplace.language.passages import Span
from commonplace.language.tokenizer import index_terms, query_terms, stem

NOTE = (
    "The team met on Monday to talk about the budget. Nobody had read the draft. "
    "On Tuesday the deploy of the billing service failed because the migration held a lock. "
    "We rolled back within ten minutes and wrote a checklist for blue/green deploys. "
    "The rest of the week was quiet, apart from the usual tickets about invoices."
)


def snippet(text: str, query: str, limit: int = 160, span: Span | None = None) -> str:
    return snippets.snippet(text, query_terms(query), limit, span)


def test_a_short_text_is_shown_whole_with_its_white_space_collapsed() -> None:
    assert snippet("  two\n\n words\t", "words") == "two words"


def test_the_window_with_most_of_the_query_is_shown() -> None:
    assert snippet(NOTE, "blue/green checklist", limit=100) == (
        "…We rolled back within ten minutes and wrote a checklist for blue/green deploys. The rest of the…"
    )


def test_the_beginning_is_shown_when_no_word_matches() -> None:
    assert snippet(NOTE, "zebra", limit=60) == "The team met on Monday to talk about the budget. Nobody…"


def test_the_end_of_a_text_has_no_ellipsis() -> None:
    assert snippet(NOTE, "invoices", limit=60) == "…was quiet, apart from the usual tickets about invoices."


def test_only_the_passage_that_was_found_is_shown() -> None:
    start = NOTE.index("We rolled")
    assert snippet(NOTE, "deploy", limit=40, span=Span(start, len(NOTE))) == "…for blue/green deploys. The rest of…"


def test_a_script_without_spaces_is_searched_too() -> None:
    text = "東京タワーは港区にある。" * 20 + "大阪城は大阪にあるお城です。" + "京都" * 100
    assert "大阪城" in snippet(text, "大阪城", limit=40)


def test_no_letter_is_parted_from_its_accent() -> None:
    for limit in range(10, 20):
        shown = snippet("e\u0301" * 300, "nothing", limit=limit).removesuffix("…")
        assert len(shown) % 2 == 0
    family = "👨\u200d👩\u200d👧"
    assert set(snippet(family * 50, "nothing", limit=33).removesuffix("…").split(family)) == {""}


@given(st.text(), st.text(), st.integers(1, 200))
def test_a_snippet_keeps_its_limit_and_comes_from_the_text(text: str, query: str, limit: int) -> None:
    shown = snippet(text, query, limit)
    assert len(shown) <= limit
    assert shown.strip("…").strip() in " ".join(text.split())


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta."]), min_size=30), st.integers(20, 90))
def test_words_stay_whole(words: list[str], limit: int) -> None:
    shown = snippet(" ".join(words), "gamma", limit)
    assert set(shown.strip("…").split()) <= set(words)
    assert "gamma" not in words or "gamma" in shown


@pytest.mark.parametrize("unit", ["a", "a ", "漢", "e\u0301", ". "])
def test_a_hostile_megabyte_is_searched_in_linear_time(unit: str) -> None:
    began = time.process_time()
    snippet((unit * 1_000_000)[:1_000_000], "a 漢字")
    assert time.process_time() - began < 10


ODD_WORDS = ["getUser", "C#", "c++", "wi-fi", "it's", "log4", "A", "(foo", "@bar", "1,250", "a/b.c", "APIs", "e.g."]
WORDS = st.lists(st.sampled_from(ODD_WORDS) | st.text("abCD1.,;'(-_", min_size=1, max_size=6), min_size=1, max_size=9)


@given(WORDS, WORDS)
@example(["Deploys"], ["deploy"])
@example(["log4"], ["4"])
@example(["snakeCase"], ["case"])
@example(["blue/green"], ["green"])
@example(["(open)"], ["open"])
def test_every_word_that_holds_a_term_is_seen_though_few_get_a_closer_look(words: list[str], asked: list[str]) -> None:
    passage, terms = " ".join(words), query_terms(" ".join(asked))
    seen = [(match.start, passage[match.start : match.end]) for match in snippets._matches(passage, terms)]
    starts = accumulate((len(word) + 1 for word in words[:-1]), initial=0)
    placed = zip(starts, words, strict=True)
    assert seen == [(start, word) for start, word in placed if index_terms(word).keys() & terms.keys()]


# What Porter2's steps change or remove, and what they leave before it.
ENDINGS = (
    "ing ingly ed edly eed eedly s es ies ied y ly e er ic al ism ive ize ous ment able ible ance ence ful ness less "
    "tional enci anci abli entli izer ization ational ation ator alism aliti alli fulness ousli ousness iveness iviti "
    "biliti bility bli ogist fulli lessli alize icate iciti ical ative ion tion"
)


@given(
    st.text("abdegilnorstuyz", min_size=1, max_size=6),
    st.lists(st.sampled_from(ENDINGS.split()), min_size=1, max_size=3),
)
@example("l", ["y", "ing"])
@example("hop", ["ing"])
def test_a_word_begins_as_the_snippet_expects_of_its_term(beginning: str, endings: list[str]) -> None:
    word = beginning + "".join(endings)
    assert f" {word}".startswith(snippets._beginnings(frozenset([stem(word)])))
