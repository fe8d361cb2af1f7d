"""What the tests share: a clock that stands still until told, and an embedder that is quick and always the same."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

import commonplace

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

START = 1_750_000_000_000_000


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


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


OpenBook = Callable[..., commonplace.Book]


@pytest.fixture
def open_book(tmp_path: Path, clock: Clock, embedder: WordEmbedder) -> Iterator[OpenBook]:
    """Opens books that are closed with the test; by default on one file, with the test's clock and embedder."""
    opened: list[commonplace.Book] = []

    def open_one(url: str | Path | None = None, **options: object) -> commonplace.Book:
        chosen = {"embedder": embedder, "clock": clock, "background": False, "durability": "normal", **options}
        book = commonplace.open(tmp_path / "book.db" if url is None else url, **chosen)  # type: ignore[arg-type]
        opened.append(book)
        return book

    yield open_one
    for book in opened:
        book.close()


@pytest.fixture
def book(open_book: OpenBook) -> commonplace.Book:
    return open_book()


@pytest.fixture
def space(book: commonplace.Book) -> commonplace.Space:
    return book.space("user", "u1")
