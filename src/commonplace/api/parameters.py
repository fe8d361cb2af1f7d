"""What the table of operations is made of: an operation, its arguments, where each is sent and how a client checks it.

The library checks most values itself. Such a value has a JSON schema for the documentation, and the service passes it
on unchanged, so that the library's own error refuses a wrong one. Values that only the service knows have a strict
type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

from commonplace.api.forms import Form
from commonplace.checks import JSON, Limits, check_json, check_number, check_text, expiry, microseconds
from commonplace.engine.search import check_relevance
from commonplace.errors import InvalidInput
from commonplace.language.relevance import DEFAULT_FLOOR
from commonplace.space.conversation import check_count, check_id
from commonplace.space.items import NewItem
from commonplace.space.names import KINDS as ENTRY_KINDS
from commonplace.space.names import normalise
from commonplace.space.records import clean_tags
from commonplace.space.rules import Action
from commonplace.space.space import Space

Place = Literal["path", "query", "header", "body", "text"]
REQUIRED: Any = object()
ABSENT: Any = object()
"""The default of a field that may be left out, but must not be null."""
MOMENT = "2026-01-31T12:00:00Z"
MESSAGE_OWN_FIELDS = ("id", "threadId", "resourceId", "createdAt")


def _as_it_is(value: Any, limits: Limits) -> Any:
    return value


def _received(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Kind:
    """What an argument is."""

    type: Any = str
    """The type in a URL, and in a body that has no `schema`."""
    schema: Mapping[str, Any] | None = None
    """In a body, the library checks the value and this describes it."""
    send: Callable[[Any, Limits], Any] = _as_it_is
    """Checks a value in the client and converts it to JSON."""
    receive: Callable[[Any], Any] = _received
    """Converts the received value to the library's argument."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """`ge`, `le` and `lt`, if the service checks them."""


@dataclass(frozen=True)
class Argument:
    """An argument of an operation. `name` is that of the library's method, `wire` the one in HTTP."""

    name: str
    place: Place
    kind: Kind
    wire: str
    default: Any = REQUIRED
    about: str | None = None
    examples: Sequence[Any] = ()
    sent: Any = None
    """The value that the Python client always sends, for an argument that the library's method does not have."""


@dataclass(frozen=True)
class Nested:
    """A JSON object inside a body, with a name for the documentation."""

    name: str
    about: str
    arguments: tuple[Argument, ...]


Subject = Callable[[Space, Mapping[str, Any]], tuple[str, str]]
"""The kind and name of the entry that a condition such as If-Match is about."""
WRITE_STATUSES = (404, 409, 412)
"""Statuses that any change may answer with: an earlier answer is gone, the key was used before, the condition is
outdated.
"""


@dataclass(frozen=True)
class Link:
    """An OpenAPI link: fields of the answer that are arguments of another operation."""

    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """One row. `call` is the method of a space that does it, such as `files.write`."""

    name: str
    request: str
    """The method and the path below `/v1`."""
    summary: str
    about: str
    call: str | None = None
    arguments: tuple[Argument, ...] = ()
    result: Form[Any] | None = None
    light: Form[Any] | None = None
    """The result without whole entries, unless `full=true` asks for them."""
    needs: tuple[Action, ...] = ("read",)
    status: int = 200
    statuses: tuple[int, ...] = ()
    """Statuses of failures, other than those that any request may have."""
    links: Mapping[str, Link] = field(default_factory=dict)
    body: str | None = None
    """The name of the body in the documentation."""
    body_about: str | None = None
    body_extra: Mapping[str, Any] | None = None
    text: str | None = None
    """The media type of a body that is text, or of an answer that is text."""
    example: str | None = None
    done: str = "Done."
    """What a success means, for the documentation."""
    etag: bool = False
    if_match: Subject | None = None
    if_new: bool = False
    """Whether `If-None-Match: *` is accepted too."""
    location: bool = False
    again: str | None = None
    """What 200 instead of 201 means: the entry existed already."""
    keyed: bool = False
    """Whether the Python client sends an idempotency key, so that it can repeat the request."""
    in_namespace: bool = True
    group: str = ""
    """The heading in the documentation."""
    in_client: bool = True
    """Whether the client's method for `call` uses this operation, since a GET and a POST may do the same."""

    @property
    def is_read(self) -> bool:
        return self.needs == ("read",)

    @property
    def is_once(self) -> bool:
        """Whether it accepts conditions and an idempotency key."""
        return not self.is_read and self.needs != ("admin",)

    @property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def address(self) -> str:
        """The path, such as `/v1/records/{id}`."""
        return f"/v1{self.request.partition(' ')[2]}"

    def arguments_in(self, place: str) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.place == place)


def in_group(group: str, *operations: Operation) -> tuple[Operation, ...]:
    return tuple(replace(operation, group=group) for operation in operations)


# The places of arguments


def path(name: str, kind: Kind, *, wire: str = "") -> Argument:
    return Argument(name, "path", kind, wire or name)


def query(
    name: str,
    kind: Kind,
    default: Any = REQUIRED,
    about: str | None = None,
    *,
    wire: str = "",
    examples: Sequence[Any] = (),
    sent: Any = None,
) -> Argument:
    return Argument(name, "query", kind, wire or name, default, about, examples, sent)


def header(name: str, wire: str, about: str, *, examples: Sequence[Any] = ()) -> Argument:
    return Argument(name, "header", STRICT_TEXT, wire, None, about, examples)


def body(name: str, kind: Kind, default: Any = REQUIRED, *, examples: Sequence[Any] = (), wire: str = "") -> Argument:
    return Argument(name, "body", kind, wire or name, default, None, examples)


# What the values are


def _path_out(value: Any, limits: Limits) -> str:
    # Checked here, because a proxy may rewrite `..` in a URL before the service can refuse it.
    return normalise(value, limits).removeprefix("/")


def _normal_path(value: Any, limits: Limits) -> str:
    return normalise(value, limits)


def _time_out(name: str) -> Callable[[Any, Limits], str | None]:
    def send(time: datetime | str | None, limits: Limits) -> str | None:
        microseconds(name, time)
        return time.isoformat() if isinstance(time, datetime) else time

    return send


def _ttl_out(value: Any, limits: Limits) -> Any:
    expiry(0, value)
    return value


def _flag_out(value: Any, limits: Limits) -> bool:
    return bool(value)


def _list_out(value: Any, limits: Limits) -> Any:
    return value if value is None or isinstance(value, str) else [*value]


def _kinds_out(value: Any, limits: Limits) -> Any:
    if isinstance(value, str):
        raise InvalidInput('kinds must be a list, such as ["file", "record"]')
    return None if value is None else list(value)


def _ids_out(value: Any, limits: Limits) -> Any:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput("ids must be a list of texts")
    return list(value)


def _messages_out(messages: Any, limits: Limits) -> Any:
    """Refuse what JSON would change, such as a key that is a number. The service checks the rest."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidInput('messages must be a list, such as [{"role": "user", "content": "…"}]')
    for number, message in enumerate(messages, 1):
        if isinstance(message, Mapping):
            sent = {name: value for name, value in message.items() if name not in MESSAGE_OWN_FIELDS}
            check_json(f"message {number}", sent)
    return list(messages)


def _puts_out(puts: Any, limits: Limits) -> Any:
    """Items to write as JSON objects, without the defaults."""
    if isinstance(puts, (str, bytes, Mapping)) or not isinstance(puts, Sequence):
        raise InvalidInput("puts must be a list")
    return [_put_out(put) for put in puts]


def _put_out(put: Any) -> Any:
    if not isinstance(put, NewItem):
        return put
    given = {
        field.name: getattr(put, field.name) for field in fields(NewItem) if getattr(put, field.name) != field.default
    }
    check_json("value", put.value)
    if "vectors" in given:
        given["vectors"] = [_numbers(vector) for vector in put.vectors]
    return {"key": put.key, "value": put.value, **given}


def _numbers(vector: Any) -> list[float] | None:
    """A vector as JSON: a list, or an array of numpy."""
    if vector is None:
        return None
    if isinstance(vector, (str, bytes, Mapping)) or not hasattr(vector, "__iter__"):
        raise InvalidInput("a vector is a list of numbers")
    try:
        return [float(number) for number in vector]
    except (TypeError, ValueError) as error:
        raise InvalidInput("a vector is a list of numbers") from error


def _filter_in(text: str | None) -> JSON:
    if text is None:
        return None
    try:
        found: JSON = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput('filter is not JSON; write it like {"size":{"$gt":3}}') from error
    return found


def _filter_out(value: Any, limits: Limits) -> str | None:
    return None if value is None else json.dumps(check_json("filter", value), default=dict)


def _json_out(name: str) -> Callable[[Any, Limits], Any]:
    return lambda value, limits: check_json(name, value)


_TEXT = {"type": "string"}
_OBJECT = {"type": "object", "additionalProperties": True}
_TIME = {"type": ["string", "null"], "examples": [MOMENT], "description": "ISO 8601, with an offset or `Z`."}

PATH = Kind(send=_path_out, receive=lambda path: "/" + path)
"""A file's path as the end of a URL."""
PATH_TEXT = Kind(schema=_TEXT, send=_normal_path)
STRICT_TEXT = Kind()
TYPE_NAME = Kind(send=lambda text, limits: None if text is None else check_text("type", text))
TEXT = Kind(schema=_TEXT)
OPTIONAL_TEXT = Kind(schema={"type": ["string", "null"]})
FILE_TEXT = Kind(send=lambda text, limits: check_text("text", text).encode())
FLAG = Kind(bool, send=_flag_out)
SECONDS = Kind(
    float,
    schema={"type": ["number", "null"], "exclusiveMinimum": 0, "description": "The time to live; null means for ever."},
)
TTL = replace(SECONDS, send=_ttl_out)
ANY_JSON = Kind(schema={"description": "Any JSON."})
CONTENT = replace(ANY_JSON, send=_json_out("content"))
MESSAGE_CONTENT = replace(ANY_JSON, send=_json_out("message"))
METADATA = Kind(schema=_OBJECT, send=_json_out("metadata"))
OPTIONAL_METADATA = Kind(schema={"type": ["object", "null"], "additionalProperties": True}, send=_json_out("metadata"))
FILTER = Kind(schema={"type": ["object", "null"], "additionalProperties": True}, send=_json_out("filter"))
FILTER_TEXT = Kind(send=_filter_out, receive=_filter_in)
"""A filter as JSON in the address."""
TAGS = Kind(
    list[str],
    schema={"type": "array", "items": _TEXT, "examples": [["project:x"]]},
    send=lambda tags, limits: clean_tags(tags, limits),
)
KINDS = Kind(list[str], send=_kinds_out, receive=lambda kinds: kinds or None)
_RELEVANCE = {"anyOf": [{"type": ["number", "null"], "minimum": 0, "maximum": 1}, {"const": DEFAULT_FLOOR}]}
RELEVANCE = Kind(float | Literal["default"], schema=_RELEVANCE, send=lambda value, limits: check_relevance(value))
CONFIDENCE = Kind(schema={"type": "number", "minimum": 0, "maximum": 1, "examples": [0.9]})
COUNT = Kind(schema={"type": "integer", "minimum": 0})
OPTIONAL_COUNT = Kind(schema={"type": ["integer", "null"], "minimum": 0})
POSITIVE = Kind(schema={"type": ["integer", "null"], "minimum": 1})
TEXT_LIST = Kind(schema={"type": "array", "items": _TEXT}, send=_ids_out)
OPTIONAL_TEXT_LIST = Kind(schema={"type": ["array", "null"], "items": _TEXT}, send=_list_out)
MESSAGE_LIST = Kind(schema={"type": "array", "items": _OBJECT}, send=_messages_out)
SEEN = Kind(
    schema={"type": ["object", "null"], "additionalProperties": {"type": "integer", "minimum": 1}},
    send=_json_out("seen"),
)
"""Ids with revisions."""
WORKING_CONTENT = Kind(schema={"oneOf": [_TEXT, _OBJECT], "examples": ["# User\n- **Name**: Ana", {"name": "Ana"}]})
WORKING_TEMPLATE = Kind(schema={"oneOf": [_TEXT, _OBJECT, {"type": "null"}]})
_NUMBERS = {"type": "array", "items": {"type": "number"}}
ITEM_VALUE = replace(ANY_JSON, send=_json_out("value"))
ITEM_PUTS = Kind(
    schema={"type": "array", "items": _OBJECT, "examples": [[{"key": "theme", "value": {"theme": "dark"}}]]},
    send=_puts_out,
)
VECTOR = Kind(schema={**_NUMBERS, "type": ["array", "null"]}, send=lambda vector, limits: _numbers(vector))
VECTORS = Kind(
    schema={"type": "array", "items": _NUMBERS}, send=lambda vectors, limits: [_numbers(one) for one in vectors]
)
REVISION = Kind(int, bounds={"ge": 0, "lt": 2**63})
ENTRY_KIND = Kind(schema={"enum": list(ENTRY_KINDS), "type": "string"})


def id_of(what: str) -> Kind:
    """An id, which may be any text; errors name it as `what`."""
    return Kind(send=lambda id, limits: check_id(what, id))


def optional_id(what: str) -> Kind:
    return Kind(send=lambda id, limits: None if id is None else check_id(what, id))


def time(name: str) -> Kind:
    return Kind(schema=_TIME, send=_time_out(name))


def number(name: str, least: int, most: int) -> Kind:
    """A whole number with narrower bounds than the library's."""
    return Kind(int, send=lambda value, limits: check_number(name, value), bounds={"ge": least, "le": most})


def count(name: str, least: int, most: int) -> Kind:
    """A whole number with the library's bounds."""
    return Kind(int, send=lambda value, limits: check_count(name, value, least, most), bounds={"ge": least, "le": most})


def choice(name: str, *values: str) -> Kind:
    allowed = " or ".join(f'"{value}"' for value in values)

    def send(value: Any, limits: Limits) -> Any:
        if value not in values:
            raise InvalidInput(f"{name} must be {allowed}, not {value!r:.100}")
        return value

    return Kind(Literal[values], send=send)
