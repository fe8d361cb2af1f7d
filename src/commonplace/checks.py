"""Checks of what callers send: text, names, keys, namespaces, JSON, numbers and times. Also the limits of a book.

A value that fails raises InvalidInput and changes nothing. Below `space` values are trusted and not checked again.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TypeAlias

from commonplace.errors import InvalidInput, TooLarge

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Namespace: TypeAlias = tuple[str, ...]

MAX_TEXT_BYTES = 100_000_000
MAX_JSON_DEPTH = 100
MAX_JSON_VALUES = 1_000_000
"""In one value. An empty list takes 3 bytes of JSON, but 60 in memory."""
MAX_LABELS = 10
MAX_LABEL_BYTES = 200
MAX_KEY_BYTES = 2_048
MAX_INTEGER_BITS = 10_000
INT64 = range(-(2**63), 2**63)
_compiled = cache(re.compile)  # compiled on first use
_UNFINISHED = re.compile(r"\..+\.unfinished-(\d+)(?:-journal|-wal|-shm)?")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_KEY = re.compile("[\x00\x02-\x1f\x7f-\x9f\u2028\u2029]")
_INVISIBLE = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
    # Joiners belong between the letters of some scripts, and between emoji.
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200c\u200d])"
)
"""Invisible characters: two names that differ only in these look the same."""


def check_text(name: str, text: object, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return text that every backend can hold: valid Unicode, no NUL, within the limit."""
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be a string, not {type(text).__name__}")
    if "\x00" in text:
        raise InvalidInput(f"{name} contains a NUL character; remove it")
    size = len(text)
    if not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"{name} contains a lone surrogate at character {error.start}; send valid Unicode text"
            ) from error
    if size > max_bytes:
        raise TooLarge(f"{name} has {size:,} bytes; at most {max_bytes:,} are allowed")
    return text


def check_line(name: str, text: object, *, max_bytes: int) -> str:
    """Return a short text without control characters, such as a label, a key or a tag."""
    line = check_text(name, text, max_bytes=max_bytes)
    if found := _CONTROL.search(line):
        raise InvalidInput(f"{name} contains the control character {found[0]!r}; remove it")
    return line


def invisible_in(name: str) -> str | None:
    """The first invisible character of a name, as `U+200B`, or None."""
    if name.isascii():
        return None
    found = _compiled(_INVISIBLE).search(name)
    return None if found is None else f"U+{ord(found[0]):04X}"


def check_visible(name: str, text: str) -> str:
    """Return a new name, which must have no invisible characters. Existing names may have them and stay readable."""
    if found := invisible_in(text):
        raise InvalidInput(f"{name} contains the invisible character {found}; remove it")
    return text


def local_path(name: str, path: object) -> Path:
    """The absolute path of a local file or folder; `~` is the home folder."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(f"{name} must be a path, not {type(path).__name__}")
    text = check_text(name, os.fspath(path))
    if not text.strip():
        raise InvalidInput(f"{name} is empty; give the path of a file or folder")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidInput(f"{name} is {text!r}; there is no such home folder") from error


def unfinished_file(target: Path) -> Path:
    """The temporary file that becomes `target` once it is complete. Those of killed programs are removed.

    Files younger than an hour stay: programs of other machines may share the folder.
    """
    for file in target.parent.glob(".*.unfinished-*"):
        match = _UNFINISHED.fullmatch(file.name)
        with suppress(OSError):  # another program has removed it, or another user owns it
            if match and not _is_running(int(match[1])) and time.time() - file.stat().st_mtime > 3600:
                file.unlink()
    return target.with_name(f".{target.name}.unfinished-{os.getpid()}")


def _is_running(process: int) -> bool:
    if os.name == "nt":
        return True  # on Windows signal 0 would end the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def check_key(key: object) -> str:
    """Return a stored key. The only control character that it may contain is U+0001, which divides its parts."""
    text = check_text("key", key, max_bytes=MAX_KEY_BYTES)
    if not text:
        raise InvalidInput("key must not be empty")
    if found := _CONTROL_IN_KEY.search(text):
        raise InvalidInput(f"key contains the control character {found[0]!r}; remove it")
    return text


def check_number(name: str, number: object) -> int:
    """Return a whole number that every backend can hold, such as a commit or a revision."""
    if isinstance(number, bool) or not isinstance(number, int) or number not in INT64:
        raise InvalidInput(f"{name} must be a whole number, not {number!r:.100}")
    return number


def check_namespace(labels: object) -> Namespace:
    """Return a namespace: 1 to 10 labels, each non-empty, without `/` and control characters."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InvalidInput('a namespace is a tuple of labels, such as ("user", "u-123")')
    if not 1 <= len(labels) <= MAX_LABELS:
        raise InvalidInput(f"a namespace has 1 to {MAX_LABELS} labels, not {len(labels)}")
    for label in labels:
        check_line("namespace label", label, max_bytes=MAX_LABEL_BYTES)
        if not label.strip():
            raise InvalidInput("a namespace label must not be empty or blank")
        if "/" in label:
            raise InvalidInput(f'a namespace label must not contain "/": {label!r}')
    return tuple(labels)


def parse_namespace(path: str) -> Namespace:
    """Read a namespace that a caller wrote, `user/u-123`."""
    return check_namespace(tuple(check_text("namespace", path).split("/")))


def stored_namespace(path: str) -> Namespace:
    """Read a namespace that a store wrote, `user/u-123`; it was checked when it was written."""
    return tuple(path.split("/"))


def check_json(name: str, value: object, *, max_depth: int = MAX_JSON_DEPTH) -> JSON:
    """Return a value that survives a round trip through JSON: finite numbers, string keys, bounded depth."""
    level: list[object] = [value]
    depth = values = 0
    while level:
        depth += 1
        values += len(level)
        if values > MAX_JSON_VALUES:
            raise TooLarge(f"{name} holds more than {MAX_JSON_VALUES:,} values, the most that is allowed")
        if depth > max_depth:
            raise InvalidInput(f"{name} is nested more than {max_depth} levels deep; flatten it")
        below: list[object] = []
        for item in level:
            # The check of a text, without a call for the usual one.
            if type(item) is str and item.isascii() and len(item) <= MAX_TEXT_BYTES and "\x00" not in item:
                continue
            _check_json_item(name, item, below)
        level = below
    return value  # type: ignore[return-value]


def _check_json_item(name: str, item: object, below: list[object]) -> None:
    if isinstance(item, str):
        check_text(name, item)
    elif item is None or isinstance(item, bool):
        return
    elif isinstance(item, int):
        if item.bit_length() > MAX_INTEGER_BITS:
            raise InvalidInput(f"{name} contains a number that is too long; send it as a string")
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise InvalidInput(f"{name} contains {item}, which JSON cannot hold")
    elif type(item) is dict or isinstance(item, Mapping):
        for key in item:
            check_text(f"a key in {name}", key)
        below.extend(item.values())
    elif isinstance(item, (list, tuple)):
        below.extend(item)
    else:
        raise InvalidInput(f"{name} contains a {type(item).__name__}, which JSON cannot hold")


@dataclass(frozen=True, slots=True)
class Limits:
    """How large things may be. You can open a book with other limits."""

    file_bytes: int = 10_000_000
    file_lines: int = 999_999
    path_bytes: int = 1_024
    path_segments: int = 20
    record_characters: int = 10_000
    tags: int = 20
    message_bytes: int = 16_000_000
    """A message can contain images as base64, of several megabytes."""
    item_bytes: int = 16_000_000
    metadata_bytes: int = 1_000_000
    """Of the metadata of a thread, and of a working memory, which is part of every prompt."""
    standing_tokens: int = 500
    """Of the standing instructions and preferences in a context, as an estimate."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_TIME, LAST_TIME = ((limit.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND for limit in (datetime.min, datetime.max))


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def optional_moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else moment(microseconds)


def microseconds(name: str, time: datetime | str | None) -> int | None:
    """Read a time: an aware datetime, or ISO 8601 text with an offset or `Z`; None stays None."""
    if time is None:
        return None
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError as error:
            raise InvalidInput(f"{name} must be a time such as 2026-01-31T12:00:00Z, not {time!r}") from error
    if not isinstance(time, datetime):
        raise InvalidInput(f"{name} must be a datetime or an ISO 8601 string, not {type(time).__name__}")
    if time.tzinfo is None or _offset(time) is None:
        raise InvalidInput(f"{name} has no time zone; give it one, for example datetime.now(UTC)")
    found = (time - _EPOCH) // _MICROSECOND
    if not FIRST_TIME <= found <= LAST_TIME:
        raise InvalidInput(f"{name} must be between the years 1 and 9999 in UTC, not {time}")
    return found


def _offset(time: datetime) -> timedelta | None:
    try:
        return time.utcoffset()
    except NotImplementedError:  # an incomplete tzinfo class
        return None


def expiry(now: int, ttl_seconds: float | None) -> int | None:
    """When something that is written now expires."""
    if ttl_seconds is None:
        return None
    if isinstance(ttl_seconds, bool) or not isinstance(ttl_seconds, (int, float)) or not 0 < ttl_seconds <= 3e9:
        raise InvalidInput(f"ttl_seconds must be a number of seconds above 0, not {ttl_seconds!r}")
    return now + int(ttl_seconds * 1_000_000)
