"""Generated memories for the benchmark: Zipf-distributed words, clustered vectors, queries; the same on every run."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from commonplace.entry import Draft

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEED = 20261115
DIMENSIONS = 384
WORDS = 40_000
CLUSTERS = 400
TYPES = ("note", "fact", "decision", "preference", "event")
TAGS = tuple(f"project:{name}" for name in ("apollo", "borealis", "cobalt", "delta", "ember", "fjord", "garnet"))


def _words(line: str) -> list[str]:
    return line.split(" ")


# Function words with their frequencies in real texts. Queries drop them, posting lists do not.
FUNCTION_WORDS = _words(
    "the of and to in a is that for it was on are as with they at be this from have or by one had not but what all "
    "were when we there can an your which their if do will each about how up out them then she many some so these"
)
_ONSETS = _words("b br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sl sp st str t th tr v w")
_VOWELS = _words("a ai e ea i o oa ou u")
_CODAS = _words(" b ck d g l ll m n nd ng nt p r rd rk s ss st t x")
_ENDINGS = _words(" s ed ing er ly ment ness tion able ful ity ist")


def vocabulary(count: int = WORDS) -> list[str]:
    """Words by rank, the most frequent first."""
    random_words = random.Random(SEED)
    known = dict.fromkeys(FUNCTION_WORDS)
    while len(known) < count:
        syllables = random_words.choice((1, 2, 2, 3))
        word = "".join(
            random_words.choice(_ONSETS) + random_words.choice(_VOWELS) + random_words.choice(_CODAS)
            for _ in range(syllables)
        )
        known[word + random_words.choice(_ENDINGS)] = None
    return list(known)


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    type: str | None = None
    tags: tuple[str, ...] = ()


class Texts:
    """A source of texts and queries over one vocabulary."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        self._words = vocabulary()
        # Zipf-Mandelbrot: with the shift the first word is 3 % of a text, without it nearly 10 %.
        self._weights = list(accumulate(1.0 / (rank + 2.7) for rank in range(1, len(self._words) + 1)))

    def text(self) -> str:
        words = self._random.choices(self._words, cum_weights=self._weights, k=self._random.randint(20, 60))
        return " ".join(words).capitalize() + "."

    def draft(self) -> Draft:
        """A record's entry, as `space.records.create` makes it."""
        text = self.text()
        key = f"{self._random.getrandbits(128):032x}"
        kind_of_record = self._random.choice(TYPES)
        tags = sorted(self._random.sample(TAGS, 2))
        return Draft(
            "record",
            key,
            {"text": text},
            text=text,
            heading=" ".join((kind_of_record, *tags)),
            attributes={"type": kind_of_record, "source": "bench", "tags": tags, "confidence": 0.9},
            identity=f"{self._random.getrandbits(256):064x}",
        )

    def drafts(self, count: int) -> Iterator[Draft]:
        return (self.draft() for _ in range(count))

    def queries(self, count: int) -> list[Query]:
        """3 to 6 words: rare, medium and common ones and a function word; every fifth query has a filter."""
        return [self._query(number) for number in range(count)]

    def _query(self, number: int) -> Query:
        first_rare, first_medium = 5_000, 500
        bands = [(first_medium, first_rare), (len(FUNCTION_WORDS), first_medium), (first_rare, len(self._words))]
        chosen = [self._random.choice(bands) for _ in range(self._random.randint(2, 5))]
        words = [self._words[self._random.randrange(*band)] for band in [bands[0], *chosen]]
        if number % 3 == 0:
            words[0] = self._random.choice(FUNCTION_WORDS)
        self._random.shuffle(words)
        if number % 10 == 5:
            return Query(" ".join(words), type=self._random.choice(TYPES))
        if number % 10 == 9:
            return Query(" ".join(words), tags=(self._random.choice(TAGS),))
        return Query(" ".join(words))


class InstantEmbedder:
    """Unit vectors in clusters, generated from a text's checksum: like a model's, without its time."""

    identity = "bench-instant"
    dimensions = DIMENSIONS
    calibration = (0.1, 0.9)

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        import numpy as np

        generator = np.random.default_rng(SEED)
        # Real embeddings spread unevenly over their dimensions and share a direction.
        scale = 1.0 / np.sqrt(1.0 + np.arange(DIMENSIONS) / 40.0)
        centres = generator.standard_normal((CLUSTERS, DIMENSIONS)) * scale + 0.3
        noise = generator.standard_normal((4_096, DIMENSIONS)) * scale
        return centres.astype(np.float32), noise.astype(np.float32)

    def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> NDArray[np.float32]:
        import numpy as np

        centres, noise = self._tables
        sums = np.array([zlib.crc32(text.encode()) for text in texts], np.int64)
        vectors = (
            centres[sums % CLUSTERS] + 0.7 * noise[(sums >> 7) % len(noise)] + 0.5 * noise[(sums >> 19) % len(noise)]
        )
        unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit
