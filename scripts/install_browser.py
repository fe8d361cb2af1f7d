"""Installs what the tests of the page need: Debian's Chromium with fonts, and axe-core from npm, each only once.

`python scripts/install_browser.py` needs root for the packages of Debian, and `npm`. axe-core goes into `.clients/`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "clients"))

from install import npm

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""How Chromium is started: it runs as root in CI, and asks no host but ours."""

PACKAGES = ("chromium", "fonts-dejavu-core", "fonts-noto-color-emoji")
AXE = "axe-core@4.14.0"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"


def main() -> int:
    if not CHROMIUM.exists():
        install_chromium()
    print(f"{CHROMIUM}, {axe_core()}")
    return 0


def install_chromium() -> None:
    """Install Chromium by Debian's package manager. Playwright's own download is not used."""
    if shutil.which("apt-get") is None:
        sys.exit(f"{CHROMIUM} is missing, and this system has no apt-get; install Chromium there by hand")
    if os.geteuid() != 0:
        sys.exit(f"{CHROMIUM} is missing; install it as root: apt-get install {' '.join(PACKAGES)}")
    apt = ["apt-get", "-q", "-y", "-o", "Acquire::Retries=3"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ([*apt, "update"], [*apt, "install", "--no-install-recommends", *PACKAGES]):
        answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if answer.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{answer.stdout}{answer.stderr}")


def axe_core() -> Path:
    """The script of axe-core, which finds what keeps people with disabilities from using a page."""
    script = npm("axe-core", AXE) / "node_modules" / "axe-core" / "axe.min.js"
    if (found := hashlib.sha256(script.read_bytes()).hexdigest()) != AXE_SHA256:
        sys.exit(f"{script} is not the file of {AXE}: its SHA-256 is {found}; remove its folder and try again")
    return script


if __name__ == "__main__":
    sys.exit(main())
