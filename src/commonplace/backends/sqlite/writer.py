"""Group commit: the writes of many threads in one durable commit, each of them whole or not at all.

Whoever finds nobody writing leads: it runs its own job and all that wait, commits once and wakes them. No thread
stands by for this, so a lone writer pays for no hand-over. Nothing is acknowledged before COMMIT.

A job that fails before it has changed anything costs the others nothing. One that fails later takes the group's
transaction with it, and the others run again without it; so a job may run twice, and only its last run counts.
(Savepoints would make FTS5 write out a segment for each job: 37 µs a write.)
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

import apsw

from commonplace.backends.sqlite.connection import Connection, closed, translate
from commonplace.errors import Unavailable

MAX_GROUP = 128
CLOSING_PAUSE_SECONDS = 0.001
APPOINTED = -1
"""Stands for a leader that was named but has not begun; no thread has this number."""

G = TypeVar("G")


class Job(Generic[G]):
    """A piece of work that waits for its commit."""

    __slots__ = ("error", "result", "to_lead", "wake", "work")

    def __init__(self, work: Callable[[G], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.to_lead = False
        self.wake = threading.Lock()  # held until the job is done; a bare lock costs a third of an Event
        self.wake.acquire()


class Writer(Generic[G]):
    """Runs jobs on the one writing connection of a process.

    `exclusive` keeps other writers out for the time of a group; `begin` makes what its jobs share; `flush` writes
    down what they gathered there, before COMMIT.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        exclusive: Callable[[], AbstractContextManager[object]],
        begin: Callable[[], G],
        flush: Callable[[G], None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._exclusive = exclusive
        self._begin = begin
        self._flush = flush
        self._jobs: deque[Job[G]] = deque()
        self._mutex = threading.Lock()
        self._leader: int | None = None
        self._is_closed = False

    def close(self, seconds: float) -> bool:
        """Take no more jobs, and wait for those that were taken; whether all are done in time."""
        with self._mutex:
            self._is_closed = True
        deadline = time.monotonic() + seconds
        while self._leader is not None:
            if self._leader == threading.get_ident() or time.monotonic() > deadline:
                return False
            time.sleep(CLOSING_PAUSE_SECONDS)
        return True

    def run(self, work: Callable[[G], Any]) -> Any:
        """Run `work` in the next group; return its result once it is durable, or raise its error."""
        me = threading.get_ident()
        if self._leader == me:
            raise RuntimeError("a write was started inside a write; use the transaction that is open")
        job = Job(work)
        with self._mutex:
            if self._is_closed:
                raise closed(self._path)
            self._jobs.append(job)
            leads = self._leader is None
            if leads:
                self._leader = me
        if not leads:
            try:
                job.wake.acquire()
            except BaseException:
                self._withdraw(job)
                raise
            leads = job.to_lead
        if leads:
            self._leader = me
            try:
                self._lead()
            finally:
                self._hand_over()
        if job.error is not None:
            raise job.error
        return job.result

    def _lead(self) -> None:
        group: list[Job[G]] = []
        try:
            with self._exclusive():
                self._commit_group(group)
        except BaseException as error:
            self._fail(group, error)
            if not isinstance(error, Exception):
                raise
        finally:
            for job in group:
                job.wake.release()

    def _commit_group(self, group: list[Job[G]]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        shared = self._begin()
        while len(group) < MAX_GROUP and (job := self._next_job()) is not None:
            group.append(job)
            if not self._run_job(job, shared):
                shared = self._run_again(group)
        self._flush(shared)
        connection.execute("COMMIT")

    def _run_job(self, job: Job[G], shared: G) -> bool:
        """Run a job; False when it failed after changing something, so that the transaction must go."""
        before = self._connection.total_changes()
        try:
            job.result = job.work(shared)
        except Exception as error:
            if not self._connection.in_transaction:  # a full disk or a failing one ended it for all
                raise
            job.error = translate(error, self._path, in_use=True) if isinstance(error, apsw.Error) else error
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

    def _fail(self, group: list[Job[G]], error: BaseException) -> None:
        """Nothing of the group was written: everyone in it is told so, the leader's own job at least."""
        if not group and (job := self._next_job()) is not None:
            group.append(job)
        for job in group:
            if isinstance(error, apsw.Error):
                job.error = translate(error, self._path, in_use=True)
            elif isinstance(error, Exception):
                job.error = error
            else:
                job.error = Unavailable("the write was interrupted; nothing was changed, try again")
            if job.error is not error:
                job.error.__cause__ = error
        with suppress(apsw.ConnectionClosedError):  # its transaction ended with it
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _next_job(self) -> Job[G] | None:
        with self._mutex:
            return self._jobs.popleft() if self._jobs else None

    def _withdraw(self, job: Job[G]) -> None:
        """Take back a job whose thread was interrupted while it waited; another leads if it was to."""
        with self._mutex:
            if job in self._jobs:
                self._jobs.remove(job)
        if job.to_lead:
            self._hand_over()

    def _hand_over(self) -> None:
        with self._mutex:
            if self._jobs:
                successor = self._jobs[0]
                self._leader = APPOINTED
                successor.to_lead = True
                successor.wake.release()
            else:
                self._leader = None
