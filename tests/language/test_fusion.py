"""A fused score is absolute, bounded, never lowered by evidence, and orders hits the same way every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.fusion import Fused, fuse

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


@given(st.permutations([(1, 0.3), (2, 0.3), (3, 0.7)]), st.permutations([(1, 0.6), (2, 0.6), (4, 0.3)]))
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
    assert fuse([], [(1, 0.5)]) == [Fused(1, pytest.approx(0.45), None, 0.5)]


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
