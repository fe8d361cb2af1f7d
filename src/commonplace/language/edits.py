"""How two texts differ: the edit that makes one from the other, and a difference in words for people.

A difference in words takes bounded time whatever the texts are: `Effort` counts the steps of all comparisons of a page,
and what would take more is shown as one text replaced by the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

Edit: TypeAlias = list[int | str]
"""How many characters to keep from the start, how many from the end, and the text between them."""

_BLOCK = 1 << 16
"""How many characters are compared at a time, so that a long text is never copied."""


def common_prefix(left: str, right: str) -> int:
    """Return the length of the common beginning of two texts."""
    most = min(len(left), len(right))
    for start in range(0, most, _BLOCK):
        end = min(start + _BLOCK, most)
        if left[start:end] != right[start:end]:
            return start + _within(left[start:end], right[start:end])
    return most


def common_suffix(left: str, right: str, most: int) -> int:
    """Return the length of the common end of two texts, at most `most`."""
    for done in range(0, most, _BLOCK):
        count = min(_BLOCK, most - done)
        ends = [text[len(text) - done - count : len(text) - done] for text in (left, right)]
        if ends[0] != ends[1]:
            return done + _within(ends[0][::-1], ends[1][::-1])
    return most


def _within(left: str, right: str) -> int:
    """The common beginning of two short texts that differ, by bisection: comparing slices is fast."""
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def edit_between(newer: str, older: str) -> Edit | None:
    """Return the edit that makes `older` from `newer`, or None if they have nothing in common."""
    head = common_prefix(newer, older)
    tail = common_suffix(newer, older, min(len(newer), len(older)) - head)
    return [head, tail, older[head : len(older) - tail]] if head or tail or not older else None


def apply_edit(newer: str, edit: object) -> str:
    """Return the older text. Raises ValueError if the edit does not fit."""
    if not isinstance(edit, list) or len(edit) != 3:
        raise ValueError("it must be a list of two numbers and a text")
    head, tail, middle = edit
    if type(head) is not int or type(tail) is not int or not isinstance(middle, str):
        raise ValueError("it must be a list of two numbers and a text")
    if head < 0 or tail < 0 or head + tail > len(newer):
        raise ValueError(f"{head} + {tail} characters are not in a text of {len(newer)}")
    return newer[:head] + middle + newer[len(newer) - tail :]


# In words


PieceKind: TypeAlias = Literal["same", "removed", "added", "left out"]

CONTEXT_CHARACTERS = 120
"""How much is shown around a change."""

LONGEST_PIECE = 2_000
"""A longer piece is shown without its middle."""

MOST_SHOWN = 40_000
"""How many characters of a difference are shown."""

_FAR = 20
_MOST_IN_WORDS = 40_000
_MOST_WORDS = 4_000
_MOST_IN_LINES = 2_000_000
_MOST_LINES = 20_000
_IN_NUMBERS = ".:"
_TOKEN = re.compile(r"\d+(?:[.:]\d+)+|\w+|\s+|[^\w\s]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a difference. `count` is how many characters are left out in its place."""

    kind: PieceKind
    text: str = ""
    count: int = 0


class Effort:
    """How many steps are left for comparisons. About ten million take a second."""

    def __init__(self, steps: int = 150_000) -> None:
        self.steps = steps


def word_diff(old: str, new: str, effort: Effort | None = None) -> list[Piece]:
    """The changed words of a text with a little of what surrounds them; an empty list if nothing was changed."""
    if old == new:
        return []
    head = _word_start(old, common_prefix(old, new))
    tail = common_suffix(old, new, min(len(old), len(new)) - head)
    tail = len(old) - _word_end(old, len(old) - tail)
    tail = min(tail, min(len(old), len(new)) - head)
    middle = _compared(old[head : len(old) - tail], new[head : len(new) - tail], effort or Effort())
    pieces = _joined([Piece("same", old[:head]), *middle, Piece("same", old[len(old) - tail :])])
    return _up_to(_shortened(pieces), MOST_SHOWN)


def _word_start(text: str, at: int) -> int:
    """Where the word begins that a place is in; the place itself if that is far."""
    start = at
    while start > 0 and at - start < CONTEXT_CHARACTERS and start < len(text) and _is_within(text, start):
        start -= 1
    return start


def _word_end(text: str, at: int) -> int:
    end = at
    while end < len(text) and end - at < CONTEXT_CHARACTERS and end > 0 and _is_within(text, end):
        end += 1
    return end


def _is_within(text: str, at: int) -> bool:
    """Whether a place is within a word, or within a number such as 0.8 or 10:30."""
    before, after = text[at - 1], text[at]
    if before in _IN_NUMBERS:
        return after.isdigit() and text[at - 2 : at - 1].isdigit()
    if after in _IN_NUMBERS:
        return before.isdigit() and text[at + 1 : at + 2].isdigit()
    return before.isalnum() and after.isalnum()


def _compared(old: str, new: str, effort: Effort) -> list[Piece]:
    """The whole of two texts as pieces, by words if they are short, else by lines and then by words."""
    if not old or not new:
        return _replaced(old, new)
    found = _by_words(old, new, effort)
    if found is None and len(old) + len(new) <= _MOST_IN_LINES and 0 < old.count("\n") + new.count("\n") <= _MOST_LINES:
        by_lines = _by_parts(_LINE.findall(old), _LINE.findall(new), effort)
        found = by_lines and list(_in_words(by_lines, effort))
    return found or _replaced(old, new)


def _by_words(old: str, new: str, effort: Effort) -> list[Piece] | None:
    if len(old) + len(new) > _MOST_IN_WORDS:
        return None
    words = _TOKEN.findall(old), _TOKEN.findall(new)
    if len(words[0]) + len(words[1]) > _MOST_WORDS:
        return None
    found = _by_parts(*words, effort)
    return found and _without_crumbs(found)


def _in_words(pieces: Sequence[Piece], effort: Effort) -> Iterator[Piece]:
    """Pieces that are whole lines, with lines that replace others compared by words."""
    for is_same, group in groupby(pieces, key=lambda piece: piece.kind == "same"):
        found = list(group)
        if is_same:
            yield from found
            continue
        old, new = ("".join(piece.text for piece in found if piece.kind == kind) for kind in ("removed", "added"))
        yield from (old and new and _by_words(old, new, effort)) or _replaced(old, new)


def _replaced(old: str, new: str) -> list[Piece]:
    return [piece for piece in (Piece("removed", old), Piece("added", new)) if piece.text]


def _by_parts(old: Sequence[str], new: Sequence[str], effort: Effort) -> list[Piece] | None:
    """A shortest difference of two lists of words or lines (Myers 1986); None if it would take too long."""
    runs = _equal_runs(old, new, effort)
    if runs is None:
        return None
    pieces: list[Piece] = []
    x = y = 0
    for start, other, length in (*runs, (len(old), len(new), 0)):
        pieces += _replaced("".join(old[x:start]), "".join(new[y:other]))
        x, y = start + length, other + length
        if length:
            pieces.append(Piece("same", "".join(old[start:x])))
    return pieces


def _equal_runs(old: Sequence[str], new: Sequence[str], effort: Effort) -> list[tuple[int, int, int]] | None:
    ends = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(len(old) + len(new) + 1):
        trace.append(dict(ends))
        effort.steps -= edits
        for diagonal in range(-edits, edits + 1, 2):
            is_down = diagonal == -edits or (diagonal != edits and ends[diagonal - 1] < ends[diagonal + 1])
            x = start = ends[diagonal + 1] if is_down else ends[diagonal - 1] + 1
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            ends[diagonal] = x
            effort.steps -= 2 + x - start
            if x >= len(old) and y >= len(new):
                return _backtracked(trace, len(old), len(new))
        if effort.steps < 0:
            return None
    raise AssertionError("two lists differ by no more than all of their parts")


def _backtracked(trace: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int, int]]:
    runs: list[tuple[int, int, int]] = []
    for edits in range(len(trace) - 1, -1, -1):
        ends, diagonal = trace[edits], x - y
        is_down = diagonal == -edits or (diagonal != edits and ends[diagonal - 1] < ends[diagonal + 1])
        before = diagonal + 1 if is_down else diagonal - 1
        from_x = ends[before] if edits else 0
        start = 0 if not edits else from_x if is_down else from_x + 1
        if x > start:
            runs.append((start, start - diagonal, x - start))
        x, y = from_x, from_x - before
    return runs[::-1]


def _without_crumbs(pieces: Sequence[Piece]) -> list[Piece]:
    """Equal pieces of nothing but spaces and signs between two changes belong to the changes: they only distract."""
    found: list[Piece] = []
    for at, piece in enumerate(pieces):
        is_between = piece.kind == "same" and 0 < at < len(pieces) - 1
        is_crumb = is_between and len(piece.text) < 4 and not any(one.isalnum() or one == "\n" for one in piece.text)
        found += _replaced(piece.text, piece.text) if is_crumb else [piece]
    return found


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours of the same kind as one piece, and in each change what was removed before what was added."""
    found: list[Piece] = []
    for is_same, group in groupby(pieces, key=lambda piece: piece.kind == "same"):
        texts: dict[PieceKind, str] = {"same": ""} if is_same else {"removed": "", "added": ""}
        for piece in group:
            texts[piece.kind] += piece.text
        found += [Piece(kind, text) for kind, text in texts.items() if text]
    return found


def _shortened(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Only what surrounds the changes, and long changes without their middle."""
    for at, piece in enumerate(pieces):
        if piece.kind != "same":
            yield from _cut(piece, LONGEST_PIECE // 2, LONGEST_PIECE // 2)
            continue
        yield from _cut(piece, CONTEXT_CHARACTERS if at else 0, CONTEXT_CHARACTERS if at < len(pieces) - 1 else 0)


def _cut(piece: Piece, head: int, tail: int) -> Iterator[Piece]:
    text = piece.text
    if len(text) <= head + tail + CONTEXT_CHARACTERS // 2:
        yield piece
        return
    end, start = _space_before(text, head), _space_after(text, len(text) - tail)
    if head:
        yield Piece(piece.kind, text[:end])
    yield Piece("left out", count=start - end)
    if tail:
        yield Piece(piece.kind, text[start:])


def _space_before(text: str, at: int) -> int:
    """A place between words, not far before another; that one itself if there is none."""
    return next((place for place in range(at, max(at - _FAR, 0), -1) if text[place].isspace()), at)


def _space_after(text: str, at: int) -> int:
    return next((place + 1 for place in range(at, min(at + _FAR, len(text))) if text[place].isspace()), at)


def _up_to(pieces: Iterator[Piece], most: int) -> list[Piece]:
    """The first pieces, and how much is left out after them."""
    found: list[Piece] = []
    left_out = 0
    for piece in pieces:
        most -= len(piece.text)
        if most >= 0:
            found.append(piece)
        else:
            left_out += len(piece.text) + piece.count
    return [*found, Piece("left out", count=left_out)] if left_out else found
