"""Filters: how they are parsed, and what they match. The SQL of every backend decides the same as `Filter.matches`.

A filter narrows by kind, type, tags, time and by fields. Everything given must hold (AND).

- A field is looked up in the value if that is an object that has it, otherwise in the attributes.
- A dot in a name goes one level down: `user.name` is the field `name` of the object `user`. `\\.` is a dot in a name.
- A plain value means equality, a nested object means "contains these", `{"$gt": 3}` compares.
- Values of different JSON types are never equal and never ordered: `true` is not 1, `"5"` is not above 3. 1 equals 1.0.
- A missing field matches only `$ne`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from commonplace.checks import INT64, JSON, check_json, check_text
from commonplace.entry import Entry
from commonplace.errors import InvalidInput

Operator: TypeAlias = Literal["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in"]
OPERATORS: tuple[Operator, ...] = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in")
MAX_CONDITIONS = 50
MAX_DEPTH = 20
MAX_VALUES = 200
"""In one condition, because SQL parsers are limited too."""
MAX_ALL_VALUES = 6_000
"""In all conditions. A value takes up to four parameters of a statement, and SQLite allows 32,766."""
MAX_NESTED_VALUES = 1_000
"""Of those, in lists and objects that are compared as a whole: each needs a subquery, and 6,000 take seconds."""
_DOT = re.compile(r"(?<!\\)\.")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of the field at `path`."""

    path: tuple[str, ...]
    operator: Operator
    operand: JSON


@dataclass(frozen=True, slots=True)
class Filter:
    """Everything that an entry must satisfy. The time ranges are half-open: from `after` (inclusive) to `before`.

    The range between `key_after` and `key_before` includes neither. `unchanged_since` keeps only live entries whose
    current state is at least that old; it does not apply to former states.
    """

    kinds: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    all_tags: tuple[str, ...] = ()
    any_tags: tuple[str, ...] = ()
    resource: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    updated_after: int | None = None
    updated_before: int | None = None
    key_prefix: str | None = None
    key_after: str | None = None
    key_before: str | None = None
    unchanged_since: int | None = None
    conditions: tuple[Condition, ...] = ()

    def matches(self, entry: Entry) -> bool:
        """Whether an entry matches."""
        attributes = entry.attributes
        present = _labels(attributes, "tags")
        return (
            (not self.kinds or entry.kind in self.kinds)
            and (not self.types or not _labels(attributes, "type").isdisjoint(self.types))
            and present.issuperset(self.all_tags)
            and (not self.any_tags or not present.isdisjoint(self.any_tags))
            and (self.resource is None or self.resource in _labels(attributes, "resourceId"))
            and (self.created_after is None or entry.created_at >= self.created_after)
            and (self.created_before is None or entry.created_at < self.created_before)
            and (self.updated_after is None or entry.updated_at >= self.updated_after)
            and (self.updated_before is None or entry.updated_at < self.updated_before)
            and (self.key_prefix is None or entry.key.startswith(self.key_prefix))
            and (self.key_after is None or entry.key > self.key_after)
            and (self.key_before is None or entry.key < self.key_before)
            and hold(self.conditions, entry.value, attributes)
        )


def _labels(attributes: Mapping[str, JSON], name: str) -> set[str]:
    """An attribute that is a string or a list of strings, as backends index it."""
    value = attributes.get(name)
    return {item for item in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(item, str)}


def parse_conditions(where: Mapping[str, object] | None) -> tuple[Condition, ...]:
    """Parse the field filter of a caller, `{"category": "x", "size": {"$gt": 3}, "owner": {"team": "a"}}`."""
    if where is None:
        return ()
    if not isinstance(where, Mapping):
        raise InvalidInput(f"filter must be an object of fields, not {type(where).__name__}")
    check_json("filter", where, max_depth=MAX_DEPTH)
    conditions = tuple(_conditions((), where))
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidInput(f"filter has {len(conditions)} conditions; at most {MAX_CONDITIONS} are allowed")
    values = sum(_check_operand(condition.operand) for condition in conditions)
    if values > MAX_ALL_VALUES:
        raise InvalidInput(f"filter compares with {values:,} values; at most {MAX_ALL_VALUES:,} are allowed")
    nested = sum(map(_nested_values, conditions))
    if nested > MAX_NESTED_VALUES:
        raise InvalidInput(
            f"filter compares with lists and objects of {nested:,} values; at most {MAX_NESTED_VALUES:,} are allowed"
        )
    return conditions


def _conditions(path: tuple[str, ...], where: Mapping[str, Any]) -> Iterable[Condition]:
    for name, wanted in where.items():
        check_text("a filter's field name", name, max_bytes=1_000)
        if name.startswith("$"):
            if not path:
                raise InvalidInput(f"operator {name} needs a field around it: {{field: {{{name}: …}}}}")
            if name not in OPERATORS:
                raise InvalidInput(f"unknown operator {name}; use one of {', '.join(OPERATORS)}")
            yield _condition(path, name, wanted)
        elif isinstance(wanted, Mapping) and wanted:
            yield from _conditions((*path, *field_path(name)), wanted)
        else:
            yield _condition((*path, *field_path(name)), "$eq", wanted)


def field_path(name: str) -> tuple[str, ...]:
    """The names in a dotted path. A dot after a backslash belongs to a name, and so do dots with nothing between."""
    if "." not in name:
        return (name,)
    path = tuple(part.replace("\\.", ".") for part in _DOT.split(name))
    return path if all(path) else (name,)


def _condition(path: tuple[str, ...], operator: Operator, operand: JSON) -> Condition:
    if len(path) > MAX_DEPTH:
        raise InvalidInput(f"a filter's field is at most {MAX_DEPTH} levels deep, not {len(path)}")
    if operator == "$in":
        if not isinstance(operand, (list, tuple)):
            raise InvalidInput("$in takes a list of values")
    elif operator not in ("$eq", "$ne") and not isinstance(operand, (str, int, float)):
        raise InvalidInput(f"{operator} compares numbers or strings, not {_json_type(operand)}")
    if _check_operand(operand) - 1 > MAX_VALUES:  # without the list or object itself
        raise InvalidInput(f"{'.'.join(path)} is compared with more than {MAX_VALUES} values; ask for fewer at once")
    return Condition(path, operator, operand)


def _check_operand(operand: JSON) -> int:
    """Refuse numbers that a database cannot compare; return how many values the operand holds."""
    if isinstance(operand, int) and operand not in INT64:
        raise InvalidInput(f"{operand} is outside of 64-bit integers, which a filter cannot compare")
    if isinstance(operand, Mapping):
        operand = list(operand.values())
    if isinstance(operand, (list, tuple)):
        return 1 + sum(map(_check_operand, operand))
    return 1


def _nested_values(condition: Condition) -> int:
    alternatives = condition.operand if condition.operator == "$in" else [condition.operand]
    return sum(_check_operand(one) - 1 for one in cast(Sequence[JSON], alternatives))


def hold(conditions: Iterable[Condition], value: JSON, attributes: Mapping[str, JSON]) -> bool:
    """Whether all conditions hold for an entry with this value and these attributes."""
    return all(_holds(condition, value, attributes) for condition in conditions)


def _holds(condition: Condition, value: JSON, attributes: Mapping[str, JSON]) -> bool:
    found = _look_up(value, attributes, condition.path)
    operator, operand = condition.operator, condition.operand
    if operator == "$ne":
        return found is _MISSING or not equal(cast(JSON, found), operand)
    if found is _MISSING:
        return False
    present = cast(JSON, found)
    if operator == "$eq":
        return equal(present, operand)
    if operator == "$in":
        return any(equal(present, item) for item in cast(Sequence[JSON], operand))
    if _json_type(present) != _json_type(operand) or isinstance(operand, bool):
        return False
    left, right = _comparable(present), _comparable(operand)
    return bool(
        left > right
        if operator == "$gt"
        else left >= right
        if operator == "$gte"
        else left < right
        if operator == "$lt"
        else left <= right
    )


def _look_up(value: JSON, attributes: Mapping[str, JSON], path: tuple[str, ...]) -> object:
    found: object = value if isinstance(value, Mapping) and path[0] in value else attributes
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            return _MISSING
        found = found[name]
    return found


def equal(left: JSON, right: JSON) -> bool:
    """Equality of JSON values: within one type, at every depth."""
    if _json_type(left) != _json_type(right):
        return False
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(_comparable(left) == _comparable(right))


def _comparable(value: JSON) -> Any:
    """Integers beyond 64 bits become floating point numbers, as databases compare them."""
    if not isinstance(value, int) or value in INT64:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _json_type(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, Mapping) else "array"
