"""Former rows: their texts are deltas, decoded from the states after them; each of these is checked on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.backends import deltas
from commonplace.backends.sqlite.checksums import check_former, is_whole_content
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.states import damaged, entry_of
from commonplace.checks import Namespace
from commonplace.entry import Entry


def former_entry(connection: Connection, namespace: Namespace, row: Sequence[Any]) -> Entry:
    """A former row, in the order of FORMER, with its texts made from the states after it."""
    check_former(namespace, row)
    try:
        text, value = decode_former(connection, row[0], row[6])
    except deltas.DAMAGE as error:
        raise damaged(namespace, row[1], row[2], revision=row[6]) from error
    return entry_of(namespace, (*row[:14], text, value))


def decode_former(connection: Connection, entry_id: int, revision: int) -> tuple[str | None, str]:
    """The stored `text` and `value` of a former state; a damaged state after it raises one of deltas.DAMAGE."""
    chain: list[tuple[Any, Any]] = []
    for text, value, checksum in connection.execute(
        "SELECT text, value, checksum FROM history WHERE entry = ? AND revision >= ? ORDER BY revision",
        (entry_id, revision),
    ):
        check_content(text, value, checksum)
        chain.append((text, value))
        if deltas.is_whole(value) and (text is None or deltas.is_whole(text)):
            break
    chain.reverse()
    newest_text = newest_value = None
    if not chain or not deltas.is_whole(chain[0][1]) or (chain[0][0] is not None and not deltas.is_whole(chain[0][0])):
        for newest_text, newest_value, checksum in connection.execute(
            "SELECT text, value, checksum FROM entry WHERE id = ?", (entry_id,)
        ).fetchall():
            check_content(newest_text, newest_value, checksum)
    value = deltas.decode_last(newest_value, [former for _, former in chain])
    if chain[-1][0] is None:
        return None, value
    # A text that was replaced by a state without one of its own was kept whole (see Ending in transaction.py).
    return deltas.decode_last(newest_text, [former for former, _ in chain if former is not None]), value


def check_content(text: Any, value: Any, checksum: int | None) -> None:
    if not is_whole_content(text, value, checksum):
        raise ValueError("a text that this state is made from is not what was written")
