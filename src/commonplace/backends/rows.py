"""Entries as rows, on every backend: the columns of live and former states, and the way from a row back to an entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from json import encoder
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from commonplace.backends import deltas
from commonplace.backends.deltas import Stored
from commonplace.checks import JSON, Namespace
from commonplace.entry import SEPARATOR, Action, Entry
from commonplace.errors import Corrupt, InvalidInput
from commonplace.store import Ending, NamespaceHead, State

COLUMNS = (
    "id, kind, key, identity, is_json, attributes, revision, commit_number, valid_from, "
    "created_at, updated_at, expires_at, actor, heading, text, value"
)
NAMES = slice(1, 3)
"""The kind and the key."""
HEAD = slice(0, 14)
"""The columns before the text and the value."""
CONTENT = slice(14, 16)
"""The text and the value: those of a former state are deltas."""
LIVE_WIDTH = 18
"""How many columns `Live` has."""
FORMER_COLUMNS = COLUMNS.replace("id, kind", "entry, kind", 1)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=dict)
_make_encoder = getattr(encoder, "c_make_encoder", None)
_encode_container: Callable[[JSON, int], Iterable[str]] | None = _make_encoder and _make_encoder(
    None, dict, encoder.encode_basestring, None, ":", ",", False, False, False
)
"""What `_ENCODER` makes again for each value, which takes as long as the encoding itself. It does not look for a value
that contains itself, which no check lets through. None on a Python without it.
"""
_read = json.JSONDecoder().raw_decode
"""`dump` writes no surrounding whitespace, so none needs to be skipped. This takes half the time of `json.loads`."""


class Live(NamedTuple):
    """The row of a live state: COLUMNS, the action that began it, and the length of its chain of splices."""

    id: int
    kind: str
    key: str
    identity: str | None
    is_json: int
    attributes: str
    revision: int
    commit: int
    valid_from: int
    created_at: int
    updated_at: int
    expires_at: int | None
    actor: str | None
    heading: str | None
    text: str | None
    """None if it is the value."""
    value: str
    begun_by: Action
    deltas: int

    @property
    def head(self) -> tuple[Any, ...]:
        """The columns before the text and the value."""
        return self[:14]


class Former(NamedTuple):
    """The row of a former state: its columns with the text and the value as deltas, what began it and what ended it."""

    entry: int
    kind: str
    key: str
    identity: str | None
    is_json: int
    attributes: str
    revision: int
    commit: int
    valid_from: int
    created_at: int
    updated_at: int
    expires_at: int | None
    actor: str | None
    heading: str | None
    text: Stored | None
    value: Stored
    begun_by: Action
    ended_by: Action
    ended_commit: int
    valid_to: int
    ended_actor: str | None

    @property
    def head(self) -> tuple[Any, ...]:
        """The columns before the text and the value."""
        return self[:14]

    @property
    def beginning(self) -> tuple[Any, ...]:
        """The columns up to what began the state."""
        return self[:17]

    @property
    def ending(self) -> tuple[Any, ...]:
        """The columns that say what ended the state."""
        return self[17:]


def columns(alias: str) -> str:
    return prefixed(COLUMNS, alias)


def prefixed(names: str, alias: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in names.split(", "))


def dump(value: JSON) -> str:
    if type(value) is str:
        return encoder.encode_basestring(value)
    return _ENCODER.encode(value) if _encode_container is None else "".join(_encode_container(value, 0))


def value_of(is_json: int, value: str) -> JSON:
    found: JSON = _read(value)[0] if is_json else value
    return found


def entry_of(namespace: Namespace, row: Sequence[Any]) -> Entry:
    """A live row, in the order of COLUMNS, or a former one whose text and value have been decoded."""
    try:
        return _entry_of(namespace, row)
    except (ValueError, TypeError, RecursionError) as error:  # JSON that we wrote is unreadable only if it is damaged
        _, kind, key, _, _, _, revision, *_ = row
        raise damaged(namespace, kind, key, revision=revision) from error


def damaged(namespace: Namespace, kind: Any, key: Any, *, revision: Any = None) -> Corrupt:
    """The error for a row that is not what was written."""
    state = "" if revision is None else f", revision {revision},"
    return Corrupt(
        f"{kind} {str(key).replace(SEPARATOR, '/')}{state} of namespace {'/'.join(namespace)} is damaged in the book; "
        "restore a backup, or take what can still be read with `commonplace export --salvage`"
    )


def _entry_of(namespace: Namespace, row: Sequence[Any]) -> Entry:
    (id, kind, key, identity, is_json, attributes, revision, commit, _valid_from,
     created_at, updated_at, expires_at, actor, heading, text, value) = row[:16]  # fmt: skip
    return Entry(
        id=id,
        namespace=namespace,
        kind=kind,
        key=key,
        value=value_of(is_json, value),
        text=text if text is not None else "" if is_json else value,
        heading=heading,
        attributes=_read(attributes)[0],
        identity=identity,
        revision=revision,
        commit=commit,
        created_at=created_at,
        updated_at=updated_at,
        expires_at=expires_at,
        actor=actor,
    )


def labels(attributes: Mapping[str, JSON], names: Sequence[str]) -> set[tuple[str, str]]:
    """The indexed attributes as (name, value), for the values that are strings or lists of strings."""
    found = set()
    for name in names:
        value = attributes.get(name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, str):
                found.add((name, item))
    return found


# Export and import of whole namespaces. States are ordered by entry, the newest first. So each former text is decoded
# from the one that was read just before it, and stored as a delta of the one that was written just before it.

Content = tuple[str | None, str | None]
"""A state's stored text and value."""

NO_CONTENT: Content = (None, None)


# Out


def live_state(namespace: Namespace, row: Live) -> tuple[State, Content]:
    """A live state, and the text and value that the state before it is a delta of."""
    state = State(entry_of(namespace, row), row.begun_by, row.valid_from, None)
    return state, (row.text, row.value)


def former_state(namespace: Namespace, row: Former, newer: Content) -> tuple[State, Content]:
    """A former state, given the text and value of the one after it; and its own text and value."""
    try:
        text = None if row.text is None else deltas.decode_last(newer[0], [row.text])
        value = deltas.decode_last(newer[1], [row.value])
    except deltas.DAMAGE as error:
        raise damaged(namespace, row.kind, row.key, revision=row.revision) from error
    ending = Ending(row.ended_by, row.ended_commit, row.valid_to, row.ended_actor)
    entry = entry_of(namespace, (*row.head, text, value))
    return State(entry, row.begun_by, row.valid_from, ending), (text, value)


# In


_WITHOUT_ID = attrgetter(*(field.name for field in fields(Entry) if field.name != "id"))


class Incoming(Protocol):
    """Writes the rows of a namespace that is imported."""

    def next_id(self) -> int:
        """An id for a new entry."""

    def add_live(self, row: Live, entry: Entry) -> None:
        """Add a live row, and what is derived from its entry for search."""

    def add_former(self, row: Former) -> None: ...


def adopt_states(
    head: NamespaceHead, states: Iterable[State], incoming: Incoming, flag: Callable[[bool], int] = bool
) -> int:
    """Write the states of a namespace as rows; returns how many. `flag` is how the backend stores a boolean."""
    count = 0
    entry: _Adoption | None = None
    for state in states:
        if entry is None or state.entry.id != entry.number:
            if entry is not None:
                if state.entry.id < entry.number:
                    raise InvalidInput(f"entry {state.entry.id} comes after entry {entry.number}; keep the order")
                entry.finish()
            entry = _Adoption(head, incoming, flag, state.entry.id)
        entry.add(state)
        count += 1
    if entry is not None:
        entry.finish()
    return count


class _Adoption:
    """An entry that is being imported. `number` is its id in the source; `add` is called with its states in order."""

    def __init__(self, head: NamespaceHead, incoming: Incoming, flag: Callable[[bool], int], number: int) -> None:
        self.number = number
        self._head = head
        self._incoming = incoming
        self._flag = flag
        self._id = incoming.next_id()
        self._newer: tuple[int, str | None, str] | None = None
        self._live: tuple[Live, Entry] | None = None
        self._splices = 0
        self._live_splices: int | None = None

    def add(self, state: State) -> None:
        entry = state.entry
        latest = entry.commit if state.ended is None else max(entry.commit, state.ended.commit)
        if latest > self._head.commit:
            last = self._head.commit
            raise InvalidInput(f"a state of commit {latest} is newer than its namespace's last commit, {last}")
        row = self._row(state)
        if state.ended is None:
            if self._newer is not None:
                raise InvalidInput(f"entry {self.number} has a live state that is not its newest")
            self._live = row, Entry(*(*_WITHOUT_ID(entry), self._id))
        else:
            if self._newer is not None and entry.revision >= self._newer[0]:
                raise InvalidInput(f"the revisions of entry {self.number} are not given newest first")
            self._keep(row, state.ended)
        self._newer = row.revision, row.text, row.value

    def finish(self) -> None:
        if self._live is not None:
            row, entry = self._live
            # The length of the live state's chain of splices, so that the next update keeps the chain short.
            splices = self._splices if self._live_splices is None else self._live_splices
            self._incoming.add_live(row._replace(deltas=splices), entry)

    def _row(self, state: State) -> Live:
        entry = state.entry
        is_json = not isinstance(entry.value, str)
        value = dump(entry.value) if is_json else str(entry.value)
        return Live(
            self._id,
            entry.kind,
            entry.key,
            entry.identity,
            self._flag(is_json),
            dump(entry.attributes),
            entry.revision,
            entry.commit,
            state.valid_from,
            entry.created_at,
            entry.updated_at,
            entry.expires_at,
            entry.actor,
            entry.heading,
            None if not is_json and entry.text == value else entry.text,
            value,
            state.begun_by,
            0,
        )

    def _keep(self, row: Live, ended: Ending) -> None:
        _, newer_text, newer_value = self._newer or (0, None, None)
        text, value, splices = deltas.kept_of(row.text, row.value, newer_text, newer_value, self._splices)
        if splices == 0 and deltas.is_whole(value) and self._live_splices is None:
            self._live_splices = self._splices
        self._splices = splices
        ending = (ended.action, ended.commit, ended.at, ended.actor)
        self._incoming.add_former(Former._make((*row.head, text, value, row.begun_by, *ending)))
