"""How two texts differ: their common beginning and end, and the edit that makes one from the other."""

from __future__ import annotations

from typing import TypeAlias

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
