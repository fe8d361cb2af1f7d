"""Entries as rows, on every backend: the columns of live and former states, and the way from a row back to an entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from commonplace.backends.deltas import Stored
from commonplace.checks import JSON, Namespace
from commonplace.entry import SEPARATOR, Entry
from commonplace.errors import Corrupt

COLUMNS = (
    "id, kind, key, identity, is_json, attributes, revision, commit_number, valid_from, "
    "created_at, updated_at, expires_at, actor, heading, text, value"
)
NAMES = slice(1, 3)
"""The kind and the key."""
HEAD = slice(0, 14)
"""The columns before the text and the value."""
CONTENT = slice(14, 16)
"""The text and the value: those of a former state are deltas."""
LIVE_WIDTH = 18
"""How many columns `Live` has."""
FORMER_COLUMNS = COLUMNS.replace("id, kind", "entry, kind", 1)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=dict)
_read = json.JSONDecoder().raw_decode
"""What `dump` wrote has nothing around it, so nothing needs to be skipped: half the time of `json.loads`."""


class Live(NamedTuple):
    """The row of a live state: COLUMNS, what began it, and how many splices in a row lead away from it."""

    id: int
    kind: str
    key: str
    identity: str | None
    is_json: int
    attributes: str
    revision: int
    commit: int
    valid_from: int
    created_at: int
    updated_at: int
    expires_at: int | None
    actor: str | None
    heading: str | None
    text: str | None
    """None if it is the value."""
    value: str
    begun_by: str
    deltas: int

    @property
    def head(self) -> tuple[Any, ...]:
        """The columns before the text and the value."""
        return self[:14]


class Former(NamedTuple):
    """The row of a former state: its columns with the text and the value as deltas, what began it and what ended it."""

    entry: int
    kind: str
    key: str
    identity: str | None
    is_json: int
    attributes: str
    revision: int
    commit: int
    valid_from: int
    created_at: int
    updated_at: int
    expires_at: int | None
    actor: str | None
    heading: str | None
    text: Stored | None
    value: Stored
    begun_by: str
    ended_by: str
    ended_commit: int
    valid_to: int
    ended_actor: str | None

    @property
    def head(self) -> tuple[Any, ...]:
        """The columns before the text and the value."""
        return self[:14]

    @property
    def beginning(self) -> tuple[Any, ...]:
        """The columns up to what began the state."""
        return self[:17]

    @property
    def ending(self) -> tuple[Any, ...]:
        """The columns that say what ended the state."""
        return self[17:]


def columns(alias: str) -> str:
    return prefixed(COLUMNS, alias)


def prefixed(names: str, alias: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in names.split(", "))


def dump(value: JSON) -> str:
    return _ENCODER.encode(value)


def value_of(is_json: int, value: str) -> JSON:
    found: JSON = _read(value)[0] if is_json else value
    return found


def entry_of(namespace: Namespace, row: Sequence[Any]) -> Entry:
    """A live row, in the order of COLUMNS, or a former one whose text and value have been decoded."""
    try:
        return _entry_of(namespace, row)
    except (ValueError, TypeError, RecursionError) as error:  # only damage makes JSON that we wrote unreadable
        _, kind, key, _, _, _, revision, *_ = row
        raise damaged(namespace, kind, key, revision=revision) from error


def damaged(namespace: Namespace, kind: Any, key: Any, *, revision: Any = None) -> Corrupt:
    """The error for a row that is not what was written."""
    state = "" if revision is None else f", revision {revision},"
    return Corrupt(
        f"{kind} {str(key).replace(SEPARATOR, '/')}{state} of namespace {'/'.join(namespace)} is damaged in the book; "
        "restore a backup, or take what can still be read with `commonplace export --salvage`"
    )


def _entry_of(namespace: Namespace, row: Sequence[Any]) -> Entry:
    (id, kind, key, identity, is_json, attributes, revision, commit, _valid_from,
     created_at, updated_at, expires_at, actor, heading, text, value) = row[:16]  # fmt: skip
    return Entry(
        id=id,
        namespace=namespace,
        kind=kind,
        key=key,
        value=value_of(is_json, value),
        text=text if text is not None else "" if is_json else value,
        heading=heading,
        attributes=_read(attributes)[0],
        identity=identity,
        revision=revision,
        commit=commit,
        created_at=created_at,
        updated_at=updated_at,
        expires_at=expires_at,
        actor=actor,
    )


def labels(attributes: Mapping[str, JSON], names: Sequence[str]) -> set[tuple[str, str]]:
    """The indexed attributes as (name, value), for the values that are strings or lists of strings."""
    found = set()
    for name in names:
        value = attributes.get(name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, str):
                found.add((name, item))
    return found
