"""What an entry costs on PostgreSQL and how that grows: `python benchmarks/postgres.py --growth 10000 100000 1000000`.

For each number of entries a database is filled (`postgres_load`), in 1,000 namespaces. Then come bytes on disk with all
indexes, the log of a write, the processor time of writes and searches (of this program and of the database), the first
search of a server in a namespace, and what it keeps of it in memory. Processor times depend less than seconds on
what else the machine does.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from postgres_load import NAMESPACES
from postgres_worker import QUERY_WORDS, Ours, text_of

SEARCHED = 100
SEARCHES_EACH = 5
WRITES = 500
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = {
    "entry": "entry|label|history",
    "passage with its terms": "chunk",
    "vector, half precision, without HNSW": "embedding",
}
SIZES = """
    SELECT regexp_replace(relname, '_p[0-9]+$', ''), sum(pg_total_relation_size(oid))::bigint FROM pg_class
    WHERE relnamespace = 'commonplace'::regnamespace AND relkind = 'r' GROUP BY 1
"""


def report(server: Any, sizes: Sequence[int]) -> None:
    for entries in sizes:
        url = server.create_database()
        begin = time.monotonic()
        load = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("postgres_load.py")), "ours", url]
        subprocess.run([*load, str(entries), ""], check=True)
        print(
            f"\n{entries:,} entries in {NAMESPACES:,} namespaces, loaded in {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        _print_sizes(url, entries)
        _print_searches(server, url, entries)
        _print_writes(server, url)
        _set(server.url(), f"DROP DATABASE {url.rpartition('/')[2]}")


def _print_sizes(url: str, entries: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        found: dict[str, int] = dict(connection.execute(SIZES).fetchall())
    total = sum(found.values())
    for part, tables in PARTS.items():
        size = sum(found.pop(table, 0) for table in tables.split("|"))
        print(f"  {part:<40} {size / entries:>8,.0f} bytes an entry")
    print(f"  {'namespace, and pages that are hardly used':<40} {sum(found.values()) / entries:>8,.0f}")
    print(f"  {'in all':<40} {total / entries:>8,.0f}", flush=True)


def _print_searches(server: Any, url: str, entries: int) -> None:
    ours = Ours(url)
    store: Any = ours.book.store
    first: list[float] = []
    later: list[float] = []

    def search(place: int, step: int, times: list[float]) -> None:
        begin = time.perf_counter()
        ours.search(place, " ".join(text_of(place + NAMESPACES * step).split()[:QUERY_WORDS]))
        times.append(time.perf_counter() - begin)

    def first_searches() -> None:
        for place in range(SEARCHED):
            search(place, 0, first)

    def later_searches() -> None:
        for step in range(SEARCHES_EACH):
            for place in range(SEARCHED):
                search(place, step + 1, later)

    search(NAMESPACES - 1, 0, [])
    before = store.vector_bytes
    cost = _processor(server, first_searches)
    held = (store.vector_bytes - before) / SEARCHED
    print(f"  first search in a namespace: p50 {statistics.median(first) * 1_000:.1f} ms, {_costs(cost, SEARCHED)}")
    print(f"  memory of a namespace: {held / 1_000:,.0f} kB, {held * NAMESPACES / entries:,.0f} bytes a passage")
    later_searches()
    later.clear()
    cost = _processor(server, later_searches)
    print(f"  later search: p50 {statistics.median(later) * 1_000:.1f} ms, {_costs(cost, len(later))}", flush=True)
    ours.book.close()


def _print_writes(server: Any, url: str) -> None:
    ours = Ours(url)
    number = 0

    def write() -> None:
        nonlocal number
        for _ in range(WRITES):
            number += 1
            ours.write(number * 7 % NAMESPACES, f"more-{number}", text_of(10**9 + number))

    def log() -> float:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        return float(row[0]) if row else 0.0

    write()
    start = log()
    cost = _processor(server, write)
    print(f"  write: {_costs(cost, WRITES)}, log with images of pages {(log() - start) / WRITES:,.0f} bytes")
    _set(url, "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
    start = log()
    write()
    print(f"  log of a write without images of pages: {(log() - start) / WRITES:,.0f} bytes", flush=True)
    _set(url, "ALTER SYSTEM RESET full_page_writes", "SELECT pg_reload_conf()")
    ours.settle()
    ours.book.close()


def _set(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _costs(cost: tuple[float, float], count: int) -> str:
    ours, database = (one / count * 1_000 for one in cost)
    return f"processor {ours:.2f} ms here and {database:.2f} ms in the database"


def _processor(server: Any, work: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds of this process and of the database, while `work` runs."""
    before = time.process_time(), _spent(server.process.pid)
    work()
    return time.process_time() - before[0], _spent(server.process.pid) - before[1]


def _spent(postmaster: int) -> float:
    """Of a server and of its processes, those that ended included."""
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(folder.name) == postmaster:
            total += sum(map(int, fields[11:15]))
        elif int(fields[1]) == postmaster:
            total += sum(map(int, fields[11:13]))
    return total / TICKS


if __name__ == "__main__":
    sys.exit(__doc__)
