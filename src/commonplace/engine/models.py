"""Which embedder answers for which model: the one this book was opened with, or one made by its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonplace.embedding import Embedder, Purpose
from commonplace.engine.passage_vectors import SUFFIX, SentenceReader, as_it_reads, vectors_of
from commonplace.errors import CommonplaceError, ConfigurationError, Unavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def embed(embedder: Embedder, texts: Sequence[str], purpose: Purpose) -> NDArray[np.float32]:
    """The vectors of texts; whatever goes wrong in an embedder of the user's own is Unavailable."""
    try:
        return vectors_of(embedder, texts, purpose)
    except CommonplaceError:
        raise
    except Exception as error:
        raise Unavailable(f"the embedder {embedder.identity} failed: {type(error).__name__}: {error}") from error


def is_loaded(embedder: Embedder) -> bool:
    """Whether the next `embed` need not load a model first; an embedder that does not tell has nothing to load."""
    return bool(getattr(embedder, "is_loaded", True))


class Models:
    """The embedder that the caller chose, and those of models that a book still holds vectors of."""

    def __init__(self, chosen: Embedder, make: Callable[[str], Embedder]) -> None:
        self.chosen = as_it_reads(chosen)
        self._make = make
        self._made: dict[str, Embedder] = {}
        self._mutex = threading.Lock()

    def add(self, embedder: Embedder) -> None:
        """Keep an embedder at hand for the vectors of its identity."""
        kept = as_it_reads(embedder)
        with self._mutex:
            self._made[kept.identity] = kept

    def for_identity(self, identity: str) -> Embedder:
        """The embedder whose vectors carry this identity."""
        if (chosen := _of_identity(self.chosen, identity)) is not None:
            return chosen
        with self._mutex:
            if identity not in self._made:
                self._made[identity] = self._make_by_identity(identity)
            return self._made[identity]

    def _make_by_identity(self, identity: str) -> Embedder:
        plain = identity.removesuffix(SUFFIX)
        for name in (plain, plain.partition("@")[0]):  # an endpoint's address is behind an @ too
            try:
                embedder = self._make(name)
            except CommonplaceError:
                continue
            if (found := _of_identity(as_it_reads(embedder), identity)) is not None:
                return found
        raise ConfigurationError(
            f"this book's vectors are of the model {identity}, and this program was started with "
            f"{self.chosen.identity}; run `commonplace reindex --model NAME` to embed it anew, or start with the "
            "book's model"
        )


def _of_identity(embedder: Embedder, identity: str) -> Embedder | None:
    """The embedder of this identity, or the plain one within it: a book may be older than the reading of sentences."""
    if embedder.identity == identity:
        return embedder
    return _of_identity(embedder.plain, identity) if isinstance(embedder, SentenceReader) else None
