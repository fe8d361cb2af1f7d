"""Telling other servers that something was committed: after the commit, and many commits by one NOTIFY.

NOTIFY inside a write would make all commits of the database queue behind one lock.
"""

from __future__ import annotations

import threading

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from commonplace.backends.postgres.connection import Pool

SECONDS_BETWEEN = 0.02


class Notifier:
    """A thread that wakes the feeds of all servers, at most fifty times a second."""

    def __init__(self, pool: Pool, channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    def notice_commit(self) -> None:
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
            try:
                with self._pool.connection() as connection:
                    # Nobody needs a wake-up call to survive a crash: no waiting for the disk.
                    connection.execute(
                        "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, '')", (self._channel,)
                    )
            except (psycopg.Error, PoolTimeout, PoolClosed):
                # A lost call delays feeds until their next look; those whose connection broke look by themselves.
                self._wanted.set()
                if self._closed.wait(1.0):
                    return
            if self._closed.wait(SECONDS_BETWEEN):
                return

    def close(self) -> None:
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(5)
