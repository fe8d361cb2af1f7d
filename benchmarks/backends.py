"""A file, PostgreSQL and MongoDB in one run: bytes per entry, durable writes per second, time of a search.

Notes of 20 words with one 384-dimension vector each. Every write waits for the disk. The backends take turns, so that
a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from commonplace.backends.mongodb import MongoStore
from commonplace.backends.postgres import PostgresStore
from commonplace.backends.sqlite import SQLiteStore
from commonplace.entry import Draft
from commonplace.filters import Filter
from commonplace.language.tokenizer import query_terms
from commonplace.store import SearchQuery, Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from mongodb_server import ReplicaSet  # type: ignore[import-not-found]
from postgres_server import DURABLE, PostgresServer  # type: ignore[import-not-found]

NAMESPACES = 10
THREADS = 8
DIMENSIONS = 384
SEARCHES = 60
chance = random.Random(1)
WORDS = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(5_000)]


def note() -> str:
    return " ".join(chance.choices(WORDS, weights=[1 / (rank + 5) for rank in range(len(WORDS))], k=20))


def space(number: int) -> tuple[str, str]:
    return "user", f"u{number % NAMESPACES}"


def write(store: Store, start: int, count: int, threads: int) -> float:
    """Durable writes per second, one entry each."""
    drafts = [Draft("record", f"r{number}", note()).with_passages() for number in range(start, start + count)]

    def put(number: int) -> None:
        store.write(space(number), lambda transaction: transaction.put(drafts[number - start]))

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, range(start, start + count)))
    return count / (time.perf_counter() - began)


def embed(store: Store) -> None:
    store.set_target_model("bench", DIMENSIONS)
    numbers = np.random.default_rng(1)
    while waiting := store.claim(200, 60):
        vectors = numbers.standard_normal((len(waiting), DIMENSIONS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        store.index("bench", [(one.chunk_id, vector) for one, vector in zip(waiting, vectors, strict=True)])


def search(store: Store) -> list[float]:
    """Milliseconds of searches by keywords and vectors."""
    numbers = np.random.default_rng(2)
    took = []
    for number in range(SEARCHES):
        vector = numbers.standard_normal(DIMENSIONS).astype(np.float32)
        vector /= np.linalg.norm(vector)
        terms = query_terms(" ".join(chance.choices(WORDS[:400], k=4)))
        query = SearchQuery(terms, ("bench", vector), Filter(), 10)
        began = time.perf_counter()
        found = store.search(space(number), query, lambda words, near: [one.entry_id for one in (*words, *near)][:10])
        took.append((time.perf_counter() - began) * 1e3)
        assert found is not None
        assert found.entries
    return took[NAMESPACES:]  # the first of each namespace reads its vectors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    entries = parser.parse_args().entries
    folder = tempfile.TemporaryDirectory()
    stores: dict[str, Store] = {
        "a file": SQLiteStore(Path(folder.name) / "book.db"),
        "PostgreSQL": PostgresStore(PostgresServer(DURABLE).create_database()),
        "MongoDB": MongoStore(ReplicaSet(is_durable=True).create_database()),
    }
    empty = {name: store.stats().bytes for name, store in stores.items()}
    rates: dict[tuple[str, int], list[float]] = {}
    part, done = entries // 8, 0
    for turn in range(8):
        threads = 1 if turn % 4 == 0 else THREADS
        for name, store in stores.items():
            rates.setdefault((name, threads), []).append(write(store, done, part, threads))
        done += part
    for store in stores.values():
        embed(store)
    times: dict[str, list[float]] = {name: [] for name in stores}
    for _ in range(3):
        for name, store in stores.items():
            times[name] += search(store)
    print(f"| {done:,} entries in {NAMESPACES} namespaces | {' | '.join(stores)} |\n|{' --- |' * (len(stores) + 1)}")
    for threads in (1, THREADS):
        row = [f"{statistics.median(rates[name, threads]):,.0f}" for name in stores]
        print(f"| durable writes per second, {threads} thread{'s' * (threads > 1)} | {' | '.join(row)} |")
    print(f"| search, p50 | {' | '.join(f'{statistics.median(times[name]):.1f} ms' for name in stores)} |")
    sizes = []
    for name, store in stores.items():
        if isinstance(store, MongoStore):
            store._client.admin.command("fsync")  # its sizes are those of the last checkpoint
        sizes.append(f"{(store.stats().bytes - empty[name]) / done:,.0f}")
    print(f"| bytes per entry with all indexes | {' | '.join(sizes)} |")
    for store in stores.values():
        store.close()
    folder.cleanup()
    return 0


if __name__ == "__main__":
    sys.exit(main())
