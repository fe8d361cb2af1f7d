"""The export format: what each line says, written and read back. docs/export-format.md describes it for others.

The same states always give the same bytes: no field depends on when or where an export was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from commonplace.checks import (
    JSON,
    MAX_KEY_BYTES,
    Limits,
    Namespace,
    check_json,
    check_key,
    check_line,
    check_namespace,
    check_text,
    moment,
)
from commonplace.entry import Action, Entry
from commonplace.errors import InvalidInput
from commonplace.language.edits import apply_edit, edit_between
from commonplace.space.names import (
    DIRECTORY,
    FILE,
    KINDS,
    MESSAGE,
    RECORD,
    ROOT,
    THREAD,
    WORKING,
    key_of,
    normalise,
    path_of,
)
from commonplace.store import Ending, NamespaceHead, State

VERSION = 1
_ACTIONS = get_args(Action)
_PATHS = (FILE, DIRECTORY)
_MOST = 2**53
"""No book comes near it, and there is room above for what will be counted on."""
_YEAR = 366 * 86_400_000_000
_ANY_LENGTH = Limits(path_bytes=MAX_KEY_BYTES, path_segments=MAX_KEY_BYTES)
"""A book may have been opened with larger limits than are usual."""
_ATTRIBUTES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    RECORD: {"type": (str,), "source": (str,), "tags": (list,), "confidence": (int, float)},
    THREAD: {"resourceId": (str,), "title": (str, type(None)), "metadata": (dict,)},
    MESSAGE: {"resourceId": (str,), "threadId": (str,), "role": (str,)},
}
"""What the kinds cannot be read without."""


def write_line(fields: Mapping[str, JSON]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def header_line() -> bytes:
    return write_line({"line": "header", "format": "commonplace", "version": VERSION})


def namespace_line(head: NamespaceHead) -> bytes:
    return write_line(
        {
            "line": "namespace",
            "namespace": "/".join(head.namespace),
            "commit": head.commit,
            "commit_at": head.commit_time,
            "history_floor": head.history_floor,
        }
    )


def end_line(namespace: Namespace, states: int) -> bytes:
    return write_line({"line": "end", "namespace": "/".join(namespace), "states": states})


def footer_line(namespaces: int, states: int) -> bytes:
    return write_line({"line": "footer", "namespaces": namespaces, "states": states})


def state_line(state: State, number: int, newer: State | None) -> bytes:
    """A state of the entry with this number; a former text is told by how it differs from the newer state's."""
    entry, ended = state.entry, state.ended
    fields: dict[str, JSON] = {"line": "state", "entry": number, "kind": entry.kind}
    if entry.kind in _PATHS and "/" not in entry.key:
        fields["path"] = path_of(entry.key)
    else:
        fields["key"] = entry.key
    fields |= {"revision": entry.revision, "action": state.begun_by, "commit": entry.commit, "at": state.valid_from}
    fields |= {"created_at": entry.created_at, "updated_at": entry.updated_at}
    for name, optional in (
        ("expires_at", entry.expires_at),
        ("actor", entry.actor),
        ("identity", entry.identity),
        ("heading", entry.heading),
    ):
        if optional is not None:
            fields[name] = optional
    fields["attributes"] = entry.attributes
    edit = None
    if newer is not None and isinstance(entry.value, str) and isinstance(newer.entry.value, str):
        edit = edit_between(newer.entry.value, entry.value)
    if edit is None:
        fields["value"] = entry.value
    else:
        fields["edit"] = edit
    if not isinstance(entry.value, str) or entry.text != entry.value:
        fields["text"] = entry.text
    if ended is not None:
        ending: dict[str, JSON] = {"action": ended.action, "commit": ended.commit, "at": ended.at}
        if ended.actor is not None:
            ending["actor"] = ended.actor
        fields["ended"] = ending
    return write_line(fields)


class Line:
    """A line that was read: its fields, each taken with a check, and where it stands, for messages."""

    def __init__(self, number: int, raw: bytes) -> None:
        self.number = number
        try:
            self.fields: Any = json.loads(raw)
        except ValueError as error:
            raise self.wrong("is no JSON; the file is damaged, or no export") from error
        except RecursionError as error:
            raise self.wrong("is nested too deep; the file is damaged, or no export") from error
        if not isinstance(self.fields, dict) or not isinstance(self.fields.get("line"), str):
            raise self.wrong('is no object with a field "line"; the file is no export of commonplace')

    def wrong(self, what: str) -> InvalidInput:
        return InvalidInput(f"line {self.number} {what}")

    @property
    def name(self) -> str:
        return str(self.fields["line"])

    def integer(self, name: str) -> int:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise self.wrong(f'needs a whole number "{name}" from 0 to {_MOST}, not {value!r:.100}')
        return value

    def time(self, name: str, *, room: int = 0) -> int:
        """A time that can be given back, and so can those up to `room` later."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(f'needs a time "{name}" in whole microseconds, not {value!r:.100}')
        try:
            moment(value), moment(value + room)
        except OverflowError as error:
            raise self.wrong(f'has a time "{name}" outside of the years 1 to 9999: {value!r:.100}') from error
        return value

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self.wrong(f'needs a text "{name}", not {value!r:.100}')
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def namespace(self) -> Namespace:
        path = self.text("namespace")
        try:
            return check_namespace(tuple(path.split("/")))
        except InvalidInput as error:
            raise self.wrong(f"is refused: {error}") from error


def check_header(line: Line) -> None:
    if line.name != "header" or line.fields.get("format") != "commonplace":
        raise line.wrong("is no header of a commonplace export; give a file that `commonplace export` wrote")
    version = line.integer("version")
    if version != VERSION:
        raise line.wrong(f"has format version {version}; this commonplace reads version {VERSION}, so upgrade it")


def read_head(line: Line) -> NamespaceHead:
    # A commit is always later than the one before, also by a clock that is behind.
    commit_time = line.time("commit_at", room=_YEAR)
    return NamespaceHead(line.namespace(), line.integer("commit"), commit_time, line.integer("history_floor"))


def read_state(line: Line, namespace: Namespace, newer: State | None) -> State:
    """The state of a line, checked as anything that enters a store is; `newer` is the state of the line before."""
    number, kind = line.integer("entry"), line.text("kind")
    if kind not in KINDS:
        raise line.wrong(f"has the unknown kind {kind!r}")
    value = _read_value(line, number, newer)
    attributes = line.fields.get("attributes")
    if not isinstance(attributes, dict):
        raise line.wrong('needs an object "attributes"')
    try:
        key = check_key(_read_key(line, kind))
        check_json("value", value)
        check_json("attributes", attributes)
        text = value if isinstance(value, str) and "text" not in line.fields else check_text("text", line.text("text"))
        for name in ("actor", "identity", "heading"):
            if line.fields.get(name) is not None:
                check_text(name, line.text(name))
        if line.fields.get("identity") is not None:
            check_line("identity", line.text("identity"), max_bytes=512)
    except InvalidInput as error:
        raise line.wrong(f"is refused: {error}") from error
    _check_kind(line, kind, value, attributes)
    entry = Entry(
        id=number,
        namespace=namespace,
        kind=kind,
        key=key,
        value=value,
        text=text,
        heading=line.optional_text("heading"),
        attributes=attributes,
        identity=line.optional_text("identity"),
        revision=line.integer("revision"),
        commit=line.integer("commit"),
        created_at=line.time("created_at"),
        updated_at=line.time("updated_at"),
        expires_at=None if line.fields.get("expires_at") is None else line.time("expires_at"),
        actor=line.optional_text("actor"),
    )
    return State(entry, _read_action(line), line.time("at"), _read_ending(line))


def _read_key(line: Line, kind: str) -> str:
    if kind not in _PATHS:
        return line.text("key")
    key = key_of(line.text("path")) if "path" in line.fields else line.text("key")
    path = path_of(key)
    if path == ROOT or key != key_of(normalise(path, _ANY_LENGTH)):
        raise InvalidInput(f"a {kind} has a path in its normal form, such as /notes/today, not {path!r}")
    return key


def _check_kind(line: Line, kind: str, value: JSON, attributes: Mapping[str, JSON]) -> None:
    """Refuse what a kind's own readers could not read."""
    if kind == FILE and not isinstance(value, str):
        raise line.wrong("is a file whose value is no text")
    if kind == MESSAGE and not isinstance(value, Mapping):
        raise line.wrong("is a message whose value is no object")
    if kind == WORKING and not isinstance(value, str | Mapping):
        raise line.wrong("is a working memory whose value is neither a text nor an object")
    for name, types in _ATTRIBUTES.get(kind, {}).items():
        if name not in attributes:
            raise line.wrong(f'is a {kind} without the attribute "{name}"')
        if isinstance(attributes[name], bool) or not isinstance(attributes[name], types):
            raise line.wrong(f'is a {kind} whose attribute "{name}" is {attributes[name]!r:.100}')
    tags: Any = attributes["tags"] if kind == RECORD else ()
    if not all(isinstance(tag, str) for tag in tags):
        raise line.wrong("is a record with tags that are no texts")


def _read_value(line: Line, number: int, newer: State | None) -> JSON:
    if "edit" not in line.fields:
        if "value" not in line.fields:
            raise line.wrong('has neither a "value" nor an "edit"')
        value: JSON = line.fields["value"]
        return value
    if newer is None or newer.entry.id != number or not isinstance(newer.entry.value, str):
        raise line.wrong('has an "edit", but the line before has no text of the same entry')
    try:
        return apply_edit(newer.entry.value, line.fields["edit"])
    except ValueError as error:
        raise line.wrong(f'has an "edit" that does not fit: {error}') from error


def _read_action(line: Line) -> Action:
    action: Any = line.text("action")
    if action not in _ACTIONS:
        raise line.wrong(f"has the unknown action {action!r}")
    return action  # type: ignore[no-any-return]


def _read_ending(line: Line) -> Ending | None:
    if line.fields.get("ended") is None:
        return None
    ended = Line.__new__(Line)
    ended.number, ended.fields = line.number, line.fields["ended"]
    if not isinstance(ended.fields, dict):
        raise line.wrong('has an "ended" that is no object')
    actor = ended.optional_text("actor")
    if actor is not None:
        try:
            check_text("actor", actor)
        except InvalidInput as error:
            raise line.wrong(f"is refused: {error}") from error
    return Ending(_read_action(ended), ended.integer("commit"), ended.time("at"), actor)
