"""A model of the sentence-transformers package, which is an extra: it brings torch."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commonplace.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.embedding import Purpose

# What models call their prompts; the first that a model has is used.
_PROMPTS: dict[str, tuple[str, ...]] = {"query": ("query",), "passage": ("passage", "document")}


class SentenceTransformersEmbedder:
    """Embeds with any model that the package can load; it may fetch the model at the first call."""

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
        """The length of a vector, which only the loaded model knows."""
        model = self._model()
        # Version 5.5 renamed it.
        dimension = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(dimension())

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Give a row for each text, with the model's own prompt for the purpose where it has one."""
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
