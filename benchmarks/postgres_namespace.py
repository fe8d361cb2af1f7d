"""One large namespace on PostgreSQL beside the same one on SQLite: `python benchmarks/postgres.py
--one-namespace longmemeval_s.json.gz`.

The texts are sentences of LongMemEval's conversations, or with `--shortest N` the shortest of them, which are embedded
sooner; the queries are its questions. `--embedded N` embeds N of the
sentences with the default model and measures recall on them; longer tables reuse these vectors, moved a little at
random, and measure time only. Both backends take turns in one process. The search of the store is measured (keywords
and vectors, the ten best entries read), without embedding the query.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from commonplace.backends.postgres import PostgresStore
from commonplace.backends.sqlite import SQLiteStore
from commonplace.embedding import create_embedder
from commonplace.entry import Draft
from commonplace.filters import Filter
from commonplace.language.question import question_terms
from commonplace.store import Candidate, SearchQuery, Store, Transaction

HERE = ("user", "large")
MODEL = "bench@1"
ROWS_A_WRITE = 2_000
SIZES = (10_000, 100_000)
SEARCHES = 200
LIMIT = 24
TEXTS_A_SAVE = 2_000


def sentences(path: Path, shortest: int | None = None) -> tuple[list[str], list[str]]:
    """Different sentences of 5 words and more in their order, of all or of the shortest, and the questions."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        data = json.load(file)
    found: dict[str, None] = {}
    for question in data:
        for session in question["haystack_sessions"]:
            for turn in session:
                for sentence in re.split(r"(?<=[.!?])\s+|\n+", turn["content"]):
                    if len(sentence.split()) >= 5:
                        found[sentence[:400]] = None
    chosen = set(sorted(found, key=len)[:shortest])
    return [text for text in found if text in chosen], [question["question"] for question in data]


def embedded(texts: Sequence[str], questions: Sequence[str], cache: Path) -> tuple[Any, Any]:
    """The vectors, kept in `cache`, from which a later run goes on. Whoever embeds much can so be interrupted."""
    embedder = create_embedder(None)
    if not cache.exists():
        asked = embedder.embed(list(questions), purpose="query")
        _save(cache, np.empty((0, asked.shape[1]), np.float32), asked)
    with np.load(cache) as held:
        known, asked = held["texts"], held["questions"]
    while len(known) < len(texts):
        some = texts[len(known) : len(known) + TEXTS_A_SAVE]
        known = np.concatenate([known, embedder.embed(some, purpose="passage")])
        _save(cache, known, asked)
    return known[: len(texts)], asked


def _save(cache: Path, texts: Any, questions: Any) -> None:
    made = cache.with_suffix(".new.npz")
    np.savez(made, texts=texts, questions=questions)
    made.replace(cache)


def fill(store: Store, texts: Sequence[str], vectors: Any) -> None:
    store.set_target_model(MODEL, vectors.shape[1])
    for start in range(0, len(texts), ROWS_A_WRITE):
        some = texts[start : start + ROWS_A_WRITE]

        def work(transaction: Transaction, start: int = start, some: Sequence[str] = some) -> None:
            for number, text in enumerate(some, start):
                transaction.put(Draft("file", f"{number:07}", text), is_fresh=True)

        store.write(HERE, work)
    places = {text: number for number, text in enumerate(texts)}
    while claimed := store.claim(ROWS_A_WRITE, 600):
        store.index(MODEL, [(one.chunk_id, vectors[places[one.text]]) for one in claimed])


def queries(questions: Sequence[str], vectors: Any) -> Iterator[SearchQuery]:
    for question, vector in itertools.cycle(zip(questions, vectors, strict=True)):
        yield SearchQuery(question_terms(question)[0], (MODEL, vector), Filter(), LIMIT)


def choose(by_words: Sequence[Candidate], by_meaning: Sequence[Candidate]) -> list[int]:
    best: dict[int, float] = {}
    for candidate in (*by_words, *by_meaning):
        best[candidate.entry_id] = best.get(candidate.entry_id, 0.0) + candidate.score
    return sorted(best, key=lambda entry_id: -best[entry_id])[:10]


def report(server: Any, data: Path, embed: int, cache: Path, shortest: int | None) -> None:
    texts, questions = sentences(data, shortest)
    known, asked = embedded(texts[:embed], questions, cache)
    chance = np.random.default_rng(1)
    print(f"{len(texts):,} sentences of LongMemEval, {len(known):,} embedded; {len(questions)} questions\n")
    for size in SIZES:
        some = texts[:size]
        vectors = known[np.arange(len(some)) % len(known)].copy()
        if len(some) > len(known):
            vectors[len(known) :] += chance.normal(0, 0.02, (len(some) - len(known), known.shape[1])).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        _measure(server, some, vectors, questions, asked)
    _recall(server, texts[: len(known)], known, asked)


def _measure(server: Any, texts: Sequence[str], vectors: Any, questions: Sequence[str], asked: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = server.create_database() + "?partitions=2"
        stores: dict[str, Any] = {"SQLite": SQLiteStore(Path(folder) / "book.db", durability="normal")}
        stores["PostgreSQL"] = PostgresStore(url)
        for store in stores.values():
            fill(store, texts, vectors)
        stores["PostgreSQL"].close()
        _analyze(url.partition("?")[0])
        stores["PostgreSQL"] = PostgresStore(url)
        first: dict[str, float] = {}
        times: dict[str, list[float]] = {name: [] for name in stores}
        found: dict[str, list[Any]] = {name: [] for name in stores}
        asking = queries(questions, asked)
        for number in range(SEARCHES + 1):
            query = next(asking)
            for name, store in stores.items():
                begin = time.perf_counter()
                answer = store.search(HERE, query, choose)
                taken = time.perf_counter() - begin
                found[name].append([entry.key for entry in answer.entries.values()])
                if number:
                    times[name].append(taken)
                else:
                    first[name] = taken
        p50 = {name: statistics.median(some) * 1_000 for name, some in times.items()}
        p95 = {name: sorted(some)[int(0.95 * len(some))] * 1_000 for name, some in times.items()}
        same = sum(sorted(a) == sorted(b) for a, b in zip(found["SQLite"], found["PostgreSQL"], strict=True))
        print(f"{len(texts):,} passages in one namespace, {SEARCHES} searches in turns")
        for name in stores:
            print(f"  {name:<11} p50 {p50[name]:6.1f} ms  p95 {p95[name]:6.1f} ms  first search {first[name]:5.2f} s")
        print(f"  PostgreSQL / SQLite: {p50['PostgreSQL'] / p50['SQLite']:.2f}; same ten: {same} of {SEARCHES + 1}")
        print(f"  memory of the PostgreSQL server: {stores['PostgreSQL'].vector_bytes / 1e6:.0f} MB\n", flush=True)
        for store in stores.values():
            store.close()


def _analyze(url: str) -> None:
    """What autovacuum does a minute later."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _recall(server: Any, texts: Sequence[str], vectors: Any, asked: Any) -> None:
    url = server.create_database()
    store = PostgresStore(url + "?partitions=2", cache_bytes=0)
    fill(store, texts, vectors)
    while store.maintain():
        continue
    _analyze(url)
    stored = vectors.astype(np.float16).astype(np.float32)
    times, hits = [], 0
    for vector in asked:
        begin = time.perf_counter()
        near = store.search_vectors(HERE, MODEL, vector, Filter(), 10)
        times.append(time.perf_counter() - begin)
        loaded = store.load(HERE, [one.entry_id for one in near])
        best = set(np.argsort(-(stored @ vector))[:10].tolist())
        hits += len(best & {int(entry.key) for entry in loaded.values()})
    print(f"without memory, by pgvector's index: {len(texts):,} real vectors, recall@10 {hits / 10 / len(asked):.3f},")
    print(f"  p50 {statistics.median(times) * 1_000:.1f} ms; indexes {sorted(store.vector_indexes())}", flush=True)
    store.close()


if __name__ == "__main__":
    sys.exit(__doc__)
