"""A read replica for searches: it answers once it has this process's last write, else the primary does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from commonplace.backends.postgres.connection import Pool, Session
from commonplace.backends.postgres.place import Place
from commonplace.backends.postgres.running import Runner
from commonplace.errors import ConfigurationError, Unavailable

T = TypeVar("T")
_log = logging.getLogger(__name__)
WAIT_SECONDS = 0.2
LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 0.5


class _Behind(Exception):
    """The replica has not replayed what was written here."""


class Replica:
    """Reads on a standby of the primary."""

    def __init__(self, place: Place, pool: Pool, *, known: int) -> None:
        self._pool = pool
        self._runner = Runner(place, pool, known=known, patience_seconds=PATIENCE_SECONDS)
        self._mutex = threading.Lock()
        self._written = 0
        self._has_told = False

    def note_write(self, position: str) -> None:
        """Remember how far the log of the primary was after a write, in its own words, `16/B374D848`."""
        high, _, low = position.partition("/")
        with self._mutex:
            self._written = max(self._written, (int(high, 16) << 32) + int(low, 16))

    def read(self, tenant: str, work: Callable[[Session], T], otherwise: Callable[[], T]) -> T:
        """Read on the replica; `otherwise` where it is away, or does not catch up in a moment."""
        position = f"{self._written >> 32:X}/{self._written & 0xFFFFFFFF:X}"

        def run(session: Session) -> T:
            caught_up = session.ask("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (position,))
            result = work(session)
            if caught_up.fetchall() != [(True,)]:
                raise _Behind
            return result

        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return self._runner.read(tenant, run)
            except _Behind:
                if time.monotonic() > deadline:
                    return otherwise()
                time.sleep(LOOK_SECONDS)
            except Unavailable:
                return otherwise()
            except ConfigurationError as error:
                self._tell_once(error)
                return otherwise()

    def _tell_once(self, error: ConfigurationError) -> None:
        """One that is far behind lacks even the roles, and gets them; a wrong login stays, and somebody must know."""
        with self._mutex:
            if self._has_told:
                return
            self._has_told = True
        _log.warning("the read replica cannot be used, searches ask the primary: %s", error)

    def close(self) -> None:
        self._runner.is_closed = True
        self._pool.close()
