"""One server process of the PostgreSQL benchmark: writes or searches for some seconds and prints what it measured.

Runs with our interpreter for `ours`, and with the peers' own for `langgraph`; so it imports either only when asked.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

DIMENSIONS = 384
THREADS = 4
QUERY_WORDS = 6
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = [
    SYLLABLES[number % 70] + SYLLABLES[number // 70 % 70] + SYLLABLES[(7 * number + number // 4_900) % 70]
    for number in range(5_000)
]
"""Only letters: a word with digits counts as code and is also indexed by its parts, which is twice the work."""


def vector(text: str) -> Any:
    """The same generated vector for the same text, everywhere."""
    row = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSIONS, dtype=np.float32)
    return row / np.linalg.norm(row)


def text_of(number: int) -> str:
    """Twenty words, common ones often."""
    chance = np.random.default_rng(number)
    return " ".join(WORDS[int(place)] for place in np.minimum(chance.zipf(1.3, 20), len(WORDS)) - 1)


class Embedder:
    """Generated vectors through our protocol."""

    identity = "made-up@1"
    dimensions = DIMENSIONS
    calibration = (0.0, 1.0)

    def embed(self, texts: Sequence[str], *, purpose: str) -> Any:
        return np.stack([vector(text) for text in texts])


class Ours:
    def __init__(self, url: str) -> None:
        import commonplace

        self.book = commonplace.open(url, embedder=Embedder(), background=False)

    def write(self, namespace: int, key: str, text: str) -> None:
        from commonplace.entry import Draft

        draft = Draft("record", key, {"text": text}, text=text)
        self.book.store.write(("user", f"u{namespace}"), lambda transaction: transaction.put(draft))

    def settle(self) -> None:
        """Compute all pending vectors, which the peer does within its write."""
        while claimed := self.book.store.claim(200, 60):
            self.book.store.index(Embedder.identity, [(one.chunk_id, vector(one.text)) for one in claimed])

    def search(self, namespace: int, query: str) -> list[str]:
        return [str(hit.entry.key) for hit in self.book.space("user", f"u{namespace}").search(query, limit=10)]


class LangGraph:
    def __init__(self, url: str) -> None:
        from langgraph.store.postgres import PostgresStore  # type: ignore[import-not-found]

        index = {
            "dims": DIMENSIONS,
            "embed": lambda texts: [vector(text).tolist() for text in texts],
            "fields": ["text"],
        }
        pool = {"min_size": THREADS, "max_size": THREADS}
        self._entered = PostgresStore.from_conn_string(url, pool_config=pool, index=index)
        self._store = self._entered.__enter__()

    def setup(self) -> None:
        self._store.setup()

    def write(self, namespace: int, key: str, text: str) -> None:
        self._store.put(("user", f"u{namespace}"), key, {"text": text})

    def settle(self) -> None:
        return

    def search(self, namespace: int, query: str) -> list[str]:
        return [item.key for item in self._store.search(("user", f"u{namespace}"), query=query, limit=10)]


def measure(work: Callable[[int, int], None], seconds: float, threads: int) -> tuple[int, list[float]]:
    """Call `work` with a thread's number and a step in every thread; how often, and how long each took."""
    times: list[list[float]] = [[] for _ in range(threads)]
    stop = time.monotonic() + seconds

    def run(number: int) -> None:
        step = 0
        while (begin := time.monotonic()) < stop:
            work(number, step)
            times[number].append(time.monotonic() - begin)
            step += 1

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    flat = [one for some in times for one in some]
    return len(flat), flat


def main() -> None:
    target, url, task, number, namespaces, seconds = sys.argv[1:7]
    book: Ours | LangGraph = Ours(url) if target == "ours" else LangGraph(url)
    chance = np.random.default_rng(int(number))
    places = [int(place) for place in chance.integers(0, int(namespaces), 100_000)]

    def write(thread: int, step: int) -> None:
        text = text_of(10**9 + int(number) * 10**7 + thread * 10**6 + step)
        book.write(places[(thread * 10_000 + step) % len(places)], f"new-{number}-{thread}-{step}", text)

    def search(thread: int, step: int) -> None:
        place = places[(thread * 10_000 + step) % len(places)]
        book.search(place, " ".join(text_of(place + 1_000 * (step % 90)).split()[:QUERY_WORDS]))

    work = write if task == "write" else search
    for step in range(20):  # connections and plans
        work(THREADS + 1, step)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    begin = time.monotonic()
    count, times = measure(work, float(seconds), THREADS if task == "write" else 1)
    book.settle()
    json.dump({"count": count, "seconds": time.monotonic() - begin, "times": times}, sys.stdout)


if __name__ == "__main__":
    main()
