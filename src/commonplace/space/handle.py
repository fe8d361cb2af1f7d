"""What the parts of a space share: the store, the one namespace they may touch, and who acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from commonplace.checks import Namespace
from commonplace.engine.indexing import Indexer
from commonplace.entry import Entry
from commonplace.store import Store, Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Handle:
    """A store narrowed to one namespace."""

    store: Store
    namespace: Namespace
    indexer: Indexer
    actor: str | None

    def write(self, work: Callable[[Transaction], T]) -> tuple[T, int | None]:
        """Run a change; its result and its commit number, None when nothing changed."""
        result = self.store.write(self.namespace, work, actor=self.actor)
        if result[1] is not None:
            self.indexer.notice_write()
        return result

    def get(self, kind: str, key: str, *, as_of: int | None = None) -> Entry | None:
        return self.store.get(self.namespace, kind, [key], as_of=as_of)[0]
