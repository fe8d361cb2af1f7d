"""The ledger: how entries change, on every backend. Put, move, delete, expire; former states; revisions; identities.

A backend subclasses `Ledger` and implements the row operations at its end: read a live row, write one, add a former
one. The rules are here, once:

- A state is live until the next change of its entry. Then its row goes to history, with what ended it. Its text and
  value are kept as deltas of the state that replaces it.
- A key's revisions only grow. A new state gets the revision above the last one. The loss of a key's last state, by a
  deletion, a move or expiry, takes a revision too.
- An identity belongs to one live entry of a kind. An expired entry gives it up, a live one does not.
- What has expired is ended by the next transaction of its namespace, with the time of its expiry. No user did it, so
  history names no actor. A transaction ends its own expired entries before it counts or changes many.
- An entry with `WITHOUT_HISTORY` leaves nothing in history when its state is replaced or ends.
- A transaction takes its commit number with its first change. One that changes nothing leaves no trace.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Protocol

from commonplace.backends import deltas
from commonplace.backends.rows import Former, Live, dump, entry_of
from commonplace.checks import Namespace, check_key
from commonplace.entry import WITHOUT_HISTORY, Action, Draft, Entry
from commonplace.errors import ConfigurationError, Conflict, NotFound
from commonplace.language.passages import Passage
from commonplace.store import Transaction, Usage

SWEEP_LIMIT = 500
"""How many expired entries are ended at a time."""

NO_HISTORY = f'"{WITHOUT_HISTORY}":false'

AFTER_LOSS = 2
"""The loss of a key's last state took the revision between."""


def next_revision(last: int | None) -> int:
    """The revision of a key's first state after a loss; `last` is the highest in its history."""
    return 1 if last is None else last + AFTER_LOSS


class Index(Protocol):
    """What a backend derives from live entries for search: labels, passages, keywords, pending marks."""

    def add(self, entry: Entry, text_passages: Sequence[Passage] | None) -> None: ...

    def change(self, before: Entry, after: Entry) -> None: ...

    def remove(self, entry: Entry) -> None: ...


class Ledger(Transaction):
    """A transaction. The rules are here, and a backend implements the rows.

    The backend's constructor sets the attributes, and calls `_sweep` if something has expired.
    """

    looks_for_identities = True
    """Whether an identity is looked up before a row is inserted. A backend sets this to False if its `_insert_row`
    detects a conflict itself, calls `_free_identity` and tries again.
    """

    indexes_later = False
    """Whether the index makes passages itself, later; then only those that are prepared are given to it."""

    flag: Callable[[bool], int] = bool
    """How the backend stores a boolean."""

    time: int
    _namespace: Namespace
    _actor: str | None
    _index: Index

    # Changes

    def put(self, draft: Draft, *, is_fresh: bool = False, is_restored: bool = False) -> Entry:
        if self.screen is not None:
            draft = self.screen(draft)
        check_key(draft.key)
        is_json = not isinstance(draft.value, str)
        value = dump(draft.value) if is_json else draft.value
        assert isinstance(value, str)
        searchable = draft.searchable
        text = None if not is_json and searchable == value else searchable
        former, revision = (None, 1) if is_fresh else self._place(draft.kind, draft.key)
        identity = draft.identity
        if identity is not None and (self.looks_for_identities if former is None else identity != former.identity):
            self._free_identity(draft.kind, identity)
        commit, time = self._take_commit(), self.time
        begun_by: Action = "restored" if is_restored else "created" if former is None else "updated"
        if former is None:
            entry_id, splices = self._new_id(), 0
            created_at = time if draft.created_at is None else draft.created_at
        else:
            entry_id = former.id
            created_at = former.created_at if draft.created_at is None else draft.created_at
            splices = self._keep_former(former, text, value, "updated", time)
        row = Live(
            entry_id,
            draft.kind,
            draft.key,
            identity,
            self.flag(is_json),
            dump(draft.attributes),
            revision,
            commit,
            time,
            created_at,
            time if draft.updated_at is None else draft.updated_at,
            draft.expires_at,
            self._actor,
            draft.heading,
            text,
            value,
            begun_by,
            splices,
        )
        entry = Entry(
            self._namespace,
            draft.kind,
            draft.key,
            draft.value,
            searchable,
            draft.heading,
            draft.attributes,
            identity,
            revision,
            commit,
            created_at,
            row.updated_at,
            draft.expires_at,
            self._actor,
            entry_id,
        )
        if former is None:
            self._insert_row(row)
            self._index.add(entry, None if self.indexes_later and draft.prepared is None else draft.passages)
        else:
            self._update_row(row, former)
            self._index.change(entry_of(self._namespace, former), entry)
        return entry

    def delete(self, kind: str, key: str) -> Entry | None:
        row, _ = self._place(kind, key)
        return None if row is None else self._end(row, "deleted", self.time)

    def move(self, kind: str, key: str, new_key: str, heading: str | None) -> Entry:
        row, _ = self._place(kind, key)
        if row is None:
            raise NotFound(f"no {kind} with this key to move")
        taken, revision = self._place(kind, check_key(new_key))
        if taken is not None:
            raise Conflict(f"a {kind} with the new key exists already")
        entry = entry_of(self._namespace, self._move(row, new_key, heading, revision))
        self._index.change(entry_of(self._namespace, row), entry)
        return entry

    def _move(self, row: Live, new_key: str, heading: str | None, revision: int) -> Live:
        """Give a live row a new key, where the next state has at least `revision`; returns the row as it is then."""
        commit = self._take_commit()
        moved = row._replace(
            key=new_key,
            heading=heading,
            revision=max(row.revision + 1, revision),
            commit=commit,
            valid_from=self.time,
            updated_at=self.time,
            actor=self._actor,
            begun_by="moved_here",
            deltas=self._keep_former(row, row.text, row.value, "moved_away", self.time),
        )
        self._move_row(moved)
        return moved

    def renew(self, kind: str, key: str, expires_at: int) -> Entry | None:
        row, _ = self._place(kind, key)
        if row is None:
            return None
        self._take_commit()
        renewed = row._replace(expires_at=expires_at)
        self._update_row(renewed, row)
        return entry_of(self._namespace, renewed)

    def delete_range(self, kind: str, prefix: str) -> int:
        self._sweep_all()
        return super().delete_range(kind, prefix)

    def move_range(self, kind: str, prefix: str, new_prefix: str, heading_of: Callable[[str], str | None]) -> int:
        self._sweep_all()
        return super().move_range(kind, prefix, new_prefix, heading_of)

    def usage(self) -> Usage:
        self._sweep_all()
        return super().usage()  # type: ignore[safe-super]  # of the backend's reader

    # States and their history

    def _place(self, kind: str, key: str) -> tuple[Live | None, int]:
        """The live row of a key, and the revision of its next state. A row that has expired is ended first."""
        row, last = self._live_row(kind, key)
        if row is None:
            return None, next_revision(last)
        if row.expires_at is not None and row.expires_at <= self.time:
            self._expire(row)
            return None, row.revision + AFTER_LOSS
        return row, row.revision + 1

    def _free_identity(self, kind: str, identity: str | None) -> None:
        """End an expired entry that still has the identity; raise Conflict if a live one has it."""
        row = None if identity is None else self._identity_row(kind, identity)
        if row is None:
            return
        if row.expires_at is None or row.expires_at > self.time:
            raise Conflict(f"another {kind} has the identity {identity} already")
        self._expire(row)

    def _sweep(self) -> int:
        """End entries that have expired, up to a limit; returns how many."""
        expired = self._expired_rows(SWEEP_LIMIT)
        for row in expired:
            self._expire(row)
        return len(expired)

    def _sweep_all(self) -> None:
        while self._sweep() == SWEEP_LIMIT:
            continue

    def _expire(self, row: Live) -> None:
        """End a state at the time of its expiry. A state that was written later than that was never valid."""
        assert row.expires_at is not None
        self._end(row, "expired", max(row.expires_at, row.valid_from))

    def _end(self, row: Live, ended_by: Action, valid_to: int) -> Entry:
        self._end_row(row, ended_by, valid_to)
        entry = entry_of(self._namespace, row)
        self._index.remove(entry)
        return entry

    def _end_row(self, row: Live, ended_by: Action, valid_to: int) -> None:
        self._keep_former(row, None, None, ended_by, valid_to)
        self._delete_row(row)

    def _keep_former(
        self, row: Live, new_text: str | None, new_value: str | None, ended_by: Action, valid_to: int
    ) -> int:
        """Write a live row to history, as deltas of what replaces it; returns how many splices in a row that makes."""
        if _has_no_history(row):
            self._take_commit()
            return 0
        text, value, splices = deltas.kept_of(row.text, row.value, new_text, new_value, row.deltas)
        actor = None if ended_by == "expired" else self._actor
        ending = (ended_by, self._take_commit(), valid_to, actor)
        self._keep_row(Former._make((*row.head, text, value, row.begun_by, *ending)))
        return splices

    # The row operations that a backend implements

    @abstractmethod
    def _take_commit(self) -> int:
        """This transaction's commit number. The first call takes it; without a call there is no commit."""

    @abstractmethod
    def _new_id(self) -> int:
        """An id for a new entry, above all ids that entries of this namespace have."""

    @abstractmethod
    def _live_row(self, kind: str, key: str) -> tuple[Live | None, int | None]:
        """The live row of a key, expired or not, and the highest revision of the key's former states."""

    @abstractmethod
    def _identity_row(self, kind: str, identity: str) -> Live | None:
        """The live row with an identity, expired or not."""

    @abstractmethod
    def _expired_rows(self, limit: int) -> Sequence[Live]:
        """Live rows that have expired: `expires_at` is at or before `time`."""

    @abstractmethod
    def _insert_row(self, row: Live) -> None: ...

    @abstractmethod
    def _update_row(self, row: Live, former: Live) -> None:
        """Replace the live row of the same id; kind and key stay."""

    @abstractmethod
    def _move_row(self, row: Live) -> None:
        """Replace the live row of the same id; identity, attributes, text and value stay."""

    @abstractmethod
    def _delete_row(self, row: Live) -> None: ...

    @abstractmethod
    def _keep_row(self, row: Former) -> None:
        """Add a row to history."""


def _has_no_history(row: Live) -> bool:
    # Most rows are not parsed. The words may be part of a nested value, so the text alone does not decide.
    return NO_HISTORY in row.attributes and json.loads(row.attributes).get(WITHOUT_HISTORY) is False


# The time of a commit: later than the last one, and not from a clock that is clearly wrong

RELEASED = datetime(2026, 11, 1, tzinfo=UTC)
FARTHEST = timedelta(days=3_653)
AHEAD = timedelta(days=1)
"""Commits this far ahead of the clock were made with a wrong clock."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000


@cache
def _installed() -> int:
    """When this program was installed. A correct clock is never earlier."""
    return max((RELEASED - _EPOCH) // _MICROSECOND, os.stat(__file__).st_mtime_ns // 1_000)


def commit_time(now: int, last: int) -> int:
    """The time of a new commit, given that of the namespace's last one.

    A machine may have been off for years. But a clock that is ten years ahead of both the last commit and this program
    counts as wrong, because one commit with it would move all later ones into the future.
    """
    if now - last > _DAY and now - max(last, _installed()) > FARTHEST // _MICROSECOND:
        raise ConfigurationError(
            f"the clock says {shown(now)}, more than ten years after the last commit and after this program was "
            "installed; nothing was changed: set the clock, or, if it is right, install commonplace again"
        )
    return max(now, last + 1)


def shown(time: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=time)).date().isoformat()
    except OverflowError:
        return "a year after 9999"


def is_late(now: int) -> int:
    """The time from which on a commit counts as ahead of the clock."""
    return now + AHEAD // _MICROSECOND


def late_problem(count: int, last: int | None) -> list[str]:
    """What `verify` reports about namespaces whose last commit is ahead of the clock."""
    if not count or last is None:
        return []
    return [
        f"times: the last commit of {count:,} namespaces is ahead of the clock, up to {shown(last)}; "
        "`commonplace move SRC DST --mend-times` copies the book with these times set back"
    ]
