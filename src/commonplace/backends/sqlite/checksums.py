"""Checksums of rows, so that damaged content is reported and never returned.

SQLite detects damage to the structure of its pages, but not to their content. So each row that cannot be rebuilt from
others has a CRC-32. The checksum of an entry or a former state has two halves. The upper half covers everything except
the text and the value, so that a listing need not read these; the lower half covers the text and the value. Derived
rows (labels, passages, keywords, counts) have no checksum: `verify` rebuilds and compares them. A row without a
checksum was written by a version that had none. `fill` adds the missing ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from commonplace.backends.rows import (
    COLUMNS,
    CONTENT,
    FORMER_COLUMNS,
    HEAD,
    LIVE_WIDTH,
    NAMES,
    Former,
    Live,
    damaged,
    entry_of,
)
from commonplace.checks import Namespace
from commonplace.entry import Entry
from commonplace.errors import Corrupt

LIVE = f"{COLUMNS}, begun_by, deltas, namespace, checksum"
FORMER = f"{FORMER_COLUMNS}, begun_by, namespace, ended_by, ended_commit, valid_to, ended_actor, checksum"
SHORT_BYTES = 3_000
"""A row up to this size is on one page. In a longer row, the checksum comes after the value, on its last page."""

_LIVE_REST, _FORMER_REST = slice(16, 19), slice(16, 22)
"""The columns between the content and the checksum."""
_LIVE_SUMMED = "\0".join(["%s"] * (len(LIVE.split(", ")) - 3))
_FORMER_SUMMED = "\0".join(["%s"] * (len(FORMER.split(", ")) - 3))
_SHARED = (int, str, str, str | None, int, str, int, int, int, int, int, int | None, str | None, str | None)
_TYPES = {
    19: (*_SHARED, str | None, str, str, int, int),
    22: (*_SHARED, str | bytes | int | None, str | bytes | int, str, int, str, int, int, str | None),
}
_NAMESPACE = {len(names): names.index("namespace") for names in (LIVE.split(", "), FORMER.split(", "))}
"""The place of the namespace in a row, by the row's length."""
_HALF = 0xFFFF_FFFF
_OFFSET = 1 << 63


def live_row(row: Sequence[Any]) -> Live:
    """A row of LIVE, or of `head_columns(LIVE)`, where the text and the value are None."""
    return Live._make(row[:LIVE_WIDTH])


def former_row(row: Sequence[Any]) -> Former:
    """A row of FORMER, or of `head_columns(FORMER)`, where the text and the value are None."""
    *beginning, _namespace, ended_by, ended_commit, valid_to, ended_actor, _checksum = row
    return Former._make((*beginning, ended_by, ended_commit, valid_to, ended_actor))


def namespace_number(row: Sequence[Any]) -> int:
    """The number of the namespace of a row of LIVE or FORMER."""
    number: int = row[_NAMESPACE[len(row)]]
    return number


def head_columns(columns: str, *, also_long: bool = False) -> str:
    """The columns of a row with NULL for its text and value. The checksum of a long row is NULL too, so that a listing
    does not read its pages; with `also_long` it is read.
    """
    names = columns.split(", ")
    is_long = f"octet_length(value) + coalesce(octet_length(text), 0) > {SHORT_BYTES}"
    checksum = "checksum" if also_long else f"CASE WHEN {is_long} THEN NULL ELSE checksum END"
    return ", ".join([*names[HEAD], "NULL", "NULL", *names[CONTENT.stop : -1], checksum])


LIVE_HEAD = head_columns(LIVE)
LIVE_HEAD_SUMMED = head_columns(LIVE, also_long=True)
FORMER_HEAD = head_columns(FORMER)


def _bytes(value: Any) -> bytes:
    return value.encode() if type(value) is str else value if type(value) is bytes else str(value).encode()


def _lower(text: Any, value: Any) -> int:
    low = crc32(_bytes(value))
    return low if text is None else crc32(_bytes(text), low)


def _live_upper(row: Sequence[Any]) -> int:
    return crc32((_LIVE_SUMMED % (*row[HEAD], *row[_LIVE_REST])).encode())


def _former_upper(row: Sequence[Any]) -> int:
    return crc32((_FORMER_SUMMED % (*row[HEAD], *row[_FORMER_REST])).encode())


def live_sum(row: Sequence[Any]) -> int:
    """The checksum of a row in the order of LIVE, which may include its old one."""
    return (_live_upper(row) << 32 | _lower(*row[CONTENT])) - _OFFSET


def former_sum(row: Sequence[Any]) -> int:
    """The checksum of a row in the order of FORMER, which may include its old one."""
    return (_former_upper(row) << 32 | _lower(*row[CONTENT])) - _OFFSET


def changed_sum(row: Live, namespace: int, former: int | None) -> int | None:
    """The new checksum of a live row, from its old one: its head has changed, its text and value have not."""
    if former is None:
        return None
    return (_live_upper((*row, namespace)) << 32 | (former + _OFFSET) & _HALF) - _OFFSET


def kept_sum(*values: Any) -> int:
    """A function for SQL that turns live rows into former ones. It takes a row of LIVE, then the columns of FORMER that
    LIVE does not have, in order.
    """
    row, (text, value, *ending) = values[:20], values[20:]
    begun_by, _deltas, namespace, checksum = row[CONTENT.stop :]
    if checksum is not None and checksum != live_sum(row):
        raise damaged((f"number {namespace}",), *row[NAMES])
    return former_sum((*row[HEAD], text, value, begun_by, namespace, *ending))


def live_entry(namespace: Namespace, row: Sequence[Any]) -> Entry:
    """The entry of a row in the order of LIVE; `Corrupt` if it is not what was written."""
    check_live(namespace, row)
    return entry_of(namespace, row)


def check_live(namespace: Namespace, row: Sequence[Any]) -> None:
    checksum = row[-1]
    if checksum != live_sum(row) if checksum is not None else not _has_right_types(row[:-1]):
        raise _damaged(namespace, row)


def check_former(namespace: Namespace, row: Sequence[Any]) -> None:
    checksum = row[-1]
    if checksum != former_sum(row) if checksum is not None else not _has_right_types(row[:-1]):
        raise _damaged(namespace, row)


def _damaged(namespace: Namespace, row: Sequence[Any]) -> Corrupt:
    """A live row is named without its revision."""
    _, kind, key, _, _, _, revision, *_ = row
    return damaged(namespace, kind, key, revision=None if len(row) == LIVE_WIDTH + 2 else revision)


def _has_right_types(row: Sequence[Any]) -> bool:
    """Check what readers rely on in a row without a checksum."""
    return all(isinstance(value, allowed) for value, allowed in zip(row, _TYPES[len(row)], strict=True))


def live_head(namespace: Namespace, row: Sequence[Any]) -> Live:
    """A row of `head_columns(LIVE)`, checked."""
    checksum = row[-1]
    if checksum is not None and (checksum + _OFFSET) >> 32 != _live_upper(row):
        raise _damaged(namespace, row)
    return live_row(row)


def former_head(namespace: Namespace, row: Sequence[Any]) -> Former:
    """A row of `head_columns(FORMER)`, checked."""
    checksum = row[-1]
    if checksum is not None and (checksum + _OFFSET) >> 32 != _former_upper(row):
        raise _damaged(namespace, row)
    return former_row(row)


def is_whole_content(text: Any, value: Any, checksum: int | None) -> bool:
    if checksum is None:
        return True
    low = crc32(_bytes(value))  # as in `_lower`, without a call: a read of an old state checks thousands
    return (checksum + _OFFSET) & _HALF == (low if text is None else crc32(_bytes(text), low))


# Other rows


def row_sum(*values: Any) -> int:
    """The checksum of a short row: 4 bytes in the file."""
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
    return Corrupt("a vector of this namespace is damaged in the book; `commonplace reindex` rebuilds it")


def vector_half(chunk: int, value: bytes) -> int:
    return crc32(value, chunk & _HALF)


def vector_sum(chunk: Sequence[int], value: bytes) -> int:
    """`chunk` is its id, start, stop, length and commit number."""
    return (crc32("\0".join(map(str, chunk)).encode()) << 32 | vector_half(chunk[0], value)) - _OFFSET


def is_whole_vector(chunk: Any, value: Any, checksum: int | None) -> bool:
    """Whether a vector is the one that was stored for a chunk. The chunk's own row is not checked."""
    return checksum is None or (type(value) is bytes and (checksum + _OFFSET) & _HALF == vector_half(chunk, value))
