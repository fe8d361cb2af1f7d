"""A known model run by onnxruntime on this machine's processor.

The promise: the same text gives the same bits, alone or in any batch. Dynamic int8 takes one scale for a
whole tensor, so batch mates change each other's vectors (cosine 0.994 seen, at equal lengths too). So each
text is a run of its own on one thread, and several texts are several runs at once, which is faster than
batches were: docs/decisions/003 has the figures.

A thread that is inside onnxruntime when Python ends takes the process with it (SIGABRT, SIGSEGV). So the end of the
program waits until no thread is inside, and lets none in any more.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commonplace.embedding.folder import file_is_right, installed, model_path
from commonplace.embedding.models import DEFAULT_MODEL, Model, Pooling
from commonplace.errors import Unavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.embedding import Purpose
    from commonplace.embedding.wordpiece import WordPiece

MAX_THREADS = 4
END_SECONDS = 60.0
"""How long the end of the program waits for a model that is being loaded or run: seconds, on a machine that swaps."""


def _threads() -> int:
    # The affinity is what a container or taskset allows; the plain count is the whole machine's.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, MAX_THREADS)


class _Inside:
    """Counts the threads that are inside onnxruntime, and lets none in once the program ends."""

    def __init__(self) -> None:
        self._begin()
        atexit.register(self._end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)  # a child has none of its parent's threads

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_ending = False

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._changed:
            if self._is_ending:
                raise Unavailable("the program is ending; no text is embedded any more")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.wait_for(lambda: not self._count, END_SECONDS)


_inside = _Inside()


class _Loaded(NamedTuple):
    session: Any
    inputs: frozenset[str]
    tokenizer: WordPiece


class OnnxEmbedder:
    """Embeds with a model of the models folder; loads it at the first call, once for all threads."""

    def __init__(
        self, model: Model, *, folder: Path, pooling: Pooling | None = None, normalize: bool | None = None
    ) -> None:
        self._model = model
        self._folder = folder
        self._pooling = model.pooling if pooling is None else pooling
        self._normalize = normalize is not False
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self.identity = model.identity
        if self._pooling != model.pooling:
            self.identity += f";pooling={self._pooling}"
        if not self._normalize:
            self.identity += ";normalize=false"
        self.dimensions = model.dimensions
        self.calibration = model.calibration
        # Measured with the default model only: see engine/passage_vectors.py.
        self.reads_sentences = model is DEFAULT_MODEL

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Give a row for each text, bit for bit the row that the text has alone."""
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np

        loaded = self._loaded or self._load()
        prefix = self._model.query_prefix if purpose == "query" else ""
        prefixed = [prefix + text for text in texts]
        if len(prefixed) == 1:
            return self._run(loaded, prefixed[0])[np.newaxis]
        vectors = np.empty((len(prefixed), self.dimensions), dtype=np.float32)
        # Long ones first: with a long one last, the other threads would have nothing left to do beside it.
        order = sorted(range(len(prefixed)), key=lambda row: -len(prefixed[row]))
        with ThreadPoolExecutor(_threads(), thread_name_prefix="embed") as pool:
            for row, vector in zip(order, pool.map(lambda row: self._run(loaded, prefixed[row]), order), strict=True):
                vectors[row] = vector
        return vectors

    def _run(self, loaded: _Loaded, text: str) -> NDArray[np.float32]:
        import numpy as np

        ids = np.array([loaded.tokenizer.encode(text)], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        with _inside.held():
            states = loaded.session.run(None, {name: feed[name] for name in loaded.inputs})[0][0]
        vector: NDArray[np.float32] = states[0] if self._pooling == "cls" else states.mean(axis=0)
        if self._normalize:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return vector

    def _load(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                with _inside.held():
                    self._loaded = self._open()
            return self._loaded

    def _open(self) -> _Loaded:
        if not installed(self._model, self._folder):
            raise Unavailable(f"embedding model {self._model.id} is not installed; run: {self._command()}")
        path = model_path(self._model, self._folder)
        for file in self._model.files:
            if not file_is_right(file, path / file.name):
                raise Unavailable(
                    f"embedding model {self._model.id} is damaged: the hash of {path / file.name} is wrong; "
                    f"run: {self._command()}"
                )
        # Else onnxruntime notes its use in the cache folder and tells Microsoft; who set it otherwise has decided.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        from commonplace.embedding.wordpiece import WordPiece

        options = onnxruntime.SessionOptions()
        # The calling thread does a run alone: `embed` is what spreads texts over the cores. With more threads
        # a query is no faster, and passages are slower by a tenth.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path / "model.onnx"), options, providers=["CPUExecutionProvider"])
        tokenizer = WordPiece.from_file(path / "vocab.txt", max_tokens=self._model.max_tokens)
        return _Loaded(session, frozenset(one.name for one in session.get_inputs()), tokenizer)

    def _command(self) -> str:
        return "commonplace model pull" + ("" if self._model is DEFAULT_MODEL else f" {self._model.id}")
