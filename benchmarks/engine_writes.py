"""Durable writes by 1 and 32 threads, compared with bare SQLite with the same rows; and waits of other processes."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import commonplace
from commonplace.backends.sqlite.connection import Connection, connect
from commonplace.backends.sqlite.store import CHECKPOINT_PAGES
from commonplace.space.space import Space
from engine_report import Report, database_bytes, milliseconds, quantile, timed
from engine_texts import InstantEmbedder, Texts

WRITERS = 32
ALLOWED_ABOVE_BARE_SECONDS = 0.0003
SHARE_OF_BARE_GROUPS = 0.2
TIMES_BARE_SINGLES = 10
SLOW_SINGLES_A_SECOND = 500
LONGEST_WAIT_SECONDS = 1.0
APPENDS_MAX_BYTES = 50_000_000

Write = list[tuple[str, tuple[Any, ...]]]
"""The changing statements of one write, with their values."""


def open_book(path: Path | str) -> commonplace.Book:
    return commonplace.open(path, embedder=InstantEmbedder(), background=False)


def create(space: Space, text: str) -> None:
    space.records.create(
        type="note", content={"text": text}, source="bench", confidence=0.9, tags=["project:apollo", "area:search"]
    )


def captured_writes(texts: list[str]) -> list[Write]:
    """The statements that our own writes execute, recorded in memory. Replayed elsewhere, they create the same rows."""
    writes: list[Write] = []

    def note(cursor: object, sql: str, values: tuple[Any, ...] | None) -> bool:
        if sql.lstrip().startswith(("INSERT", "UPDATE", "DELETE")):
            writes[-1].append((sql, tuple(values or ())))
        return True

    with open_book(":memory:") as book:
        space = book.space("bench", "writes")
        cast("Any", book.store)._writing.exec_trace = note
        for text in texts:
            writes.append([])
            create(space, text)
        cast("Any", book.store)._writing.exec_trace = None
    return writes


@contextmanager
def bare_connection(path: Path) -> Iterator[Connection]:
    """Bare SQLite with the settings of our connections: WAL, synchronous = FULL."""
    connection = connect(str(path), busy_seconds=10.0, durability="full")
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
        yield connection
    finally:
        connection.close()


def commit_rows(connection: Connection, writes: list[Write]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for write in writes:
        for sql, values in write:
            connection.execute(sql, values)
    connection.execute("COMMIT")


def measure_writes(report: Report, folder: Path, *, quick: bool) -> None:
    """Rounds of each kind alternate, because the time of an fsync drifts."""
    rounds, singles, groups = (4, 25, 6) if quick else (12, 40, 12)
    source = Texts()
    texts = [source.text() for _ in range(rounds * (2 * singles + 2 * groups * WRITERS))]
    given = iter(texts)
    writes = iter(captured_writes(texts[: rounds * (singles + groups * WRITERS)]))
    ours: list[float] = []
    same_rows: list[float] = []
    simple: list[float] = []
    ours_together: list[float] = []
    bare_groups: list[float] = []
    for name in ("ours.db", "rows.db"):
        open_book(folder / name).close()
    with (
        open_book(folder / "ours.db") as book,
        bare_connection(folder / "rows.db") as rows,
        bare_connection(folder / "simple.db") as one_table,
    ):
        one_table.execute("CREATE TABLE simple (id INTEGER PRIMARY KEY, value TEXT)")
        simple_row = ("INSERT INTO simple (value) VALUES (?)", ("x" * 200,))
        space = book.space("bench", "writes")
        for _ in range(rounds):
            for _ in range(singles):
                text, write = next(given), [next(writes)]
                ours.append(timed(partial(create, space, text)))
                same_rows.append(timed(partial(commit_rows, rows, write)))
                simple.append(timed(partial(one_table.execute, *simple_row)))
            shares = [[next(given) for _ in range(groups)] for _ in range(WRITERS)]
            ours_together.append(_together(space, shares))
            for _ in range(groups):
                group = [next(writes) for _ in range(WRITERS)]
                bare_groups.append(timed(partial(commit_rows, rows, group)))
    _judge_writes(report, ours, same_rows, simple)
    many = rounds * groups * WRITERS / sum(ours_together)
    bare = WRITERS / quantile(bare_groups, 0.5)
    single = 1.0 / quantile(simple, 0.5)
    report.add("bare SQLite, the same rows, 32 a commit", f"{bare:,.0f} rows/s")
    report.add(
        "32 writers, `records.create`",
        f"{many:,.0f}/s, {many / bare:.2f} × bare groups",
        f"≥ {SHARE_OF_BARE_GROUPS:g} × bare groups",
        many >= SHARE_OF_BARE_GROUPS * bare,
    )
    applies = single < SLOW_SINGLES_A_SECOND
    report.add(
        "32 writers against bare single commits",
        f"{many / single:.1f} ×",
        f"≥ {TIMES_BARE_SINGLES} × where those are below {SLOW_SINGLES_A_SECOND}/s",
        many >= TIMES_BARE_SINGLES * single if applies else None,
    )


def _judge_writes(report: Report, ours: list[float], same_rows: list[float], simple: list[float]) -> None:
    above = quantile(ours, 0.5) - quantile(same_rows, 0.5)
    report.add("bare SQLite, one simple row a commit", _rate(simple))
    report.add("bare SQLite, the rows of one write a commit", _rate(same_rows))
    report.add(
        "1 writer, `records.create`",
        f"{_rate(ours)}; {milliseconds(above)} above bare",
        f"≤ {milliseconds(ALLOWED_ABOVE_BARE_SECONDS)} above bare",
        above <= ALLOWED_ABOVE_BARE_SECONDS,
    )


def _rate(seconds: list[float]) -> str:
    median = quantile(seconds, 0.5)
    return f"{1 / median:,.0f}/s (median {milliseconds(median)})"


def _together(space: Space, shares: list[list[str]]) -> float:
    """The time that threads, one for each share, take to write all their texts."""
    ready = threading.Barrier(len(shares) + 1)

    def write(share: list[str]) -> None:
        ready.wait()
        for text in share:
            create(space, text)

    threads = [threading.Thread(target=write, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


# Other processes


def _saturate(path: Path, seconds: float, ready: Any, written: Any) -> None:
    source = Texts()
    texts = [source.text() for _ in range(1_000)]
    counts = [0] * WRITERS
    with open_book(path) as book:
        space = book.space("bench", "saturating")

        def write(number: int) -> None:
            while time.monotonic() < end:
                create(space, f"{texts[counts[number] % len(texts)]} {number} {counts[number]}")
                counts[number] += 1

        ready.wait()
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written.put(sum(counts))


def _write_now_and_then(path: Path, number: int, seconds: float, ready: Any, waits: Any) -> None:
    found: list[float] = []
    errors: list[str] = []
    with open_book(path) as book:
        space = book.space("bench", f"other-{number}")
        texts = Texts(1_000 + number)
        ready.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = texts.text()
            try:
                found.append(timed(partial(create, space, text)))
            except commonplace.CommonplaceError as error:
                errors.append(str(error))
            time.sleep(0.05)
    waits.put((found, errors))


def measure_processes(report: Report, folder: Path, *, quick: bool) -> None:
    seconds = 4.0 if quick else 12.0
    path = folder / "shared.db"
    open_book(path).close()
    context = multiprocessing.get_context("spawn")
    ready, written, waits = context.Barrier(3), context.Queue(), context.Queue()
    processes = [context.Process(target=_saturate, args=(path, seconds, ready, written))]
    processes += [
        context.Process(target=_write_now_and_then, args=(path, number, seconds, ready, waits)) for number in range(2)
    ]
    for process in processes:
        process.start()
    answers = [waits.get(timeout=120) for _ in range(2)]
    total = written.get(timeout=120)
    for process in processes:
        process.join()
    found = [wait for some, _ in answers for wait in some]
    errors = [error for _, some in answers for error in some]
    report.add("a process with 32 writers beside 2 others", f"{total / seconds:,.0f} writes/s")
    report.add(
        f"the others' waits ({len(found)} writes, one each 50 ms)",
        f"p50 {milliseconds(quantile(found, 0.5))}, p95 {milliseconds(quantile(found, 0.95))}, "
        f"max {milliseconds(max(found))}, {len(errors)} errors",
        f"none above {LONGEST_WAIT_SECONDS:g} s, no error",
        max(found) <= LONGEST_WAIT_SECONDS and not errors,
    )


# Appends


def measure_appends(report: Report, folder: Path, *, quick: bool) -> None:
    count = 2_000 if quick else 10_000
    path = folder / "appends.db"
    lines = [f"{number:05d} one more short line\n" for number in range(count)]
    with open_book(path) as book:
        files = book.space("bench", "appends").files
        took = timed(lambda: [files.append("/log", line) for line in lines])
    with bare_connection(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    size = database_bytes(path)
    report.add(
        f"{count:,} appends of {len(lines[0])} bytes to one file",
        f"{took:.1f} s ({milliseconds(took / count)} each), {size / 1e6:.1f} MB on disk",
        f"< {APPENDS_MAX_BYTES / 1e6:.0f} MB",
        size < APPENDS_MAX_BYTES,
    )
    with open_book(path) as book:
        space = book.space("bench", "appends")
        revision = space.history("file", "/log")[count // 2 - 1].revision
        start = time.perf_counter()
        former = space.state("file", "/log", revision)
        took = time.perf_counter() - start
    is_right = former.value == "".join(lines[: count // 2])
    report.add(f"reading revision {revision:,} of it", milliseconds(took), "the text as it was", is_right)
