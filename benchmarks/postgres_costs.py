"""What an operation costs on PostgreSQL: bytes of the log, statements, time, bytes on disk, next to a former version.

python benchmarks/postgres_costs.py [--former FOLDER/src] [--count 200] [--entries 20000]

Two programs run the same operations in turns, each in its own database of one server: this checkout, and the sources
that `--former` names, such as a `git worktree` of an earlier commit. The log is counted without images of whole pages,
which depend on when the last checkpoint was. Bytes are those of notes of 20 words with one vector of 384 dimensions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).resolve().parent
OPERATIONS = ("message", "record", "append", "update of a record", "vector of a record")
SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "top",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_wal_size": "8GB",
    "shared_buffers": "512MB",
    "fsync": "off",
}
NAMESPACES = 100
SIZES = """
    SELECT regexp_replace(regexp_replace(t.relname, '_p[0-9]+', ''), '_hnsw.*', ''),
        sum(pg_table_size(t.oid))::bigint, sum(pg_indexes_size(t.oid))::bigint
    FROM pg_class AS t WHERE t.relnamespace = 'commonplace'::regnamespace AND t.relkind = 'r' GROUP BY 1 ORDER BY 1
"""


# The worker: one version of the program, told by lines on its input what to do


def work(url: str) -> None:
    import commonplace
    from commonplace.entry import Draft
    from engine_costs import text
    from engine_texts import InstantEmbedder
    from postgres_worker import text_of

    with commonplace.open(url, embedder=InstantEmbedder(), background=False) as book:
        space = book.space("user", "u-1")
        space.threads.create(id="chat", title="chat")
        records: list[str] = []
        number = 0

        def record() -> None:
            made = space.records.create(
                type="note", content={"text": text(number)}, source="bench", confidence=0.9,
                tags=["project:apollo", "area:search"],
            )  # fmt: skip
            records.append(made.id)

        works: dict[str, Callable[[], object]] = {
            "message": lambda: space.threads.add("chat", [{"role": "user", "content": text(number)}]),
            "record": record,
            "append": lambda: space.files.append("/log", f"{number:05d} one more short line\n"),
            "update of a record": lambda: space.records.update(
                records[number * 7 % len(records)], content={"text": text(10**6 + number)}
            ),
        }

        def fill(entries: int) -> None:
            each = entries // NAMESPACES
            for place in range(NAMESPACES):

                def put(transaction: Any, place: int = place) -> None:
                    for one in range(each):
                        transaction.put(Draft("item", f"k{one}", text_of(place * each + one)))

                book.store.write(("notes", f"u{place}"), put)
            book.reindex()

        for line in sys.stdin:
            task, count = json.loads(line)
            took = []
            if task == "fill":
                fill(count)
            elif task == "vector of a record":
                book.reindex()
            else:
                for _ in range(count):
                    number += 1
                    start = time.perf_counter()
                    works[task]()
                    took.append(time.perf_counter() - start)
            print(json.dumps(sorted(took)[len(took) // 2] * 1e3 if took else None), flush=True)


# The one who asks


class Version:
    """A program with a database of its own."""

    def __init__(self, url: str, sources: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--work", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(sources)},
        )  # fmt: skip
        self._looking = psycopg.connect(url, autocommit=True)
        self._looking.execute("CREATE EXTENSION pg_stat_statements")

    def ask(self, task: str, count: int) -> tuple[float | None, float, float]:
        """p50 in milliseconds, bytes of the log and statements of an operation."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._looking.execute("SELECT pg_stat_statements_reset()")
        before = self._one("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        print(json.dumps([task, count]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a version failed; its error is above")
        log = self._one("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn") - before
        calls = self._one(
            "SELECT sum(calls) FROM pg_stat_statements WHERE query !~ 'pg_stat_statements|pg_current_wal'"
            " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return json.loads(answer), log / count, calls / count

    def _one(self, query: str) -> float:
        row = self._looking.execute(query.encode()).fetchone()
        return float(row[0] or 0) if row is not None else 0.0

    def sizes(self) -> dict[str, tuple[int, int]]:
        self._looking.execute("VACUUM ANALYZE")
        return {name: (table, indexes) for name, table, indexes in self._looking.execute(SIZES)}

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._looking.close()


def report(versions: dict[str, Version], count: int, entries: int) -> None:
    for version in versions.values():
        for task in OPERATIONS:
            version.ask(task, 200 if task != OPERATIONS[-1] else 1)  # the first ones create pages
    print("| operation | version | p50 ms | statements | log, bytes |")
    print("| --- | --- | --- | --- | --- |")
    for task in OPERATIONS:
        for name, version in versions.items():
            if task == OPERATIONS[-1]:
                version.ask(task, 1)  # what the other operations have left
                version.ask("record", count)
            took, log, statements = version.ask(task, count)
            shown = "" if took is None else f"{took:.2f}"
            print(f"| {task} | {name} | {shown} | {statements:.1f} | {log:,.0f} |", flush=True)
    empty = {name: version.sizes() for name, version in versions.items()}
    for version in versions.values():
        version.ask("fill", entries)
    print(f"\n| bytes per entry, {entries:,} notes of 20 words | table | indexes |")
    print("| --- | --- | --- |")
    for name, version in versions.items():
        total = [0.0, 0.0]
        for table, sizes in version.sizes().items():
            each = [(now - then) / entries for now, then in zip(sizes, empty[name].get(table, (0, 0)), strict=True)]
            total = [known + more for known, more in zip(total, each, strict=True)]
            if sum(each) >= 1:
                print(f"| {table}, {name} | {each[0]:,.0f} | {each[1]:,.0f} |")
        print(f"| **all, {name}: {sum(total):,.0f}** | {total[0]:,.0f} | {total[1]:,.0f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--former", type=Path, help="the src folder of another version")
    parser.add_argument("--count", type=int, default=200, help="operations that are counted")
    parser.add_argument("--entries", type=int, default=20_000, help="notes whose bytes are counted")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.work)
        return
    sys.path.append(str(HERE.parent / "tests"))
    from postgres_server import PostgresServer  # type: ignore[import-not-found]

    server = PostgresServer(SETTINGS)
    try:
        sources = {"former": options.former} if options.former else {}
        sources["present"] = HERE.parent / "src"
        versions = {name: Version(server.create_database(), path) for name, path in sources.items()}
        try:
            report(versions, options.count, options.entries)
        finally:
            for version in versions.values():
                version.end()
    finally:
        server.remove()


if __name__ == "__main__":
    main()
