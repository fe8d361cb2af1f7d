"""Installs third-party clients from the registries into `.clients/` of the checkout: pinned, and only once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ATTEMPTS = 3
FOLDER = ROOT / ".clients"
NODE = "node@24.21.0"
"""The Inspector needs Node 22.19 or later; the registry has one, whatever this computer has."""


def python(family: str, *packages: str) -> Path:
    """The interpreter of a virtual environment with these packages."""
    folder = FOLDER / family
    interpreter = folder / "bin" / "python"
    if _is_missing(folder, packages):
        venv.create(folder, with_pip=True, clear=True)
        _run([str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
        _note(folder, packages)
    return interpreter


def npm(family: str, *packages: str) -> Path:
    """The folder in which these packages are installed."""
    folder = FOLDER / family
    if _is_missing(folder, packages):
        program = shutil.which("npm")
        if program is None:
            sys.exit("npm is missing; it comes with Node.js: https://nodejs.org")
        quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([program, "install", "--prefix", str(folder), *quiet, *packages])
        _note(folder, packages)
    return folder


def node() -> Path:
    return npm("node", NODE) / "node_modules" / "node" / "bin" / "node"


def _is_missing(folder: Path, packages: Sequence[str]) -> bool:
    noted = folder / ".installed"
    if noted.is_file() and noted.read_text().split() == list(packages):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # git and ruff then know that nothing in here is ours.
    (FOLDER / ".gitignore").write_text("*\n")
    print(f"installing {', '.join(packages)}", file=sys.stderr)
    return True


def _note(folder: Path, packages: Sequence[str]) -> None:
    (folder / ".installed").write_text("\n".join(packages) + "\n")


def _run(command: Sequence[str]) -> None:
    for _ in range(ATTEMPTS):  # a registry may fail for a moment
        answer = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        if not answer.returncode:
            return
    sys.exit(f"{' '.join(command)} failed {ATTEMPTS} times, at last:\n{answer.stdout}{answer.stderr}")
