"""Care for the store on PostgreSQL: erasing, copies, checks, and whole namespaces in and out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path

from commonplace.backends.postgres import maintenance
from commonplace.backends.postgres.connection import Session, translated
from commonplace.backends.postgres.reading import NOW
from commonplace.backends.postgres.runner import SNAPSHOT
from commonplace.backends.postgres.store_base import OpenStore
from commonplace.backends.postgres.transaction import PostgresTransaction
from commonplace.backends.times import is_late, late_problem
from commonplace.checks import Namespace
from commonplace.store import NamespaceHead, Part, Progress, State, Usage


class CareStore(OpenStore):
    """What keeps a book well, and moves it."""

    def purge(
        self,
        namespace: Namespace,
        *,
        kind: str | None = None,
        key: str | None = None,
        prefix: str | None = None,
        history_before: int | None = None,
        parts: Sequence[Part] = (),
    ) -> int:
        def work(session: Session, transaction: PostgresTransaction) -> int:
            erased = maintenance.purge(session, transaction, kind, key, prefix, history_before)
            return erased + sum(maintenance.purge(session, transaction, *part, history_before) for part in parts)

        return self._change(namespace, None, work)[0]

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        from commonplace.backends.postgres import copies

        self._runner.check_usable()
        with translated(self.place.shown), self._connect() as connection:
            copies.backup(connection, self.place, target, progress)

    def restore(self, source: Path) -> None:
        """Fill this store, which must be empty, from a backup."""
        from commonplace.backends.postgres import copies

        self._runner.check_usable()
        with translated(self.place.shown), self._connect() as connection:
            copies.restore(connection, self.place, source)
        self._spots.clear()

    def verify(self, progress: Progress | None = None) -> list[str]:
        def look(session: Session) -> list[str]:
            now = session.rows(f"SELECT {NOW}", (self._now(),))[0][0]
            late = "SELECT count(*), max(commit_time) FROM namespace WHERE commit_time > %s"
            return maintenance.verify(session, progress) + late_problem(*session.rows(late, (is_late(now),))[0])

        return self._runner.system(look, mode=SNAPSHOT, is_long=True)

    def rebuild_keywords(self, progress: Progress | None = None) -> None:
        from commonplace.backends.postgres import index

        total = sum(self.stats().entries.values())
        done = 0

        def report(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None:
                progress(done, total, "entries")

        after: Namespace | None = None
        while page := self.namespaces(after=after):
            for namespace in page:
                self._runner.system(partial(index.rebuild_keywords, namespace=namespace, report=report), is_long=True)
            after = page[-1]

    def export(self, namespaces: Sequence[Namespace] | None = None) -> Generator[NamespaceHead | State, None, None]:
        from commonplace.backends.postgres import exchange

        self._runner.check_usable()
        # A connection of its own: the snapshot lasts as long as the caller takes, and other reads go on beside it.
        with translated(self.place.shown), self._connect() as connection:
            session = Session(connection, self._known)
            session.begin(SNAPSHOT, self.place.system_role, None)
            yield from exchange.export(session, namespaces)

    def adopt(
        self,
        head: NamespaceHead,
        read: Callable[[], Iterable[State]],
        check: Callable[[Usage], object] | None = None,
    ) -> int:
        from commonplace.backends.postgres import exchange

        adopted = self._runner.system(
            lambda session: exchange.adopt(session, head, read(), check), is_long=True, copies=True
        )
        self._notifier.notice_commit()
        return adopted
