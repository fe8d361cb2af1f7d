"""Search without the model's time, by the size of a namespace; bytes per entry; and opening a book in a new process."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import commonplace
from commonplace.checks import Namespace
from commonplace.entry import Draft
from commonplace.filters import Filter
from commonplace.language.tokenizer import query_terms
from commonplace.store import Store, Transaction
from engine_report import Report, database_bytes, milliseconds, quantile, spread, timed
from engine_texts import InstantEmbedder, Query, Texts
from engine_writes import bare_connection, open_book

ONE: Namespace = ("bench", "one")
ENTRIES_A_WRITE = 5_000
CANDIDATES = 60
SMALL_SIZES = (1_000, 10_000)
SPREAD_NAMESPACES = 1_000
LARGE_P50_SECONDS = 0.010
SPREAD_P50_SECONDS = 0.001
FIRST_KEYWORD_SECONDS = 0.150


@dataclass(frozen=True, slots=True)
class Prepared:
    """Two books: one with a single namespace of `size`, one with smaller namespaces and `size` entries spread."""

    size: int
    one: Path
    others: Path
    bytes_without_vectors: int
    bytes_with_vectors: int
    seconds: float


def spread_namespace(number: int) -> Namespace:
    return ("spread", f"u-{number}")


def prepare(folder: Path, *, quick: bool) -> Prepared:
    """Fill both books at the same time, each in its own process."""
    size = 10_000 if quick else 100_000
    start = time.perf_counter()
    one, others = folder / "one.db", folder / "others.db"
    filling = multiprocessing.get_context("spawn").Process(target=_fill_others, args=(others, size))
    filling.start()
    with open_book(one) as book:
        _fill(book.store, ONE, Texts().drafts(size))
        without = _checkpointed_bytes(one)
        embed_all(book.store)
    with_vectors = _checkpointed_bytes(one)
    filling.join()
    if filling.exitcode:
        raise RuntimeError(f"filling {others} failed with exit code {filling.exitcode}")
    return Prepared(size, one, others, without, with_vectors, time.perf_counter() - start)


def _fill_others(path: Path, size: int) -> None:
    texts = Texts(1)
    with open_book(path) as book:
        for small in SMALL_SIZES:
            if small < size:
                _fill(book.store, ("bench", f"of-{small}"), texts.drafts(small))
        for number in range(SPREAD_NAMESPACES):
            _fill(book.store, spread_namespace(number), texts.drafts(size // SPREAD_NAMESPACES))
        embed_all(book.store)


def _fill(store: Store, namespace: Namespace, drafts: Iterator[Draft]) -> None:
    while some := list(islice(drafts, ENTRIES_A_WRITE)):

        def work(transaction: Transaction, some: Sequence[Draft] = some) -> None:
            for draft in some:
                transaction.put(draft)

        store.write(namespace, work)


def embed_all(store: Store) -> None:
    embedder = InstantEmbedder()
    store.set_target_model(embedder.identity, embedder.dimensions)
    while claimed := store.claim(ENTRIES_A_WRITE, 600.0):
        vectors = embedder.embed([passage.text for passage in claimed], purpose="passage")
        store.index(
            embedder.identity, [(passage.chunk_id, vector) for passage, vector in zip(claimed, vectors, strict=True)]
        )
    while store.maintain():  # as the indexer does when it has nothing to embed
        continue


def _checkpointed_bytes(path: Path) -> int:
    with bare_connection(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return database_bytes(path)


# Search


def measure_search(report: Report, prepared: Prepared, *, quick: bool) -> None:
    count = 60 if quick else 200
    queries = Texts(7).queries(count)
    report.add("set-up of the books for what follows", f"{prepared.seconds:.0f} s")
    with open_book(prepared.others) as book:
        for size in SMALL_SIZES:
            if size < prepared.size:
                _measure_namespaces(report, book, f"{size:,} entries", [("bench", f"of-{size}")], queries, None)
        namespaces = [spread_namespace(number * 37 % SPREAD_NAMESPACES) for number in range(count)]
        _measure_namespaces(
            report,
            book,
            f"{prepared.size:,} entries in {SPREAD_NAMESPACES:,} namespaces, one searched",
            namespaces,
            queries,
            SPREAD_P50_SECONDS,
        )
    with open_book(prepared.one) as book:
        _measure_namespaces(
            report, book, f"{prepared.size:,} entries in one namespace", [ONE], queries, LARGE_P50_SECONDS
        )


def _measure_namespaces(
    report: Report,
    book: commonplace.Book,
    what: str,
    namespaces: Sequence[Namespace],
    queries: Sequence[Query],
    goal: float | None,
) -> None:
    """One query per namespace in turn, after the process's caches have been filled."""
    embedder = InstantEmbedder()
    model = embedder.identity
    vectors = [embedder.embed([query.text], purpose="query")[0] for query in queries]
    places = [namespaces[number % len(namespaces)] for number in range(len(queries))]
    for namespace in dict.fromkeys(places):
        book.space(*namespace).search("to be read first")
    words: list[float] = []
    meanings: list[float] = []
    whole: list[float] = []
    filtered: list[float] = []
    for namespace, query, vector in zip(places, queries, vectors, strict=True):
        filter = Filter(types=(query.type,) if query.type else (), all_tags=query.tags)
        words.append(timed(partial(book.store.search_text, namespace, query_terms(query.text), filter, CANDIDATES)))
        meanings.append(timed(partial(book.store.search_vectors, namespace, model, vector, filter, CANDIDATES)))
        took = timed(partial(book.space(*namespace).search, query.text, type=query.type, tags=query.tags))
        (filtered if query.type or query.tags else whole).append(took)
    report.add(f"{what}: keywords alone", spread(words))
    report.add(f"{what}: vectors alone", spread(meanings))
    report.add(f"{what}: `search` with a filter", spread(filtered))
    median = quantile(whole, 0.5)
    report.add(
        f"{what}: `search`",
        spread(whole),
        "" if goal is None else f"p50 ≤ {milliseconds(goal)}",
        None if goal is None else median <= goal,
    )


# Opening

_CHILD = """
import sys, time
import commonplace
from commonplace.language.tokenizer import query_terms
from commonplace.filters import Filter

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0

class Fixed:
    identity, dimensions, calibration = "bench-instant", 384, (0.1, 0.9)
    def embed(self, texts, *, purpose):
        import numpy
        vector = numpy.random.default_rng(1).standard_normal((len(texts), 384)).astype("float32")
        return vector / numpy.linalg.norm(vector, axis=1, keepdims=True)

path, query = sys.argv[1:]
book = commonplace.open(path, embedder=Fixed(), background=False)
found = book.store.search_text(("bench", "one"), query_terms(query), Filter(), 10)
book.store.load(("bench", "one"), [candidate.entry_id for candidate in found])
print(time.monotonic(), resident(), len(found))
found = book.space("bench", "one").search(query)
print(time.monotonic(), resident(), len(found))
"""


def measure_opening(report: Report, prepared: Prepared, *, quick: bool) -> None:
    rounds = 5 if quick else 9
    query = Texts(7).queries(2)[1].text
    nothing: list[float] = []
    keyword: list[float] = []
    hybrid: list[float] = []
    for _ in range(rounds):
        nothing.append(timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)))
        start = time.monotonic()
        answer = subprocess.run(
            [sys.executable, "-c", _CHILD, str(prepared.one), query], check=True, capture_output=True, text=True
        )
        first, second = (line.split() for line in answer.stdout.splitlines())
        keyword.append(float(first[0]) - start)
        hybrid.append(float(second[0]) - start)
    bare = quantile(nothing, 0.5)
    took = quantile(keyword, 0.5)
    report.add("`python -c pass`", milliseconds(bare))
    report.add(
        f"new process to the first keyword answer, {prepared.size:,} entries",
        f"{milliseconds(took)}, {float(first[1]):.0f} MB resident",
        f"≤ {milliseconds(FIRST_KEYWORD_SECONDS)} after start",
        took <= FIRST_KEYWORD_SECONDS,
    )
    report.add(
        "to the first hybrid answer, without the model",
        f"{milliseconds(quantile(hybrid, 0.5))}, {float(second[1]):.0f} MB resident",
    )


def measure_size(report: Report, prepared: Prepared) -> None:
    without = prepared.bytes_without_vectors / prepared.size
    with_vectors = prepared.bytes_with_vectors / prepared.size
    report.add(
        f"bytes on disk an entry, {prepared.size:,} entries",
        f"{without:,.0f} without vectors, {with_vectors:,.0f} with them (384 dimensions)",
    )
