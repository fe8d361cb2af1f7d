"""Which embedder answers for which model: the one this book was opened with, or one made by its name."""

from __future__ import annotations

import threading

from commonplace.embedding import Embedder, create_embedder
from commonplace.errors import CommonplaceError, ConfigurationError


class Models:
    """The embedder that the caller chose, and those of models that a book still holds vectors of."""

    def __init__(self, chosen: Embedder) -> None:
        self.chosen = chosen
        self._made: dict[str, Embedder] = {}
        self._mutex = threading.Lock()

    def add(self, embedder: Embedder) -> None:
        """Keep an embedder at hand for the vectors of its identity."""
        with self._mutex:
            self._made[embedder.identity] = embedder

    def for_identity(self, identity: str) -> Embedder:
        """The embedder whose vectors carry this identity."""
        if identity == self.chosen.identity:
            return self.chosen
        with self._mutex:
            if identity not in self._made:
                self._made[identity] = _make(identity, self.chosen.identity)
            return self._made[identity]


def _make(identity: str, chosen: str) -> Embedder:
    try:
        embedder = create_embedder(identity.partition("@")[0])
    except CommonplaceError as error:
        raise ConfigurationError(_mismatch(identity, chosen)) from error
    if embedder.identity != identity:
        raise ConfigurationError(_mismatch(identity, chosen))
    return embedder


def _mismatch(identity: str, chosen: str) -> str:
    return (
        f"this book's vectors are of the model {identity}, and this program was started with {chosen}; "
        "run `commonplace reindex` to embed it anew, or start with the book's model"
    )
