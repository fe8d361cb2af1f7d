"""Which embedder makes the vectors of a model, and the vector of a passage.

A small model captures the main subject of a text and little else: "By the way, my sister moved to Lyon" at the end of
a question about recipes is lost in its vector. The mean of the vectors of the sentences weighs every sentence alike.
The sum of both finds more than either (decision 007), and is still one vector. Such vectors have their own identity,
so that a book never mixes them with the plain vectors of the model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonplace.embedding import Embedder, Purpose
from commonplace.errors import CommonplaceError, ConfigurationError, Unavailable
from commonplace.language.passages import split_sentences
from commonplace.language.weights import LONGEST_SENTENCES, SENTENCES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SUFFIX = ";sentences=1"  # of the identity; increase the number when the same text gets another vector here


def embed(embedder: Embedder, texts: Sequence[str], purpose: Purpose) -> NDArray[np.float32]:
    """The vectors of texts; any error of a custom embedder becomes Unavailable."""
    try:
        return vectors_of(embedder, texts, purpose)
    except CommonplaceError:
        raise
    except Exception as error:
        raise Unavailable(f"the embedder {embedder.identity} failed: {type(error).__name__}: {error}") from error


def is_loaded(embedder: Embedder) -> bool:
    """Whether `embed` can run without loading a model first; an embedder without this attribute has nothing to load."""
    return bool(getattr(embedder, "is_loaded", True))


class Models:
    """The embedder that the caller chose, and those of other models whose vectors a book still holds."""

    def __init__(self, chosen: Embedder, make: Callable[[str], Embedder]) -> None:
        self.chosen = with_sentences(chosen)
        self._make = make
        self._made: dict[str, Embedder] = {}
        self._mutex = threading.Lock()

    def add(self, embedder: Embedder) -> None:
        """Use this embedder for the vectors of its identity."""
        added = with_sentences(embedder)
        with self._mutex:
            self._made[added.identity] = added

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
        for name in (plain, plain.partition("@")[0]):  # the address of an endpoint follows an @ too
            try:
                embedder = self._make(name)
            except CommonplaceError:
                continue
            if (found := _of_identity(with_sentences(embedder), identity)) is not None:
                return found
        name, at, _ = self.chosen.identity.partition("@")
        if at and name == plain.partition("@")[0]:
            raise ConfigurationError(
                f"this book's vectors are of former weights of {name}, which this version does not have; "
                f"`commonplace reindex --model {name}` embeds it again"
            )
        raise ConfigurationError(
            f"this book's vectors are of the model {identity}, but this program was started with "
            f"{self.chosen.identity}; run `commonplace reindex --model NAME` to embed it again, or start with the "
            "book's model"
        )


def _of_identity(embedder: Embedder, identity: str) -> Embedder | None:
    """The embedder of this identity, or the plain one that it wraps: older books have vectors without sentences."""
    if embedder.identity == identity:
        return embedder
    return _of_identity(embedder.plain, identity) if isinstance(embedder, SentenceReader) else None


def with_sentences(embedder: Embedder) -> Embedder:
    """The embedder whose vectors a book holds: itself, or a SentenceReader if it wants one."""
    return SentenceReader(embedder) if getattr(embedder, "reads_sentences", False) else embedder


def vectors_of(embedder: Embedder, texts: Sequence[str], purpose: Purpose) -> NDArray[np.float32]:
    """The vectors that an embedder returns, checked: a wrong shape or NaN would spoil every search."""
    import numpy as np

    vectors = np.asarray(embedder.embed(texts, purpose=purpose), np.float32)
    if vectors.shape != (len(texts), embedder.dimensions):
        raise Unavailable(
            f"the embedder {embedder.identity} returned an array of the shape {vectors.shape} for {len(texts)} texts "
            f"and {embedder.dimensions} dimensions; correct its `embed` or its `dimensions`"
        )
    if not np.isfinite(vectors).all():
        raise Unavailable(f"the embedder {embedder.identity} returned numbers that are not finite; correct its `embed`")
    return vectors


class SentenceReader:
    """An embedder that embeds the sentences of short passages as well; it passes queries to the one that it wraps."""

    def __init__(self, plain: Embedder) -> None:
        self.plain = plain
        self.identity = plain.identity + SUFFIX
        self.calibration = plain.calibration

    @property
    def dimensions(self) -> int:
        return self.plain.dimensions

    @property
    def is_loaded(self) -> bool:
        return bool(getattr(self.plain, "is_loaded", True))

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """One vector of length 1 for each text."""
        if purpose == "query":
            return self.plain.embed(texts, purpose=purpose)
        import numpy as np

        sentences = [split_sentences(text) if len(text) <= LONGEST_SENTENCES else [] for text in texts]
        read = [*texts, *(piece for some in sentences if len(some) > 1 for piece in some)]
        vectors = vectors_of(self.plain, read, purpose)
        mixed = np.array(vectors[: len(texts)])
        first = len(texts)
        for row, some in enumerate(sentences):
            if len(some) > 1:
                mean = vectors[first : first + len(some)].mean(axis=0)
                first += len(some)
                both = mixed[row] + SENTENCES * mean / max(float(np.linalg.norm(mean)), 1e-12)
                mixed[row] = both / max(float(np.linalg.norm(both)), 1e-12)
        return mixed
