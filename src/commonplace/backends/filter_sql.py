"""A filter as SQL over `entry AS e`, on every backend. Field names and values are parameters, never SQL text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from commonplace.backends.pages import ORDER_COLUMNS, Position, after_prefix, from_key, key_bounds, single_labels
from commonplace.backends.pages import position as position_in
from commonplace.backends.rows import dump
from commonplace.entry import Entry
from commonplace.filters import Condition, Filter
from commonplace.store import Scan

_OTHER = str.maketrans("<>", "><")
COMPARISONS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class BaseWhere(ABC):
    """Conditions joined by AND, with their parameters in order. A backend writes kinds, labels and fields."""

    placeholder: ClassVar[str]
    always: ClassVar[str]
    """What is true of every row."""
    find: ClassVar[str]
    """The function that finds a text in a text; 0 means that it is not there."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.parameters: list[Any] = []

    def add(self, sql: str, *parameters: Any) -> None:
        self.parts.append(sql)
        self.parameters.extend(parameters)

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts) or self.always

    @abstractmethod
    def add_kinds(self, kinds: Sequence[str]) -> None: ...

    def add_label(self, namespace_id: int, name: str, values: Sequence[str], *, is_driving: bool) -> None:
        """Entries with one of these labels. With `is_driving`, the query starts from the label rows."""
        rows, parameters = self.label_rows(namespace_id, name, values)
        if is_driving:
            self.add(f"e.id IN (SELECT l.entry FROM {rows})", *parameters)
        else:
            self.add(f"EXISTS (SELECT 1 FROM {rows} AND l.entry = e.id)", *parameters)

    @abstractmethod
    def label_rows(self, namespace_id: int, name: str, values: Sequence[str]) -> tuple[str, list[Any]]:
        """The rows of labels, as `label AS l WHERE ...` with its parameters."""

    @abstractmethod
    def add_conditions(self, conditions: Sequence[Condition]) -> None:
        """Tests of fields. A field is in the value if that is an object that has it, otherwise in the attributes."""


def add_filter(where: BaseWhere, namespace_id: int, filter: Filter, *, driving_labels: bool = False) -> None:
    """Add every condition of `filter`.

    With `driving_labels`, the query starts from the label rows. Otherwise it checks the labels of each entry, which is
    faster if the entries are few or sorted.
    """
    if filter.kinds:
        where.add_kinds(filter.kinds)
    for name, values in labels_of(filter):
        where.add_label(namespace_id, name, values, is_driving=driving_labels)
    for column, operator, bound in (
        ("created_at", ">=", filter.created_after),
        ("created_at", "<", filter.created_before),
        ("updated_at", ">=", filter.updated_after),
        ("updated_at", "<", filter.updated_before),
        ("valid_from", "<=", filter.unchanged_since),
    ):
        if bound is not None:
            where.add(f"e.{column} {operator} {where.placeholder}", bound)
    for operator, key in key_bounds(filter):
        where.add(f"e.key {operator} {where.placeholder}", key)
    if filter.conditions:
        where.add_conditions(filter.conditions)


def add_former(where: BaseWhere, scan: Scan, position: Position | None, live: Sequence[Entry]) -> str:
    """Narrow rows of `history AS e` to a page, of which these are the live entries; returns their order.

    Labels and fields of former states have no index: compare them afterwards. Here their text only has to occur.
    """
    first, second = ORDER_COLUMNS[scan.order]
    second = second.replace("id", "entry")
    comparison, direction = ("<", "DESC") if scan.descending else (">", "ASC")
    bare = replace(scan.filter, types=(), all_tags=(), any_tags=(), resource=None, conditions=(), unchanged_since=None)
    if position is not None and scan.order == "key" and bare.kinds == (position[0],):
        bare = from_key(bare, position[1], scan.descending)
    elif position is not None:
        mark = where.placeholder
        where.add(f"(e.{first}, e.{second}) {comparison} ({mark}, {mark})", *position)
    if len(live) > scan.limit:  # what comes after them belongs to a later page
        mark = where.placeholder
        where.add(
            f"(e.{first}, e.{second}) {comparison.translate(_OTHER)}= ({mark}, {mark})", *position_in(scan, live[-1])
        )
    add_filter(where, 0, bare)
    for _, label in single_labels(scan.filter):
        where.add(f"{where.find}(e.attributes, {where.placeholder}) > 0", dump(label))
    return f"e.{first} {direction}, e.{second} {direction}"


def add_names(where: BaseWhere, kind: str | None, key: str | None, prefix: str | None) -> None:
    """Only rows of a kind, with a key, or with keys that begin with a prefix."""
    if kind is not None:
        where.add(f"kind = {where.placeholder}", kind)
    if key is not None:
        where.add(f"key = {where.placeholder}", key)
    if prefix is not None:
        where.add(f"key >= {where.placeholder} AND key < {where.placeholder}", prefix, after_prefix(prefix))


def labels_of(filter: Filter) -> list[tuple[str, Sequence[str]]]:
    """The required labels: one of the values for each name."""
    found: list[tuple[str, Sequence[str]]] = [("type", filter.types)] if filter.types else []
    found += [("tags", (tag,)) for tag in filter.all_tags]
    if filter.any_tags:
        found.append(("tags", filter.any_tags))
    if filter.resource is not None:
        found.append(("resourceId", (filter.resource,)))
    return found
