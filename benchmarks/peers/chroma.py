"""ChromaDB as people use it: a PersistentClient, one collection, an embedding function."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adapter import Peer, serve


class Chroma(Peer):
    batch = 5_000

    def open(self, folder: Path) -> None:
        import chromadb  # type: ignore[import-not-found,unused-ignore]
        import numpy as np

        vectors = self.vectors

        class Given(chromadb.EmbeddingFunction):  # type: ignore[misc,unused-ignore]
            def __init__(self) -> None:
                pass

            def __call__(self, input: Sequence[str]) -> list[Any]:
                return [np.frombuffer(vectors.row(text), np.float32) for text in input]

        settings = chromadb.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(path=str(folder), settings=settings)
        self._collection = client.get_or_create_collection(
            "memories", embedding_function=Given(), configuration={"hnsw": {"space": "cosine"}}
        )

    def add(self, text: str) -> None:
        self._collection.add(ids=[str(uuid.uuid4())], documents=[text], metadatas=[{"user": "bench"}])

    def fill(self, texts: Sequence[str]) -> None:
        ids = [str(uuid.uuid4()) for _ in texts]
        self._collection.add(ids=ids, documents=list(texts), metadatas=[{"user": "bench"}] * len(ids))

    def search(self, query: str) -> int:
        return len(self._collection.query(query_texts=[query], n_results=10)["ids"][0])

    def found(self, texts: Sequence[str]) -> int:
        there = set(self._collection.get(include=["documents"])["documents"])
        return sum(text in there for text in texts)

    def close(self) -> None:
        pass


if __name__ == "__main__":
    serve(Chroma())
