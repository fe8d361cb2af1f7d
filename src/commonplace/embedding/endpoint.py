"""Vectors from an OpenAI-compatible `/embeddings` endpoint: a hosted one, Ollama or another local server.

Short failures are retried; what stays is said as Unavailable (try later) or ConfigurationError (the endpoint
refuses: a wrong key, model or address).
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonplace.endpoint import JsonEndpoint, TryAgain
from commonplace.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.embedding import EndpointOptions, Purpose


class EndpointEmbedder:
    """Embeds by HTTP, in batches; the same code for every provider that speaks this dialect."""

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
        # The identity is stored with every vector, and the address is in it: no secret may be.
        if parts.username or parts.password or parts.query:
            raise ConfigurationError("the endpoint's address must hold no credentials; give the API key by itself")
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
        """The length of a vector; the endpoint is asked where it was not given and is not known yet."""
        if self._dimensions is None:
            self.embed(["dimensions"], purpose="passage")
        assert self._dimensions is not None
        return self._dimensions

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Give a row for each text, all or nothing; the dialect has no word for the purpose."""
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
        # OpenAI refuses an empty text.
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
            raise TryAgain(f"the answer holds no embeddings: {answer[:100]!r}") from error
        whole = [row["index"] for row in in_order] == list(range(count)) and vectors.ndim == 2 and vectors.size
        if not whole or not np.isfinite(vectors).all():
            raise TryAgain(f"the answer is no list of {count} vectors: {answer[:100]!r}")
        return vectors

    def _settle_dimensions(self, dimensions: int) -> None:
        with self._lock:
            if self._dimensions is None:
                self._dimensions = dimensions
        if self._dimensions != dimensions:
            raise ConfigurationError(
                f"embedding endpoint {self._url} gives vectors of {dimensions} numbers where "
                f"{self._dimensions} were expected; check the model's name or the configured dimensions"
            )
