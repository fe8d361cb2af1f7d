"""The vector of a passage: what it says as a whole, and what its sentences say one by one.

A small model hears the main topic of a text and little else; "By the way, my sister moved to Lyon" at the end of a
question about recipes is lost in its vector. The mean of the sentences' vectors hears every sentence alike. Their sum
finds more than either (decision 007), and is one vector: it takes no more room and no more time to search.

Such vectors have an identity of their own, so that a book never holds them among the model's plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonplace.embedding import Embedder, Purpose
from commonplace.errors import Unavailable
from commonplace.language.sentences import pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SENTENCES = 2.0  # what the mean of the sentences counts beside the whole
LONGEST = 600  # characters of a passage that is read twice: in longer ones it is worth less and costs more
SUFFIX = ";sentences=1"  # of the identity; the number goes up when the same text is given another vector here


def as_it_reads(embedder: Embedder) -> Embedder:
    """The embedder whose vectors a book holds: itself, or with sentences where it asks for them."""
    return SentenceReader(embedder) if getattr(embedder, "reads_sentences", False) else embedder


def vectors_of(embedder: Embedder, texts: Sequence[str], purpose: Purpose) -> NDArray[np.float32]:
    """What an embedder gives, if that is a vector for each text; anything else would spoil every search."""
    import numpy as np

    vectors = np.asarray(embedder.embed(texts, purpose=purpose), np.float32)
    if vectors.shape != (len(texts), embedder.dimensions):
        raise Unavailable(
            f"the embedder {embedder.identity} gave an array of the shape {vectors.shape} for {len(texts)} texts and "
            f"{embedder.dimensions} dimensions; correct its `embed` or its `dimensions`"
        )
    if not np.isfinite(vectors).all():
        raise Unavailable(f"the embedder {embedder.identity} gave numbers that are not finite; correct its `embed`")
    return vectors


class SentenceReader:
    """An embedder that reads short passages by their sentences as well; queries it leaves to the one it wraps."""

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

        sentences = [pieces(text) if len(text) <= LONGEST else [] for text in texts]
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
