"""Text to vectors. Importing this is cheap: numpy, onnxruntime and the model are loaded by the first `embed`."""

from __future__ import annotations

from commonplace.embedding.embedder import Embedder, EndpointOptions, Purpose, calibrate
from commonplace.embedding.factory import create_embedder

__all__ = ["Embedder", "EndpointOptions", "Purpose", "calibrate", "create_embedder"]
