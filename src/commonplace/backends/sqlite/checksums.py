"""Checksums of rows, so that damaged content is reported and never returned.

SQLite detects damage to the structure of its pages, but not to their content. So each row that cannot be rebuilt from
others has a CRC-32. The checksum of an entry or a former state has two halves. The upper half covers everything except
the text and the value, so that a listing need not read these; the lower half covers the text and the value. Derived
rows (labels, passages, keywords, counts) have no checksum: `verify` rebuilds and compares them. A row without a
checksum was written by a version that had none. `fill` adds the missing ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
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
    dump,
    entry_of,
)
from commonplace.checks import Namespace
from commonplace.entry import SEPARATOR, Entry
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
    text = "own_text" if columns == LIVE else "text"  # computing `text` would read the value
    is_long = f"octet_length(value) + coalesce(octet_length({text}), 0) > {SHORT_BYTES}"
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


def next_sum(row: Sequence[Any], former: Sequence[Any]) -> int:
    """The checksum of a row that replaces another one, given in the order of LIVE and checked.

    After an append only what was added is summed.
    """
    (text, value), (former_text, former_value), checksum = row[CONTENT], former[CONTENT], former[-1]
    if checksum is None or not text is former_text is None or not value.startswith(former_value):
        return live_sum(row)
    low = crc32(value[len(former_value) :].encode(), (checksum + _OFFSET) & _HALF)
    return (_live_upper(row) << 32 | low) - _OFFSET


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


# The columns of live and former states as they are written: what the other columns say is left out. The tables have a
# computed column (`text`, `attributes`, …) for each of these columns (`own_text`, `own_attributes`, …), and all
# statements that read use it. Migration 007 has the expressions that undo what is done here. An empty BLOB is the usual
# value; texts and numbers are as given, so rows from before that step are read in the same way.

RECORD, FILE = "record", "file"

_OWN = ("identity", "attributes", "valid_from", "updated_at", "heading", "text", "begun_by")
_OWN_FORMER = ("identity", "attributes", "valid_from", "updated_at", "heading", "begun_by", "ended_by")


def _stored(columns: str, own: Sequence[str]) -> str:
    return ", ".join(f"own_{name}" if name in own else name for name in columns.split(", "))


STORED_LIVE = f"{_stored(LIVE, _OWN)}, text_place"
"""The columns of a live row that are written, in the order of `stored_live`."""
STORED_FORMER = _stored(FORMER, _OWN_FORMER)
"""The columns of a former row that are written, in the order of `stored_former`."""

KIND_CODES = {RECORD: 0, "message": 1, FILE: 2, "directory": 3, "thread": 4, "item": 5}
"""The column `kind_code` for each of the usual kinds. For others it is the kind."""

REMEMBERED = 256
"""How many attributes and identities are remembered in their short form: many entries have the same attributes, and a
new entry's identity is looked for before it is written.
"""
_HASH, _UUID = 64, 36
"""The lengths of the identities that are stored as bytes."""
_FOUND_BY = 16
"""How many bytes of a record's hash its index has."""
_LONGEST_PLACED = 1 << 24
_USUAL = b""
_ACTIONS: dict[str, str | bytes] = {"created": _USUAL, "updated": b"u"}

# Frequent parts of attributes, each stored as one control character. JSON has none, since it escapes them.
_TYPE, _SOURCE, _TAGS, _TAG, _CONFIDENCE, _NO_TAGS = "\x01", "\x02", "\x03", "\x04", "\x05", "\x06"
_PARTS: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    RECORD: (
        _TYPE,
        '{"type":"',
        (
            (_SOURCE, '","source":"'),
            (_NO_TAGS, '","tags":[],"confidence":'),
            (_TAGS, '","tags":["'),
            (_CONFIDENCE, '"],"confidence":'),
            (_TAG, '","'),
        ),
    ),
    "message": ("\x07", '{"role":"', (("\x08", '","resourceId":"'), ("\x0e", '","threadId":"'))),
    FILE: ("\x0f", '{"size":', (("\x10", ',"lines":'),)),
}
"""For each kind, what its attributes begin with and the parts that follow, each after the character for it."""
_NONE = ("", "", ())
_TEXT = "[^\x00-\x1f]*"
_LISTED = f"{_TAGS}(?P<tags>{_TEXT}(?:{_TAG}{_TEXT})*){_CONFIDENCE}"
_HEADED = re.compile(f"(?P<type>{_TEXT}){_SOURCE}{_TEXT}(?:{_LISTED}|{_NO_TAGS})")


def stored_live(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row of LIVE as it is written. A text that is a string in the JSON of the value is stored as its place there."""
    text, value, begun_by, *rest = row[CONTENT.start :]
    place = None if text is None else _place_of(text, value)
    own_text = text if place is None else None
    return (*_stored_head(row), own_text, value, _ACTIONS.get(begun_by, begun_by), *rest, place)


def stored_former(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row of FORMER as it is written."""
    text, value, begun_by, namespace, ended_by, *rest = row[CONTENT.start :]
    actions = _ACTIONS.get(begun_by, begun_by), namespace, _ACTIONS.get(ended_by, ended_by)
    return (*_stored_head(row), text, value, *actions, *rest)


def _stored_head(row: Sequence[Any]) -> tuple[Any, ...]:
    """The columns before the content, which live and former rows have alike."""
    (id, kind, key, identity, is_json, attributes, revision, commit, valid_from, created_at,
     updated_at, expires_at, actor, heading) = row[HEAD]  # fmt: skip
    packed, words = _packed_attributes(kind, attributes)
    if heading is not None and heading == (key.replace(SEPARATOR, "/")[1:] if kind == FILE else words):
        heading = _USUAL
    return (
        id, kind, key, None if identity is None else _packed_identity(identity), is_json, packed, revision, commit,
        _USUAL if valid_from == updated_at else valid_from, created_at,
        _USUAL if updated_at == created_at else updated_at, expires_at, actor, heading,
    )  # fmt: skip


def identity_key(kind: str, identity: str) -> str | bytes:
    """The column `identity_key` of the entry with an identity. Others may have the same, if that is a record's."""
    packed = _packed_identity(identity)
    return packed[:_FOUND_BY] if kind == RECORD and isinstance(packed, bytes) else packed


@lru_cache(maxsize=REMEMBERED)
def _packed_identity(identity: str) -> str | bytes:
    """The bytes of a hash or a UUID, or the text itself."""
    size = len(identity)
    if size not in (_HASH, _UUID):
        return identity
    try:
        packed = bytes.fromhex(identity if size == _HASH else identity.replace("-", ""))
    except ValueError:
        return identity
    digits = packed.hex()
    if size == _UUID:
        digits = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return packed if digits == identity else identity


@lru_cache(maxsize=REMEMBERED)
def _packed_attributes(kind: str, attributes: str) -> tuple[str, str | None]:
    """Attributes with a control character for each frequent part, and the words of a record's type and tags."""
    first, beginning, parts = _PARTS.get(kind, _NONE)
    if not attributes.startswith(beginning):
        return attributes, None
    rest = attributes[len(beginning) :]
    for mark, part in parts:
        rest = rest.replace(part, mark)
    found = _HEADED.match(rest) if first == _TYPE else None
    if found is None or (found["tags"] is None and _TAGS in rest):  # SQL looks for the first of each mark
        return first + rest, None
    return first + rest, found["type"] + ("" if found["tags"] is None else f" {found['tags'].replace(_TAG, ' ')}")


def _place_of(text: str, value: str) -> int | None:
    """Where SQL finds a text in JSON: the first character, from 1 on, and how many. It is negative for the whole string
    with its quotes, which has escapes.
    """
    string = dump(text)
    start = value.find(string) + 1
    if not start or not 2 < len(string) < _LONGEST_PLACED:
        return None
    return -(start << 24 | len(string)) if "\\" in string else start + 1 << 24 | len(text)
