"""A Claude memory directory on disk, taken into a space and written out of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from commonplace.checks import local_path
from commonplace.errors import InvalidInput, NotFound
from commonplace.space.files import Files
from commonplace.space.space import Space
from commonplace.tools.folder_store import FolderMemoryStore
from commonplace.tools.memory_error import MemoryException
from commonplace.tools.memory_store import MemoryEntry, SpaceMemoryStore

FILES_A_COMMIT = 200
BYTES_A_COMMIT = 4_000_000


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """What was copied, and what was not, each as `path: reason`."""

    files: int
    directories: int
    skipped: tuple[str, ...]


def import_folder(folder: str | Path, space: Space, *, overwrite: bool = False) -> FolderCopy:
    """Copy a folder of text files into a space; `/memories/x` of Claude's tool is `x` in the folder.

    A file that the space has with another text is skipped, unless `overwrite`. Links, files that are not text and what
    no path can name, such as a folder 21 levels deep, are skipped as well.
    """
    if not local_path("the memory's folder", folder).is_dir():
        raise NotFound(f"{folder} is no folder; name one that holds a memory")
    source = FolderMemoryStore(folder, "/", max_file_size=_limit_of(space))
    skipped: list[str] = []
    counts = {True: 0, False: 0}
    batch: dict[str, str | None] = {}
    size = 0

    def commit() -> None:
        refused = _taken(space.files, batch, overwrite)
        skipped.extend(f"{path}: {reason}" for path, reason in refused.items())
        for path, text in batch.items():
            counts[text is None] += path not in refused
        batch.clear()

    for entry in _walk(source, "/", skipped):
        try:
            batch[entry.path] = None if entry.is_directory else source.read(entry.path)
        except MemoryException as error:
            skipped.append(f"{entry.path}: {error}")
            continue
        size += entry.size
        if len(batch) >= FILES_A_COMMIT or size >= BYTES_A_COMMIT:
            commit()
            size = 0
    commit()
    return FolderCopy(counts[False], counts[True], tuple(skipped))


def _taken(files: Files, batch: Mapping[str, str | None], overwrite: bool) -> dict[str, str]:
    """Put a batch as one change; where it is too much for the namespace as a whole, one by one."""
    if not batch:
        return {}
    try:
        return files.write_all(batch, overwrite=overwrite)
    except InvalidInput as error:
        if len(batch) == 1:
            return dict.fromkeys(batch, str(error))
    refused: dict[str, str] = {}
    for path, text in batch.items():
        refused |= _taken(files, {path: text}, overwrite)
    return refused


def export_folder(space: Space, folder: str | Path, *, overwrite: bool = False) -> FolderCopy:
    """Write a space's files into a folder, which is made where there is none; other files in it stay.

    A file that the folder has with another text is skipped, unless `overwrite`.
    """
    target = FolderMemoryStore(folder, "/", max_file_size=_limit_of(space))
    return _copy(SpaceMemoryStore(space, "/"), target, overwrite)


def _copy(source: SpaceMemoryStore, target: FolderMemoryStore, overwrite: bool) -> FolderCopy:
    files = directories = 0
    skipped: list[str] = []
    for entry in _walk(source, "/", skipped):
        try:
            if entry.is_directory:
                target.make_directory(entry.path)
                directories += 1
            else:
                _copy_file(source, target, entry.path, overwrite)
                files += 1
        except MemoryException as error:
            skipped.append(f"{entry.path}: {error}")
    return FolderCopy(files, directories, tuple(skipped))


def _walk(store: FolderMemoryStore | SpaceMemoryStore, path: str, skipped: list[str]) -> Iterator[MemoryEntry]:
    if isinstance(store, FolderMemoryStore):
        skipped += [
            f"{path.rstrip('/')}/{name}: it is no text file with a usable name" for name in store.left_out(path)
        ]
    for entry in store.list(path):
        yield entry
        if entry.is_directory:
            yield from _walk(store, entry.path, skipped)


def _copy_file(source: SpaceMemoryStore, target: FolderMemoryStore, path: str, overwrite: bool) -> None:
    text = source.read(path)
    if not target.exists(path):
        target.create(path, text)
    elif target.read(path) != text:
        if not overwrite:
            raise MemoryException("it exists already, with another text", "already_exists")
        target.edit(path, lambda _: text)


def _limit_of(space: Space) -> int:
    return space.limits.file_bytes
