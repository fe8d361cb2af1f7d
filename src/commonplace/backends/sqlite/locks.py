"""The queue of writing processes on one book.

SQLite's own busy handler lets a busy process starve the others. Here a writer first takes its turn, then the right to
write, then gives up its turn: while one process writes, exactly one other stands at the door and is next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from commonplace.backends.sqlite.connection import unavailable
from commonplace.errors import ConfigurationError

if os.name == "nt":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            os.lseek(handle, 0, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        with suppress(OSError):  # it was not locked
            msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]

    def _unlocking(handle: int) -> Callable[[], object]:
        return partial(_unlock, handle)

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlocking(handle: int) -> Callable[[], object]:
        """Unlocks, locked or not; no function of Python's, at whose start an interrupt could come before it."""
        return partial(fcntl.flock, handle, fcntl.LOCK_UN)


class WriterQueue:
    """Held by one writer at a time, among all processes and all stores of one process."""

    def __init__(self, path: str, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._free_since = 0.0
        self._handles: list[int] = []
        file = os.path.realpath(path)  # whoever comes by a link stands in the same queue
        try:
            for suffix in ("-turn", "-lock"):
                self._handles.append(os.open(file + suffix, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"cannot write beside {path}: {error.strerror}; a book needs a writable folder"
            ) from error
        self._leave_turn, self._leave = map(_unlocking, self._handles)

    @property
    def handle(self) -> int:
        """Of the file that is locked while somebody writes."""
        return self._handles[1]

    @contextmanager
    def held(self, seconds: float | None = None) -> Iterator[None]:
        """With the right to write, for which it waits as long as the queue does, or only some seconds."""
        try:
            self._enter(time.monotonic() - (0 if seconds is None else self._timeout_seconds - seconds))
            yield
        finally:
            self._leave()

    def hold(self, work: Callable[[], None], since: float) -> None:
        """Run `work` with the right to write, for which a job has waited since then; an interrupt never keeps it."""
        try:
            self._enter(max(since, self._free_since))  # a job that waited for its own process has not waited for others
            work()
            self._free_since = time.monotonic()
        finally:
            self._leave()

    def _enter(self, since: float) -> None:
        turn, lock = self._handles
        deadline = since + self._timeout_seconds
        try:
            self._wait(turn, deadline)
            self._wait(lock, deadline)
        finally:
            self._leave_turn()

    def _wait(self, handle: int, deadline: float) -> None:
        pause = 0.0002
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise unavailable(
                    f"another process has been writing to the book for more than {self._timeout_seconds:g} s; "
                    "nothing was changed, try again",
                    self._path,
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.005)

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles = []
