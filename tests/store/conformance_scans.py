"""What every backend must do when entries are listed: orders, pages, children, filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from store_calls import BELOW, HERE, SECOND, THERE, delete, found_keys, pages, put

from commonplace.entry import SEPARATOR, Draft
from commonplace.errors import InvalidInput
from commonplace.filters import Filter, parse_conditions
from commonplace.language.tokenizer import query_terms
from commonplace.store import Child, Reader, Scan, Store, Transaction


class ScansConformance:
    """Many entries, in order and narrowed."""

    # Scans

    def test_entries_below_prefixes_are_counted(self, store: Store, clock: Any) -> None:
        put(store, f"t{SEPARATOR}1", expires_at=clock.now + 5 * SECOND)
        for key in (f"t{SEPARATOR}2", f"t{SEPARATOR}3", f"u{SEPARATOR}1", "t", "tt"):
            put(store, key)
        put(store, f"t{SEPARATOR}1", kind="record")
        put(store, f"t{SEPARATOR}9", namespace=THERE)
        delete(store, f"t{SEPARATOR}3")
        wanted = [f"t{SEPARATOR}", f"none{SEPARATOR}", f"u{SEPARATOR}"]
        before = store.read(HERE, lambda reader: reader.counts("file", wanted))
        clock.advance(10)
        assert before == [2, 0, 1]
        assert store.read(HERE, lambda reader: reader.counts("file", wanted)) == [1, 0, 1]
        assert store.read(HERE, lambda reader: Reader.counts(reader, "file", wanted)) == [1, 0, 1]
        assert store.read(("nobody",), lambda reader: reader.counts("file", wanted)) == [0, 0, 0]

    @pytest.mark.parametrize("order", ["key", "created", "updated"])
    @pytest.mark.parametrize("descending", [False, True])
    def test_a_scan_of_the_past_is_narrowed_like_one_of_the_present(
        self, store: Store, clock: Any, order: Any, descending: bool
    ) -> None:
        for number in range(12):
            tags = ["even"] if number % 2 == 0 else ["odd"]
            put(store, f"{'ab'[number % 3 == 0]}{number}", f"{number}", attributes={"tags": tags, "size": number})
            clock.advance()
        filters = (
            Filter(kinds=("file",)),
            Filter(kinds=("file",), all_tags=("even",)),
            Filter(kinds=("file",), key_prefix="a"),
            Filter(kinds=("file",), conditions=parse_conditions({"size": {"$gt": 5}})),
            Filter(all_tags=("odd",), created_after=store.scan(HERE, Scan()).entries[2].created_at),
        )
        scans = [Scan(one, order=order, descending=descending, limit=2) for one in filters]
        before = [pages(store, scan) for scan in scans]
        then = max(entry.updated_at for entry in store.scan(HERE, Scan()).entries)
        clock.advance()
        for entry in store.scan(HERE, Scan()).entries[::2]:
            put(store, entry.key, "changed", attributes={"tags": ["later"]})
        for entry in store.scan(HERE, Scan()).entries[1::3]:
            delete(store, entry.key)
        assert [pages(store, replace(scan, as_of=then)) for scan in scans] == before
        assert all(before)

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
        for filter in (Filter(), Filter(kinds=("record", "file"))):
            assert pages(store, Scan(filter, order=order, descending=descending, limit=limit)) == expected

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("order", ["key", "created", "updated"])
    def test_the_values_of_a_page_are_those_of_its_entries(
        self, store: Store, clock: Any, order: Any, descending: bool
    ) -> None:
        for number, value in enumerate(("text", "", "[1]", {"a": [1, None, "ü"]}, [], None, 0.5)):
            put(store, f"k{number}", value, kind="file" if isinstance(value, str) else "record")
            clock.advance()
        put(store, "gone", expires_at=clock.now + SECOND)
        put(store, "foreign", namespace=THERE)
        before = clock.now
        clock.advance(2)
        put(store, "k1", "changed")
        first = Scan(order=order, descending=descending, limit=3)
        for scan in (first, replace(first, after=store.scan(HERE, first).cursor), replace(first, as_of=before)):
            assert store.values(HERE, scan) == [entry.value for entry in store.scan(HERE, scan).entries]

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
         "WyJmaWxlIiwiYVx1MDAwMCJd", "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OSwxXQ", "W3RydWUsdHJ1ZV0"],
    )  # fmt: skip
    def test_a_cursor_that_no_page_gave_is_refused(self, store: Store, cursor: str) -> None:
        put(store, "a")
        for order in ("key", "created"):
            with pytest.raises(InvalidInput, match="cursor"):
                store.scan(HERE, Scan(after=cursor, order=order))  # type: ignore[arg-type]

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("order", ["created", "updated"])
    def test_pages_of_one_time_go_on_after_their_last_entry_is_gone(
        self, store: Store, order: Any, descending: bool
    ) -> None:
        """A cursor names the entry by its key, since its number counts over the whole book."""

        def put_together(transaction: Transaction) -> None:
            for key in ("c", "a", "d", "b"):
                transaction.put(Draft("file", key, "text"))

        store.write(HERE, put_together)
        expected = ["b", "d", "a", "c"] if descending else ["c", "a", "d", "b"]
        first = Scan(order=order, descending=descending, limit=2)
        page = store.scan(HERE, first)
        assert [entry.key for entry in page.entries] == expected[:2]
        delete(store, expected[1])
        rest = replace(first, limit=10, after=page.cursor)
        assert [entry.key for entry in store.scan(HERE, rest).entries] == expected[2:]
        store.purge(HERE, kind="file", key=expected[1])  # those of its time come again rather than never
        assert [entry.key for entry in store.scan(HERE, rest).entries] == [expected[0], *expected[2:]]

    @pytest.mark.parametrize("is_live", [False, True])
    @pytest.mark.parametrize("descending", [False, True])
    def test_pages_go_on_from_no_entry_of_another_namespace(
        self, store: Store, descending: bool, is_live: bool
    ) -> None:
        def put_foreign(key: str) -> None:
            put(store, key)
            if not is_live:
                delete(store, key)

        put_foreign("c")
        store.write(BELOW, lambda transaction: [transaction.put(Draft("file", key, "text")) for key in "abcd"])
        put_foreign("b")
        first = Scan(order="created", descending=descending, limit=2)
        page = store.scan(BELOW, first)
        erased = page.entries[-1].key  # "b", whose number would be the highest, or "c", whose would be the lowest
        store.purge(BELOW, kind="file", key=erased)
        rest = store.scan(BELOW, replace(first, limit=10, after=page.cursor)).entries
        assert [entry.key for entry in rest] == (["d", "b", "a"] if descending else ["a", "c", "d"])

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

    def test_children_are_those_of_one_namespace_even_with_the_same_names(self, store: Store) -> None:
        made = {}
        for namespace in (HERE, BELOW, THERE):
            entry = put(store, "d\x01b", namespace=namespace, attributes={"of": namespace[-1]})
            made[namespace] = Child("b", entry.attributes, 1, entry.created_at, entry.updated_at)
        for key in ("d\x01a", "d\x01c"):
            put(store, key)
        assert store.children(BELOW, "file", "d\x01") == [made[BELOW]]
        assert store.children(THERE, "file", "d\x01") == [made[THERE]]
        first, second, third = store.children(HERE, "file", "d\x01")
        assert (first.name, second, third.name) == ("a", made[HERE], "c")

    def test_children_of_the_past_are_those_that_were_there_then(self, store: Store, clock: Any) -> None:
        def names(at: int | None) -> list[tuple[str, int]]:
            return [(child.name, child.revision) for child in store.children(HERE, "file", "\x01d\x01", as_of=at)]

        first = clock.advance()
        for name in ("b", "c", "b\x01deep", "b\x01deeper\x01still"):
            put(store, f"\x01d\x01{name}", "one")
        put(store, "\x01d\x01soon", expires_at=clock.now + 10 * SECOND)
        put(store, "\x01e\x01f", "elsewhere")
        second = clock.advance()
        put(store, "\x01d\x01b", "two")
        delete(store, "\x01d\x01c")
        put(store, "\x01d\x01a", "new")
        put(store, "\x01d\x01z", "new")
        third = clock.advance(20)
        delete(store, "\x01d\x01z")
        put(store, "\x01d\x01c", "again")
        assert names(first - 1) == []
        assert names(second - 1) == [("b", 1), ("c", 1), ("soon", 1)]
        assert names(third - 1) == [("a", 1), ("b", 2), ("z", 1)]
        assert names(None) == names(clock.advance()) == [("a", 1), ("b", 2), ("c", 3)]
        assert store.children(THERE, "file", "\x01d\x01", as_of=second) == []

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    def test_children_come_in_pages_now_and_in_the_past(self, store: Store, clock: Any, limit: int) -> None:
        def names(at: int | None) -> list[str]:
            found: list[str] = []
            while True:
                after = found[-1] if found else ""
                page = store.children(HERE, "file", "\x01d\x01", as_of=at, after=after, limit=limit)
                assert len(page) <= limit
                found += [child.name for child in page]
                if len(page) < limit:
                    return found

        for name in ("a", "a!", "a\x01deep", "b\x01deep", "b\x01er\x01still", "c", "é", "z"):
            put(store, f"\x01d\x01{name}", "text")
        for name in ("aa", "ab", "y"):
            put(store, f"\x01d\x01{name}", expires_at=clock.now + 5 * SECOND)
        put(store, "\x01e\x01f", "elsewhere")
        then = clock.advance()
        for name in ("a", "c"):
            delete(store, f"\x01d\x01{name}")
        put(store, "\x01d\x01b", "new")
        clock.advance(10)
        assert names(None) == ["a!", "b", "z", "é"]
        assert names(then - 1) == ["a", "a!", "aa", "ab", "c", "y", "z", "é"]

    def test_expired_children_are_not_listed(self, store: Store, clock: Any) -> None:
        put(store, "\x01d\x01a", expires_at=clock.now + SECOND)
        put(store, "\x01d\x01b")
        clock.advance(1)
        assert [child.name for child in store.children(HERE, "file", "\x01d\x01")] == ["b"]

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
