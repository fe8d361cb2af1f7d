"""Many servers on one PostgreSQL, beside LangGraph's PostgresStore: `python benchmarks/postgres.py [--entries N]`.

Writes a second, search times and recall with the same texts and vectors on both, over 1,000 namespaces, from one and
from four server processes. The same PostgreSQL serves both, one after the other, with fsync on. Our search is by words
and meaning, the peer's by meaning alone; our writes count until their vectors are stored. Figures of one machine at one
time: compare lines of the same run only. The peer is installed from the registry into `.clients/`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts" / "clients")]

import install  # noqa: E402

import commonplace  # noqa: E402
from commonplace.entry import Entry  # noqa: E402
from commonplace.store import NamespaceHead, State  # noqa: E402
from postgres_server import PostgresServer  # type: ignore[import-not-found]  # noqa: E402
from postgres_worker import DIMENSIONS, Embedder, text_of, vector  # noqa: E402

NAMESPACES = 1_000
PEER = "langgraph-checkpoint-postgres==3.2.0"
SETTINGS = {
    "shared_buffers": "2GB",
    "max_connections": "200",
    "max_wal_size": "4GB",
    "maintenance_work_mem": "1GB",
    "max_parallel_maintenance_workers": "2",
}
WORKER = Path(__file__).with_name("postgres_worker.py")


def main() -> int:
    options = _options()
    peer_python = install.python("langgraph-postgres", PEER, "psycopg[binary,pool]", f"numpy=={np.__version__}")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {options.entries:,} entries of 20 words,")
    print(f"{NAMESPACES:,} namespaces, {DIMENSIONS} dimensions, fsync on\n")
    server = PostgresServer(SETTINGS)
    try:
        rows: dict[str, dict[str, str]] = {"ours": {}, "langgraph": {}}
        pythons = {"ours": sys.executable, "langgraph": str(peer_python)}
        urls = {}
        for target in rows:
            urls[target] = server.create_database()
            begin = time.monotonic()
            (_load_ours if target == "ours" else _load_peer)(urls[target], options.entries, str(peer_python))
            rows[target]["loading, s"] = f"{time.monotonic() - begin:.0f}"
            _vacuum(urls[target])
        for servers in (1, 4):
            for task in ("search", "write"):
                for target, url in urls.items():  # one right after the other: the machine may be busier later
                    rows[target].update(_measure(target, pythons[target], url, task, servers, options.seconds))
        for target, url in urls.items():
            rows[target]["recall@10"] = _recall(target, str(peer_python), url, options.entries)
        width = max(map(len, rows["ours"]))
        print(f"{'':<{width}}  {'ours':>10}  {'LangGraph':>10}")
        for name, value in rows["ours"].items():
            print(f"{name:<{width}}  {value:>10}  {rows['langgraph'].get(name, ''):>10}")
    finally:
        server.remove()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    return parser.parse_args()


def _measure(target: str, python: str, url: str, task: str, servers: int, seconds: float) -> Iterator[tuple[str, str]]:
    command = [python, "-W", "ignore", str(WORKER), target, url, task]
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
    found: list[Any] = [json.loads(one.communicate()[0]) for one in running]
    times = sorted(time for one in found for time in one["times"])
    label = f"{servers} server{'s' if servers > 1 else ''}"
    if task == "write":
        rate = sum(one["count"] for one in found) / max(one["seconds"] for one in found)
        yield f"{label}: writes/s", f"{rate:,.0f}"
        return
    yield f"{label}: search p50, ms", f"{statistics.median(times) * 1_000:.1f}"
    yield f"{label}: search p95, ms", f"{times[int(len(times) * 0.95)] * 1_000:.1f}"
    yield f"{label}: searches/s", f"{sum(one['count'] for one in found) / seconds:,.0f}"


def _load_ours(url: str, entries: int, _: str) -> None:
    with commonplace.open(url, embedder=Embedder(), background=False) as book:
        each = entries // NAMESPACES
        for place in range(NAMESPACES):
            namespace = ("user", f"u{place}")
            head = NamespaceHead(namespace, each, each, 0)
            book.store.adopt(head, lambda place=place, namespace=namespace: _states(namespace, place, each))  # type: ignore[misc]
        book.store.aim(Embedder.identity, DIMENSIONS)
        while claimed := book.store.claim(2_000, 600):
            book.store.index(Embedder.identity, [(one.chunk_id, vector(one.text)) for one in claimed])


def _states(namespace: tuple[str, ...], place: int, each: int) -> Iterator[State]:
    for number in range(each):
        text = text_of(place + NAMESPACES * number)
        entry = Entry(
            id=number + 1,
            namespace=namespace,
            kind="record",
            key=f"k{number}",
            value={"text": text},
            text=text,
            heading=None,
            attributes={},
            identity=None,
            revision=1,
            commit=number + 1,
            created_at=number + 1,
            updated_at=number + 1,
            expires_at=None,
            actor=None,
        )
        yield State(entry, "created", number + 1, None)


def _load_peer(url: str, entries: int, python: str) -> None:
    """Through the peer's own tables: by its puts a million entries would take hours."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import postgres_worker as w; w.LangGraph(sys.argv[2]).setup()"
    subprocess.run([python, "-W", "ignore", "-c", code, str(WORKER.parent), url], check=True)
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'store_vectors' AND indexdef LIKE '%hnsw%'"
        ).fetchone()
        assert row is not None
        connection.execute(f'DROP INDEX "{row[0]}"')
        with connection.cursor() as cursor:
            with cursor.copy("COPY store (prefix, key, value) FROM STDIN") as copy:
                for number in range(entries):
                    value = json.dumps({"text": text_of(number)})
                    copy.write_row((f"user.u{number % NAMESPACES}", f"k{number // NAMESPACES}", value))
            with cursor.copy("COPY store_vectors (prefix, key, field_name, embedding) FROM STDIN") as copy:
                for number in range(entries):
                    numbers = ",".join(f"{one:.6g}" for one in vector(text_of(number)))
                    copy.write_row((f"user.u{number % NAMESPACES}", f"k{number // NAMESPACES}", "text", f"[{numbers}]"))
        connection.execute(row[1].encode())


def _vacuum(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _recall(target: str, python: str, url: str, entries: int) -> str:
    """How many of the ten nearest, found by looking at every vector of the namespace, the search by meaning gives."""
    each = entries // NAMESPACES
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import postgres_worker as w\n"
        "b = w.LangGraph(sys.argv[2])\n"
        "print(json.dumps([b.search(p, w.text_of(10**6 + p)) for p in range(100)]))"
    )
    if target == "ours":
        from commonplace.filters import Filter

        found = []
        with commonplace.open(url, embedder=Embedder(), background=False) as book:
            for place in range(100):
                namespace = ("user", f"u{place}")
                query = vector(text_of(10**6 + place))
                near = book.store.search_vectors(namespace, Embedder.identity, query, Filter(), 10)
                loaded = book.store.load(namespace, [one.entry_id for one in near])
                found.append([entry.key for entry in loaded.values()])
    else:
        command = [python, "-W", "ignore", "-c", code, str(WORKER.parent), url]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    hits = wanted = 0
    for place, keys in enumerate(found):
        matrix = np.stack([vector(text_of(place + NAMESPACES * number)) for number in range(each)])
        best = {f"k{number}" for number in np.argsort(-(matrix @ vector(text_of(10**6 + place))))[:10]}
        # What the writes of this run added may stand among them, rightly.
        hits += len(best & set(keys)) + sum(key.startswith("new-") for key in keys)
        wanted += len(best)
    return f"{min(1.0, hits / wanted):.3f}"


if __name__ == "__main__":
    sys.exit(main())
