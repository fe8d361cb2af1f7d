"""commonplace as a library: `given` looks vectors up as the peers do, `model` runs the default model.

With `model`, memories in bulk still take vectors that were made before; single ones and all queries are the model's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adapter import DIMENSIONS, Peer, Vectors, serve

import commonplace
from commonplace.checks import JSON
from commonplace.embedding import Embedder, create_embedder
from commonplace.engine.embedders import with_sentences
from commonplace.entry import Draft
from commonplace.store import Transaction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Purpose = Literal["query", "passage"]
NAMESPACE = ("user", "bench")


class Given:
    """The default model's vectors, without its time."""

    dimensions = DIMENSIONS

    def __init__(self, vectors: Vectors, model: Embedder) -> None:
        self._vectors = vectors
        self.identity = with_sentences(model).identity
        self.calibration = model.calibration

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        import numpy as np

        rows = b"".join(map(self._vectors.row, texts))
        return np.frombuffer(rows, np.float32).reshape(-1, DIMENSIONS)


class Ours(Peer):
    batch = 5_000

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def open(self, folder: Path) -> None:
        self._model = create_embedder(None)
        self._given = Given(self.vectors, self._model)
        # The default settings: writes are embedded in the background.
        self._book = commonplace.open(
            folder / "memory.db", embedder=self._given if self._mode == "given" else self._model
        )
        self._space = self._book.space(*NAMESPACE)

    def add(self, text: str) -> None:
        self._space.records.create(
            type="note", content={"text": text}, source="bench", confidence=0.9, tags=["project:apollo"]
        )

    def fill(self, texts: Sequence[str]) -> None:
        import uuid

        def work(transaction: Transaction) -> None:
            for text in texts:
                attributes: dict[str, JSON] = {"type": "note", "source": "bench", "tags": [], "confidence": 0.9}
                value = {"text": text}
                transaction.put(Draft("record", str(uuid.uuid4()), value, text=text, attributes=attributes))

        self._book.store.write(NAMESPACE, work)
        self.settle()

    def settle(self) -> None:
        """Do now what the background does when the book is idle: pending vectors, and merging the keyword index."""
        store = self._book.store
        store.set_target_model(self._given.identity, DIMENSIONS)
        while claimed := store.claim(self.batch, 600.0, even_leased=True):
            vectors = self._given.embed([passage.text for passage in claimed], purpose="passage")
            pairs = zip(claimed, vectors, strict=True)
            store.index(self._given.identity, [(passage.chunk_id, vector) for passage, vector in pairs])
        while store.maintain():
            continue

    def search(self, query: str) -> int:
        return len(self._space.search(query, limit=10))

    def found(self, texts: Sequence[str]) -> int:
        there: set[str] = set()
        cursor = None
        while True:
            page = self._space.records.list(limit=1_000, cursor=cursor)
            there.update(record.content["text"] for record in page.records if isinstance(record.content, dict))
            cursor = page.cursor
            if cursor is None:
                return sum(text in there for text in texts)

    def baseline(self) -> Callable[[str], None]:
        """The model's own time for a query, and an exact scan of as many rows in memory."""
        import numpy as np

        # A scan takes as long whatever the numbers are.
        matrix = np.random.default_rng(1).standard_normal((self._book.stats().vectors, DIMENSIONS), np.float32)

        def exact(query: str) -> None:
            scores = matrix @ self._model.embed([query], purpose="query")[0]
            best = np.argpartition(scores, -10)[-10:]
            best[np.argsort(-scores[best])]

        return exact

    def close(self) -> None:
        self._book.close()


if __name__ == "__main__":
    serve(Ours(sys.argv[1]))
