"""The export format: what each line says, written and read back. docs/export-format.md describes it for others.

The same states always give the same bytes: no field depends on when or where an export was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from commonplace.checks import JSON, Namespace, check_json, check_key, check_line, check_namespace, check_text
from commonplace.entry import Action, Entry
from commonplace.errors import InvalidInput
from commonplace.exchange.edits import apply_edit, edit_between
from commonplace.space.keys import DIRECTORY, FILE, KINDS
from commonplace.space.paths import key_of, path_of
from commonplace.store import Ending, NamespaceHead, State

VERSION = 1
_ACTIONS = get_args(Action)
_PATHS = (FILE, DIRECTORY)


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
        if not isinstance(self.fields, dict) or not isinstance(self.fields.get("line"), str):
            raise self.wrong('is no object with a field "line"; the file is no export of commonplace')

    def wrong(self, what: str) -> InvalidInput:
        return InvalidInput(f"line {self.number} {what}")

    @property
    def name(self) -> str:
        return str(self.fields["line"])

    def integer(self, name: str) -> int:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(f'needs a whole number "{name}", not {value!r}')
        return value

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self.wrong(f'needs a text "{name}", not {value!r}')
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def namespace(self) -> Namespace:
        return check_namespace(tuple(self.text("namespace").split("/")))


def check_header(line: Line) -> None:
    if line.name != "header" or line.fields.get("format") != "commonplace":
        raise line.wrong("is no header of a commonplace export; give a file that `commonplace export` wrote")
    version = line.integer("version")
    if version != VERSION:
        raise line.wrong(f"has format version {version}; this commonplace reads version {VERSION}, so upgrade it")


def read_head(line: Line) -> NamespaceHead:
    return NamespaceHead(
        line.namespace(), line.integer("commit"), line.integer("commit_at"), line.integer("history_floor")
    )


def read_state(line: Line, namespace: Namespace, newer: State | None) -> State:
    """The state of a line, checked as anything that enters a store is; `newer` is the state of the line before."""
    number, kind = line.integer("entry"), line.text("kind")
    if kind not in KINDS:
        raise line.wrong(f"has the unknown kind {kind!r}")
    key = key_of(line.text("path")) if "path" in line.fields else line.text("key")
    value = _read_value(line, number, newer)
    attributes = line.fields.get("attributes")
    if not isinstance(attributes, dict):
        raise line.wrong('needs an object "attributes"')
    try:
        check_key(key)
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
        created_at=line.integer("created_at"),
        updated_at=line.integer("updated_at"),
        expires_at=None if line.fields.get("expires_at") is None else line.integer("expires_at"),
        actor=line.optional_text("actor"),
    )
    return State(entry, _read_action(line), line.integer("at"), _read_ending(line))


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
    return Ending(_read_action(ended), ended.integer("commit"), ended.integer("at"), ended.optional_text("actor"))
