"""What two texts have in common."""

from __future__ import annotations

_BLOCK = 1 << 16
"""Characters compared at a time: quick, and no copy of a long text is made."""


def common_prefix(left: str, right: str) -> int:
    """How many characters two texts begin with in common."""
    most = min(len(left), len(right))
    for start in range(0, most, _BLOCK):
        end = min(start + _BLOCK, most)
        if left[start:end] != right[start:end]:
            return start + _within(left[start:end], right[start:end])
    return most


def common_suffix(left: str, right: str, most: int) -> int:
    """How many characters two texts end with in common, of the last `most`."""
    for done in range(0, most, _BLOCK):
        count = min(_BLOCK, most - done)
        ends = [text[len(text) - done - count : len(text) - done] for text in (left, right)]
        if ends[0] != ends[1]:
            return done + _within(ends[0][::-1], ends[1][::-1])
    return most


def _within(left: str, right: str) -> int:
    """The same for two short texts that differ; by halving, since comparing slices is quick."""
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
