"""Filters in SQLite's SQL: kinds, labels, and fields of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from json import loads
from typing import Any, cast

from commonplace.backends.filter_sql import COMPARISONS, BaseWhere
from commonplace.backends.rows import dump
from commonplace.backends.sqlite.checksums import KIND_CODES, damaged_row
from commonplace.checks import JSON
from commonplace.filters import Condition, hold

LONG_BYTES = 50_000


class Where(BaseWhere):
    placeholder = "?"
    always = "1"
    find = "instr"

    def add_kinds(self, kinds: Sequence[str]) -> None:
        self.add(f"e.kind IN ({_marks(kinds)})", *kinds)
        if self.has_codes:
            self.add(f"e.kind_code IN ({_marks(kinds)})", *(KIND_CODES.get(kind, kind) for kind in kinds))

    def __init__(self) -> None:
        super().__init__()
        self.has_codes = True  # of kinds, as live rows have
        self.waiting: Mapping[tuple[str, str], Sequence[int]] = {}  # entries whose labels are not written, by label

    def label_rows(self, namespace_id: int, name: str, values: Sequence[str]) -> tuple[str, list[Any]]:
        ids = sorted({entry_id for value in values for entry_id in self.waiting.get((name, value), ())})
        if ids:
            rows = (
                f"(SELECT entry FROM label WHERE namespace = ? AND name = ? AND value IN ({_marks(values)})"
                " UNION ALL SELECT value FROM json_each(?)) AS l WHERE 1"
            )
            return rows, [namespace_id, name, *values, dump(ids)]
        rows = f"label AS l WHERE l.namespace = ? AND l.name = ? AND l.value IN ({_marks(values)})"
        return rows, [namespace_id, name, *values]

    def add_conditions(self, conditions: Sequence[Condition]) -> None:
        """Fields of a long entry are compared in Python: SQLite would keep a copy of its JSON for each condition."""
        inside = Where()
        for condition in conditions:
            _add_condition(inside, condition)
        self.add(
            f"CASE WHEN octet_length(e.value) + octet_length(e.attributes) > {LONG_BYTES}"
            " THEN conditions_hold(CASE WHEN e.is_json THEN e.value END, e.attributes, ?)"
            f" ELSE {inside.sql} END",
            dump([[condition.path, condition.operator, condition.operand] for condition in conditions]),
            *inside.parameters,
        )


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def conditions_hold(*arguments: Any) -> bool:
    """The SQL function for a long entry: its JSON is read once, however many conditions there are."""
    value, attributes, conditions = arguments
    try:
        return hold(_conditions(conditions), None if value is None else loads(value), loads(attributes))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise damaged_row("an entry of this namespace") from error


@lru_cache(maxsize=64)
def _conditions(dumped: str) -> tuple[Condition, ...]:
    return tuple(Condition(tuple(path), operator, operand) for path, operator, operand in loads(dumped))


def _add_condition(where: Where, condition: Condition) -> None:
    test, parameters = _test(condition)
    in_value, value_parameters = _at_path("e.value", condition.path, test, parameters)
    in_attributes, attribute_parameters = _at_path("e.attributes", condition.path, test, parameters)
    sql = (
        "CASE WHEN e.is_json AND EXISTS (SELECT 1 FROM json_each(e.value) WHERE key = ?)"
        f" THEN {in_value} ELSE {in_attributes} END"
    )
    where.add(
        f"NOT ({sql})" if condition.operator == "$ne" else f"({sql})",
        condition.path[0],
        *value_parameters,
        *attribute_parameters,
    )


def _at_path(source: str, path: Sequence[str], test: str, parameters: Sequence[Any]) -> tuple[str, list[Any]]:
    """Whether the field at `path` below `source` exists and passes a test, in which `@` is the field."""
    tables, keys = [], []
    for depth in range(len(path)):
        tables.append(f"json_each({source}) AS j{depth}")
        keys.append(f"j{depth}.key = ?")
        source = f"CASE WHEN j{depth}.type = 'object' THEN j{depth}.value ELSE '{{}}' END"
    sql = f"EXISTS (SELECT 1 FROM {', '.join(tables)} WHERE {' AND '.join(keys)} AND {test})"
    return sql.replace("@", f"j{len(path) - 1}"), [*path, *parameters]


def _test(condition: Condition) -> tuple[str, list[Any]]:
    operand = condition.operand
    if condition.operator in ("$eq", "$ne"):
        return _equals(operand, "@")
    if condition.operator == "$in":
        items = cast("Sequence[JSON]", operand)
        texts = [item for item in items if isinstance(item, str)]
        numbers = [item for item in items if isinstance(item, (int, float)) and not isinstance(item, bool)]
        others = [item for item in items if item is None or isinstance(item, (bool, Mapping, list, tuple))]
        tests: list[tuple[str, Sequence[Any]]] = [
            (f"(@.type = 'text' AND @.value IN ({_marks(texts)}))", texts),
            (f"(@.type IN ('integer', 'real') AND @.value IN ({_marks(numbers)}))", numbers),
            *(_equals(item, "@") for item in others),
        ]
        return f"({' OR '.join(sql for sql, _ in tests)})", [p for _, some in tests for p in some]
    if isinstance(operand, bool):
        return "0", []
    types = "'text'" if isinstance(operand, str) else "'integer', 'real'"
    return f"(@.type IN ({types}) AND @.value {COMPARISONS[condition.operator]} ?)", [operand]


def _equals(operand: JSON, at: str) -> tuple[str, list[Any]]:
    """A test that the JSON value `at` equals the operand, in type and at every depth."""
    if operand is None or isinstance(operand, bool):
        return f"{at}.type = ?", ["null" if operand is None else "true" if operand else "false"]
    if isinstance(operand, str):
        return f"({at}.type = 'text' AND {at}.value = ?)", [operand]
    if isinstance(operand, (int, float)):
        return f"({at}.type IN ('integer', 'real') AND {at}.value = ?)", [operand]
    kind, empty = ("object", "{}") if isinstance(operand, Mapping) else ("array", "[]")
    members = operand.items() if isinstance(operand, Mapping) else enumerate(operand)
    below = f"{at.replace('@', 'a')}_"
    source = f"json_each(CASE WHEN {at}.type = '{kind}' THEN {at}.value ELSE '{empty}' END)"
    sql = f"{at}.type = '{kind}' AND (SELECT count(*) FROM {source}) = ?"
    parameters: list[Any] = [len(operand)]
    for key, member in members:
        test, member_parameters = _equals(member, below)
        sql += f" AND EXISTS (SELECT 1 FROM {source} AS {below} WHERE {below}.key = ? AND {test})"
        parameters += [key, *member_parameters]
    return f"({sql})", parameters
