"""The books that a framework's tests run on: a file, PostgreSQL, and a service."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import commonplace

OURS = os.environ.get("COMMONPLACE_PYTHON", sys.executable)
"""The interpreter of our own environment, which has the service's packages."""


class Words:
    """A quick embedder without a model: texts with the same words are near."""

    identity, dimensions, calibration = "words@1", 64, (0.0, 1.0)

    def embed(self, texts, *, purpose):
        import zlib

        import numpy as np

        rows = np.full((len(texts), self.dimensions), 1e-3, np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.casefold().split():
                row[zlib.crc32(word.strip(".,:;!?\"'{}[]").encode()) % self.dimensions] += 1
            row /= np.linalg.norm(row)
        return rows


def command(book: object, *words: str) -> str:
    """What a command of ours prints."""
    given = [OURS, "-m", "commonplace.cli", "--db", str(book), *words]
    return subprocess.run(given, capture_output=True, text=True, check=True).stdout


@contextmanager
def serving(book: object) -> Iterator[str]:
    """The address of a service on a book, while it runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = [OURS, "-m", "commonplace.cli", "--db", str(book), "serve", "--port", str(port)]
    server = subprocess.Popen(given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1_200):
            if server.poll() is not None:
                raise RuntimeError(f"the service ended with {server.returncode} before it was ready")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise RuntimeError("the service was not ready within 1,200 tries")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="session")
def service() -> Iterator[str]:
    """The address of a service with an empty book."""
    with tempfile.TemporaryDirectory() as folder, serving(f"{folder}/served.db") as address:
        yield address


@pytest.fixture(params=["file", "postgres", "service"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[commonplace.Book]:
    if request.param == "file":
        with commonplace.open(tmp_path / "book.db", embedder=Words(), background=False) as local:
            yield local
        return
    if request.param == "postgres":
        from postgres_server import empty, shared_book

        url = shared_book()
        empty(url)
        with commonplace.open(url, embedder=Words(), background=False) as shared:
            yield shared
        return
    with commonplace.connect(request.getfixturevalue("service")) as remote:
        for namespace in remote.namespaces(emptied=True):
            remote.space(*namespace).purge()
        yield remote


@pytest.fixture
def every_book(book: commonplace.Book) -> commonplace.Book:
    """The same, under the name that the shared tests use."""
    return book


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(id): what docs/internal/promises.toml promises")
