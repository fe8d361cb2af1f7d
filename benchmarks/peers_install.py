"""A pinned environment for each peer, created once in its own folder; and its size."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTALL_SECONDS = 1_200
NOT_COUNTED = ("pip", "setuptools", "wheel", "_distutils_hack", "pkg_resources", "distutils-precedence")


class NotThere(Exception):
    """A peer cannot be measured here; the text is the reason."""


def python_environment(folder: Path, packages: Sequence[str], *, newest: bool = False) -> Path:
    """The interpreter of a virtual environment with these packages."""
    interpreter = folder / "bin" / "python"
    if _is_ready(folder, packages):
        return interpreter
    _run([_python(newest=newest), "-m", "venv", "--clear", "--without-pip", str(folder)])
    quiet = ["--quiet", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "pip", "--python", str(interpreter), "install", *quiet, *packages])
    _note(folder, packages)
    return interpreter


def our_environment(folder: Path) -> Path:
    """Our own: the installed checkout with its server. It runs the code of the checkout itself."""
    return python_environment(folder, ["--constraint", str(ROOT / "constraints.txt"), f"{ROOT}[mcp]"])


def npm_environment(folder: Path, packages: Sequence[str]) -> Path:
    if not _is_ready(folder, packages):
        program = shutil.which("npm")
        if program is None:
            raise NotThere("npm is missing; it comes with Node.js")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([program, "install", "--prefix", str(folder), *quiet, *packages])
        _note(folder, packages)
    return folder


def installed_bytes(folder: Path) -> int:
    """All files of the packages, bytecode included; pip itself is not counted, nor Python or Node."""
    sites = [*folder.glob("lib/python*/site-packages"), *folder.glob("node_modules")]
    return sum(
        file.stat().st_size
        for site in sites
        for part in site.iterdir()
        if not part.name.startswith(NOT_COUNTED)
        for file in (part.rglob("*") if part.is_dir() else [part])
        if file.is_file() and not file.is_symlink()
    )


def _python(*, newest: bool) -> str:
    """A Python whose SQLite loads extensions, as sqlite-vec needs it; or one of 3.12 or newer, on request."""
    probe = "import sqlite3, sys; print(*sys.version_info[:2]); sqlite3.connect(':memory:').enable_load_extension(True)"
    names = ("/usr/bin/python3", "python3.13", "python3.12", "python3.11", "python3")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    known = [sys.executable, *filter(None, map(shutil.which, names)), *pyenv.glob("versions/3.1[2-9]*/bin/python")]
    second = None
    for python in map(str, known):
        answer = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
        version = tuple(map(int, answer.stdout.split()))
        if len(version) < 2 or version < ((3, 12) if newest else (3, 11)):
            continue
        if answer.returncode == 0:
            return python
        second = second or python
    if second is None:
        raise NotThere("needs Python 3.12 or newer, which is not on this machine")
    return second


def _is_ready(folder: Path, packages: Sequence[str]) -> bool:
    noted = folder / ".installed"
    return noted.is_file() and noted.read_text().splitlines() == list(packages)


def _note(folder: Path, packages: Sequence[str]) -> None:
    (folder / ".installed").write_text("\n".join(packages) + "\n")


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotThere(f"does not install in {INSTALL_SECONDS} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and "WARNING" not in line]
        raise NotThere(f"does not install: {lines[-1][:200] if lines else command[0]}")
