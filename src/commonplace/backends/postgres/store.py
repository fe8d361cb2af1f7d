"""The store on PostgreSQL: one schema of a database that any number of servers share."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import psycopg

from commonplace.backends.paging import after_prefix, check_limit
from commonplace.backends.postgres import maintenance, reading, searching, system, together, upkeep, vectors
from commonplace.backends.postgres.connection import CONNECT_SECONDS, Session, adapters, create_pool
from commonplace.backends.postgres.failures import translated
from commonplace.backends.postgres.migrate import check_schema, migrate
from commonplace.backends.postgres.notifying import Notifier
from commonplace.backends.postgres.place import parse_url
from commonplace.backends.postgres.reading import Spot, tenant_of
from commonplace.backends.postgres.replicas import Replica
from commonplace.backends.postgres.running import PATIENCE_SECONDS, READ, SNAPSHOT, Runner
from commonplace.backends.postgres.transaction import PostgresTransaction
from commonplace.checks import JSON, Namespace, parse_namespace
from commonplace.entry import Change, Entry, Revision
from commonplace.errors import Conflict, InvalidInput
from commonplace.filters import Filter
from commonplace.store import (
    Answer,
    Asked,
    Candidate,
    Child,
    Choose,
    Indexing,
    NamespaceHead,
    NamespaceStats,
    Page,
    Pending,
    Progress,
    Scan,
    State,
    Store,
    StoreStats,
    TermCounts,
    Transaction,
    Waker,
)

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

T = TypeVar("T")
KNOWN_NAMESPACES = 100_000
MODELS_KNOWN_SECONDS = 0.5


class PostgresStore(Store):
    """Entries in PostgreSQL. Safe for many threads and many servers."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 20,
        idle_seconds: float = 30.0,
        query_seconds: float = 30.0,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], int] | None = None,
        replica_url: str | None = None,
    ) -> None:
        self.place = parse_url(url)
        self._clock = clock
        self._spots: dict[Namespace, Spot] = {}
        self._known_models: tuple[float, list[vectors.Model]] | None = None
        with translated(self.place.shown), self._connect_plainly() as connection:
            if not check_schema(connection, self.place):
                migrate(connection, self.place)
            self._context = adapters(connection)
        self._pool = create_pool(
            self.place.conninfo,
            self.place,
            self._context,
            size=pool_size,
            idle_seconds=idle_seconds,
            query_seconds=query_seconds,
        )
        self._runner = Runner(self.place, self._pool, patience_seconds=patience_seconds)
        self._notifier = Notifier(self._pool, self._channel)
        self._replica: Replica | None = None
        with translated(self.place.shown):
            self._pool.open()
        if replica_url is not None:
            pool = create_pool(
                parse_url(replica_url).conninfo,
                self.place,
                self._context,
                size=pool_size,
                idle_seconds=idle_seconds,
                query_seconds=query_seconds,
            )
            pool.open()
            self._replica = Replica(replace(self.place, conninfo=parse_url(replica_url).conninfo), pool)

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
        """Read in a namespace; `missing` where there is none. A search may be answered by the replica."""
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

    # Writing

    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        return self._change(namespace, actor, lambda session, transaction: work(transaction))

    def _change(
        self, namespace: Namespace, actor: str | None, work: Callable[[Session, PostgresTransaction], T]
    ) -> tuple[T, int | None]:
        def run(session: Session, attempt: UUID) -> tuple[tuple[T, int | None], bool]:
            transaction = PostgresTransaction(session, namespace, self._now(), actor)
            result = work(session, transaction)
            return (result, transaction.finish(attempt)), transaction.is_changed

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

    # Reading

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
        return [parse_namespace(row[0]) for row in rows]

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

    def changes(self, namespace: Namespace, after: int = 0, limit: int = 1_000) -> list[Change]:
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")

        def has_expired(session: Session, spot: Spot) -> bool:
            rows = session.rows(
                f"SELECT 1 FROM namespace WHERE tenant = %s AND id = %s AND expires_next <= {reading.NOW}",
                (spot.tenant, spot.id, self._now()),
                last=True,
            )
            return bool(rows)

        if self._read(namespace, False, has_expired):
            self.write(namespace, lambda transaction: None)  # every transaction first ends what has expired

        def work(session: Session, spot: Spot) -> list[Change]:
            floor = session.rows(
                "SELECT history_floor FROM namespace WHERE tenant = %s AND id = %s", (spot.tenant, spot.id)
            )[0][0]
            if after < floor:
                raise Conflict(
                    f"the feed no longer reaches back to commit {after}; read everything again and go on from "
                    f"commit {floor}"
                )
            return reading.changes(session, spot, after, limit)

        return self._read(namespace, [], work, snapshot=True)

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

    # Search

    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        page = searching.Page(filter, limit, self._now(), also)
        return self._read(
            namespace,
            [],
            lambda session, spot: searching.search_text(session, spot, terms, page),
            is_search=True,
        )

    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        page = searching.Page(filter, limit, self._now())
        known = self._model(model)
        if known is None:
            return []
        return self._read(
            namespace,
            [],
            lambda session, spot: searching.search_vectors(session, spot, known, query, page),
            is_search=True,
        )

    def search(
        self, namespace: Namespace, asked: Asked, choose: Choose, *, unless_pending: bool = False
    ) -> Answer | None:
        model = None if asked.meaning is None else self._model(asked.meaning[0])
        if model is None or self._replica is not None:
            # Alone words need few questions; and a replica may propose, but what is live the primary says.
            return super().search(namespace, asked, choose, unless_pending=unless_pending)

        def work(session: Session, spot: Spot) -> Answer | None:
            return together.search(session, spot, asked, choose, model, self._now(), unless_pending=unless_pending)

        nothing: Answer | None = Answer([], [], {})
        return self._read(namespace, nothing, work)

    def _model(self, identity: str) -> vectors.Model | None:
        found = {model.identity: model for model in self._models()}
        if identity not in found:
            self._known_models = None
            found = {model.identity: model for model in self._models()}
        return found.get(identity)

    def _models(self) -> list[vectors.Model]:
        """All models. They change so rarely that a look twice a second is enough; every search asks for them."""
        known = self._known_models
        if known is None or time.monotonic() - known[0] > MODELS_KNOWN_SECONDS:
            asked_at = time.monotonic()
            known = self._known_models = (asked_at, self._runner.system(vectors.models, mode=READ))
        return known[1]

    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        from commonplace.backends.postgres import keywords

        return self._read(
            namespace,
            TermCounts(0, 0.0, {}),
            lambda session, spot: keywords.term_counts(session, spot, terms),
            snapshot=True,
        )

    def passage_vectors(
        self, namespace: Namespace, model: str, states: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, NDArray[float32]]]:
        known = self._model(model)
        if known is None:
            return []
        return self._read(
            namespace,
            [],
            lambda session, spot: vectors.passage_vectors(session, spot, known.id, states),
            is_search=True,
        )

    def former(self, namespace: Namespace, as_of: int, filter: Filter) -> list[Entry]:
        return self._read(
            namespace,
            [],
            lambda session, spot: reading.states_ended_after(session, spot, as_of, filter),
            snapshot=True,
        )

    def models(self) -> tuple[str | None, str | None]:
        roles = {model.role: model.identity for model in self._models()}
        serving = roles.get("serving")
        return serving, roles.get("target", serving)

    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        if namespace is None:
            pending = self._runner.system(lambda session: vectors.pending_count(session, None), mode=READ)
        else:
            pending = self._read(namespace, 0, vectors.pending_count)
        return Indexing(*self.models(), pending)

    def aim(self, model: str, dimensions: int) -> None:
        self._runner.system(lambda session: vectors.aim(session, model, dimensions), is_long=True)
        self._known_models = None
        self._drop_retired()

    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        return self._runner.system(
            lambda session: vectors.claim(session, limit, lease_seconds, self._now(), even_leased=even_leased)
        )

    def pending(self, namespace: Namespace, limit: int) -> list[Pending]:
        return self._read(namespace, [], lambda session, spot: vectors.pending(session, spot, limit))

    def index(self, model: str, embedded: Sequence[tuple[int, NDArray[float32]]]) -> None:
        if self._runner.system(lambda session: vectors.index(session, model, embedded)):
            self._known_models = None
            self._drop_retired()
        self._note_write()

    def _drop_retired(self) -> None:
        while self._runner.system(vectors.drop_retired):
            continue
        self._known_models = None

    def tidy(self) -> bool:
        with translated(self.place.shown):
            return upkeep.tidy(self._runner, self._connect, self.place.system_role)

    def vector_indexes(self) -> dict[str, bool]:
        """The approximate indexes that there are, and whether each is complete."""
        return self._runner.system(upkeep.known_indexes, mode=READ)

    def index_namespace(self, namespace: Namespace) -> list[str]:
        """Give a large namespace a vector index of its own, while everything goes on; the names of those made."""
        none: list[upkeep.VectorIndex] = []
        wanted = self._read(namespace, none, upkeep.index_of)
        known = self.vector_indexes()
        made = []
        for index in wanted:
            with translated(self.place.shown):
                if index.name not in known and upkeep.build(self._connect, self.place.system_role, index):
                    made.append(index.name)
        return made

    # Care

    def purge(
        self,
        namespace: Namespace,
        *,
        kind: str | None = None,
        key: str | None = None,
        history_before: int | None = None,
    ) -> int:
        erased, _ = self._change(
            namespace,
            None,
            lambda session, transaction: maintenance.purge(session, transaction, kind, key, history_before),
        )
        return erased

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
        return self._runner.system(lambda session: maintenance.verify(session, progress), mode=SNAPSHOT, is_long=True)

    def rebuild_keywords(self, progress: Progress | None = None) -> None:
        from commonplace.backends.postgres import rebuilding

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
                self._runner.system(
                    partial(rebuilding.rebuild_keywords, namespace=namespace, report=report), is_long=True
                )
            after = page[-1]

    def export(self, namespaces: Sequence[Namespace] | None = None) -> Generator[NamespaceHead | State, None, None]:
        from commonplace.backends.postgres import exchange

        self._runner.check_usable()
        # A connection of its own: the snapshot lasts as long as the caller takes, and other reads go on beside it.
        with translated(self.place.shown), self._connect() as connection:
            session = Session(connection, pipelined=False)
            session.begin(SNAPSHOT, self.place.system_role, None)
            yield from exchange.export(session, namespaces)

    def adopt(self, head: NamespaceHead, read: Callable[[], Iterable[State]]) -> int:
        from commonplace.backends.postgres import exchange

        adopted = self._runner.system(lambda session: exchange.adopt(session, head, read()), is_long=True, copies=True)
        self._notifier.notice_commit()
        return adopted

    def close(self) -> None:
        if self._runner.is_closed:
            return
        self._runner.is_closed = True
        self._notifier.close()
        if self._replica is not None:
            self._replica.close()
        self._pool.close()
