"""What every backend must do with entries: writing, reading, identities, moves and transactions."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from store_calls import BELOW, HERE, NOWHERE, SECOND, THERE, delete, found_keys, get, move, put

from commonplace.entry import SEPARATOR, Draft, Entry
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.filters import Filter
from commonplace.store import Scan, Store, Transaction


class EntriesConformance:
    """One entry, and several in one transaction."""

    # Writing and reading

    def test_what_was_put_is_read_whole(self, store: Store, clock: Any) -> None:
        value = {"a": [1, 2.5, None, True, {"ü": "✓"}], "": "empty key"}
        attributes = {"type": "note", "tags": ["x", "y"], "confidence": 0.5}
        entry = put(
            store,
            "k1",
            value,
            kind="record",
            text="seen by search",
            heading="head",
            attributes=attributes,
            identity="i1",
            expires_at=clock.now + SECOND,
            actor="alice",
        )
        expected = Entry(
            id=entry.id,
            namespace=HERE,
            kind="record",
            key="k1",
            value=value,
            text="seen by search",
            heading="head",
            attributes=attributes,
            identity="i1",
            revision=1,
            commit=1,
            created_at=clock.now,
            updated_at=clock.now,
            expires_at=clock.now + SECOND,
            actor="alice",
        )
        assert entry == expected
        assert store.get(HERE, "record", ["k1"]) == [expected]
        assert store.find(HERE, "record", "i1") == expected
        assert store.load(HERE, [entry.id]) == {entry.id: expected}
        assert store.scan(HERE, Scan()).entries == (expected,)

    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            False,
            0,
            -1,
            2**63 - 1,
            -(2**63),
            2**70,
            1.0,
            1e-300,
            "",
            "a\nb",
            [],
            {},
            [[[]]],
            {"a": {"b": 1}},
        ],
    )
    def test_every_json_value_comes_back_the_same(self, store: Store, value: Any) -> None:
        put(store, "k", value)
        found = get(store, "k")
        assert found is not None
        assert (type(found.value), found.value) == (type(value), value)

    def test_a_batch_is_answered_in_its_order_with_none_for_what_is_missing(self, store: Store) -> None:
        put(store, "a")
        put(store, "b")
        found = store.get(HERE, "file", ["b", "missing", "a", "b"])
        assert [entry and entry.key for entry in found] == ["b", None, "a", "b"]

    def test_kinds_and_namespaces_have_their_own_keys(self, store: Store) -> None:
        put(store, "k", "file here")
        put(store, "k", "record here", kind="record")
        put(store, "k", "file there", namespace=THERE)
        assert [entry and entry.value for entry in store.get(HERE, "file", ["k"])] == ["file here"]
        assert [entry and entry.value for entry in store.get(HERE, "record", ["k"])] == ["record here"]
        assert [entry and entry.value for entry in store.get(THERE, "file", ["k"])] == ["file there"]
        assert store.get(NOWHERE, "file", ["k"]) == [None]

    def test_the_next_key_is_that_of_the_next_live_entry_of_the_same_kind(self, store: Store) -> None:
        for key in ("a\x01 1", "a\x01 2", "a\x01 3", "Ä", "B"):
            put(store, key)
        put(store, "z", namespace=BELOW)
        delete(store, "a\x01 2")
        wanted = ["a\x01 1", "Ä", "", "a\x01 3", "a\x01 2"]
        assert store.next_keys(HERE, "file", wanted) == ["a\x01 3", None, "B", "Ä", "a\x01 3"]
        assert store.next_keys(HERE, "record", ["a"]) == [None]
        assert store.next_keys(NOWHERE, "file", ["a", "b"]) == [None, None]
        assert store.next_keys(HERE, "file", []) == []

    def test_a_namespace_knows_nothing_of_the_one_above_it(self, store: Store) -> None:
        former = put(store, "new\x01k", identity="i")
        put(store, "new\x01k", "changed", identity="i")
        live = move(store, "new\x01k", "other")
        put(store, "old\x01j")
        put(store, "old\x01k", namespace=BELOW)

        def work(transaction: Transaction) -> None:
            transaction.record_operation("k", 1, expires_at=transaction.time + SECOND)

        store.write(HERE, work)
        assert store.load(BELOW, [live.id]) == {}
        for entry in (former, live):
            assert get(store, entry.key, namespace=BELOW, as_of=entry.updated_at) is None
        assert [child.name for child in store.children(BELOW, "file", "old\x01")] == ["k"]
        assert store.last_key(BELOW, "file", "i") is None
        assert store.read(BELOW, lambda reader: reader.was_used("file", former.key, former.key)) is False
        store.write(BELOW, lambda transaction: transaction.move_range("file", "old\x01", "new\x01", lambda key: None))
        assert get(store, "new\x01k", namespace=BELOW).revision == 2  # type: ignore[union-attr]
        assert store.purge(BELOW) == 2
        assert get(store, "other") == live
        assert store.write(HERE, lambda transaction: transaction.operation("k"))[0] == 1
        assert store.verify() == []

    def test_an_update_keeps_the_entry_and_its_creation_and_raises_its_revision(self, store: Store, clock: Any) -> None:
        first = put(store, "k", "one")
        clock.advance()
        second = put(store, "k", "two")
        assert (second.id, second.created_at, second.updated_at) == (first.id, first.created_at, clock.now)
        assert (second.revision, second.commit) == (2, 2)

    def test_given_times_are_kept(self, store: Store, clock: Any) -> None:
        entry = put(store, "k", created_at=5, updated_at=7)
        assert (entry.created_at, entry.updated_at) == (5, 7)
        assert get(store, "k") == entry

    @pytest.mark.promise("engine-commit-order")
    def test_commit_times_rise_even_when_the_clock_stands_still_or_goes_back(self, store: Store, clock: Any) -> None:
        times = []
        for step in (0, 0, -3600, -3600, 10):
            clock.advance(step)
            times.append(put(store, "k", str(len(times))).updated_at)
        assert times == sorted(set(times))
        assert [get(store, "k", as_of=time).value for time in times] == ["0", "1", "2", "3", "4"]  # type: ignore[union-attr]

    def test_a_key_that_no_entry_may_have_is_refused(self, store: Store) -> None:
        for key in ("", "a\x00b", "line\nbreak", "x" * 3_000, "\ud800"):
            with pytest.raises(InvalidInput):
                put(store, key)
            put(store, "fine")
            with pytest.raises(InvalidInput):
                move(store, "fine", key)
        assert [entry.key for entry in store.scan(HERE, Scan()).entries] == ["fine"]

    # Identities

    def test_two_live_entries_of_a_kind_never_share_an_identity(self, store: Store) -> None:
        put(store, "a", identity="i")
        before = store.namespace_stats(HERE)
        with pytest.raises(Conflict):
            put(store, "b", identity="i")
        assert store.namespace_stats(HERE) == before
        assert get(store, "b") is None
        put(store, "a", "changed", identity="i")
        put(store, "a", identity="i", kind="record")
        put(store, "a", identity="i", namespace=THERE)

    def test_a_refused_put_changes_nothing_even_where_its_transaction_goes_on(self, store: Store) -> None:
        put(store, "a", identity="i")
        before = put(store, "b", "kept", identity="j")

        def work(transaction: Transaction) -> None:
            for key in ("b", "new"):
                with pytest.raises(Conflict):
                    transaction.put(Draft("file", key, "refused", identity="i"))
            transaction.put(Draft("file", "c", "fine"))

        store.write(HERE, work)
        assert get(store, "b") == before
        assert get(store, "new") is None
        assert [line.revision for line in store.history(HERE, "file", "b")] == [1]
        assert put(store, "b", "goes on").revision == 2
        assert found_keys(store, "refused") == []
        assert store.verify() == []

    def test_an_identity_moves_with_its_entry_and_is_free_after_a_deletion(self, store: Store) -> None:
        entry = put(store, "a", identity="i")
        move(store, "a", "b")
        found = store.find(HERE, "file", "i")
        assert found is not None
        assert (found.id, found.key) == (entry.id, "b")
        delete(store, "b")
        assert store.find(HERE, "file", "i") is None
        put(store, "c", identity="i")

    def test_the_last_key_of_an_identity_is_the_live_one_or_else_the_one_that_ended_last(self, store: Store) -> None:
        assert store.last_key(HERE, "file", "i") is None
        put(store, "a", identity="i")
        delete(store, "a")
        put(store, "b", identity="i")
        assert store.last_key(HERE, "file", "i") == "b"
        delete(store, "b")
        put(store, "a", identity="other")
        assert store.last_key(HERE, "file", "i") == "b"
        assert store.last_key(HERE, "record", "i") is None
        assert store.last_key(("user", "u10"), "file", "i") is None

    def test_an_identity_is_free_once_its_entry_has_expired(self, store: Store, clock: Any) -> None:
        put(store, "a", identity="i", expires_at=clock.now + SECOND)
        clock.advance(1)
        assert store.find(HERE, "file", "i") is None
        assert put(store, "b", identity="i").key == "b"

    # Deleting and moving

    def test_delete_returns_the_last_state_and_none_where_there_is_nothing(self, store: Store) -> None:
        entry = put(store, "k")
        assert delete(store, "k") == entry
        assert get(store, "k") is None
        commit = store.namespace_stats(HERE).commit
        assert delete(store, "k") is None
        assert store.namespace_stats(HERE).commit == commit

    def test_a_moved_entry_stays_the_same_entry(self, store: Store, clock: Any) -> None:
        entry = put(store, "old", "words to find", heading="old name", attributes={"tags": ["t"]})
        clock.advance()
        moved = move(store, "old", "new", "fresh name")
        assert get(store, "old") is None
        assert get(store, "new") == moved
        assert (moved.id, moved.value, moved.created_at) == (entry.id, entry.value, entry.created_at)
        assert (moved.revision, moved.heading, moved.updated_at) == (2, "fresh name", clock.now)
        assert found_keys(store, "words") == found_keys(store, "fresh") == ["new"]
        assert found_keys(store, "old") == []
        assert found_keys(store, "find", Filter(all_tags=("t",))) == ["new"]

    def test_a_move_needs_a_source_and_a_free_target(self, store: Store) -> None:
        put(store, "a", "one")
        put(store, "b", "two")
        with pytest.raises(NotFound):
            move(store, "missing", "c")
        with pytest.raises(Conflict):
            move(store, "a", "b")
        assert [entry.value for entry in store.scan(HERE, Scan()).entries] == ["one", "two"]
        assert store.namespace_stats(HERE).commit == 2

    def test_touch_changes_the_time_but_makes_no_revision_and_no_change(self, store: Store, clock: Any) -> None:
        entry = put(store, "k")
        clock.advance()
        store.write(HERE, lambda transaction: transaction.touch("file", "k"))
        touched = get(store, "k")
        assert touched is not None
        assert (touched.updated_at, touched.revision) == (clock.now, entry.revision)
        assert len(store.changes(HERE)) == 1
        assert len(store.history(HERE, "file", "k")) == 1

    @pytest.mark.promise("engine-revisions-never-restart")
    def test_revisions_never_restart(self, store: Store) -> None:
        put(store, "a")
        put(store, "a")
        delete(store, "a")
        assert put(store, "a").revision == 4
        put(store, "b")
        move(store, "a", "c")
        assert put(store, "a").revision == 6
        delete(store, "a")
        assert move(store, "b", "a").revision == 8
        assert move(store, "a", "b").revision == 9
        revisions = [line.revision for line in store.history(HERE, "file", "a")]
        assert revisions == sorted(set(revisions))

    @pytest.mark.promise("engine-revisions-never-restart")
    def test_revisions_go_on_where_a_range_is_moved_to_keys_that_were_used(self, store: Store) -> None:
        for key, states in (("old\x01a", 1), ("old\x01b", 4), ("old\x01c", 1), ("new\x01a", 2), ("new\x01b", 1)):
            for number in range(states):
                put(store, key, f"text {number}")
        for key in ("new\x01a", "new\x01b"):
            delete(store, key)
        store.write(HERE, lambda transaction: transaction.move_range("file", "old\x01", "new\x01", lambda key: None))
        assert [entry.revision for entry in store.scan(HERE, Scan()).entries] == [4, 5, 2]
        assert [line.revision for line in store.history(HERE, "file", "new\x01a")] == [1, 2, 3, 4]

    # Transactions

    @pytest.mark.promise("engine-atomic-write")
    def test_a_failing_transaction_leaves_no_trace(self, store: Store) -> None:
        put(store, "kept", "old words")

        def work(transaction: Transaction) -> None:
            transaction.put(Draft("file", "kept", "new words"))
            transaction.put(Draft("file", "added", "more words"))
            transaction.delete("file", "kept")
            raise LookupError("on purpose")

        before = (store.namespace_stats(HERE), store.stats().entries, store.changes(HERE), store.scan(HERE, Scan()))
        with pytest.raises(LookupError, match="on purpose"):
            store.write(HERE, work)
        with pytest.raises(LookupError):
            store.write(THERE, work)
        after = (store.namespace_stats(HERE), store.stats().entries, store.changes(HERE), store.scan(HERE, Scan()))
        assert after == before
        assert store.namespaces() == [HERE]
        assert found_keys(store, "new more") == []
        assert put(store, "next").commit == 2
        assert store.verify() == []

    def test_a_transaction_that_changes_nothing_has_no_commit(self, store: Store) -> None:
        result, commit = store.write(HERE, lambda transaction: transaction.get("file", "k"))
        assert (result, commit) == (None, None)
        assert store.namespaces() == []

    def test_a_transaction_reads_its_own_writes(self, store: Store) -> None:
        def work(transaction: Transaction) -> tuple[Any, ...]:
            first = transaction.put(Draft("file", "a", "one", identity="i"))
            transaction.put(Draft("file", f"a{SEPARATOR}b", "two"))
            return (
                first.updated_at == transaction.time,
                transaction.get("file", "a"),
                transaction.find("file", "i"),
                [entry.key for entry in transaction.scan(Scan(Filter(kinds=("file",)))).entries],
                [child.name for child in transaction.children("file", f"a{SEPARATOR}")],
                [line.action for line in transaction.history("file", "a")],
                transaction.state("file", "a", 1),
            )

        result, commit = store.write(HERE, work)
        entry = get(store, "a")
        assert commit == 1
        assert result == (True, entry, entry, ["a", f"a{SEPARATOR}b"], ["b"], ["created"], entry)

    def test_many_changes_of_a_transaction_share_its_commit_and_time(self, store: Store) -> None:
        def work(transaction: Transaction) -> list[Entry]:
            return [transaction.put(Draft("file", key, "text")) for key in "abc"]

        entries, commit = store.write(HERE, work)
        assert {(entry.commit, entry.updated_at) for entry in entries} == {(commit, entries[0].updated_at)}

    def test_a_write_inside_a_write_is_refused_and_harms_nothing(self, store: Store) -> None:
        def work(transaction: Transaction) -> None:
            transaction.put(Draft("file", "outer", "text"))
            store.write(HERE, lambda inner: inner.put(Draft("file", "inner", "text")))

        with pytest.raises(RuntimeError, match="inside a write"):
            store.write(HERE, work)
        assert store.scan(HERE, Scan()).entries == ()
        put(store, "works")

    @pytest.mark.promise("engine-no-lost-update")
    def test_threads_that_write_together_lose_no_update_and_fail_alone(self, store: Store) -> None:
        barrier = threading.Barrier(12)
        failures: list[str] = []
        commits: list[int] = []

        def work(transaction: Transaction) -> None:
            known = transaction.get("file", "counter")
            transaction.put(Draft("file", "counter", 1 if known is None else known.value + 1))  # type: ignore[operator]

        def fail(transaction: Transaction) -> None:
            work(transaction)
            raise LookupError

        def run(number: int) -> None:
            barrier.wait()
            for step in range(20):
                if step % 5 == number % 5:
                    with pytest.raises(LookupError):
                        store.write(HERE, fail)
                else:
                    _, commit = store.write(HERE, work)
                    assert commit is not None
                    commits.append(commit)
                if get(store, "counter") is None and commits:
                    failures.append("an acknowledged write was not there")

        threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert sorted(commits) == list(range(1, 12 * 16 + 1))
        assert get(store, "counter").value == 12 * 16  # type: ignore[union-attr]
        assert len(store.history(HERE, "file", "counter")) == 12 * 16
        assert store.verify() == []
