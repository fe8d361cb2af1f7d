"""Lifts keep scores within 0..1, never lower one, and never turn the order of one conversation around."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.fusion import conversation, in_conversation, in_time, together

scores = st.lists(st.floats(0, 1), min_size=1, max_size=20).map(lambda some: sorted(some, reverse=True))


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_lift_stays_within_bounds_and_never_lowers(score: float, spoken: float) -> None:
    for lifted in (in_time(score), in_conversation(score, spoken)):
        assert score - 1e-12 <= lifted <= 1.0


def test_what_does_not_match_at_all_is_not_lifted_by_its_time() -> None:
    assert in_time(0.0) == 0.0


@given(scores)
def test_a_conversation_keeps_the_order_of_its_messages(found: list[float]) -> None:
    lifted = [in_conversation(score, spoken) for score, spoken in zip(found, together(found), strict=True)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(lifted))


def test_nobody_speaks_for_a_message_that_stands_alone() -> None:
    assert together([0.7]) == [0.0]
    assert together([0.8, 0.4]) == [pytest.approx(0.2), pytest.approx(0.4)]


@given(scores)
def test_a_conversation_is_at_least_as_good_as_its_best_message(found: list[float]) -> None:
    assert found[0] - 1e-12 <= conversation(found) <= 1.0


@given(scores, st.floats(0, 1))
def test_more_messages_never_make_a_conversation_worse(found: list[float], more: float) -> None:
    assert conversation([*found, more]) >= conversation(found) - 1e-12


def test_several_good_messages_outweigh_one_that_is_a_little_better_and_many_poor_ones_do_not() -> None:
    assert conversation([0.6, 0.6, 0.6]) > conversation([0.62])
    assert conversation([0.5] + [0.3] * 50) < conversation([0.52])
    assert conversation([]) == 0.0
