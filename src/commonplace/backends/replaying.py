"""An entry's states on their way in, the newest first, on every backend: their order is checked, former ones kept as
deltas of the states after them.
"""

from __future__ import annotations

from typing import Any

from commonplace.backends import deltas
from commonplace.backends.states import dump
from commonplace.errors import InvalidInput
from commonplace.store import NamespaceHead, State


class Replay:
    """One entry by its number in what comes in; `take` is given its states one after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._newer: tuple[int, str | None, str] | None = None
        self._splices = 0
        self._live_splices: int | None = None

    @property
    def splices(self) -> int:
        """How many lead away from the live state: its row tells, so that the next update keeps chains short."""
        return self._splices if self._live_splices is None else self._live_splices

    def take(self, head: NamespaceHead, state: State) -> tuple[deltas.Stored | None, deltas.Stored]:
        """What is to be stored as the state's text and value: the live one's as they are, a former one's deltas."""
        entry = state.entry
        latest = entry.commit if state.ended is None else max(entry.commit, state.ended.commit)
        if latest > head.commit:
            raise InvalidInput(f"a state of commit {latest} is newer than its namespace's last commit, {head.commit}")
        is_json = not isinstance(entry.value, str)
        value = dump(entry.value) if is_json else str(entry.value)
        text = None if not is_json and entry.text == value else entry.text
        stored: tuple[deltas.Stored | None, deltas.Stored]
        if state.ended is None:
            if self._newer is not None:
                raise InvalidInput(f"entry {self.number} has a live state that is not its newest")
            stored = text, value
        else:
            if self._newer is not None and entry.revision >= self._newer[0]:
                raise InvalidInput(f"the revisions of entry {self.number} are not given newest first")
            stored = self._kept(text, value)
        self._newer = entry.revision, text, value
        return stored

    def _kept(self, text: str | None, value: str) -> tuple[deltas.Stored | None, deltas.Stored]:
        _, newer_text, newer_value = self._newer or (0, None, None)
        kept_text, kept_value, in_a_row = deltas.kept_of(text, value, newer_text, newer_value, self._splices)
        if in_a_row == 0 and deltas.is_whole(kept_value) and self._live_splices is None:
            self._live_splices = self._splices
        self._splices = in_a_row
        return kept_text, kept_value


def columns_of(entry_id: int, state: State, text: Any, value: Any) -> tuple[Any, ...]:
    """A state as a row, in the order of COLUMNS, and what began it."""
    entry = state.entry
    return (
        entry_id,
        entry.kind,
        entry.key,
        entry.identity,
        not isinstance(entry.value, str),
        dump(entry.attributes),
        entry.revision,
        entry.commit,
        state.valid_from,
        entry.created_at,
        entry.updated_at,
        entry.expires_at,
        entry.actor,
        entry.heading,
        text,
        value,
        state.begun_by,
    )
