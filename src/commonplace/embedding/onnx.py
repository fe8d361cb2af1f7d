"""Runs a known model with onnxruntime on this machine's processor.

The same text gives the same bits, alone or in any batch. Dynamic int8 uses one scale for a whole tensor, so texts of a
batch would change each other's vectors (a cosine of 0.994 was seen, at equal lengths too). So each text is one run on
one thread, and several texts run at the same time. This is faster than batches, too; see decision 003.

If a thread is inside onnxruntime when Python exits, the process crashes (SIGABRT, SIGSEGV). So the exit waits until no
thread is inside, and new calls are refused.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commonplace.embedding.catalog import (
    DEFAULT_MODEL,
    Model,
    Pooling,
    default_models_folder,
    has_accepted_hash,
    installed,
    model_path,
)
from commonplace.errors import Unavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.embedding.e5 import Centre, Unigram
    from commonplace.embedding.embedder import Purpose
import json
import unicodedata
from collections.abc import Callable, Mapping

from commonplace.errors import ConfigurationError

MAX_THREADS = 4
END_SECONDS = 60.0
"""How long the exit waits for a model that is loading or running; this takes seconds on a machine that swaps."""


def _threads() -> int:
    # The affinity is what a container or taskset allows; the CPU count is that of the whole machine.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, MAX_THREADS)


class _Inside:
    """Counts the threads inside onnxruntime, and refuses new ones once the program exits."""

    def __init__(self) -> None:
        self._begin()
        atexit.register(self._end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)  # a child process does not have its parent's threads

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_ending = False

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._changed:
            if self._is_ending:
                raise Unavailable("the program is exiting; no more texts are embedded")
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
    tokenizer: WordPiece | Unigram
    feed: Callable[[list[int]], dict[str, Any]]
    """Makes the inputs of the graph from token ids."""
    centre: Centre | None = None


class OnnxEmbedder:
    """Embeds with a model from the models folder, which is loaded at the first call, once for all threads."""

    def __init__(
        self, model: Model, *, folder: Path | None = None, pooling: Pooling | None = None, normalize: bool | None = None
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
        self.reads_sentences = model.reads_sentences

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        """Return a row for each text, bit for bit the same as if it were embedded alone."""
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np

        loaded = self._loaded or self._load()
        prefix = self._model.query_prefix if purpose == "query" else self._model.passage_prefix
        prefixed = [prefix + text for text in texts]
        if len(prefixed) == 1:
            return self._run(loaded, prefixed[0], purpose)[np.newaxis]
        vectors = np.empty((len(prefixed), self.dimensions), dtype=np.float32)
        # Longest first: with a long text last, the other threads would be idle.
        order = sorted(range(len(prefixed)), key=lambda row: -len(prefixed[row]))
        with ThreadPoolExecutor(_threads(), thread_name_prefix="embed") as pool:
            made = pool.map(lambda row: self._run(loaded, prefixed[row], purpose), order)
            for row, vector in zip(order, made, strict=True):
                vectors[row] = vector
        return vectors

    def _run(self, loaded: _Loaded, text: str, purpose: Purpose) -> NDArray[np.float32]:
        import numpy as np

        feed = loaded.feed(loaded.tokenizer.encode(text))
        with _inside.held():
            states = loaded.session.run(None, feed)[0][0]
        vector: NDArray[np.float32] = states[0] if self._pooling == "cls" else states.mean(axis=0)
        if loaded.centre is not None:
            vector = loaded.centre(vector / max(float(np.linalg.norm(vector)), 1e-12), purpose)
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
        folder = self._folder or default_models_folder()  # only now: that loads `platformdirs` and `tempfile`
        path = model_path(self._model, folder)
        if wrong := _wrong_files(self._model, path):
            base = self._model.base
            if base is not None and not _wrong_files(base, model_path(base, folder)):
                from commonplace.embedding.pull import pull

                pull(self._model, folder=folder)  # made from its base: in a second, and without the network
            elif installed(self._model, folder):
                raise Unavailable(
                    f"embedding model {self._model.id} is damaged: the hash of {path / wrong[0]} is wrong; "
                    f"run: {self._command()}"
                )
            else:
                size = f"{self._model.bytes / 1e6:.0f} MB"
                raise Unavailable(f"embedding model {self._model.id} ({size}) is not installed; run: {self._command()}")
        # Without it onnxruntime sends telemetry to Microsoft. A value that you have set is kept.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # One thread per run, because `embed` spreads texts over the cores. With more threads a query is not
        # faster, and passages are slower by a tenth.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3

        def session(graph: str | bytes) -> Any:
            return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

        return self._open_packed(path, session) if self._model.is_packed else self._open_graph(path, session)

    def _open_graph(self, path: Path, session: Callable[[str], Any]) -> _Loaded:
        import numpy as np

        graph = session(str(path / "model.onnx"))
        names = [one.name for one in graph.get_inputs()]

        def feed(ids: list[int]) -> dict[str, Any]:
            tokens = np.array([ids], dtype=np.int64)
            known = {
                "input_ids": tokens,
                "attention_mask": np.ones_like(tokens),
                "token_type_ids": np.zeros_like(tokens),
            }
            return {name: known[name] for name in names}

        return _Loaded(graph, WordPiece.from_file(path / "vocab.txt", max_tokens=self._model.max_tokens), feed)

    def _open_packed(self, path: Path, session: Callable[[bytes], Any]) -> _Loaded:
        from commonplace.embedding import e5
        from commonplace.embedding.difference import packaged

        packed = e5.read_packed(path / self._model.files[0].name)
        words = e5.Words(packed)
        tokenizer = e5.Unigram(packed, max_tokens=self._model.max_tokens)
        centre = None if self._model.centre is None else e5.Centre(packaged(self._model.centre), self.dimensions)
        return _Loaded(session(e5.encoder(packed)), tokenizer, lambda ids: {"states": words(ids)[None]}, centre)

    def _command(self) -> str:
        return "commonplace model pull" + ("" if self._model is DEFAULT_MODEL else f" {self._model.id}")


def _wrong_files(model: Model, path: Path) -> list[str]:
    """The files of the model that are not there or whose hash is wrong."""
    return [file.name for file in model.files if not has_accepted_hash(file, path / file.name)]


# WordPiece, the tokenizer of uncased BERT models. The ids are the same as those of the `tokenizers` package with
# BertNormalizer, BertPreTokenizer and WordPiece; a differential test checks this. One difference is intended: `[SEP]`
# in a text is text and never a control token (`encode_special_tokens=True` there).

MAX_WORD_CHARACTERS = 100
MAX_CACHED_WORDS = 50_000
# A text is normalized in blocks, so that a long text costs no more than the part that fits the model.
BLOCK_CHARACTERS = 8_192

_CJK_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # BERT's code has 0x2B820; the reference is `tokenizers`
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class _Cleaning(dict[int, str]):
    """Code point to cleaned text: controls are removed, white space becomes a space, CJK characters are separated."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if character in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
            clean = " "
        elif code == 0xFFFD or category in ("Cc", "Cf", "Co", "Cs"):
            clean = ""
        elif any(first <= code <= last for first, last in _CJK_BLOCKS):
            clean = f" {character} "
        else:
            clean = character
        self[code] = clean
        return clean


class _Folding(dict[int, str]):
    """Decomposed code point to text: accents are removed, letters lowered, punctuation separated."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if category == "Mn":
            folded = ""
        elif category[0] == "P" or (code < 0x80 and category[0] == "S"):
            folded = f" {character} "
        else:
            # One character at a time, because str.lower on a whole word turns a final Σ into ς.
            folded = character.lower()
        self[code] = folded
        return folded


_CLEANING = _Cleaning()
_FOLDING = _Folding()


def _words(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        # A space ends a word in every step below, so a cut there has no effect.
        end = text.find(" ", start + BLOCK_CHARACTERS)
        end = len(text) if end < 0 else end
        cleaned = text[start:end].translate(_CLEANING)
        if not cleaned.isascii():
            cleaned = unicodedata.normalize("NFD", cleaned)
        yield from cleaned.translate(_FOLDING).split()
        start = end


class WordPiece:
    """Turns a text into token ids of an uncased BERT model. Safe to share between threads."""

    def __init__(self, vocabulary: Mapping[str, int], *, max_tokens: int) -> None:
        missing = [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in vocabulary]
        if missing:
            raise ConfigurationError(f"the vocabulary has no {', '.join(missing)}; it is not a BERT vocabulary")
        self._vocabulary = vocabulary
        self._max_tokens = max_tokens
        self._unknown = (vocabulary["[UNK]"],)
        self._first = vocabulary["[CLS]"]
        self._last = vocabulary["[SEP]"]
        self._cache: dict[str, tuple[int, ...]] = {}

    @classmethod
    def from_file(cls, path: Path, *, max_tokens: int) -> WordPiece:
        """Read `vocab.txt` (one token per line, LF or CRLF) or a `tokenizer.json` with a WordPiece model."""
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            return cls({token: number for number, token in enumerate(text.split("\n"))}, max_tokens=max_tokens)
        try:
            vocabulary = json.loads(text)["model"]["vocab"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} is not a tokenizer.json: {error!r}") from error
        if not isinstance(vocabulary, dict):
            raise ConfigurationError(f"{path} has no WordPiece vocabulary")
        return cls(vocabulary, max_tokens=max_tokens)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text between [CLS] and [SEP], max_tokens at most."""
        room = self._max_tokens - 2
        ids = [self._first]
        for word in _words(text):
            pieces = self._cache.get(word)
            if pieces is None:
                pieces = self._split(word)
                if len(self._cache) >= MAX_CACHED_WORDS:
                    self._cache.clear()
                self._cache[word] = pieces
            ids.extend(pieces)
            if len(ids) > room:
                del ids[room + 1 :]
                break
        ids.append(self._last)
        return ids

    def _split(self, word: str) -> tuple[int, ...]:
        """Split off the longest known pieces from the left; a word with an unknown piece is unknown."""
        if len(word) > MAX_WORD_CHARACTERS:
            return self._unknown
        pieces = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                number = self._vocabulary.get(piece)
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return self._unknown
        return tuple(pieces)
