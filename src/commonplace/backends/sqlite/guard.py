"""Checks that the file is still the book that was opened.

While programs have a book open, someone may copy another file over it, truncate it, or remove its log. SQLite does not
notice: it trusts its log index and its cache, and its next checkpoint would write old pages over the new file. So
before each commit a writer checks the files without SQLite, while it holds the writer lock:

- the file and its log are those that were opened (device and inode);
- the file has the size and the modification time that the last writer left. They are recorded after the lock's byte in
  `-lock`, with an epoch that changes when other content replaces the book;
- if size or time differ, the generation mark of the file decides. Each first commit after a checkpoint gives the book a
  new random generation, so the mark in the file is the previous or the current one, unless it is another file. (So a
  checkpoint of a program that was killed, and `touch`, do no harm.)

Each log begins with the page of the mark, so it can be told apart from the log of another file even without `-lock`.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import apsw

from commonplace.backends.sqlite.connection import Connection, identity, identity_of_log, unavailable
from commonplace.errors import ConfigurationError, Unavailable

FIRST_WITH_MARK = 3  # the schema
WITHOUT_LOG = b"\x01\x01"  # bytes 18 and 19 of a backup; a book's are 2, 2
_MARK = re.compile(rb"\xff\xfecommonplace ([0-9a-f]{32}) ([0-9a-f]{16}) ([0-9a-f]{16})\Z")
_MARK_BYTES = 80
_LOG_HEADER, _FRAME_HEADER = 32, 24
_RECORD = struct.Struct("<8s8sQQQqII8s8s?")
_RECORD_BYTES = _RECORD.size + 4
_RECORD_MAGIC = b"CMNPgen1"
_RECORD_AT = 64  # on Windows a locked byte cannot be read, and the lock is on byte 0
NONE_YET = bytes(8)
"""The generation of a file whose mark is only in the log, as during an upgrade; see migration 003."""
LOOKS = 5


Stamp = tuple[int, int, int, int]
"""Device, inode, size and modification time of a file. It changes with a write, and when another file replaces it."""


class Mark(NamedTuple):
    """The row of `generation`: the identity of the book, and the state of the file that its log belongs to."""

    identity: str
    current: bytes
    former: bytes

    @staticmethod
    def found(page: bytes) -> Mark | None:
        """The mark at the end of a page, where SQLite puts a table's only row."""
        match = _MARK.search(page, max(len(page) - _MARK_BYTES, 0))
        if match is None:
            return None
        return Mark(match[1].decode(), *(bytes.fromhex(generation.decode()) for generation in match.groups()[1:]))

    @property
    def written(self) -> bytes:
        return b"\xff\xfe" + f"commonplace {self.identity} {self.current.hex()} {self.former.hex()}".encode()

    def next(self) -> Mark:
        return Mark(self.identity, os.urandom(8), self.current)


@dataclass(frozen=True, slots=True)
class Record:
    """The record that writers share in `-lock`: the file as the last of them left it."""

    epoch: bytes
    stamp: Stamp
    page: int
    page_size: int
    reached: bytes  # the generation of the file itself
    current: bytes  # that of the book, which may be only in the log
    is_certain: bool = True  # false during a commit that brings a new generation

    def packed(self) -> bytes:
        body = _RECORD.pack(
            _RECORD_MAGIC,
            self.epoch,
            *self.stamp,
            self.page,
            self.page_size,
            self.reached,
            self.current,
            self.is_certain,
        )
        return body + zlib.crc32(body).to_bytes(4, "little")

    @staticmethod
    def unpacked(data: bytes) -> Record | None:
        body, checksum = data[: _RECORD.size], data[_RECORD.size : _RECORD.size + 4]
        if len(checksum) < 4 or zlib.crc32(body).to_bytes(4, "little") != checksum:
            return None
        magic, epoch, device, inode, size, changed, *rest = _RECORD.unpack(body)
        return Record(epoch, (device, inode, size, changed), *rest) if magic == _RECORD_MAGIC else None


def stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def book_mark(connection: Connection) -> Mark:
    """The mark as SQLite sees it."""
    found = Mark.found(connection.execute("SELECT mark FROM generation").fetchall()[0][0])
    if found is None:
        raise apsw.CorruptError("the mark of the book's generation cannot be read")
    return found


def write_mark(connection: Connection, mark: Mark) -> None:
    connection.execute("UPDATE generation SET mark = ?", (mark.written,))


@contextmanager
def _raw(file: str) -> Iterator[Any]:
    """The file without SQLite's cache and log, but opened by SQLite: when Python closes a file, the process loses the
    POSIX locks of its other connections.
    """
    opened = apsw.VFSFile("", file, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        yield opened
    finally:
        opened.xClose()


if hasattr(os, "pread"):
    _read_at, _write_at = os.pread, os.pwrite
else:
    _seeking = threading.Lock()

    def _read_at(handle: int, length: int, offset: int, /) -> bytes:
        with _seeking:
            os.lseek(handle, offset, os.SEEK_SET)
            return os.read(handle, length)

    def _write_at(handle: int, data: Any, offset: int, /) -> int:
        with _seeking:
            os.lseek(handle, offset, os.SEEK_SET)
            return os.write(handle, data)


def _marked(raw: Any, page: int, page_size: int) -> bytes:
    """The generation of the file itself; empty if the page holds no mark."""
    try:
        found = Mark.found(raw.xRead(page_size, (page - 1) * page_size))
    except apsw.Error:
        return NONE_YET
    return found.current if found else NONE_YET


def _log_marks(file: str) -> tuple[int, int, set[bytes]] | None:
    """The generations in a log, with the page and the page size; None for a log without a mark."""
    page, page_size, known = 0, 0, set[bytes]()
    with open(f"{file}-wal", "rb") as log:
        header = log.read(_LOG_HEADER)
        page_size = int.from_bytes(header[8:12], "big")
        while len(frame := log.read(_FRAME_HEADER + page_size)) == _FRAME_HEADER + page_size:
            if frame[8:16] != header[16:24]:
                break  # the rest is an older log, which this one has not overwritten yet
            if (mark := Mark.found(frame)) is not None:
                page = int.from_bytes(frame[:4], "big")
                known |= {mark.current, mark.former}
    return (page, page_size, known) if known else None


def check_log(path: str) -> None:
    """Refuse the log of another file that was here before, because SQLite would write its pages into this file."""
    file = os.path.realpath(path)
    for _ in range(LOOKS):  # others may be writing at the same time
        try:
            problem = _log_problem(path, file)
        except (OSError, apsw.Error):
            return  # there is no log, or SQLite will say why the file cannot be read
        if problem is None:
            return
    raise ConfigurationError(
        f"{problem}: together they are not a book. Nothing was changed; move {file}-wal and {file}-shm away when no "
        "program has the book open, and open it again"
    )


def _log_problem(path: str, file: str) -> str | None:
    # Read the log first: another process that turns a copy into a book marks it before it creates a log.
    if not os.path.getsize(f"{file}-wal"):
        return None
    if not os.path.exists(file) or not os.path.getsize(file):
        return f"{path} is empty or new, and {file}-wal is the log of the file that was here before it"
    with open(f"{file}-lock", "rb") if os.path.exists(f"{file}-lock") else open(os.devnull, "rb") as lock:
        lock.seek(_RECORD_AT)
        record = Record.unpacked(lock.read(_RECORD_BYTES))
    if record is not None and record.stamp == stamp(file):
        return None
    with _raw(file) as raw:
        if raw.xRead(2, 18) == WITHOUT_LOG:
            return f"{path} is a copy without a log, and {file}-wal is the log of the file that was here before it"
        known = _log_marks(file)
        if known is None or _marked(raw, *known[:2]) in known[2]:
            return None
    return f"{path} was copied here, and {file}-wal is the log of the file that was here before it"


def lost_commits(file: str, connection: Connection) -> int:
    """How many commits the log has from a damaged frame on.

    SQLite silently ignores everything after that frame. A damaged last commit is not counted, because a power cut may
    have torn it before it was acknowledged.
    """
    reached, _ = cast(apsw.Connection, connection).wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    page_size = connection.execute("PRAGMA page_size").fetchall()[0][0]
    with suppress(FileNotFoundError), open(f"{file}-wal", "rb", buffering=0) as log:
        header = log.read(_LOG_HEADER)
        if len(header) < _LOG_HEADER or not any(header):
            return 0
        order = ">" if header[3] & 1 else "<"
        known, salts = header[24:], header[16:24]
        is_whole = _log_sum(order, header[:24], bytes(8)) == known
        if not is_whole:
            reached, salts = 0, log.read(_FRAME_HEADER)[8:16]
        elif reached:
            log.seek(_LOG_HEADER + (reached - 1) * (_FRAME_HEADER + page_size))
            known = log.read(_FRAME_HEADER)[16:]
        least, lost, page = (2 if is_whole else 1), 0, b""
        log.seek(_LOG_HEADER + reached * (_FRAME_HEADER + page_size))
        while len(frame := log.read(_FRAME_HEADER)) == _FRAME_HEADER:
            is_ours = frame[8:16] == salts  # other frames are of an older log, which this one has not overwritten yet
            is_commit = is_ours and any(frame[4:8])
            if is_commit or (is_ours and is_whole):
                if len(page := log.read(page_size)) < page_size:
                    break  # someone is writing it, or was killed while writing it
            else:
                log.seek(page_size, os.SEEK_CUR)
            if is_whole:
                is_whole = is_ours and _log_sum(order, frame[:8] + page, known) == frame[16:]
                if is_whole and is_commit:
                    return 0  # others have just written it, or it is already in the file
                lost += is_commit
            elif is_commit:
                lost += not lost or _log_sum(order, frame[:8] + page, known) == frame[16:]
            known = frame[16:]
        return lost if lost >= least else 0
    return 0


def _log_sum(order: str, data: bytes, before: bytes) -> bytes:
    """The checksum of SQLite's log. Each continues the previous one."""
    first, second = struct.unpack(">II", before)
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return struct.pack(">II", first, second)


class Guard:
    """Checks the files of one opened book. `handle` is an open handle of its `-lock`, which every writer locks."""

    def __init__(self, path: str, handle: int) -> None:
        self._path = path
        self._file = os.path.realpath(path)
        self._log, self._index = f"{self._file}-wal", f"{self._file}-shm"
        self._handle = handle
        self._identity = identity(path)
        self._logs: tuple[object, object] | None = None
        self._lost: str | None = None  # why writing is no longer allowed
        self._record: Record | None = None
        self._packed = b""  # the record as it was read, if it is certain
        self._seen: Stamp | None = None  # the stamp with which the file was last found to be the book
        self._is_renewed = False  # by the current commit
        self._changes = 0
        self._mutex = threading.Lock()

    # The record

    def _read(self) -> Record | None:
        return Record.unpacked(_read_at(self._handle, _RECORD_BYTES, _RECORD_AT))

    def _write(self, record: Record) -> None:
        try:
            _write_at(self._handle, record.packed(), _RECORD_AT)
        except OSError as error:
            raise unavailable(
                f"cannot write in the book's folder: {error.strerror}; nothing was changed", self._path
            ) from error
        self._take(record)

    def _take(self, record: Record) -> None:
        self._record, self._seen = record, record.stamp
        self._packed = record.packed() if record.is_certain else b""

    def _in_file(self, record: Record) -> bytes | None:
        """The generation of the file itself; None for a backup that was put in its place."""
        with _raw(self._file) as raw:
            return None if raw.xRead(2, 18) == WITHOUT_LOG else _marked(raw, record.page, record.page_size)

    # Opening

    def knows(self) -> bool:
        """Whether the file is unchanged since the last writer, so that `begin` needs no lock."""
        record = self._read()
        return record is not None and record.is_certain and record.stamp == stamp(self._path)

    def begin(self, connection: Connection) -> None:
        """Accept the file that `connection` has opened as the book. Callers hold the lock unless `knows` is true."""
        mark = book_mark(connection)
        page_size, pages, page = connection.execute(
            "SELECT page_size, page_count, (SELECT rootpage FROM sqlite_schema WHERE name = 'generation')"
            " FROM pragma_page_size, pragma_page_count"
        ).fetchall()[0]
        known, present = self._read(), stamp(self._path)
        if present is None or present[:2] != self._identity:
            raise self._gone()
        self._logs = self._present_logs()
        if known is not None and known.is_certain and known.stamp == present:
            self._take(known)
            return
        record = Record(os.urandom(8), present, page, page_size, NONE_YET, mark.current)
        record = replace(record, reached=self._in_file(record) or NONE_YET)
        if known is not None and record.reached in (known.reached, known.current):
            record = replace(record, epoch=known.epoch)
        elif present[2] != pages * page_size and not os.path.getsize(self._log):
            # The log is empty, so SQLite got the number of pages from a program that still has the former file open.
            raise unavailable(
                "the book's file was replaced, and another program still has the former one open; nothing was "
                "changed; close that program and open the book again",
                self._path,
            )
        self._write(record)

    # Looking

    def check_place(self) -> Stamp:
        """Raise if the file or its log is gone: a write to it would be acknowledged and lost."""
        if self._lost is not None:
            raise unavailable(self._lost, self._path)
        present = stamp(self._path)
        if present is None or present[:2] != self._identity:
            raise self._gone()
        if self._logs is not None and self._present_logs() != self._logs:
            raise self._lose(
                "the log of the book (its -wal and -shm files) was removed or replaced while the book was open; "
                "nothing more is written to it, open it again"
            )
        return present

    def _present_logs(self) -> tuple[object, object]:
        return identity_of_log(self._log), identity_of_log(self._index)

    def _gone(self) -> Unavailable:
        return unavailable(
            "the book was moved, replaced or deleted while it was open; nothing was changed, open it again", self._path
        )

    def _replaced(self) -> Unavailable:
        return self._lose(
            "the book's file was replaced or cut while it was open (by a copy in its place?); "
            "nothing more is written to it, open it again"
        )

    def _lose(self, why: str) -> Unavailable:
        self._lost = why
        return unavailable(why, self._path)

    def look(self) -> None:
        """For a reader: refuse a file with other content, if its size or its time shows that."""
        if self._lost is None and stamp(self._path) == self._seen:
            return
        with self._mutex:
            for _ in range(LOOKS):  # a writer may be active
                present, record = self.check_place(), self._read() or self._record
                if self._is_same(record, present):
                    self._seen = present
                    return
            raise self._replaced()

    def _is_same(self, record: Record | None, present: Stamp) -> bool:
        assert record is not None
        assert self._record is not None
        if record.epoch != self._record.epoch:
            return False
        return record.stamp == present or self._in_file(record) in (record.reached, record.current)

    # Writing

    def check(self, connection: Connection) -> None:
        """Before a commit: check that the file is still the book; otherwise refuse all further writes."""
        self._is_renewed = False
        self._changes = connection.total_changes()
        if (
            self._lost is None
            and _read_at(self._handle, _RECORD_BYTES, _RECORD_AT) == self._packed
            and stamp(self._path) == self._seen
            and self._present_logs() == self._logs
        ):
            return  # nothing has changed since this program last looked: 8 µs
        try:
            present = self.check_place()
        except Unavailable:
            self._save_log(connection)
            raise
        record = self._read() or self._record
        if not self._is_same(record, present):
            raise self._replaced()
        assert record is not None
        if record.is_certain and record.stamp == present:
            self._take(record)
        else:  # `touch`, or a writer that did not finish
            reached = self._in_file(record) or NONE_YET
            current = record.current if record.is_certain else reached
            self._write(replace(record, stamp=present, reached=reached, current=current, is_certain=True))

    def _save_log(self, connection: Connection) -> None:
        """If only the names of the log are gone, this program may be the last one that has it open, so move it into the
        file.
        """
        record, logs = self._read(), self._present_logs()
        assert self._logs is not None
        is_alone = logs[0] is None and logs[1] in (None, self._logs[1])
        if (
            is_alone
            and record is not None
            and record.stamp == stamp(self._path)
            and self._is_same(record, record.stamp)
        ):
            self._record = record
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self.finish(checkpointed=True)

    def renew(self, connection: Connection) -> None:
        """As part of a commit with changes: the first one since a checkpoint brings a new generation."""
        record = self._record
        assert record is not None
        if record.reached == record.current and connection.total_changes() != self._changes:
            fresh = book_mark(connection).next()
            write_mark(connection, fresh)
            # Recorded before the commit, because the commit may end with a checkpoint, after which readers find this
            # generation in the file.
            self._write(replace(record, current=fresh.current, is_certain=False))
            self._is_renewed = True

    def finish(self, *, checkpointed: bool = False) -> None:
        """After a commit with a new generation, and after a checkpoint: record the state of the file.

        (A commit may end with a checkpoint of SQLite. Then the next writer checks the file more closely.)
        """
        if not (self._is_renewed or checkpointed):
            return
        record, present = self._record, stamp(self._path)
        assert record is not None
        if present is None:
            return
        reached = record.reached if present == record.stamp else self._in_file(record)
        if reached is None or reached not in (record.reached, record.current):
            self._replaced()  # at this moment; the next writer will report it
            return
        # the commit is durable; the next writer finds the record uncertain and checks the file
        with suppress(Unavailable):
            self._write(replace(record, stamp=present, reached=reached, is_certain=True))


# The queue of writing processes. With SQLite's own busy handler, a busy process starves the others. Here a writer locks
# the turn, then the right to write, then unlocks the turn. So while one process writes, exactly one other is next.

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
        """Unlocks a lock in any state. Not a Python function, because an interrupt could arrive at its start."""
        return partial(fcntl.flock, handle, fcntl.LOCK_UN)


class WriterQueue:
    """The lock that one writer at a time holds, among all processes and all stores of one process."""

    def __init__(self, path: str, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._free_since = 0.0
        self._handles: list[int] = []
        file = os.path.realpath(path)  # a link to the file leads to the same queue
        try:
            for suffix in ("-turn", "-lock"):
                self._handles.append(os.open(file + suffix, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"cannot write next to {path}: {error.strerror}; a book needs a writable folder"
            ) from error
        self._leave_turn, self._leave = map(_unlocking, self._handles)

    @property
    def handle(self) -> int:
        """The path of the file that is locked during a write."""
        return self._handles[1]

    @contextmanager
    def held(self, seconds: float | None = None) -> Iterator[None]:
        """Hold the right to write. Waits for it up to the queue's time-out, or a given number of seconds."""
        try:
            self._enter(time.monotonic() - (0 if seconds is None else self._timeout_seconds - seconds))
            yield
        finally:
            self._leave()

    def hold(self, work: Callable[[], None], since: float) -> None:
        """Run `work` with the right to write, for which a job has waited since `since`. The right is released even
        after an interrupt.
        """
        try:
            self._enter(max(since, self._free_since))  # time that a job waited for its own process does not count
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
