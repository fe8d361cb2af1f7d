"""What one operation costs: pages of the log, statements, processor time and bytes, next to a former version.

Two programs run the same operations in turns, each on its own book in the same folder: this checkout, and the sources
that `--former` names, such as a `git worktree` of an earlier commit. With the Agents SDK installed, its SQLiteSession
is measured too. Compare the columns of one run only.

python benchmarks/engine_costs.py [--former FOLDER/src] [--count 1500] [--turns 5] [--folder FOLDER] [--only …]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PRESENT = Path(__file__).resolve().parents[1] / "src"
IMPORTED = 1_000
IMPORT = f"import of {IMPORTED:,} records"
SESSIONS, WRITERS, EACH = 8, 32, 10
TOGETHER = {f"session add, {SESSIONS} at once": SESSIONS, f"record, {WRITERS} writers": WRITERS * EACH}
"""How many operations are done together. The figures are those of one: the time divided by this."""
ADD_TOGETHER, RECORD_TOGETHER = TOGETHER
OPERATIONS = (
    "message", "session add", ADD_TOGETHER, "last ten", "record", RECORD_TOGETHER, "append", IMPORT, "search words",
    "search after 100 writes",
)  # fmt: skip
WITH_BYTES = ("message", "session add", "record", "append", IMPORT)
LARGE = (IMPORT, "search after 100 writes")
"""Each turn does these once."""
PAGE_COUNT_AT = 16
"""The place of the number of pages in the header of SQLite's index of the log."""
WARM = 200


def text(number: int) -> str:
    """Words of a vocabulary of some thousands, most of them often seen."""
    words = [f"word{(number * 7919 + place * place * 31) % 3_000}" for place in range(12)]
    return f"Message {number}: service {number % 97} goes out on day {number % 365}, after " + " ".join(words)


def _item(number: int) -> Any:
    return {"role": "user", "content": text(number)}


def _record(space: Any, number: int) -> None:
    space.records.create(
        type="note", content={"text": text(number)}, source="bench", confidence=0.9,
        tags=["project:apollo", "area:search"],
    )  # fmt: skip


# The worker: one version of the program, told by lines on its input what to do


class Ours:
    """An operation on a book of the version whose sources are on the path."""

    def __init__(self, operation: str, folder: Path) -> None:
        import commonplace
        from commonplace.adapters.openai_agents import CommonplaceSession
        from engine_texts import InstantEmbedder

        self.path = folder / "book.db"
        self._book = commonplace.open(self.path, background=False, embedder=InstantEmbedder())
        space = self._book.space("user", "u-1")
        space.threads.create(id="chat", title="chat", resource="u-1")
        session, runner = CommonplaceSession(space, "session"), asyncio.Runner()
        self._statements = 0
        self._number = 0
        self._space = space

        def message() -> None:
            space.threads.add("chat", [_item(self._number)], resource="u-1")

        def record() -> None:
            _record(space, self._number)

        def add() -> None:
            runner.run(session.add_items([_item(self._number)]))

        async def add_together(first: int) -> None:
            await asyncio.gather(*(session.add_items([_item(first * SESSIONS + place)]) for place in range(SESSIONS)))

        pool = ThreadPoolExecutor(WRITERS)

        def some_records(first: int) -> None:
            for number in range(first, first + EACH):
                _record(space, number)

        def records_together() -> None:
            first = self._number * WRITERS * EACH
            list(pool.map(some_records, range(first, first + WRITERS * EACH, EACH)))

        exported: list[bytes] = []

        def import_records() -> None:
            lines = b"".join(exported).replace(b"user/u-1", b"user/i-%d" % self._number)
            (done,) = self._book.import_lines(io.BytesIO(lines))
            assert done.states == IMPORTED + 1  # and the thread

        def search() -> None:
            assert space.search(f"service {self._number % 97} word{self._number % 3_000}", limit=10).hits

        self._works: dict[str, Callable[[], object]] = {
            "message": message,
            "record": record,
            "append": lambda: space.files.append("/log", f"{self._number:05d} one more short line\n"),
            IMPORT: import_records,
            "session add": add,
            ADD_TOGETHER: lambda: runner.run(add_together(self._number)),
            RECORD_TOGETHER: records_together,
            "last ten": lambda: runner.run(session.get_items(limit=10)),
            "search words": search,
            "search after 100 writes": search,
        }
        self._work = self._works[operation]
        self._is_after_writes = operation.startswith("search after")
        if operation == "last ten" or operation.startswith("search"):
            for _ in range(2_000):
                self._number += 1
                self._works["session add" if operation == "last ten" else "record"]()
        elif operation == IMPORT:
            for _ in range(IMPORTED):
                self._number += 1
                record()
            self._book.export(exported.append)

    def prepare(self) -> None:
        if self._is_after_writes:
            for _ in range(100):
                self._number += 1
                self._works["record"]()

    def once(self) -> None:
        self._number += 1
        self._work()

    def _note(self, *_: object) -> bool:
        self._statements += 1
        return True

    def counted(self, count: int) -> tuple[int, int]:
        """The statements and the pages of the log of `count` operations."""
        store: Any = self._book.store
        connections = [store._writing, *store._connections]
        for connection in connections:
            connection.exec_trace = self._note
        self._statements = pages = 0
        for _ in range(count):
            before = _logged(self.path)
            self.once()
            pages += max(0, _logged(self.path) - before)
        for connection in connections:
            connection.exec_trace = None
        return self._statements, pages

    def close(self) -> None:
        self._book.close()


class Theirs:
    """The Agents SDK's own session, made as durable."""

    def __init__(self, operation: str, folder: Path) -> None:
        from agents.memory import SQLiteSession

        self.path = folder / "book.db"
        session = self._session = SQLiteSession("chat", self.path)
        self._connection = session._get_connection()
        self._connection.execute("PRAGMA synchronous = FULL")
        self._runner = asyncio.Runner()
        self._number = 0
        self._at_once = SESSIONS if operation == ADD_TOGETHER else 1
        self._is_reading = operation == "last ten"
        if self._is_reading:
            self._is_reading = False
            for _ in range(2_000):
                self.once()
            self._is_reading = True

    def prepare(self) -> None:
        return

    def once(self) -> None:
        if self._is_reading:
            self._runner.run(self._session.get_items(limit=10))
            return
        self._number += self._at_once
        self._runner.run(self._add())

    async def _add(self) -> None:
        numbers = range(self._number, self._number + self._at_once)
        await asyncio.gather(*(self._session.add_items([_item(number)]) for number in numbers))

    def counted(self, count: int) -> tuple[int, int]:
        statements: list[str] = []
        self._connection.set_trace_callback(statements.append)
        pages = 0
        for _ in range(count):
            before = _logged(self.path)
            self.once()
            pages += max(0, _logged(self.path) - before)
        self._connection.set_trace_callback(None)
        return len(statements), pages

    def close(self) -> None:
        self._session.close()


def _logged(path: Path) -> int:
    """How many pages the log has now."""
    with open(f"{path}-shm", "rb") as index:
        index.seek(PAGE_COUNT_AT)
        pages: int = struct.unpack("=I", index.read(4))[0]
        return pages


def work(kind: str, operation: str, folder: Path) -> None:
    measured = (Theirs if kind == "theirs" else Ours)(operation, folder)
    for line in sys.stdin:
        task, number = json.loads(line)
        if task == "time":
            spent, took = 0.0, []
            measured.prepare()
            for _ in range(number):
                cpu, clock = time.process_time(), time.perf_counter()
                measured.once()
                took.append(time.perf_counter() - clock)
                spent += time.process_time() - cpu
            answer: Any = [spent, took]
        elif task == "count":
            measured.prepare()
            answer = measured.counted(number)
        else:
            measured.close()
            answer = sum(os.path.getsize(file) for file in folder.glob("book.db*"))
        print(json.dumps(answer), flush=True)


# The one who asks


class Version:
    """A program that runs one operation, and what it has cost."""

    def __init__(self, kind: str, sources: Path | None, operation: str, folder: Path) -> None:
        folder.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(sources or PRESENT), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", kind, operation, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.operations = 0
        self.spent: list[float] = []
        self.took: list[float] = []

    def ask(self, task: str, number: int = 0) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([task, number]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a version failed; its error is above")
        self.operations += number
        return json.loads(answer)

    def time(self, count: int) -> None:
        spent, took = self.ask("time", count)
        self.spent.append(spent / count)
        self.took += took

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def versions(operation: str, folder: Path, former: Path | None) -> Iterator[dict[str, Version]]:
    place = folder / operation.replace(" ", "-")
    place.mkdir()
    found: dict[str, Version] = {}
    try:
        if former is not None:
            found["former"] = Version("ours", former, operation, place / "former")
        found["present"] = Version("ours", None, operation, place / "present")
        if operation in ("session add", ADD_TOGETHER, "last ten"):
            found["SQLiteSession"] = Version("theirs", None, operation, place / "theirs")
        yield found
    finally:
        for version in found.values():
            version.end()


def measure(operation: str, folder: Path, former: Path | None, count: int, turns: int) -> None:
    together = TOGETHER.get(operation, 1)
    count = max(count // together, turns)
    if operation in LARGE:
        count, turns = 1, max(turns, 12)
    with versions(operation, folder, former) as asked:
        names = list(asked)
        for version in asked.values():
            version.time(max(WARM // together, 4) if count > 1 else 1)
            version.spent.clear()
            version.took.clear()
        for turn in range(turns):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                asked[name].time(max(1, count // turns))
        rows = {}
        for name, version in asked.items():
            counted = max(64 // together, 1) if count > 1 else 1
            statements, pages = (number / counted / together for number in version.ask("count", counted))
            median, high = (_quantile(version.took, share) * 1e3 / together for share in (0.5, 0.95))
            cpu = _quantile(version.spent, 0.5) * 1e6 / together
            size = version.ask("close") / version.operations if operation in WITH_BYTES else None
            rows[name] = (cpu, median, high, statements, pages, size)
    base = next(iter(rows.values()))
    for name, (cpu, median, high, statements, pages, size) in rows.items():
        shown = "" if size is None else f"{size:,.0f}"
        print(
            f"| {operation} | {name} | {cpu:,.0f} | {cpu / base[0]:.2f} | {median:.3f} | {high:.3f} "
            f"| {statements:.1f} | {pages:.1f} | {shown} |",
            flush=True,
        )


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--former", type=Path, help="the src folder of another version")
    parser.add_argument("--count", type=int, default=1_500, help="operations that are timed")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the books are created (this measures their file system)")
    parser.add_argument("--only", action="append", choices=OPERATIONS)
    parser.add_argument("--work", nargs=3, metavar=("KIND", "OPERATION", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], options.work[1], Path(options.work[2]))
        return
    print("| operation | version | processor µs | × | p50 ms | p95 ms | statements | log pages | bytes |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="commonplace-costs-", dir=options.folder) as folder:
        for operation in options.only or OPERATIONS:
            measure(operation, Path(folder), options.former, options.count, options.turns)


if __name__ == "__main__":
    main()
