"""The store on SQLite: a file in WAL mode that many processes share, or a database in memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from commonplace.backends.paging import after_prefix
from commonplace.backends.ranking import Counts
from commonplace.backends.ranking import Page as SearchPage
from commonplace.backends.sqlite import keywords, maintenance, reading, searching, system, vectors
from commonplace.backends.sqlite.connection import MEMORY, Connection, Durability, connect, translated
from commonplace.backends.sqlite.group import Group, begin_group, flush_group
from commonplace.backends.sqlite.locks import WriterQueue
from commonplace.backends.sqlite.migrate import check_schema, migrate
from commonplace.backends.sqlite.searching import VectorCache
from commonplace.backends.sqlite.transaction import SQLiteTransaction
from commonplace.backends.sqlite.writer import Writer
from commonplace.backends.states import columns, entry_of
from commonplace.checks import JSON, Namespace, parse_namespace
from commonplace.entry import Change, Entry, Revision
from commonplace.errors import Conflict, InvalidInput, Unavailable
from commonplace.filters import Filter
from commonplace.store import (
    Candidate,
    Child,
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
CHECKPOINT_PAGES = 4_000
MERGED_PAGES = 200
"""Of the keyword index, in one step of upkeep: some milliseconds, so that no writer waits long."""


def system_time() -> int:
    return time.time_ns() // 1_000


class SQLiteStore(Store):
    """Entries in one SQLite file. Safe for many threads and many processes."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "full",
        busy_seconds: float = 10.0,
        cache_bytes: int = 512_000_000,
        clock: Callable[[], int] = system_time,
    ) -> None:
        self.path = str(path)
        self._busy_seconds = busy_seconds
        self._durability: Durability = durability
        self._clock = clock
        self._process = os.getpid()
        self._is_closed = False
        self._readers = threading.local()
        self._connections: WeakSet[Connection] = WeakSet()  # a thread that ends takes its connection with it
        self._connections_mutex = threading.Lock()
        self._cache = VectorCache(cache_bytes)
        self._queue: WriterQueue | None = None
        self._memory_lock = threading.RLock()
        if self.path == MEMORY:
            self._writing = self._connect()
            migrate(self._writing, self.path)
            exclusive: Callable[[], Any] = lambda: self._memory_lock  # noqa: E731
        else:
            self._writing = self._open_file()
            assert self._queue is not None
            exclusive = self._queue.held
        self._writer: Writer[Group] = Writer(
            self._writing,
            self.path,
            exclusive,
            lambda: begin_group(self._writing),
            lambda group: flush_group(self._writing, group),
        )

    def _open_file(self) -> Connection:
        """Open, and create or migrate where that is due, one process at a time."""
        self._create_private()
        connection = self._connect()
        with translated(self.path):
            self._queue = WriterQueue(self.path, self._busy_seconds)
            try:
                if not check_schema(connection, self.path) or self._journal_mode(connection) != "wal":
                    with self._queue.held():
                        connection.execute("PRAGMA journal_mode = WAL").fetchall()
                        migrate(connection, self.path)
                connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
            except BaseException:
                connection.close()
                self._queue.close()
                raise
        return connection

    def _create_private(self) -> None:
        """Memories are nobody else's business: a new file is readable by its owner only."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError:
            return  # it exists, or SQLite will say why it cannot

    @staticmethod
    def _journal_mode(connection: Connection) -> str:
        return str(connection.execute("PRAGMA journal_mode").fetchall()[0][0])

    def _connect(self) -> Connection:
        connection = connect(self.path, busy_seconds=self._busy_seconds, durability=self._durability)
        with self._connections_mutex:
            self._connections.add(connection)
        return connection

    # Connections

    def _check_usable(self) -> None:
        if self._is_closed:
            raise Unavailable(f"the book {self.path} is closed; open it again")
        if os.getpid() != self._process:
            raise Unavailable(f"the book {self.path} was opened before a fork; open it again in this process")

    @contextmanager
    def _reading(self, *, snapshot: bool = False) -> Iterator[Connection]:
        """This thread's reading connection; with `snapshot`, all statements see one state of the file."""
        self._check_usable()
        if self.path == MEMORY:
            with self._memory_lock, translated(self.path):
                yield self._writing
            return
        connection: Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            connection = self._readers.connection = self._connect()
        with translated(self.path):
            if not snapshot:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    def _run(self, work: Callable[[Group], Any]) -> Any:
        self._check_usable()
        return self._writer.run(work)

    def _namespace_id(self, connection: Connection, namespace: Namespace) -> int:
        rows = connection.execute("SELECT id FROM namespace WHERE path = ?", ("/".join(namespace),)).fetchall()
        return int(rows[0][0]) if rows else 0

    # Writing

    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        def job(group: Group) -> tuple[T, int | None]:
            transaction = SQLiteTransaction(self._writing, group, namespace, self._clock, actor)
            result = work(transaction)
            return result, transaction.finish()

        result: tuple[T, int | None] = self._run(job)
        return result

    # Reading

    def get(
        self, namespace: Namespace, kind: str, keys: Sequence[str], *, as_of: int | None = None
    ) -> list[Entry | None]:
        with self._reading() as connection:
            place = self._namespace_id(connection, namespace)
            if as_of is None:
                now = self._clock()
                return [reading.get(connection, namespace, place, kind, key, now) for key in keys]
            return [reading.get_as_of(connection, namespace, place, kind, key, as_of) for key in keys]

    def find(self, namespace: Namespace, kind: str, identity: str) -> Entry | None:
        with self._reading() as connection:
            place = self._namespace_id(connection, namespace)
            return reading.find(connection, namespace, place, kind, identity, self._clock())

    def load(self, namespace: Namespace, ids: Sequence[int]) -> dict[int, Entry]:
        with self._reading() as connection:
            place = self._namespace_id(connection, namespace)
            rows = connection.execute(
                f"SELECT {columns('e')} FROM json_each(?) AS j CROSS JOIN entry AS e ON e.id = j.value"
                " WHERE e.namespace = ? AND (e.expires_at IS NULL OR e.expires_at > ?)",
                (f"[{','.join(map(str, ids))}]", place, self._clock()),
            )
            return {row[0]: entry_of(namespace, row) for row in rows}

    def scan(self, namespace: Namespace, scan: Scan) -> Page:
        with self._reading(snapshot=scan.as_of is not None) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.scan(connection, namespace, place, scan, self._clock())

    def children(self, namespace: Namespace, kind: str, prefix: str) -> list[Child]:
        with self._reading() as connection:
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
        return [parse_namespace(row[0]) for row in rows]

    def history(self, namespace: Namespace, kind: str, key: str) -> list[Revision]:
        with self._reading(snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.history(connection, place, kind, key, self._clock())

    def state(self, namespace: Namespace, kind: str, key: str, revision: int) -> Entry | None:
        with self._reading(snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.state(connection, namespace, place, kind, key, revision)

    def changes(self, namespace: Namespace, after: int = 0, limit: int = 1_000) -> list[Change]:
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")
        with self._reading() as connection:
            expired = connection.execute(
                "SELECT 1 FROM entry WHERE namespace = ? AND expires_at <= ? LIMIT 1",
                (self._namespace_id(connection, namespace), self._clock()),
            ).fetchall()
        if expired:
            self.write(namespace, lambda transaction: None)  # every transaction first ends what has expired
        with self._reading(snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            floor = connection.execute("SELECT history_floor FROM namespace WHERE id = ?", (place,)).fetchall()
            if floor and after < floor[0][0]:
                raise Conflict(
                    f"the feed no longer reaches back to commit {after}; read everything again and go on from "
                    f"commit {floor[0][0]}"
                )
            return reading.changes(connection, place, after, limit)

    def stats(self) -> StoreStats:
        with self._reading(snapshot=True) as connection:
            return maintenance.stats(connection, self.path)

    def namespace_stats(self, namespace: Namespace) -> NamespaceStats:
        with self._reading(snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            return maintenance.namespace_stats(connection, namespace, place, self._clock())

    def waker(self) -> Waker:
        self._check_usable()
        if self.path == MEMORY:
            return system.MemoryWaker(self._changes_in_memory)
        with translated(self.path):
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

    # Search

    @property
    def vector_bytes(self) -> int:
        """What the vectors in this process's memory take; `cache_bytes` bounds it."""
        return self._cache.held_bytes

    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        with self._reading(snapshot=True) as connection:
            counts = connection.execute(
                "SELECT id, chunk_count, term_total FROM namespace WHERE path = ?", ("/".join(namespace),)
            ).fetchall()
            if not counts:
                return []
            return searching.search_text(
                connection, Counts(*counts[0]), terms, SearchPage(filter, limit, self._clock(), also)
            )

    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        with self._reading(snapshot=True) as connection:
            place = connection.execute(
                "SELECT n.id, m.id, m.dimensions, n.chunks_ended FROM namespace AS n, model AS m"
                " WHERE n.path = ? AND m.identity = ?",
                ("/".join(namespace), model),
            ).fetchall()
            if not place:
                return []
            return self._cache.search(connection, place[0], query, SearchPage(filter, limit, self._clock()))

    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        with self._reading(snapshot=True) as connection:
            counts = connection.execute(
                "SELECT id, chunk_count, term_total FROM namespace WHERE path = ?", ("/".join(namespace),)
            ).fetchall()
            if not counts:
                return TermCounts(0, 0.0, {})
            return keywords.term_counts(connection, Counts(*counts[0]), terms)

    def passage_vectors(
        self, namespace: Namespace, model: str, states: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, NDArray[float32]]]:
        with self._reading(snapshot=True) as connection:
            return vectors.passage_vectors(connection, model, states)

    def former(self, namespace: Namespace, as_of: int, filter: Filter) -> list[Entry]:
        with self._reading(snapshot=True) as connection:
            place = self._namespace_id(connection, namespace)
            return reading.states_ended_after(connection, namespace, place, as_of, filter)

    def models(self) -> tuple[str | None, str | None]:
        with self._reading() as connection:
            return vectors.models(connection)

    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        with self._reading() as connection:
            place = None if namespace is None else self._namespace_id(connection, namespace)
            return vectors.indexing(connection, place)

    def aim(self, model: str, dimensions: int) -> None:
        self._run(lambda group: vectors.aim(self._writing, model, dimensions))
        self._drop_retired()

    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        with self._reading() as connection:
            if not connection.execute("SELECT 1 FROM pending LIMIT 1").fetchall():
                return []
        claimed: list[Pending] = self._run(
            lambda group: vectors.claim(self._writing, limit, lease_seconds, self._clock(), even_leased=even_leased)
        )
        return claimed

    def pending(
        self, namespace: Namespace, limit: int, *, among: Sequence[tuple[int, int]] | None = None
    ) -> list[Pending]:
        with self._reading(snapshot=True) as connection:
            return vectors.pending(connection, self._namespace_id(connection, namespace), limit, among)

    def index(self, model: str, embedded: Sequence[tuple[int, NDArray[float32]]]) -> None:
        self._run(lambda group: vectors.index(self._writing, group, model, embedded))
        self._drop_retired()

    def tidy(self) -> bool:
        def merge(group: Group) -> bool:
            before = self._writing.total_changes()
            self._writing.execute("INSERT INTO keywords (keywords, rank) VALUES ('merge', ?)", (MERGED_PAGES,))
            return self._writing.total_changes() - before >= 2  # FTS5's sign that it had something to merge

        found: bool = self._run(merge)
        return found

    def _drop_retired(self) -> None:
        with self._reading() as connection:
            if not connection.execute("SELECT 1 FROM model WHERE role = 'retired'").fetchall():
                return
        while self._run(lambda group: vectors.drop_retired(self._writing)):
            continue

    # Care

    def purge(
        self,
        namespace: Namespace,
        *,
        kind: str | None = None,
        key: str | None = None,
        history_before: int | None = None,
    ) -> int:
        def job(group: Group) -> int:
            transaction = SQLiteTransaction(self._writing, group, namespace, self._clock, None)
            erased = maintenance.purge(self._writing, transaction, kind, key, history_before)
            transaction.finish()
            return erased

        erased: int = self._run(job)
        if erased and self.path != MEMORY:
            self._truncate_log()
        return erased

    def _truncate_log(self) -> None:
        """Move everything from the log into the file and cut the log; waits for readers, bounded."""
        deadline = time.monotonic() + self._busy_seconds
        assert self._queue is not None
        with self._queue.held(), translated(self.path):
            while True:
                busy, _, _ = self._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                if not busy:
                    return
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"the purge is done, but a long read keeps old pages in {self.path}-wal; "
                        "close other programs on this book and purge again"
                    )

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        with self._reading(snapshot=True) as connection:
            # Only a snapshot that has begun holds still: else every write of others makes the copy start again.
            connection.execute("SELECT entry FROM counter").fetchall()
            maintenance.backup(connection, target, progress)

    def verify(self, progress: Progress | None = None) -> list[str]:
        with self._reading(snapshot=True) as connection:
            return maintenance.verify(connection, progress)

    def rebuild_keywords(self, progress: Progress | None = None) -> None:
        from commonplace.backends.sqlite import rebuilding

        self._run(lambda group: rebuilding.rebuild_keywords(self._writing, group, progress))

    def export(self, namespaces: Sequence[Namespace] | None = None) -> Generator[NamespaceHead | State, None, None]:
        from commonplace.backends.sqlite import exchange

        self._check_usable()
        if self.path == MEMORY:
            with self._memory_lock, translated(self.path):
                yield from exchange.export(self._writing, namespaces)
            return
        # A connection of its own: the snapshot lasts as long as the caller takes, and other reads go on beside it.
        connection = connect(self.path, busy_seconds=self._busy_seconds, durability=self._durability)
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                yield from exchange.export(connection, namespaces)
        finally:
            connection.close()

    def adopt(self, head: NamespaceHead, read: Callable[[], Iterable[State]]) -> int:
        from commonplace.backends.sqlite import exchange

        adopted: int = self._run(lambda group: exchange.adopt(self._writing, group, head, read()))
        return adopted

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._process:
            return
        with self._memory_lock, self._connections_mutex:
            for connection in list(self._connections):
                connection.close()
            self._connections.clear()
        if self._queue is not None:
            self._queue.close()
