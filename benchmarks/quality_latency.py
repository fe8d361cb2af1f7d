"""Search in one namespace of 100,000 memories, compared with a lower bound: `python benchmarks/quality_latency.py
[--entries …]`.

The bound is the model's own time for the query plus an exact scan with numpy, measured in turns with our searches in
the same run. Passages have generated vectors, since embedding 100,000 would take an hour; queries use the real model.
Half of the memories are messages, in conversations of twenty, which take the longest.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import commonplace
from commonplace.embedding import Purpose, create_embedder
from commonplace.entry import Draft
from commonplace.space.conversation import thread_draft
from commonplace.space.messages import thread_prefix
from commonplace.space.names import MESSAGE
from commonplace.store import Transaction
from engine_report import milliseconds, quantile, timed
from engine_texts import InstantEmbedder, Texts

LABELS = ("bench", "latency")
ENTRIES_A_WRITE = 5_000
TURNS = 20
START = 1_700_000_000_000_000
BAR = 1.5


class TimedEmbedder(InstantEmbedder):
    """Generated vectors; a query is also embedded by the real model, for its time."""

    def __init__(self, model: str | None) -> None:
        self._model = create_embedder(model)

    def embed(self, texts: Sequence[str], *, purpose: Purpose) -> NDArray[np.float32]:
        if purpose == "query":
            self._model.embed(texts, purpose=purpose)
        return super().embed(texts, purpose=purpose)


def drafts(texts: Texts, count: int) -> Iterator[Draft]:
    """Records and messages alternately."""
    for number in range(count):
        draft = texts.draft()
        if number % 2:
            yield draft
            continue
        thread = f"thread-{number // (2 * TURNS)}"
        if number % (2 * TURNS) == 0:
            yield thread_draft(thread, "bench", None, {})
        at = START + number * 1_000_000
        key = f"{thread_prefix(thread)}{at:017d}\x01{0:09d}"
        attributes = {"role": "user", "resourceId": "bench", "threadId": thread}
        yield Draft(MESSAGE, key, {}, text=draft.text, attributes=attributes, identity=f"m{number}", created_at=at)


def fill(book: commonplace.Book, count: int) -> None:
    made = drafts(Texts(), count)
    while some := list(islice(made, ENTRIES_A_WRITE)):

        def work(transaction: Transaction, some: Sequence[Draft] = some) -> None:
            for draft in some:
                transaction.put(draft)

        book.store.write(LABELS, work)
    embedder = InstantEmbedder()
    book.store.set_target_model(embedder.identity, embedder.dimensions)
    while claimed := book.store.claim(ENTRIES_A_WRITE, 600.0):
        vectors = embedder.embed([passage.text for passage in claimed], purpose="passage")
        pairs = zip(claimed, vectors, strict=True)
        book.store.index(embedder.identity, [(passage.chunk_id, vector) for passage, vector in pairs])
    while book.store.maintain():
        continue


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--model", help="another embedding model than the default")
    options = parser.parse_args(arguments)
    embedder = TimedEmbedder(options.model)
    matrix = np.random.default_rng(1).standard_normal((options.entries, embedder.dimensions)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with commonplace.open(Path(folder) / "book.db", embedder=embedder, background=False) as book:
            fill(book, options.entries)
            space = book.space(*LABELS)
            space.search("to be read first")
            print(f"{options.entries:,} memories stored in {time.perf_counter() - start:.0f} s")
            ours: list[float] = []
            threads: list[float] = []
            bar: list[float] = []
            for query in Texts(7).queries(options.queries):
                text = query.text

                def exact(text: str = text) -> None:
                    vector = embedder.embed([text], purpose="query")[0]
                    np.argpartition(-(matrix @ vector), 10)[:10]

                def search(text: str = text) -> None:
                    space.search(text)

                def search_threads(text: str = f"{text} please") -> None:
                    space.threads.search(text)

                bar.append(timed(exact))
                ours.append(timed(search))
                threads.append(timed(search_threads))
    goal = BAR * quantile(bar, 0.95)
    print("| what | p50 | p95 | goal |\n| --- | --- | --- | --- |")
    print(
        f"| the model and an exact scan | {milliseconds(quantile(bar, 0.5))} | {milliseconds(quantile(bar, 0.95))} | |"
    )
    passes = True
    for name, times in (("`space.search`", ours), ("`space.threads.search`", threads)):
        p95 = quantile(times, 0.95)
        passes = passes and p95 <= goal
        verdict = f"p95 ≤ {milliseconds(goal)} {'pass' if p95 <= goal else 'FAIL'}"
        print(f"| {name} | {milliseconds(quantile(times, 0.5))} | {milliseconds(p95)} | {verdict} |")
    return 0 if passes else 1


if __name__ == "__main__":
    raise SystemExit(main())
