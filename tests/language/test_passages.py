"""Passages cover a text, end where a reader would cut, and stay the same where the text stays the same."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.passages import (
    GROWN_CHARACTERS,
    PASSAGE,
    SENTENCE_CHARACTERS,
    WHOLE,
    Span,
    passages,
    resume,
    split,
    split_sentences,
)
from commonplace.language.tokenizer import index_terms

UNITS = [
    "a",
    "word ",
    "漢",
    "字。",
    "End. ",
    "\n\n",
    "\n",
    "x" * 700,
    "字" * 200,
    "e\u0301",
    "word word. " * 40,
]

PIECES = [
    "word",
    "1,",
    "250",
    "#",
    "@",
    "-",
    "_",
    "'s",
    ":",
    "/",
    "\n",
    "\r",
    " ",
    "é",
    "e\u0301",
    "\u0301",
    "漢",
    "и",
    "\ufb01",
]
LINES = st.lists(st.sampled_from(PIECES), max_size=20).map("".join) | st.text(max_size=40)


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    seed, length = draw(st.integers(0, 2**32)), draw(st.integers(0, 120))
    return "".join(random.Random(seed).choices(UNITS, k=length))


@given(long_texts())
def test_passages_cover_every_character_in_order(text: str) -> None:
    spans = split(text)
    assert [span.start for span in spans[:1]] == [0] * bool(text)
    assert [span.end for span in spans[-1:]] == [len(text)] * bool(text)
    for one, following in pairwise(spans):
        assert one.start < following.start <= one.end < following.end


@given(long_texts(), long_texts())
def test_appending_changes_no_passage_but_the_last(text: str, more: str) -> None:
    before = split(text)[:-1]
    assert split(text + more)[: len(before)] == before


@given(long_texts(), long_texts(), long_texts())
def test_after_any_edit_only_the_passages_near_it_are_made_again(start: str, old: str, new: str) -> None:
    former, present = start + old, start + new
    differing = (place for place, (was, now) in enumerate(zip(former, present, strict=False)) if was != now)
    shared = next(differing, min(len(former), len(present)))
    kept, restart = resume(split(former), shared)
    assert kept + split(present, restart) == split(present)


def test_a_short_edit_at_the_end_of_a_long_text_keeps_nearly_all() -> None:
    text = "A sentence of a long note. " * 400
    spans = split(text)
    kept, restart = resume(spans, len(text))
    assert len(spans) - len(kept) <= 2
    assert restart == spans[len(kept)].start


@given(text=LINES, line=LINES, ending=st.sampled_from(["", "\n", "\r\n"]))
def test_a_passage_that_grew_by_a_line_has_the_terms_of_the_whole(text: str, line: str, ending: str) -> None:
    text = "a line before, to make it long\n" * (GROWN_CHARACTERS // 30) + text + ending
    for grown in (text, f"{text}\n{line}", f"{text}{line}", f"{text}{line}\n"):
        (passage, *others) = passages(grown)
        if not others:
            terms = index_terms(grown)
            assert {term: passage.terms.get(term) for term in terms} == terms
            assert list(passage.terms)[: len(terms)] == list(terms)
            assert passage.length == sum(terms.values())


def test_nothing_is_kept_of_an_empty_text() -> None:
    assert split("") == []
    assert resume([], 0) == ([], 0)


@pytest.mark.parametrize(("text", "largest"), [("a" * 9_000, PASSAGE), ("漢" * 9_000, PASSAGE // 3)])
def test_a_passage_fits_the_model(text: str, largest: int) -> None:
    assert max(end - start for start, end in split(text)[:-1]) == largest


def test_a_text_of_moderate_length_stays_whole() -> None:
    assert split("a" * WHOLE) == [Span(0, WHOLE)]
    assert len(split("a" * (WHOLE + 1))) == 2


def test_a_passage_ends_with_a_paragraph_if_it_can() -> None:
    text = "One sentence. " * 60 + "\n\n" + "Another sentence. " * 60
    first, second = split(text)
    assert text[first.start : first.end].endswith("\n\n")
    assert text[second.start :].startswith("One sentence.")


def test_a_passage_ends_with_a_sentence_else_with_a_word() -> None:
    sentences = "Some words of a sentence. " * 100
    assert all(sentences[:end].endswith(". ") for _, end in split(sentences))
    words = "word " * 600
    assert all(words[:end].endswith(" ") and words[start:].startswith("word") for start, end in split(words))


def test_no_letter_is_parted_from_its_accent() -> None:
    text = "x" + "e\u0301" * 3_000
    starts = [start for start, _ in split(text)[1:]]
    ends = [end for _, end in split(text)[:-1]]
    assert starts
    assert {text[place] for place in starts + ends} == {"e"}


@pytest.mark.parametrize("unit", ["a", "漢", "漢a", "\n", "\n ", ". ", "\u0301", "a b"])
def test_a_hostile_megabyte_is_split_in_linear_time(unit: str) -> None:
    text = (unit * 1_000_000)[:1_000_000]
    began = time.process_time()
    split(text)
    assert time.process_time() - began < 10


# Sentences: they cover the passage, each with the passage's label.


def joined_words(text: str) -> str:
    return "".join(text.split())


def test_short_sentences_stay_together_and_a_long_one_stays_whole() -> None:
    long = (
        "The ferry to the northern island leaves at six except on Sundays " + "and in the weeks after storms " * 2 + "."
    )
    assert len(long) > SENTENCE_CHARACTERS
    assert split_sentences(f"Yes. No! Maybe? {long} And back at noon.") == [
        "Yes. No! Maybe?",
        long,
        "And back at noon.",
    ]


def test_a_label_is_said_before_each_piece() -> None:
    first, second = "I moved to Lyon in May with my two cats. " * 2, "My sister keeps the dog and " * 4
    assert split_sentences(f"Ana Maria: {first}{second}") == [
        f"Ana Maria: {first.strip()}",
        f"Ana Maria: {second.strip()}",
    ]


def test_lines_end_sentences_and_so_do_signs_of_other_scripts() -> None:
    line = "a line without a full stop that is quite long, as lines in lists and in logs often are"
    assert split_sentences(f"{line}\n{line}") == [line, line]
    japanese = "東京都に住んでいます" * 7
    assert split_sentences(f"{japanese}。{japanese}。") == [f"{japanese}。", f"{japanese}。"]


@given(st.text(st.sampled_from('ab .!?\n"。:'), max_size=600))
def test_nothing_is_lost_but_white_space_and_no_piece_is_empty(text: str) -> None:
    found = split_sentences(text)
    label = found[0][: found[0].index(": ") + 2] if found and all(": " in piece for piece in found) else ""
    if label and text.startswith(label):
        assert joined_words(label + "".join(piece.removeprefix(label) for piece in found)) == joined_words(text)
    else:
        assert joined_words("".join(found)) == joined_words(text)
    assert all(piece.strip() for piece in found)


@given(st.text(st.sampled_from("ab .!?\n"), max_size=2_000))
def test_there_are_never_many_pieces(text: str) -> None:
    assert len(split_sentences(text)) <= 2 * len(text) / SENTENCE_CHARACTERS + 1
