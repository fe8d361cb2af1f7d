"""The vector of a passage: what it says as a whole, and what its sentences say one by one.

A small model hears the main topic of a text and little else; "By the way, my sister moved to Lyon" at the end of a
question about recipes is lost in its vector. The mean of the sentences' vectors hears every sentence alike. Their sum
finds more than either (decision 007), and is one vector: it takes no more room and no more time to search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonplace.embedding import Embedder
from commonplace.engine.models import embed
from commonplace.language.sentences import pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SENTENCES = 2.0  # what the mean of the sentences counts beside the whole
LONGEST = 600  # characters of a passage that is read twice: in longer ones it is worth less and costs more


def embed_passages(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """One vector of length 1 for each text; an embedder that does not ask for sentences gives them as they are."""
    if not getattr(embedder, "reads_sentences", False):
        return embed(embedder, texts, "passage")
    import numpy as np

    sentences = [pieces(text) if len(text) <= LONGEST else [] for text in texts]
    read = [*texts, *(piece for some in sentences if len(some) > 1 for piece in some)]
    vectors = embed(embedder, read, "passage")
    mixed = np.array(vectors[: len(texts)])
    first = len(texts)
    for row, some in enumerate(sentences):
        if len(some) > 1:
            mean = vectors[first : first + len(some)].mean(axis=0)
            first += len(some)
            both = mixed[row] + SENTENCES * mean / max(float(np.linalg.norm(mean)), 1e-12)
            mixed[row] = both / max(float(np.linalg.norm(both)), 1e-12)
    return mixed
