"""Installs this checkout by pip, uv and pipx, as the README says, with every supported Python that this computer has.

`python scripts/install_ways.py [--short]`; each install has a home folder of its own, pulls the embedding model, writes
a memory and finds it by meaning. `--short` tries uv and pipx with one Python only. A Python that is missing is
reported, and only fails the run if no other is there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "clients"))

import install

SOURCE = f"{install.ROOT}[server]"
VERSIONS = ("3.11", "3.12", "3.13")
INSTALLERS = ("uv==0.13.8", "pipx==1.18.4")
TEXT, QUESTION = "Ana is severely allergic to peanuts.", "Which foods must she avoid?"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="try uv and pipx with one Python only")
    is_short = parser.parse_args().short
    programs = install.python("installers", *INSTALLERS).parent
    ways: dict[str, Callable[[Path, Path, Path], Path]] = {"pip": _by_pip, "uv": _by_uv, "pipx": _by_pipx}
    tried = 0
    for version in VERSIONS:
        python = _python(version)
        if python is None:
            print(f"Python {version}: not on this computer", flush=True)
            continue
        is_first = not tried
        for name, way in ways.items():
            if is_short and not is_first and name != "pip":
                continue
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="commonplace-install-") as folder:
                program = way(Path(folder), programs, python)
                _use(program, Path(folder), programs)
            print(f"Python {version}, {name}: installed and used in {time.monotonic() - began:.0f} s", flush=True)
            tried += 1
    return 0 if tried else 1


def _python(version: str) -> Path | None:
    """This version on the path, or one that pyenv has."""
    places = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        root = Path(_run([pyenv, "root"]).strip()) / "versions"
        places += [str(folder / "bin" / "python") for folder in sorted(root.glob(f"{version}.*"))]
    for place in places:
        if place and subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0:
            return Path(place)
    return None


def _by_pip(folder: Path, programs: Path, python: Path) -> Path:
    _run([str(python), "-m", "venv", str(folder / "venv")])
    _run([str(folder / "venv/bin/python"), "-m", "pip", "install", "--disable-pip-version-check", SOURCE])
    return folder / "venv/bin/commonplace"


def _by_uv(folder: Path, programs: Path, python: Path) -> Path:
    places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    _run([str(programs / "uv"), "tool", "install", "--python", str(python), SOURCE], places)
    return folder / "bin/commonplace"


def _by_pipx(folder: Path, programs: Path, python: Path) -> Path:
    places = {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin")}
    _run([str(programs / "pipx"), "install", "--python", str(python), SOURCE], places)
    return folder / "bin/commonplace"


def _use(program: Path, folder: Path, programs: Path) -> None:
    home = {"HOME": str(folder / "home"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    home |= {"COMMONPLACE_MODELS": str(folder / "models"), "DATABASE_URL": str(folder / "memory.db")}
    _run([str(program), "model", "pull"], home)
    _run([str(program), "add", TEXT], home)
    _run([str(program), "reindex"], home)  # a search waits 0.2 s for vectors, which a busy computer may exceed
    found = _run([str(program), "search", QUESTION], home)
    if TEXT not in found:
        sys.exit(f"{program} did not find the memory:\n{found}")


def _run(command: list[str], variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env={**os.environ, **(variables or {})}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
