"""What an embedder is: it turns texts into vectors, and its cosines into scores from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Purpose = Literal["query", "passage"]


class Embedder(Protocol):
    """Embeds texts. Safe to share between threads.

    An embedder that loads a model at its first call may have `is_loaded`; a program that only writes a little then
    does not load it.
    """

    @property
    def identity(self) -> str:
        """Stored with each vector. Embedders with the same identity give the same vectors."""

    @property
    def dimensions(self) -> int:
        """The length of a vector. If it is not configured for an endpoint, the endpoint is asked once."""

    @property
    def calibration(self) -> tuple[float, float]:
        """The cosines of a query and a passage that are shown as 0 and as 1."""

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Return one row for each text, of length 1 unless normalization is off."""


@dataclass(frozen=True)
class EndpointOptions:
    """How to call an OpenAI-compatible endpoint. Not used for models on this machine."""

    api_key: str | None = field(default=None, repr=False)
    dimensions: int | None = None
    timeout_seconds: float = 30.0
    max_retries: int = 3
    batch_size: int = 64


def calibrate(cosine: float, calibration: tuple[float, float]) -> float:
    """Map a cosine to 0..1: linear between the floor and the ceiling, clipped outside."""
    floor, ceiling = calibration
    return min(1.0, max(0.0, (cosine - floor) / (ceiling - floor)))
