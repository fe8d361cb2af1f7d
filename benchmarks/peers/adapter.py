"""One measured memory system: answers the harness's JSON lines, and measures times in the same way for all.

A peer's script makes a `Peer` and calls `serve`. It runs in the peer's own environment, so this module needs only the
standard library. Texts are read from a file and vectors one at a time, so that neither counts as its memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

DIMENSIONS = 384
KEY_BYTES = 8
ROW_BYTES = 4 * DIMENSIONS
Answer = dict[str, Any]
Result = TypeVar("Result")


def text_key(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=KEY_BYTES).digest()


class Vectors:
    """Vectors by text, from two files: sorted keys, and rows in the same order."""

    def __init__(self, folder: Path) -> None:
        self._keys = (folder / "vectors.keys").read_bytes()
        self._rows = os.open(folder / "vectors.rows", os.O_RDONLY)

    def row(self, text: str) -> bytes:
        """384 float32 of length 1. A text that is missing gets the row of its neighbour."""
        wanted = text_key(text)
        keys = range(len(self._keys) // KEY_BYTES)
        place = bisect_left(keys, wanted, key=self._key)
        return os.pread(self._rows, ROW_BYTES, min(place, len(keys) - 1) * ROW_BYTES)

    def _key(self, number: int) -> bytes:
        return self._keys[number * KEY_BYTES : (number + 1) * KEY_BYTES]

    def floats(self, text: str) -> list[float]:
        return array("f", self.row(text)).tolist()


class Texts:
    """Lines of a file, by number."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._starts = [0]
        for line in self._file:
            self._starts.append(self._starts[-1] + len(line))

    def some(self, first: int, count: int) -> list[str]:
        self._file.seek(self._starts[first])
        length = self._starts[first + count] - self._starts[first]
        return self._file.read(length).decode().splitlines()


class Peer(ABC):
    """What every memory system is asked to do."""

    batch = 1_000
    """How many memories `fill` is given at once."""

    vectors: Vectors
    """Set before `open`; the rows that do not show the model's time use it."""

    @abstractmethod
    def open(self, folder: Path) -> None: ...

    @abstractmethod
    def add(self, text: str) -> None:
        """Save one memory, and return when it is as durable as this system makes it."""

    @abstractmethod
    def search(self, query: str) -> int:
        """Search for ten memories; how many were found."""

    @abstractmethod
    def found(self, texts: Sequence[str]) -> int:
        """How many of these memories are there."""

    @abstractmethod
    def close(self) -> None: ...

    def fill(self, texts: Sequence[str]) -> None:
        """Save many memories in the fastest way."""
        for text in texts:
            self.add(text)

    def settle(self) -> None:  # noqa: B027 (most peers have nothing to finish)
        """Finish background work, so that the next searches are measured alone."""

    def baseline(self) -> Callable[[str], None]:
        """What a search is compared with at the current size, measured in turns with it."""
        raise NotImplementedError

    def process_ids(self) -> list[int]:
        """The process whose memory is measured."""
        return [os.getpid()]

    started_seconds: float | None = None
    """From the start of a server's process to its answer to `initialize`; None for a library."""


class Loop:
    """An event loop in its own thread, for peers whose API is async."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def serve(peer: Peer) -> None:
    """Answer requests, one JSON object per line, until `close`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is not an answer
    session = _Session(peer)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(session, request.pop("do"))(**request)
        except Exception as error:  # noqa: BLE001 (the harness shows it as the peer's result)
            answer = {"error": _worded(error)}
        with suppress(BrokenPipeError):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        if session.is_closed:
            answers.flush()
            os._exit(0)  # threads that a peer left running do not matter any more


def _worded(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


class _Session:
    """The requests, one method each."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.is_closed = False

    def open(self, folder: str, data: str) -> Answer:
        self._texts = Texts(Path(data) / "texts")
        self._queries = Texts(Path(data) / "queries")
        self._peer.vectors = Vectors(Path(data))
        self._peer.open(Path(folder))
        return {"started": self._peer.started_seconds}

    def add(self, first: int, count: int, clients: int, seconds: float) -> Answer:
        """Each client adds one after the other; a refused add counts as failed."""
        texts = iter(self._texts.some(first, count))
        deadline = time.perf_counter() + seconds
        lock, ready = threading.Lock(), threading.Barrier(clients)
        times: list[float] = []
        failures: list[str] = []

        def work() -> None:
            ready.wait()
            for text in _each(texts, lock, deadline):
                start = time.perf_counter()
                try:
                    self._peer.add(text)
                except Exception as error:  # noqa: BLE001 (shown in the table)
                    failures.append(_worded(error))
                else:
                    times.append(time.perf_counter() - start)

        start = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            for client in [pool.submit(work) for _ in range(clients)]:
                client.result()
        took = time.perf_counter() - start
        return {"times": times, "seconds": took, "failed": len(failures), "failure": failures[-1] if failures else ""}

    def fill(self, first: int, count: int, seconds: float) -> Answer:
        start = time.perf_counter()
        added = 0
        while added < count and time.perf_counter() - start < seconds:
            some = self._texts.some(first + added, min(self._peer.batch, count - added))
            self._peer.fill(some)
            added += len(some)
        self._peer.settle()
        return {"added": added, "seconds": time.perf_counter() - start}

    def search(self, first: int, count: int, seconds: float, with_baseline: bool = False) -> Answer:
        """The first query is not counted, because it fills the process's caches. The comparison is measured first."""
        queries = self._queries.some(first, count + 1)
        baseline = self._baseline(queries)[1:] if with_baseline else []
        self._peer.search(queries.pop(0))
        deadline = time.perf_counter() + seconds
        times: list[float] = []
        for query in queries:
            start = time.perf_counter()
            self._peer.search(query)
            times.append(time.perf_counter() - start)
            if time.perf_counter() > deadline:
                break
        return {"times": times, "baseline": baseline}

    def _baseline(self, queries: Sequence[str]) -> list[float]:
        baseline = self._peer.baseline()
        return [_timed(baseline, query) for query in queries]

    def found(self, first: int, count: int) -> Answer:
        return {"found": self._peer.found(self._texts.some(first, count))}

    def memory(self) -> Answer:
        return {"bytes": sum(map(_resident, self._peer.process_ids())), "ids": self._peer.process_ids()}

    def close(self) -> Answer:
        self.is_closed = True
        self._peer.close()
        return {}


def _each(texts: Iterator[str], lock: threading.Lock, deadline: float) -> Iterator[str]:
    while time.perf_counter() < deadline:
        with lock:
            text = next(texts, None)
        if text is None:
            return
        yield text


def _timed(work: Callable[[str], None], query: str) -> float:
    start = time.perf_counter()
    work(query)
    return time.perf_counter() - start


def _resident(process_id: int) -> int:
    with open(f"/proc/{process_id}/status") as status:
        return next((int(line.split()[1]) * 1_024 for line in status if line.startswith("VmRSS")), 0)
