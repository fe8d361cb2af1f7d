"""What every backend must do about time: former states, the feed, expiry."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from store_calls import HERE, NOWHERE, SECOND, THERE, delete, found_keys, get, move, pages, put

from commonplace.backends.deltas import MAX_DELTAS
from commonplace.entry import Change, Draft, Entry, Revision
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.filters import Filter
from commonplace.space.history import draft_of
from commonplace.store import NamespaceHead, Scan, State, Store, Transaction


class HistoryConformance:
    """What was, and when it ended."""

    # History

    @pytest.mark.promise("engine-history")
    def test_history_tells_every_state_and_every_loss(self, store: Store, clock: Any) -> None:
        times = []

        def at(call: Any, *arguments: Any, **options: Any) -> None:
            times.append(clock.advance())
            call(store, *arguments, **options)

        at(put, "a", "one", actor="alice")
        at(put, "a", "two", actor="bob")
        at(delete, "a")
        at(put, "a", "three", expires_at=clock.now + 2 * SECOND)
        clock.advance(5)
        at(put, "b", "four", actor="carol")
        at(move, "b", "a")
        assert store.history(HERE, "file", "a") == [
            Revision(1, "created", 1, times[0], "alice"),
            Revision(2, "updated", 2, times[1], "bob"),
            Revision(3, "deleted", 3, times[2], None),
            Revision(4, "created", 4, times[3], None),
            Revision(5, "expired", 5, times[3] + SECOND, None),
            Revision(6, "moved_here", 6, times[5], None),
        ]
        assert store.history(HERE, "file", "b") == [
            Revision(1, "created", 5, times[4], "carol"),
            Revision(2, "moved_away", 6, times[5], None),
        ]
        assert store.history(HERE, "file", "never") == []
        assert store.history(THERE, "file", "a") == []

    def test_history_tells_what_is_a_former_state_again(self, store: Store) -> None:
        put(store, "a", "one")
        put(store, "a", "two")
        former = store.state(HERE, "file", "a", 1)
        assert former is not None
        store.write(HERE, lambda transaction: transaction.put(draft_of(former), is_restored=True))
        delete(store, "a")
        store.write(HERE, lambda transaction: transaction.put(draft_of(former), is_restored=True))
        actions = ["created", "updated", "restored", "deleted", "restored"]
        assert [line.action for line in store.history(HERE, "file", "a")] == actions
        assert [change.action for change in store.changes(HERE, 0, 100)] == actions

    def test_a_key_counts_as_used_while_it_is_and_after(self, store: Store) -> None:
        for key in ("b", "d", "f"):
            put(store, key, "text")
        delete(store, "d")
        move(store, "f", "g")
        ranges = [
            ("a", "a"),
            ("b", "b"),
            ("c", "c"),
            ("c", "d"),
            ("d", "d"),
            ("e", "e"),
            ("f", "f"),
            ("e", "z"),
            ("h", "z"),
        ]
        used, _ = store.write(HERE, lambda transaction: [transaction.was_used("file", *one) for one in ranges])
        assert used == [False, True, False, True, True, False, True, True, False]
        assert not store.write(HERE, lambda transaction: transaction.was_used("record", "a", "z"))[0]
        assert not store.write(THERE, lambda transaction: transaction.was_used("file", "a", "z"))[0]

    def test_every_former_state_can_be_read_as_it_was(self, store: Store) -> None:
        text = "Tag 1: größe ✓ 日本\n" * 30
        values: list[Any] = ["", text]
        for number in range(80):  # long chains of appends, edits and replacements
            last = values[-1] if isinstance(values[-1], str) else text
            values.append(last + f"appended {number}\n")
            values.append(last[: number * 7] + f"edit {number}" + last[number * 7 + 5 :])
            if number % 9 == 0:
                values.append({"json": number, "list": [last[:50]]})
        states = [put(store, "k", value, text=None if number % 5 else f"text {number}") for number, value in
                  enumerate(values)]  # fmt: skip
        for state in states:
            assert store.state(HERE, "file", "k", state.revision) == state
        assert store.state(HERE, "file", "k", len(states) + 1) is None
        assert store.state(HERE, "file", "other", 1) is None
        delete(store, "k")
        for state in states:
            assert store.state(HERE, "file", "k", state.revision) == state
        assert store.state(HERE, "file", "k", len(states) + 1) is None

    def test_a_text_is_kept_whole_after_so_many_splices_although_it_is_moved_between_them(self, store: Store) -> None:
        """Otherwise the chain that a read of an old state follows has no end."""
        text = "".join(hashlib.sha256(f"{number}".encode()).hexdigest() for number in range(40))

        def work(transaction: Transaction) -> list[int]:
            grown = []
            transaction.put(Draft("file", "a", text))
            for number in range(MAX_DELTAS + 2):
                before = transaction.usage().former_bytes
                transaction.put(Draft("file", "a", f"{text[:1000]}{number}{text[1000:]}"))
                grown.append(transaction.usage().former_bytes - before)
                transaction.move("file", "a", "b", None)
                transaction.move("file", "b", "a", None)
            return grown

        grown = store.write(HERE, work)[0]
        assert [number for number, size in enumerate(grown) if size > 1_000] == [MAX_DELTAS]

    def test_begun_and_ended_tell_what_a_commit_did(self, store: Store) -> None:
        one = put(store, "a", "one")
        kept = put(store, "kept")

        def work(transaction: Transaction) -> tuple[Entry, Entry]:
            return transaction.put(Draft("file", "a", "two")), transaction.put(Draft("file", "b", "new"))

        (two, new), commit = store.write(HERE, work)
        moved = move(store, "b", "c")

        def look(transaction: Transaction) -> list[list[Entry]]:
            assert commit is not None
            return [transaction.states_begun(1), transaction.states_begun(commit), transaction.states_ended(commit),
                    transaction.states_begun(moved.commit), transaction.states_ended(moved.commit),
                    transaction.states_begun(99)]  # fmt: skip

        begun_1, begun, ended, begun_by_move, ended_by_move, nothing = store.write(HERE, look)[0]
        assert begun_1 == ended == [one]
        assert sorted(begun, key=lambda entry: entry.key) == [two, new]
        assert (begun_by_move, ended_by_move, nothing) == ([moved], [new], [])
        assert get(store, "kept") == kept

    # The feed

    @pytest.mark.promise("engine-feed")
    def test_the_feed_tells_every_change_in_commit_order(self, store: Store, clock: Any) -> None:
        first = clock.now
        put(store, "b", actor="alice")
        put(store, "a", kind="record")
        put(store, "b")
        move(store, "b", "c")
        delete(store, "c")
        put(store, "x", namespace=THERE)
        assert store.changes(HERE) == [
            Change(1, first, "created", "file", "b", 1, "alice"),
            Change(2, first + 1, "created", "record", "a", 1, None),
            Change(3, first + 2, "updated", "file", "b", 2, None),
            Change(4, first + 3, "moved_away", "file", "b", 3, None),
            Change(4, first + 3, "moved_here", "file", "c", 3, None),
            Change(5, first + 4, "deleted", "file", "c", 4, None),
        ]
        assert [change.commit for change in store.changes(HERE, after=3)] == [4, 4, 5]
        assert store.changes(HERE, after=5) == []
        assert store.changes(NOWHERE) == []

    def test_the_feed_gives_whole_commits_only_however_small_the_page(self, store: Store) -> None:
        for size in (1, 3, 25, 2):
            store.write(
                HERE,
                lambda transaction, size=size: [
                    transaction.put(Draft("file", f"{size}-{number}", "x")) for number in range(size)
                ],
            )
        everything = store.changes(HERE)
        for limit in (1, 2, 3, 4, 10, 31):
            seen: list[Change] = []
            while part := store.changes(HERE, after=seen[-1].commit if seen else 0, limit=limit):
                seen += part
            assert seen == everything

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_feed_limit_below_one_is_refused(self, store: Store, limit: int) -> None:
        put(store, "a")
        with pytest.raises(InvalidInput, match="limit"):
            store.changes(HERE, limit=limit)

    @pytest.mark.promise("engine-expiry")
    def test_expiry_enters_the_feed_with_its_own_time(self, store: Store, clock: Any) -> None:
        put(store, "a", expires_at=clock.now + SECOND)
        put(store, "b")
        assert len(store.changes(HERE)) == 2
        expired_at = clock.now + SECOND
        clock.advance(3600)
        assert store.changes(HERE, after=2) == [Change(3, expired_at, "expired", "file", "a", 2, None)]

    @pytest.mark.promise("engine-feed-resync")
    def test_a_commit_is_found_by_its_number_with_its_changes(self, store: Store, clock: Any) -> None:
        put(store, "a", "one", actor="alice")
        clock.advance()
        store.write(HERE, lambda change: [change.put(Draft("file", key, "x")) for key in "bcd"], actor="bob")
        clock.advance()
        put(store, "b", "y", expires_at=clock.now + SECOND)
        clock.advance(5)
        store.write(HERE, lambda change: (change.delete("file", "c"), change.move("file", "d", "e", None)))
        put(store, "foreign", namespace=THERE)
        feed = store.changes(HERE, 0, 100)
        expected = {n: [change for change in feed if change.commit == n] for n in range(1, 5)}
        assert [len(changes) for changes in expected.values()] == [1, 3, 1, 4]
        found = store.commits(HERE, [4, 3, 2, 1], 100)
        assert [number for number, _ in found] == [4, 3, 2, 1]
        for number, changes in found:
            assert sorted(changes, key=repr) == sorted(expected[number], key=repr)
        assert [change.action for change in found[0][1]][-1] == "expired"
        assert [(number, len(changes)) for number, changes in store.commits(HERE, [2**62, 0, 2], 2)] == [
            (4, 2),
            (0, 0),
            (2, 2),
        ]
        [(_, first), (_, rest)] = store.commits(HERE, [2], 2) + store.commits(HERE, [2], 2, skip=2)
        assert {change.key for change in (*first, *rest)} == {"b", "c", "d"}
        assert store.commits(NOWHERE, [1], 1) == [(0, [])]

    def test_commits_that_were_purged_leave_a_gap(self, store: Store) -> None:
        for key in ("a", "b", "b", "c"):
            put(store, key, key * 3)
        delete(store, "c")
        store.purge(HERE, kind="file", key="c")
        gone = [number for number, changes in store.commits(HERE, [5, 4, 3], 10)]
        assert gone == [3, 3, 3]
        store.purge(HERE, kind="file", key="b")
        assert store.commits(HERE, [2**62], 10)[0][0] in (1, store.namespace_stats(HERE).commit)

    def test_a_cursor_from_before_a_purge_is_told_to_resync(self, store: Store, clock: Any) -> None:
        put(store, "a", "one")
        put(store, "a", "two")
        put(store, "b")
        assert store.purge(HERE, kind="file", key="a") == 2
        commit = store.namespace_stats(HERE).commit
        with pytest.raises(Conflict, match=f"commit {commit}"):
            store.changes(HERE, after=1)
        assert store.changes(HERE, after=commit) == []
        put(store, "c")
        assert [change.key for change in store.changes(HERE, after=commit)] == ["c"]
        put(store, "x", namespace=THERE)
        assert len(store.changes(THERE)) == 1

    @pytest.mark.promise("engine-feed-resync")
    def test_a_cursor_ahead_of_the_namespace_is_told_to_resync(self, store: Store) -> None:
        put(store, "a")
        put(store, "b")
        assert store.changes(HERE, after=2) == []
        with pytest.raises(Conflict, match=r"ends at commit 2, before commit 3; .* continue from commit 2"):
            store.changes(HERE, after=3)
        with pytest.raises(Conflict, match="ends at commit 0, before commit 1;"):
            store.changes(NOWHERE, after=1)

    @pytest.mark.promise("engine-feed-resync")
    @pytest.mark.parametrize("writes", [1, 9], ids=["fewer commits", "more commits"])
    def test_a_reader_of_a_purged_namespace_is_told_to_resync_when_states_are_taken_in(
        self, store: Store, writes: int
    ) -> None:
        for number in range(writes):
            put(store, f"{number}", namespace=THERE)
        head, *states = store.export([THERE])
        assert isinstance(head, NamespaceHead)
        coming = [state for state in states if isinstance(state, State)]
        for number in range(4):
            put(store, "a", f"{number}")
        store.purge(HERE)
        cursor = store.namespace_stats(HERE).commit
        assert store.changes(HERE, after=cursor) == []
        store.adopt(NamespaceHead(HERE, 0, 0, 0), lambda: ())
        assert store.changes(HERE, after=cursor) == []  # nothing came, so there is nothing to read again
        store.adopt(replace(head, namespace=HERE), lambda: coming)
        present = store.namespace_stats(HERE).commit
        for behind in range(cursor + 1):
            with pytest.raises(Conflict, match=f"no longer reaches back to commit {behind}"):
                store.changes(HERE, after=behind)
        assert store.changes(HERE, after=present) == []
        put(store, "b")
        assert [(change.commit, change.key) for change in store.changes(HERE, after=present)] == [(present + 1, "b")]

    # Expiry

    @pytest.mark.promise("engine-expiry")
    def test_an_entry_ends_when_it_expires_not_when_it_is_swept(self, store: Store, clock: Any) -> None:
        end = clock.now + SECOND
        begin = clock.now
        entry = put(store, "a", "fleeting words", expires_at=end, identity="i", attributes={"tags": ["t"]})
        clock.now = end - 1
        assert get(store, "a") == entry
        assert found_keys(store, "fleeting") == ["a"]
        clock.now = end
        for _ in range(2):  # before and after something sweeps
            assert get(store, "a") is None
            assert store.find(HERE, "file", "i") is None
            assert store.load(HERE, [entry.id]) == {}
            assert store.scan(HERE, Scan()).entries == ()
            assert store.scan(HERE, Scan(Filter(all_tags=("t",)))).entries == ()
            assert found_keys(store, "fleeting") == []
            assert store.namespace_stats(HERE).entries.get("file", 0) == 0
            assert [line.action for line in store.history(HERE, "file", "a")] == ["created", "expired"]
            assert [line.at for line in store.history(HERE, "file", "a")] == [begin, end]
            for time, expected in ((begin - 1, None), (begin, entry), (end - 1, entry), (end, None), (end + 5, None)):
                assert get(store, "a", as_of=time) == expected
                assert pages(store, Scan(as_of=time)) == ([] if expected is None else [expected])
            clock.advance(3600)
            put(store, "other", kind="record")
            delete(store, "other", kind="record")
        assert put(store, "a").revision == 3

    def test_what_has_expired_cannot_be_moved_deleted_or_stand_in_the_way(self, store: Store, clock: Any) -> None:
        put(store, "gone", expires_at=clock.now + SECOND)
        put(store, "kept", "text")
        clock.advance(1)
        with pytest.raises(NotFound):
            move(store, "gone", "new")
        assert delete(store, "gone") is None
        assert move(store, "kept", "gone").value == "text"

    def test_what_expires_at_the_time_of_its_commit_is_never_there(self, store: Store) -> None:
        def work(transaction: Transaction) -> list[Entry]:
            for key in ("a", "b", "c"):
                transaction.put(Draft("file", key, "gone", identity=key, expires_at=transaction.time))
            assert transaction.get("file", "a") is None
            assert transaction.find("file", "a") is None
            assert transaction.delete("file", "a") is None
            other = transaction.put(Draft("file", "other", "text", identity="b"))
            return [transaction.move("file", other.key, "c", None), transaction.put(Draft("file", "a", "text"))]

        made, _ = store.write(HERE, work)
        assert [(entry.key, entry.revision) for entry in made] == [("c", 3), ("a", 3)]
        assert [line.action for line in store.history(HERE, "file", "a")] == ["created", "expired", "created"]
        assert store.verify() == []

    def test_an_update_may_lift_or_set_an_expiry(self, store: Store, clock: Any) -> None:
        put(store, "a", expires_at=clock.now + SECOND)
        put(store, "a")
        put(store, "b")
        put(store, "b", expires_at=clock.now + SECOND)
        clock.advance(10)
        assert [entry.key for entry in store.scan(HERE, Scan()).entries] == ["a"]
