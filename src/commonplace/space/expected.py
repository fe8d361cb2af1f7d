"""A change that is made only while an entry is as the caller saw it; nobody writes between the look and it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from commonplace.errors import Outdated
from commonplace.store import Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Expected:
    """An entry by its stored key and by its name, and the revisions it may have; 0 is none, and () is any but 0."""

    kind: str
    key: str
    name: str
    revisions: tuple[int, ...]

    def met(self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """A change that raises Outdated, and does nothing, where the entry has another revision."""

        def change(transaction: Transaction) -> T:
            entry = transaction.get(self.kind, self.key)
            found = 0 if entry is None else entry.revision
            if found not in self.revisions and (self.revisions or not found):
                present = f"is at revision {found}" if found else "does not exist"
                raise Outdated(f"{self.kind} {self.name} {present}; read it again, then decide", found)
            return work(transaction)

        return change
