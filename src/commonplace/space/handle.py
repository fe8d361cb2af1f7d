"""What the parts of a space share: the store, the one namespace they may touch, and who acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from commonplace.checks import Namespace
from commonplace.engine.indexing import Indexer
from commonplace.entry import Entry
from commonplace.space.expected import Expected
from commonplace.space.once import Once
from commonplace.space.quota import Meter, Note
from commonplace.space.rules import Action, Rules
from commonplace.store import Store, Transaction, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Handle:
    """A store narrowed to one namespace."""

    store: Store
    namespace: Namespace
    indexer: Indexer
    actor: str | None
    rules: Rules = Rules()  # noqa: RUF009 - frozen
    once: Once | None = None
    expected: tuple[Expected, ...] = ()
    meter: Meter | None = None
    """Counts what is held below a root of limits; without it these are on the namespace alone."""

    def write(self, work: Callable[[Transaction], T], *actions: Action) -> tuple[T, int | None]:
        """Run a change; its result and its commit number, None when nothing changed.

        It counts as the action `write`, or as those named.
        """
        self.rules.check(*(actions or ("write",)))

        def run(held: Usage | None = None, note: Note | None = None) -> tuple[T, int | None]:
            change = self.rules.kept(work, held, note)
            for expected in self.expected:
                change = expected.met(change)
            if self.once is not None:
                change = self.once.done(change, work.__qualname__)
            with self.indexer.writing():
                return self.store.write(self.namespace, change, actor=self.actor)

        result = run() if self.meter is None else self.meter.run(self.rules, run)
        if result[1] is not None:
            self.indexer.notice_write()
        return result

    def get(self, kind: str, key: str, *, as_of: int | None = None) -> Entry | None:
        return self.store.get(self.namespace, kind, [key], as_of=as_of)[0]
