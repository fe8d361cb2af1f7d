"""How much is held below a namespace that has a limit: read now and then, and counted on with each write.

A sum over all namespaces of a key is not made for each write. What was read is used for a second, or longer where
reading took long, but only until the writes of this process have taken a tenth of the room that it left. Before a write
is refused it is read again. So up to ten servers pass a limit by no more than what they are writing at the same moment.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from commonplace.checks import Namespace
from commonplace.errors import TooLarge
from commonplace.space.rules import Rules
from commonplace.store import NOTHING, Store, Usage

T = TypeVar("T")
Note = Callable[[Usage], None]

GOOD_FOR_SECONDS = 1.0
GOOD_FOR_TIMES = 50
"""A sum is used at least so many times as long as it took: reading costs a fiftieth at most."""

SHARE_OF_ROOM = 10
MAX_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read, that with the writes of this process since, and until when it is good."""

    read: Usage
    usage: Usage
    until: float

    def has_room_left(self, rules: Rules) -> bool:
        """Whether this process has taken less than its share of the room that was there."""
        pairs = (
            (rules.max_entries, self.read.entries, self.usage.entries),
            (rules.max_bytes, self.read.all_bytes, self.usage.all_bytes),
        )
        return all(most is None or (now - had) * SHARE_OF_ROOM <= most - had for most, had, now in pairs)


class Meter:
    """What the roots of limits hold, for one store."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = Lock()
        self._known: OrderedDict[Namespace, _Known] = OrderedDict()

    def run(self, rules: Rules, work: Callable[[Usage | None, Note], T]) -> T:
        """Run a change that is given what is held (None: look in the namespace itself) and tells what it adds."""
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
            result = work(self._read(root), note)  # something may have been erased meanwhile
        self._add(root, added)
        return result

    def _recent(self, root: Namespace, rules: Rules) -> Usage | None:
        with self._lock:
            known = self._known.get(root)
        is_good = known is not None and self._monotonic() < known.until and known.has_room_left(rules)
        return known.usage if known is not None and is_good else None

    def _read(self, root: Namespace) -> Usage:
        start = self._monotonic()
        usage = self._store.usage(root)
        end = self._monotonic()
        with self._lock:
            self._known[root] = _Known(usage, usage, end + max(GOOD_FOR_SECONDS, GOOD_FOR_TIMES * (end - start)))
            self._known.move_to_end(root)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return usage

    def _add(self, root: Namespace, more: Usage) -> None:
        with self._lock:
            known = self._known.get(root)
            if known is not None:
                self._known[root] = replace(known, usage=known.usage + more)
