"""Filters in PostgreSQL's SQL: kinds, labels, and fields of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from commonplace.backends.filter_sql import COMPARISONS, BaseWhere
from commonplace.backends.postgres.connection import texts_of
from commonplace.backends.rows import dump
from commonplace.checks import JSON
from commonplace.filters import Condition


class Where(BaseWhere):
    placeholder = "%s"
    always = "true"
    find = "strpos"

    def add_kinds(self, kinds: Sequence[str]) -> None:
        self.add("e.kind = ANY(%s::text[])", texts_of(kinds))

    def label_rows(self, namespace_id: int, name: str, values: Sequence[str]) -> tuple[str, list[Any]]:
        rows = "label AS l WHERE l.tenant = e.tenant AND l.namespace = %s AND l.name = %s AND l.value = ANY(%s)"
        return rows, [namespace_id, name, list(values)]

    def add_conditions(self, conditions: Sequence[Condition]) -> None:
        for condition in conditions:
            steps = " -> %s::text" * len(condition.path)
            field = (
                "CASE WHEN e.is_json AND (e.value::json -> %s::text) IS NOT NULL"
                f" THEN e.value::json{steps} ELSE e.attributes::json{steps} END"
            )
            test, parameters = _test(condition)
            self.add(
                # OFFSET keeps the planner from repeating the field's expression wherever the test names it.
                f"(SELECT {test} FROM (SELECT {field} AS at OFFSET 0) AS field)",
                *parameters,
                condition.path[0],
                *condition.path,
                *condition.path,
            )


def _test(condition: Condition) -> tuple[str, list[Any]]:
    """A test of `at`, which is NULL if the field is missing."""
    operator, operand = condition.operator, condition.operand
    # Each operand is a subquery, which is run once and not for each entry.
    if operator == "$eq":
        return "coalesce(json_normal(at) = (SELECT json_normal(%s::json)), false)", [dump(operand)]
    if operator == "$ne":
        return "coalesce(json_normal(at) <> (SELECT json_normal(%s::json)), true)", [dump(operand)]
    if operator == "$in":
        items = "SELECT json_normal(item::json) FROM unnest(%s::text[]) AS item"
        return f"coalesce(json_normal(at) = ANY(ARRAY({items})), false)", [
            [dump(item) for item in cast("Sequence[JSON]", operand)]
        ]
    sign = COMPARISONS[operator]
    if isinstance(operand, bool):
        return "false", []
    if isinstance(operand, str):
        return f"coalesce(json_typeof(at) = 'string' AND (at #>> '{{}}') COLLATE \"C\" {sign} %s, false)", [operand]
    compared = f"json_number(at #>> '{{}}') {sign} (SELECT json_number(%s::text))"
    return f"coalesce(CASE json_typeof(at) WHEN 'number' THEN {compared} ELSE false END, false)", [dump(operand)]
