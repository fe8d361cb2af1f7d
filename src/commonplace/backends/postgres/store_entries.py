"""The entries of the store on PostgreSQL: writing and reading them, their history and feed, what lies beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from commonplace.backends.paging import after_prefix, check_feed, check_limit
from commonplace.backends.postgres import maintenance, reading, system
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.postgres.runner import READ, SNAPSHOT
from commonplace.backends.postgres.store_base import OpenStore
from commonplace.checks import JSON, Namespace, stored_namespace
from commonplace.entry import Change, Entry, Revision
from commonplace.errors import InvalidInput
from commonplace.store import Child, NamespaceStats, Page, Scan, StoreStats, Transaction, Usage, Waker

T = TypeVar("T")


class EntryStore(OpenStore):
    """Writes and reads."""

    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        return self._change(namespace, actor, lambda session, transaction: work(transaction))

    def get(
        self, namespace: Namespace, kind: str, keys: Sequence[str], *, as_of: int | None = None
    ) -> list[Entry | None]:
        def work(session: Session, spot: Spot) -> list[Entry | None]:
            if as_of is None:
                return reading.get(session, spot, kind, keys, self._now(), last=True)
            return reading.get_as_of(session, spot, kind, keys, as_of)

        return self._read(namespace, [None] * len(keys), work, snapshot=as_of is not None)

    def find(self, namespace: Namespace, kind: str, identity: str) -> Entry | None:
        return self._read(
            namespace,
            None,
            lambda session, spot: reading.find(session, spot, kind, identity, self._now(), last=True),
        )

    def last_key(self, namespace: Namespace, kind: str, identity: str) -> str | None:
        return self._read(
            namespace, None, lambda session, spot: reading.last_key(session, spot, kind, identity, last=True)
        )

    def load(self, namespace: Namespace, ids: Sequence[int]) -> dict[int, Entry]:
        return self._read(namespace, {}, lambda session, spot: reading.load(session, spot, ids, self._now()))

    def scan(self, namespace: Namespace, scan: Scan) -> Page:
        check_limit(scan.limit)
        return self._read(
            namespace,
            Page((), None),
            lambda session, spot: reading.scan(session, spot, scan, self._now(), last=True),
            snapshot=scan.as_of is not None,
        )

    def children(self, namespace: Namespace, kind: str, prefix: str) -> list[Child]:
        return self._read(
            namespace,
            [],
            lambda session, spot: reading.children(session, spot, kind, prefix, self._now(), last=True),
        )

    def namespaces(
        self, prefix: Namespace = (), *, after: Namespace | None = None, limit: int = 1_000
    ) -> list[Namespace]:
        path = "/".join(prefix)
        where, parameters = ["true"], []
        if prefix:
            where.append("(path = %s OR (path >= %s AND path < %s))")
            parameters += [path, path + "/", after_prefix(path + "/")]
        if after is not None:
            where.append("path > %s")
            parameters.append("/".join(after))
        sql = f"SELECT path FROM namespace WHERE {' AND '.join(where)} ORDER BY path LIMIT %s"
        rows = self._runner.system(lambda session: session.rows(sql, (*parameters, limit), last=True), mode=READ)
        return [stored_namespace(row[0]) for row in rows]

    def usage(self, prefix: Namespace) -> Usage:
        return self._runner.system(lambda session: maintenance.usage_below(session, prefix), mode=READ)

    def history(self, namespace: Namespace, kind: str, key: str) -> list[Revision]:
        return self._read(
            namespace,
            [],
            lambda session, spot: reading.history(session, spot, kind, key, self._now()),
            snapshot=True,
        )

    def state(self, namespace: Namespace, kind: str, key: str, revision: int) -> Entry | None:
        return self._read(
            namespace, None, lambda session, spot: reading.state(session, spot, kind, key, revision), snapshot=True
        )

    def end_expired(self, namespace: Namespace) -> bool:
        def has_expired(session: Session, spot: Spot) -> bool:
            rows = session.rows(
                f"SELECT 1 FROM namespace WHERE tenant = %s AND id = %s AND expires_next <= {reading.NOW}",
                (spot.tenant, spot.id, self._now()),
                last=True,
            )
            return bool(rows)

        # Every transaction first ends what has expired.
        return (
            self._read(namespace, False, has_expired) and self.write(namespace, lambda transaction: None)[1] is not None
        )

    def changes(self, namespace: Namespace, after: int = 0, limit: int = 1_000) -> list[Change]:
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")

        self.end_expired(namespace)

        def work(session: Session, spot: Spot) -> list[Change]:
            rows = session.rows(
                "SELECT history_floor, commit_number FROM namespace WHERE tenant = %s AND id = %s",
                (spot.tenant, spot.id),
            )
            check_feed(after, *rows[0])
            return reading.changes(session, spot, after, limit)

        found = self._read(namespace, None, work, snapshot=True)
        if found is None:
            check_feed(after, 0, 0)
            return []
        return found

    def stats(self) -> StoreStats:
        return self._runner.system(
            lambda session: maintenance.stats(session, self.place.schema), mode=SNAPSHOT, is_long=True
        )

    def namespace_stats(self, namespace: Namespace) -> NamespaceStats:
        return self._read(
            namespace,
            maintenance.no_stats(namespace),
            lambda session, spot: maintenance.namespace_stats(session, spot, self._now()),
            snapshot=True,
        )

    # Beside the entries

    def waker(self) -> Waker:
        self._runner.check_usable()
        return system.ListeningWaker(self._connect_plainly, self._channel, self.place.shown)

    def system_get(self, part: str, key: str) -> JSON | None:
        return self._runner.system(lambda session: system.get(session, part, key), mode=READ)

    def system_list(self, part: str) -> dict[str, JSON]:
        return self._runner.system(lambda session: system.rows_of(session, part), mode=READ)

    def system_put(self, part: str, key: str, value: JSON, *, only_new: bool = False) -> bool:
        return self._runner.system(lambda session: system.put(session, part, key, value, only_new=only_new))

    def system_delete(self, part: str, key: str) -> bool:
        return self._runner.system(lambda session: system.delete(session, part, key))
