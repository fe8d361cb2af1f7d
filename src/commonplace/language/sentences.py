"""A passage in pieces of about a sentence, so that what it says in passing can be weighed as well.

A label before a colon at its beginning, such as a speaker's name, is said again before each piece: `Ana: yes` is
about Ana, and so is her next sentence.
"""

from __future__ import annotations

import re
from functools import cache

PIECE = 120  # characters: short sentences are taken together up to this, a longer one stays whole

_END = r"(?:[.!?…]+[\"'”’)\]]*\s|[。！？｡।॥]|\n)\s*"
_LABEL = r"[^\W\d_][\w .'’-]{0,39}: "
_compiled = cache(re.compile)  # when first needed


def pieces(passage: str) -> list[str]:
    """The sentences of a passage in their order, each with the passage's label; none is empty."""
    label = _compiled(_LABEL).match(passage)
    prefix = label[0] if label else ""
    found: list[str] = []
    start = end = len(prefix)
    for stop in (*(match.end() for match in _compiled(_END).finditer(passage, end)), len(passage)):
        if len(passage[start:stop].rstrip()) > PIECE and passage[start:end].strip():
            found.append(prefix + passage[start:end].strip())
            start = end
        end = stop
    if passage[start:].strip() or (not found and prefix):
        found.append((prefix + passage[start:].strip()).strip())
    return found
