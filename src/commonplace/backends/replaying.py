"""Whole namespaces out of rows and into them, on every backend: every state, live and former, with nothing lost.

States go entry by entry, the newest first. So each former text is decoded from the one that was read just before it,
and kept as a delta of the one that was written just before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol, cast

from commonplace.backends import deltas
from commonplace.backends.states import Former, Live, damaged, dump, entry_of
from commonplace.checks import Namespace
from commonplace.entry import Action, Entry
from commonplace.errors import InvalidInput
from commonplace.store import Ending, NamespaceHead, State

Content = tuple[str | None, str | None]
"""A state's stored text and value."""

NO_CONTENT: Content = (None, None)


# Out


def live_state(namespace: Namespace, row: Live) -> tuple[State, Content]:
    """A live state, and the text and value that the state before it is a delta of."""
    state = State(entry_of(namespace, row), cast(Action, row.begun_by), row.valid_from, None)
    return state, (row.text, row.value)


def former_state(namespace: Namespace, row: Former, newer: Content) -> tuple[State, Content]:
    """A former state, given the text and value of the one after it; and its own text and value."""
    try:
        text = None if row.text is None else deltas.decode_last(newer[0], [row.text])
        value = deltas.decode_last(newer[1], [row.value])
    except deltas.DAMAGE as error:
        raise damaged(namespace, row.kind, row.key, revision=row.revision) from error
    ending = Ending(cast(Action, row.ended_by), row.ended_commit, row.valid_to, row.ended_actor)
    entry = entry_of(namespace, (*row.head, text, value))
    return State(entry, cast(Action, row.begun_by), row.valid_from, ending), (text, value)


# In


class Incoming(Protocol):
    """Where the rows of a namespace that is adopted go."""

    def next_id(self) -> int:
        """An id for a new entry."""

    def add_live(self, row: Live, entry: Entry) -> None:
        """Add a live row, and what is derived from its entry for search."""

    def add_former(self, row: Former) -> None: ...


def adopt_states(
    head: NamespaceHead, states: Iterable[State], incoming: Incoming, flag: Callable[[bool], int] = bool
) -> int:
    """Write the states of a namespace as rows; how many. `flag` is how the backend stores a boolean."""
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
    """One entry on its way in, by its number where it comes from; `add` is called with its states in their order."""

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
            self._live = row, replace(entry, id=self._id)
        else:
            if self._newer is not None and entry.revision >= self._newer[0]:
                raise InvalidInput(f"the revisions of entry {self.number} are not given newest first")
            self._keep(row, state.ended)
        self._newer = row.revision, row.text, row.value

    def finish(self) -> None:
        if self._live is not None:
            row, entry = self._live
            # How many splices lead away from the live state, so that the next update keeps the chain short.
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
