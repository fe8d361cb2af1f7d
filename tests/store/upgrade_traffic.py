"""Traffic as servers of every released schema make it, in plain SQL on the tables of the first one.

No code of ours runs in it, so that a later step of the schema finds the same servers still at work as today.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

import psycopg

THREADS = 4
TRIES = 5
TENANTS = ("user/ana", "user/bob")

# In the order in which a write of the program goes through the tables. Its own row is locked first, and from then on
# every table up to the mark of the attempt is held until the COMMIT.
_WRITE = (
    "SELECT set_config('role', 'commonplace_app', true), set_config('commonplace.tenant', %(tenant)s, true)",
    "SELECT id, commit_number FROM namespace WHERE tenant = %(tenant)s AND path = %(tenant)s FOR UPDATE",
    "SELECT max(revision) FROM history WHERE tenant = %(tenant)s AND kind = 'file' AND key = %(key)s",
    "INSERT INTO entry (tenant, id, namespace, kind, key, is_json, attributes, revision, commit_number, valid_from,"
    " begun_by, created_at, updated_at, deltas, value) SELECT %(tenant)s, nextval('identifier'), n.id, 'file', %(key)s,"
    " false, '{}', 1, n.commit_number + 1, 1, 'created', 1, 1, 0, 'text' FROM namespace AS n"
    " WHERE n.tenant = %(tenant)s AND n.path = %(tenant)s",
    "DELETE FROM label WHERE tenant = %(tenant)s AND name = 'none'",
    "SELECT id, length FROM chunk WHERE tenant = %(tenant)s AND entry = 0 AND ended_commit IS NULL",
    "DELETE FROM pending WHERE tenant = %(tenant)s AND chunk = 0",
    "UPDATE embedding SET former = true WHERE tenant = %(tenant)s AND chunk = 0",
    "UPDATE namespace SET commit_number = commit_number + 1, entry_count = entry_count + 1,"
    " byte_count = byte_count + 4 WHERE tenant = %(tenant)s AND path = %(tenant)s",
    "INSERT INTO attempt (tenant, id, made_at) VALUES (%(tenant)s, gen_random_uuid(), now_micros())",
)
_READ = (
    "SELECT set_config('role', 'commonplace_app', true), set_config('commonplace.tenant', %(tenant)s, true)",
    "SELECT value FROM entry WHERE tenant = %(tenant)s AND kind = 'file' AND key = %(key)s",
    "SELECT count(*) FROM chunk WHERE tenant = %(tenant)s AND ended_commit IS NULL",
    "SELECT count(*) FROM embedding WHERE tenant = %(tenant)s AND NOT former",
    "SELECT chunk_count FROM namespace WHERE tenant = %(tenant)s AND path = %(tenant)s",
)


class Traffic:
    """Threads that write and read without a pause, as long as the `with` block lasts; `failures` tells what failed.

    A deadlock is tried again a few times, as the program does it.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(THREADS)]
        self.written: list[tuple[str, str]] = []
        self.deadlocks = 0
        self.failures: list[psycopg.Error] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_for(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more: int) -> None:
        """Until so many further writes are done, or something failed."""
        with self._progress:
            wanted = len(self.written) + more
            self._progress.wait_for(lambda: len(self.written) >= wanted or self.failures, timeout=60)

    def _run(self, number: int) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("SET search_path = commonplace, public, pg_temp")
                connection.execute("SET lock_timeout = '20s'")
                turn = 0
                while not self._stop.is_set():
                    turn += 1
                    tenant, key = TENANTS[turn % 2], f"/traffic/{number}-{turn}"
                    self._patiently(connection, _WRITE, tenant, key)
                    with self._progress:
                        self.written.append((tenant, key))
                        self._progress.notify_all()
                    self._patiently(connection, _READ, tenant, key)
        except psycopg.Error as error:
            with self._progress:
                self.failures.append(error)
                self._progress.notify_all()

    def _patiently(
        self, connection: psycopg.Connection[Any], statements: tuple[str, ...], tenant: str, key: str
    ) -> None:
        for attempt in range(TRIES):
            try:
                with connection.transaction():
                    for statement in statements:
                        connection.execute(statement.encode(), {"tenant": tenant, "key": key})
                return
            except psycopg.errors.DeadlockDetected:
                self.deadlocks += 1
                if attempt == TRIES - 1:
                    raise
