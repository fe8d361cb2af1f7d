"""Checksums of rows: what is read is what was written, or the row is named as damaged.

SQLite finds damage to the structure of its pages, not to what is in them. So each row that cannot be made again from
others has a CRC-32. That of an entry or a former state has two halves: the upper one is of everything but the text and
the value, so that a list need not read these; the lower one is of the text and the value. What is derived (labels,
passages, keywords, counts) has none: `verify` makes it again and compares.

A row without a checksum was written by a program from before they came. `fill` adds what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from commonplace.backends.states import COLUMNS, FORMER_COLUMNS, damaged, entry_of
from commonplace.checks import Namespace
from commonplace.entry import Entry
from commonplace.errors import Corrupt

LIVE = f"{COLUMNS}, begun_by, deltas, namespace, checksum"
FORMER = f"{FORMER_COLUMNS}, begun_by, namespace, ended_by, ended_commit, valid_to, ended_actor, checksum"
SHORT_BYTES = 3_000
"""A row up to this lies on one page. Of a longer one, the checksum lies behind the value, on the last of its pages."""

_BEFORE, _AFTER = 14, 16  # text and value are between these, in LIVE and in FORMER
_LIVE_HEAD = "\0".join(["%s"] * (len(LIVE.split(", ")) - 3))
_FORMER_HEAD = "\0".join(["%s"] * (len(FORMER.split(", ")) - 3))
_SHARED = (int, str, str, str | None, int, str, int, int, int, int, int, int | None, str | None, str | None)
_TYPES = {
    19: (*_SHARED, str | None, str, str, int, int),
    22: (*_SHARED, str | bytes | int | None, str | bytes | int, str, int, str, int, int, str | None),
}
_HALF = 0xFFFF_FFFF
_OFFSET = 1 << 63


def head_columns(columns: str, *, also_long: bool = False) -> str:
    """The columns of the upper half and the checksum.

    It is NULL for a long row, whose pages a list should not read; `also_long` reads them.
    """
    names = columns.split(", ")
    is_long = f"octet_length(value) + coalesce(octet_length(text), 0) > {SHORT_BYTES}"
    checksum = "checksum" if also_long else f"CASE WHEN {is_long} THEN NULL ELSE checksum END"
    return ", ".join([*names[:_BEFORE], *names[_AFTER:-1], checksum])


HEAD = head_columns(LIVE, also_long=True)


def _bytes(value: Any) -> bytes:
    return value.encode() if type(value) is str else value if type(value) is bytes else str(value).encode()


def _lower(text: Any, value: Any) -> int:
    low = crc32(_bytes(value))
    return low if text is None else crc32(_bytes(text), low)


def live_sum(row: Sequence[Any]) -> int:
    """Of a row in the order of LIVE, without its checksum."""
    head = crc32((_LIVE_HEAD % (*row[:_BEFORE], *row[_AFTER:19])).encode())
    return (head << 32 | _lower(row[14], row[15])) - _OFFSET


def former_sum(row: Sequence[Any]) -> int:
    """Of a row in the order of FORMER, without its checksum."""
    head = crc32((_FORMER_HEAD % (*row[:_BEFORE], *row[_AFTER:22])).encode())
    return (head << 32 | _lower(row[14], row[15])) - _OFFSET


def changed_sum(head: Sequence[Any], checksum: int | None) -> int | None:
    """The checksum of a live row whose head has changed, and whose text and value have not."""
    if checksum is None:
        return None
    return (crc32((_LIVE_HEAD % tuple(head)).encode()) << 32 | (checksum + _OFFSET) & _HALF) - _OFFSET


def kept_sum(*values: Any) -> int:
    """For SQL that turns live rows into former ones: a row of LIVE, then what of FORMER is not in it, in its order."""
    live, (text, value, *ending) = values[:20], values[20:]
    if live[19] is not None and live[19] != live_sum(live):
        raise damaged((f"number {live[18]}",), live[1], live[2])
    return former_sum((*live[:14], text, value, live[16], live[18], *ending))


def live_entry(namespace: Namespace, row: Sequence[Any]) -> Entry:
    """The entry of a row in the order of LIVE; `Corrupt` where it is not what was written."""
    check_live(namespace, row)
    return entry_of(namespace, row)


def check_live(namespace: Namespace, row: Sequence[Any]) -> None:
    if row[19] != live_sum(row) if row[19] is not None else not _has_right_types(row, 19):
        raise damaged(namespace, row[1], row[2])


def check_former(namespace: Namespace, row: Sequence[Any]) -> None:
    if row[22] != former_sum(row) if row[22] is not None else not _has_right_types(row, 22):
        raise damaged(namespace, row[1], row[2], revision=row[6])


def _has_right_types(row: Sequence[Any], width: int) -> bool:
    """Of a row without a checksum: what its readers rely on."""
    return all(isinstance(value, allowed) for value, allowed in zip(row[:width], _TYPES[width], strict=True))


def check_live_head(namespace: Namespace, row: Sequence[Any]) -> None:
    """Of a row of `head_columns(LIVE)`."""
    if row[-1] is not None and (row[-1] + _OFFSET) >> 32 != crc32((_LIVE_HEAD % tuple(row[:-1])).encode()):
        raise damaged(namespace, row[1], row[2])


def check_former_head(namespace: Namespace, row: Sequence[Any]) -> None:
    """Of a row of `head_columns(FORMER)`."""
    if row[-1] is not None and (row[-1] + _OFFSET) >> 32 != crc32((_FORMER_HEAD % tuple(row[:-1])).encode()):
        raise damaged(namespace, row[1], row[2], revision=row[6])


def is_whole_content(text: Any, value: Any, checksum: int | None) -> bool:
    return checksum is None or (checksum + _OFFSET) & _HALF == _lower(text, value)


# Other rows


def row_sum(*values: Any) -> int:
    """Of a short row: 4 bytes in the file."""
    return crc32("\0".join(map(str, values)).encode()) - (1 << 31)


def check_row(name: str, checksum: int | None, *values: Any) -> None:
    if checksum is not None and checksum != row_sum(*values):
        raise damaged_row(name)


def damaged_row(name: str) -> Corrupt:
    return Corrupt(
        f"{name} is damaged in the book; restore a backup, or take what can still be read with "
        "`commonplace export --salvage`"
    )


def damaged_vector() -> Corrupt:
    return Corrupt("a vector of this namespace is damaged in the book; `commonplace reindex` makes it again")


def vector_half(chunk: int, value: bytes) -> int:
    return crc32(value, chunk & _HALF)


def vector_sum(chunk: Sequence[int], value: bytes) -> int:
    """`chunk` is its id, start, stop, length and commit number."""
    return (crc32("\0".join(map(str, chunk)).encode()) << 32 | vector_half(chunk[0], value)) - _OFFSET


def is_whole_vector(chunk: Any, value: Any, checksum: int | None) -> bool:
    """Whether a vector is the one that was stored for a chunk; the chunk's own row is another matter."""
    return checksum is None or (type(value) is bytes and (checksum + _OFFSET) & _HALF == vector_half(chunk, value))
