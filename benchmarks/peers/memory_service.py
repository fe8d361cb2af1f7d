"""mcp-memory-service's storage, sqlite-vec, called as its server calls it; with given vectors instead of its own
model's.

Its semantic deduplication is bypassed, because it merges memories with similar vectors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adapter import DIMENSIONS, Loop, Peer, Vectors, serve


class Given:
    """Replaces a sentence-transformers model."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def encode(self, texts: Sequence[str], convert_to_numpy: bool = True, **_: object) -> Any:
        import numpy as np

        return np.frombuffer(b"".join(map(self._vectors.row, texts)), np.float32).reshape(-1, DIMENSIONS)


class MemoryService(Peer):
    def open(self, folder: Path) -> None:
        os.environ.update(HOME=str(folder), MCP_MEMORY_BASE_DIR=str(folder), HF_HUB_OFFLINE="1")
        from mcp_memory_service.models.memory import Memory  # type: ignore[import-not-found,unused-ignore]
        from mcp_memory_service.storage.sqlite_vec import (  # type: ignore[import-not-found,unused-ignore]
            SqliteVecMemoryStorage,
        )
        from mcp_memory_service.utils.hashing import (  # type: ignore[import-not-found,unused-ignore]
            generate_content_hash,
        )

        model = Given(self.vectors)

        class Storage(SqliteVecMemoryStorage):  # type: ignore[misc,unused-ignore]
            async def _initialize_embedding_model(self) -> None:
                self.embedding_model = model
                self.embedding_dimension = DIMENSIONS

        self._memory, self._hash = Memory, generate_content_hash
        self._loop = Loop()
        self._storage = Storage(str(folder / "memory.db"))
        self._loop.run(self._storage.initialize())

    def _made(self, text: str) -> Any:
        return self._memory(content=text, content_hash=self._hash(text), tags=["bench"], memory_type="note")

    def add(self, text: str) -> None:
        is_stored, said = self._loop.run(self._storage.store(self._made(text), skip_semantic_dedup=True))
        if not is_stored:
            raise RuntimeError(said)

    def fill(self, texts: Sequence[str]) -> None:
        self._loop.run(self._storage.store_batch([self._made(text) for text in texts]))

    def search(self, query: str) -> int:
        return len(self._loop.run(self._storage.retrieve(query, n_results=10)))

    def found(self, texts: Sequence[str]) -> int:
        there = self._loop.run(self._storage.get_all_content_hashes())
        return sum(self._hash(text) in there for text in texts)

    def close(self) -> None:
        self._loop.run(self._storage.close())


if __name__ == "__main__":
    serve(MemoryService())
