"""The page: server time and bytes of every screen in a memory of 1,000 and of 100,000 entries, and the first paint.

python benchmarks/page.py [--entries 100000] [--rounds 40] [--postgres] [--strict]

A browser's request over one connection to a server in this process. The vectors of the entries are generated. Only
compare lines of the same run. Each measurement has queries of its own, because the library keeps the vectors of the
last ones.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import os
import platform
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode, urlsplit

import uvicorn

import commonplace
from commonplace.checks import moment
from commonplace.embedding import create_embedder
from commonplace.entry import Draft
from commonplace.server.http.api_keys import Keys
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.server.page.search_screen import PAGE_SIZE
from commonplace.settings import Settings
from commonplace.space.space import Space
from commonplace.store import Transaction
from engine_report import quantile
from engine_search import embed_all
from engine_texts import InstantEmbedder, Texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SMALL = 1_000
IN_A_COMMIT = 10
MESSAGES_IN_A_THREAD = 20
IMPORTED = 40
GOAL_MS = 100.0
GOAL_RATIO = 2.0
GOAL_SLACK_MS = 10.0
GOAL_SEARCH_RATIO = 1.3
GOAL_FIRST_PAINT = 100_000
SEARCH_ROUNDS = 4
"""How many times as many requests the search is measured with, because two p95 are compared."""

SEARCHED_BY_PAGE = PAGE_SIZE + 1
clock = time.process_time if "--cpu" in sys.argv else time.perf_counter
HEADERS = {"Accept": "text/html", "Accept-Encoding": "gzip", "Sec-Fetch-Site": "same-origin"}


@dataclass(frozen=True, slots=True)
class Place:
    """A filled memory, and the names in it that addresses need."""

    space: Space
    files: Sequence[str]
    records: Sequence[str]
    threads: Sequence[str]
    long_thread: str
    middle: str
    """The time when half of the long thread was there."""
    middle_micros: int
    commits: int
    """How many there are. The last one is an import."""
    queries: Iterator[str]


class TimedEmbedder(InstantEmbedder):
    """Generated vectors. A query takes the time of the default model too: a search of the library has it as well."""

    def __init__(self) -> None:
        self._model = create_embedder(None)

    def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> NDArray[np.float32]:
        if purpose == "query":
            self._model.embed(texts, purpose="query")
        return super().embed(texts, purpose=purpose)


Address = Callable[[Place, int], tuple[str, dict[str, str]]]


def opened(path: str, kind: str, keys: Callable[[Place], Sequence[str]], **more: str) -> Address:
    """The address of one entry after the other."""

    def address(place: Place, number: int) -> tuple[str, dict[str, str]]:
        all_keys = keys(place)
        return path, {"open": f"{kind}:{all_keys[number * 7919 % len(all_keys)]}", **more}

    return address


def fixed(path: str, **params: str) -> Address:
    return lambda place, number: (path, params)


def as_of(address: Address) -> Address:
    """The same screen at a time in the past."""

    def past(place: Place, number: int) -> tuple[str, dict[str, str]]:
        path, params = address(place, number)
        return path, {**params, "as_of": place.middle}

    return past


def searched(place: Place, number: int) -> tuple[str, dict[str, str]]:
    return "/ui", {"q": next(place.queries)}


SEARCH = "search, found"
FILE = opened("/ui/files", "file", lambda place: place.files)
RECORDS = fixed("/ui/records")
THREADS = fixed("/ui/threads")
THREAD = opened("/ui/threads", "thread", lambda place: place.threads)
LONG_THREAD = opened("/ui/threads", "thread", lambda place: [place.long_thread])
PANES: dict[str, Address] = {
    "search, nothing asked": fixed("/ui"),
    SEARCH: searched,
    "search, in the past": as_of(searched),
    "files, the top": fixed("/ui/files"),
    "files, a full folder": fixed("/ui/files", open="directory:/many"),
    "files, a file": FILE,
    "files, in the past": as_of(FILE),
    "edit a file": opened("/ui/files/edit", "file", lambda place: place.files),
    "records": RECORDS,
    "records, with a tag": fixed("/ui/records", tag="project:delta", type="fact"),
    "records, with words": lambda place, number: ("/ui/records", {"q": next(place.queries)}),
    "records, with a source": fixed("/ui/records", source="nobody"),
    "records, with a confidence": fixed("/ui/records", confidence="0.99"),
    "records, in the past": as_of(RECORDS),
    "records, with a source, in the past": as_of(fixed("/ui/records", source="nobody")),
    "a record": opened("/ui/records", "record", lambda place: place.records),
    "threads": THREADS,
    "threads, in the past": as_of(THREADS),
    "a thread": THREAD,
    "a long thread": LONG_THREAD,
    "a long thread, in the past": as_of(LONG_THREAD),
    "history": fixed("/ui/history"),
    "history of a file": opened("/ui/history", "file", lambda place: place.files),
    "a commit": lambda place, number: ("/ui/history/commit", {"commit": str(1 + number)}),
    "compare the first and the last": lambda place, number: (
        "/ui/history/compare",
        {"from": "1", "to": str(place.commits)},
    ),
    "as of": fixed("/ui/as-of"),
    "as of, the preview": lambda place, number: ("/ui/as-of/moment", {"at": str(place.middle_micros + number)}),
    "undo": lambda place, number: ("/ui/undo", {"commit": str(place.commits - number)}),
    "import": fixed("/ui/import"),
    "undo an import": lambda place, number: ("/ui/import/undo", {"commits": str(place.commits)}),
    "usage": fixed("/ui/usage"),
    "connect": fixed("/ui/connect"),
    "memories": fixed("/ui/namespaces"),
}


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: Sequence[float]
    bytes: int

    @property
    def p50(self) -> float:
        return quantile(self.seconds, 0.5) * 1e3

    @property
    def p95(self) -> float:
        return quantile(self.seconds, 0.95) * 1e3


def file_paths(entries: int) -> list[str]:
    """A tenth of the entries in one folder, half as many more in folders of a hundred."""
    many = [f"/many/{number:06}.md" for number in range(entries // 10)]
    tree = [f"/tree/{n // 10_000:02}/{n // 100 % 100:02}/{n % 100:02}.md" for n in range(entries * 15 // 100)]
    return many + tree


def fill(book: commonplace.Book, space: Space, entries: int) -> None:
    """A quarter of the entries are files, half are records, and a quarter are messages of threads."""
    texts = Texts()
    files = file_paths(entries)
    for start in range(0, len(files), IN_A_COMMIT):
        space.files.write_all({path: texts.text() for path in files[start : start + IN_A_COMMIT]})
    drafts = list(texts.drafts(entries // 2))
    for start in range(0, len(drafts), IN_A_COMMIT):

        def put(transaction: Transaction, some: list[Draft] = drafts[start : start + IN_A_COMMIT]) -> None:
            for draft in some:
                transaction.put(draft)

        book.store.write(space.namespace, put, actor="bench")
    for _ in range(entries // 5 // MESSAGES_IN_A_THREAD):
        _fill_thread(space, texts, MESSAGES_IN_A_THREAD)
    _fill_thread(space, texts, entries // 20)
    with tempfile.TemporaryDirectory(prefix="commonplace-notes-") as folder:
        for number in range(IMPORTED):
            (Path(folder) / f"{number}.md").write_text(texts.text())
        book.import_memory(folder, space.namespace)


def place_of(book: commonplace.Book, name: str, entries: int) -> Place:
    """A memory of this size, which is filled unless it was before."""
    space = book.space("bench", name, actor="bench")
    files = file_paths(entries)
    if not space.stats().commit:
        fill(book, space, entries)
        embed_all(book.store)
    threads = [thread.id for thread in space.threads.list(limit=100).threads]
    commits = space.stats().commit
    [change] = space.changes(commits - entries // 20 // IN_A_COMMIT // 2 - 1, 1)[:1]
    return Place(
        space,
        files,
        records=[record.id for record in space.records.list(limit=100).records],
        threads=threads[1:],
        long_thread=threads[0],
        middle=moment(change.at).isoformat(),
        middle_micros=change.at,
        commits=commits,
        queries=iter([query.text for query in Texts(1).queries(5_000)]),
    )


def _fill_thread(space: Space, texts: Texts, messages: int) -> None:
    thread = space.threads.create(texts.text()[:40]).id
    roles = ("user", "assistant")
    for start in range(0, messages, IN_A_COMMIT):
        numbers = range(start, min(start + IN_A_COMMIT, messages))
        space.threads.add(thread, [{"role": roles[number % 2], "content": texts.text()} for number in numbers])


@contextmanager
def served(book: commonplace.Book) -> Iterator[http.client.HTTPConnection]:
    """A server of the book in a thread, and a connection to it."""
    listening = socket.create_server(("127.0.0.1", 0))
    service = Service(book, Gate(Keys(book.store), Principal("local", ("bench", "small"), "all")), Settings())
    config = uvicorn.Config(
        build_app(service), log_level="error", lifespan="on", timeout_graceful_shutdown=1, timeout_keep_alive=600
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=60)
    try:
        yield connection
    finally:
        connection.close()
        server.should_exit = True
        thread.join(20)
        listening.close()


def answer_of(connection: http.client.HTTPConnection, path: str) -> tuple[float, bytes, str]:
    """How long a request took, its body as it was sent, and its coding."""
    start = clock()
    connection.request("GET", path, headers=HEADERS)
    response = connection.getresponse()
    body = response.read()
    seconds = clock() - start
    if response.status != 200:
        raise RuntimeError(f"{response.status} for {path}: {body[-500:]!r}")
    if cookie := response.headers.get("set-cookie"):
        HEADERS["Cookie"] = cookie.partition(";")[0]  # a browser sends it from then on
    return seconds, body, response.headers.get("content-encoding", "")


def measure(
    connection: http.client.HTTPConnection,
    place: Place,
    address: Address,
    rounds: int,
    between: Callable[[], None] = lambda: None,
) -> Measured:
    """Ask for a screen again and again; `between` is called before each request."""
    seconds, sizes = [], []
    for number in range(-3, rounds):
        between()
        path, params = address(place, abs(number))
        query = urlencode({**params, "ns": "/".join(place.space.namespace)})
        took, body, _ = answer_of(connection, f"{path}?{query}")
        if number >= 0:
            seconds.append(took)
            sizes.append(len(body))
    return Measured(seconds, max(sizes))


def beside_library(connection: http.client.HTTPConnection, place: Place, rounds: int) -> tuple[Measured, float]:
    """The page's search and p95 of the library's own, in milliseconds, in turns: what disturbs one disturbs both."""
    seconds: list[float] = []

    def search() -> None:
        query = next(place.queries)
        start = clock()
        place.space.search(query, limit=SEARCHED_BY_PAGE)
        seconds.append(clock() - start)

    found = measure(connection, place, searched, rounds, search)
    return found, quantile(seconds[3:], 0.95) * 1e3


def first_paint(connection: http.client.HTTPConnection, place: Place) -> dict[str, int]:
    """The bytes of the first screen with everything that it loads."""
    path, params = searched(place, 0)
    _, body, coding = answer_of(connection, f"{path}?{urlencode({**params, 'ns': '/'.join(place.space.namespace)})}")
    html = gzip.decompress(body) if coding == "gzip" else body
    parts = {"the screen": len(body)}
    for found in re.findall(rb'"(/ui/static/[^"]+)"', html):
        name = urlsplit(found.decode()).path.split("/", 4)[-1]
        parts[name] = len(answer_of(connection, found.decode())[1])
    return parts


@dataclass(frozen=True, slots=True)
class Line:
    """A screen in the small memory and in the large one."""

    name: str
    small: Measured
    large: Measured
    most: float
    """What p95 may be in the large memory, in milliseconds."""

    @property
    def is_met(self) -> bool:
        return self.large.p95 <= self.most

    def __str__(self) -> str:
        figures = f"{self.small.p50:.1f} | {self.small.p95:.1f} | {self.large.p50:.1f} | {self.large.p95:.1f}"
        verdict = "pass" if self.is_met else "MISS"
        return f"| {self.name} | {figures} | {self.most:.0f} | {self.large.bytes / 1e3:.1f} kB | {verdict} |"


def lines(
    connection: http.client.HTTPConnection, small: Place, large: Place, rounds: int, only: str | None
) -> Iterator[Line]:
    for name, address in PANES.items():
        if only is not None and only not in name:
            continue
        few = measure(connection, small, address, rounds)
        if name == SEARCH:
            many, library = beside_library(connection, large, SEARCH_ROUNDS * rounds)
            yield Line(name, few, many, GOAL_SEARCH_RATIO * library)
        else:
            many = measure(connection, large, address, rounds)
            yield Line(name, few, many, min(GOAL_MS, GOAL_RATIO * few.p95 + GOAL_SLACK_MS))


def report(connection: http.client.HTTPConnection, small: Place, large: Place, options: argparse.Namespace) -> bool:
    """Print everything; returns whether all goals are met."""
    print(f"| screen | p50 at {SMALL:,} | p95 | p50 at {options.entries:,} | p95 | goal, ms | size | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    is_met = True
    for line in lines(connection, small, large, options.rounds, options.only):
        print(line, flush=True)
        is_met &= line.is_met
    parts = first_paint(connection, large)
    total = sum(parts.values())
    listed = ", ".join(f"{name} {size / 1e3:.1f}" for name, size in parts.items())
    print(f"\nfirst paint {total / 1e3:.1f} kB of at most {GOAL_FIRST_PAINT / 1e3:.0f}: {listed}")
    return is_met and total <= GOAL_FIRST_PAINT


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as folder, _address(options, Path(folder)) as url:
        backend = "PostgreSQL" if url.startswith("postgresql:") else "SQLite"
        print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {backend}\n", flush=True)
        with commonplace.open(url, embedder=TimedEmbedder(), background=False, durability="normal") as book:
            start = time.perf_counter()
            small, large = place_of(book, "small", SMALL), place_of(book, "large", options.entries)
            print(f"opened in {time.perf_counter() - start:.0f} s, {large.space.stats().commit:,} commits\n")
            with served(book) as connection:
                is_met = report(connection, small, large, options)
    print("all goals met" if is_met else "goals were missed")
    return 0 if is_met or not options.strict else 1


@contextmanager
def _address(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    if options.book is not None:
        yield options.book
        return
    if not options.postgres:
        yield str(folder / "book.db")
        return
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    from postgres_server import PostgresServer  # type: ignore[import-not-found]

    server = PostgresServer({"fsync": "off", "shared_buffers": "512MB", "max_connections": "100"})
    try:
        yield server.create_database()
    finally:
        server.remove()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=100_000, help="the size of the large memory")
    parser.add_argument("--rounds", type=int, default=40, help="requests for each screen")
    parser.add_argument("--only", help="only screens whose name has this text")
    parser.add_argument("--cpu", action="store_true", help="CPU time of this process, for a machine with other work")
    parser.add_argument("--book", help="a book that stays; it is filled the first time, which takes the longest")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL that is started for this")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
