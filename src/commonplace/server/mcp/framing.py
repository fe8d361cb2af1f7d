"""A line of stdio, or what was posted over HTTP, as a JSON-RPC message, or the refusal to send back."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, NoReturn

from commonplace.checks import MAX_JSON_DEPTH

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602

MAX_LINE_BYTES = 64_000_000
END_BYTES = 1_000
"""How much of either end of a line is looked at for its id."""

MAX_DEPTH = MAX_JSON_DEPTH + 10
"""A record's content may be as deep as the store takes it; the message around it adds a few levels."""

# A string that is never closed reaches to the end: looked for anew from each of its quotes, it would cost the square.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[\w.:-]{1,100}")'
_FIRST_ID = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*[,}]")
_LAST_ID = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")

Id = str | int | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error to answer a line with; `id` is None where the line does not tell it."""

    id: Id
    code: int
    message: str


class _Unfit(ValueError):
    """JSON that Python would read, and that we do not take."""


def parse_line(line: bytes) -> dict[str, Any] | Refusal:
    """The message on a line, whose envelope is sound, or what is wrong with it."""
    message = parse_json(line)
    if isinstance(message, list):
        return Refusal(None, INVALID_REQUEST, "Invalid Request: batches are not supported; send one message at a time")
    return message if isinstance(message, Refusal) else check_envelope(message)


def parse_json(line: bytes) -> Any:
    """What a line holds, or a Refusal. Stricter than Python: nothing in it may be read in two ways."""
    if len(line) > MAX_LINE_BYTES:
        return too_long(line)
    if _depth(line) > MAX_DEPTH:
        return Refusal(
            _outer_id(line), PARSE_ERROR, f"Parse error: nested more than {MAX_DEPTH} levels deep; flatten it"
        )
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
        if _SURROGATE.search(line):
            json.dumps(message, ensure_ascii=False).encode()
    except _Unfit as unfit:
        return Refusal(_id_within(line), PARSE_ERROR, f"Parse error: {unfit}")
    except UnicodeDecodeError:
        return Refusal(_outer_id(line), PARSE_ERROR, "Parse error: the message is not UTF-8")
    except UnicodeEncodeError:
        return Refusal(_id_within(line), PARSE_ERROR, "Parse error: half of a surrogate pair is no text")
    except json.JSONDecodeError as error:
        return Refusal(None, PARSE_ERROR, f"Parse error: {error.msg} at character {error.pos + 1}")
    except ValueError:
        return Refusal(_id_within(line), PARSE_ERROR, "Parse error: a number is too long; send it as a string")
    return message


def too_long(line: bytes) -> Refusal:
    """The refusal of a line, of which both ends are enough."""
    text = f"Invalid Request: the line is longer than {MAX_LINE_BYTES:,} bytes; send it in parts"
    return Refusal(_outer_id(line), INVALID_REQUEST, text)


def check_envelope(message: Any) -> dict[str, Any] | Refusal:
    """The message itself, where it is one of JSON-RPC 2.0."""
    if not isinstance(message, dict):
        return Refusal(None, INVALID_REQUEST, "Invalid Request: a message is a JSON object")
    id = message.get("id")
    has_sound_id = isinstance(id, (str, int)) and not isinstance(id, bool)
    known_id = id if has_sound_id else None
    if message.get("jsonrpc") != "2.0":
        return Refusal(known_id, INVALID_REQUEST, 'Invalid Request: jsonrpc must be "2.0"')
    if "id" in message and not has_sound_id:
        return Refusal(None, INVALID_REQUEST, "Invalid Request: id must be a string or a whole number")
    if "method" not in message and ("result" in message or "error" in message):
        return message
    if not isinstance(message.get("method"), str):
        return Refusal(known_id, INVALID_REQUEST, "Invalid Request: method must be a string")
    params = message.get("params")
    if params is None:
        message.pop("params", None)
    elif not isinstance(params, dict):
        return Refusal(known_id, INVALID_PARAMS, "Invalid params: params must be an object")
    return message


def _depth(line: bytes) -> int:
    """How deep the brackets nest. A parser that recurses must not find out by itself."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for bracket in re.finditer(rb"[\[\]{}]", _STRINGS.sub(b"", line)):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _outer_id(line: bytes) -> Id:
    """The id of a message that is not parsed, where it stands first or last, as every known client writes it.

    The first brace of a message and its last are its own, and a text inside it has its quotes escaped: what stands
    next to those braces like this is the message's member, whatever else is in it.
    """
    found = _FIRST_ID.match(line[:END_BYTES]) or _LAST_ID.search(line[-END_BYTES:])
    return json.loads(found[1]) if found else None


def _id_within(line: bytes) -> Id:
    """The id of a message that is JSON, if not as we take it: read again, without being strict."""
    try:
        message = json.loads(line.decode(), parse_int=_short_number)
    except ValueError:
        return None
    id = message.get("id") if isinstance(message, dict) else None
    is_number = isinstance(id, int) and not isinstance(id, bool)
    # Half of a surrogate pair is not printable; an answer cannot carry it.
    return id if is_number or (isinstance(id, str) and id.isprintable()) else None


def _short_number(digits: str) -> int | None:
    return int(digits) if len(digits) <= 18 else None


def _refuse_constant(name: str) -> NoReturn:
    raise _Unfit(f"{name} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise _Unfit(f"the key {twice[:100]!r} stands twice in one object")
    return members
