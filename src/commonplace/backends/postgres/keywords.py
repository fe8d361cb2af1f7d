"""Keywords: our own terms as tokens of one namespace each, in a GIN index over the passages.

A token carries its namespace's number in front, so a posting list holds one namespace.
"""

from __future__ import annotations

from collections.abc import Mapping

from commonplace.language.passages import frequency_level

_LEVEL_MARKS = {2: "\x02", 3: "\x03"}  # no term contains a control character


def tokens(namespace_id: int, terms: Mapping[str, int]) -> tuple[list[str], list[str] | None]:
    """The tokens of a passage, and with a mark those of terms that occur more than once."""
    prefix = f"{namespace_id:x}:"
    repeated = [f"{prefix}{term}{_LEVEL_MARKS[frequency_level(count)]}" for term, count in terms.items() if count > 1]
    return [prefix + term for term in terms], repeated or None
