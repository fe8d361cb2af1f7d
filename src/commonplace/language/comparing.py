"""What two texts have in common."""

from __future__ import annotations


def common_prefix(left: str, right: str) -> int:
    """How many characters two texts begin with in common; by halving, since comparing slices is quick."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
