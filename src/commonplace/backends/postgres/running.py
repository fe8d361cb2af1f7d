"""Running work in sessions: retries where a second attempt may help, and what became of a COMMIT without an answer.

A read, or a write that is known not to have happened, is tried again for a bounded time with growing, random pauses.
Then the caller gets Unavailable, and the pool goes on looking for the server.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from commonplace.backends.postgres.connection import CONNECT_SECONDS, Session
from commonplace.backends.postgres.failures import is_lost, may_work_again, translate, translated
from commonplace.backends.postgres.place import Place
from commonplace.errors import Unavailable

T = TypeVar("T")
Pool = ConnectionPool[psycopg.Connection[Any]]

MOST_TRIES = 8
LONGEST_PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
"""How long a call waits for a server that went away, in all."""

LOOK_SECONDS = 1.0
"""How long a call waits for a free connection before it looks whether there is a server at all."""

READ = None
WRITE = "BEGIN"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Runner:
    """Gives work a session of the right role, and tries again where that may help."""

    def __init__(self, place: Place, pool: Pool, *, patience_seconds: float) -> None:
        self._place = place
        self._pool = pool
        self._patience = patience_seconds
        self._process = os.getpid()
        self._local = threading.local()
        self.is_closed = False

    def check_usable(self) -> None:
        if self.is_closed:
            raise Unavailable(f"the book at {self._place.shown} is closed; open it again")
        if os.getpid() != self._process:
            raise Unavailable(
                f"the book at {self._place.shown} was opened before a fork; open it again in this process"
            )

    def read(self, tenant: str, work: Callable[[Session], T], *, snapshot: bool = False) -> T:
        """Under the app role: the rows of one tenant."""
        mode = SNAPSHOT if snapshot else READ
        return self._again(lambda: self._once(mode, self._place.app_role, tenant, work))

    def system(
        self, work: Callable[[Session], T], *, mode: str | None = WRITE, is_long: bool = False, copies: bool = False
    ) -> T:
        """Under the system role: over all tenants. `is_long` lifts the time-out; `copies` allows COPY."""

        def run(session: Session) -> T:
            if is_long:
                session.send("SET LOCAL statement_timeout = 0")
            return work(session)

        role = self._place.system_role
        return self._again(lambda: self._once(mode, role, None, run, pipelined=not copies))

    def write(self, tenant: str, work: Callable[[Session, UUID], tuple[T, bool]]) -> T:
        """Under the app role; `work` says whether there is something to commit. What was committed is not run again."""
        if getattr(self._local, "is_writing", False):
            raise RuntimeError("a write inside a write would wait for itself; use the transaction that is open")
        self._local.is_writing = True
        try:
            return self._again(lambda: self._write_once(tenant, work))
        finally:
            self._local.is_writing = False

    # One attempt

    def _once(
        self, mode: str | None, role: str, tenant: str | None, work: Callable[[Session], T], *, pipelined: bool = True
    ) -> T:
        with self._borrowed() as connection:
            session = Session(connection, pipelined=pipelined)
            try:
                session.begin(mode, role, tenant)
                result = work(session)
                session.end()
            except BaseException as error:
                session.abandon(error)
                raise
            return result

    def _write_once(self, tenant: str, work: Callable[[Session, UUID], tuple[T, bool]]) -> T:
        attempt = uuid4()
        is_committing = False

        def run(session: Session) -> T:
            nonlocal is_committing
            result, is_changed = work(session, attempt)
            done.append(result)
            is_committing = is_changed
            session.end("COMMIT" if is_changed else "ROLLBACK")
            return result

        done: list[T] = []
        try:
            return self._once(WRITE, self._place.app_role, tenant, run)
        except psycopg.Error as error:
            if not is_committing or not is_lost(error) or not self._has_happened(tenant, attempt):
                raise
            return done[-1]

    def _has_happened(self, tenant: str, attempt: UUID) -> bool:
        """Whether a transaction whose COMMIT was not answered took place.

        It wrote a row with its own id. Writing the same row waits until the server is done with it, if it still is at
        it; and where the row was not there, it is now, so that it can never happen later.
        """

        def settle(session: Session) -> bool:
            added = session.count(
                "INSERT INTO attempt (tenant, id, made_at) VALUES (%s, %s, now_micros()) ON CONFLICT DO NOTHING",
                (tenant, attempt),
            )
            return added == 0

        try:
            return self._again(lambda: self._once(WRITE, self._place.app_role, tenant, settle))
        except Unavailable as error:
            raise Unavailable(
                f"the connection to {self._place.shown} was lost during COMMIT and the server has not come back: "
                "whether the write was done is not known, look before you repeat it"
            ) from error

    # Connections

    @contextmanager
    def _borrowed(self) -> Iterator[psycopg.Connection[Any]]:
        connection = self._get_connection()
        try:
            yield connection
        except BaseException as error:
            if not isinstance(error, Exception):
                connection.close()  # interrupted between question and answer: nobody can tell them apart any more
            _roll_back(connection)
            raise
        finally:
            self._pool.putconn(connection)

    def _get_connection(self) -> psycopg.Connection[Any]:
        """Wait for a free connection as long as the server is there; where it is not, say so early."""
        deadline = time.monotonic() + self._pool.timeout
        while True:
            try:
                return self._pool.getconn(timeout=min(LOOK_SECONDS, self._pool.timeout))
            except PoolTimeout:
                if time.monotonic() > deadline:
                    raise
                psycopg.connect(self._place.conninfo, connect_timeout=CONNECT_SECONDS).close()

    def _again(self, attempt: Callable[[], T]) -> T:
        self.check_usable()
        deadline = time.monotonic() + self._patience
        tries = 0
        while True:
            tries += 1
            try:
                return attempt()
            except (psycopg.Error, PoolTimeout) as error:
                pause = random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.02 * 2**tries))
                is_over = tries >= MOST_TRIES or time.monotonic() + pause > deadline
                if is_over or self.is_closed or not may_work_again(error):
                    raise translate(error, self._place.shown) from error
                if is_lost(error):
                    with translated(self._place.shown):
                        self._pool.check()  # its other connections most likely broke as well
                time.sleep(pause)


def _roll_back(connection: psycopg.Connection[Any]) -> None:
    if connection.closed or connection.info.transaction_status == TransactionStatus.IDLE:
        return
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()
