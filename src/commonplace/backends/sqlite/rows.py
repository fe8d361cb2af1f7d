"""Rows and entries: the columns that live and former states share, and the way between the two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from commonplace.backends.sqlite import deltas
from commonplace.backends.sqlite.connection import Connection
from commonplace.checks import JSON, Namespace
from commonplace.entry import Entry

COLUMNS = (
    "id, kind, key, identity, is_json, attributes, revision, commit_number, valid_from, "
    "created_at, updated_at, expires_at, actor, heading, text, value"
)
FORMER_COLUMNS = COLUMNS.replace("id, kind", "entry, kind", 1)


def columns(alias: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in COLUMNS.split(", "))


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=dict)


def dump(value: JSON) -> str:
    return _ENCODER.encode(value)


def entry_of(namespace: Namespace, row: Sequence[Any]) -> Entry:
    """A live row, in the order of COLUMNS, or a former one whose texts have been decoded."""
    (id, kind, key, identity, is_json, attributes, revision, commit, _valid_from) = row[:9]
    (created_at, updated_at, expires_at, actor, heading, text, value) = row[9:16]
    return Entry(
        id=id,
        namespace=namespace,
        kind=kind,
        key=key,
        value=json.loads(value) if is_json else value,
        text=text if text is not None else "" if is_json else value,
        heading=heading,
        attributes=json.loads(attributes),
        identity=identity,
        revision=revision,
        commit=commit,
        created_at=created_at,
        updated_at=updated_at,
        expires_at=expires_at,
        actor=actor,
    )


def former_entry(connection: Connection, namespace: Namespace, row: Sequence[Any]) -> Entry:
    """A former row, in the order of FORMER_COLUMNS, with its texts made from the states after it."""
    text, value = decode_former(connection, row[0], row[6])
    return entry_of(namespace, (*row[:14], text, value))


def decode_former(connection: Connection, entry_id: int, revision: int) -> tuple[str | None, str]:
    """The stored `text` and `value` of a former state."""
    chain: list[tuple[Any, Any]] = []
    for text, value in connection.execute(
        "SELECT text, value FROM history WHERE entry = ? AND revision >= ? ORDER BY revision",
        (entry_id, revision),
    ):
        chain.append((text, value))
        if deltas.is_whole(value) and (text is None or deltas.is_whole(text)):
            break
    chain.reverse()
    live = connection.execute("SELECT text, value FROM entry WHERE id = ?", (entry_id,)).fetchall()
    newest_text, newest_value = live[0] if live else (None, None)
    value = deltas.decode_last(newest_value, [former for _, former in chain])
    if chain[-1][0] is None:
        return None, value
    # A text that was replaced by a state without one of its own was kept whole (see Ending in transaction.py).
    return deltas.decode_last(newest_text, [former for former, _ in chain if former is not None]), value


def labels(attributes: Mapping[str, JSON], names: Sequence[str]) -> set[tuple[str, str]]:
    """The indexed attributes as (name, value), for the values that are strings or lists of strings."""
    found = set()
    for name in names:
        value = attributes.get(name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, str):
                found.add((name, item))
    return found
