"""The moment of a commit: later than the last one, and not by a clock that cannot be right."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import cache

from commonplace.errors import ConfigurationError

RELEASED = datetime(2026, 11, 1, tzinfo=UTC)
FARTHEST = timedelta(days=3_653)
AHEAD = timedelta(days=1)
"""Commits that are so far ahead of the clock were made by one that was wrong."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@cache
def _installed() -> int:
    """When this program came to be here: no clock that is right says an earlier time."""
    return max((RELEASED - _EPOCH) // _MICROSECOND, os.stat(__file__).st_mtime_ns // 1_000)


def commit_time(now: int, last: int) -> int:
    """When a commit is made whose namespace had the last one then.

    A machine may have been off for years. But a clock that is ten years ahead of the last commit and of this program is
    taken for wrong: one commit with it would put all later ones into the future.
    """
    if now > last and now - max(last, _installed()) > FARTHEST // _MICROSECOND:
        raise ConfigurationError(
            f"the clock says {shown(now)}, more than ten years after the last commit and after this program was "
            "installed; nothing was changed: set the clock, or, if it is right, install commonplace again"
        )
    return max(now, last + 1)


def shown(time: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=time)).date().isoformat()
    except OverflowError:
        return "a year after 9999"


def is_late(now: int) -> int:
    """From when on a commit is ahead of the clock."""
    return now + AHEAD // _MICROSECOND


def late_problem(count: int, last: int | None) -> list[str]:
    """What `verify` says of namespaces whose last commit is ahead of the clock."""
    if not count or last is None:
        return []
    return [
        f"times: the last commit of {count:,} namespaces is ahead of the clock, up to {shown(last)}; "
        "`commonplace move SRC DST --mend-times` copies the book with these times set back"
    ]
