"""The store on PostgreSQL: one schema of a database that any number of servers share."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from commonplace.backends.ledger import NO_HISTORY, is_late, late_problem
from commonplace.backends.pages import EmptyReader, after_prefix
from commonplace.backends.postgres import candidates, index, maintenance
from commonplace.backends.postgres.connection import (
    CONNECT_SECONDS,
    Durability,
    Session,
    adapters,
    check_server,
    check_vector,
    create_pool,
    parse_url,
    texts_of,
    translated,
)
from commonplace.backends.postgres.migrate import distribute, is_distributed, migrate, newest
from commonplace.backends.postgres.reader import NOW, Location, PostgresReader, read_counts, tenant_of, usage_below
from commonplace.backends.postgres.runner import (
    PATIENCE_SECONDS,
    READ,
    REPLICA_ANSWER_SECONDS,
    SNAPSHOT,
    Notifier,
    Replica,
    Runner,
    changed_of,
)
from commonplace.backends.postgres.transaction import PostgresTransaction
from commonplace.backends.ranking import Page
from commonplace.backends.rows import dump
from commonplace.checks import JSON, Namespace, stored_namespace
from commonplace.errors import ConfigurationError
from commonplace.filters import Filter
from commonplace.store import (
    Candidate,
    Candidates,
    CheckUsage,
    Choose,
    Indexing,
    NamespaceHead,
    Part,
    Pending,
    Progress,
    Reader,
    ReadStates,
    SearchQuery,
    State,
    Store,
    StoreStats,
    TermCounts,
    Transaction,
    Usage,
    Waker,
)

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from commonplace.backends.postgres.memory import Memory, NamespaceMemory

T = TypeVar("T")
KNOWN_NAMESPACES = 100_000
SEARCH_TRIES = 3
"""How often a search loads a namespace again that is purged at the same time, before it searches without memory."""
MODELS_KNOWN_SECONDS = 0.5
RETIRED_STEPS = 10
ANALYZED_STATES = 5_000
"""An import of this many states is followed by ANALYZE: plans made from the statistics of an empty table are slow."""
WAKER_SECONDS = 0.2
"""How often a waker checks whether it was closed."""


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
        durability: Durability = "full",
        clock: Callable[[], int] | None = None,
        replica_url: str | None = None,
        cache_bytes: int = 512_000_000,
    ) -> None:
        self.place = parse_url(url)
        self._cache_bytes = cache_bytes
        # A caller of a service gets half of each, so that its slow calls of both kinds leave connections to others.
        self.parallel_reads = pool_size
        self.parallel_writes = max(1, pool_size * 3 // 4)
        self._clock = clock
        self._known = newest()
        self._spots: dict[Namespace, Location] = {}
        with translated(self.place.shown), self._connect_plainly() as connection:
            check_server(connection, self.place)
            check_vector(connection, self.place)
            migrate(connection, self.place)
            self.place = replace(self.place, is_distributed=is_distributed(connection, self.place))
            if self.place.is_distributed and replica_url is not None:
                raise ConfigurationError(
                    f"{self.place.shown} is distributed with Citus, which has no read replicas for searches; leave out "
                    "DATABASE_REPLICA_URL"
                )
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
            # Wait here, because a call before the first connection exists would create a second one.
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
                answer_seconds=REPLICA_ANSWER_SECONDS,
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
        """A connection outside of the pool, for work that takes as long as its caller."""
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

    def gauges(self) -> dict[str, float]:
        counts = self._pool.get_stats()
        found = {
            "database_connections": float(counts.get("pool_size", 0)),
            "database_connections_idle": float(counts.get("pool_available", 0)),
            "database_calls_waiting": float(counts.get("requests_waiting", 0)),
            "search_memory_bytes": float(self.vector_bytes),
        }
        if self._replica is not None:
            found["replica_lag_seconds"] = self._replica.lag_seconds()
        return found

    # A namespace's sessions

    def _read(
        self,
        namespace: Namespace,
        missing: T,
        work: Callable[[Session, Location], T],
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
            return self._replica.read(
                tenant, run, lambda: self._runner.read(tenant, run, snapshot=snapshot), snapshot=snapshot
            )
        return self._runner.read(tenant, run, snapshot=snapshot)

    def _spot(self, session: Session, namespace: Namespace, tenant: str) -> Location | None:
        """The namespace's number and partition. They never change, so they are read once."""
        known = self._spots.get(namespace)
        if known is None and session.is_distributed:
            rows = session.rows(
                "SELECT id FROM namespace WHERE tenant = %s AND path = %s", (tenant, "/".join(namespace))
            )
            if not rows:
                return None
            known = self._remember(Location(namespace, tenant, rows[0][0]))
        elif known is None:
            rows = session.rows(
                "SELECT id, tableoid::regclass::text FROM namespace WHERE tenant = %s AND path = %s",
                (tenant, "/".join(namespace)),
            )
            if not rows:
                return None
            [(number, table)] = rows
            part = int(table.rpartition("_p")[2])
            known = self._remember(Location(namespace, tenant, number, part))
        return known

    def _remember(self, spot: Location) -> Location:
        if len(self._spots) >= KNOWN_NAMESPACES:
            self._spots.clear()
        self._spots[spot.namespace] = spot
        return spot

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
            self._notifier.notice_commit(namespace)
            self._note_write()
        return result, commit

    def _note_write(self) -> None:
        if self._replica is not None:
            rows = self._runner.system(
                lambda session: session.rows("SELECT pg_current_wal_insert_lsn()::text", last=True), mode=READ
            )
            self._replica.note_write(rows[0][0])

    # Entries

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
        self,
        prefix: Namespace = (),
        *,
        after: Namespace | None = None,
        limit: int = 1_000,
        holding: Sequence[str] | None = None,
        history: bool = False,
    ) -> list[Namespace]:
        path = "/".join(prefix)
        where = ["true"]
        parameters: list[Any] = []
        if prefix:
            where.append("(path = %s OR (path >= %s AND path < %s))")
            parameters += [path, path + "/", after_prefix(path + "/")]
        if after is not None:
            where.append("path > %s")
            parameters.append("/".join(after))
        if holding is not None:
            kinds = " AND e.kind = ANY(%s::text[])" if holding else ""
            live = f"e.tenant = n.tenant AND e.namespace = n.id{kinds}"
            live += f" AND (e.expires_at IS NULL OR e.expires_at > {NOW})"
            parameters += [*([texts_of(holding)] if holding else []), self._now()]
            if history:
                live += " AND strpos(e.attributes, %s) = 0"
                parameters.append(NO_HISTORY)
            where.append(f"EXISTS (SELECT 1 FROM entry AS e WHERE {live})")
        sql = f"SELECT path FROM namespace AS n WHERE {' AND '.join(where)} ORDER BY path LIMIT %s"
        rows = self._runner.system(lambda session: session.rows(sql, (*parameters, limit), last=True), mode=READ)
        return [stored_namespace(row[0]) for row in rows]

    def usage(self, prefix: Namespace) -> Usage:
        return self._runner.system(lambda session: usage_below(session, prefix), mode=READ)

    def stats(self) -> StoreStats:
        return self._runner.system(
            lambda session: maintenance.stats(session, self.place.schema), mode=SNAPSHOT, is_long=True
        )

    # System values

    def waker(self) -> Waker:
        self._runner.check_usable()
        return _ListeningWaker(self._connect_plainly, self._channel, self.place.shown)

    def system_rows(self, part: str, key: str | None = None) -> dict[str, JSON]:
        where, parameters = ("part = %s", (part,)) if key is None else ("part = %s AND key = %s", (part, key))
        sql = f"SELECT key, value FROM system WHERE {where} ORDER BY key"
        rows = self._runner.system(lambda session: session.rows(sql, parameters, last=True), mode=READ)
        return {name: json.loads(value) for name, value in rows}

    def system_put(self, part: str, key: str, value: JSON | None, *, only_new: bool = False) -> bool:
        if value is None:
            sql, parameters = "DELETE FROM system WHERE part = %s AND key = %s", [part, key]
        else:
            action = "NOTHING" if only_new else "UPDATE SET value = excluded.value"
            sql = f"INSERT INTO system (part, key, value) VALUES (%s, %s, %s) ON CONFLICT (part, key) DO {action}"
            parameters = [part, key, dump(value)]
        return bool(self._runner.system(lambda session: session.count(sql, parameters)))

    # Search

    _known_models: tuple[float, list[index.Model]] | None = None

    @cached_property
    def _memory(self) -> Memory:
        from commonplace.backends.postgres.memory import Memory  # NumPy takes a tenth of a second to import

        return Memory(self._cache_bytes)

    @property
    def vector_bytes(self) -> int:
        """The size of what searches keep in this process's memory; `cache_bytes` bounds it."""
        return self._memory.held_bytes

    def _search(
        self,
        namespace: Namespace,
        missing: T,
        model: index.Model | None,
        work: Callable[[Session, Location, NamespaceMemory | None], T],
    ) -> T:
        """Search in a namespace with what memory holds of it, which is loaded if necessary; without it if it is too
        large. Then the replica may answer.
        """
        spot = self._spots.get(namespace) or self._read(namespace, None, lambda session, spot: spot)
        if spot is None:
            return missing
        for _ in range(SEARCH_TRIES):
            part = self._loaded(namespace, spot, model)
            if part is None:
                break
            try:
                result = self._read(namespace, missing, partial(_with_memory, work, part))
            except candidates.Stale:
                part.is_loaded = False
                continue
            self._memory.note_size(spot, model, part)
            return result

        def run(session: Session, spot: Location) -> T:
            self._fits(session, spot, model)  # one that was too large may have been purged
            return work(session, spot, None)

        return self._read(namespace, missing, run, is_search=True)

    def _fits(self, session: Session, spot: Location, model: index.Model | None) -> bool:
        """Whether memory may hold a namespace. A replica may not have it yet."""
        counts = read_counts(session, spot)
        return counts is None or self._memory.fits(counts, model)

    def _loaded(self, namespace: Namespace, spot: Location, model: index.Model | None) -> NamespaceMemory | None:
        """What memory holds of a namespace, up to date or not; None if it is too large."""
        part = self._memory.part(spot, model)
        if part is None or part.is_loaded:
            return part
        with part.loading:  # others that search there wait for it, too, and take no connection meanwhile
            if part.is_loaded:
                return part

            def load(session: Session, spot: Location) -> bool:
                if not self._fits(session, spot, model):
                    return False
                part.load(session, spot)
                return True

            if not self._read(namespace, False, load, snapshot=True, is_search=True):
                return None
        self._memory.note_size(spot, model, part)
        return part

    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        page = Page(filter, limit, self._now(), also)
        model = self._serving()

        def work(session: Session, spot: Location, part: NamespaceMemory | None) -> list[Candidate]:
            return candidates.search_text(session, spot, terms, page, model, part)

        return self._search(namespace, [], model, work)

    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        page = Page(filter, limit, self._now())
        known = self._model(model)
        if known is None:
            return []

        def work(session: Session, spot: Location, part: NamespaceMemory | None) -> list[Candidate]:
            return candidates.search_vectors(session, spot, known, query, page, part)

        return self._search(namespace, [], known, work)

    def search(
        self, namespace: Namespace, query: SearchQuery, choose: Choose, *, unless_pending: bool = False
    ) -> Candidates | None:
        model = self._serving() if query.meaning is None else self._model(query.meaning[0])

        def work(session: Session, spot: Location, part: NamespaceMemory | None) -> Candidates | None:
            now = self._now()
            return candidates.search(session, spot, query, choose, model, part, now, unless_pending=unless_pending)

        nothing: Candidates | None = Candidates([], [], {})
        return self._search(namespace, nothing, model, work)

    def _serving(self) -> index.Model | None:
        return next((model for model in self._models() if model.role == "serving"), None)

    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        model = self._serving()
        return self._search(
            namespace,
            TermCounts(0, 0.0, {}),
            model,
            lambda session, spot, part: candidates.term_counts(session, spot, terms, model, part),
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
            lambda session, spot: index.passage_vectors(session, spot, known.id, states),
            is_search=True,
        )

    # Models and vectors

    def _model(self, identity: str) -> index.Model | None:
        found = {model.identity: model for model in self._models()}
        if identity not in found:
            self._known_models = None
            found = {model.identity: model for model in self._models()}
        return found.get(identity)

    def _models(self) -> list[index.Model]:
        """All models. Every search needs them, and they change rarely, so they are read at most twice a second."""
        known = self._known_models
        if known is None or time.monotonic() - known[0] > MODELS_KNOWN_SECONDS:
            asked_at = time.monotonic()
            known = self._known_models = (asked_at, self._runner.system(index.models, mode=READ))
        return known[1]

    def models(self) -> tuple[str | None, str | None]:
        roles = {model.role: model.identity for model in self._models()}
        serving = roles.get("serving")
        return serving, roles.get("target", serving)

    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        if namespace is None:
            pending = self._runner.system(lambda session: index.pending_count(session, None), mode=READ)
        else:
            pending = self._read(namespace, 0, index.pending_count)
        return Indexing(*self.models(), pending)

    def set_target_model(self, model: str, dimensions: int) -> None:
        self._runner.system(lambda session: index.set_target_model(session, model, dimensions), is_long=True)
        self._known_models = None
        self._advance()
        self._drop_retired()

    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        while True:
            claimed, may_advance = self._runner.system(
                lambda session: index.claim(session, limit, lease_seconds, self._now(), even_leased=even_leased)
            )
            if claimed or not may_advance or not self._advance():
                return claimed

    def pending(
        self, namespace: Namespace, limit: int, *, among: Sequence[tuple[int, int]] | None = None
    ) -> list[Pending]:
        return self._read(namespace, [], lambda session, spot: index.pending(session, spot, limit, among))

    def index(self, model: str, embedded: Sequence[tuple[int, NDArray[float32]]]) -> None:
        if self._runner.system(lambda session: index.store_vectors(session, model, embedded)):
            self._advance()
        self._note_write()

    def _advance(self) -> bool:
        """Go on with a change of models until enough passages are pending or it is done; whether there was a step."""
        has_advanced = False
        while True:
            is_promoted, is_step = self._runner.system(index.advance, is_long=True)
            if is_promoted:
                self._drop_retired()
            if not is_step:
                return has_advanced
            has_advanced = True

    def _drop_retired(self) -> None:
        """After a change of roles, remove what former models leave behind. `maintain` removes what is more."""
        for _ in range(RETIRED_STEPS):
            if not self._runner.system(index.drop_retired, is_long=True):
                break
        self._known_models = None

    def distribute(self) -> None:
        """Divide the tables by tenant over the nodes of a Citus cluster. This store is closed then; open it again."""
        with translated(self.place.shown), self._connect_plainly() as connection:
            distribute(connection, self.place)
        self.close()

    def maintain(self) -> bool:
        if any(model.role == "retired" for model in self._models()):
            is_more = self._runner.system(index.drop_retired, is_long=True)
            self._known_models = None
            return is_more
        with translated(self.place.shown):
            return maintenance.maintain(self._runner, self._connect, self.place.system_role, self._memory.weights)

    def vector_indexes(self) -> dict[str, bool]:
        """The approximate indexes that there are, and whether each is complete."""
        return self._runner.system(lambda session: maintenance.known_indexes(session, "hnsw"), mode=READ)

    def index_namespace(self, namespace: Namespace) -> list[str]:
        """Give a large namespace its own vector index without blocking; returns the names of the new indexes."""
        none: list[maintenance.VectorIndex] = []
        wanted = self._read(namespace, none, maintenance.index_of)
        known = self.vector_indexes()
        made = []
        for one in wanted:
            with translated(self.place.shown):
                if one.name not in known and maintenance.build(self._connect, self.place.system_role, one):
                    made.append(one.name)
        return made

    # Maintenance: purge, backups, checks, export and import

    def purge(
        self,
        namespace: Namespace,
        *,
        kind: str | None = None,
        key: str | None = None,
        prefix: str | None = None,
        history_before: int | None = None,
        revision: int | None = None,
        parts: Sequence[Part] = (),
    ) -> int:
        def work(session: Session, transaction: PostgresTransaction) -> int:
            erased = maintenance.purge(session, transaction, kind, key, prefix, history_before, revision)
            return erased + sum(maintenance.purge(session, transaction, *part, history_before) for part in parts)

        erased = self._change(namespace, None, work)[0]
        if spot := self._spots.get(namespace):
            self._memory.evict(spot.id)
        return erased

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        from commonplace.backends.postgres import exchange

        self._runner.check_usable()
        with translated(self.place.shown), self._connect() as connection:
            exchange.backup(connection, self.place, target, progress)

    def restore(self, source: Path) -> None:
        """Fill this store, which must be empty, from a backup."""
        from commonplace.backends.postgres import exchange

        self._runner.check_usable()
        with translated(self.place.shown), self._connect() as connection:
            exchange.restore(connection, self.place, source)
        self._spots.clear()
        self._memory.clear()

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
        # A separate connection: the snapshot lasts as long as the caller takes, and other reads go on meanwhile.
        with translated(self.place.shown), self._connect() as connection:
            session = Session(connection, self._known, is_distributed=self.place.is_distributed)
            session.begin(SNAPSHOT, self.place.system_role, None)
            yield from exchange.export(session, namespaces)

    def adopt(self, head: NamespaceHead, read: ReadStates, check: CheckUsage | None = None) -> int:
        from commonplace.backends.postgres import exchange

        adopted = self._runner.system(
            lambda session: exchange.adopt(session, head, read(), check), is_long=True, copies=True
        )
        self._notifier.notice_commit(head.namespace)
        if adopted >= ANALYZED_STATES:
            self._runner.system(lambda session: exchange.analyze(session, head.namespace), is_long=True)
        return adopted


def _with_memory(
    work: Callable[[Session, Location, NamespaceMemory | None], T],
    part: NamespaceMemory,
    session: Session,
    spot: Location,
) -> T:
    return work(session, spot, part)


class _ListeningWaker(Waker):
    """Listens on its own connection. A broken connection counts as a commit, because a notification may have been
    missed.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], channel: str, place: str) -> None:
        self._connect = connect
        self._channel = channel
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        with translated(place):
            self._connection: psycopg.Connection[Any] | None = self._listen()

    def _listen(self) -> psycopg.Connection[Any]:
        connection = self._connect()
        connection.execute(f'LISTEN "{self._channel}"'.encode())
        return connection

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = deadline - time.monotonic()
            with self._mutex:
                if self._closed.is_set():
                    return False
                if self._is_told(max(0.0, min(left, WAKER_SECONDS))):
                    return True
            if left <= 0:
                return False

    def _is_told(self, seconds: float) -> bool:
        try:
            if self._connection is None:
                self._connection = self._listen()
                self.changed = None
                return True
            if told := list(self._connection.notifies(timeout=seconds, stop_after=1)):
                told += self._connection.notifies(timeout=0)  # the same answer reports what came with it
                self.changed = changed_of(one.payload for one in told)
                return True
        except psycopg.OperationalError:
            self._connection = None
            self._closed.wait(seconds)
        return False

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
