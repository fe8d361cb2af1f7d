"""Where a text may be cut without parting what a reader sees as one character."""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def place_to_cut(text: str, earliest: int, position: int) -> int:
    """The nearest place from `position` back to `earliest` that parts no letter from its accents."""
    return next((place for place in range(position, earliest - 1, -1) if may_cut(text, place)), position)


def may_cut(text: str, place: int) -> bool:
    """Whether the characters before and after `place` are seen as two."""
    return not 0 < place < len(text) or not (_joins(text[place]) or text[place - 1] == _JOINER)


def _joins(character: str) -> bool:
    # Variation selectors are marks, too.
    is_mark = unicodedata.category(character).startswith("M")
    return is_mark or character == _JOINER or ord(character) in _SKIN_TONES
