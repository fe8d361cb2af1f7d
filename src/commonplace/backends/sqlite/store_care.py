"""Care for the store on SQLite: erasing, copies, checks, and whole namespaces in and out."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

from commonplace.backends.sqlite import damage, maintenance
from commonplace.backends.sqlite.connection import MEMORY, Connection, translated, unavailable
from commonplace.backends.sqlite.group import Group
from commonplace.backends.sqlite.locks import WriterQueue
from commonplace.backends.sqlite.store_base import OpenStore
from commonplace.backends.sqlite.transaction import SQLiteTransaction
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
        def job(group: Group) -> int:
            transaction = SQLiteTransaction(self._writing, group, namespace, self._clock, None)
            erased = maintenance.purge(self._writing, transaction, kind, key, prefix, history_before)
            for part in parts:
                erased += maintenance.purge(self._writing, transaction, *part, history_before)
            transaction.finish()
            return erased

        erased: int = self._run(job)
        if self.path != MEMORY:  # even where nothing was left to erase: an earlier purge may not have come so far
            self._truncate_log()
        return erased

    def _truncate_log(self) -> None:
        """Move everything from the log into the file and cut the log; waits for readers, bounded."""
        deadline = time.monotonic() + self._busy_seconds
        # A place in the queue and a connection of its own: those of this store are its writer's, who may be at work.
        connection = self._connect_apart()
        queue = WriterQueue(self.path, self._busy_seconds)
        try:
            assert self._guard is not None
            with queue.held(), translated(self.path, in_use=True):
                self._guard.check(connection)
                while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
                    if time.monotonic() > deadline:
                        raise unavailable(
                            "the purge is done, but a long read keeps old pages in the book's log; "
                            "close other programs on this book and purge again",
                            self.path,
                        )
                self._guard.finish(checkpointed=True)
        finally:
            connection.close()
            queue.close()

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        with self._reading(snapshot=True) as connection:
            # Only a snapshot that has begun holds still: else every write of others makes the copy start again.
            connection.execute("SELECT entry FROM next_id").fetchall()
            maintenance.backup(connection, target, progress)

    def verify(self, progress: Progress | None = None) -> list[str]:
        with self._reading(snapshot=True) as connection:
            problems = [problem.text for problem in damage.problems(connection, progress)]
            if not problems:
                late = "SELECT count(*), max(commit_time) FROM namespace WHERE commit_time > ?"
                problems += late_problem(*connection.execute(late, (is_late(self._clock()),)).fetchall()[0])
            return problems + [
                f"file: the log was damaged, and commits in it are lost; it is kept as {kept}: restore a backup or go "
                "on without them, then move that file away"
                for kept in self._damaged_logs()
            ]

    def rebuild_keywords(self, progress: Progress | None = None) -> None:
        from commonplace.backends.sqlite import index

        self._run(lambda group: index.rebuild_keywords(self._writing, group, progress))

    def export(self, namespaces: Sequence[Namespace] | None = None) -> Generator[NamespaceHead | State, None, None]:
        from commonplace.backends.sqlite import exchange

        yield from self._in_one_snapshot(lambda connection: exchange.export(connection, namespaces))

    def salvage(
        self, unreadable: Callable[[str], object], namespaces: Sequence[Namespace] | None = None
    ) -> Generator[NamespaceHead | State, None, None]:
        from commonplace.backends.sqlite import exchange

        yield from self._in_one_snapshot(lambda connection: exchange.salvage(connection, namespaces, unreadable))

    def _in_one_snapshot(
        self, read: Callable[[Connection], Iterable[NamespaceHead | State]]
    ) -> Generator[NamespaceHead | State, None, None]:
        self._check_usable()
        if self.path == MEMORY:
            with self._memory_lock, self._naming_damage(self._writing, None):
                yield from read(self._writing)
            return
        # A connection of its own: the snapshot lasts as long as the caller takes, and other reads go on beside it.
        connection = self._connect_apart()
        try:
            with self._naming_damage(connection, None):
                connection.execute("BEGIN")
                yield from read(connection)
        finally:
            connection.close()

    def adopt(
        self,
        head: NamespaceHead,
        read: Callable[[], Iterable[State]],
        check: Callable[[Usage], object] | None = None,
    ) -> int:
        from commonplace.backends.sqlite import exchange

        adopted: int = self._run(lambda group: exchange.adopt(self._writing, group, head, read(), check))
        return adopted
