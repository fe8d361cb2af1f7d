"""What every backend must do, as one class of tests. A backend subclasses it and gives the fixture `store`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance_system import SystemConformance

from commonplace.checks import Namespace
from commonplace.entry import SEPARATOR, Change, Draft, Entry, Revision
from commonplace.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from commonplace.filters import Filter, parse_conditions
from commonplace.language.tokens import query_terms
from commonplace.store import Child, NamespaceStats, Scan, Store, Transaction

HERE: Namespace = ("user", "u1")
THERE: Namespace = ("user", "u10")
NOWHERE: Namespace = ("user",)
SECOND = 1_000_000


def put(store: Store, key: str, value: Any = "text", *, namespace: Namespace = HERE, **fields: Any) -> Entry:
    fields.setdefault("kind", "file")
    actor = fields.pop("actor", None)
    return store.write(
        namespace, lambda transaction: transaction.put(Draft(key=key, value=value, **fields)), actor=actor
    )[0]


def delete(store: Store, key: str, *, kind: str = "file", namespace: Namespace = HERE) -> Entry | None:
    return store.write(namespace, lambda transaction: transaction.delete(kind, key))[0]


def move(store: Store, key: str, new_key: str, heading: str | None = None) -> Entry:
    return store.write(HERE, lambda transaction: transaction.move("file", key, new_key, heading))[0]


def get(store: Store, key: str, *, namespace: Namespace = HERE, as_of: int | None = None) -> Entry | None:
    return store.get(namespace, "file", [key], as_of=as_of)[0]


def pages(store: Store, scan: Scan, namespace: Namespace = HERE) -> list[Entry]:
    """All pages of a scan, one after the other."""
    found: list[Entry] = []
    cursor = scan.after
    while True:
        page = store.scan(namespace, Scan(scan.filter, scan.order, scan.descending, scan.limit, cursor, scan.as_of))
        assert len(page.entries) <= scan.limit
        found += page.entries
        cursor = page.cursor
        if cursor is None:
            return found


def found_keys(store: Store, query: str, filter: Filter | None = None, *, namespace: Namespace = HERE) -> list[str]:
    candidates = store.search_text(namespace, query_terms(query), filter or Filter(), 100)
    entries = store.load(namespace, [candidate.entry_id for candidate in candidates])
    return [entries[candidate.entry_id].key for candidate in candidates]


def unit(*numbers: float) -> Any:
    vector = np.zeros(8, np.float32)
    vector[: len(numbers)] = numbers
    return vector / np.linalg.norm(vector)


class StoreConformance(SystemConformance):
    """Subclasses give the fixtures `store` (with the fixture `clock`), and `open_copy` for a backup."""

    def open_copy(self, path: Path) -> Store:
        raise NotImplementedError

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

    # Scans

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("order", ["key", "created", "updated"])
    def test_a_scan_gives_every_entry_once_in_its_order(
        self, store: Store, clock: Any, order: Any, descending: bool, limit: int
    ) -> None:
        for key in ("b", "a", "c", "é", "A", "z\U0001f600", f"a{SEPARATOR}x"):
            put(store, key)
            clock.advance()
        put(store, "b", "again", kind="record")
        put(store, "c", "again")
        put(store, "foreign", namespace=THERE)
        entries = store.scan(HERE, Scan(limit=100)).entries
        sort = {
            "key": lambda entry: (entry.kind, entry.key.encode()),
            "created": lambda entry: (entry.created_at, entry.id),
            "updated": lambda entry: (entry.updated_at, entry.id),
        }[order]
        expected = sorted(entries, key=sort, reverse=descending)
        assert len(expected) == 8
        assert pages(store, Scan(order=order, descending=descending, limit=limit)) == expected

    def test_equal_times_do_not_hide_entries_between_pages(self, store: Store) -> None:
        for key in "abcde":
            put(store, key, created_at=1, updated_at=1)
        for order in ("created", "updated"):
            found = pages(store, Scan(order=order, limit=2, descending=True))  # type: ignore[arg-type]
            assert sorted(entry.key for entry in found) == list("abcde")

    def test_a_scan_of_the_past_gives_what_was_there_in_every_order(self, store: Store, clock: Any) -> None:
        snapshots: dict[int, set[tuple[str, Any]]] = {}
        live: dict[str, Any] = {}
        for step, (key, value) in enumerate(
            [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None), ("b", 5), ("a", None), ("d", 6), ("c", 7)]
        ):
            clock.advance()
            if value is None:
                delete(store, key)
                del live[key]
            else:
                put(store, key, value, attributes={"step": step})
                live[key] = value
            snapshots[clock.now] = set(live.items())
        for time, expected in snapshots.items():
            for order in ("key", "created", "updated"):
                for descending in (False, True):
                    scan = Scan(order=order, descending=descending, limit=2, as_of=time)  # type: ignore[arg-type]
                    found = pages(store, scan)
                    assert {(entry.key, entry.value) for entry in found} == expected
                    assert len(found) == len(expected)
                    if order == "key":
                        keys = [entry.key for entry in found]
                        assert keys == sorted(keys, reverse=descending)
            assert pages(store, Scan(Filter(kinds=("record",)), as_of=time)) == []
        assert pages(store, Scan(as_of=min(snapshots) - 1)) == []

    @pytest.mark.parametrize("limit", [0, -1, 1_000_000])
    def test_a_scan_limit_out_of_bounds_is_refused(self, store: Store, limit: int) -> None:
        with pytest.raises(InvalidInput, match="limit"):
            store.scan(HERE, Scan(limit=limit))

    @pytest.mark.parametrize(
        "cursor",
        ["", "x", "ü", "!!!", "NQ", "bnVsbA", "e30", "WzFd", "WzEsMl0", "WyJhIiwiXHVkODAwIl0",
         "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OSwxXQ", "W3RydWUsdHJ1ZV0"],
    )  # fmt: skip
    def test_a_cursor_that_no_page_gave_is_refused(self, store: Store, cursor: str) -> None:
        put(store, "a")
        for order in ("key", "created"):
            if (cursor, order) == ("WzEsMl0", "created"):
                continue  # [1, 2] is a place in the order of creation
            with pytest.raises(InvalidInput, match="cursor"):
                store.scan(HERE, Scan(after=cursor, order=order))  # type: ignore[arg-type]

    def test_a_cursor_of_another_order_is_refused(self, store: Store) -> None:
        put(store, "a")
        put(store, "b")
        cursor = store.scan(HERE, Scan(limit=1)).cursor
        with pytest.raises(InvalidInput, match="another order"):
            store.scan(HERE, Scan(limit=1, order="created", after=cursor))

    @pytest.mark.parametrize("prefix", ["a", "a\x01", "é", "\ud7ff", "\U0010ffff", "z\U0010ffff\U0010ffff"])
    def test_a_key_prefix_finds_what_begins_with_it(self, store: Store, prefix: str) -> None:
        keys = ["a", "ab", "a\x01b", "b", "é", "éa", "\ud7ff", "\ud7ffx", "\ue000", "\U0010ffff", "\U0010ffffa",
                "z\U0010ffff\U0010ffff", "z\U0010ffff\U0010ffffq", "zz"]  # fmt: skip
        for key in keys:
            put(store, key)
        found = [entry.key for entry in store.scan(HERE, Scan(Filter(key_prefix=prefix))).entries]
        assert found == sorted(key for key in keys if key.startswith(prefix))

    # Children

    def test_children_are_the_direct_ones_in_order_however_deep_the_rest(self, store: Store, clock: Any) -> None:
        names = ["a", "a!", "a b", "b", "é", "日本", "zz", "\U0001f600", "~", "a'b\"c", "%", "\U0010ffff"]

        def work(transaction: Transaction) -> None:
            for name in names:
                transaction.put(Draft("file", SEPARATOR.join(("", "d", name)), "x", attributes={"size": 1}))
                for number in range(5):
                    transaction.put(Draft("file", SEPARATOR.join(("", "d", name, f"deep{number}", "deeper")), "x"))
            for name in ("", "d", "e", "d0", "d\x02"[:1]):
                transaction.put(Draft("file", SEPARATOR.join(("", name)) + "~", "x"))
            transaction.put(Draft("file", SEPARATOR.join(("", "d", "only", "below")), "x"))
            transaction.put(Draft("directory", SEPARATOR.join(("", "d", "other kind")), {}))

        store.write(HERE, work)
        prefix = SEPARATOR.join(("", "d", ""))
        found = store.children(HERE, "file", prefix)
        assert found == [Child(name, {"size": 1}, 1, clock.now, clock.now) for name in sorted(names)]
        assert store.children(HERE, "file", SEPARATOR.join(("", "missing", ""))) == []
        assert store.children(THERE, "file", prefix) == []

    def test_expired_children_are_not_listed(self, store: Store, clock: Any) -> None:
        put(store, "\x01d\x01a", expires_at=clock.now + SECOND)
        put(store, "\x01d\x01b")
        clock.advance(1)
        assert [child.name for child in store.children(HERE, "file", "\x01d\x01")] == ["b"]

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

    def test_begun_and_ended_tell_what_a_commit_did(self, store: Store) -> None:
        one = put(store, "a", "one")
        kept = put(store, "kept")

        def work(transaction: Transaction) -> tuple[Entry, Entry]:
            return transaction.put(Draft("file", "a", "two")), transaction.put(Draft("file", "b", "new"))

        (two, new), commit = store.write(HERE, work)
        moved = move(store, "b", "c")

        def look(transaction: Transaction) -> list[list[Entry]]:
            assert commit is not None
            return [transaction.begun(1), transaction.begun(commit), transaction.ended(commit),
                    transaction.begun(moved.commit), transaction.ended(moved.commit),
                    transaction.begun(99)]  # fmt: skip

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

    def test_an_update_may_lift_or_set_an_expiry(self, store: Store, clock: Any) -> None:
        put(store, "a", expires_at=clock.now + SECOND)
        put(store, "a")
        put(store, "b")
        put(store, "b", expires_at=clock.now + SECOND)
        clock.advance(10)
        assert [entry.key for entry in store.scan(HERE, Scan()).entries] == ["a"]

    # Filters

    def _filtered(self, store: Store, clock: Any) -> dict[str, Filter]:
        def note(key: str, value: Any, kind: str = "record", **attributes: Any) -> None:
            clock.advance()
            put(store, key, value, kind=kind, text="shared words", attributes=attributes)

        start = clock.now
        note("a", {"size": 3, "owner": {"team": "x"}}, type="note", tags=["p", "q"], source="s1")
        note("b", {"size": 10}, type="todo", tags=["q"], resourceId="r1")
        note("c", "plain", kind="file", size=3)
        note("d", {"size": "3"}, type="note", tags=[])
        second = SECOND
        return {
            "ab d": Filter(kinds=("record",)),
            "abcd": Filter(kinds=("record", "file")),
            "a  d": Filter(types=("note",)),
            "ab d ": Filter(types=("note", "todo")),
            "ab": Filter(all_tags=("q",)),
            "a": Filter(all_tags=("q", "p")),
            "ab ": Filter(any_tags=("p", "q")),
            "b": Filter(resource="r1"),
            "": Filter(all_tags=("p", "none")),
            "bcd": Filter(created_after=start + 2 * second),
            "a ": Filter(created_before=start + 2 * second),
            " b": Filter(updated_after=start + 2 * second, updated_before=start + 3 * second),
            "ac": Filter(conditions=parse_conditions({"size": 3})),
            " b ": Filter(conditions=parse_conditions({"size": {"$gt": 3}})),
            "bcd ": Filter(conditions=parse_conditions({"source": {"$ne": "s1"}})),
            " a": Filter(conditions=parse_conditions({"owner": {"team": "x"}, "size": {"$lte": 3}})),
            " d": Filter(conditions=parse_conditions({"size": {"$in": ["3", 4]}})),
            "c": Filter(key_prefix="c"),
            "abc": Filter(unchanged_since=start + 3 * second),
        }  # fmt: skip

    def test_scan_and_search_obey_every_filter(self, store: Store, clock: Any) -> None:
        for keys, filter in self._filtered(store, clock).items():
            expected = sorted(keys.replace(" ", ""))
            assert sorted(entry.key for entry in store.scan(HERE, Scan(filter)).entries) == expected, filter
            assert sorted(found_keys(store, "shared", filter)) == expected, filter
            matching = [entry.key for entry in store.scan(HERE, Scan()).entries if filter.matches(entry)]
            if filter.unchanged_since is None:
                assert sorted(matching) == expected, filter

    def test_a_rare_match_is_found_behind_many_better_ones(self, store: Store) -> None:
        def work(transaction: Transaction) -> None:
            for number in range(400):
                transaction.put(Draft("file", f"common{number:03}", "deploy " * 3))
            transaction.put(Draft("file", "rare", "deploy and many other words around it", attributes={"tags": ["x"]}))

        store.write(HERE, work)
        candidates = store.search_text(HERE, query_terms("deploy"), Filter(all_tags=("x",)), 5)
        assert [entry.key for entry in store.load(HERE, [c.entry_id for c in candidates]).values()] == ["rare"]
        assert len(store.search_text(HERE, query_terms("deploy"), Filter(), 401)) == 401

    @pytest.mark.parametrize(
        "where",
        [
            {"a": {"$in": list(range(5_000))}},
            {"a": [1] * 5_000},
            {"a": {"$eq": {str(number): number for number in range(3_000)}}},
        ],
    )
    def test_a_filter_too_large_to_decide_is_refused_as_wrong_input_or_answered(
        self, store: Store, where: Mapping[str, object]
    ) -> None:
        put(store, "k", {"a": 4_999})
        try:
            found = store.scan(HERE, Scan(Filter(conditions=parse_conditions(where)))).entries
        except InvalidInput:
            return
        assert [entry.key for entry in found] == (["k"] if "$in" in str(where) else [])

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

    def test_keywords_made_anew_find_the_same(self, store: Store) -> None:
        for number in range(20):
            put(store, f"k{number}", f"word{number} shared " * (number * 40 + 1), heading=f"head{number}")
        delete(store, "k3")
        before = store.search_text(HERE, query_terms("shared word7"), Filter(), 50)
        store.rebuild_keywords()
        assert store.search_text(HERE, query_terms("shared word7"), Filter(), 50) == before
        assert store.verify() == []
        put(store, "k3", "shared again")
        assert len(store.search_text(HERE, query_terms("shared"), Filter(), 50)) == 20

    # Vectors

    def _embed_all(self, store: Store, vectors: Mapping[str, Any], model: str = "m") -> None:
        claimed = store.claim(100, 60)
        store.index(model, [(pending.chunk_id, vectors[pending.text]) for pending in claimed])

    def test_vectors_find_the_nearest_of_exactly_their_model(self, store: Store) -> None:
        vectors = {"east": unit(1), "north": unit(0, 1), "north east": unit(1, 1)}
        for text in vectors:
            put(store, text, text)
        put(store, "foreign", "east", namespace=THERE)
        store.aim("m", 8)
        assert store.indexing(HERE).pending == 3
        self._embed_all(store, vectors)
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
        store.aim("m", 8)
        put(store, "a", "old")
        claimed = store.claim(10, 60)
        put(store, "a", "new")
        store.index("m", [(pending.chunk_id, unit(1)) for pending in claimed])
        assert store.search_vectors(HERE, "m", unit(1), Filter(), 10) == []
        assert store.indexing().pending == 1
        self._embed_all(store, {"new": unit(0, 1)})
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

    def test_pending_passages_can_be_asked_for_by_entry_and_start(self, store: Store) -> None:
        first, second, third = (put(store, key, f"text {key}") for key in "abc")
        foreign = put(store, "a", "theirs", namespace=("user", "other"))
        store.aim("m", 8)
        store.index("m", [(pending.chunk_id, unit(1)) for pending in store.pending(HERE, 1)])
        among = [(third.id, 0), (second.id, 0), (first.id, 7), (first.id, 0), (foreign.id + 100, 0)]
        assert [pending.text for pending in store.pending(HERE, 5, among=among)] == ["text b", "text a"]
        assert [pending.text for pending in store.pending(HERE, 1, among=among)] == ["text b"]
        assert store.pending(("user", "other"), 5, among=[(second.id, 1), (third.id, 1)]) == []

    def test_a_new_model_serves_when_all_is_embedded_and_the_old_one_until_then(self, store: Store) -> None:
        put(store, "a", "east")
        put(store, "b", "north")
        store.aim("old", 8)
        assert (store.indexing().serving, store.indexing().target) == ("old", "old")
        self._embed_all(store, {"east": unit(1), "north": unit(0, 1)}, "old")
        store.aim("new", 8)
        assert (store.indexing().serving, store.indexing().target, store.indexing().pending) == ("old", "new", 2)
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
        store.aim("m", 8)
        with pytest.raises(ConfigurationError, match="identity"):
            store.aim("m", 9)

    def test_former_states_keep_their_vectors(self, store: Store, clock: Any) -> None:
        store.aim("m", 8)
        put(store, "a", "east")
        self._embed_all(store, {"east": unit(1)})
        then = clock.now
        clock.advance()
        put(store, "a", "north")
        (state,) = store.former(HERE, then, Filter())
        assert (state.value, state.revision) == ("east", 1)
        ((entry_id, start, end, vector),) = store.passage_vectors(HERE, "m", [(state.id, state.commit)])
        assert (entry_id, start, end) == (state.id, 0, 4)
        assert np.allclose(vector, unit(1))
        assert store.former(HERE, then, Filter(kinds=("record",))) == []
        assert store.former(HERE, clock.now, Filter()) == []

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
            HERE, {"file": 1, "record": 1}, commit=3, updated_at=clock.now + 2, chunks=2, pending=2, former_states=1
        )
        assert store.namespace_stats(NOWHERE) == NamespaceStats(NOWHERE, {}, 0, 0, 0, 0, 0)

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
        with pytest.raises(InvalidInput, match="exists"):
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
