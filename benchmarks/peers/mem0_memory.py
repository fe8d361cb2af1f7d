"""mem0 without a language model: `add(infer=False)` and `search`, with Qdrant inside the process, its default."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from adapter import DIMENSIONS, Peer, Vectors, serve

USER = "bench"


class Given:
    """Replaces the embedder that mem0 creates by its provider's name."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._vectors.floats(text)

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        return [self._vectors.floats(text) for text in texts]


class Mem0(Peer):
    batch = 500

    def open(self, folder: Path) -> None:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder / "mem0"), OPENAI_API_KEY="none")
        from mem0 import Memory  # type: ignore[import-not-found,unused-ignore]

        self._memory = Memory.from_config(
            {
                "embedder": {"provider": "openai", "config": {"embedding_dims": DIMENSIONS}},
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(folder / "qdrant"),
                        "on_disk": True,
                        "embedding_model_dims": DIMENSIONS,
                    },
                },
                "history_db_path": str(folder / "history.db"),
            }
        )
        self._memory.embedding_model = Given(self.vectors)

    def add(self, text: str) -> None:
        self._memory.add([{"role": "user", "content": text}], user_id=USER, infer=False)

    def fill(self, texts: Sequence[str]) -> None:
        """With the vectors that its store takes; through `add` it is one point at a time."""
        self._memory.vector_store.insert(
            vectors=[self.vectors.floats(text) for text in texts],
            payloads=[{"data": text, "user_id": USER} for text in texts],
            ids=[str(uuid.uuid4()) for _ in texts],
        )

    def search(self, query: str) -> int:
        return len(self._memory.search(query, filters={"user_id": USER}, top_k=10)["results"])

    def found(self, texts: Sequence[str]) -> int:
        points = self._memory.get_all(filters={"user_id": USER}, top_k=1_000_000)["results"]
        there = {point["memory"] for point in points}
        return sum(text in there for text in texts)

    def close(self) -> None:
        self._memory.vector_store.client.close()


if __name__ == "__main__":
    serve(Mem0())
