"""The store on MongoDB: one database that any number of servers share."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar

from pymongo import errors
from pymongo.client_session import ClientSession

from commonplace.backends.ledger import NO_HISTORY, is_late, late_problem
from commonplace.backends.mongodb import candidates, exchange, index, maintenance
from commonplace.backends.mongodb.connection import (
    DATABASE,
    Document,
    Durability,
    IdleTransactions,
    Location,
    Renumbered,
    Session,
    cause_of,
    connect,
    distribute,
    is_locked,
    is_too_long,
    is_transient,
    parse_url,
    prepare,
    tenant_of,
    too_long,
    transaction_options,
    translate,
    translated,
)
from commonplace.backends.mongodb.documents import Torn
from commonplace.backends.mongodb.reader import MongoReader, NamespaceRow, namespace_query, read_namespace, unexpired
from commonplace.backends.mongodb.transaction import MongoTransaction
from commonplace.backends.pages import EmptyReader, after_prefix
from commonplace.backends.ranking import Page
from commonplace.backends.rows import dump
from commonplace.checks import JSON, Namespace, stored_namespace
from commonplace.errors import CommonplaceError, ConfigurationError, Unavailable
from commonplace.filters import Filter
from commonplace.store import (
    NOTHING,
    Candidate,
    CheckUsage,
    Indexing,
    NamespaceHead,
    Part,
    Pending,
    Progress,
    Reader,
    ReadStates,
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

    from commonplace.backends.vectors import VectorCache

T = TypeVar("T")
PATIENCE_SECONDS = 20.0
"""How long a call waits in total for a primary, or for other programs that write to the same namespace."""
LONGEST_PAUSE_SECONDS = 0.25
LOCKED_SECONDS = 1.0
"""How often a call that waits for its namespace looks for transactions of programs that were killed."""
KNOWN_NAMESPACES = 100_000
LOCKS = 1_024
MODELS_KNOWN_SECONDS = 0.5
CLOCK_KNOWN_SECONDS = 60.0
VECTOR_BYTES = 512 << 20
WAKER_SECONDS = 0.2
POLL_SECONDS = 0.5
"""How often a waker looks for commits if its user may not open a change stream."""


class MongoStore(Store):
    """Entries in MongoDB. Safe for many threads and many servers."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 20,
        idle_seconds: float = 30.0,
        patience_seconds: float = PATIENCE_SECONDS,
        durability: Durability = "full",
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.place = parse_url(url)
        self.parallel_reads = pool_size
        self.parallel_writes = max(1, pool_size * 3 // 4)
        self._clock = clock
        self._patience = patience_seconds
        self._process = os.getpid()
        self._is_closed = False
        self._local = threading.local()
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._spots: dict[Namespace, Location] = {}
        self._offset = (0.0, 0)
        self._vectors: VectorCache | None = None
        self._mutex = threading.Lock()
        self._options = transaction_options(durability)
        self._last: tuple[Any, Any] = (None, None)
        with translated(self.place.shown):
            # One connection more than calls at a time, for ids that are taken inside of a transaction.
            self._client = connect(
                self.place, durability=durability, pool_size=2 * pool_size, idle_seconds=idle_seconds
            )
            try:
                self._server = prepare(self._client, self.place)
            except BaseException:
                self._client.close()
                raise
        self._database = self._client[self.place.database]
        self._ids = index.Identifiers(self._database)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._client.close()

    def check_usable(self) -> None:
        if self._is_closed:
            raise Unavailable(f"the book at {self.place.shown} is closed; open it again")
        if os.getpid() != self._process:
            raise Unavailable(f"the book at {self.place.shown} was opened before a fork; open it again in this process")

    def _now(self) -> int:
        """The server's time in microseconds, so that servers with different clocks agree on what has expired."""
        if self._clock is not None:
            return self._clock()
        asked, offset = self._offset
        if not asked or time.monotonic() - asked > CLOCK_KNOWN_SECONDS:
            before = time.time_ns()
            said = self._client.admin.command("hello")["localTime"].replace(tzinfo=UTC)
            middle = (before + time.time_ns()) // 2
            offset = int(said.timestamp() * 1e6) - middle // 1_000
            if abs(offset) < 5_000:  # the answer is in milliseconds; nothing finer can be told apart
                offset = 0
            self._offset = (time.monotonic(), offset)
        return time.time_ns() // 1_000 + offset

    def distribute(self) -> None:
        """Divide the collections by tenant over the shards of a cluster. Other servers may keep running."""
        self.check_usable()
        if not self._server.is_sharded:
            raise ConfigurationError(
                f"{self.place.shown} is not a sharded cluster; use the addresses of its routers (mongos)"
            )
        with translated():
            distribute(self._client, self.place)

    # Sessions. Each begins after the last commit of this process, on whichever member is the primary then.

    def _session(self) -> ClientSession:
        session = self._client.start_session(causal_consistency=True)
        cluster_time, operation_time = self._last
        if operation_time is not None:
            session.advance_cluster_time(cluster_time)
            session.advance_operation_time(operation_time)
        return session

    def _note(self, session: ClientSession) -> None:
        with self._mutex:
            known = self._last[1]
            if session.operation_time is not None and (known is None or session.operation_time > known):
                self._last = (session.cluster_time, session.operation_time)

    def _again(self, attempt: Callable[[], T]) -> T:
        """Try until it succeeds, fails for good, or takes too long."""
        self.check_usable()
        asked_at = time.monotonic()
        deadline = asked_at + self._patience
        idle = IdleTransactions()
        tries = 0
        while True:
            tries += 1
            began = time.monotonic()
            try:
                return attempt()
            except errors.PyMongoError as error:
                pause = random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.001 * 2 ** min(tries, 12)))
                took = time.monotonic() - began
                if is_too_long(error, took, self._server.transaction_seconds):
                    raise too_long() from error
                may_work = is_transient(error) or isinstance(error, errors.ConnectionFailure)
                if not may_work or self._is_closed or time.monotonic() + pause > deadline:
                    raise translate(error) from cause_of(error)
                if is_locked(error) and time.monotonic() > asked_at + LOCKED_SECONDS:
                    idle.end_abandoned(self._client)
                    asked_at = time.monotonic()
                time.sleep(pause)

    def _catch_up(self, driver: ClientSession, namespace: Namespace | None) -> None:
        """Let a snapshot that begins next contain every write to the namespace, or to all, that was acknowledged.

        A router takes snapshots as of the latest time that it has heard of. It has not heard of what other programs
        wrote through other routers. Every write changes its namespace's document, so the shard that has it knows.
        """
        if self._server.is_sharded:
            query: Document = {"number": -1} if namespace is None else namespace_query(namespace)
            self._database["namespace"].find_one(query, {"_id": 1}, session=driver)

    def _transact(self, work: Callable[[Session], tuple[T, bool]], namespace: Namespace | None = None) -> T:
        """Run work in a transaction; it returns whether there is something to commit. What is committed stays."""

        def attempt() -> T:
            with self._session() as driver:
                self._catch_up(driver, namespace)
                driver.start_transaction(**self._options)
                try:
                    session = Session(self._database, driver, is_snapshot=True)
                    result, is_changed = work(session)
                    if is_changed:
                        session.flush()
                except BaseException:
                    _abort(driver)
                    raise
                if is_changed:
                    self._commit(driver)
                else:
                    _abort(driver)
                self._note(driver)
                return result

        return self._again(attempt)

    def _commit(self, driver: ClientSession) -> None:
        """Commit until the answer is certain. The server knows its transactions, so asking again repeats nothing."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                driver.commit_transaction()
                return
            except errors.PyMongoError as error:
                is_unknown = error.has_error_label("UnknownTransactionCommitResult")
                if not is_unknown:
                    raise
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"the connection to {DATABASE} was lost during the commit and no primary has come back; it is "
                        "not known whether the write was done, so check before you repeat it"
                    ) from error
                time.sleep(random.uniform(0.01, LONGEST_PAUSE_SECONDS))

    def _run(self, work: Callable[[Session], T], *, snapshot: bool, namespace: Namespace | None = None) -> T:
        """Run reads; with `snapshot`, all of them see the same commit."""

        def attempt() -> T:
            with self._session() as driver:
                return work(Session(self._database, driver, is_snapshot=False))

        try:
            if snapshot:
                return self._transact(lambda session: (work(session), False), namespace)
            return self._again(attempt)
        except Torn:
            return self._run(work, snapshot=True, namespace=namespace)
        except Renumbered:
            assert namespace is not None
            self._spots.pop(namespace, None)
            return self._run(work, snapshot=snapshot, namespace=namespace)

    def _spot(self, session: Session, namespace: Namespace) -> Location | None:
        """The namespace's number. It does not change while there are entries, so it is read once."""
        known = self._spots.get(namespace)
        if known is None:
            row = read_namespace(session, namespace)
            return None if row is None else self._know(namespace, row)
        return known

    def _know(self, namespace: Namespace, row: NamespaceRow) -> Location:
        place = Location(namespace, tenant_of(namespace), row.number)
        if row.entries or row.former_states:  # an empty one may get another number with an import
            if len(self._spots) >= KNOWN_NAMESPACES:
                self._spots.clear()
            self._spots[namespace] = place
        return place

    def _read(
        self, namespace: Namespace, missing: T, work: Callable[[Session, Location], T], *, snapshot: bool = False
    ) -> T:
        def run(session: Session) -> T:
            place = self._spot(session, namespace)
            return missing if place is None else work(session, place)

        return self._run(run, snapshot=snapshot, namespace=namespace)

    def _read_row(
        self,
        namespace: Namespace,
        missing: T,
        work: Callable[[Session, Location, NamespaceRow], T],
        *,
        snapshot: bool = False,
    ) -> T:
        def run(session: Session) -> T:
            row = read_namespace(session, namespace)
            if row is None:
                return missing
            return work(session, self._know(namespace, row), row)

        return self._run(run, snapshot=snapshot, namespace=namespace)

    # Entries

    def _change(
        self, namespace: Namespace, actor: str | None, work: Callable[[Session, MongoTransaction], T]
    ) -> tuple[T, int | None]:
        if getattr(self._local, "is_writing", False):
            raise RuntimeError("a write inside a write would wait for itself; use the transaction that is open")

        def run(session: Session) -> tuple[tuple[T, int | None], bool]:
            transaction = MongoTransaction(session, namespace, self._now(), actor, self._ids)
            result = work(session, transaction)
            return (result, transaction.finish()), transaction.is_changed

        self._local.is_writing = True
        try:
            # Threads of this process queue here. Those of other programs find the document locked and try again.
            with self._locks[hash(namespace) % LOCKS]:
                return self._transact(run, namespace)
        finally:
            self._local.is_writing = False

    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        return self._change(namespace, actor, lambda session, transaction: work(transaction))

    def read(self, namespace: Namespace, work: Callable[[Reader], T], *, snapshot: bool = True) -> T:
        def run(session: Session) -> T:
            known = self._spots.get(namespace)
            if known is not None:
                session.expect(known)
            place = known or self._spot(session, namespace)
            return work(EmptyReader(namespace) if place is None else MongoReader(session, place, self._now()))

        return self._run(run, snapshot=snapshot, namespace=namespace)

    def namespaces(
        self,
        prefix: Namespace = (),
        *,
        after: Namespace | None = None,
        limit: int = 1_000,
        holding: Sequence[str] | None = None,
        history: bool = False,
    ) -> list[Namespace]:
        conditions = _below(prefix)
        if after is not None:
            conditions.append({"_id": {"$gt": "/".join(after)}})
        query: Document = {"$and": conditions} if conditions else {}

        def run(session: Session) -> list[Namespace]:
            found: list[Namespace] = []
            for document in session.iterate("namespace", query, ["number"], sort=[("_id", 1)]):
                if len(found) >= limit:
                    break
                if holding is None or self._holds(session, document, holding, history):
                    found.append(stored_namespace(document["_id"]))
            return found

        return self._run(run, snapshot=False)

    def _holds(self, session: Session, document: Document, kinds: Sequence[str], history: bool) -> bool:
        place = Location((), tenant_of(stored_namespace(document["_id"])), document["number"])
        which: Document = {"kind": {"$in": list(kinds)}} if kinds else {}
        if history:
            which["attributes"] = {"$not": {"$regex": re.escape(NO_HISTORY)}}
        query = {**place.mine, **which, "expires_at": unexpired(self._now())}
        return bool(session.find("entry", query, ["_id"], limit=1))

    def usage(self, prefix: Namespace) -> Usage:
        names = ("entries", "bytes", "former_states", "former_bytes")
        conditions = _below(prefix)
        steps: list[Document] = [{"$match": {"$and": conditions}}] if conditions else []
        steps.append({"$group": {"_id": None, **{name: {"$sum": f"${name}"} for name in names}}})
        found = self._run(lambda session: session.aggregate("namespace", steps), snapshot=False)
        return Usage(*(found[0][name] for name in names)) if found else NOTHING

    def stats(self) -> StoreStats:
        return self._run(lambda session: maintenance.stats(session, self._database), snapshot=False)

    # System values

    def system_rows(self, part: str, key: str | None = None) -> dict[str, JSON]:
        query = {"part": part, **({} if key is None else {"key": key})}
        found = self._run(lambda session: session.find("system", query, sort=[("key", 1)]), snapshot=False)
        return {one["key"]: json.loads(one["value"]) for one in found}

    def system_put(self, part: str, key: str, value: JSON | None, *, only_new: bool = False) -> bool:
        query = {"part": part, "key": key}

        def work(session: Session) -> tuple[bool, bool]:
            found = session.find("system", query, ["_id"])
            if value is None:
                session.delete("system", query)
                return bool(found), bool(found)
            if found and only_new:
                return False, False
            session.replace("system", query, {**query, "value": dump(value)}, upsert=True)
            return True, True

        return self._transact(work)

    def waker(self) -> Waker:
        self.check_usable()
        return _StreamWaker(self._client, self.place.database, is_sharded=self._server.is_sharded)

    # Search

    _known_models: tuple[float, list[index.Model]] | None = None

    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        if not terms:
            return []
        page = Page(filter, limit, self._now(), also)
        return self._read_row(
            namespace, [], lambda session, place, row: candidates.search_text(session, place, row, terms, page)
        )

    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        known = self._model(model)
        if known is None:
            return []
        page = Page(filter, limit, self._now())

        def work(session: Session, place: Location, row: NamespaceRow) -> list[Candidate]:
            rank = self._vector_cache().nearest(candidates.StoredVectors(session, place, row, known), query)
            return candidates.candidates(session, place, rank, page)

        return self._read_row(namespace, [], work, snapshot=True)

    def _vector_cache(self) -> VectorCache:
        from commonplace.backends.vectors import VectorCache

        with self._mutex:
            if self._vectors is None:
                self._vectors = VectorCache(VECTOR_BYTES)
            return self._vectors

    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        return self._read_row(
            namespace,
            TermCounts(0, 0.0, {}),
            lambda session, place, row: candidates.term_counts(session, place, row, terms),
        )

    def passage_vectors(
        self, namespace: Namespace, model: str, states: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, NDArray[float32]]]:
        known = self._model(model)
        if known is None:
            return []
        return self._read(namespace, [], lambda session, place: index.passage_vectors(session, place, known, states))

    # Models and vectors

    def _model(self, identity: str) -> index.Model | None:
        for _ in range(2):
            for model in self._models():
                if model.identity == identity:
                    return model
            self._known_models = None
        return None

    def _models(self) -> list[index.Model]:
        """All models. Every search needs them, and they change rarely, so they are read at most twice a second."""
        known = self._known_models
        if known is None or time.monotonic() - known[0] > MODELS_KNOWN_SECONDS:
            asked_at = time.monotonic()
            found = self._run(lambda session: session.find("model", {}), snapshot=False)
            known = self._known_models = (asked_at, index.models(found))
        return known[1]

    def models(self) -> tuple[str | None, str | None]:
        roles = {model.role: model.identity for model in self._models()}
        serving = roles.get("serving")
        return serving, roles.get("target", serving)

    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        if namespace is None:
            pending = self._run(lambda session: session.count("pending", {}), snapshot=False)
        else:
            pending = self._read(namespace, 0, lambda session, place: session.count("pending", place.mine))
        return Indexing(*self.models(), pending)

    def set_target_model(self, model: str, dimensions: int) -> None:
        target = self._transact(lambda session: (index.begin_target(session, model, dimensions), True))
        self._again(lambda: index.mark_pending(self._database, target))
        self._known_models = None
        self._promote()
        self._drop_retired()

    def _promote(self) -> bool:
        def work(session: Session) -> tuple[bool, bool]:
            is_promoted = index.promote_when_done(session)
            return is_promoted, is_promoted

        return self._transact(work)

    def _drop_retired(self) -> None:
        """After a change of roles, remove what former models leave behind."""
        self._again(lambda: index.drop_retired(self._database))
        self._known_models = None

    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        while True:
            chosen, found = self._claim(limit, lease_seconds, even_leased=even_leased)
            if found or not chosen:
                break
        serving, target = self.models()
        if not chosen and serving != target and self._promote():
            self._drop_retired()  # two programs stored the last vectors at once, and neither saw that none was left
        return found

    def _claim(self, limit: int, lease_seconds: float, *, even_leased: bool) -> tuple[dict[int, str], list[Pending]]:
        """Lease passages; return their tenants by id, and those that exist."""
        with self._session() as driver:
            chosen = self._again(
                lambda: index.claim(self._database, driver, limit, lease_seconds, self._now(), even_leased=even_leased)
            )
            found = self._run(lambda session: index.passages_of(session, chosen), snapshot=False)
            if len(found) < len(chosen):
                # Marks are read before a majority has them, and passages after that. From here on, both are.
                self._note(driver)
                found = self._transact(lambda session: index.forget_marks(session, chosen))
            return chosen, found

    def pending(
        self, namespace: Namespace, limit: int, *, among: Sequence[tuple[int, int]] | None = None
    ) -> list[Pending]:
        def work(session: Session, place: Location) -> list[Pending]:
            chunks = index.pending_chunks(session, place, limit, among)
            waiting = index.passages_of(session, dict.fromkeys(chunks, place.tenant))
            found = {passage.chunk_id: passage for passage in waiting}
            return [found[chunk] for chunk in chunks if chunk in found]

        return self._read(namespace, [], work)

    def index(self, model: str, embedded: Sequence[tuple[int, NDArray[float32]]]) -> None:
        if self._transact(lambda session: (index.store_vectors(session, model, embedded), True)):
            self._drop_retired()

    def maintain(self) -> bool:
        """Remove what an interrupted import left."""
        before = self._now() - exchange.ADOPTION_SECONDS * 1_000_000
        found = self._run(
            lambda session: session.find("adoption", {"began_at": {"$lt": before}}, limit=1), snapshot=False
        )
        for one in found:
            self._again(lambda one=one: exchange.discard(self._database, one["_id"]))  # type: ignore[misc]
        return bool(found)

    # Maintenance: purge, checks, export and import

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
        def work(session: Session, transaction: MongoTransaction) -> int:
            erased = maintenance.purge(session, transaction, kind, key, prefix, history_before, revision)
            return erased + sum(maintenance.purge(session, transaction, *part, history_before) for part in parts)

        erased = self._change(namespace, None, work)[0]
        if history_before is None:
            self._again(lambda: exchange.discard_all(self._database, namespace))
        if self._vectors is not None:
            place = self._spots.get(namespace)
            if place is not None:
                self._vectors.evict(place.number)
        self._spots.pop(namespace, None)
        return erased

    def verify(self, progress: Progress | None = None) -> list[str]:
        with translated(), self._snapshot() as session:
            late = {"commit_time": {"$gt": is_late(self._now())}}
            times = [one["commit_time"] for one in session.find("namespace", late, ["commit_time"])]
            return maintenance.verify(session, progress) + late_problem(len(times), max(times, default=None))

    def rebuild_keywords(self, progress: Progress | None = None) -> None:
        """In transactions of some entries each, because one of a whole namespace would last too long."""
        total = sum(self.stats().entries.values())
        done = 0
        after: Namespace | None = None
        while page := self.namespaces(after=after):
            for namespace in page:
                last, count = 0, 1
                while count:
                    last, count = self._rebuild_after(namespace, last)
                    done += count
                    if progress is not None and count:
                        progress(done, total, "entries")
            after = page[-1]

    def _rebuild_after(self, namespace: Namespace, last: int) -> tuple[int, int]:
        with self._locks[hash(namespace) % LOCKS]:
            return self._transact(
                lambda session: (maintenance.rebuild_keywords(session, namespace, self._ids, last), True), namespace
            )

    def _snapshot(self, namespace: Namespace | None = None) -> _SnapshotSession:
        """Reads of one state that may take longer than a transaction, up to the server's history of snapshots."""
        self.check_usable()
        return _SnapshotSession(self, namespace)

    def export(self, namespaces: Sequence[Namespace] | None = None) -> Generator[NamespaceHead | State, None, None]:
        only = namespaces[0] if namespaces is not None and len(namespaces) == 1 else None
        with translated(), self._snapshot(only) as session:
            yield from exchange.export(session, namespaces)

    def adopt(self, head: NamespaceHead, read: ReadStates, check: CheckUsage | None = None) -> int:
        self._run(lambda session: exchange.check_empty(session, head.namespace), snapshot=False)
        row = NamespaceRow()
        row.number = self._again(lambda: self._ids.take(row))
        adoption = {"_id": row.number, "path": "/".join(head.namespace), "began_at": self._now()}
        try:
            with translated(), self._session() as driver:
                self._database["adoption"].insert_one(adoption, session=driver)
                count = exchange.stage(Session(self._database, driver, is_snapshot=True), head, read(), row, self._ids)
                self._note(driver)
            if check is not None:
                check(row.usage)
            adopted = self._transact(lambda session: (exchange.give_number(session, head, row, count), True))
        except BaseException:
            self._discard(row.number)
            raise
        self._spots.pop(head.namespace, None)
        return adopted

    def _discard(self, number: int) -> None:
        try:
            self._again(lambda: exchange.discard(self._database, number))
        except CommonplaceError:
            return  # `maintain` of another day removes it


class _SnapshotSession:
    def __init__(self, store: MongoStore, namespace: Namespace | None) -> None:
        self._store = store
        self._namespace = namespace

    def __enter__(self) -> Session:
        store = self._store
        # Everything that was committed is in the snapshot that is taken after these reads.
        with store._session() as causal:
            store._database["counter"].find_one({"_id": "identifier"}, session=causal)
            store._catch_up(causal, self._namespace)
        self._driver = store._client.start_session(snapshot=True)
        return Session(store._database, self._driver, is_snapshot=True)

    def __exit__(self, *error: object) -> None:
        self._driver.end_session()


def _below(prefix: Namespace) -> list[Document]:
    """The namespaces at or below a prefix."""
    if not prefix:
        return []
    path = "/".join(prefix)
    of_tenant = [{"tenant": tenant_of(prefix)}] if len(prefix) > 1 else []
    return [*of_tenant, {"$or": [{"_id": path}, {"_id": {"$gte": path + "/", "$lt": after_prefix(path + "/")}}]}]


def _abort(driver: ClientSession) -> None:
    try:
        driver.abort_transaction()
    except errors.PyMongoError:
        return  # the server ends it by itself


class _StreamWaker(Waker):
    """Follows the changes of the namespaces' documents. If the user may not do that, it counts their commits."""

    def __init__(self, client: Any, database: str, *, is_sharded: bool) -> None:
        self._namespaces = client[database]["namespace"]
        self._session = client.start_session(causal_consistency=True) if is_sharded else None
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        self._stream: Any = None
        self._counted: int | None = None
        self._may_watch = True
        self._seen: Any = None
        with translated():
            self._watch()

    def _watch(self) -> None:
        if not self._may_watch:
            self._counted = self._count()
            return
        try:
            self._stream = self._namespaces.watch(
                [{"$project": {"_id": 1, "operationType": 1, "clusterTime": 1}}],
                max_await_time_ms=int(WAKER_SECONDS * 1_000),
                session=self._session,
            )
        except errors.OperationFailure as error:
            if error.code != 13:
                raise
            self._may_watch = False
            self._counted = self._count()

    def _count(self) -> int:
        found = list(self._namespaces.aggregate([{"$group": {"_id": None, "sum": {"$sum": "$commit_number"}}}]))
        return int(found[0]["sum"]) if found else 0

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._mutex:
                if self._closed.is_set():
                    return False
                left = deadline - time.monotonic()
                if self._is_told(max(0.0, left)):
                    return True
            if left <= 0:
                return False

    def _is_told(self, seconds: float) -> bool:
        try:
            if not self._may_watch:
                self._closed.wait(min(seconds, POLL_SECONDS))
                counted = self._count()
                is_told, self._counted = counted != self._counted, counted
                return is_told
            if self._stream is None or not self._stream.alive:
                self._watch()
                return True  # something may have been missed
            if self._session is not None:
                self._advance_shards(self._session)
            event = self._stream.try_next()
            if event is None or event["clusterTime"] == self._seen:  # a transaction changes the document twice
                return False
            self._seen = event["clusterTime"]
            return True
        except errors.PyMongoError:
            self._stream = None
            self._closed.wait(min(seconds, WAKER_SECONDS))
            return False

    def _advance_shards(self, session: ClientSession) -> None:
        """Read from all shards as of the cluster's time, which writes a note to the log of an idle one.

        A router reports a change only when every shard has logged something later. By itself, an idle shard does that
        every ten seconds.
        """
        if session.cluster_time is not None:
            session.advance_operation_time(session.cluster_time["clusterTime"])
        self._namespaces.find_one({"number": -1}, session=session)

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            if self._stream is not None:
                self._stream.close()
            if self._session is not None:
                self._session.end_session()
