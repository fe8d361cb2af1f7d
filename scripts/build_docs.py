"""Builds the documentation as a site in out/site: `make docs`. It fails for a broken link and for anything external.

A page must not load a script, a style, a font or an image from another site. Links that a reader follows may leave it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "out" / "site"
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|srcset|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)
IN_STYLES = re.compile(r"""(?:url\(|@import\s)\s*["']?((?:https?:)?//[^"')\s]+)""")


def main() -> int:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    if done.returncode:
        return done.returncode
    external = sorted(
        f"{path.relative_to(SITE)} loads {address}"
        for pattern, kind in ((LOADED, "*.html"), (IN_STYLES, "*.css"))
        for path in SITE.rglob(kind)
        for address in pattern.findall(path.read_text(encoding="utf-8"))
    )
    folder = SITE.relative_to(ROOT)
    made = f"{len(list(SITE.rglob('*.html')))} pages in {folder}; for its search, python3 -m http.server -d {folder}"
    print("\n".join(external) or made)
    return 1 if external else 0


if __name__ == "__main__":
    sys.exit(main())
