"""Former rows: their texts are deltas, decoded from the states after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.backends import deltas
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.states import entry_of
from commonplace.checks import Namespace
from commonplace.entry import Entry


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
