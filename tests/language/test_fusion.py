"""A fused score is absolute, bounded, never lowered by evidence, and orders hits the same way every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.fusion import ARCTIC_EMBED_S, LARGEST_PRIOR, Calibration, Fused, fuse, prior

ids = st.integers(0, 20)
keyword_hits = st.lists(st.tuples(ids, st.floats(0, 12)))
vector_hits = st.lists(st.tuples(ids, st.floats(-1, 1)))


def scores(hits: list[Fused]) -> dict[int, float]:
    return {hit.id: hit.score for hit in hits}


@given(keyword_hits, vector_hits, st.floats(0, 12))
def test_scores_lie_between_0_and_1_and_order_the_hits(keyword, vector, ceiling) -> None:
    hits = fuse(keyword, vector, ceiling=ceiling)
    assert all(0.0 <= hit.score <= 1.0 for hit in hits)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, -hit.id))
    assert len({hit.id for hit in hits}) == len(hits)


@given(keyword_hits, vector_hits, keyword_hits, vector_hits)
def test_more_evidence_never_lowers_a_score(keyword, vector, more_keyword, more_vector) -> None:
    before = scores(fuse(keyword, vector, ceiling=10))
    after = scores(fuse(keyword + more_keyword, vector + more_vector, ceiling=10))
    assert all(after[id] >= score for id, score in before.items())


@given(st.permutations([(1, 3.0), (2, 3.0), (3, 7.0)]), st.permutations([(1, 0.7), (2, 0.7), (4, 0.6)]))
def test_the_order_of_the_candidates_does_not_matter(keyword, vector) -> None:
    assert [hit.id for hit in fuse(keyword, vector, ceiling=10)] == [2, 1, 3, 4]


@given(keyword_hits, vector_hits, st.integers(0, 20))
def test_a_hit_keeps_its_score_when_other_hits_go(keyword, vector, only) -> None:
    together = scores(fuse(keyword, vector, ceiling=10))
    alone = scores(
        fuse([hit for hit in keyword if hit[0] == only], [h for h in vector if h[0] == only], ceiling=10)
    )
    assert alone == {id: score for id, score in together.items() if id == only}


def test_a_repeated_memory_is_near_1_and_nonsense_near_0() -> None:
    # Values of a memory asked for by its own words, of a related question, and of nonsense.
    repeated, related, nonsense = fuse([(1, 6.0), (2, 2.0)], [(1, 0.86), (2, 0.70), (3, 0.49)], ceiling=10)
    assert repeated.score > 0.9
    assert 0.4 < related.score < 0.8
    assert nonsense == Fused(3, 0.0, None, 0.0)


def test_a_hit_tells_the_parts_of_its_score() -> None:
    assert fuse([(1, 5.0)], [], ceiling=10) == [Fused(1, pytest.approx(0.45), 0.5, None)]
    assert fuse([], [(1, 0.675)], ceiling=0) == [Fused(1, pytest.approx(0.45), None, pytest.approx(0.5))]


def test_the_best_passage_of_a_text_counts() -> None:
    assert fuse([(1, 2.0), (1, 5.0), (1, 3.0)], [], ceiling=10) == fuse([(1, 5.0)], [], ceiling=10)


def test_a_query_without_terms_leaves_only_meaning() -> None:
    assert fuse([(1, 0.0)], [], ceiling=0.0) == []


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_a_nearer_vector_never_means_less(one: float, other: float) -> None:
    low, high = sorted([one, other])
    assert 0.0 <= ARCTIC_EMBED_S.meaning(low) <= ARCTIC_EMBED_S.meaning(high) <= 1.0
    assert Calibration(0.0, 1.0).meaning(high) == max(high, 0.0)


def test_the_newer_and_surer_of_two_equal_hits_comes_first() -> None:
    priors = {1: prior(age_days=1, confidence=0.9), 2: prior(age_days=300, confidence=0.4)}
    assert [hit.id for hit in fuse([(1, 5.0), (2, 5.0)], [], ceiling=10, priors=priors)] == [1, 2]


@given(st.none() | st.floats(-10, 1e6), st.none() | st.floats(0, 1))
def test_a_prior_is_gentle(age_days: float | None, confidence: float | None) -> None:
    assert 1.0 - LARGEST_PRIOR <= prior(age_days=age_days, confidence=confidence) <= 1.0


def test_what_is_unknown_costs_nothing() -> None:
    assert prior() == 1.0
    assert fuse([(1, 5.0)], [], ceiling=10, priors={}) == fuse([(1, 5.0)], [], ceiling=10)
