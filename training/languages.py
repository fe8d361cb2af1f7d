"""The centre and the language directions of multilingual-e5-small: `python training/languages.py FOLDER`.

FOLDER holds descriptions of Debian packages in several languages, `Translation-CODE.bz2` or `.xz` from a mirror's
`dists/stable/main/i18n/`. Of each language with at least 100 of them, up to 160 are embedded: the first lines as
queries, the others as passages. Written is what `embedding.e5.Centre` reads: the mean passage, the mean query, and the
directions in which the means of the languages differ most. No text of `benchmarks/languages.py` is among them.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import re
import sys
from pathlib import Path

import numpy as np

from commonplace.embedding import create_embedder

TEXTS, FEWEST = 160, 100
DIRECTIONS = 16
LONGEST = 400
_DESCRIPTION = re.compile(r"^Description-(?!md5)[\w-]+: (.*)\n((?: .*\n?)*)", re.MULTILINE)


def descriptions(path: Path) -> list[tuple[str, str]]:
    """The first line and the rest of the packages whose names have the smallest hashes."""
    opened = lzma.open if path.suffix == ".xz" else bz2.open
    with opened(path, "rt", encoding="utf-8") as stream:
        packages = stream.read().split("\n\n")
    found = []
    for package in packages:
        if match := _DESCRIPTION.search(package):
            lines = (line.strip() for line in match[2].split("\n"))
            rest = " ".join(line for line in lines if line not in ("", "."))
            if len(rest) > 60:
                name = hashlib.md5(package.partition("\n")[0].encode(), usedforsecurity=False).digest()
                found.append((name, match[1], rest[:LONGEST]))
    return [(first, rest) for _, first, rest in sorted(found)[:TEXTS]]


def main(folder: str, output: str = "src/commonplace/embedding/multilingual-e5-small-centre.xz") -> None:
    embedder = create_embedder("multilingual-e5-small")
    passages, queries = [], []
    for path in sorted(Path(folder).glob("Translation-*")):
        texts = descriptions(path)
        if len(texts) >= FEWEST:
            queries.append(embedder.embed([first for first, _ in texts], purpose="query").mean(axis=0))
            passages.append(embedder.embed([rest for _, rest in texts], purpose="passage").mean(axis=0))
            print(path.name, flush=True)
    centres = np.mean(passages, axis=0), np.mean(queries, axis=0)
    apart = np.concatenate([np.array(passages) - centres[0], np.array(queries) - centres[1]])
    directions = np.linalg.svd(apart, full_matrices=False)[2][:DIRECTIONS]
    rows = np.concatenate([np.array(centres), directions]).astype(np.float16)
    Path(output).write_bytes(lzma.compress(rows.tobytes()))


if __name__ == "__main__":
    main(*sys.argv[1:])
