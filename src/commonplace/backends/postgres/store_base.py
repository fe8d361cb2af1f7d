"""What every part of the store on PostgreSQL stands on: connections, a namespace's sessions, changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import psycopg

from commonplace.backends.postgres.connection import (
    CONNECT_SECONDS,
    Durability,
    Session,
    adapters,
    check_server,
    check_vector,
    create_pool,
    translated,
)
from commonplace.backends.postgres.migrate import migrate, newest
from commonplace.backends.postgres.place import parse_url
from commonplace.backends.postgres.reading import Spot, tenant_of
from commonplace.backends.postgres.runner import PATIENCE_SECONDS, READ, Notifier, Replica, Runner
from commonplace.backends.postgres.transaction import PostgresTransaction
from commonplace.checks import Namespace
from commonplace.store import Store

T = TypeVar("T")
KNOWN_NAMESPACES = 100_000


class OpenStore(Store):
    """A store whose database is open: it runs work in sessions, and knows where each namespace lies."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 20,
        idle_seconds: float = 30.0,
        query_seconds: float = 30.0,
        patience_seconds: float = PATIENCE_SECONDS,
        durability: Durability = "full",
        clock: Callable[[], int] | None = None,
        replica_url: str | None = None,
    ) -> None:
        self.place = parse_url(url)
        # A caller of a service gets half of each: its slow calls, of both kinds together, leave connections to others.
        self.parallel_reads = pool_size
        self.parallel_writes = max(1, pool_size * 3 // 4)
        self._clock = clock
        self._known = newest()
        self._spots: dict[Namespace, Spot] = {}
        with translated(self.place.shown), self._connect_plainly() as connection:
            check_server(connection, self.place)
            check_vector(connection, self.place)
            migrate(connection, self.place)
            self._context = adapters(connection)
        self._pool = create_pool(
            self.place.conninfo,
            self.place,
            self._context,
            size=pool_size,
            idle_seconds=idle_seconds,
            query_seconds=query_seconds,
            durability=durability,
        )
        self._runner = Runner(self.place, self._pool, known=self._known, patience_seconds=patience_seconds)
        self._notifier = Notifier(self._pool, self._channel)
        self._replica: Replica | None = None
        with translated(self.place.shown):
            # Waited for: a call before the first connection is there would have a second one made.
            self._pool.open(wait=True, timeout=query_seconds)
        if replica_url is not None:
            pool = create_pool(
                parse_url(replica_url).conninfo,
                self.place,
                self._context,
                size=pool_size,
                idle_seconds=idle_seconds,
                query_seconds=query_seconds,
                durability=durability,
            )
            pool.open()
            place = replace(self.place, conninfo=parse_url(replica_url).conninfo)
            self._replica = Replica(place, pool, known=self._known)

    @property
    def _channel(self) -> str:
        return f"{self.place.schema}_commit"

    def _connect_plainly(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.place.conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)

    def _connect(self) -> psycopg.Connection[Any]:
        """A connection outside of the pool, for what takes as long as its caller does."""
        known, vector_schema = self._context
        connection = psycopg.connect(
            self.place.conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS, context=known
        )
        connection.execute(
            "SELECT set_config('search_path', %s, false)", (f"{self.place.schema}, {vector_schema}, pg_temp",)
        )
        return connection

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock()

    def close(self) -> None:
        if self._runner.is_closed:
            return
        self._runner.is_closed = True
        self._notifier.close()
        if self._replica is not None:
            self._replica.close()
        self._pool.close()

    # A namespace's sessions

    def _read(
        self,
        namespace: Namespace,
        missing: T,
        work: Callable[[Session, Spot], T],
        *,
        snapshot: bool = False,
        is_search: bool = False,
    ) -> T:
        """Read in a namespace; `missing` if it does not exist. A search may be answered by the replica."""
        tenant = tenant_of(namespace)

        def run(session: Session) -> T:
            spot = self._spot(session, namespace, tenant)
            return missing if spot is None else work(session, spot)

        if is_search and self._replica is not None:
            return self._replica.read(tenant, run, lambda: self._runner.read(tenant, run))
        return self._runner.read(tenant, run, snapshot=snapshot)

    def _spot(self, session: Session, namespace: Namespace, tenant: str) -> Spot | None:
        """The namespace's number and part: they never change, so one look is enough."""
        known = self._spots.get(namespace)
        if known is None:
            rows = session.rows(
                "SELECT id, tableoid::regclass::text FROM namespace WHERE tenant = %s AND path = %s",
                (tenant, "/".join(namespace)),
            )
            if not rows:
                return None
            if len(self._spots) >= KNOWN_NAMESPACES:
                self._spots.clear()
            part = int(rows[0][1].rpartition("_p")[2])
            known = self._spots[namespace] = Spot(namespace, tenant, rows[0][0], part)
        return known

    # Changes

    def _change(
        self, namespace: Namespace, actor: str | None, work: Callable[[Session, PostgresTransaction], T]
    ) -> tuple[T, int | None]:
        def run(session: Session) -> tuple[tuple[T, int | None], bool]:
            transaction = PostgresTransaction(session, namespace, self._now(), actor)
            result = work(session, transaction)
            return (result, transaction.finish()), transaction.is_changed

        result, commit = self._runner.write(tenant_of(namespace), run)
        if commit is not None:
            self._notifier.notice_commit()
            self._note_write()
        return result, commit

    def _note_write(self) -> None:
        if self._replica is not None:
            rows = self._runner.system(
                lambda session: session.rows("SELECT pg_current_wal_insert_lsn()::text", last=True), mode=READ
            )
            self._replica.note_write(rows[0][0])
