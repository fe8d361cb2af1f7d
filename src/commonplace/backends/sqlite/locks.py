"""The queue of writing processes on one book.

SQLite's own busy handler lets a busy process starve the others. Here a writer first takes its turn, then the right to
write, then gives up its turn: while one process writes, exactly one other stands at the door and is next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

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
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


class WriterQueue:
    """Held by one writer at a time, among all processes and all stores of one process."""

    def __init__(self, path: str, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._handles: list[int] = []
        try:
            for suffix in ("-turn", "-lock"):
                self._handles.append(os.open(path + suffix, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"cannot write beside {path}: {error.strerror}; a book needs a writable folder"
            ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        turn, lock = self._handles
        deadline = time.monotonic() + self._timeout_seconds
        self._wait(turn, deadline)
        try:
            self._wait(lock, deadline)
        finally:
            _unlock(turn)
        try:
            yield
        finally:
            _unlock(lock)

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
