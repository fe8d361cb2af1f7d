"""Group commit: the writes of many threads in one durable commit, each of them applied completely or not at all.

A thread that finds no other thread writing becomes the leader: it runs its own job and all waiting jobs, commits once
and wakes their threads. There is no separate writer thread, so a single writer pays for no hand-over. Nothing is
acknowledged before COMMIT. A job that fails before it has changed anything does not affect the others. If it fails
later, the group's transaction is rolled back and the others run again without it. So a job may run twice, and only its
last run counts. (Savepoints would make FTS5 write a segment for each job: 37 µs per write.)

An interrupt (Ctrl-C, an alarm) may arrive after any call. So only the queue determines the leader: the thread of the
first job whose thread has not left. A job stays in the queue until it is done. The next leader runs what an interrupted
leader had not committed. A wake-up is only a hint: waiting threads also check the queue from time to time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from commonplace.backends.sqlite.checksums import damaged_row, row_sum
from commonplace.backends.sqlite.connection import DRIVER_ERRORS, Connection, closed, translate
from commonplace.checks import Namespace
from commonplace.language.passages import Passage

MAX_GROUP = 128
CLOSING_PAUSE_SECONDS = 0.001
GATHER_FROM = 8
GATHER_SECONDS = 0.0002
MOST_GATHER_SECONDS = 0.006
"""If the last group had so many jobs, the next leader waits for as many, until this long for each after that group."""
LOOK_SECONDS = 0.1
"""How long a job waits to be woken before it checks the queue itself. This only matters after an interrupt."""

G = TypeVar("G")


class Job(Generic[G]):
    """A unit of work that waits for its commit."""

    __slots__ = ("done", "error", "has_left", "leads", "result", "since", "thread", "wake", "work")

    def __init__(self, work: Callable[[G], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done: Sequence[object] = ()  # not empty once there is a result or an error; one list for the whole group
        self.leads = False
        self.has_left = False
        self.thread = threading.get_ident()
        self.since = time.monotonic()
        self.wake = threading.Lock()  # a plain lock costs a third of an Event
        self.wake.acquire()


class Writer(Generic[G]):
    """Runs jobs on the one writing connection of a process.

    `exclusive` runs a group while it holds the writer lock, given the time since when it has waited. `begin` creates
    what the group's jobs share, `flush` writes it before COMMIT, and `keep` may keep it for the next group after that.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        exclusive: Callable[[Callable[[], None], float], None],
        begin: Callable[[], G],
        flush: Callable[[G], None],
        keep: Callable[[G], None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._exclusive = exclusive
        self._begin = begin
        self._flush = flush
        self._keep = keep
        self._jobs: deque[Job[G]] = deque()
        self._last_group = 0  # how many jobs it had
        self._gather_until = 0.0
        self._gathering: Job[G] | None = None  # its thread waits for more jobs; perhaps it has left since
        self._is_closed = False

    def close(self, seconds: float) -> bool:
        """Accept no more jobs, and wait for those that were accepted; returns whether all are done in time."""
        self._is_closed = True
        deadline = time.monotonic() + seconds
        while (first := self._first()) is not None:
            if first.thread == threading.get_ident() or time.monotonic() > deadline:
                return False
            time.sleep(CLOSING_PAUSE_SECONDS)
        return True

    def run(self, work: Callable[[G], Any]) -> Any:
        """Run `work` in the next group; return its result once it is durable, or raise its error."""
        job = Job(work)
        if self._jobs and (first := self._first()) is not None and first.leads and first.thread == job.thread:
            raise RuntimeError("a write was started inside a write; use the transaction that is open")
        if self._is_closed:
            raise closed(self._path)
        try:
            self._jobs.append(job)
            if self._gathering is not None and len(self._jobs) >= self._last_group:
                _wake(self._gathering)
            # closed since the check above: a leader may still run the job, but this thread must not lead
            is_late = self._is_closed
            while not job.done:
                if self._first() is not job:
                    job.wake.acquire(timeout=LOOK_SECONDS)
                elif is_late:
                    raise closed(self._path)
                else:
                    self._gather(job)
                    self._lead(job)
        finally:
            job.has_left = True
            if (first := self._first()) is not None and not first.leads and first is not self._gathering:
                _wake(first)
        if job.error is not None:
            raise job.error
        return job.result

    def _first(self) -> Job[G] | None:
        """The job whose thread is, or should become, the leader."""
        while True:
            try:
                job = self._jobs[0]
                if not job.has_left and (job.leads or not job.done):
                    return job
                self._jobs.remove(job)
            except IndexError:
                return None
            except ValueError:  # another thread has just removed it
                continue

    def _gather(self, own: Job[G]) -> None:
        """Wait for the threads of the last group to come back, so that they share a commit again.

        Otherwise they prepare their next jobs while the leader runs its own, and at each statement one of them takes
        the interpreter from it. A lone writer does not wait.
        """
        if len(self._jobs) >= self._last_group or (seconds := self._gather_until - time.monotonic()) <= 0:
            return
        try:
            self._gathering = own
            own.wake.acquire(timeout=seconds)
        finally:
            self._gathering = None

    def _lead(self, own: Job[G]) -> None:
        own.leads = True
        group: list[Job[G]] = []
        try:
            self._exclusive(lambda: self._commit_group(group), own.since)
        except Exception as error:
            if own.done:  # a signal handler raised it after the commit
                raise
            self._fail(group or [own], error)
        finally:
            self._last_group = len(group)
            if self._last_group >= GATHER_FROM:
                seconds = min(GATHER_SECONDS * self._last_group, MOST_GATHER_SECONDS)
                self._gather_until = time.monotonic() + seconds
            for job in group:
                _wake(job)

    def _commit_group(self, group: list[Job[G]]) -> None:
        connection = self._connection
        commits: list[object] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            shared = self._begin()
            for job in islice(self._waiting(), MAX_GROUP):
                job.error, job.done = None, commits
                group.append(job)
                if not self._run_job(job, shared):
                    shared = self._run_again(group)
            self._flush(shared)
            # One call, so that no interrupt can come between the commit and marking all jobs as done.
            commits.extend(map(connection.execute, ("COMMIT",)))
            self._keep(shared)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _waiting(self) -> Iterator[Job[G]]:
        """The jobs of the queue, the leader's own first, and those added in the meantime. No other thread removes one
        now.
        """
        position = 0
        while position < len(self._jobs):
            job = self._jobs[position]
            if not job.has_left:
                yield job
            position += 1

    def _run_job(self, job: Job[G], shared: G) -> bool:
        """Run a job; False if it failed after changing something, so that the transaction must be rolled back."""
        before = self._connection.total_changes()
        try:
            job.result = job.work(shared)
        except Exception as error:
            if not self._connection.in_transaction:  # a full or failing disk has ended the transaction for all jobs
                raise
            job.error = translate(error, self._path, in_use=True) if isinstance(error, DRIVER_ERRORS) else error
            if job.error is not error:
                job.error.__cause__ = error
            return self._connection.total_changes() == before
        return True

    def _run_again(self, group: list[Job[G]]) -> G:
        """Start a new transaction with the jobs that have not failed."""
        while True:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            shared = self._begin()
            if all(self._run_job(job, shared) for job in group if job.error is None):
                return shared

    def _fail(self, group: list[Job[G]], error: Exception) -> None:
        """Report to all jobs of the group that nothing was written."""
        for job in group:
            job.error = translate(error, self._path, in_use=True) if isinstance(error, DRIVER_ERRORS) else error
            if job.error is not error:
                job.error.__cause__ = error
            job.done = (error,)


def _wake(job: Job[Any]) -> None:
    try:
        job.wake.release()
    except RuntimeError:  # it was woken already
        return


# What the jobs of one commit share: id counters and namespaces' rows, read once and written once

Counter = Literal["namespace", "entry", "chunk", "vector"]
MOST_IDS = 1 << 56
"""The highest id: a posting is an id times 64, and must fit into 63 bits."""
COUNTERS: tuple[Counter, ...] = ("namespace", "entry", "chunk", "vector")


NAMESPACE_COLUMNS = (
    "id, commit_number, commit_time, history_floor, chunk_count, term_total, chunks_ended, "
    "waiting_commit, waiting_entry, waiting_count"
)
KEPT_NAMESPACES = 64
"""The rows of how many namespaces are kept for the next commits."""
KEPT_PLACES = 16
"""How many rows and ranges of keys are remembered for each of them."""
_COUNTS = 7
"""How many of these columns are never NULL. The others are all NULL if nothing waits."""
_INTEGER = frozenset((int,))


class NewEntry(NamedTuple):
    """What the derived rows of a new entry are made from."""

    commit: int
    id: int
    text: str
    heading: str | None
    labels: set[tuple[str, str]]
    passages: Sequence[Passage] | None
    """Those of its text, if they are made already."""


@dataclass(slots=True)
class Memory:
    """What this process knows about a namespace while nobody else writes to the file; see `Group`."""

    new: list[NewEntry] | None = None
    """All entries that wait for their derived rows; None if there may be others."""
    touched: dict[tuple[str, str], Sequence[Any]] = field(default_factory=dict)
    """Live rows by kind and key, whose time was changed last and nothing since."""
    unused: dict[tuple[str, str], str] = field(default_factory=dict)
    """Ranges of keys that were never used: the first one by the kind and the last one."""

    def note_touched(self, names: tuple[str, str], row: Sequence[Any]) -> None:
        if len(self.touched) >= KEPT_PLACES:
            self.touched.clear()
        self.touched[names] = row

    def note_unused(self, kind: str, first: str, last: str) -> None:
        if len(self.unused) >= KEPT_PLACES:
            self.unused.clear()
        self.unused[kind, last] = first

    def note_used(self, kind: str, key: str) -> None:
        """A key is used: of a range that it is in, the part after it is left."""
        for (of, last), first in self.unused.items():
            if of == kind and first <= key <= last:
                self.unused[of, last] = key + "\0"

    def forget(self) -> None:
        self.touched.clear()
        self.unused.clear()


@dataclass(slots=True)
class NamespaceRow:
    """The namespace's counters as they will be written with the group."""

    id: int
    commit_number: int
    commit_time: int
    history_floor: int
    chunk_count: int
    term_total: int
    chunks_ended: int
    waiting_commit: int | None = None
    waiting_entry: int | None = None
    waiting_count: int | None = None
    is_new: bool = False
    is_changed: bool = False
    moves_waiting: bool = False
    """Whether entries began to wait, or none waits any more. Otherwise an index is not written."""
    first_expiry: int | None = 0
    """No entry expires before this time; None if none ever does."""
    memory: Memory = field(default_factory=Memory)

    def copy(self) -> NamespaceRow:
        return NamespaceRow(
            self.id,
            self.commit_number,
            self.commit_time,
            self.history_floor,
            self.chunk_count,
            self.term_total,
            self.chunks_ended,
            self.waiting_commit,
            self.waiting_entry,
            self.waiting_count,
            self.is_new,
            self.is_changed,
            self.moves_waiting,
            self.first_expiry,
            self.memory,  # a change of it is a change of rows: if these are rolled back, it is gone too
        )

    @property
    def columns(self) -> tuple[int | None, ...]:
        """In the order of NAMESPACE_COLUMNS."""
        return (
            self.id,
            self.commit_number,
            self.commit_time,
            self.history_floor,
            self.chunk_count,
            self.term_total,
            self.chunks_ended,
            self.waiting_commit,
            self.waiting_entry,
            self.waiting_count,
        )

    @property
    def waiting(self) -> tuple[int, int] | None:
        """The first commit of the entries that wait, and the id that theirs are above."""
        if self.waiting_entry is None:
            return None
        assert self.waiting_commit is not None
        return self.waiting_commit, self.waiting_entry

    def wait(self, commit: int, entry_id: int) -> int:
        """Note that a new entry waits for its derived rows; returns how many do."""
        if self.waiting_entry is None:
            self.waiting_commit, self.waiting_entry, self.waiting_count = commit, entry_id - 1, 0
            self.moves_waiting = True
            self.memory.new = []
        assert self.waiting_commit is not None
        assert self.waiting_count is not None
        self.waiting_commit = min(self.waiting_commit, commit)
        self.waiting_count += 1
        return self.waiting_count

    def wait_no_more(self) -> None:
        if self.waiting_entry is not None:
            self.waiting_commit = self.waiting_entry = self.waiting_count = None
            self.is_changed = self.moves_waiting = True
            self.memory.new = None

    def note_expiry(self, expires_at: int | None) -> None:
        if expires_at is not None and (self.first_expiry is None or expires_at < self.first_expiry):
            self.first_expiry = expires_at


def namespace_sum(path: str, columns: Sequence[int | None]) -> int:
    """The checksum of a namespace's row. If nothing waits, it is the one that older programs computed."""
    return row_sum(path, *columns[: _COUNTS if columns[-1] is None else None])


def check_namespace_row(path: str, columns: Sequence[int | None], checksum: int | None) -> None:
    """Refuse damaged counters, given in the order of NAMESPACE_COLUMNS."""
    waiting = columns[_COUNTS:]
    is_right = _INTEGER.issuperset(map(type, columns[:_COUNTS])) and (
        waiting[0] is waiting[1] is waiting[2] is None or _INTEGER.issuperset(map(type, waiting))
    )
    if not is_right or (checksum is not None and checksum != namespace_sum(path, columns)):
        raise damaged_row(f"the row of namespace {path}")


def read_namespace(connection: Connection, namespace: Namespace) -> NamespaceRow | None:
    path = "/".join(namespace)
    rows = connection.execute(f"SELECT {NAMESPACE_COLUMNS}, checksum FROM namespace WHERE path = ?", (path,)).fetchall()
    if not rows:
        return None
    *columns, checksum = rows[0]
    check_namespace_row(path, columns, checksum)
    return NamespaceRow(*columns)


_COLUMNS = NAMESPACE_COLUMNS.split(", ")
_INSERT = f"INSERT INTO namespace ({NAMESPACE_COLUMNS}, path, checksum) VALUES ({', '.join('?' * (len(_COLUMNS) + 2))})"
_SET = {
    is_moved: "UPDATE namespace SET "
    + ", ".join(
        f"{name} = ?{place}"
        for place, name in enumerate(_COLUMNS, 1)
        if name != "id" and (is_moved or name != "waiting_entry")
    )
    + f", checksum = ?{len(_COLUMNS) + 1} WHERE id = ?1 AND checksum IS NOT ?{len(_COLUMNS) + 1}"
    for is_moved in (False, True)
}
"""The index of namespaces with waiting entries is written only if `waiting_entry` is assigned."""


def write_namespace(connection: Connection, namespace: Namespace, row: NamespaceRow) -> None:
    path, columns = "/".join(namespace), row.columns
    checksum = namespace_sum(path, columns)
    if row.is_new:
        connection.execute(_INSERT, (*columns, path, checksum))
    else:
        connection.execute(_SET[row.moves_waiting], (*columns, checksum))


@dataclass(slots=True)
class Group:
    """What the jobs of one commit share: the counters, read once and written once.

    It is kept for the next commit. If SQLite then says that no other connection has changed the file, nothing is read
    again. It is not kept after a rollback, or if a job changes rows in another way than a transaction does.
    """

    counters: dict[Counter, int]
    stored_counters: tuple[int, ...]
    namespaces: dict[Namespace, NamespaceRow] = field(default_factory=dict)
    has_erased: bool = False
    """Whether rows that had ids may be gone without a former state, so that only the counters know the highest id."""
    erased_chunk: int = 0
    """The highest id of a passage whose row is gone."""
    is_kept: bool = True
    version: int = 0
    """SQLite's version of the data after the commit."""

    def next_id(self, name: Counter) -> int:
        self.counters[name] += 1
        return self.counters[name]

    def note_erased_chunk(self, chunk: int) -> None:
        self.erased_chunk = max(self.erased_chunk, chunk)

    def note_commit(self, version: int) -> None:
        self.version = version
        self.stored_counters = tuple(self.counters.values())
        self.has_erased = False
        self.erased_chunk = 0
        for row in self.namespaces.values():
            row.is_new = row.is_changed = row.moves_waiting = False
        for namespace in list(islice(self.namespaces, max(0, len(self.namespaces) - KEPT_NAMESPACES))):
            del self.namespaces[namespace]


_COUNTED = """
    SELECT namespace,
        max(entry, (SELECT coalesce(max(id), 0) FROM entry), (SELECT coalesce(max(entry), 0) FROM history)),
        max(chunk, (SELECT coalesce(max(id), 0) FROM chunk)), vector
    FROM next_id
"""
"""The highest id of each kind that was ever used. The counters of entries and passages are only written when rows are
erased: until then the rows themselves say it, and a commit writes a page less.
"""


def begin_group(connection: Connection) -> Group:
    stored = connection.execute(_COUNTED).fetchall()[0]
    if not all(type(number) is int and 0 <= number < MOST_IDS for number in stored):
        raise damaged_row("the row of counters")
    return Group(dict(zip(COUNTERS, stored, strict=True)), stored)


def flush_group(connection: Connection, group: Group) -> None:
    counters, stored = tuple(group.counters.values()), group.stored_counters
    is_moved = (counters[0], counters[-1]) != (stored[0], stored[-1])
    if is_moved or group.has_erased or 0 < group.erased_chunk == group.counters["chunk"]:
        connection.execute("UPDATE next_id SET namespace = ?, entry = ?, chunk = ?, vector = ?", counters)
    for namespace, row in group.namespaces.items():
        if row.is_new or row.is_changed:
            write_namespace(connection, namespace, row)
