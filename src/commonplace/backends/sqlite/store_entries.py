"""The entries of the store on SQLite: writing and reading them, their history and feed, what lies beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from commonplace.backends.paging import after_prefix, check_feed
from commonplace.backends.sqlite import maintenance, reading, system
from commonplace.backends.sqlite.checksums import LIVE, live_entry
from commonplace.backends.sqlite.connection import MEMORY, translated
from commonplace.backends.sqlite.group import Group, read_namespace
from commonplace.backends.sqlite.store_base import OpenStore
from commonplace.backends.sqlite.transaction import SQLiteTransaction
from commonplace.backends.states import prefixed
from commonplace.checks import JSON, Namespace, stored_namespace
from commonplace.entry import Change, Entry, Revision
from commonplace.errors import InvalidInput
from commonplace.store import Child, NamespaceStats, Page, Scan, StoreStats, Transaction, Usage, Waker

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

    def get(
        self, namespace: Namespace, kind: str, keys: Sequence[str], *, as_of: int | None = None
    ) -> list[Entry | None]:
        with self._reading(namespace) as connection:
            place = self._namespace_id(connection, namespace)
            if as_of is None:
                now = self._clock()
                return [reading.get(connection, namespace, place, kind, key, now) for key in keys]
            return [reading.get_as_of(connection, namespace, place, kind, key, as_of) for key in keys]

    def find(self, namespace: Namespace, kind: str, identity: str) -> Entry | None:
        with self._reading(namespace) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.find(connection, namespace, place, kind, identity, self._clock())

    def last_key(self, namespace: Namespace, kind: str, identity: str) -> str | None:
        with self._reading(namespace) as connection:
            return reading.last_key(connection, self._namespace_id(connection, namespace), kind, identity)

    def load(self, namespace: Namespace, ids: Sequence[int]) -> dict[int, Entry]:
        with self._reading(namespace) as connection:
            place = self._namespace_id(connection, namespace)
            rows = connection.execute(
                f"SELECT {prefixed(LIVE, 'e')} FROM json_each(?) AS j CROSS JOIN entry AS e ON e.id = j.value"
                " WHERE e.namespace = ? AND (e.expires_at IS NULL OR e.expires_at > ?)",
                (f"[{','.join(map(str, ids))}]", place, self._clock()),
            )
            return {row[0]: live_entry(namespace, row) for row in rows}

    def scan(self, namespace: Namespace, scan: Scan) -> Page:
        with self._reading(namespace, snapshot=scan.as_of is not None) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.scan(connection, namespace, place, scan, self._clock())

    def values(self, namespace: Namespace, scan: Scan) -> list[JSON]:
        if scan.as_of is not None:
            return super().values(namespace, scan)
        with self._reading(namespace) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.values(connection, namespace, place, scan, self._clock())

    def children(self, namespace: Namespace, kind: str, prefix: str) -> list[Child]:
        with self._reading(namespace) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.children(connection, namespace, place, kind, prefix, self._clock())

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

    def history(self, namespace: Namespace, kind: str, key: str) -> list[Revision]:
        with self._reading(namespace, snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.history(connection, namespace, place, kind, key, self._clock())

    def state(self, namespace: Namespace, kind: str, key: str, revision: int) -> Entry | None:
        with self._reading(namespace, snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.state(connection, namespace, place, kind, key, revision)

    def end_expired(self, namespace: Namespace) -> bool:
        with self._reading(namespace) as connection:
            expired = connection.execute(
                "SELECT 1 FROM entry WHERE namespace = ? AND expires_at <= ? LIMIT 1",
                (self._namespace_id(connection, namespace), self._clock()),
            ).fetchall()
        # Every transaction first ends what has expired.
        return bool(expired) and self.write(namespace, lambda transaction: None)[1] is not None

    def changes(self, namespace: Namespace, after: int = 0, limit: int = 1_000) -> list[Change]:
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")
        self.end_expired(namespace)
        with self._reading(namespace, snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            row = read_namespace(connection, namespace)
            check_feed(after, *((0, 0) if row is None else (row.history_floor, row.commit_number)))
            return reading.changes(connection, place, after, limit)

    def usage(self, prefix: Namespace) -> Usage:
        with self._reading() as connection:
            return system.usage_below(connection, prefix)

    def stats(self) -> StoreStats:
        with self._reading(snapshot=True) as connection:
            return maintenance.stats(connection, self.path)

    def namespace_stats(self, namespace: Namespace) -> NamespaceStats:
        with self._reading(namespace, snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            return maintenance.namespace_stats(connection, namespace, place, self._clock())

    def waker(self) -> Waker:
        self._check_usable()
        if self.path == MEMORY:
            return system.MemoryWaker(self._changes_in_memory)
        with translated(self.path, in_use=True):
            return system.FileWaker(self._connect())

    def _changes_in_memory(self) -> int:
        with self._memory_lock:
            return 0 if self._is_closed else self._writing.total_changes()

    def system_get(self, part: str, key: str) -> JSON | None:
        with self._reading() as connection:
            return system.get(connection, part, key)

    def system_list(self, part: str) -> dict[str, JSON]:
        with self._reading() as connection:
            return system.rows_of(connection, part)

    def system_put(self, part: str, key: str, value: JSON, *, only_new: bool = False) -> bool:
        is_new: bool = self._run(lambda group: system.put(self._writing, part, key, value, only_new=only_new))
        return is_new

    def system_delete(self, part: str, key: str) -> bool:
        was_there: bool = self._run(lambda group: system.delete(self._writing, part, key))
        return was_there
