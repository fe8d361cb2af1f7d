"""How a text is told by another one: what both begin and end with, and what stands between."""

from __future__ import annotations

from typing import TypeAlias

from commonplace.language.comparing import common_prefix, common_suffix

Edit: TypeAlias = list[int | str]
"""How many characters are kept from the beginning, how many from the end, and the text between them."""


def edit_between(newer: str, older: str) -> Edit | None:
    """What makes `older` from `newer`; None where they share nothing."""
    head = common_prefix(newer, older)
    tail = common_suffix(newer, older, min(len(newer), len(older)) - head)
    return [head, tail, older[head : len(older) - tail]] if head or tail or not older else None


def apply_edit(newer: str, edit: object) -> str:
    """The older text; ValueError where the edit cannot be one of this text."""
    if not isinstance(edit, list) or len(edit) != 3:
        raise ValueError("it must be a list of two numbers and a text")
    head, tail, middle = edit
    if type(head) is not int or type(tail) is not int or not isinstance(middle, str):
        raise ValueError("it must be a list of two numbers and a text")
    if head < 0 or tail < 0 or head + tail > len(newer):
        raise ValueError(f"{head} + {tail} characters are not in a text of {len(newer)}")
    return newer[:head] + middle + newer[len(newer) - tail :]
