"""A cache of vectors in a folder that the user names, so that a second run of the benchmark need not embed again."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding import Embedder, Purpose

FILE = "embeddings.db"


class CachedEmbedder:
    """An embedder that caches vectors by the model's identity, the purpose and the text, and wraps another one."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._embedder = embedder
        # Several runs may share the folder: one writes while the others read.
        self._connection = sqlite3.connect(folder / FILE, timeout=60.0, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS vector (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
        )
        self.identity = embedder.identity
        self.dimensions = embedder.dimensions
        self.calibration = embedder.calibration
        self.reads_sentences = getattr(embedder, "reads_sentences", False)
        self.computed = 0

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        keys = [hashlib.sha256(f"{self.identity}\0{purpose}\0{text}".encode()).digest() for text in texts]
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        missing = []
        for row, key in enumerate(keys):
            known = self._connection.execute("SELECT value FROM vector WHERE key = ?", (key,)).fetchone()
            if known is None:
                missing.append(row)
            else:
                vectors[row] = np.frombuffer(known[0], np.float32)
        if missing:
            self.computed += len(missing)
            vectors[missing] = self._embedder.embed([texts[row] for row in missing], purpose=purpose)
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT OR IGNORE INTO vector VALUES (?, ?)", [(keys[row], vectors[row].tobytes()) for row in missing]
            )
            self._connection.execute("COMMIT")
        return vectors
