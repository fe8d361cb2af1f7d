"""Text to vectors. `create_embedder` makes an embedder from the name of a model.

Importing this is cheap: numpy, onnxruntime and the model are loaded by the first `embed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commonplace.embedding.embedder import Embedder, EndpointOptions, Purpose, calibrate
from commonplace.errors import ConfigurationError

if TYPE_CHECKING:
    from commonplace.embedding.catalog import Pooling

__all__ = ["Embedder", "EndpointOptions", "Purpose", "calibrate", "create_embedder"]


def create_embedder(
    model: str | None = None,
    *,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    models_folder: Path | None = None,
    endpoint: EndpointOptions | None = None,
) -> Embedder:
    """Return the embedder for `model`; None is the default model, which runs on this machine.

    A name is a known model's id or alias, `sentence-transformers:NAME`, `openai:MODEL@URL` or `ollama:MODEL`
    (`ollama:MODEL@URL`). If you set `pooling` or `normalize` to another value than the model's, it becomes part of the
    identity. Nothing is loaded or called before the first `embed`.
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


@dataclass(frozen=True)
class _Request:
    name: str
    pooling: Pooling | None
    normalize: bool | None
    models_folder: Path | None
    endpoint: EndpointOptions


def _local(request: _Request) -> Embedder:
    from commonplace.embedding.catalog import DEFAULT_MODEL, model_named
    from commonplace.embedding.onnx import OnnxEmbedder

    return OnnxEmbedder(
        model_named(request.name) if request.name else DEFAULT_MODEL,
        folder=request.models_folder,
        pooling=request.pooling,
        normalize=request.normalize,
    )


def _sentence_transformers(request: _Request) -> Embedder:
    from commonplace.embedding.external import SentenceTransformersEmbedder

    _refuse_pooling(request, "a sentence-transformers model defines it")
    return SentenceTransformersEmbedder(request.name, normalize=request.normalize)


def _openai(request: _Request) -> Embedder:
    return _at_endpoint(request, provider="openai", default_url="https://api.openai.com/v1")


def _ollama(request: _Request) -> Embedder:
    return _at_endpoint(request, provider="ollama", default_url="http://localhost:11434/v1")


def _at_endpoint(request: _Request, *, provider: str, default_url: str) -> Embedder:
    from commonplace.embedding.external import EndpointEmbedder

    _refuse_pooling(request, "the endpoint defines it")
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
