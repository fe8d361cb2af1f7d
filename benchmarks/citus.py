"""Citus beside plain PostgreSQL in one run: durable writes per second and the time of a search, with many tenants.

Give two empty databases: a plain one, and one that `commonplace migrate --distributed` has prepared, on the same
machine and with the same settings. Each gets the same notes of 20 words with one vector of 384 dimensions. They take
turns, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import psycopg

from commonplace.backends.postgres import PostgresStore
from commonplace.entry import Draft
from commonplace.filters import Filter
from commonplace.language.passages import LENGTH_STEPS
from commonplace.language.tokenizer import query_terms
from commonplace.store import SearchQuery

DIMENSIONS = 384
THREADS = 8
APART = 1_000_000
"""How far the ids of two tenants are apart."""

chance = random.Random(1)
WORDS = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(5_000)]
_written = count()
_COPIED = {
    "namespace": "id",
    "entry": "id, namespace",
    "chunk": "id, namespace, entry",
    "embedding": "chunk, namespace, sequence",
}


def note() -> str:
    return " ".join(chance.choices(WORDS, weights=[1 / (rank + 5) for rank in range(len(WORDS))], k=20))


def embed(store: PostgresStore) -> None:
    store.set_target_model("bench", DIMENSIONS)
    numbers = np.random.default_rng(1)
    while waiting := store.claim(200, 60):
        vectors = numbers.standard_normal((len(waiting), DIMENSIONS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        store.index("bench", [(one.chunk_id, vector) for one, vector in zip(waiting, vectors, strict=True)])


def fill(plain: PostgresStore, distributed: PostgresStore, tenants: int, entries: int) -> None:
    """Write one tenant, and copy its rows for the others, in both databases."""
    for store in (plain, distributed):
        store.write(("user", "u0"), lambda change: None)
    drafts = [Draft("record", f"r{number}", note()).with_passages() for number in range(entries)]
    for draft in drafts:
        plain.write(("user", "u0"), lambda change, draft=draft: change.put(draft))  # type: ignore[misc]
    embed(plain)
    distributed.set_target_model("bench", DIMENSIONS)
    with (
        psycopg.connect(plain.place.conninfo, autocommit=True) as source,
        psycopg.connect(distributed.place.conninfo, autocommit=True) as target,
    ):
        for table, ids in _COPIED.items():
            columns = [
                name
                for (name,) in source.execute(
                    "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                    " AND NOT attisdropped ORDER BY attnum",
                    (f"commonplace.{table}",),
                )
            ]
            made = {name: f"{name} + n::bigint * {APART}" for name in ids.split(", ")}
            made |= {"tenant": "'user/u' || n", "path": "'user/u' || n"}
            made["posting"] = f"posting + n::bigint * {APART * LENGTH_STEPS}"
            listed = ", ".join(columns)
            chosen = ", ".join(made.get(name, name) for name in columns)
            rows = f"SELECT {chosen} FROM commonplace.{table}, generate_series(1, {tenants - 1}) AS n"
            source.execute(f"INSERT INTO commonplace.{table} ({listed}) {rows}".encode())
            with (
                source.cursor().copy(f"COPY (SELECT {listed} FROM commonplace.{table}) TO STDOUT".encode()) as out,
                target.cursor().copy(f"COPY commonplace.{table} ({listed}) FROM STDIN".encode()) as into,
            ):
                for data in out:
                    into.write(data)
        for connection in (source, target):
            connection.execute("SELECT setval('commonplace.identifier', %s)", ((tenants + 1) * APART,))
            connection.execute(
                "ANALYZE commonplace.namespace, commonplace.entry, commonplace.chunk, commonplace.embedding"
            )


def write(store: PostgresStore, tenants: int, threads: int, seconds: float) -> float:
    """Durable writes per second, one entry each, in all tenants."""
    until = time.perf_counter() + seconds

    def work(thread: int) -> int:
        mine = random.Random(thread)
        done = 0
        while time.perf_counter() < until:
            draft = Draft("record", f"w{next(_written)}", note()).with_passages()
            store.write(("user", f"u{mine.randrange(tenants)}"), lambda change, draft=draft: change.put(draft))  # type: ignore[misc]
            done += 1
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(work, range(threads)))
    return done / (time.perf_counter() - began)


def search(store: PostgresStore, tenants: list[int]) -> list[float]:
    """Milliseconds of a search by keywords and vectors in each of these tenants."""
    numbers = np.random.default_rng(2)
    took = []
    for tenant in tenants:
        vector = numbers.standard_normal(DIMENSIONS).astype(np.float32)
        vector /= np.linalg.norm(vector)
        query = SearchQuery(query_terms(" ".join(chance.choices(WORDS[:400], k=4))), ("bench", vector), Filter(), 10)
        began = time.perf_counter()
        found = store.search(
            ("user", f"u{tenant}"), query, lambda words, near: [one.entry_id for one in (*words, *near)][:10]
        )
        took.append((time.perf_counter() - began) * 1e3)
        assert found is not None
        assert found.entries
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plain")
    parser.add_argument("distributed")
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--entries", type=int, default=100, help="of each tenant")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of writing in each turn")
    arguments = parser.parse_args()
    stores = {"PostgreSQL": PostgresStore(arguments.plain), "Citus": PostgresStore(arguments.distributed)}
    if stores["PostgreSQL"].place.is_distributed or not stores["Citus"].place.is_distributed:
        parser.error("give a plain database and then one that was distributed")
    tenants = arguments.tenants
    if stores["PostgreSQL"].stats().namespaces == 0:
        fill(stores["PostgreSQL"], stores["Citus"], tenants, arguments.entries)
    rates: dict[tuple[str, int], list[float]] = {}
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(arguments.turns):
        some = random.Random(turn).sample(range(tenants), min(60, tenants))
        for name, store in stores.items():
            for what in ("first", "later"):
                times.setdefault((name, what), []).extend(search(store, some))
            for threads in (1, THREADS):
                rates.setdefault((name, threads), []).append(write(store, tenants, threads, arguments.seconds))
    entries = [sum(store.stats().entries.values()) for store in stores.values()]
    print(f"| {tenants:,} tenants | {' | '.join(stores)} |\n| --- | --- | --- |")
    print(f"| entries at the end | {' | '.join(f'{one:,}' for one in entries)} |")
    for threads in (1, THREADS):
        row = [f"{statistics.median(rates[name, threads]):,.0f}" for name in stores]
        print(f"| durable writes per second, {threads} thread{'s' * (threads > 1)} | {' | '.join(row)} |")
    for what in ("first", "later"):
        row = [f"{statistics.median(times[name, what]):.1f} ms" for name in stores]
        print(f"| {what} search of a tenant, p50 | {' | '.join(row)} |")
    for store in stores.values():
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
