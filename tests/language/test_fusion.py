"""A fused score is absolute, bounded, never lowered by evidence, and orders hits the same way every time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.fusion import (
    Fused,
    boost_by_neighbours,
    boost_by_support,
    boost_by_time,
    ceiling,
    conversation_score,
    conversation_support,
    fuse,
    gain,
    idf,
    join,
    join_said,
    norm,
)
from commonplace.language.weights import K1, LONGEST, NEAR, RARITY, STRONG, WEAK, B

hits = st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1)))


def scores(found: list[Fused]) -> dict[int, float]:
    return {hit.id: hit.score for hit in found}


@given(hits, hits)
def test_scores_lie_between_0_and_1_and_order_the_hits(keyword, meaning) -> None:
    found = fuse(keyword, meaning)
    assert all(0.0 <= hit.score <= 1.0 for hit in found)
    places = list(dict.fromkeys(id for id, _ in keyword + meaning))
    assert found == sorted(found, key=lambda hit: (-hit.score, places.index(hit.id)))
    assert len({hit.id for hit in found}) == len(found)


@given(hits, hits, hits, hits)
def test_more_evidence_never_lowers_a_score(keyword, meaning, more_keyword, more_meaning) -> None:
    before = scores(fuse(keyword, meaning))
    after = scores(fuse(keyword + more_keyword, meaning + more_meaning))
    assert all(after[id] >= score for id, score in before.items())


@given(st.permutations([(1, 0.3), (2, 0.3), (3, 0.5)]), st.permutations([(1, 0.6), (2, 0.6), (4, 0.3)]))
def test_the_order_of_the_candidates_matters_only_among_equals(keyword, meaning) -> None:
    first, second = [id for id, _ in keyword if id in (1, 2)]
    assert [hit.id for hit in fuse(keyword, meaning)] == [first, second, 3, 4]


@given(hits, hits, st.integers(0, 20))
def test_a_hit_keeps_its_score_when_other_hits_go(keyword, meaning, only) -> None:
    together = scores(fuse(keyword, meaning))
    alone = scores(fuse([hit for hit in keyword if hit[0] == only], [hit for hit in meaning if hit[0] == only]))
    assert alone == {id: score for id, score in together.items() if id == only}


def test_a_repeated_memory_is_near_1_and_nonsense_near_0() -> None:
    # Values of a memory asked for by its own words, of a related question, and of nonsense.
    repeated, related, nonsense = fuse([(1, 0.6), (2, 0.2)], [(1, 1.0), (2, 0.57), (3, 0.0)])
    assert repeated.score > 0.9
    assert 0.4 < related.score < 0.8
    assert nonsense == Fused(3, 0.0, None, 0.0)


def test_a_hit_tells_the_parts_of_its_score() -> None:
    assert fuse([(1, 0.5)], []) == [Fused(1, pytest.approx(0.45), 0.5, None)]
    assert fuse([], [(1, 0.5)]) == [Fused(1, pytest.approx(0.4), None, 0.5)]


def test_the_best_passage_of_a_text_counts() -> None:
    assert fuse([(1, 0.2), (1, 0.5), (1, 0.3)], []) == fuse([(1, 0.5)], [])


@given(st.floats(-9, 9))
def test_a_part_outside_of_the_scale_is_brought_back_to_it(share) -> None:
    assert 0.0 <= fuse([(1, share)], [(1, share)])[0].score <= 1.0


def test_a_text_whose_meaning_is_not_known_yet_is_presumed_to_mean_what_its_words_say() -> None:
    waiting, near, far = fuse([(1, 0.4)], [(2, 0.5), (3, 0.1)], presume=True)
    assert (waiting.id, waiting.keyword, waiting.meaning) == (1, 0.4, None)
    assert (near.id, far.id) == (2, 3)
    assert [hit.id for hit in fuse([(1, 0.4)], [(2, 0.5), (3, 0.1)])] == [2, 1, 3]
    assert fuse([(1, 0.4)], [(1, 0.1)], presume=True) == fuse([(1, 0.4)], [(1, 0.1)])


# Boosts keep scores within 0..1 and never lower one.


message_scores = st.lists(st.floats(0, 1), min_size=1, max_size=20).map(lambda some: sorted(some, reverse=True))


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_lift_stays_within_bounds_and_never_lowers(score: float, spoken: float) -> None:
    for lifted in (boost_by_time(score), boost_by_support(score, spoken), boost_by_neighbours(score, 2 * spoken)):
        assert score - 1e-12 <= lifted <= 1.0


def test_what_does_not_match_at_all_is_not_lifted_by_its_time() -> None:
    assert boost_by_time(0.0) == 0.0


def test_nobody_speaks_for_a_message_that_stands_alone() -> None:
    assert conversation_support([STRONG], STRONG) == [0.0]
    assert conversation_support([0.9, 0.4], 0.9) == [0.0, pytest.approx(0.45)]


def test_only_messages_that_are_nearly_the_best_of_the_search_speak_for_others() -> None:
    assert conversation_support([0.9, 0.85, 0.4], 0.9) == [
        pytest.approx(0.425),
        pytest.approx(0.45),
        pytest.approx(0.6625),
    ]
    assert conversation_support([NEAR * 0.9 - 0.01] * 30, 0.9) == [0.0] * 30


def test_a_best_score_that_says_little_lifts_little() -> None:
    assert conversation_support([WEAK, WEAK], WEAK) == [0.0, 0.0]
    middle = (WEAK + STRONG) / 2
    assert conversation_support([middle, middle], middle)[0] == pytest.approx(middle / 4)


@given(message_scores)
def test_a_conversation_is_at_least_as_good_as_its_best_message(found: list[float]) -> None:
    assert found[0] - 1e-12 <= conversation_score(found) <= 1.0


@given(message_scores, st.floats(0, 1))
def test_more_messages_never_make_a_conversation_worse(found: list[float], more: float) -> None:
    assert conversation_score([*found, more]) >= conversation_score(found) - 1e-12


def test_several_good_messages_outweigh_one_that_is_a_little_better_and_many_poor_ones_do_not() -> None:
    assert conversation_score([0.6, 0.6, 0.6]) > conversation_score([0.62])
    assert conversation_score([0.5] + [0.3] * 50) < conversation_score([0.52])
    assert conversation_score([]) == 0.0


# BM25


counts = st.integers(0, 10**9)
lengths = st.floats(0, 1e6)


def contribution(idf: float, frequency: float, length: float, average_length: float) -> float:
    return float(gain(idf, frequency, norm(length, average_length)))


@given(counts, counts)
def test_idf_is_never_negative(documents: int, containing: int) -> None:
    assert idf(documents, containing) >= 0


def test_a_rarer_word_weighs_more() -> None:
    weights = [idf(1_000, containing) for containing in (0, 1, 10, 500, 1_000)]
    assert weights == sorted(weights, reverse=True)
    assert len(set(weights)) == 5


@given(st.floats(0.01, 20), st.integers(1, 10**6), lengths, st.just(0.0) | st.floats(1, 1e6))
def test_no_text_passes_the_ceiling(weight: float, frequency: int, length: float, average: float) -> None:
    assert 0 < contribution(weight, frequency, length, average) <= ceiling([weight])


def test_repeating_a_word_counts_less_each_time() -> None:
    once, twice, thrice = (contribution(1.0, frequency, 10, 10) for frequency in (1, 2, 3))
    assert once < twice < thrice
    assert twice - once > thrice - twice


def test_a_longer_text_needs_more_of_a_word() -> None:
    assert contribution(1.0, 1, 5, 10) > contribution(1.0, 1, 50, 10)


def test_texts_far_above_the_average_length_count_alike() -> None:
    assert contribution(1.0, 1, 50 * LONGEST, 10) == contribution(1.0, 1, 10 * LONGEST, 10)
    assert contribution(1.0, 1, 10 * LONGEST, 10) < contribution(1.0, 1, 9 * LONGEST, 10)


def test_a_word_once_in_an_average_text_has_a_known_value() -> None:
    assert contribution(2.0, 1, 10, 10) == pytest.approx(2.0 / (1 + K1))
    assert contribution(2.0, 1, 20, 10) == pytest.approx(2.0 / (1 + K1 * (1 + B)))


def test_the_ceiling_is_the_sum_of_the_idfs() -> None:
    assert ceiling([3.0, 0.5 * 4.0]) == 5.0
    assert ceiling([]) == 0.0


def test_a_rare_word_says_more_than_the_logarithm_grants() -> None:
    rare, common = (math.log1p((1_000 - containing + 0.5) / (containing + 0.5)) for containing in (1, 300))
    assert idf(1_000, 1) / idf(1_000, 300) == pytest.approx((rare / common) ** RARITY)
    assert RARITY > 1


def test_words_say_less_in_a_message_and_meaning_says_more() -> None:
    assert join_said(1.0, 0.0) < join(1.0, 0.0)
    assert join_said(0.0, 1.0) > join(0.0, 1.0)


def test_messages_that_speak_for_their_thread_are_trusted_between_messages_and_files() -> None:
    def alone(keyword: float, meaning: float) -> float:
        return fuse([(1, keyword)], [(1, meaning)], of_threads=True)[0].score

    assert join_said(0.1, 0.0) < alone(0.1, 0.0) < alone(0.5, 0.0) == pytest.approx(join(0.5, 0.0))
    assert alone(0.0, 0.5) == pytest.approx(join_said(0.0, 0.5))
