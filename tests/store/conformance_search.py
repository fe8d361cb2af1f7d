"""What every backend must do to be searched: keywords, vectors and their models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from store_calls import BELOW, HERE, NOWHERE, SECOND, THERE, delete, embed_all, found_keys, put, unit

from commonplace.errors import ConfigurationError
from commonplace.filters import Filter
from commonplace.language.tokenizer import query_terms
from commonplace.store import Store
from doubles import Clock


class SearchConformance:
    """What words and vectors find."""

    # Keywords

    def test_scores_are_shares_of_the_ceiling_and_order_the_hits(self, store: Store) -> None:
        put(store, "both", "green deployment")
        put(store, "one", "green house with a garden and a long wall around it")
        put(store, "none", "unrelated")
        candidates = store.search_text(HERE, query_terms("green deployment"), Filter(), 10)
        keys = [store.load(HERE, [c.entry_id])[c.entry_id].key for c in candidates]
        assert keys == ["both", "one"]
        assert 0 < candidates[1].score < candidates[0].score <= 1
        assert (candidates[0].start, candidates[0].end) == (0, len("green deployment"))

    def test_a_long_text_is_found_by_its_best_passage_once(self, store: Store) -> None:
        filler = "Nothing of interest happens in this sentence. " * 100
        put(store, "long", filler + "The zebra sleeps. " + filler)
        (candidate,) = store.search_text(HERE, query_terms("zebra"), Filter(), 10)
        entry = store.load(HERE, [candidate.entry_id])[candidate.entry_id]
        assert "zebra" in entry.text[candidate.start : candidate.end]
        assert candidate.end - candidate.start < 2_000
        put(store, "long", filler + filler)
        assert found_keys(store, "zebra") == []
        assert len(store.search_text(HERE, query_terms("interest"), Filter(), 10)) == 1
        assert store.verify() == []

    def test_a_heading_is_found_and_a_changed_one_no_more(self, store: Store) -> None:
        put(store, "k", "body", heading="quarterly report")
        assert found_keys(store, "quarterly") == ["k"]
        put(store, "k", "body", heading="yearly report")
        assert found_keys(store, "quarterly") == []
        assert found_keys(store, "yearly") == ["k"]
        put(store, "k", "body")
        assert found_keys(store, "report") == []
        assert store.verify() == []

    def test_term_counts_are_the_namespaces_own(self, store: Store) -> None:
        put(store, "a", "red green")
        put(store, "b", "red")
        put(store, "c", "red blue", namespace=THERE)
        counts = store.term_counts(HERE, ["red", "green", "blue"])
        assert (counts.passages, dict(counts.containing)) == (2, {"red": 2, "green": 1, "blue": 0})
        assert counts.average_length == 1.5
        assert store.term_counts(NOWHERE, ["red"]).passages == 0

    def test_rebuilt_keywords_find_the_same(self, store: Store) -> None:
        for number in range(20):
            put(store, f"k{number}", f"word{number} shared " * (number * 40 + 1), heading=f"head{number}")
        delete(store, "k3")
        before = store.search_text(HERE, query_terms("shared word7"), Filter(), 50)
        store.rebuild_keywords()
        assert store.search_text(HERE, query_terms("shared word7"), Filter(), 50) == before
        assert store.verify() == []
        put(store, "k3", "shared again")
        assert len(store.search_text(HERE, query_terms("shared"), Filter(), 50)) == 20

    def test_rebuilding_keywords_is_not_a_commit_even_where_an_entry_has_expired(
        self, store: Store, clock: Clock
    ) -> None:
        put(store, "a", "red")
        put(store, "b", "red", expires_at=clock.now + SECOND)
        clock.advance(2)
        before = store.changes(HERE, 0)
        store.rebuild_keywords()
        assert store.changes(HERE, 0) == before
        assert found_keys(store, "red") == ["a"]
        assert store.verify() == []

    def test_of_equal_texts_the_newest_come_first_and_are_the_ones_that_are_kept(self, store: Store) -> None:
        for key in "abcdefgh":
            put(store, key, "apple")
        for key in "cab":
            put(store, key, "another")
            put(store, key, "apple")
        store.set_target_model("m", 8)
        embed_all(store, {"apple": unit(1)})
        for limit in (1, 3, 5, 8):
            near = store.search_vectors(HERE, "m", unit(1), Filter(), limit)
            by_words = store.search_text(HERE, query_terms("apple"), Filter(), limit)
            keys = [store.load(HERE, [c.entry_id])[c.entry_id].key for c in near]
            assert keys == list("bachgfed")[:limit]
            assert [c.entry_id for c in by_words] == [c.entry_id for c in near]
        everything = [candidate.entry_id for candidate in near]
        also = store.search_text(HERE, query_terms("apple"), Filter(), 1, sorted(everything))
        assert [candidate.entry_id for candidate in also] == everything

    # Vectors

    def test_vectors_find_the_nearest_of_exactly_their_model(self, store: Store) -> None:
        vectors = {"east": unit(1), "north": unit(0, 1), "north east": unit(1, 1)}
        for text in vectors:
            put(store, text, text)
        put(store, "foreign", "east", namespace=THERE)
        store.set_target_model("m", 8)
        assert store.indexing(HERE).pending == 3
        embed_all(store, vectors)
        assert store.indexing().pending == 0
        found = store.search_vectors(HERE, "m", unit(1), Filter(), 10)
        entries = store.load(HERE, [candidate.entry_id for candidate in found])
        assert [entries[c.entry_id].key for c in found] == ["east", "north east", "north"]
        assert [round(c.score, 2) for c in found] == [1.0, 0.71, 0.0]
        assert store.search_vectors(HERE, "other", unit(1), Filter(), 10) == []
        only = store.search_vectors(HERE, "m", unit(1), Filter(key_prefix="nor"), 1)
        assert [entries[c.entry_id].key for c in only] == ["north east"]
        assert store.verify() == []

    def test_an_ended_passage_is_never_found_and_its_late_vector_is_dropped(self, store: Store) -> None:
        store.set_target_model("m", 8)
        put(store, "a", "old")
        claimed = store.claim(10, 60)
        put(store, "a", "new")
        store.index("m", [(pending.chunk_id, unit(1)) for pending in claimed])
        assert store.search_vectors(HERE, "m", unit(1), Filter(), 10) == []
        assert store.indexing().pending == 1
        embed_all(store, {"new": unit(0, 1)})
        (candidate,) = store.search_vectors(HERE, "m", unit(1), Filter(), 10)
        assert candidate.score == pytest.approx(0.0)
        delete(store, "a")
        assert store.search_vectors(HERE, "m", unit(1), Filter(), 10) == []
        assert store.verify() == []

    def test_what_one_worker_claimed_another_leaves_alone_until_the_lease_ends(self, store: Store, clock: Any) -> None:
        for key in "abc":
            put(store, key, f"text {key}")
        assert [pending.text for pending in store.claim(2, 60)] == ["text c", "text b"]
        assert [pending.text for pending in store.claim(2, 60)] == ["text a"]
        assert store.claim(2, 60) == []
        assert [pending.text for pending in store.pending(HERE, 5)] == ["text c", "text b", "text a"]
        clock.advance(200)
        assert len(store.claim(5, 60)) == 3

    def test_a_passage_may_be_claimed_without_end(self, store: Store) -> None:
        put(store, "a", "text")
        for _ in range(1_100):
            assert len(store.claim(1, 60.0, even_leased=True)) == 1
        assert store.claim(1, 60) == []

    def test_pending_passages_can_be_asked_for_by_entry_and_start(self, store: Store) -> None:
        first, second, third = (put(store, key, f"text {key}") for key in "abc")
        foreign = put(store, "a", "theirs", namespace=("user", "other"))
        store.set_target_model("m", 8)
        store.index("m", [(pending.chunk_id, unit(1)) for pending in store.pending(HERE, 1)])
        among = [(third.id, 0), (second.id, 0), (first.id, 7), (first.id, 0), (foreign.id + 100, 0)]
        assert [pending.text for pending in store.pending(HERE, 5, among=among)] == ["text b", "text a"]
        assert [pending.text for pending in store.pending(HERE, 1, among=among)] == ["text b"]
        for namespace in (("user", "other"), BELOW):
            put(store, "b", "theirs too", namespace=namespace)
            assert store.pending(namespace, 5, among=[(second.id, 0), (first.id, 0)]) == []

    def test_a_new_model_serves_when_all_is_embedded_and_the_old_one_until_then(self, store: Store) -> None:
        put(store, "a", "east")
        put(store, "b", "north")
        assert store.models() == (None, None)
        store.set_target_model("old", 8)
        assert (store.indexing().serving, store.indexing().target) == ("old", "old") == store.models()
        embed_all(store, {"east": unit(1), "north": unit(0, 1)}, "old")
        store.set_target_model("new", 8)
        assert (store.indexing().serving, store.indexing().target, store.indexing().pending) == ("old", "new", 2)
        assert store.models() == ("old", "new")
        first = store.claim(1, 60)
        store.index("new", [(pending.chunk_id, unit(1)) for pending in first])
        store.index("old", [(pending.chunk_id, unit(1)) for pending in store.pending(HERE, 5)])  # a late worker
        assert (store.indexing().serving, store.indexing().pending) == ("old", 1)
        assert len(store.search_vectors(HERE, "old", unit(1), Filter(), 5)) == 2
        store.index("new", [(pending.chunk_id, unit(1)) for pending in store.pending(HERE, 5)])
        assert (store.indexing().serving, store.indexing().target, store.indexing().pending) == ("new", "new", 0)
        assert len(store.search_vectors(HERE, "new", unit(1), Filter(), 5)) == 2
        assert store.search_vectors(HERE, "old", unit(1), Filter(), 5) == []
        assert store.stats().vectors == 2
        assert store.verify() == []

    def test_a_model_that_changes_its_dimensions_is_refused(self, store: Store) -> None:
        store.set_target_model("m", 8)
        with pytest.raises(ConfigurationError, match="identity"):
            store.set_target_model("m", 9)

    def test_a_vector_of_a_wrong_length_becomes_pending_again(self, store: Store) -> None:
        for key in "abc":
            put(store, key, key)
        store.set_target_model("m", 8)
        lengths = {"a": 8, "b": 5, "c": 5}
        found = store.claim(3, 60)
        store.index("m", [(pending.chunk_id, np.ones(lengths[pending.text], np.float32)) for pending in found])
        delete(store, "c")
        store.set_target_model("m", 8)
        assert [pending.text for pending in store.pending(HERE, 5)] == ["b"]
        embed_all(store, {"b": unit(1)})
        assert len(store.search_vectors(HERE, "m", unit(1), Filter(), 5)) == 2
        assert store.verify() == []

    def test_former_states_keep_their_vectors(self, store: Store, clock: Any) -> None:
        store.set_target_model("m", 8)
        put(store, "a", "east")
        embed_all(store, {"east": unit(1)})
        then = clock.now
        clock.advance()
        put(store, "a", "north")
        embed_all(store, {"north": unit(0, 1)})
        (state,) = store.former(HERE, then, Filter())
        assert (state.value, state.revision) == ("east", 1)
        ((entry_id, start, end, vector),) = store.passage_vectors(HERE, "m", [(state.id, state.commit)])
        assert (entry_id, start, end) == (state.id, 0, 4)
        assert np.allclose(vector, unit(1))
        assert store.former(HERE, then, Filter(kinds=("record",))) == []
        assert store.former(HERE, clock.now, Filter()) == []
