"""JSON forms of the library's dataclasses, and back: read off their fields, so that none can be forgotten.

A time is ISO 8601 text in UTC with microseconds, a namespace `user/u-123`, a tuple a list; all else is JSON already.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, Union, get_args, get_origin

from commonplace.checks import JSON, microseconds, moment
from commonplace.entry import STAYS
from commonplace.errors import Unavailable

T = TypeVar("T")
Convert = Callable[[Any], Any]
Codec = tuple[tuple[str, Convert, Any], ...]
_codecs: dict[type[Any], Codec] = {}

UNBOUND: Any = object()
"""Stands for a type parameter: the caller of `thing_of` names what it is."""


def dumps(form: object) -> bytes:
    """Compact JSON. Escapes keep what no UTF-8 can hold, such as a lone surrogate in a text that is to be refused."""
    try:
        return json.dumps(form, ensure_ascii=False, separators=(",", ":"), default=dict).encode()
    except UnicodeEncodeError:
        return json.dumps(form, separators=(",", ":"), default=dict).encode()


_LINE_BREAKS = {mark.encode(): f"\\u{ord(mark):04x}".encode() for mark in "\u0085\u2028\u2029"}
"""What `str.splitlines` breaks a line at besides what JSON escapes anyway."""


def on_one_line(json_text: bytes) -> bytes:
    """JSON that every reader of lines takes for one line. Some clients of server-sent events use `str.splitlines`."""
    for mark, escape in _LINE_BREAKS.items():
        json_text = json_text.replace(mark, escape)
    return json_text


def time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def form_of(thing: Any) -> dict[str, JSON]:
    """The JSON form of a dataclass."""
    return {name: write(getattr(thing, name)) for name, write, _ in _codec(type(thing))}


def thing_of(kind: type[T], form: Mapping[str, Any], item: type[Any] | None = None) -> T:
    """The dataclass that a form tells of; `item` is the type parameter of a generic one."""
    read = {name: _read_item(item) if reader is UNBOUND else reader for name, _, reader in _codec(kind)}
    try:
        return kind(**{name: reader(form[name]) for name, reader in read.items() if name in form})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(
            f"the service answered with no {kind.__name__}; is it of the same version as this program?"
        ) from error


def _read_item(item: type[Any] | None) -> Convert:
    if item is None:
        raise TypeError("a generic form needs its item")
    return lambda values: tuple(thing_of(item, value) for value in values)


def _codec(kind: type[Any]) -> Codec:
    """The fields of a dataclass, how each is written and read; private ones, and those marked so, stay at home."""
    known = _codecs.get(kind)
    if known is None:
        shown = [one for one in fields(kind) if not one.name.startswith("_") and STAYS not in one.metadata]
        known = _codecs[kind] = tuple((one.name, *_converters(kind, one)) for one in shown)
    return known


def _converters(kind: type[Any], one: Field[Any]) -> tuple[Convert, Any]:
    # A hint is looked up alone: those of private fields may name what is imported for type checkers only.
    hint = eval(one.type, vars(sys.modules[kind.__module__])) if isinstance(one.type, str) else one.type
    if one.name == "namespace":
        return "/".join, lambda text: tuple(text.split("/"))
    if hint is int and (one.name == "at" or one.name.endswith("_at")):
        return _time_out, _time_in
    if one.name.endswith("_at") and set(get_args(hint)) == {int, type(None)}:
        return _optional(_time_out), _optional(_time_in)
    return _for_hint(hint)


def _for_hint(hint: Any) -> tuple[Convert, Any]:
    parts = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType) and type(None) in parts and len(parts) == 2:
        write, read = _for_hint(next(part for part in parts if part is not type(None)))
        return _optional(write), _optional(read)
    if hint is datetime:
        return time_text, datetime.fromisoformat
    if get_origin(hint) is tuple and len(parts) == 2 and parts[1] is ...:
        if isinstance(parts[0], TypeVar):
            return lambda values: [form_of(value) for value in values], UNBOUND
        write, read = _for_hint(parts[0])
        return lambda values: [write(value) for value in values], lambda values: tuple(read(value) for value in values)
    if isinstance(hint, type) and is_dataclass(hint):
        return form_of, lambda form: thing_of(hint, form)
    return _as_it_is, _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _time_out(time: int) -> str:
    return time_text(moment(time))


def _time_in(text: str) -> int:
    time = microseconds("time", text)
    assert time is not None
    return time
