"""How a former text is stored: as a delta of the text that replaced it.

-1 the same text; n >= 0 its first n characters (an append); a string: the whole text; bytes: `z` + the whole,
compressed, or `s` + a splice: what was between a common beginning and a common end, compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import TypeAlias

from commonplace.language.edits import common_prefix, common_suffix

Stored: TypeAlias = int | str | bytes

MAX_DELTAS = 32
"""After this many splices in a row the whole text is stored, which bounds the work of a read."""

DAMAGE = (ValueError, TypeError, AssertionError, IndexError, struct.error, zlib.error, MemoryError, OverflowError)
"""What decoding raises if a delta, or a text that it depends on, is damaged."""

_COMPRESS_FROM = 200
_SPLICE = struct.Struct("<cII")


def whole(text: str) -> str | bytes:
    if len(text) < _COMPRESS_FROM:
        return text
    packed = b"z" + zlib.compress(text.encode(), 6)
    return packed if len(packed) < len(text) else text


def encode(old: str, new: str, *, allow_splice: bool) -> Stored:
    """The delta to store for `old` when `new` replaces it."""
    if new.startswith(old):
        return -1 if len(new) == len(old) else len(old)
    if not allow_splice:
        return whole(old)
    head = common_prefix(old, new)
    tail = common_suffix(old, new, min(len(old), len(new)) - head)
    middle = old[head : len(old) - tail]
    splice = _SPLICE.pack(b"s", head, tail) + zlib.compress(middle.encode(), 6)
    kept = whole(old)
    return splice if len(splice) < len(kept) else kept


def is_splice(stored: Stored) -> bool:
    return isinstance(stored, bytes) and stored[:1] == b"s"


def is_whole(stored: Stored) -> bool:
    return not isinstance(stored, int) and not is_splice(stored)


def decode_last(newest: str | None, chain: Iterable[Stored]) -> str:
    """The oldest text of a chain of deltas, given newest first; `newest` is None if the first one is a whole text."""
    text = newest
    cut: int | None = None
    for stored in chain:
        if isinstance(stored, int):
            cut = cut if stored < 0 else stored
        elif is_whole(stored):
            text, cut = _unpack(stored), None
        else:
            assert text is not None
            assert isinstance(stored, bytes)
            base = text if cut is None else text[:cut]
            _, head, tail = _SPLICE.unpack_from(stored)
            middle = zlib.decompress(stored[_SPLICE.size :]).decode()
            text, cut = base[:head] + middle + (base[-tail:] if tail else ""), None
    assert text is not None, "a chain of deltas has no text to begin with"
    return text if cut is None else text[:cut]


def _unpack(stored: str | bytes) -> str:
    return stored if isinstance(stored, str) else zlib.decompress(stored[1:]).decode()


def kept_of(
    text: str | None, value: str, new_text: str | None, new_value: str | None, in_a_row: int
) -> tuple[Stored | None, Stored, int]:
    """A state's text and value as deltas of those that replace them, and how many splices in a row that makes.

    Without a new value, the state was deleted and is stored whole.
    """
    allow_splice = in_a_row < MAX_DELTAS
    kept_value = whole(value) if new_value is None else encode(value, new_value, allow_splice=allow_splice)
    kept_text: Stored | None = None
    if text is not None:
        kept_text = whole(text) if new_text is None else encode(text, new_text, allow_splice=allow_splice)
    if is_splice(kept_value) or (kept_text is not None and is_splice(kept_text)):
        return kept_text, kept_value, in_a_row + 1
    return kept_text, kept_value, 0 if is_whole(kept_value) else in_a_row
