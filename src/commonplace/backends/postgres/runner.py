"""Runs work on the server: retries, the outcome of a lost COMMIT, a read replica, notifications.

A read, or a write that is known not to have happened, is tried again for a bounded time with growing, random pauses.
Then the caller gets Unavailable, and the pool keeps trying to reconnect. After one caller has waited without success,
the others get the error at once, and one of them tries again each second. If all of them waited, they would occupy
every thread of a service.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolClosed, PoolTimeout

from commonplace.backends.postgres.connection import (
    CONNECT_SECONDS,
    Link,
    Place,
    Pool,
    Session,
    is_lost,
    may_work_again,
    translate,
    translated,
)
from commonplace.checks import Namespace, stored_namespace
from commonplace.errors import CommonplaceError, ConfigurationError, Unavailable

T = TypeVar("T")
_log = logging.getLogger(__name__)

MOST_TRIES = 8
LONGEST_PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
"""How long a call waits in total for a server that is down."""

LOOK_SECONDS = 1.0
"""How long a call waits for a free connection before it checks that the server is up, and how long all calls are
refused between two checks of a server that is down.
"""

DATABASE = "the database"
"""The name of the database in errors. A service shows them to its callers, who need not know the address. The cause
contains it.
"""

CATCH_UP_SECONDS = 0.05
REPLAY_LOOK_SECONDS = 0.01
REPLICA_PATIENCE_SECONDS = 0.5
REPLICA_ANSWER_SECONDS = 5.0
REPLICA_REST_SECONDS = 5.0
REPLICA_REST_TIMES = 10
"""How long a search waits for a replica that is behind, how often it checks, how long it waits for one that is down,
and for one that is connected and sends nothing, because its disk hangs, say. Such a replica is not asked again for a
while, nor for ten times of what it has cost.
"""

NOTIFY_SECONDS = 0.02
"""Between two notifications."""

READ = None
WRITE = "BEGIN"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

NO_TENANT = "/"
"""The tenant in the marks of work on all tenants. No tenant has this name."""

# A transaction without changes, such as an indexer's check for work, has no id and leaves no mark.
_MARK = (
    "INSERT INTO attempt (tenant, id, made_at) SELECT %s, %s, now_micros()"
    " WHERE pg_current_xact_id_if_assigned() IS NOT NULL"
)
# The nodes of a Citus cluster have ids of their own.
_MARK_ON_NODE = "INSERT INTO attempt (tenant, id, made_at) VALUES (%s, %s, now_micros())"


class Runner:
    """Gives work a session with the right role, and retries it if that may help."""

    def __init__(self, place: Place, pool: Pool, *, known: int, patience_seconds: float) -> None:
        self._place = place
        self._known = known
        self._pool = pool
        self._patience = patience_seconds
        self._process = os.getpid()
        self._local = threading.local()
        self._mutex = threading.Lock()
        self._is_server_away = False
        self._next_look: float | None = None
        self.is_closed = False

    def check_usable(self) -> None:
        if self.is_closed:
            raise Unavailable(f"the book at {self._place.shown} is closed; open it again")
        if os.getpid() != self._process:
            raise Unavailable(
                f"the book at {self._place.shown} was opened before a fork; open it again in this process"
            )

    def read(self, tenant: str, work: Callable[[Session], T], *, snapshot: bool = False) -> T:
        """Run work under the app role, which sees the rows of one tenant."""
        mode = SNAPSHOT if snapshot else READ
        return self._again(lambda: self._once(mode, self._place.app_role, tenant, work))

    def system(
        self, work: Callable[[Session], T], *, mode: str | None = WRITE, is_long: bool = False, copies: bool = False
    ) -> T:
        """Run work under the system role, on all tenants. `is_long` removes the time-out; `copies` allows COPY."""

        def run(session: Session) -> T:
            if is_long:
                session.send("SET LOCAL statement_timeout = 0")
            return work(session)

        role = self._place.system_role
        if mode != WRITE:
            return self._again(lambda: self._once(mode, role, None, run))
        return self._again(
            lambda: self._write_once(role, NO_TENANT, lambda session: (run(session), True), copies=copies)
        )

    def write(self, tenant: str, work: Callable[[Session], tuple[T, bool]]) -> T:
        """Run a write under the app role. `work` returns whether there is something to commit. Committed work is not
        run again.
        """
        if getattr(self._local, "is_writing", False):
            raise RuntimeError("a write inside a write would wait for itself; use the transaction that is open")
        self._local.is_writing = True
        try:
            return self._again(lambda: self._write_once(self._place.app_role, tenant, work))
        finally:
            self._local.is_writing = False

    # One attempt

    def _once(
        self, mode: str | None, role: str, tenant: str | None, work: Callable[[Session], T], *, copies: bool = False
    ) -> T:
        with self._borrowed() as connection:
            session = Session(connection, self._known, is_distributed=self._place.is_distributed)
            try:
                session.begin(mode, role, tenant, copies=copies)
                result = work(session)
                session.end()
            except BaseException as error:
                session.abandon(error)
                raise
            return result

    def _write_once(
        self, role: str, tenant: str, work: Callable[[Session], tuple[T, bool]], *, copies: bool = False
    ) -> T:
        attempt = _new_attempt()
        is_committing = False

        def run(session: Session) -> T:
            nonlocal is_committing
            result, is_changed = work(session)
            done.append(result)
            if is_changed and not session.is_distributed:
                session.send(_MARK, (tenant, attempt))
            elif is_changed and session.has_changed:
                session.send(_MARK_ON_NODE, (tenant, attempt))
            is_committing = is_changed
            session.end("COMMIT" if is_changed else "ROLLBACK")
            return result

        done: list[T] = []
        try:
            return self._once(WRITE, role, tenant, run, copies=copies)
        except psycopg.Error as error:
            is_unknown = is_committing and (is_lost(error) or self._may_have_committed(error))
            if not is_unknown:
                raise
            if not self._has_happened(role, tenant, attempt):
                if is_lost(error):
                    raise
                raise errors.ConnectionFailure(f"a node was lost during COMMIT: {error}") from error
            return done[-1]

    def _may_have_committed(self, error: psycopg.Error) -> bool:
        """When a node is lost during COMMIT, Citus says that it could not commit, but the node may have done so."""
        return self._place.is_distributed and isinstance(error, (psycopg.OperationalError, psycopg.InternalError))

    def _has_happened(self, role: str, tenant: str, attempt: UUID) -> bool:
        """Whether a transaction whose COMMIT was not answered was committed.

        It inserted a row with its own id. Inserting the same row waits until that transaction has ended, if it is still
        running. If the row did not exist, it does now, so that the transaction can never commit later.
        """

        def settle(session: Session) -> bool:
            added = session.count(
                "INSERT INTO attempt (tenant, id, made_at) VALUES (%s, %s, now_micros()) ON CONFLICT DO NOTHING",
                (tenant, attempt),
            )
            return added == 0

        try:
            return self._again(lambda: self._once(WRITE, role, tenant, settle), even_away=True)
        except Unavailable as error:
            raise Unavailable(
                f"the connection to {DATABASE} was lost during COMMIT and the server has not come back; it is not "
                "known whether the write was done, so check before you repeat it"
            ) from error

    # Connections

    @contextmanager
    def _borrowed(self) -> Iterator[Link]:
        connection = self._get_connection()
        try:
            yield connection
        except BaseException as error:
            if not isinstance(error, Exception):
                connection.close()  # interrupted before its result arrived, which the next caller would get
            _roll_back(connection)
            raise
        finally:
            self._pool.putconn(connection)

    def _get_connection(self) -> Link:
        """Wait for a free connection while the server is up; if it is down, fail early."""
        deadline = time.monotonic() + self._pool.timeout
        while True:
            try:
                return self._pool.getconn(timeout=min(LOOK_SECONDS, self._pool.timeout))
            except PoolTimeout:
                if time.monotonic() > deadline:
                    raise
                self._look()

    def _look(self) -> None:
        """Check that the server is up; raises if not."""
        try:
            psycopg.connect(self._place.conninfo, connect_timeout=CONNECT_SECONDS).close()
        except psycopg.OperationalError:
            self._is_server_away = True
            raise
        self._is_server_away = False

    def _again(self, attempt: Callable[[], T], *, even_away: bool = False) -> T:
        self.check_usable()
        deadline = time.monotonic() + (self._patience if even_away else self._patience_now())
        tries = 0
        while True:
            tries += 1
            try:
                result = attempt()
            except (psycopg.Error, PoolTimeout) as error:
                pause = random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.02 * 2**tries))
                is_over = tries >= MOST_TRIES or time.monotonic() + pause > deadline
                if is_over and self._is_server_away:
                    self._next_look = time.monotonic() + LOOK_SECONDS
                if is_over or self.is_closed or not may_work_again(error):
                    raise _error_for_caller(error) from error
                if is_lost(error):
                    with translated(DATABASE):
                        self._pool.check()  # its other connections most likely broke as well
                time.sleep(pause)
            else:
                self._is_server_away, self._next_look = False, None
                return result

    def _patience_now(self) -> float:
        """How long a new call may take. Raises Unavailable if the server is known to be down and another call is
        checking it.
        """
        with self._mutex:
            now = time.monotonic()
            if self._next_look is None:
                return self._patience
            if now < self._next_look:
                raise Unavailable(f"{DATABASE} is down; nothing was changed, try again in a moment")
            self._next_look = now + LOOK_SECONDS
        return min(LOOK_SECONDS, self._patience)


def _new_attempt() -> UUID:
    """An id that begins with the time, so that rows of the same time are neighbours in the index."""
    return UUID(int=time.time_ns() << 64 | random.getrandbits(64))


def _error_for_caller(error: Exception) -> CommonplaceError:
    translated_error = translate(error, DATABASE)
    if is_lost(error) and isinstance(translated_error, Unavailable):
        return Unavailable(f"{DATABASE} cannot be reached; nothing was changed, try again")
    return translated_error


def _roll_back(connection: Link) -> None:
    if connection.closed or connection.info.transaction_status == TransactionStatus.IDLE:
        return
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()


class _Behind(Exception):
    """The replica has not replayed what was written here."""


class Replica:
    """Searches on a standby if it has this process's last write, otherwise on the primary."""

    def __init__(
        self, place: Place, pool: Pool, *, known: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._runner = Runner(place, pool, known=known, patience_seconds=REPLICA_PATIENCE_SECONDS)
        self._monotonic = monotonic
        self._rests_until = float("-inf")
        self._mutex = threading.Lock()
        self._written = 0
        self._has_warned = False

    def note_write(self, position: str) -> None:
        """Remember the position of the primary's log after a write, such as `16/B374D848`."""
        high, _, low = position.partition("/")
        with self._mutex:
            self._written = max(self._written, (int(high, 16) << 32) + int(low, 16))

    def read(
        self, tenant: str, work: Callable[[Session], T], otherwise: Callable[[], T], *, snapshot: bool = False
    ) -> T:
        """Read on the replica; calls `otherwise` if it is down or does not catch up in time, or was so a while ago."""
        begin = time.monotonic()
        if self._monotonic() < self._rests_until:
            return otherwise()
        position = f"{self._written >> 32:X}/{self._written & 0xFFFFFFFF:X}"

        def run(session: Session) -> T:
            if session.rows("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (position,)) != [(True,)]:
                raise _Behind
            return work(session)

        while True:
            try:
                return self._runner.read(tenant, run, snapshot=snapshot)
            except _Behind:
                if time.monotonic() + REPLAY_LOOK_SECONDS > begin + CATCH_UP_SECONDS:
                    break
                time.sleep(REPLAY_LOOK_SECONDS)
            except Unavailable:
                break
            except ConfigurationError as error:
                self._warn_once(error)
                return otherwise()
        rest = max(REPLICA_REST_SECONDS, REPLICA_REST_TIMES * (time.monotonic() - begin))
        self._rests_until = self._monotonic() + rest
        return otherwise()

    def _warn_once(self, error: ConfigurationError) -> None:
        """A replica that is far behind may even lack the roles until it catches up. But a wrong login stays wrong, so
        log it.
        """
        with self._mutex:
            if self._has_warned:
                return
            self._has_warned = True
        _log.warning("the read replica cannot be used, searches use the primary: %s", error)

    def lag_seconds(self) -> float:
        """How far the replica is behind what it has received; NaN if it does not answer."""
        sql = (
            "SELECT CASE WHEN pg_last_wal_receive_lsn() IS NOT DISTINCT FROM pg_last_wal_replay_lsn() THEN 0"
            " ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0) END::float8"
        )
        try:
            return float(self._runner.system(lambda session: session.rows(sql, last=True), mode=READ)[0][0])
        except CommonplaceError:
            return float("nan")

    def close(self) -> None:
        self._runner.is_closed = True
        self._pool.close()


MOST_NAMED_BYTES = 7_000
"""PostgreSQL takes up to 8,000 bytes with a notification."""


def named(paths: Iterable[str]) -> str:
    """What a notification says: the namespaces that changed, or nothing if they are too many to name."""
    written = json.dumps(sorted(paths))
    return written if len(written) <= MOST_NAMED_BYTES else ""


def changed_of(payloads: Iterable[str]) -> frozenset[Namespace] | None:
    """The namespaces that some notifications name; None if one names none, as those of former versions do.

    Any login of the database can notify, so it may also be something else.
    """
    changed: set[Namespace] = set()
    for payload in payloads:
        try:
            changed.update(stored_namespace(path) for path in json.loads(payload))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
    return frozenset(changed)


class Notifier:
    """A thread that wakes the feeds of all servers after commits, at most fifty times a second.

    NOTIFY inside a write would make all commits of the database queue behind one lock.
    """

    def __init__(self, pool: Pool, channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._changed: set[str] = set()

    def notice_commit(self, namespace: Namespace) -> None:
        with self._mutex:
            self._changed.add("/".join(namespace))
        if not self._wanted.is_set():
            self._wanted.set()
            if self._thread is None:
                with self._mutex:
                    if self._thread is None and not self._closed.is_set():
                        self._thread = threading.Thread(target=self._loop, name="commonplace-notifier", daemon=True)
                        self._thread.start()

    def _loop(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed.is_set():
                return
            self._wanted.clear()
            with self._mutex:
                changed, self._changed = self._changed, set()
            try:
                with self._pool.connection() as connection:
                    # A notification need not survive a crash, so this does not wait for the disk.
                    connection.execute(
                        "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)",
                        (self._channel, named(changed)),
                    )
            except (psycopg.Error, PoolTimeout, PoolClosed):
                # A lost notification delays feeds until their next poll. Feeds whose connection broke poll at once.
                with self._mutex:
                    self._changed |= changed
                self._wanted.set()
                if self._closed.wait(1.0):
                    return
            if self._closed.wait(NOTIFY_SECONDS):
                return

    def close(self) -> None:
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(5)
