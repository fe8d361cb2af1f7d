"""The words of a question that name its frame count half; the others count whole, and never more than without one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.question import is_about_assistant, is_about_plan, question_terms
from commonplace.language.tokenizer import query_terms

WORDS = ["how", "many", "weeks", "ago", "İ", "book", "x_y", "today", "日本"]


@pytest.mark.parametrize(
    ("query", "terms", "share"),
    [
        ("which book did I finish a week ago?", {"book": 1, "finish": 1, "week": 0.5, "ago": 0.5}, 0.75),
        ("How many times did I bake?", {"mani": 0.5, "time": 0.5, "bake": 1}, 2 / 3),
        ("how much was the bread yesterday", {"much": 0.5, "bread": 1, "yesterday": 0.5}, 2 / 3),
        ("this week's plan for a 2 week trip", {"week": 1, "plan": 1, "2": 1, "trip": 1}, 1),
        ("bread recipe", {"bread": 1, "recip": 1}, 1),
        ("what did I bake last weekend?", {"bake": 1, "last": 0.5, "weekend": 0.5}, 2 / 3),
        ("who called last night", {"call": 1, "last": 0.5, "night": 0.5}, 2 / 3),
        ("How long ago did I bake", {"long": 0.5, "ago": 0.5, "bake": 1}, 2 / 3),
    ],
)
def test_only_the_frame_counts_less(query: str, terms: dict[str, float], share: float) -> None:
    assert question_terms(query) == (terms, pytest.approx(share))


@pytest.mark.parametrize("query", ["how many weeks ago", "two days ago", "Yesterday?"])
def test_a_question_that_is_all_frame_is_taken_by_its_words(query: str) -> None:
    assert question_terms(query) == (query_terms(query), 1.0)


@pytest.mark.parametrize(
    "query", ["notes of 2023-05-07", "the trip in May 2023", "the class on Monday", "the trip last summer"]
)
def test_what_a_text_may_say_in_the_same_words_is_no_frame(query: str) -> None:
    assert question_terms(query) == (query_terms(query), 1.0)


@given(st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_text_keeps_its_terms_and_at_least_half_of_their_weight(query: str) -> None:
    plain = query_terms(query)
    weighed, share = question_terms(query)
    assert weighed.keys() == plain.keys()
    assert all(weight / 2 <= weighed[term] <= weight for term, weight in plain.items())
    assert 0.5 <= share <= 1


@pytest.mark.parametrize(
    "query",
    [
        "which hotel did you recommend?",
        "the vegan eatery that you recommended last time",
        "Can you remind me what the three objectives were?",
        "In our previous chat we looked at names",
        "what was your advice about the boiler",
        "the list you've given me",
    ],
)
def test_a_question_may_be_about_what_the_assistant_said(query: str) -> None:
    assert is_about_assistant(query)


@pytest.mark.parametrize(
    "query",
    [
        "Can you recommend a hotel?",
        "what do you think of it",
        "what did Ana recommend?",
        "my last session at the gym was",
    ],
)
def test_a_request_for_something_new_is_not_about_what_the_assistant_said(query: str) -> None:
    assert not is_about_assistant(query)


@pytest.mark.parametrize(
    "query",
    ["What could we cook on Friday?", "Should I take the train this winter", "the roof: can we do it in May?"],
)
def test_a_question_may_ask_for_a_plan(query: str) -> None:
    assert is_about_plan(query)


@pytest.mark.parametrize(
    "query",
    [
        "What did we cook on Friday?",
        "Should I call the man whom I met last week?",
        "Can we see what was said on Friday?",
        "Can I see the photo of the boat of June?",
        "How can I find the minutes of 12 March 2024?",
        "Could we read what Ana wrote in June?",
        "What should I remember from Friday's meeting?",
        "Should I have called Ana on Monday?",
        "What should we have discussed on Friday?",
        "Where will we meet on 3 May?",
        "What happened in the May I spent in Rome?",
        "Can we check what Bob reported in March",
        "Could you find my notes of May?",
        "What would Ana like?",
        "Can you imagine",
    ],
)
def test_a_question_about_what_has_been_asks_for_no_plan(query: str) -> None:
    assert not is_about_plan(query)
