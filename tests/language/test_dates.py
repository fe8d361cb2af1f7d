"""A question's own times are read as stretches of days around what is meant, and other words as none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.question import MOST_STRETCHES, stretches

NOW = datetime(2023, 4, 27, 15, 30, tzinfo=UTC)  # a Thursday


def covers(query: str, *day: int) -> bool:
    noon = datetime(*day, 12, tzinfo=UTC)  # type: ignore[misc]
    return any(start <= noon <= end for start, end in stretches(query, NOW))


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
    assert stretches(query, NOW) == []


def test_a_stretch_of_the_question_is_read_once() -> None:
    assert len(stretches("on 13 October 2022", NOW)) == 1
    assert len(stretches("on 13 October 2022 and last week", NOW)) == 2


@given(
    st.lists(
        st.sampled_from(
            ["999 years ago", "last month", "30 feb", "2023-13-40", "on monday", "in 1900", "0 days ago", "é"]
        ),
        max_size=40,
    )
)
def test_any_question_is_read_and_a_stretch_never_ends_before_it_begins(parts: list[str]) -> None:
    for now in (NOW, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        found = stretches(" ".join(parts), now)
        assert len(found) <= MOST_STRETCHES
        assert all(end - start >= timedelta(days=1) for start, end in found)
