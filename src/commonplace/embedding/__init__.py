"""Text to vectors: what an embedder is, and the one place that makes one.

Importing this costs nothing: numpy, onnxruntime and a model's weights are loaded by the first `embed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from commonplace.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.embedding.models import Pooling

__all__ = ["Embedder", "EndpointOptions", "Purpose", "calibrate", "create_embedder"]

Purpose = Literal["query", "passage"]


class Embedder(Protocol):
    """Gives texts their vectors. Safe to share between threads.

    One that loads a model at its first call may tell so by `is_loaded`: a program that only writes a little is then
    spared the loading.
    """

    @property
    def identity(self) -> str:
        """Stored with each vector: embedders with the same identity give the same vectors."""

    @property
    def dimensions(self) -> int:
        """The length of a vector. An endpoint that was not told it is asked once."""

    @property
    def calibration(self) -> tuple[float, float]:
        """The cosines of a query and a passage that people should see as 0 and as 1."""

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Give one row for each text, of length 1 unless normalisation was switched off."""


@dataclass(frozen=True)
class EndpointOptions:
    """How to call an OpenAI-compatible endpoint; models on this machine need none of it."""

    api_key: str | None = field(default=None, repr=False)
    dimensions: int | None = None
    timeout_seconds: float = 30.0
    max_retries: int = 3
    batch_size: int = 64


@dataclass(frozen=True)
class _Request:
    name: str
    pooling: Pooling | None
    normalize: bool | None
    models_folder: Path | None
    endpoint: EndpointOptions


def calibrate(cosine: float, calibration: tuple[float, float]) -> float:
    """Map a cosine to 0..1 for people: linear between the floor and the ceiling, clipped outside."""
    floor, ceiling = calibration
    return min(1.0, max(0.0, (cosine - floor) / (ceiling - floor)))


def create_embedder(
    model: str | None = None,
    *,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    models_folder: Path | None = None,
    endpoint: EndpointOptions | None = None,
) -> Embedder:
    """Make the embedder that `model` names; None is the default model, run on this machine.

    A name is a known model's id or alias, `sentence-transformers:NAME`, `openai:MODEL@URL` or `ollama:MODEL`
    (`ollama:MODEL@URL`). `pooling` and `normalize` unset are the model's own; set otherwise, they become part
    of the identity. Nothing is loaded and nobody is called before the first `embed`.
    """
    if pooling not in (None, "cls", "mean"):
        raise ConfigurationError(f"pooling is {pooling!r}; it must be 'cls' or 'mean'")
    provider, separator, name = (model or "").partition(":")
    maker = _PROVIDERS.get(provider) if separator else None
    request = _Request(
        name=name if maker else model or "",
        pooling=pooling,
        normalize=normalize,
        models_folder=models_folder,
        endpoint=endpoint or EndpointOptions(),
    )
    return (maker or _local)(request)


def _local(request: _Request) -> Embedder:
    from commonplace.embedding.folder import default_models_folder
    from commonplace.embedding.models import DEFAULT_MODEL, model_named
    from commonplace.embedding.onnx import OnnxEmbedder

    return OnnxEmbedder(
        model_named(request.name) if request.name else DEFAULT_MODEL,
        folder=request.models_folder or default_models_folder(),
        pooling=request.pooling,
        normalize=request.normalize,
    )


def _sentence_transformers(request: _Request) -> Embedder:
    from commonplace.embedding.sentence_transformers import SentenceTransformersEmbedder

    _refuse_pooling(request, "a sentence-transformers model has its own")
    return SentenceTransformersEmbedder(request.name, normalize=request.normalize)


def _openai(request: _Request) -> Embedder:
    return _at_endpoint(request, provider="openai", default_url="https://api.openai.com/v1")


def _ollama(request: _Request) -> Embedder:
    return _at_endpoint(request, provider="ollama", default_url="http://localhost:11434/v1")


def _at_endpoint(request: _Request, *, provider: str, default_url: str) -> Embedder:
    from commonplace.embedding.endpoint import EndpointEmbedder

    _refuse_pooling(request, "the endpoint pools")
    name, _, url = request.name.partition("@")
    return EndpointEmbedder(
        name, url=url or default_url, provider=provider, options=request.endpoint, normalize=request.normalize
    )


def _refuse_pooling(request: _Request, reason: str) -> None:
    if request.pooling is not None:
        raise ConfigurationError(f"pooling cannot be chosen for {request.name}: {reason}; leave it unset")


_PROVIDERS: dict[str, Callable[[_Request], Embedder]] = {
    "sentence-transformers": _sentence_transformers,
    "openai": _openai,
    "ollama": _ollama,
}
