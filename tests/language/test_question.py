"""A question's own times are read as periods of days around what is meant, and other words as none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.question import MOST_PERIODS, periods, question_terms
from commonplace.language.tokenizer import query_terms

NOW = datetime(2023, 4, 27, 15, 30, tzinfo=UTC)  # a Thursday


def covers(query: str, *day: int) -> bool:
    noon = datetime(*day, 12, tzinfo=UTC)  # type: ignore[misc]
    return any(start <= noon <= end for start, end in periods(query, NOW))


@pytest.mark.promise("search-reads-dates")
@pytest.mark.parametrize(
    ("query", "inside", "outside"),
    [
        ("what did I show her on October 13, 2022?", (2022, 10, 13), (2022, 10, 25)),
        ("who came on 3 June, 2022", (2022, 6, 3), (2022, 6, 12)),
        ("the 3rd of June 2022", (2022, 6, 3), (2021, 6, 3)),
        ("the notes of 2022-12-24", (2022, 12, 24), (2022, 12, 20)),
        ("what happened on May 5", (2022, 5, 5), (2023, 5, 5)),
        ("where did I go in March?", (2023, 3, 15), (2023, 1, 15)),
        ("where did I go in December?", (2022, 12, 15), (2023, 12, 15)),
        ("flights in January and February", (2023, 2, 20), (2022, 12, 20)),
        ("the trip of July 2022", (2022, 7, 4), (2022, 9, 4)),
        ("what did I read in 2021", (2021, 8, 8), (2022, 8, 8)),
        ("which book did I finish a week ago?", (2023, 4, 20), (2023, 4, 26)),
        ("two months ago", (2023, 2, 25), (2023, 4, 1)),
        ("a couple of days ago", (2023, 4, 25), (2023, 4, 20)),
        ("3 weeks ago", (2023, 4, 6), (2023, 4, 20)),
        ("a year ago", (2022, 4, 27), (2023, 4, 1)),
        ("how often in the past two weeks", (2023, 4, 15), (2023, 4, 1)),
        ("last month", (2023, 3, 20), (2023, 1, 20)),
        ("what did we decide yesterday?", (2023, 4, 26), (2023, 4, 24)),
        ("what did I say today", (2023, 4, 27), (2023, 4, 25)),
        ("the call last Tuesday", (2023, 4, 25), (2023, 4, 18)),
        ("the call last Thursday", (2023, 4, 20), (2023, 4, 27)),
    ],
)
def test_a_named_time_is_meant_and_others_are_not(
    query: str, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    assert covers(query, *inside)
    assert not covers(query, *outside)


@pytest.mark.parametrize(
    "query",
    [
        "may I march on?",
        "who may come, or may not",
        "a second opinion",
        "which of the 12 monkeys",
        "version 2.0.19",
        "on 31 February 2023",
        "call getUserById(2023)",
        "the last one",
        "march 7:30",
        "",
    ],
)
def test_words_that_name_no_time_give_none(query: str) -> None:
    assert periods(query, NOW) == []


def test_a_phrase_of_the_question_is_read_once() -> None:
    assert len(periods("on 13 October 2022", NOW)) == 1
    assert len(periods("on 13 October 2022 and last week", NOW)) == 2


@given(
    st.lists(
        st.sampled_from(
            ["999 years ago", "last month", "30 feb", "2023-13-40", "on monday", "in 1900", "0 days ago", "é"]
        ),
        max_size=40,
    )
)
def test_any_question_is_read_and_a_period_never_ends_before_it_begins(parts: list[str]) -> None:
    for now in (NOW, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        found = periods(" ".join(parts), now)
        assert len(found) <= MOST_PERIODS
        assert all(end - start >= timedelta(days=1) for start, end in found)


# Framing words count half; the others count whole, and never more than without a frame.


WORDS = ["how", "many", "weeks", "ago", "İ", "book", "x_y", "today", "日本"]


@pytest.mark.parametrize(
    ("query", "terms", "share"),
    [
        ("which book did I finish a week ago?", {"book": 1, "finish": 1, "week": 0.5, "ago": 0.5}, 0.75),
        ("How many times did I bake?", {"mani": 0.5, "time": 0.5, "bake": 1}, 2 / 3),
        ("how much was the bread yesterday", {"much": 0.5, "bread": 1, "yesterday": 0.5}, 2 / 3),
        ("this week's plan for a 2 week trip", {"week": 1, "plan": 1, "2": 1, "trip": 1}, 1),
        ("bread recipe", {"bread": 1, "recip": 1}, 1),
        ("How long ago did I bake", {"long": 0.5, "ago": 0.5, "bake": 1}, 2 / 3),
    ],
)
def test_only_the_frame_counts_less(query: str, terms: dict[str, float], share: float) -> None:
    assert question_terms(query) == (terms, pytest.approx(share))


@pytest.mark.parametrize("query", ["how many weeks ago", "two days ago", "Yesterday?"])
def test_a_question_that_is_all_frame_is_taken_by_its_words(query: str) -> None:
    assert question_terms(query) == (query_terms(query), 1.0)


@pytest.mark.parametrize("query", ["notes of 2023-05-07", "the trip in May 2023", "the class on Monday"])
def test_what_a_text_may_say_in_the_same_words_is_no_frame(query: str) -> None:
    assert question_terms(query) == (query_terms(query), 1.0)


@given(st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_text_keeps_its_terms_and_at_least_half_of_their_weight(query: str) -> None:
    plain = query_terms(query)
    weighed, share = question_terms(query)
    assert weighed.keys() == plain.keys()
    assert all(weight / 2 <= weighed[term] <= weight for term, weight in plain.items())
    assert 0.5 <= share <= 1
