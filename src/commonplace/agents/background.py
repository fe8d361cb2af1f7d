"""Work behind the turns: daemon threads that a slow or hanging job never makes anyone wait for."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable

Job = Callable[[], None]
_log = logging.getLogger(__name__)


class Background:
    """Runs jobs by key. One key never runs twice at once; one that comes again while it runs is run once more after.

    A job that fails is logged, and that is all. Threads start with the first job and never keep a program from ending.
    After a fork the child begins anew: it has none of the threads, and the jobs are its parent's.
    """

    def __init__(self, name: str, *, threads: int = 1, max_waiting: int = 10_000) -> None:
        self._name = name
        self._max_threads = threads
        self._max_waiting = max_waiting
        self._is_closed = False
        self._beginning = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, Job] = {}
        self._running: set[Hashable] = set()
        self._threads = 0
        self._process = os.getpid()

    def submit(self, key: Hashable, job: Job) -> bool:
        """Have a job done; False where too many wait, no thread can be started, or this is closed."""
        with self._here():
            if self._is_closed or (len(self._waiting) >= self._max_waiting and key not in self._waiting):
                return False
            self._waiting[key] = job
            if self._threads < min(self._max_threads, len(self._waiting) + len(self._running)):
                self._start_thread()
            if not self._threads:
                del self._waiting[key]
                return False
            self._changed.notify_all()
            return True

    def settle(self, seconds: float) -> bool:
        """Wait until nothing is left to do; whether that came to be in time."""
        with self._here():
            return self._changed.wait_for(lambda: not self._waiting and not self._running, seconds)

    def close(self) -> None:
        """Drop what waits, and take no more; a job under way ends by itself."""
        with self._here():
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _here(self) -> threading.Condition:
        """The condition of this process: one from before a fork may be held by a thread that is not here."""
        if self._process != os.getpid():
            with self._beginning:
                if self._process != os.getpid():
                    self._begin()
        return self._changed

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._loop, name=self._name, daemon=True).start()
        except RuntimeError:
            _log.exception("%s: no thread can be started", self._name)
        else:
            self._threads += 1

    def _loop(self) -> None:
        while (taken := self._next()) is not None:
            key, job = taken
            try:
                job()
            except BaseException:  # noqa: BLE001 - a job that is cancelled or exits must not take this thread with it
                _log.exception("%s: a job failed; nothing else is affected", self._name)
            finally:
                with self._changed:
                    self._running.discard(key)
                    self._changed.notify_all()

    def _next(self) -> tuple[Hashable, Job] | None:
        """The job that waits longest and is not running; None when this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting.keys() - self._running)
            if self._is_closed:
                return None
            key = next(key for key in self._waiting if key not in self._running)
            self._running.add(key)
            return key, self._waiting.pop(key)
