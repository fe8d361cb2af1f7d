"""JSON-RPC messages, from a line on stdio or a body over HTTP, and the revisions of MCP.

Parsing is stricter than Python's: no JSON that can be read in two ways is accepted, and the error has the id of the
request wherever it can be found.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from commonplace.checks import MAX_JSON_DEPTH
from commonplace.errors import ConfigurationError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602

MAX_LINE_BYTES = 64_000_000
END_BYTES = 1_000
"""How much of either end of a line is searched for its id."""

MAX_DEPTH = MAX_JSON_DEPTH + 10
"""The content of a record may be as deep as the store allows; the message around it adds a few levels."""

# A string without its closing quote extends to the end. Searching again from each quote would take quadratic time.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[\w.:-]{1,100}")'
_FIRST_ID = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*[,}]")
_LAST_ID = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")

Id = str | int | None

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`. Later ones send their envelope with every request."""

DEFAULT_VERSION = "2024-11-05"
"""The revision for a client that names none."""

_WITH_LINKS = "2025-06-18"
_WITH_BATCHES = "2025-03-26"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error to answer a message with; `id` is None if the message does not have a usable one."""

    id: Id
    code: int
    message: str


class _Unfit(ValueError):
    """JSON that Python would read, but that we refuse."""


def parse_line(line: bytes) -> dict[str, Any] | Refusal:
    """The message on a line, with a valid envelope, or the error."""
    message = parse_json(line)
    if isinstance(message, list):
        return Refusal(None, INVALID_REQUEST, "Invalid Request: batches are not supported; send one message at a time")
    return message if isinstance(message, Refusal) else check_envelope(message)


def parse_json(line: bytes) -> Any:
    """The JSON value on a line, or a Refusal."""
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
        return Refusal(_id_within(line), PARSE_ERROR, "Parse error: half of a surrogate pair is not text")
    except json.JSONDecodeError as error:
        return Refusal(None, PARSE_ERROR, f"Parse error: {error.msg} at character {error.pos + 1}")
    except ValueError:
        return Refusal(_id_within(line), PARSE_ERROR, "Parse error: a number is too long; send it as a string")
    return message


def too_long(line: bytes) -> Refusal:
    """The refusal of a line that is too long; both of its ends are enough to find the id."""
    text = f"Invalid Request: the line is longer than {MAX_LINE_BYTES:,} bytes; send it in parts"
    return Refusal(_outer_id(line), INVALID_REQUEST, text)


def check_envelope(message: Any) -> dict[str, Any] | Refusal:
    """The message, if it is valid JSON-RPC 2.0."""
    if not isinstance(message, dict):
        return Refusal(None, INVALID_REQUEST, "Invalid Request: a message is a JSON object")
    id = message.get("id")
    has_valid_id = isinstance(id, (str, int)) and not isinstance(id, bool)
    known_id = id if has_valid_id else None
    if message.get("jsonrpc") != "2.0":
        return Refusal(known_id, INVALID_REQUEST, 'Invalid Request: jsonrpc must be "2.0"')
    if "id" in message and not has_valid_id:
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
    """How deep the brackets nest. Checked first, because the parser recurses."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for bracket in re.finditer(rb"[\[\]{}]", _STRINGS.sub(b"", line)):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _outer_id(line: bytes) -> Id:
    """The id of a message that is not parsed, if it is the first or the last member, as in every known client.

    The first and the last brace belong to the message itself, and texts inside of it have their quotes escaped. So an
    id next to those braces is the id of the message, whatever else is in it.
    """
    found = _FIRST_ID.match(line[:END_BYTES]) or _LAST_ID.search(line[-END_BYTES:])
    return json.loads(found[1]) if found else None


def _id_within(line: bytes) -> Id:
    """The id of a message that is valid JSON, but that we refuse: parsed again, leniently."""
    try:
        message = json.loads(line.decode(), parse_int=_short_number)
    except ValueError:
        return None
    id = message.get("id") if isinstance(message, dict) else None
    is_number = isinstance(id, int) and not isinstance(id, bool)
    # Half of a surrogate pair is not printable, and an answer cannot contain it.
    return id if is_number or (isinstance(id, str) and id.isprintable()) else None


def _short_number(digits: str) -> int | None:
    return int(digits) if len(digits) <= 18 else None


def _refuse_constant(name: str) -> NoReturn:
    raise _Unfit(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise _Unfit(f"the key {twice[:100]!r} occurs twice in one object")
    return members


# Revisions of the protocol


def has_links(version: str) -> bool:
    """Whether a client of this revision can parse a `resource_link`. An older client rejects the whole answer."""
    return version >= _WITH_LINKS


def has_batches(version: str | None) -> bool:
    """Whether a client may post several messages at once. Only one revision allows it, and it has no version header."""
    return version in (None, _WITH_BATCHES)


def check_version(version: str) -> str:
    if version not in HANDSHAKE:
        raise ConfigurationError(f"MCP_PROTOCOL_VERSION is {version!r}; it must be one of {', '.join(HANDSHAKE)}")
    return version


def completed_initialize(params: Mapping[str, Any] | None, configured: str | None = None) -> dict[str, Any]:
    """The parameters of `initialize`, completed with what some clients leave out: capabilities, name, revision.

    `configured` is the revision for a client that names none or an unknown one.
    """
    completed = dict(params or {})
    if completed.get("capabilities") is None:
        completed["capabilities"] = {}
    client = completed.get("clientInfo")
    if client is None or isinstance(client, dict):
        completed["clientInfo"] = {"name": "unknown", "version": "0", **(client or {})}
    version = completed.get("protocolVersion")
    if version is None:
        completed["protocolVersion"] = configured or DEFAULT_VERSION
    elif version not in HANDSHAKE:
        completed["protocolVersion"] = configured or HANDSHAKE[-1]
    return completed
