"""A change that is made only while an entry is as the caller saw it; nobody writes between the look and it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from commonplace.errors import Outdated
from commonplace.store import Transaction

T = TypeVar("T")
Seen: TypeAlias = int | tuple[int, int]
"""A revision, or one and `updated_at` in microseconds, which together no other state has.

A message touches its thread without a new revision, and after a purge revisions begin anew.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """An entry by its stored key and by its name, and the revisions it may have; 0 is none, and () is any but 0."""

    kind: str
    key: str
    name: str
    revisions: tuple[Seen, ...]

    def met(self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """A change that raises Outdated, and does nothing, where the entry has another revision."""

        def change(transaction: Transaction) -> T:
            entry = transaction.get(self.kind, self.key)
            found, at = (0, 0) if entry is None else (entry.revision, entry.updated_at)
            if not {found, (found, at)}.intersection(self.revisions) and (self.revisions or not found):
                present = f"is at revision {found}" if found else "does not exist"
                if any(isinstance(seen, tuple) and seen[0] == found for seen in self.revisions):
                    present += ", but not as it was seen"
                raise Outdated(f"{self.kind} {self.name} {present}; read it again, then decide", found)
            return work(transaction)

        return change
