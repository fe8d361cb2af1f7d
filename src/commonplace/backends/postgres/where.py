"""A filter as SQL over `entry AS e`. Field names and values are parameters, never part of the statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from commonplace.backends.paging import key_bounds
from commonplace.backends.postgres.connection import texts_of
from commonplace.backends.states import dump
from commonplace.checks import JSON
from commonplace.filters import Condition, Filter

_COMPARISONS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class Where:
    """Conditions joined by AND, with their parameters in order."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.parameters: list[Any] = []

    def add(self, sql: str, *parameters: Any) -> None:
        self.parts.append(sql)
        self.parameters.extend(parameters)

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts) or "true"


def add_filter(where: Where, namespace_id: int, filter: Filter, *, driving_labels: bool = False) -> None:
    """Add what `filter` asks, all of it.

    `driving_labels` lets the rows with a label lead the search for entries; otherwise each entry is asked for its
    label, which suits entries that are few or come in an order.
    """
    label = _add_label if driving_labels else _add_label_of_entry
    if filter.kinds:
        where.add("e.kind = ANY(%s::text[])", texts_of(filter.kinds))
    if filter.types:
        label(where, namespace_id, "type", filter.types)
    for tag in filter.all_tags:
        label(where, namespace_id, "tags", (tag,))
    if filter.any_tags:
        label(where, namespace_id, "tags", filter.any_tags)
    if filter.resource is not None:
        label(where, namespace_id, "resourceId", (filter.resource,))
    for column, operator, bound in (
        ("created_at", ">=", filter.created_after),
        ("created_at", "<", filter.created_before),
        ("updated_at", ">=", filter.updated_after),
        ("updated_at", "<", filter.updated_before),
        ("valid_from", "<=", filter.unchanged_since),
    ):
        if bound is not None:
            where.add(f"e.{column} {operator} %s", bound)
    for operator, key in key_bounds(filter):
        where.add(f"e.key {operator} %s", key)
    for condition in filter.conditions:
        _add_condition(where, condition)


def _add_label(where: Where, namespace_id: int, name: str, values: Sequence[str]) -> None:
    where.add(
        "e.id IN (SELECT l.entry FROM label AS l WHERE l.tenant = e.tenant AND l.namespace = %s AND l.name = %s"
        " AND l.value = ANY(%s))",
        namespace_id,
        name,
        list(values),
    )


def _add_label_of_entry(where: Where, namespace_id: int, name: str, values: Sequence[str]) -> None:
    where.add(
        "EXISTS (SELECT 1 FROM label AS l WHERE l.tenant = e.tenant AND l.namespace = %s AND l.name = %s"
        " AND l.value = ANY(%s) AND l.entry = e.id)",
        namespace_id,
        name,
        list(values),
    )


def _add_condition(where: Where, condition: Condition) -> None:
    """The field stands in the value when that is an object that has it, else in the attributes."""
    steps = " -> %s::text" * len(condition.path)
    field = (
        "CASE WHEN e.is_json AND (e.value::json -> %s::text) IS NOT NULL"
        f" THEN e.value::json{steps} ELSE e.attributes::json{steps} END"
    )
    test, parameters = _test(condition)
    where.add(
        # OFFSET keeps the planner from writing the field's expression out at every place where the test names it.
        f"(SELECT {test} FROM (SELECT {field} AS at OFFSET 0) AS field)",
        *parameters,
        condition.path[0],
        *condition.path,
        *condition.path,
    )


def _test(condition: Condition) -> tuple[str, list[Any]]:
    """A test of `at`, which is NULL where the field is missing."""
    operator, operand = condition.operator, condition.operand
    # Each operand in a query of its own, which is run once and not for each entry.
    if operator == "$eq":
        return "coalesce(json_normal(at) = (SELECT json_normal(%s::json)), false)", [dump(operand)]
    if operator == "$ne":
        return "coalesce(json_normal(at) <> (SELECT json_normal(%s::json)), true)", [dump(operand)]
    if operator == "$in":
        items = "SELECT json_normal(item::json) FROM unnest(%s::text[]) AS item"
        return f"coalesce(json_normal(at) = ANY(ARRAY({items})), false)", [
            [dump(item) for item in cast(Sequence[JSON], operand)]
        ]
    sign = _COMPARISONS[operator]
    if isinstance(operand, bool):
        return "false", []
    if isinstance(operand, str):
        return f"coalesce(json_typeof(at) = 'string' AND (at #>> '{{}}') COLLATE \"C\" {sign} %s, false)", [operand]
    compared = f"json_number(at #>> '{{}}') {sign} (SELECT json_number(%s::text))"
    return f"coalesce(CASE json_typeof(at) WHEN 'number' THEN {compared} ELSE false END, false)", [dump(operand)]
