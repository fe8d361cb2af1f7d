"""Embedders that run elsewhere: at an OpenAI-compatible endpoint, or in the sentence-transformers package.

An endpoint is a hosted one, Ollama or another local server. Passing failures are retried. A lasting one raises
Unavailable (try later) or ConfigurationError (a wrong key, model or address).
"""

from __future__ import annotations

import importlib.util
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.endpoint import JsonEndpoint, TryAgain
from commonplace.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.embedding.embedder import EndpointOptions, Purpose

_PROMPTS: dict[str, tuple[str, ...]] = {"query": ("query",), "passage": ("passage", "document")}
"""What sentence-transformers models call their prompts; the first that a model has is used."""


class EndpointEmbedder:
    """Embeds over HTTP in batches, with any provider that has an OpenAI-compatible API."""

    calibration = (0.0, 1.0)

    def __init__(
        self,
        model: str,
        *,
        url: str,
        provider: str,
        options: EndpointOptions,
        normalize: bool | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if not model or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"write the endpoint as {provider}:MODEL@https://host/v1")
        # The identity is stored with every vector and contains the URL, which must not contain a secret.
        if parts.username or parts.password or parts.query:
            raise ConfigurationError("the endpoint's URL must not contain credentials; pass the API key separately")
        self._model = model
        self._url = url.rstrip("/")
        self._options = options
        self._normalize = normalize is not False
        self._lock = threading.Lock()
        self._dimensions = options.dimensions
        self._endpoint = JsonEndpoint(
            "embedding endpoint",
            f"{self._url}/embeddings",
            api_key=options.api_key,
            timeout_seconds=options.timeout_seconds,
            max_retries=options.max_retries,
            sleep=sleep,
        )
        self.identity = f"{provider}:{model}@{self._url}" + ("" if self._normalize else ";normalize=false")

    @property
    def dimensions(self) -> int:
        """The length of a vector. If it is not known yet, the endpoint is asked."""
        if self._dimensions is None:
            self.embed(["dimensions"], purpose="passage")
        assert self._dimensions is not None
        return self._dimensions

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Return a row for each text, all or nothing. The API has no parameter for the purpose."""
        import numpy as np

        size = self._options.batch_size
        batches = [self._batch(texts[start : start + size]) for start in range(0, len(texts), size)]
        if not batches:
            return np.empty((0, self.dimensions), dtype=np.float32)
        vectors = np.concatenate(batches)
        if self._normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def _batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        # OpenAI rejects an empty text.
        body = {"model": self._model, "input": [text or " " for text in texts], "encoding_format": "float"}
        vectors = self._endpoint.post(body, lambda answer: self._parse(answer, len(texts)))
        self._settle_dimensions(vectors.shape[1])
        return vectors

    def _parse(self, answer: bytes, count: int) -> NDArray[np.float32]:
        import numpy as np

        try:
            rows = json.loads(answer)["data"]
            in_order = sorted(rows, key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in in_order], dtype=np.float32)
        except (ValueError, KeyError, TypeError) as error:
            raise TryAgain(f"the response has no embeddings: {answer[:100]!r}") from error
        whole = [row["index"] for row in in_order] == list(range(count)) and vectors.ndim == 2 and vectors.size
        if not whole or not np.isfinite(vectors).all():
            raise TryAgain(f"the response is not a list of {count} vectors: {answer[:100]!r}")
        return vectors

    def _settle_dimensions(self, dimensions: int) -> None:
        with self._lock:
            if self._dimensions is None:
                self._dimensions = dimensions
        if self._dimensions != dimensions:
            raise ConfigurationError(
                f"embedding endpoint {self._url} returns vectors of {dimensions} numbers where "
                f"{self._dimensions} were expected; check the model's name or the configured dimensions"
            )


class SentenceTransformersEmbedder:
    """Embeds with any model that the package can load. It may download the model at the first call. Needs torch."""

    calibration = (0.0, 1.0)

    def __init__(self, name: str, *, normalize: bool | None = None) -> None:
        if not name:
            raise ConfigurationError("name a model: sentence-transformers:NAME")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise ConfigurationError(
                f"sentence-transformers:{name} needs a package; run: {install_command('sentence-transformers')}"
            )
        self._name = name
        self._normalize = normalize is not False
        self._lock = threading.Lock()
        self._loaded: Any = None
        self.identity = f"sentence-transformers:{name}" + ("" if self._normalize else ";normalize=false")

    @property
    def dimensions(self) -> int:
        """The length of a vector, which is known once the model is loaded."""
        model = self._model()
        # Version 5.5 renamed this method.
        dimension = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(dimension())

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Return a row for each text, with the model's prompt for the purpose if it has one."""
        import numpy as np

        model = self._model()
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        prompts = model.prompts or {}
        rows = model.encode(
            list(texts),
            prompt=next((prompts[name] for name in _PROMPTS[purpose] if name in prompts), None),
            normalize_embeddings=self._normalize,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.asarray(rows, dtype=np.float32)

    def _model(self) -> Any:
        with self._lock:
            if self._loaded is None:
                from sentence_transformers import SentenceTransformer

                self._loaded = SentenceTransformer(self._name)
            return self._loaded
