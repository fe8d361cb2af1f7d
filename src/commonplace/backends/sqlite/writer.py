"""Group commit: the writes of many threads in one durable commit, each of them whole or not at all.

Whoever finds nobody writing leads: it runs its own job and all that wait, commits once and wakes them. No thread
stands by for this, so a lone writer pays for no hand-over. Nothing is acknowledged before COMMIT.

A job that fails before it has changed anything costs the others nothing. One that fails later takes the group's
transaction with it, and the others run again without it; so a job may run twice, and only its last run counts.
(Savepoints would make FTS5 write out a segment for each job: 37 µs a write.)

An interrupt may come after any call (Ctrl-C, an alarm). So nothing but the queue tells who leads: the first job of it
whose thread has not left. A job stays there until it is done; what an interrupted leader had not committed is run by
the next. To be woken is a hint: whoever waits also looks for itself, now and then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from commonplace.backends.sqlite.connection import DRIVER_ERRORS, Connection, closed, translate

MAX_GROUP = 128
CLOSING_PAUSE_SECONDS = 0.001
LOOK_SECONDS = 0.1
"""How long a job waits to be woken before it looks for itself; only after an interrupt does it come to that."""

G = TypeVar("G")


class Job(Generic[G]):
    """A piece of work that waits for its commit."""

    __slots__ = ("done", "error", "has_left", "leads", "result", "since", "thread", "wake", "work")

    def __init__(self, work: Callable[[G], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done: Sequence[object] = ()  # not empty once the result or the error stands; of a group it is one list
        self.leads = False
        self.has_left = False
        self.thread = threading.get_ident()
        self.since = time.monotonic()
        self.wake = threading.Lock()  # a bare lock costs a third of an Event
        self.wake.acquire()


class Writer(Generic[G]):
    """Runs jobs on the one writing connection of a process.

    `exclusive` runs a group while other writers are kept out, whom it waited for since a moment; `begin` makes what
    the group's jobs share; `flush` writes down what they gathered there, before COMMIT.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        exclusive: Callable[[Callable[[], None], float], None],
        begin: Callable[[], G],
        flush: Callable[[G], None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._exclusive = exclusive
        self._begin = begin
        self._flush = flush
        self._jobs: deque[Job[G]] = deque()
        self._is_closed = False

    def close(self, seconds: float) -> bool:
        """Take no more jobs, and wait for those that were taken; whether all are done in time."""
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
            is_late = self._is_closed  # since the look above: a leader may take it along, but it leads nobody
            while not job.done:
                if self._first() is not job:
                    job.wake.acquire(timeout=LOOK_SECONDS)
                elif is_late:
                    raise closed(self._path)
                else:
                    self._lead(job)
        finally:
            job.has_left = True
            if (first := self._first()) is not None and not first.leads:
                _wake(first)
        if job.error is not None:
            raise job.error
        return job.result

    def _first(self) -> Job[G] | None:
        """The job whose thread is to lead, or leads."""
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

    def _lead(self, own: Job[G]) -> None:
        own.leads = True
        group: list[Job[G]] = []
        try:
            self._exclusive(lambda: self._commit_group(group), own.since)
        except Exception as error:
            if own.done:  # a signal's handler raised it, after the commit
                raise
            self._fail(group or [own], error)
        finally:
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
            # In one call, so that no interrupt comes between the commit and the mark that all are done.
            commits.extend(map(connection.execute, ("COMMIT",)))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _waiting(self) -> Iterator[Job[G]]:
        """The jobs of the queue, the leader's own first, and those that come meanwhile; nobody takes one out now."""
        position = 0
        while position < len(self._jobs):
            job = self._jobs[position]
            if not job.has_left:
                yield job
            position += 1

    def _run_job(self, job: Job[G], shared: G) -> bool:
        """Run a job; False when it failed after changing something, so that the transaction must go."""
        before = self._connection.total_changes()
        try:
            job.result = job.work(shared)
        except Exception as error:
            if not self._connection.in_transaction:  # a full disk or a failing one ended it for all
                raise
            job.error = translate(error, self._path, in_use=True) if isinstance(error, DRIVER_ERRORS) else error
            if job.error is not error:
                job.error.__cause__ = error
            return self._connection.total_changes() == before
        return True

    def _run_again(self, group: list[Job[G]]) -> G:
        """Start the transaction anew with the jobs that have not failed."""
        while True:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            shared = self._begin()
            if all(self._run_job(job, shared) for job in group if job.error is None):
                return shared

    def _fail(self, group: list[Job[G]], error: Exception) -> None:
        """Nothing of the group was written: everyone in it is told so."""
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
