"""JSON text and time text as the service and its clients send them."""

from __future__ import annotations

import json
from datetime import UTC, datetime


def dumps(form: object) -> bytes:
    """Compact JSON in UTF-8. Text that UTF-8 cannot hold, such as a lone surrogate, is escaped."""
    try:
        return json.dumps(form, ensure_ascii=False, separators=(",", ":"), default=dict).encode()
    except UnicodeEncodeError:
        return json.dumps(form, separators=(",", ":"), default=dict).encode()


_LINE_BREAKS = {mark.encode(): f"\\u{ord(mark):04x}".encode() for mark in "\u0085\u2028\u2029"}
"""The line breaks of `str.splitlines` that JSON does not escape by itself."""


def on_one_line(json_text: bytes) -> bytes:
    """JSON without any line break: some clients of server-sent events split lines with `str.splitlines`."""
    for mark, escape in _LINE_BREAKS.items():
        json_text = json_text.replace(mark, escape)
    return json_text


def time_text(time: datetime) -> str:
    """ISO 8601 in UTC with microseconds."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
