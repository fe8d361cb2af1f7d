"""Deltas of former texts as bytes: `n` and a number, `t` and a text, or a compressed form as deltas.py makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from commonplace.backends import deltas
from commonplace.backends.deltas import Stored
from commonplace.backends.postgres.connection import Session
from commonplace.backends.states import HEAD, NAMES, Former, damaged, entry_of
from commonplace.checks import Namespace
from commonplace.entry import Entry

SAME = b"n-1"


def pack(stored: Stored) -> bytes:
    if isinstance(stored, int):
        return b"n%d" % stored
    return b"t" + stored.encode() if isinstance(stored, str) else stored


def unpack(kept: bytes) -> Stored:
    mark = kept[:1]
    if mark == b"n":
        return int(kept[1:])
    return kept[1:].decode() if mark == b"t" else kept


def former_of(columns: Sequence[Any]) -> Former:
    """A former row with its text and value as deltas."""
    row = Former._make(columns)
    text, value = cast("bytes | None", row.text), cast(bytes, row.value)
    return row._replace(text=None if text is None else unpack(text), value=unpack(value))


def former_entries(session: Session, tenant: str, namespace: Namespace, rows: list[tuple[Any, ...]]) -> list[Entry]:
    """Former rows, in the order of FORMER_COLUMNS, with their texts made from the states after them."""
    states = [(entry_id, revision) for entry_id, _, _, _, _, _, revision, *_ in rows]
    try:
        contents = decode(session, tenant, states)
    except deltas.DAMAGE as error:
        if len(rows) > 1:  # which of them it is
            return [entry for row in rows for entry in former_entries(session, tenant, namespace, [row])]
        [(kind, key)] = [row[NAMES] for row in rows]
        raise damaged(namespace, kind, key, revision=states[0][1]) from error
    return [entry_of(namespace, (*row[HEAD], *contents[state])) for row, state in zip(rows, states, strict=True)]


def decode(
    session: Session, tenant: str, states: list[tuple[int, int]]
) -> dict[tuple[int, int], tuple[str | None, str]]:
    """The stored `text` and `value` of former states, given by entry and revision."""
    if not states:
        return {}
    oldest: dict[int, int] = {}
    for entry_id, revision in states:
        oldest[entry_id] = min(revision, oldest.get(entry_id, revision))
    chains: dict[int, list[tuple[int, bytes | None, bytes]]] = {}
    for entry_id, revision, text, value in session.rows(
        "SELECT h.entry, h.revision, h.text, h.value FROM unnest(%s::bigint[], %s::bigint[]) AS s (entry, revision)"
        " JOIN history AS h ON h.tenant = %s AND h.entry = s.entry AND h.revision >= s.revision"
        " ORDER BY h.entry, h.revision",
        (list(oldest), list(oldest.values()), tenant),
    ):
        chains.setdefault(entry_id, []).append((revision, text, value))
    live = {
        entry_id: (text, value)
        for entry_id, text, value in session.rows(
            "SELECT id, text, value FROM entry WHERE tenant = %s AND id = ANY(%s)", (tenant, list(oldest))
        )
    }
    return {state: _decode_one(chains[state[0]], live.get(state[0], (None, None)), state[1]) for state in states}


def _decode_one(
    states: list[tuple[int, bytes | None, bytes]], live: tuple[str | None, str | None], revision: int
) -> tuple[str | None, str]:
    chain: list[tuple[Stored | None, Stored]] = []
    for number, text, value in states:
        if number < revision:
            continue
        chain.append((None if text is None else unpack(text), unpack(value)))
        if deltas.is_whole(chain[-1][1]) and (chain[-1][0] is None or deltas.is_whole(chain[-1][0])):
            break
    chain.reverse()
    decoded = deltas.decode_last(live[1], [value for _, value in chain])
    if chain[-1][0] is None:
        return None, decoded
    # A text that was replaced by a state without one of its own was kept whole.
    return deltas.decode_last(live[0], [text for text, _ in chain if text is not None]), decoded
