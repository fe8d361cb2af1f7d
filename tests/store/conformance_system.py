"""What every backend must do beside the entries: operations done once, the program's own rows, the wait for commits."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from typing import Any

import pytest

from commonplace.checks import Namespace
from commonplace.entry import Draft
from commonplace.errors import InvalidInput, TooLarge
from commonplace.store import NamespaceHead, State, Store, Transaction, Usage

HERE = ("user", "u1")
THERE = ("user", "u10")
LATER = 4_000_000_000_000_000


def write_file(store: Store, key: str, namespace: tuple[str, ...] = HERE) -> None:
    store.write(namespace, lambda transaction: transaction.put(Draft("file", key, "text")))


def record(store: Store, key: str, value: Any, *, expires_at: int = LATER) -> None:
    def work(transaction: Transaction) -> None:
        transaction.put(Draft("file", f"made by {key}", "text"))
        transaction.record_operation(key, value, expires_at=expires_at)

    store.write(HERE, work)


def recorded(store: Store, key: str, namespace: tuple[str, ...] = HERE) -> Any:
    return store.write(namespace, lambda transaction: transaction.operation(key))[0]


class SystemConformance:
    def test_an_operation_is_remembered_with_its_change_and_in_its_namespace_only(self, store: Store) -> None:
        assert recorded(store, "k") is None
        record(store, "k", {"a": [1, None, "ü"]})
        assert recorded(store, "k") == {"a": [1, None, "ü"]}
        assert recorded(store, "k", THERE) is None
        assert recorded(store, "other") is None

    def test_an_operation_is_forgotten_when_its_change_fails(self, store: Store) -> None:
        def work(transaction: Transaction) -> None:
            transaction.put(Draft("file", "k", "text"))
            transaction.record_operation("k", 1, expires_at=LATER)
            raise RuntimeError("no")

        try:
            store.write(HERE, work)
        except RuntimeError:
            assert recorded(store, "k") is None

    def test_an_operation_that_changed_nothing_is_kept_without_a_commit(self, store: Store) -> None:
        write_file(store, "a")
        _, commit = store.write(HERE, lambda transaction: transaction.record_operation("k", 1, expires_at=LATER))
        assert commit is None
        assert recorded(store, "k") == 1
        assert recorded(store, "k", THERE) is None
        assert [change.commit for change in store.changes(HERE)] == [1]

    def test_an_operation_alone_does_not_make_a_namespace(self, store: Store) -> None:
        store.write(HERE, lambda transaction: transaction.record_operation("k", 1, expires_at=LATER))
        assert store.namespaces() == []
        assert recorded(store, "k") is None
        assert recorded(store, "k", THERE) is None

    def test_an_operation_expires_and_its_key_can_be_used_again(self, store: Store, clock: Any) -> None:
        record(store, "k", 1, expires_at=clock.now + 10_000_000)
        clock.advance(9)
        assert recorded(store, "k") == 1
        clock.advance(2)
        assert recorded(store, "k") is None
        record(store, "k", 2)
        assert recorded(store, "k") == 2

    def test_an_expired_operation_is_forgotten_in_its_namespace_only(self, store: Store, clock: Any) -> None:
        below = (*HERE, "sub")
        for namespace, expires_at in ((HERE, clock.now + 10_000_000), (below, LATER)):
            write_file(store, "a", namespace)
            store.write(
                namespace, lambda transaction, at=expires_at: transaction.record_operation("k", 1, expires_at=at)
            )  # type: ignore[misc]
        record(store, "kept", 3)
        clock.advance(10)
        assert recorded(store, "k") is None
        record(store, "other", 2)
        assert [recorded(store, "k", namespace) for namespace in (HERE, below)] == [None, 1]
        assert recorded(store, "kept") == 3

    def test_purge_of_a_namespace_forgets_its_operations(self, store: Store) -> None:
        record(store, "k", 1)
        store.purge(HERE)
        assert recorded(store, "k") is None

    def test_system_rows_are_put_listed_and_deleted_by_part(self, store: Store) -> None:
        assert store.system_get("keys", "a") is None
        assert store.system_put("keys", "b", {"n": 2})
        assert store.system_put("keys", "a", {"n": 1})
        assert store.system_put("other", "a", "else")
        assert store.system_list("keys") == {"a": {"n": 1}, "b": {"n": 2}}
        assert store.system_get("keys", "a") == {"n": 1}
        assert store.system_put("keys", "a", {"n": 3})
        assert store.system_get("keys", "a") == {"n": 3}
        assert store.system_delete("keys", "a") is True
        assert store.system_delete("keys", "a") is False
        assert store.system_list("keys") == {"b": {"n": 2}}
        assert store.system_get("other", "a") == "else"

    def test_of_many_who_put_a_new_system_row_one_succeeds(self, store: Store) -> None:
        won: list[int] = []

        def put(number: int) -> None:
            if store.system_put("keys", "a", number, only_new=True):
                won.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [store.system_get("keys", "a")]

    def test_a_waker_tells_of_a_commit_once(self, store: Store) -> None:
        waker = store.waker()
        try:
            assert waker.wait(0) is False
            write_file(store, "a")
            assert waker.wait(10) is True
            assert waker.wait(0.1) is False
            write_file(store, "b", THERE)
            assert waker.wait(10) is True
        finally:
            waker.close()

    def test_a_closed_waker_ends_the_wait(self, store: Store) -> None:
        waker = store.waker()
        ended: list[bool] = []
        waiting = threading.Thread(target=lambda: ended.append(waker.wait(60)))
        waiting.start()
        waker.close()
        waiting.join(10)
        assert ended == [False]
        assert waker.wait(60) is False

    def test_usage_counts_what_is_live_whatever_way_it_came_and_went(self, store: Store) -> None:
        def live(namespace: Namespace = HERE) -> tuple[int, int]:
            usage = store.write(namespace, lambda transaction: transaction.usage())[0]
            assert usage == store.usage(namespace)
            assert (usage.former_states, usage.former_bytes >= 202 * usage.former_states) == (former[namespace], True)
            return usage.entries, usage.bytes

        former = {HERE: 0, THERE: 0}
        assert live() == (0, 0)
        for key in ("a", "d\x01b", "d\x01c"):
            write_file(store, key)
        each = len("text") + len("{}")
        assert live() == (3, 3 * each)
        store.write(HERE, lambda transaction: transaction.put(Draft("file", "a", "x" * 100)))
        former[HERE] = 1
        assert live() == (3, 2 * each + 102)
        store.write(HERE, lambda transaction: transaction.move_range("file", "d\x01", "e\x01", lambda key: None))
        former[HERE] = 3
        assert live() == (3, 2 * each + 102)
        store.write(HERE, lambda transaction: transaction.delete("file", "a"))
        former[HERE] = 4
        assert live() == (2, 2 * each)
        store.write(HERE, lambda transaction: transaction.delete_range("file", "e\x01"))
        former[HERE] = 6
        assert live() == (0, 0)
        write_file(store, "z", THERE)
        store.purge(THERE)
        assert live(THERE) == (0, 0)
        with pytest.raises(RuntimeError):
            store.write(HERE, _fail_after_put)
        assert live() == (0, 0)
        assert store.verify() == []

    def test_usage_counts_what_history_keeps_until_it_is_purged(self, store: Store, clock: Any) -> None:
        """A limit of 2,000 bytes let 310 states of 1.5 kB into the file: those that were replaced were not counted."""
        for number in range(40):  # more than are kept as differences from the next
            text = hashlib.sha256(str(number).encode()).hexdigest() * 20
            store.write(HERE, lambda transaction, text=text: transaction.put(Draft("file", "a", text)))
            clock.advance(1)
        usage = store.usage(HERE)
        assert (usage.entries, usage.bytes, usage.former_states) == (1, 1_282, 39)
        assert 39 * 200 < usage.former_bytes < 39 * 1_600
        store.write(HERE, lambda transaction: transaction.delete("file", "a"))
        deleted = store.usage(HERE)
        assert (deleted.entries, deleted.bytes, deleted.former_states) == (0, 0, 40)
        assert deleted.former_bytes > usage.former_bytes + 200
        assert store.purge(HERE, history_before=clock.now - 20_000_000)
        purged = store.usage(HERE)
        assert 0 < purged.former_states < 40
        assert 0 < purged.former_bytes < deleted.former_bytes
        assert store.verify() == []
        assert store.purge(HERE)
        assert store.usage(HERE) == Usage(0, 0)

    def test_usage_of_a_prefix_is_that_of_all_namespaces_below_it(self, store: Store) -> None:
        paths = [("user", "ann"), ("user", "ann", "agent", "a"), ("user", "anna"), ("team", "x")]
        for namespace in paths:
            write_file(store, "a", namespace)
            store.write(namespace, lambda transaction: transaction.put(Draft("file", "a", "other")))
        one = store.usage(paths[3])
        assert store.usage(("user", "ann")) == one + one
        assert store.usage(("user",)) == one + one + one
        assert store.usage(()) == one + one + one + one
        assert store.usage(("nobody", "here")) == Usage(0, 0)

    def test_what_is_adopted_is_counted_and_may_be_refused(self, store: Store) -> None:
        write_file(store, "a")
        store.write(HERE, lambda transaction: transaction.put(Draft("file", "a", "other")))
        usage = store.usage(HERE)
        head, *states = store.export([HERE])
        moved = replace(head, namespace=THERE)  # type: ignore[type-var]
        there = [replace(state, entry=replace(state.entry, namespace=THERE)) for state in states]  # type: ignore
        seen: list[Usage] = []

        def refuse(more: Usage) -> None:
            seen.append(more)
            raise TooLarge("too much")

        with pytest.raises(TooLarge):
            store.adopt(moved, lambda: there, refuse)  # type: ignore[arg-type]
        assert (seen, store.usage(THERE)) == ([usage], Usage(0, 0))
        assert store.adopt(moved, lambda: there, seen.append) == 2  # type: ignore[arg-type]
        assert (seen[1], store.usage(THERE)) == (usage, usage)
        assert store.verify() == []

    def test_states_that_do_not_fit_together_are_refused_and_none_is_adopted(self, store: Store) -> None:
        for value in ("one", "two"):
            store.write(HERE, lambda transaction, value=value: transaction.put(Draft("file", "a", value)))  # type: ignore[misc]
        write_file(store, "b")
        head, newest, former, other = store.export([HERE])
        assert isinstance(head, NamespaceHead)
        assert isinstance(other, State)
        late = replace(other, entry=replace(other.entry, commit=99))
        for states, told in (
            ([other, newest, former], "keep the order"),
            ([former, newest, other], "not its newest"),
            ([newest, former, late], "newer than its namespace's last commit"),
        ):
            with pytest.raises(InvalidInput, match=told):
                store.adopt(replace(head, namespace=THERE), lambda states=states: states)  # type: ignore[misc]
            assert store.namespaces() == [HERE]

    def test_usage_leaves_out_what_has_expired_however_much(self, store: Store, clock: Any) -> None:
        def work(transaction: Transaction) -> None:
            for number in range(1_100):
                transaction.put(Draft("file", f"{number}", "text", expires_at=clock.now + 10_000_000), is_fresh=True)

        store.write(HERE, work)
        write_file(store, "stays")
        clock.advance(10)
        usage = store.write(HERE, lambda transaction: transaction.usage())[0]
        assert (usage.entries, usage.bytes, usage.former_states) == (1, len("text") + len("{}"), 1_100)

    def test_a_screen_sees_every_draft_and_may_change_or_refuse_it(self, store: Store) -> None:
        def screen(draft: Draft) -> Draft:
            if draft.value == "bad":
                raise InvalidInput("no")
            return replace(draft, value="masked", text="masked") if draft.value == "secret" else draft

        def write(value: str) -> object:
            def work(transaction: Transaction) -> object:
                transaction.screen = screen
                return transaction.put(Draft("file", "k", value)).value

            return store.write(HERE, work)[0]

        assert write("plain") == "plain"
        assert write("secret") == "masked"
        with pytest.raises(InvalidInput):
            write("bad")
        found = store.get(HERE, "file", ["k"])[0]
        assert found is not None
        assert (found.value, found.text) == ("masked", "masked")


def _fail_after_put(transaction: Transaction) -> None:
    transaction.put(Draft("file", "k", "text"))
    raise RuntimeError("no")
