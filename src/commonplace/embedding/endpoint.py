"""Vectors from an OpenAI-compatible `/embeddings` endpoint: a hosted one, Ollama or another local server.

Short failures are retried; what stays is said as Unavailable (try later) or ConfigurationError (the endpoint
refuses: a wrong key, model or address).
"""

from __future__ import annotations

import email.utils
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.errors import ConfigurationError, Unavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.embedding import EndpointOptions, Purpose

FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 30.0
MAX_ANSWER_BYTES = 64 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the API key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _TryAgain(Exception):
    """A failure that may pass; `after_seconds` is what the endpoint asked for."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


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
        self._sleep = sleep
        self._lock = threading.Lock()
        self._dimensions = options.dimensions
        self._opener = urllib.request.build_opener(_NoRedirect)
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
        attempt = 0
        while True:
            try:
                vectors = self._parse(self._post(json.dumps(body).encode()), len(texts))
            except _TryAgain as failure:
                wait = _wait_seconds(attempt, failure.after_seconds)
                if attempt >= self._options.max_retries or wait > MAX_WAIT_SECONDS:
                    raise Unavailable(
                        f"embedding endpoint {self._url} failed {attempt + 1} times, at last: {failure}; "
                        "see that it runs, then try again"
                    ) from failure
            else:
                self._settle_dimensions(vectors.shape[1])
                return vectors
            attempt += 1
            self._sleep(wait)

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._options.api_key:
            headers["Authorization"] = f"Bearer {self._options.api_key}"
        request = urllib.request.Request(f"{self._url}/embeddings", data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._options.timeout_seconds) as response:
                answer: bytes = response.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode("utf-8", "replace").strip()
            reason = f"HTTP {error.code} {said}".strip()
            if error.code in (408, 429) or error.code >= 500:
                raise _TryAgain(reason, _retry_after_seconds(error.headers.get("Retry-After"))) from error
            raise ConfigurationError(
                f"embedding endpoint {self._url} refused model {self._model}: {reason}; "
                "check the model's name, the address and the API key"
            ) from error
        except (http.client.HTTPException, OSError) as error:
            raise _TryAgain(str(getattr(error, "reason", None) or error) or type(error).__name__) from error
        if len(answer) > MAX_ANSWER_BYTES:
            raise Unavailable(f"embedding endpoint {self._url} sent more than {MAX_ANSWER_BYTES} bytes")
        return answer

    def _parse(self, answer: bytes, count: int) -> NDArray[np.float32]:
        import numpy as np

        try:
            rows = json.loads(answer)["data"]
            in_order = sorted(rows, key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in in_order], dtype=np.float32)
        except (ValueError, KeyError, TypeError) as error:
            raise _TryAgain(f"the answer holds no embeddings: {answer[:100]!r}") from error
        whole = [row["index"] for row in in_order] == list(range(count)) and vectors.ndim == 2 and vectors.size
        if not whole or not np.isfinite(vectors).all():
            raise _TryAgain(f"the answer is no list of {count} vectors: {answer[:100]!r}")
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


def _wait_seconds(attempt: int, asked: float | None) -> float:
    """What the endpoint asked for, and a little more so that many clients do not return together."""
    if asked is not None:
        return asked + random.uniform(0, FIRST_WAIT_SECONDS)
    return random.uniform(0.5, 1.0) * min(FIRST_WAIT_SECONDS * 2.0**attempt, MAX_WAIT_SECONDS)


def _retry_after_seconds(header: str | None) -> float | None:
    """Read seconds or an HTTP date; what is neither counts as not sent."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
