"""The store on SQLite: a file in WAL mode that many processes share, or a database in memory."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakSet

import apsw

from commonplace.backends.ledger import NO_HISTORY, is_late, late_problem
from commonplace.backends.pages import after_prefix
from commonplace.backends.ranking import Counts, Page
from commonplace.backends.rows import dump
from commonplace.backends.sqlite import candidates, damage, index, maintenance
from commonplace.backends.sqlite.backlog import Waiting, has_labels, waiting_counts
from commonplace.backends.sqlite.checksums import check_row, damaged_row, row_sum
from commonplace.backends.sqlite.connection import (
    DRIVER_ERRORS,
    MEMORY,
    Connection,
    Durability,
    closed,
    connect,
    translate,
    translated,
    unavailable,
)
from commonplace.backends.sqlite.guard import Guard, Stamp, WriterQueue, check_log, lost_commits, stamp
from commonplace.backends.sqlite.migrate import check_schema, check_unchanged, migrate
from commonplace.backends.sqlite.reader import SQLiteReader, namespace_id, usage_below
from commonplace.backends.sqlite.transaction import SQLiteTransaction
from commonplace.backends.sqlite.writer import Group, Writer, begin_group, flush_group, read_namespace
from commonplace.checks import JSON, Namespace, stored_namespace
from commonplace.errors import CommonplaceError, ConfigurationError, Corrupt, Unavailable
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
    Scan,
    SearchQuery,
    State,
    Store,
    StoreStats,
    TermCounts,
    Transaction,
    Usage,
    Waker,
)
from commonplace.store import Page as ScanPage

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from commonplace.backends.vectors import VectorCache

CHECKPOINT_PAGES = 1_000
"""After this many pages the log is written over from its start. A commit that makes the log longer takes more time."""
DAMAGED_LOG = "-wal.damaged-"
WAKER_SECONDS = 0.05
"""How often a waker checks for a commit."""
CLOSING_SECONDS = 1.0
"""How long closing waits for writers of other processes. If it takes longer, the next program to close moves the log
into the file.
"""
FILL_SECONDS = 0.5
"""How long opening a book adds missing checksums. The rest is added when the book is idle, or by the next program."""
ANY_UNCHECKED = "SELECT 1 FROM unchecked LIMIT 1"
LOOK_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 60.0
"""How long a failed read looks for the damage, and how soon another one looks again."""
_log = logging.getLogger(__name__)
T = TypeVar("T")
SETTLED_NAMESPACES = 100
"""How many namespaces one commit settles."""
MERGED_PAGES = 200
"""Pages of the keyword index that one step of maintenance merges: some milliseconds, so that no writer waits long."""


def system_time() -> int:
    return time.time_ns() // 1_000


def _is_writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _start(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(32)


def _counts(connection: Connection, namespace: Namespace) -> tuple[Counts, Waiting] | None:
    row = read_namespace(connection, namespace)
    if row is None:
        return None
    waiting = Waiting.of(connection, namespace, row)
    return candidates.counts_of(row, waiting), waiting


def _alone(work: Callable[[Group], Any]) -> Callable[[Group], Any]:
    def job(group: Group) -> Any:
        group.is_kept = False
        return work(group)

    return job


def _needs_snapshot(scan: Scan) -> bool:
    """Labels of entries that wait are read before the entries."""
    return scan.as_of is not None or has_labels(scan.filter)


class SQLiteStore(Store):
    """Entries in one SQLite file. Safe for many threads and many processes."""

    indexes_later = True

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
        self.reads_at_once = self.path != MEMORY  # a book in memory allows one read or write at a time
        self._busy_seconds = busy_seconds
        self._durability: Durability = durability
        self._clock = clock
        self._process = os.getpid()
        self._guard: Guard | None = None  # of a file, once it is open
        self._kept_group: Group | None = None
        self._still: Stamp | None = None  # of a file that this program can only read
        self._is_closed = False
        self._readers = threading.local()
        self._connections: WeakSet[Connection] = WeakSet()  # a thread that ends takes its connection with it
        self._connections_mutex = threading.Lock()
        self._cache_bytes = cache_bytes
        self._queue: WriterQueue | None = None
        self._has_met_damage = False
        self._damage: damage.Problem | None = None
        self._looked_at = -math.inf
        self._memory_lock = threading.RLock()
        if self.path == MEMORY:
            self._writing = self._connect(in_use=False)
            migrate(self._writing, self.path)
        else:
            self._writing = self._open_still() if self._is_only_readable() else self._open_file()
        self._writer: Writer[Group] = Writer(
            self._writing,
            self.path,
            self._hold_memory if self.path == MEMORY else self._hold_file,
            self._begin_group,
            self._flush_group,
            self._keep_group,
        )
        # the book is usable without them; another program adds them
        with suppress(CommonplaceError), translated(self.path):
            if self._still is None and self._writing.execute(ANY_UNCHECKED).fetchall():
                self._add_checksums(FILL_SECONDS)

    @property
    def is_damaged(self) -> bool:
        return self._has_met_damage

    def _add_checksums(self, seconds: float) -> bool:
        """Give checksums to rows that have none, for about `seconds`; returns whether there may be more."""
        deadline = time.monotonic() + seconds
        while self._run(lambda group: damage.fill(self._writing)):
            if time.monotonic() > deadline:
                return True
        return False

    def _is_only_readable(self) -> bool:
        """Whether the file exists, but it and the files next to it cannot be written."""
        file = os.path.realpath(self.path)
        if not os.path.isfile(file) or not os.path.getsize(file):
            return False
        is_whole = all(map(_is_writable, (f"{file}{suffix}" for suffix in ("-wal", "-shm", "-lock", "-turn"))))
        return not _is_writable(file) or not (is_whole or _is_writable(os.path.dirname(file)))

    def _open_still(self) -> Connection:
        """Open a file in a read-only folder, or on a read-only file system."""
        file = os.path.realpath(self.path)
        if os.path.exists(f"{file}-wal") and os.path.getsize(f"{file}-wal"):
            raise ConfigurationError(
                f"{self.path} is read-only, and {file}-wal holds writes that are not in it yet; copy both to a folder "
                "that is writable and open the book there"
            )
        self._still = stamp(file)
        connection = self._connect(in_use=False)
        try:
            with translated(self.path):
                if not check_schema(connection, self.path):
                    raise ConfigurationError(
                        f"{self.path} is read-only and has an older schema; open it once where it is writable"
                    )
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_file(self) -> Connection:
        """Open the file, and create or migrate it if needed, one process at a time."""
        check_log(self.path)
        self._create_private()
        connection = self._connect(in_use=False)
        with translated(self.path):
            try:
                self._queue = WriterQueue(self.path, self._busy_seconds)
            except BaseException:
                connection.close()
                raise
            try:
                guard = Guard(self.path, self._queue.handle)
                if not check_schema(connection, self.path) or self._journal_mode(connection) != "wal":
                    with self._queue.held():
                        connection.execute("PRAGMA journal_mode = WAL").fetchall()
                        migrate(connection, self.path)
                        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                        guard.begin(connection)
                elif guard.knows():
                    guard.begin(connection)
                else:
                    with self._queue.held():
                        guard.begin(connection)
                connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
                if lost_commits(os.path.realpath(self.path), connection):  # or others are writing
                    with self._queue.held():
                        self._keep_damaged_log(connection, guard)
            except BaseException:
                connection.close()
                self._queue.close()
                raise
        self._guard = guard
        return connection

    def _keep_damaged_log(self, connection: Connection, guard: Guard) -> None:
        """Set aside a log whose later commits cannot be read, because the next checkpoint would erase what is left of
        them.
        """
        import shutil  # no other program needs it, and it loads four compressors

        file = os.path.realpath(self.path)
        lost = lost_commits(file, connection)
        if not lost or any(_start(one) == _start(f"{file}-wal") for one in self._damaged_logs()):
            return
        kept = f"{file}{DAMAGED_LOG}{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        try:
            with (
                open(f"{file}-wal", "rb") as log,
                os.fdopen(os.open(kept, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy,
            ):
                shutil.copyfileobj(log, copy)
        except OSError as error:
            raise unavailable(
                f"the log of the book is damaged and cannot be kept: {error.strerror}; nothing was changed", self.path
            ) from error
        guard.check(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        guard.finish(checkpointed=True)
        self._has_met_damage = True
        _log.error("%d commits in the log of %s cannot be read: it is damaged, and kept as %s", lost, self.path, kept)

    def _damaged_logs(self) -> list[str]:
        return sorted(glob(f"{escape(os.path.realpath(self.path))}{DAMAGED_LOG}*")) if self.path != MEMORY else []

    def _create_private(self) -> None:
        """Create a new file readable by its owner only."""
        try:
            os.close(os.open(os.path.realpath(self.path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError:
            return  # it exists, or SQLite will report why it cannot be created

    @staticmethod
    def _journal_mode(connection: Connection) -> str:
        return str(connection.execute("PRAGMA journal_mode").fetchall()[0][0])

    def _connect(self, *, in_use: bool = True) -> Connection:
        connection = self._connect_apart(in_use=in_use)
        with self._connections_mutex:
            self._connections.add(connection)
        return connection

    def _connect_apart(self, *, in_use: bool = True) -> Connection:
        """A connection that closing the book does not close."""
        self._check_place()
        connection = connect(
            self.path,
            busy_seconds=self._busy_seconds,
            durability=self._durability,
            in_use=in_use,
            only_reads=self._still is not None,
        )
        try:
            self._check_place()
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_place(self) -> None:
        if self._guard is not None:
            self._guard.check_place()

    def _hold_file(self, work: Callable[[], None], since: float) -> None:
        if self._still is not None:
            raise ConfigurationError(
                "the book is read-only; nothing was changed, make its file and its folder writable and open it again"
            )
        assert self._queue is not None
        assert self._guard is not None
        guard = self._guard

        def work_here() -> None:
            guard.check(self._writing)
            work()
            guard.finish()

        self._queue.hold(work_here, since)

    def _begin_group(self) -> Group:
        kept, self._kept_group = self._kept_group, None
        if kept is not None and kept.version == self._writing.data_version():
            return kept
        check_unchanged(self._writing, self.path)
        return begin_group(self._writing)

    def _flush_group(self, group: Group) -> None:
        flush_group(self._writing, group)
        if self._guard is not None:
            self._guard.renew(self._writing)

    def _keep_group(self, group: Group) -> None:
        if group.is_kept:
            group.note_commit(self._writing.data_version())
            self._kept_group = group

    def _hold_memory(self, work: Callable[[], None], since: float) -> None:
        with self._memory_lock:
            work()

    # Connections

    def _check_usable(self) -> None:
        if self._is_closed:
            raise closed(self.path)
        if os.getpid() != self._process:
            raise unavailable("the book was opened before a fork; open it again in this process", self.path)

    @contextmanager
    def _reading(self, of: Namespace | None = None, *, snapshot: bool = False) -> Iterator[Connection]:
        """This thread's reading connection; with `snapshot`, all statements see one state of the file.

        `of` is the namespace that is read: an error may name its entries, and no others.
        """
        self._check_usable()
        if self.path == MEMORY:
            with self._memory_lock, self._naming_damage(self._writing, of):
                yield self._writing
            return
        if self._guard is not None:
            try:
                self._guard.look()
            except Unavailable:
                self._check_usable()  # another thread may have closed the book, which removes the log
                raise
        elif stamp(os.path.realpath(self.path)) != self._still:  # by someone who may write to it
            raise unavailable("the read-only book was changed by another program; open it again", self.path)
        connection: Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            connection = self._readers.connection = self._connect()
        try:
            if not snapshot:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")
        except Exception as error:  # noqa: BLE001  # it is raised again
            self._raise_named(error, connection, of)
        finally:
            if self._is_closed:
                connection.close()

    @contextmanager
    def _naming_damage(self, connection: Connection, of: Namespace | None) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # it is raised again
            self._raise_named(error, connection, of)

    def _raise_named(self, error: Exception, connection: Connection, of: Namespace | None) -> NoReturn:
        """Raise errors from damaged rows as `Corrupt`, with the entry or the page, and other errors unchanged."""
        if isinstance(error, Corrupt):
            self._has_met_damage = True
        elif isinstance(error, DRIVER_ERRORS):
            translated = translate(error, self.path, in_use=True)
            if isinstance(translated, Corrupt):
                translated = self._named(translated, connection, of)
            raise translated from error
        elif isinstance(error, damage.RAISED) and not isinstance(error, CommonplaceError):
            try:
                is_ours = damage.first_problem(connection, LOOK_SECONDS) is None
            except TimeoutError:
                is_ours = False
            if not is_ours:
                raise self._named(damaged_row("a row"), connection, of) from error
        raise error

    def _named(self, error: Corrupt, connection: Connection, of: Namespace | None) -> Corrupt:
        """The error with what is damaged: in the message if it is the caller's entry or a page, else in the log."""
        problem = self._find_damage(connection)
        if problem is None:
            return error
        if problem.namespace in (None, of):
            named = Corrupt(f"{problem.text}: {error}")
            named.__notes__ = getattr(error, "__notes__", [])
            return named
        error.add_note(problem.text)
        return error

    def _find_damage(self, connection: Connection) -> damage.Problem | None:
        """What is damaged, as far as a short search finds it. The search is repeated only once in a while."""
        self._has_met_damage = True
        if time.monotonic() - self._looked_at > LOOK_AGAIN_SECONDS:
            try:
                self._damage = damage.first_problem(connection, LOOK_SECONDS)
            except TimeoutError:
                _log.warning("finding the damage took too long; run `commonplace doctor`")
            self._looked_at = time.monotonic()
        return self._damage

    def _run(self, work: Callable[[Group], Any], *, keeps_group: bool = False) -> Any:
        """Run a job. With `keeps_group`, it changes namespaces and entries only as the group knows it."""
        self._check_usable()
        try:
            return self._writer.run(work if keeps_group else _alone(work))
        except Corrupt:
            self._has_met_damage = True
            raise

    def close(self) -> None:
        """Wait for running writes, then close the file. A running read closes its connection when it ends."""
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._process:
            return
        if not self._writer.close(self._busy_seconds):
            _log.warning("%s is still being written to; it is closed when that ends", self.path)
            return
        with self._memory_lock, self._connections_mutex, self._last_checkpoint():
            self._connections.discard(self._writing)
            for connection in [*self._connections, self._writing]:
                with suppress(apsw.ThreadingViolationError):
                    connection.close()
            self._connections.clear()
        if self._queue is not None:
            self._queue.close()

    @contextmanager
    def _last_checkpoint(self) -> Iterator[None]:
        """Let the last program that closes the book move its log into the file, if the file is still the book."""
        if self._queue is None or self._guard is None:
            yield
            return
        with ExitStack() as held:
            try:
                held.enter_context(self._queue.held(CLOSING_SECONDS))
                self._guard.check(self._writing)
            except (Unavailable, apsw.Error):  # others are still writing, or writing is no longer allowed
                yield
                return
            self._writing.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            yield
            self._guard.finish(checkpointed=True)

    # Entries

    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        def job(group: Group) -> tuple[T, int | None]:
            transaction = SQLiteTransaction(self._writing, group, namespace, self._clock, actor)
            result = work(transaction)
            return result, transaction.finish()

        result: tuple[T, int | None] = self._run(job, keeps_group=True)
        return result

    def read(self, namespace: Namespace, work: Callable[[Reader], T], *, snapshot: bool = True) -> T:
        with self._reading(namespace, snapshot=snapshot) as connection:
            number = namespace_id(connection, namespace)
            return work(SQLiteReader(connection, namespace, number, self._clock()))

    def scan(self, namespace: Namespace, scan: Scan) -> ScanPage:
        return self.read(namespace, lambda reader: reader.scan(scan), snapshot=_needs_snapshot(scan))

    def values(self, namespace: Namespace, scan: Scan) -> list[JSON]:
        return self.read(namespace, lambda reader: reader.values(scan), snapshot=_needs_snapshot(scan))

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
        sql = "SELECT path FROM namespace AS n WHERE 1"
        parameters: list[Any] = []
        if prefix:
            sql += " AND (path = ? OR (path >= ? AND path < ?))"
            parameters += [path, path + "/", after_prefix(path + "/")]
        if after is not None:
            sql += " AND path > ?"
            parameters.append("/".join(after))
        if holding is not None:
            kinds = f" AND e.kind IN ({', '.join('?' * len(holding))})" if holding else ""
            live = f"e.namespace = n.id{kinds} AND (e.expires_at IS NULL OR e.expires_at > ?)"
            parameters += [*holding, self._clock()]
            if history:
                live += " AND instr(e.attributes, ?) = 0"
                parameters.append(NO_HISTORY)
            sql += f" AND EXISTS (SELECT 1 FROM entry AS e WHERE {live})"
        with self._reading() as connection:
            rows = connection.execute(f"{sql} ORDER BY path LIMIT ?", (*parameters, limit)).fetchall()
            return [stored_namespace(row[0]) for row in rows]

    def usage(self, prefix: Namespace) -> Usage:
        with self._reading(snapshot=True) as connection:
            return usage_below(connection, prefix)

    def stats(self) -> StoreStats:
        with self._reading(snapshot=True) as connection:
            return maintenance.stats(connection, self.path)

    def waker(self) -> Waker:
        self._check_usable()
        if self.path == MEMORY:
            return _MemoryWaker(self._changes_in_memory)
        with translated(self.path, in_use=True):
            return _FileWaker(self._connect())

    def _changes_in_memory(self) -> int:
        with self._memory_lock:
            return 0 if self._is_closed else self._writing.total_changes()

    def system_rows(self, part: str, key: str | None = None) -> dict[str, JSON]:
        where, parameters = ("part = ?", (part,)) if key is None else ("part = ? AND key = ?", (part, key))
        sql = f"SELECT key, value, checksum FROM system WHERE {where} ORDER BY key"
        with self._reading() as connection:
            found = {}
            for name, value, checksum in connection.execute(sql, parameters).fetchall():
                check_row(f"a row of {part}", checksum, part, name, value)
                found[name] = json.loads(value)
            return found

    def system_put(self, part: str, key: str, value: JSON | None, *, only_new: bool = False) -> bool:
        def job(group: Group) -> bool:
            before = self._writing.total_changes()
            if value is None:
                self._writing.execute("DELETE FROM system WHERE part = ? AND key = ?", (part, key))
            else:
                verb, text = "INSERT OR IGNORE" if only_new else "INSERT OR REPLACE", dump(value)
                self._writing.execute(
                    f"{verb} INTO system (part, key, value, checksum) VALUES (?, ?, ?, ?)",
                    (part, key, text, row_sum(part, key, text)),
                )
            return self._writing.total_changes() > before

        is_changed: bool = self._run(job)
        return is_changed

    # Search

    @property
    def vector_bytes(self) -> int:
        """The size of the vectors in this process's memory; `cache_bytes` bounds it."""
        return self._vectors.held_bytes

    @cached_property
    def _vectors(self) -> VectorCache:
        from commonplace.backends.vectors import VectorCache  # NumPy takes a tenth of a second to import

        return VectorCache(self._cache_bytes)

    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        with self._reading(namespace, snapshot=True) as connection:
            found = _counts(connection, namespace)
            if found is None:
                return []
            counts, waiting = found
            return candidates.search_text(connection, counts, terms, Page(filter, limit, self._clock(), also), waiting)

    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        with self._reading(namespace, snapshot=True) as connection:
            row = read_namespace(connection, namespace)
            if row is None:
                return []
            page = Page(filter, limit, self._clock())
            return candidates.search_vectors(connection, row, model, query, page, lambda: self._vectors)

    def search(
        self, namespace: Namespace, query: SearchQuery, choose: Choose, *, unless_pending: bool = False
    ) -> Candidates | None:
        with self._reading(namespace, snapshot=True) as connection:
            return candidates.search(
                connection,
                namespace,
                query,
                choose,
                self._clock(),
                lambda: self._vectors,
                unless_pending=unless_pending,
            )

    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        with self._reading(namespace, snapshot=True) as connection:
            found = _counts(connection, namespace)
            if found is None:
                return TermCounts(0, 0.0, {})
            counts, waiting = found
            return candidates.term_counts(connection, counts, terms, waiting)

    def passage_vectors(
        self, namespace: Namespace, model: str, states: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, NDArray[float32]]]:
        with self._reading(namespace, snapshot=True) as connection:
            return index.passage_vectors(connection, model, states)

    # Models and vectors

    def models(self) -> tuple[str | None, str | None]:
        with self._reading() as connection:
            return index.models(connection)

    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        if namespace is None:
            with self._reading(snapshot=True) as connection:
                state = index.indexing(connection, None)
                return replace(state, pending=state.pending + waiting_counts(connection)[1])
        with self._reading(namespace, snapshot=True) as connection:
            row = read_namespace(connection, namespace)
            if row is None:
                return index.indexing(connection, 0)
            state = index.indexing(connection, row.id)
            return replace(state, pending=state.pending + Waiting.of(connection, namespace, row).pending)

    def _settle_all(self) -> None:
        """Write the derived rows of the entries that wait, some namespaces at a time.

        Each namespace is settled once. Where others write all the time, some entry always waits.
        """
        last = 0
        while self._still is None:
            with self._reading() as connection:
                namespaces = index.namespaces_waiting(connection, last, SETTLED_NAMESPACES)
            if not namespaces:
                return
            self._run(partial(index.settle, self._writing, list(namespaces.values())), keeps_group=True)
            last = max(namespaces)

    def set_target_model(self, model: str, dimensions: int) -> None:
        self._settle_all()
        self._run(lambda group: index.set_target_model(self._writing, model, dimensions))
        self._drop_retired()

    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        self._settle_all()
        with self._reading() as connection:
            if not connection.execute("SELECT 1 FROM pending LIMIT 1").fetchall():
                return []
        claimed: list[Pending] = self._run(
            lambda group: index.claim(self._writing, limit, lease_seconds, self._clock(), even_leased=even_leased),
            keeps_group=True,
        )
        return claimed

    def pending(
        self, namespace: Namespace, limit: int, *, among: Sequence[tuple[int, int]] | None = None
    ) -> list[Pending]:
        with self._reading(namespace, snapshot=True) as connection:
            row = read_namespace(connection, namespace)
            if row is None:
                return []
            waiting = Waiting.of(connection, namespace, row).pending_passages(namespace, among)
            return [*waiting, *index.pending(connection, row.id, limit, among)][:limit]

    def index(self, model: str, embedded: Sequence[tuple[int, NDArray[float32]]]) -> None:
        self._run(lambda group: index.store_vectors(self._writing, group, model, embedded), keeps_group=True)
        self._drop_retired()

    def maintain(self) -> bool:
        self._settle_all()

        def merge(group: Group) -> bool:
            before = self._writing.total_changes()
            self._writing.execute("INSERT INTO keywords (keywords, rank) VALUES ('merge', ?)", (MERGED_PAGES,))
            return self._writing.total_changes() - before >= 2  # FTS5's sign that it had something to merge

        found: bool = self._run(merge)
        with self._reading() as connection:
            is_unchecked = bool(connection.execute(ANY_UNCHECKED).fetchall())
        return (is_unchecked and self._add_checksums(FILL_SECONDS)) or found

    def _drop_retired(self) -> None:
        with self._reading() as connection:
            if not connection.execute("SELECT 1 FROM model WHERE role = 'retired'").fetchall():
                return
        while self._run(lambda group: index.drop_retired(self._writing)):
            continue

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
        def job(group: Group) -> tuple[int, int]:
            transaction = SQLiteTransaction(self._writing, group, namespace, self._clock, None)
            erased = maintenance.purge(self._writing, transaction, kind, key, prefix, history_before, revision)
            for part in parts:
                erased += maintenance.purge(self._writing, transaction, *part, history_before)
            transaction.finish()
            return erased, transaction.namespace_id

        erased: int
        erased, number = self._run(job)
        self._vectors.evict(number)
        if self.path != MEMORY:  # even if nothing was left to erase: an earlier purge may have failed before this
            self._truncate_log()
        return erased

    def _truncate_log(self) -> None:
        """Move everything from the log into the file and truncate the log; waits for readers for a bounded time."""
        deadline = time.monotonic() + self._busy_seconds
        # This uses its own place in the queue and its own connection, because the store's may be in use by its writer.
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
            # Begin a snapshot first: without one, every write by others makes the copy start again.
            connection.execute("SELECT entry FROM next_id").fetchall()
            maintenance.backup(connection, target, progress)

    def verify(self, progress: Progress | None = None) -> list[str]:
        with self._reading(snapshot=True) as connection:
            problems = [problem.text for problem in damage.problems(connection, progress)]
            if not problems:
                late = "SELECT count(*), max(commit_time) FROM namespace WHERE commit_time > ?"
                problems += late_problem(*connection.execute(late, (is_late(self._clock()),)).fetchall()[0])
            return problems + [
                f"file: the log was damaged, and commits in it are lost; it is kept as {kept}; restore a backup or "
                "continue without them, then move that file away"
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
        # A separate connection: the snapshot lasts as long as the caller takes, and other reads go on meanwhile.
        connection = self._connect_apart()
        try:
            with self._naming_damage(connection, None):
                connection.execute("BEGIN")
                yield from read(connection)
        finally:
            connection.close()

    def adopt(self, head: NamespaceHead, read: ReadStates, check: CheckUsage | None = None) -> int:
        from commonplace.backends.sqlite import exchange

        adopted: int = self._run(lambda group: exchange.adopt(self._writing, group, head, read(), check))
        return adopted


# Waiting for commits


class _FileWaker(Waker):
    """Polls a connection's `data_version` (3 µs), which changes with every commit of any other connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        self._seen = self._version()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchall()[0][0])

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._mutex:
                if self._closed.is_set():
                    return False
                version = self._version()
            if version != self._seen:
                self._seen = version
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self._closed.wait(min(left, WAKER_SECONDS)):
                return False

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            self._connection.close()


class _MemoryWaker(Waker):
    """Polls how many rows the one connection of a database in memory has changed."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._closed = threading.Event()
        self._seen = count()

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while not self._closed.is_set():
            count = self._count()
            if count != self._seen:
                self._seen = count
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._closed.wait(min(left, WAKER_SECONDS))
        return False

    def close(self) -> None:
        self._closed.set()
