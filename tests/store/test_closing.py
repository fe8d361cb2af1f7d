"""A book that is closed while others use it: what was taken is done, what comes later is told, nobody waits forever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace.errors import Unavailable
from commonplace.store import Transaction

HERE = ("user", "u1")


def open_files() -> list[str]:
    shown = Path("/proc/self/fd")
    return [os.readlink(one) for one in shown.iterdir() if one.is_symlink()]


def test_closing_waits_for_the_writes_that_were_taken(tmp_path: Path) -> None:
    book = commonplace.open(tmp_path / "book.db", background=False)
    space = book.space(*HERE)
    is_writing, may_commit = threading.Event(), threading.Event()

    def write_slowly(transaction: Transaction) -> str:
        is_writing.set()
        assert may_commit.wait(30)
        return "done"

    with ThreadPoolExecutor(6) as pool:
        leader = pool.submit(book.store.write, HERE, write_slowly)
        assert is_writing.wait(30)
        followers = [pool.submit(space.files.write, f"/{number}", "text") for number in range(3)]
        while len(book.store._writer._jobs) < 4:  # type: ignore[attr-defined]
            time.sleep(0.001)
        closing = pool.submit(book.close)
        while not book.store._writer._is_closed:  # type: ignore[attr-defined]
            time.sleep(0.001)
        with pytest.raises(Unavailable, match="closed"):
            space.files.write("/late", "text")
        may_commit.set()
        closing.result(30)
        assert leader.result(30)[0] == "done"
        assert [follower.result(30).revision for follower in followers] == [1, 1, 1]
    with commonplace.open(tmp_path / "book.db", background=False) as again:
        assert [info.path for info in again.space(*HERE).files.list("/")] == ["/0", "/1", "/2"]


def test_closing_does_not_wait_forever_for_a_write_that_does_not_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = commonplace.open(tmp_path / "book.db", background=False, busy_seconds=0.1)
    is_writing, may_commit = threading.Event(), threading.Event()

    def write_slowly(transaction: Transaction) -> None:
        is_writing.set()
        assert may_commit.wait(30)

    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(book.store.write, HERE, write_slowly)
        assert is_writing.wait(30)
        book.close()
        assert "still being written to" in caplog.text
        may_commit.set()
        leader.result(30)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files as Linux shows them")
def test_closing_while_others_read_leaves_no_file_open(tmp_path: Path) -> None:
    book = commonplace.open(tmp_path / "book.db", background=False)
    space = book.space(*HERE)
    thread = space.threads.create()
    space.threads.add(thread.id, [{"role": "user", "content": "x" * 500}] * 2_000)
    has_read = threading.Barrier(4)

    def read_on(read: Callable[[], Any]) -> None:
        read()
        has_read.wait(30)
        while True:
            read()

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read_on, lambda: space.threads.messages(thread.id, limit=1_000)) for _ in range(3)]
        has_read.wait(30)
        book.close()
        for reader in readers:
            with pytest.raises(Unavailable, match="closed"):
                reader.result(30)
        assert not [name for name in open_files() if name.startswith(str(tmp_path))]
