"""A program that uses a book: threads that write, read and search until standard input ends.

`upgrade_test.py` runs it with the code of every schema, so it uses only what the library has had since the first. It
prints `ready` once every thread has written, and at the end, as JSON, the acknowledged lines and the errors.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import commonplace

THREADS = 4
NAMESPACE = ("user", "upgrade")


class Letters:
    """An embedder that loads nothing."""

    identity = "letters@1"
    dimensions = 26
    calibration = (0.0, 1.0)

    def embed(self, texts: Sequence[str], *, purpose: str) -> Any:
        rows = np.array([[text.lower().count(letter) + 0.01 for letter in map(chr, range(97, 123))] for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class Thread(threading.Thread):
    """Appends a line to its own file, reads it, and searches."""

    def __init__(self, space: commonplace.Space, name: str, stop: threading.Event) -> None:
        super().__init__(name=name)
        self._space = space
        self._ends = stop
        self.has_written = threading.Event()
        self.acknowledged: list[str] = []
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        number = 0
        while not self._ends.is_set():
            number += 1
            line = f"{self.name} wrote line {number}"
            try:
                self._space.files.append(f"/{self.name}", line)
                self.acknowledged.append(line)
                self.has_written.set()
                self._space.files.read(f"/{self.name}")
                self._space.search(f"line {number}")
            except commonplace.CommonplaceError as error:
                self.errors[f"{type(error).__name__}: {error}"] += 1
                self._ends.wait(0.01)


def main(url: str, name: str) -> None:
    stop = threading.Event()
    with commonplace.open(url, embedder=Letters(), background=False) as book:
        threads = [Thread(book.space(*NAMESPACE), f"{name}-{number}", stop) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.has_written.wait(60)
        print("ready", flush=True)
        sys.stdin.read()
        stop.set()
        for thread in threads:
            thread.join()
    errors = sum((thread.errors for thread in threads), Counter[str]())
    acknowledged = {f"/{thread.name}": thread.acknowledged for thread in threads}
    print(json.dumps({"acknowledged": acknowledged, "errors": errors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
