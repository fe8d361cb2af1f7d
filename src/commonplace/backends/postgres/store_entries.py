"""The entries of the store on PostgreSQL: writing and reading them, their history and feed, what lies beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from commonplace.backends.paging import EmptyReader, after_prefix
from commonplace.backends.postgres import maintenance, reading, system
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.reading import PostgresReader, tenant_of
from commonplace.backends.postgres.runner import READ, SNAPSHOT
from commonplace.backends.postgres.store_base import OpenStore
from commonplace.checks import JSON, Namespace, stored_namespace
from commonplace.store import Reader, StoreStats, Transaction, Usage, Waker

T = TypeVar("T")


class EntryStore(OpenStore):
    """Writes and reads."""

    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        return self._change(namespace, actor, lambda session, transaction: work(transaction))

    def read(self, namespace: Namespace, work: Callable[[Reader], T], *, snapshot: bool = True) -> T:
        tenant = tenant_of(namespace)

        def run(session: Session) -> T:
            spot = self._spot(session, namespace, tenant)
            if spot is None:
                return work(EmptyReader(namespace))
            return work(PostgresReader(session, spot, self._now(), is_single=not snapshot))

        return self._runner.read(tenant, run, snapshot=snapshot)

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
        return self._runner.system(lambda session: reading.usage_below(session, prefix), mode=READ)

    def stats(self) -> StoreStats:
        return self._runner.system(
            lambda session: maintenance.stats(session, self.place.schema), mode=SNAPSHOT, is_long=True
        )

    # Beside the entries

    def waker(self) -> Waker:
        self._runner.check_usable()
        return system.ListeningWaker(self._connect_plainly, self._channel, self.place.shown)

    def system_rows(self, part: str, key: str | None = None) -> dict[str, JSON]:
        return self._runner.system(lambda session: system.rows_of(session, part, key), mode=READ)

    def system_put(self, part: str, key: str, value: JSON | None, *, only_new: bool = False) -> bool:
        return self._runner.system(lambda session: system.put(session, part, key, value, only_new=only_new))
