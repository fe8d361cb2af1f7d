"""The entries of the store on SQLite: writing and reading them, their history and feed, what lies beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from commonplace.backends.paging import after_prefix
from commonplace.backends.sqlite import maintenance, system
from commonplace.backends.sqlite.connection import MEMORY, translated
from commonplace.backends.sqlite.group import Group
from commonplace.backends.sqlite.reading import SQLiteReader, namespace_id
from commonplace.backends.sqlite.store_base import OpenStore
from commonplace.backends.sqlite.transaction import SQLiteTransaction
from commonplace.checks import JSON, Namespace, stored_namespace
from commonplace.store import Reader, StoreStats, Transaction, Usage, Waker

T = TypeVar("T")


class EntryStore(OpenStore):
    """Entries, their history and the feed."""

    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        def job(group: Group) -> tuple[T, int | None]:
            transaction = SQLiteTransaction(self._writing, group, namespace, self._clock, actor)
            result = work(transaction)
            return result, transaction.finish()

        result: tuple[T, int | None] = self._run(job)
        return result

    def read(self, namespace: Namespace, work: Callable[[Reader], T], *, snapshot: bool = True) -> T:
        with self._reading(namespace, snapshot=snapshot) as connection:
            number = namespace_id(connection, namespace)
            return work(SQLiteReader(connection, namespace, number, self._clock()))

    def namespaces(
        self, prefix: Namespace = (), *, after: Namespace | None = None, limit: int = 1_000
    ) -> list[Namespace]:
        path = "/".join(prefix)
        sql, parameters = "SELECT path FROM namespace WHERE 1", []
        if prefix:
            sql += " AND (path = ? OR (path >= ? AND path < ?))"
            parameters += [path, path + "/", after_prefix(path + "/")]
        if after is not None:
            sql += " AND path > ?"
            parameters.append("/".join(after))
        with self._reading() as connection:
            rows = connection.execute(f"{sql} ORDER BY path LIMIT ?", (*parameters, limit)).fetchall()
            return [stored_namespace(row[0]) for row in rows]

    def usage(self, prefix: Namespace) -> Usage:
        with self._reading() as connection:
            return system.usage_below(connection, prefix)

    def stats(self) -> StoreStats:
        with self._reading(snapshot=True) as connection:
            return maintenance.stats(connection, self.path)

    def waker(self) -> Waker:
        self._check_usable()
        if self.path == MEMORY:
            return system.MemoryWaker(self._changes_in_memory)
        with translated(self.path, in_use=True):
            return system.FileWaker(self._connect())

    def _changes_in_memory(self) -> int:
        with self._memory_lock:
            return 0 if self._is_closed else self._writing.total_changes()

    def system_rows(self, part: str, key: str | None = None) -> dict[str, JSON]:
        with self._reading() as connection:
            return system.rows_of(connection, part, key)

    def system_put(self, part: str, key: str, value: JSON | None, *, only_new: bool = False) -> bool:
        is_changed: bool = self._run(lambda group: system.put(self._writing, part, key, value, only_new=only_new))
        return is_changed
