"""BM25 prefers rare words, repeated words and short texts, within a ceiling known beforehand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.fusion import K1, RARITY, B, ceiling, gain, idf, norm

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
