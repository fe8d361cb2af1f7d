"""A filter means the same in Python and in a backend's SQL, for any JSON and any field name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.backends.filter_sql import add_filter
from commonplace.backends.postgres import PostgresStore
from commonplace.backends.sqlite import SQLiteStore
from commonplace.backends.sqlite import where as sqlite_where
from commonplace.backends.sqlite.where import Where
from commonplace.entry import Draft, Entry
from commonplace.errors import InvalidInput
from commonplace.filters import MAX_ALL_VALUES, MAX_NESTED_VALUES, MAX_VALUES, OPERATORS, Filter, parse_conditions
from commonplace.language.tokenizer import query_terms
from commonplace.store import Scan, Store
from doubles import rounds
from postgres_server import empty, shared_book

numbers = itertools.count()

FIELDS = ["a", "b", "type", "tags", "size", "", " ", "a.b", "a'b", 'a"b', "a`b", "$a", "a$", "[0]", "0", "ä", "日"]
FIELDS += ["e.key", "') OR 1=1 --", "; DROP TABLE entry", "?", "?1", ":x", "@", "j0.key", "%", "_", "null", "\\", "\n"]
FIELDS += ["\U0001f600", "key", "value", "$.a", "#"]

names = st.one_of(
    st.sampled_from(FIELDS), st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=4)
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from(
        [0.0, -0.0, 1.0, 1.5, 3.0, 1e23, 1e300, -1e-300, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, -(2**63), 0.1, 1 / 3]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "A", "b", "5", "10", "true", "null", "ä", "a'b", "日本"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
stored_values = st.one_of(values, st.sampled_from([2**64, -(2**70), 10**400]))
labels = st.one_of(st.lists(st.sampled_from(["x", "y", "ä"]), max_size=3), st.sampled_from(["x", "y"]), values)


@st.composite
def drafts(draw: Any, key: str) -> Draft:
    attributes = draw(st.dictionaries(names, stored_values, max_size=3))
    for name in ("type", "tags", "resourceId"):
        if draw(st.booleans()):
            attributes[name] = draw(labels)
    return Draft(
        draw(st.sampled_from(["file", "record"])),
        key,
        draw(st.one_of(st.dictionaries(names, stored_values, max_size=4), stored_values)),
        text="common words",
        attributes=attributes,
        created_at=draw(st.integers(0, 3)),
        updated_at=draw(st.integers(0, 3)),
    )


@st.composite
def conditions(draw: Any, entries: list[Draft]) -> dict[str, Any]:
    """A field filter, half of the time about a field that one of the entries has."""
    if entries and draw(st.booleans()):
        entry = draw(st.sampled_from(entries))
        holder = entry.value if isinstance(entry.value, dict) and draw(st.booleans()) else entry.attributes
        if holder:
            name = draw(st.sampled_from(sorted(holder)))
            wanted: Any = holder[name]
            if name.startswith("$") or _is_too_large(wanted):
                return {}
            if isinstance(wanted, (str, int, float)) and not isinstance(wanted, bool) and draw(st.booleans()):
                return {name: {draw(st.sampled_from(["$gt", "$gte", "$lt", "$lte"])): wanted}}
            if _has_operator(wanted):
                return {name: {draw(st.sampled_from(["$eq", "$ne"])): wanted}}
            how = draw(st.sampled_from(["plain", "$eq", "$ne", "$in"]))
            return {name: wanted if how == "plain" else {how: [wanted, 7] if how == "$in" else wanted}}
    name = draw(names.filter(lambda name: not name.startswith("$")))
    operator = draw(st.sampled_from(OPERATORS))
    if operator == "$in":
        return {name: {"$in": draw(st.lists(values, max_size=4))}}
    if operator in ("$eq", "$ne"):
        return {name: {operator: draw(values)}}
    return {name: {operator: draw(scalars.filter(lambda value: isinstance(value, (str, int, float))))}}


def _has_operator(value: Any) -> bool:
    if isinstance(value, dict):
        return any(name.startswith("$") or _has_operator(item) for name, item in value.items())
    return False


def _is_too_large(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(map(_is_too_large, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


times = st.one_of(st.none(), st.none(), st.integers(0, 4))


@st.composite
def cases(draw: Any) -> tuple[list[Draft], list[Filter]]:
    entries = [
        draw(drafts(key)) for key in draw(st.lists(st.sampled_from(["a", "ab", "b", "ä"]), min_size=1, unique=True))
    ]
    filters = [
        Filter(
            kinds=tuple(draw(st.lists(st.sampled_from(["file", "record"]), max_size=1))),
            types=tuple(draw(st.lists(st.sampled_from(["x", "y", "ä"]), max_size=1))),
            all_tags=tuple(draw(st.lists(st.sampled_from(["x", "y"]), max_size=1))),
            any_tags=tuple(draw(st.lists(st.sampled_from(["x", "ä"]), max_size=2))),
            resource=draw(st.sampled_from([None, None, "x"])),
            created_after=draw(times),
            created_before=draw(times),
            updated_after=draw(times),
            updated_before=draw(times),
            key_prefix=draw(st.sampled_from([None, None, "a", "b"])),
        )
    ]
    filters += [
        Filter(
            conditions=parse_conditions(draw(conditions(entries)) | draw(st.one_of(st.just({}), conditions(entries))))
        )
        for _ in range(4)
    ]
    return entries, filters


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "sqlite":
        store: Store = SQLiteStore(":memory:")
    else:
        store = PostgresStore(shared_book())
        empty(shared_book())
    yield store
    store.close()


@pytest.mark.promise("engine-filters-agree")
def test_sql_and_python_decide_every_filter_alike(store: Store) -> None:
    # On a server each example costs some hundred round trips.
    examples = 400 if isinstance(store, SQLiteStore) else 60
    settings(max_examples=rounds(examples))(given(case=cases())(lambda case: check_alike(store, case)))()


@pytest.mark.promise("engine-filters-agree")
def test_fields_of_a_long_entry_are_decided_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty conditions on an entry of 10 MB took 565 MB: SQLite kept a copy of its JSON for each of them."""
    with closing(SQLiteStore(":memory:")) as store:
        long = "x" * sqlite_where.LONG_BYTES
        assert matching(store, {"a": {"$gt": 1}, "b": None}, {"a": 2, "b": None, "c": long}, {"a": 1, "c": long}) == [0]
        monkeypatch.setattr(sqlite_where, "LONG_BYTES", 0)
        settings(max_examples=rounds(200))(given(case=cases())(lambda case: check_alike(store, case)))()


def check_alike(store: Store, case: tuple[list[Draft], list[Filter]]) -> None:
    drafts, filters = case
    namespace = ("filters", str(next(numbers)))
    entries: list[Entry] = store.write(namespace, lambda transaction: [transaction.put(draft) for draft in drafts])[0]
    for filter in filters:
        expected = sorted(entry.id for entry in entries if filter.matches(entry))
        assert sorted(entry.id for entry in store.scan(namespace, Scan(filter)).entries) == expected, filter
        found = store.search_text(namespace, query_terms("common"), filter, 10)
        assert sorted(candidate.entry_id for candidate in found) == expected, filter
    store.write(namespace, lambda transaction: [transaction.delete(entry.kind, entry.key) for entry in entries])
    for filter in filters:  # former states are decided in Python alone
        expected = [entry.id for entry in entries if filter.matches(entry)]
        then = store.former(namespace, entries[0].commit and _begin(store, namespace), filter)
        assert sorted(state.id for state in then) == sorted(expected)


def _begin(store: Store, namespace: tuple[str, ...]) -> int:
    return store.changes(namespace)[0].at


def matching(store: Store, where: dict[str, Any], *stored: Any, **attributes: Any) -> list[int]:
    """Which of the stored values a filter finds, by their position."""
    namespace = ("one", str(next(numbers)))

    def work(transaction: Any) -> None:
        for position, value in enumerate(stored):
            transaction.put(Draft("record", f"{position:03}", value, attributes=attributes))

    store.write(namespace, work)
    filter = Filter(conditions=parse_conditions(where))
    entries = store.scan(namespace, Scan()).entries
    found = [int(entry.key) for entry in store.scan(namespace, Scan(filter)).entries]
    assert found == [int(entry.key) for entry in entries if filter.matches(entry)]
    return found


MIXED = [{"f": value} for value in (3, 3.0, "3", True, None, [3], {"g": 3}, 4, "4", -1, "ä")] + [{}, {"other": 3}]


@pytest.mark.promise("records-filter-operators")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"f": 3}, [0, 1]),
        ({"f": {"$eq": 3.0}}, [0, 1]),
        ({"f": "3"}, [2]),
        ({"f": True}, [3]),
        ({"f": 1}, []),
        ({"f": None}, [4]),
        ({"f": [3]}, [5]),
        ({"f": {"g": 3}}, [6]),
        ({"f": {"g": {"$gt": 2}}}, [6]),
        ({"f": {"$ne": 3}}, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ({"f": {"$gt": 2}}, [0, 1, 7]),
        ({"f": {"$gte": 3, "$lt": 4}}, [0, 1]),
        ({"f": {"$lt": 3}}, [9]),
        ({"f": {"$gt": "3"}}, [8, 10]),
        ({"f": {"$lte": "3"}}, [2]),
        ({"f": {"$gte": True}}, []),
        ({"f": {"$in": [3, "4", None]}}, [0, 1, 4, 8]),
        ({"f": {"$in": []}}, []),
        ({"f": {}}, []),
        ({"missing": {"$ne": 1}}, list(range(13))),
        ({"missing": {"$gt": 1}}, []),
        ({"f": 3, "other": {"$ne": 3}}, [0, 1]),
        ({}, list(range(13))),
    ],
)
def test_comparisons_hold_within_one_json_type(store: Store, where: dict[str, Any], expected: list[int]) -> None:
    assert matching(store, where, *MIXED) == expected


@pytest.mark.promise("records-filter-operators")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"f": 1e23}, [1]),
        ({"f": {"$ne": 1e23}}, [0, 2, 3]),
        ({"f": {"$in": [1e23, 0]}}, [1]),
        ({"f": {"$gte": 1e23}}, [1, 2]),
        ({"f": {"$lt": 1e23}}, [0]),
        ({"f": [{"g": 1e23}]}, [3]),
    ],
)
def test_a_number_that_databases_write_in_another_way_than_python_equals_itself(
    store: Store, where: dict[str, Any], expected: list[int]
) -> None:
    stored = [9.999999999999997e22, 1e23, 1.0000000000000001e23, [{"g": 1e23}]]
    assert matching(store, where, *({"f": value} for value in stored)) == expected


def test_a_field_is_looked_up_in_the_value_first_and_then_in_the_attributes(store: Store) -> None:
    assert matching(store, {"f": 1}, {"f": 1}, {"f": 2}, {}, "text", source="s", f=1) == [0, 2, 3]
    assert matching(store, {"f": {"g": 1}}, {"f": {"g": 1}}, {"f": {}}, {}, f={"g": 1}) == [0, 2]


def test_a_field_name_is_data_and_never_sql(store: Store) -> None:
    for name in FIELDS:
        if not name.startswith("$"):
            written = name.replace(".", "\\.")  # a bare dot goes one level down
            assert matching(store, {written: 1}, {name: 1}, {name + "x": 1}, {}) == [0]
            assert matching(store, {"f": {written: 1}}, {"f": {name: 1}}, {"f": {}}) == [0]


@pytest.mark.promise("records-filter-operators")
@pytest.mark.parametrize(
    "where",
    [{"f": {"$regex": "x"}}, {"f": {"$": 1}}, {"$gt": 3}, {"$and": []}, {"f": {"$in": 3}}, {"f": {"$gt": None}},
     {"f": {"$gt": [1]}}, {"f": {"$lt": {}}}, {"f": 2**63}, {"f": {"$in": [-(2**64)]}}, {"f": float("nan")},
     {"f\x00": 1}, {"f": "\ud800"}, {1: 2}, {"f": {"$eq": b"x"}}, "f", [], {"f": {"$in": list(range(MAX_VALUES + 1))}},
     {str(number): 1 for number in range(51)}, {str(number): {"$in": list(range(165))} for number in range(50)},
     {"f": {str(number): list(range(165)) for number in range(50)}},
     {str(number): list(range(21)) for number in range(50)}, {str(n): {"$in": [[1]] * 21} for n in range(50)}],
)  # fmt: skip
def test_a_filter_that_cannot_be_decided_is_refused(where: Any) -> None:
    with pytest.raises(InvalidInput):
        parse_conditions(where)


@pytest.mark.parametrize(
    "operand",
    [
        list(range(MAX_NESTED_VALUES // 50)),
        {"$in": [[1]] * (MAX_NESTED_VALUES // 50)},
        {"$in": list(range(MAX_ALL_VALUES // 50 - 1))},
    ],
)
def test_the_largest_filter_that_is_allowed_fits_into_a_statement_of_sqlite(operand: Any) -> None:
    largest: dict[str, Any] = {str(number): operand for number in range(50)}
    for _ in range(15):
        largest = {"f": largest}
    where = Where()
    add_filter(where, 1, Filter(conditions=parse_conditions(largest)))
    assert len(where.parameters) < 32_000


def test_the_largest_filter_that_is_allowed_is_answered(store: Store) -> None:
    many = list(range(MAX_VALUES))
    assert matching(store, {"f": {"$in": many}}, {"f": 7}, {"f": -7}) == [0]
    assert matching(store, {"f": many}, {"f": many}, {"f": many[1:]}) == [0]
    assert matching(
        store, {str(n): {"$in": list(range(100))} for n in range(50)}, {str(n): n for n in range(50)}, {}
    ) == [0]
    deep: Any = 1
    for _ in range(17):
        deep = [deep]
    assert matching(store, {"f": deep}, {"f": deep}, {"f": 1}) == [0]
    path: Any = 1
    for _ in range(18):
        path = {"f": path}
    assert matching(store, path, path, {"f": 1}) == [0]
