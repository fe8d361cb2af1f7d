"""What every backend must do for its operators: counts, purges, backups."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from store_calls import HERE, NOWHERE, THERE, delete, embed_all, found_keys, get, move, put, unit

from commonplace.checks import Namespace
from commonplace.engine.indexer import lacks_stems
from commonplace.errors import AlreadyExists, InvalidInput
from commonplace.filters import Filter
from commonplace.language import passages
from commonplace.language.tokenizer import STEM, query_terms
from commonplace.store import NamespaceStats, Scan, Store


class CareConformance:
    """Counting, erasing and copying."""

    def open_copy(self, path: Path) -> Store:
        raise NotImplementedError

    # Care

    def test_stats_count_what_is_there(self, store: Store, clock: Any) -> None:
        put(store, "a", "one")
        put(store, "a", "two")
        put(store, "b", kind="record")
        put(store, "c", namespace=THERE)
        delete(store, "c", namespace=THERE)
        stats = store.stats()
        assert (stats.namespaces, stats.entries, stats.former_states) == (2, {"file": 1, "record": 1}, 2)
        assert (stats.chunks, stats.vectors, stats.pending, stats.model) == (2, 0, 2, None)
        assert stats.bytes > 0
        assert store.namespace_stats(HERE) == NamespaceStats(
            HERE, {"file": 1, "record": 1}, commit=3, updated_at=clock.now + 2, chunks=2, pending=2, former_states=1,
            bytes=len("two{}text{}"), former_bytes=store.usage(HERE).former_bytes,
        )  # fmt: skip
        assert store.namespace_stats(NOWHERE) == NamespaceStats(NOWHERE, {}, 0, 0, 0, 0, 0, 0, 0)
        assert (store.last_commit(HERE), store.last_commit(NOWHERE)) == (store.namespace_stats(HERE).commit, 0)

    def test_namespaces_are_listed_below_a_prefix_that_ends_at_a_label(self, store: Store) -> None:
        names: list[Namespace] = [("user",), ("user", "u1"), ("user", "u1", "x"), ("user", "u10"), ("users",), ("ü",)]
        for name in names:
            put(store, "k", namespace=name)
        assert store.namespaces() == names
        assert store.namespaces(("user",)) == names[:4]
        assert store.namespaces(("user", "u1")) == names[1:3]
        assert store.namespaces(("use",)) == []
        assert store.namespaces(limit=2) == names[:2]
        assert store.namespaces(after=names[1], limit=2) == names[2:4]

    def test_purge_of_an_entry_erases_it_and_its_history_only(self, store: Store) -> None:
        put(store, "a", "one secret")
        put(store, "a", "two secrets")
        put(store, "b", "kept secret")
        put(store, "a", "other kind", kind="record")
        assert store.purge(HERE, kind="file", key="a") == 2
        assert get(store, "a") is None
        assert store.history(HERE, "file", "a") == []
        assert store.state(HERE, "file", "a", 1) is None
        assert found_keys(store, "secret") == ["b"]
        assert store.get(HERE, "record", ["a"]) != [None]
        assert store.purge(HERE, kind="file", key="a") == 0
        assert store.verify() == []

    def test_purge_of_a_prefix_erases_what_lies_there_live_or_former_and_nothing_else(self, store: Store) -> None:
        for key in ("a\x01b", "a\x01c", "ab", "a"):
            put(store, key, "secret")
        delete(store, "a\x01c")
        put(store, "a\x01b", "other kind", kind="record")
        assert store.purge(HERE, kind="file", prefix="a\x01") == 2
        assert store.history(HERE, "file", "a\x01c") == []
        assert sorted(found_keys(store, "secret")) == ["a", "ab"]
        assert store.get(HERE, "record", ["a\x01b"]) != [None]
        assert store.verify() == []

    @pytest.mark.promise("engine-purge")
    def test_purge_of_a_moved_entry_erases_its_history_under_former_names(self, store: Store, clock: Any) -> None:
        put(store, "first", "the secret")
        then = clock.now
        clock.advance()
        move(store, "first", "second")
        put(store, "second", "no more")
        move(store, "second", "third")
        store.purge(HERE, kind="file", key="third")
        for key in ("first", "second", "third"):
            assert store.history(HERE, "file", key) == []
        assert get(store, "first", as_of=then) is None
        assert store.verify() == []

    def test_purge_of_a_former_name_leaves_the_entry_that_moved_away_from_it(self, store: Store) -> None:
        put(store, "old", "text")
        put(store, "old", "text, edited")
        moved = move(store, "old", "new")
        assert store.purge(HERE, kind="file", key="old") == 2
        assert get(store, "new") == moved
        assert store.history(HERE, "file", "old") == []
        assert [line.action for line in store.history(HERE, "file", "new")] == ["moved_here"]

    def test_purge_of_old_history_keeps_what_was_valid_since(self, store: Store, clock: Any) -> None:
        text = "line\n" * 100
        states = []
        for number in range(60):
            clock.advance()
            text = text[: number * 3] + f"<{number}>" + text[number * 3 :] + ("tail\n" if number % 2 else "")
            states.append(put(store, "a", text))
        clock.advance()
        delete(store, "a")
        cut = states[40].updated_at
        assert store.purge(HERE, history_before=cut) == 39
        assert [store.state(HERE, "file", "a", number) for number in (1, 39)] == [None, None]
        for state in states[39:]:
            assert store.state(HERE, "file", "a", state.revision) == state
            assert get(store, "a", as_of=state.updated_at) == state
        assert store.purge(HERE, history_before=cut) == 0
        assert put(store, "a").revision == 62
        assert store.verify() == []

    @pytest.mark.promise("engine-purge")
    def test_purge_erases_the_passages_and_vectors_of_erased_states_only(self, store: Store, clock: Any) -> None:
        store.set_target_model("m", 8)
        vectors = {"east": unit(1), "north": unit(0, 1)}
        states = []
        for text in vectors:
            states.append(put(store, "a", text))
            embed_all(store, vectors)
            clock.advance()

        def kept() -> list[int]:
            return [len(store.passage_vectors(HERE, "m", [(state.id, state.commit)])) for state in states]

        assert kept() == [1, 1]
        assert store.purge(HERE, history_before=clock.now) == 1
        assert kept() == [0, 1]
        assert store.purge(HERE, kind="file", key="a") == 1
        assert kept() == [0, 0]

    @pytest.mark.promise("engine-purge")
    @pytest.mark.parametrize("order", [(1, 2), (2, 1), (2, 3, 1), (3, 1, 2)])
    def test_purge_of_each_revision_erases_what_they_share(self, store: Store, order: tuple[int, ...]) -> None:
        store.set_target_model("m", 8)
        shared = "The keeper wrote a long paragraph about oil and lamps. " * 40
        states = [put(store, "a", shared + "end" * number) for number in range(1, len(order) + 1)]
        while claimed := store.claim(100, 60.0):
            store.index("m", [(one.chunk_id, unit(1)) for one in claimed])
        put(store, "a", "short")

        def kept() -> list[bool]:
            return [bool(store.passage_vectors(HERE, "m", [(state.id, state.commit)])) for state in states]

        for done, revision in enumerate(order, 1):
            assert store.purge(HERE, kind="file", key="a", revision=revision) == 1
            left = set(order[done:])
            assert all(kept()[number - 1] for number in left)
        assert kept() == [False] * len(order)
        assert store.verify() == []

    def test_purge_of_a_namespace_leaves_the_others(self, store: Store) -> None:
        put(store, "a", "one")
        put(store, "a", "two")
        put(store, "b", kind="record")
        put(store, "a", "kept", namespace=THERE)
        assert store.purge(HERE) == 3
        assert store.scan(HERE, Scan()).entries == ()
        assert store.namespace_stats(HERE).former_states == 0
        assert [entry.value for entry in store.scan(THERE, Scan()).entries] == ["kept"]
        assert store.verify() == []
        put(store, "a", "new life")
        assert found_keys(store, "life") == ["a"]

    @pytest.mark.promise("languages-of-older-books")
    def test_a_book_from_before_the_stems_of_other_languages_is_searched_and_can_be_indexed_again(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as before:
            before.setattr(passages, "stem_terms", lambda text, terms: {})
            put(store, "invoices", "Die Rechnungen der Stadtwerke liegen im Ordner.")
            store.maintain()  # a backend may write keywords later than the entry
        put(store, "notes", "Nothing about it.")
        form = query_terms("Wo ist die Rechnung?")
        whole = [
            candidate.score for candidate in store.search_text(HERE, query_terms("Wo sind Rechnungen?"), Filter(), 9)
        ]
        assert len(whole) == 1
        assert store.search_text(HERE, form, Filter(), 9) == []
        assert store.verify() == []
        assert lacks_stems(store)
        store.rebuild_keywords()
        assert len(store.search_text(HERE, form, Filter(), 9)) == 1
        assert store.verify() == []
        assert not lacks_stems(store)

    @pytest.mark.promise("languages-english-unchanged")
    def test_a_query_that_may_be_in_another_language_scores_english_texts_as_without_its_stems(
        self, store: Store
    ) -> None:
        put(store, "a", "A trip to Los Angeles with the whole family.")
        put(store, "b", "Angeles is also the name of a city.")
        terms = query_terms("los angeles trips")
        plain = {term: weight for term, weight in terms.items() if not term.startswith(STEM)}
        assert len(plain) < len(terms)
        assert store.search_text(HERE, terms, Filter(), 9) == store.search_text(HERE, plain, Filter(), 9) != []

    def test_a_backup_holds_everything_and_is_a_store_of_its_own(self, store: Store, tmp_path: Path) -> None:
        for number in range(50):
            put(store, f"k{number}", f"words {number}")
        put(store, "k1", "changed")
        delete(store, "k2")
        progress: list[int] = []
        target = tmp_path / "copies" / "copy.db"
        with pytest.raises(InvalidInput, match="folder"):
            store.backup(target)
        target.parent.mkdir()
        store.backup(target, lambda done, total, word: progress.append(done))
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        with pytest.raises(AlreadyExists, match="exists"):
            store.backup(target)
        put(store, "later", "not in the copy")
        copy = self.open_copy(target)
        try:
            assert copy.verify() == []
            expected = [entry for entry in store.scan(HERE, Scan()).entries if entry.key != "later"]
            assert list(copy.scan(HERE, Scan()).entries) == expected
            assert copy.history(HERE, "file", "k1") == store.history(HERE, "file", "k1")
            put(copy, "own", "life")
        finally:
            copy.close()
        assert get(store, "own") is None
        assert progress
        assert [path.name for path in target.parent.iterdir() if "unfinished" in path.name] == []
