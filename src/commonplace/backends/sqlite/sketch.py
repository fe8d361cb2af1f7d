"""A rough score of many vectors, quick: it decides which of them are worth an exact one.

Vectors of texts share a few directions in which they differ most. A sketch keeps a vector's share in the leading eighth
of these as numbers, and of what remains its length and the sign of each dimension: 250 bytes where a row of 384 halves
has 768. The figures that chose this are in docs/decisions/008-sketches.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE_ROWS = 4_000
ROUNDS = 3
SINGLE_THREAD = 400_000
"""BLAS spreads a product over threads from about 460,000 numbers on; on busy cores these wait for each other, and 1 ms
becomes 20. So products are made in parts."""

Floats = NDArray[np.float32]


class Sketch:
    """The rough scores of all rows; what the leading directions are is learnt from a sample."""

    def __init__(self, sample: Floats) -> None:
        dimensions = sample.shape[1]
        self._basis = _leading(sample, max(1, dimensions // 8))
        self._leads: Floats = np.empty((0, self._basis.shape[1]), np.float32)
        self._lengths: Floats = np.empty(0, np.float32)
        self._signs: list[NDArray[np.uint64]] = [np.empty(0, np.uint64) for _ in range(-(-dimensions // 64))]
        self._size = 0
        # Signs that differ in a share of the dimensions are, of random directions, at that share of a half turn.
        self._cosines: Floats = np.cos(np.pi / dimensions * np.arange(dimensions + 1)).astype(np.float32)

    @property
    def held_bytes(self) -> int:
        return self._leads.nbytes + self._lengths.nbytes + sum(words.nbytes for words in self._signs)

    def extend(self, vectors: Floats) -> None:
        leads, rest = self._divide(vectors)
        self._leads = grown(self._leads, self._size, leads)
        self._lengths = grown(self._lengths, self._size, np.sqrt(np.vecdot(rest, rest)))
        self._signs = [grown(words, self._size, more) for words, more in zip(self._signs, _signs_of(rest), strict=True)]
        self._size += len(vectors)

    def scores(self, query: Floats) -> Floats:
        """About the cosine of each row with the query."""
        lead, rest = self._divide(query[np.newaxis])
        differ = np.zeros(self._size, np.uint16)
        for words, word in zip(self._signs, _signs_of(rest), strict=True):
            differ += np.bitwise_count(words[: self._size] ^ word[0])
        scores = self._cosines.take(differ)
        scores *= self._lengths[: self._size]
        scores *= np.linalg.norm(rest)
        scores += products(self._leads[: self._size], lead[0])
        return scores

    def _divide(self, vectors: Floats) -> tuple[Floats, Floats]:
        leads: Floats = vectors @ self._basis
        rest: Floats = vectors - leads @ self._basis.T
        return leads, rest


def products(rows: Floats, vector: Floats) -> Floats:
    """Each row times the vector, in one thread."""
    made: Floats = np.empty(len(rows), np.float32)
    step = max(1, SINGLE_THREAD // len(vector))
    for start in range(0, len(rows), step):
        np.matmul(rows[start : start + step], vector, out=made[start : start + step])
    return made


def grown(array: NDArray[Any], size: int, added: NDArray[Any]) -> NDArray[Any]:
    """The array with rows added after `size`, given room by doubling."""
    needed = size + len(added)
    if needed > len(array):
        larger = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
        larger[:size] = array[:size]
        array = larger
    array[size:needed] = added
    return array


def _leading(sample: Floats, count: int) -> Floats:
    """An orthonormal basis of the directions in which the sample is longest, by subspace iteration."""
    some = sample[:: max(1, len(sample) // SAMPLE_ROWS)]
    basis: Floats = np.random.default_rng(1).standard_normal((sample.shape[1], count), np.float32)
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(some.T @ (some @ basis))
    return basis


def _signs_of(vectors: Floats) -> list[NDArray[np.uint64]]:
    """The signs of the vectors as bits: an array for each 64 dimensions, with a number for each vector."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(vectors), -(-vectors.shape[1] // 64) * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return [np.ascontiguousarray(words) for words in padded.view(np.uint64).T]
