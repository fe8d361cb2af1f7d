"""Many servers on one PostgreSQL, compared with LangGraph's PostgresStore: `python benchmarks/postgres.py [--entries
N]`.

Writes a second, search times and recall with the same texts and vectors on both, over 1,000 namespaces, from one and
from four server processes. The same PostgreSQL serves both, one after the other, with fsync on. Our search is by words
and meaning, the peer's by meaning alone; our writes count until their vectors are stored. Only compare lines of the
same run on the same machine. The peer is installed from the registry into `.clients/`.

Loading is not measured and takes the longest: with `--serve` the filled databases stay until Ctrl-C, and `--loaded`
measures on them, as often as wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts" / "clients")]

import install  # noqa: E402

import commonplace  # noqa: E402
import postgres_feed  # noqa: E402
import postgres_growth  # noqa: E402
import postgres_namespace  # noqa: E402
from commonplace.filters import Filter  # noqa: E402
from postgres_load import NAMESPACES  # noqa: E402
from postgres_server import PostgresServer  # type: ignore[import-not-found]  # noqa: E402
from postgres_worker import DIMENSIONS, Embedder, text_of, vector  # noqa: E402

PEER = "langgraph-checkpoint-postgres==3.2.0"
TARGETS = ("ours", "langgraph")
SETTINGS = {
    "shared_buffers": "6GB",
    "max_connections": "200",
    "max_wal_size": "16GB",
    "maintenance_work_mem": "4GB",  # a vector index of a million rows that does not fit takes hours to build
    "max_parallel_maintenance_workers": "2",
}
HERE = Path(__file__).parent


def main() -> int:
    options = _options()
    if options.one_namespace or options.feeds or options.growth:
        server = PostgresServer(SETTINGS)
        try:
            if options.feeds:
                postgres_feed.report(server)
            elif options.growth:
                postgres_growth.report(server, options.growth)
            else:
                postgres_namespace.report(
                    server, options.one_namespace, options.embedded, options.vectors, options.shortest
                )
        finally:
            server.remove()
        return 0
    peer_python = str(install.python("langgraph-postgres", PEER, "psycopg[binary,pool]", f"numpy=={np.__version__}"))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {options.entries:,} entries of 20 words,")
    print(f"{NAMESPACES:,} namespaces, {DIMENSIONS} dimensions, fsync on; load average {os.getloadavg()[0]:.1f}\n")
    if options.loaded:
        _report(dict(zip(TARGETS, options.loaded, strict=True)), peer_python, options)
        return 0
    server = PostgresServer(SETTINGS)
    try:
        urls = {target: server.create_database() for target in TARGETS}
        _load(urls, peer_python, options.entries)
        if options.serve:
            for number in (signal.SIGINT, signal.SIGTERM):  # in the background both would not end it properly
                signal.signal(number, lambda *_: sys.exit())
            print("--loaded", *urls.values(), flush=True)
            threading.Event().wait()
        _report(urls, peer_python, options)
    finally:
        server.remove()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2, help="how often ours and the peer's take turns")
    parser.add_argument("--feeds", action="store_true", help="measure only what feeds cost")
    parser.add_argument(
        "--one-namespace", type=Path, metavar="FILE", help="measure one large namespace with LongMemEval's texts"
    )
    parser.add_argument("--embedded", type=int, default=10_000, help="of these texts, how many are embedded")
    parser.add_argument(
        "--vectors", type=Path, default=HERE / "data" / "vectors.npz", metavar="FILE", help="which keeps the embedded"
    )
    parser.add_argument("--shortest", type=int, metavar="N", help="use only the N shortest of these texts")
    parser.add_argument(
        "--growth", type=int, nargs="+", metavar="N", help="measure only what an entry costs, among N entries"
    )
    parser.add_argument("--serve", action="store_true", help="load, print the addresses, and wait")
    parser.add_argument("--loaded", nargs=2, metavar="URL", help="the addresses that --serve has printed")
    return parser.parse_args()


def _load(urls: dict[str, str], peer_python: str, entries: int) -> None:
    """Load both at the same time, each in its own process; see `postgres_load`."""
    begin = time.monotonic()
    command = [sys.executable, "-W", "ignore", str(HERE / "postgres_load.py")]
    running = {
        target: subprocess.Popen([*command, target, url, str(entries), peer_python]) for target, url in urls.items()
    }
    for target, process in running.items():
        if process.wait():
            sys.exit(f"loading {target} failed")
    print(
        f"loaded in {time.monotonic() - begin:.0f} s: ours as an import, the peer's by COPY and then its vector index"
    )


def _report(urls: dict[str, str], peer_python: str, options: argparse.Namespace) -> None:
    pythons = {"ours": sys.executable, "langgraph": peer_python}
    rows: dict[str, dict[str, str]] = {target: {} for target in TARGETS}
    for task in ("search", "write"):  # writes last: the faster writer would have more to search afterwards
        for servers in (1, 4):
            found: dict[str, list[Any]] = {target: [] for target in TARGETS}
            for _ in range(options.rounds):  # in turns, because the machine may be busier later
                for target, url in urls.items():
                    found[target] += _run(target, pythons[target], url, task, servers, options.seconds)
            for target in TARGETS:
                rows[target].update(_figures(found[target], task, servers))
    for target, url in urls.items():
        rows[target]["recall@10"] = _recall(target, peer_python, url, options.entries)
    width = max(map(len, rows["ours"]))
    print(f"{'':<{width}}  {'ours':>10}  {'LangGraph':>10}")
    for name, value in rows["ours"].items():
        print(f"{name:<{width}}  {value:>10}  {rows['langgraph'].get(name, ''):>10}")


def _run(target: str, python: str, url: str, task: str, servers: int, seconds: float) -> list[Any]:
    """The measurements of several servers that worked at the same time."""
    command = [python, "-W", "ignore", str(HERE / "postgres_worker.py"), target, url, task]
    running = [
        subprocess.Popen(
            [*command, str(number), str(NAMESPACES), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(servers)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return [json.loads(one.communicate()[0]) for one in running]


def _figures(found: list[Any], task: str, servers: int) -> Iterator[tuple[str, str]]:
    label = f"{servers} server{'s' if servers > 1 else ''}"
    rate = servers * sum(one["count"] for one in found) / sum(one["seconds"] for one in found)
    if task == "write":
        yield f"{label}: writes/s", f"{rate:,.0f}"
        return
    times = sorted(time for one in found for time in one["times"])
    yield f"{label}: search p50, ms", f"{statistics.median(times) * 1_000:.1f}"
    yield f"{label}: search p95, ms", f"{times[int(len(times) * 0.95)] * 1_000:.1f}"
    yield f"{label}: searches/s", f"{rate:,.0f}"


def _recall(target: str, peer_python: str, url: str, entries: int) -> str:
    """How many of the ten nearest, by exact comparison with every vector of the namespace, the vector search finds."""
    each = entries // NAMESPACES
    found = _nearest_of_ours(url) if target == "ours" else _nearest_of_peer(url, peer_python)
    hits = wanted = 0
    for place, keys in enumerate(found):
        matrix = np.stack([vector(text_of(place + NAMESPACES * number)) for number in range(each)])
        best = {f"k{number}" for number in np.argsort(-(matrix @ vector(text_of(10**6 + place))))[:10]}
        # Entries that this run added may correctly be among them.
        hits += len(best & set(keys)) + sum(key.startswith("new-") for key in keys)
        wanted += len(best)
    return f"{min(1.0, hits / wanted):.3f}"


def _nearest_of_ours(url: str) -> list[list[str]]:
    found = []
    with commonplace.open(url, embedder=Embedder(), background=False) as book:
        for place in range(100):
            namespace = ("user", f"u{place}")
            query = vector(text_of(10**6 + place))
            near = book.store.search_vectors(namespace, Embedder.identity, query, Filter(), 10)
            loaded = book.store.load(namespace, [one.entry_id for one in near])
            found.append([entry.key for entry in loaded.values()])
    return found


def _nearest_of_peer(url: str, python: str) -> Any:
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import postgres_worker as w\n"
        "b = w.LangGraph(sys.argv[2])\n"
        "print(json.dumps([b.search(p, w.text_of(10**6 + p)) for p in range(100)]))"
    )
    command = [python, "-W", "ignore", "-c", code, str(HERE), url]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
