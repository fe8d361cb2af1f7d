"""The models folder: where each model's files lie, and whether they are the right ones."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from commonplace.embedding.models import Model, ModelFile, model_named


def default_models_folder() -> Path:
    """The folder of pulled models within the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("commonplace") / "models"


def known(model: Model | str) -> Model:
    """Give the model itself, or the known one of that name."""
    return model_named(model) if isinstance(model, str) else model


def model_path(model: Model, folder: Path) -> Path:
    """Where the model's files are within the models folder."""
    return folder / model.id


def installed(model: Model | str, folder: Path) -> bool:
    """Tell whether every file of the model is there with a right size; cheap, hashes nothing."""
    model = known(model)
    path = model_path(model, folder)
    return all(_size(path / file.name) in {digest.size for digest in file.digests} for file in model.files)


def file_is_right(file: ModelFile, path: Path) -> bool:
    """Hash the whole file and compare: 23 ms for the default model."""
    try:
        # Opened before it is looked at: another pull may be putting a whole folder in its place.
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            candidates = {digest.sha256 for digest in file.digests if digest.size == size}
            return bool(candidates) and hashlib.file_digest(stream, "sha256").hexdigest() in candidates
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return -1
