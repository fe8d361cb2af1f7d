"""What tests use in place of time and of a model: a clock that stands still until told, and a quick embedder.

Also how often a test repeats what it draws at random.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

import commonplace

START = 1_750_000_000_000_000
OpenBook = Callable[..., commonplace.Book]
IS_LONG = os.environ.get("COMMONPLACE_TESTS") == "long"


def rounds(number: int) -> int:
    """How many random examples a test tries: all with `make property-test`, a quarter of them with `make test`."""
    return number if IS_LONG else max(number // 4, 1)


class Clock:
    """Microseconds since 1970 that pass only when a test says so."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float = 1.0) -> int:
        self.now += round(seconds * 1_000_000)
        return self.now


class WordEmbedder:
    """Hashes words into 64 dimensions: texts with the same words are near, and nothing is loaded."""

    def __init__(self, identity: str = "words@1", dimensions: int = 64) -> None:
        self.identity = identity
        self.dimensions = dimensions
        self.calibration = (0.0, 1.0)
        self.embedded: list[str] = []
        self.error: Exception | None = None

    def embed(self, texts: Sequence[str], *, purpose: str) -> NDArray[np.float32]:
        if self.error is not None:
            raise self.error
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                row[zlib.crc32(f"{self.identity} {word}".encode()) % self.dimensions] += 1
            if not row.any():
                row[0] = 1
            row /= np.linalg.norm(row)
        if purpose == "passage":
            self.embedded += texts
        return rows
