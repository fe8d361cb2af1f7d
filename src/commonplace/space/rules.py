"""What a caller may do in a namespace: which actions, how much it may store, and what no text may contain.

The rules apply below every interface, so that no route or tool can forget them.

A limit on several namespaces (`Rules.root`) does not add them all up for each write. `Meter` reads the sum, adds the
writes of this process, and uses the result for a second, or longer if reading took long, but only until this process
has used a tenth of the room that was left. It reads the sum again before a write is refused. So up to ten servers
exceed a limit by no more than what they write at the same moment.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Literal, TypeVar, cast, get_args

from commonplace.checks import Namespace
from commonplace.entry import Draft
from commonplace.errors import Forbidden, TooLarge
from commonplace.space.names import FILE, file_measures
from commonplace.store import NOTHING, Store, Transaction, Usage

T = TypeVar("T")
Action = Literal["read", "write", "delete", "admin"]
Screen = Callable[[Draft], Draft]
ACTIONS: tuple[Action, ...] = get_args(Action)

Note = Callable[[Usage], None]

VALID_SECONDS = 1.0
VALID_TIMES_READ = 50
"""A sum is valid for at least this many times as long as reading it took, so reading takes at most 2 % of the time."""

SHARE_OF_ROOM = 10
MAX_SUMS = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """The permissions and limits of a caller. Reading is always allowed. `screen` checks or changes what is written."""

    actions: frozenset[Action] = frozenset(ACTIONS)
    max_entries: int | None = None
    max_bytes: int | None = None
    screen: Screen | None = None
    root: Namespace | None = None
    """The limits apply to all namespaces at and below this one together; None applies them to the written one alone."""

    reach: Namespace | None = ()
    """Reads of several namespaces at once are allowed at and below this one; None allows none."""

    @property
    def is_limited(self) -> bool:
        return self.max_entries is not None or self.max_bytes is not None

    def check(self, *actions: Action) -> None:
        for action in actions:
            if action not in self.actions:
                raise Forbidden(f"the action {action!r} is not permitted; use a key that has it")

    def check_reach(self, namespace: Namespace) -> None:
        """Refuse a read of all namespaces below one that the caller does not reach."""
        if self.reach is None:
            raise Forbidden("these credentials reach one namespace only; leave `below` out, or use another key")
        if namespace[: len(self.reach)] != self.reach:
            wanted = f"the namespaces below {'/'.join(namespace)}" if namespace else "all namespaces"
            raise Forbidden(
                f"these credentials do not reach {wanted}; ask at or below {'/'.join(self.reach)}, or use another key"
            )

    def with_screen(self, screen: Screen) -> Rules:
        """These rules with another screen, which runs before their own."""
        own = self.screen
        return replace(self, screen=screen if own is None else lambda draft: own(screen(draft)))

    def screened(self, draft: Draft) -> Draft:
        """The draft after the screen. If this is called before a transaction, it is not repeated in it."""
        if self.screen is None or draft.is_screened_by(self.screen):
            return draft
        new = self.screen(draft)
        if new is not draft and new.kind == FILE:
            new = replace(new, attributes={**new.attributes, **file_measures(cast("str", new.value))})
        return new.with_screen(self.screen)

    def guard(
        self,
        work: Callable[[Transaction], T],
        held: Usage | None = None,
        note: Callable[[Usage], None] | None = None,
    ) -> Callable[[Transaction], T]:
        """Wrap a change so that it is refused as a whole if it breaks a rule.

        `held` is what the root of the limits holds already; `note` is called with what the change adds.
        """
        if self.screen is None and not self.is_limited:
            return work

        def change(transaction: Transaction) -> T:
            transaction.screen = None if self.screen is None else self.screened
            if not self.is_limited:
                return work(transaction)
            before = transaction.usage()
            result = work(transaction)
            more = transaction.usage() - before
            self.check_room(before if held is None else held, more)
            if note is not None:
                note(more)
            return result

        return change

    def check_room(self, held: Usage, more: Usage) -> None:
        """Refuse what would exceed a limit. A deletion is always allowed, so that a full namespace can be emptied."""
        after = held + more
        if self.max_entries is not None and more.entries > 0 and after.entries > self.max_entries:
            raise TooLarge(
                f"{self._where} would hold {after.entries:,} entries; at most {self.max_entries:,} are allowed; "
                "delete some first"
            )
        is_deletion = more.entries < 0 and more.bytes <= 0
        if self.max_bytes is None or more.all_bytes <= 0 or is_deletion or after.all_bytes <= self.max_bytes:
            return
        raise TooLarge(
            f"{self._where} would hold {after.all_bytes:,} bytes; at most {self.max_bytes:,} are allowed, and "
            f"{held.bytes:,} are used by entries and {held.former_bytes:,} by their history; deleting keeps history; "
            "purge it (this needs the action 'admin'), or have the limit raised"
        )

    @property
    def _where(self) -> str:
        if self.root is None:
            return "the namespace"
        return f"{'/'.join(self.root)} and below" if self.root else "the book"


@dataclass(frozen=True, slots=True)
class _Sum:
    """The usage that was read, the same with the writes of this process since, and until when it is valid."""

    read: Usage
    usage: Usage
    until: float

    def has_room_left(self, rules: Rules) -> bool:
        """Whether this process has used less than its share of the room that was left."""
        pairs = (
            (rules.max_entries, self.read.entries, self.usage.entries),
            (rules.max_bytes, self.read.all_bytes, self.usage.all_bytes),
        )
        return all(most is None or (now - had) * SHARE_OF_ROOM <= most - had for most, had, now in pairs)


class Meter:
    """Measures what the roots of limits hold, for one store."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = Lock()
        self._sums: OrderedDict[Namespace, _Sum] = OrderedDict()

    def run(self, rules: Rules, work: Callable[[Usage | None, Note], T]) -> T:
        """Run a change. It gets what is held (None: read it from the namespace), and notes what it adds."""
        added = NOTHING

        def note(more: Usage) -> None:
            nonlocal added
            added = more

        root = rules.root
        if root is None or not rules.is_limited:
            return work(None, note)
        known = self._recent(root, rules)
        try:
            result = work(known or self._read(root), note)
        except TooLarge:
            if known is None:
                raise
            result = work(self._read(root), note)  # something may have been erased since
        self._add(root, added)
        return result

    def _recent(self, root: Namespace, rules: Rules) -> Usage | None:
        with self._lock:
            known = self._sums.get(root)
        is_valid = known is not None and self._monotonic() < known.until and known.has_room_left(rules)
        return known.usage if known is not None and is_valid else None

    def _read(self, root: Namespace) -> Usage:
        start = self._monotonic()
        usage = self._store.usage(root)
        end = self._monotonic()
        with self._lock:
            self._sums[root] = _Sum(usage, usage, end + max(VALID_SECONDS, VALID_TIMES_READ * (end - start)))
            self._sums.move_to_end(root)
            if len(self._sums) > MAX_SUMS:
                self._sums.popitem(last=False)
        return usage

    def _add(self, root: Namespace, more: Usage) -> None:
        with self._lock:
            known = self._sums.get(root)
            if known is not None:
                self._sums[root] = replace(known, usage=known.usage + more)
