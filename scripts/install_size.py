"""The size of a base install: a fresh virtual environment, measured package by package, and the embedding model.

`python scripts/install_size.py [--with mcp==2.3.0]` installs this checkout with constraints.txt into a temporary
folder. pip and setuptools are not counted: they come with the environment, not with us. The bytecode that pip compiles
is counted with its package. A MB is a million bytes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE_MEGABYTES = 190
EVERYTHING_MEGABYTES = 240
BIG_MEGABYTES = 3.0
NOT_OURS = ("pip", "setuptools", "wheel")
WHY = {
    "onnxruntime": "runs the embedding model; two shared libraries of about 30 MB",
    "numpy": "the vectors in memory, and the arrays of onnxruntime; 28 MB are OpenBLAS's libraries",
    "apsw": "SQLite itself, the same version everywhere, with FTS5",
    "protobuf": "onnxruntime requires it",
    "mcp": "the MCP protocol, asked for with --with",
    "pydantic_core": "mcp requires it",
    "cryptography": "mcp requires it",
    "model": "the default embedding model, fetched once into the user's cache folder",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--with", dest="extra", action="append", default=[], help="also install this requirement")
    extra = parser.parse_args().extra
    with tempfile.TemporaryDirectory(prefix="commonplace-install-") as name:
        files = _installed(Path(name), extra)
        sizes = {package: _bytes(some) for package, some in files.items()}
        bytecode = sum(_bytes(file for file in some if file.suffix == ".pyc") for some in files.values())
    sizes["model"] = _model_bytes()
    total = 0
    for package, size in sorted(sizes.items(), key=lambda item: -item[1]):
        total += size
        print(f"{size / 1e6:8.1f} MB  {package}{_reason(package, size)}")
    print(f"{bytecode / 1e6:8.1f} MB  of that is bytecode; `pip install --no-compile` leaves it to the first use")
    goal = EVERYTHING_MEGABYTES if extra else ENGINE_MEGABYTES
    what = f"with {', '.join(extra)} and the model" if extra else "engine with the model"
    print(f"{total / 1e6:8.1f} MB  in total, {what}; goal ≤ {goal} MB: {'pass' if total <= goal * 1e6 else 'MISS'}")
    return 0 if total <= goal * 1e6 else 1


def _installed(folder: Path, extra: list[str]) -> dict[str, list[Path]]:
    """The files of each package in a fresh environment."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--constraint", str(ROOT / "constraints.txt"), str(ROOT), *extra], check=True)
    paths = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    )
    site = paths.stdout.strip()
    found = (each for each in distributions(path=[site]) if each.name.lower() not in NOT_OURS)
    return {each.name: _files(each) for each in found}


def _files(distribution: Distribution) -> list[Path]:
    return [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def _model_bytes() -> int:
    """From the catalog of the model, so it need not be installed."""
    sys.path.insert(0, str(ROOT / "src"))
    from commonplace.embedding.catalog import DEFAULT_MODEL

    return DEFAULT_MODEL.bytes


def _reason(package: str, size: int) -> str:
    if size < BIG_MEGABYTES * 1e6:
        return ""
    return f": {WHY.get(package, 'required by one of the others')}"


if __name__ == "__main__":
    sys.exit(main())
