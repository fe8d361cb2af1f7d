"""Arguments as people type them: durations, times, namespaces, and the entry that a name means."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.settings import MESSAGE_BYTES, ORIGIN_FORM, WEB_ADDRESS_FORM, is_origin, is_web_address

if TYPE_CHECKING:
    from commonplace.entry import Revision
    from commonplace.space.space import Space

KIND_AND_KEY = "[KIND] KEY"
"""How help shows an entry's name where its kind may stand before it."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST_SECONDS = 1e11  # about 3,000 years: what ends then still has a date
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")


def duration(text: str) -> float:
    """Seconds, or a number with s, m, h, d or w: `90`, `30m`, `7d`."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 30m, 12h, 7d or 2w")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds > _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is too long; write a shorter one, such as 90d")
    return seconds


def time(text: str) -> datetime:
    """ISO 8601, this computer's zone where none is given; or how long ago, as a duration with its unit: `2h`."""
    match = _DURATION.fullmatch(text.strip().lower())
    try:
        if match is not None and match[2]:
            return datetime.now(UTC) - timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 2026-01-31, 2026-01-31T12:00, 2026-01-31T12:00:00Z, or 2h for two hours ago"
        ) from error


def namespace(text: str) -> str:
    from commonplace.checks import parse_namespace

    try:
        parse_namespace(text)
    except CommonplaceError as error:
        raise argparse.ArgumentTypeError(f"{error}; write it like user/u-123") from error
    return text


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def message_bytes(text: str) -> int:
    least, most = MESSAGE_BYTES
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
    return int(text)


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number from 0 to 65535")
    return int(text)


def web_address(text: str) -> str:
    if not is_web_address(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a {WEB_ADDRESS_FORM}")
    return text


def origin(text: str) -> str:
    if not is_origin(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an {ORIGIN_FORM}")
    return text


def guess(space: Space, key: str, kind: str | None = None) -> tuple[str, list[Revision]]:
    """The kind of entry that a name means, with its history: a path is a file's, anything else an id.

    Of a record and a thread with the same id, the one that is alive is meant.
    """
    if kind is not None:
        kinds: tuple[str, ...] = (kind,)
    else:
        kinds = ("file", "directory") if key.startswith("/") else ("record", "thread")
    found = [(candidate, revisions) for candidate in kinds if (revisions := space.history(candidate, key))]
    if not found:
        raise NotFound(f"there is no {' or '.join(kinds)} {key} in {'/'.join(space.namespace)}, and never was")
    if not key.startswith("/"):  # a path stays the file's: `purge` must not take a live directory for a deleted file
        found.sort(key=lambda one: one[1][-1].action in ("deleted", "expired"))
    return found[0]


def kind_and_key(names: list[str]) -> tuple[str | None, str]:
    """`KEY` or `KIND KEY`."""
    from commonplace.space.names import KINDS

    if len(names) == 1:
        return None, names[0]
    if len(names) != 2 or names[0] not in KINDS:
        raise InvalidInput(f"give a key, or a kind and a key; a kind is one of {', '.join(KINDS)}")
    return names[0], names[1]
