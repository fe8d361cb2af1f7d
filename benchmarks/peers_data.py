"""The same texts, queries and vectors for every peer, in files; made once for a number of texts.

The model embeds the queries and the first texts. The other vectors are those again, moved a little, because embedding
100,000 texts takes most of an hour: a search by meaning takes as long among them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import numpy as np
from adapter import text_key
from numpy.typing import NDArray

from commonplace.embedding import create_embedder
from engine_texts import SEED, Texts

MODELLED = 2_000
MOVED = 0.45
"""The length of what is added to a vector of length 1: the cosine with it is then about 0.91."""


def prepare(folder: Path, texts: int, queries: int) -> Path:
    """The folder with `texts` and `queries`, a line each, and `vectors.keys` and `vectors.rows` for all of them."""
    for made in folder.glob("data-*-*"):  # data created for a larger size can be used too
        _, *counts = made.name.split("-")
        if (made / "vectors.rows").exists() and [int(count) for count in counts] >= [texts, queries]:
            return made
    place = folder / f"data-{texts}-{queries}"
    place.mkdir(parents=True, exist_ok=True)
    source = Texts()
    lines = list(dict.fromkeys(source.text() for _ in range(texts + texts // 100)))[:texts]
    asked = list(dict.fromkeys(query.text for query in Texts(7).queries(queries + queries // 10 + 10)))[:queries]
    (place / "texts").write_text("".join(f"{line}\n" for line in lines))
    (place / "queries").write_text("".join(f"{line}\n" for line in asked))
    _write_vectors(place, lines, asked)
    return place


def _write_vectors(place: Path, lines: list[str], asked: list[str]) -> None:
    model = create_embedder(None)
    print(f"embedding {min(MODELLED, len(lines)):,} texts and {len(asked)} queries, once", file=sys.stderr)
    known = model.embed(lines[:MODELLED], purpose="passage")
    of_queries = np.concatenate([model.embed([query], purpose="query") for query in asked])
    vectors = np.concatenate([known, _moved(known, len(lines) - len(known)), of_queries])
    keys = [text_key(text) for text in (*lines, *asked)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    (place / "vectors.keys").write_bytes(b"".join(keys[number] for number in order))
    part = place / "vectors.part"
    part.write_bytes(vectors[order].astype("<f4").tobytes())
    part.rename(place / "vectors.rows")


def _moved(known: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    generator = np.random.default_rng(SEED)
    rows = known[np.arange(count) % len(known)]
    noise = generator.standard_normal(rows.shape, np.float32)
    moved = rows + MOVED * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    unit: NDArray[np.float32] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return unit
