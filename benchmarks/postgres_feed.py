"""What feeds cost on PostgreSQL: `python benchmarks/postgres.py --feeds`.

First, 1,000 streams of namespaces in which nothing happens, on one server, while another program writes 50 times a
second elsewhere: the processor that the server takes, and the transactions of the database for each write, next to the
same writes without streams. Then streams on four servers: how long after a write is acknowledged its event is read.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg

import commonplace
from commonplace.book import Background
from commonplace.entry import Draft

IDLE_STREAMS = 1_000
STREAMS = 2_000
SERVERS = 4
WRITES_A_SECOND = 50
SECONDS = 20
TICKS = os.sysconf("SC_CLK_TCK")


def report(server: Any, alone: AbstractContextManager[Any] | None = None) -> None:
    """`alone` is entered while something is measured."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    url = server.create_database() + "?partitions=4"
    with commonplace.open(url, background=Background(embeds=False)) as book:
        for number in range(STREAMS):
            book.store.write(("stream", f"s{number}"), lambda change: change.put(Draft("item", "k", "first")))
        asyncio.run(_report(url, book, alone or nullcontext()))


async def _report(url: str, book: commonplace.Book, alone: AbstractContextManager[Any]) -> None:
    async with _servers(url, SERVERS) as servers:
        [(idle, port), *_] = servers
        heard: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
        streams = [await _follow(port, number, heard) for number in range(IDLE_STREAMS)]
        await asyncio.sleep(2)
        with alone:
            begun, before = _processor(idle), _transactions(url)
            written = await _write_elsewhere(book)
            taken, during = _processor(idle) - begun, _transactions(url) - before
            for stream in streams:
                stream.cancel()
            await asyncio.sleep(1)
            before = _transactions(url)
            without = (await _write_elsewhere(book), _transactions(url) - before)
        extra = during / written - without[1] / without[0]
        print(f"{IDLE_STREAMS:,} idle streams on one server, {written / SECONDS:.0f} writes a second elsewhere:")
        print(
            f"  {taken / SECONDS:.1%} of a core, {extra:.2f} more transactions a write than without streams", flush=True
        )

        streams = [await _follow(servers[number % SERVERS][1], number, heard) for number in range(STREAMS)]
        await asyncio.sleep(2)
        waits: list[float] = []
        with alone:
            chosen = random.Random(1)
            for _ in range(WRITES_A_SECOND * SECONDS // 2):
                number = chosen.randrange(STREAMS)
                await asyncio.to_thread(_write, book, ("stream", f"s{number}"))
                acknowledged = time.perf_counter()
                while (seen := await asyncio.wait_for(heard.get(), 30))[0] != number:
                    continue
                waits.append(max(0.0, seen[1] - acknowledged) * 1e3)
        waits.sort()
        p50, p99 = waits[len(waits) // 2], waits[int(0.99 * len(waits))]
        print(
            f"{STREAMS:,} streams on {SERVERS} servers, {len(waits)} writes: the event is read {p50:.0f} ms after the"
        )
        print(f"  acknowledgement (p50), {p99:.0f} ms (p99), {waits[-1]:.0f} ms at most", flush=True)
        for stream in streams:
            stream.cancel()


def _write(book: commonplace.Book, namespace: tuple[str, str]) -> None:
    book.store.write(namespace, lambda change: change.put(Draft("item", "k", f"at {time.time_ns()}")))


async def _write_elsewhere(book: commonplace.Book) -> int:
    ends, written = time.monotonic() + SECONDS, 0
    begun = time.monotonic()
    while (now := time.monotonic()) < ends:
        if written <= (now - begun) * WRITES_A_SECOND:
            await asyncio.to_thread(_write, book, ("elsewhere", f"u{written % 20}"))
            written += 1
        else:
            await asyncio.sleep(0.002)
    return written


@asynccontextmanager
async def _servers(url: str, count: int) -> AsyncIterator[list[tuple[int, int]]]:
    """The process and the port of each."""
    running, places = [], []
    environment = {**os.environ, "DATABASE_URL": url, "COMMONPLACE_EMBED": "false", "COMMONPLACE_MAX_STREAMS": "8000"}
    try:
        for _ in range(count):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            command = [sys.executable, "-m", "commonplace", "serve", "--port", str(port)]
            running.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            )
            places.append((running[-1].pid, port))
        for server in running:
            assert server.stdout is not None
            if not await asyncio.to_thread(server.stdout.readline):
                raise SystemExit("a server did not start")
        yield places
    finally:
        for server in running:
            server.terminate()
        for server in running:
            server.wait(60)


async def _follow(port: int, number: int, heard: asyncio.Queue[tuple[int, float]]) -> asyncio.Task[None]:
    """Open a stream; returns when its head was read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET /v1/changes/stream?namespace=stream/s{number} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise SystemExit(head.decode())

    async def listen() -> None:
        try:
            while line := await reader.readline():
                if re.match(rb"event: commit", line):
                    heard.put_nowait((number, time.perf_counter()))
        finally:
            writer.close()

    return asyncio.create_task(listen())


def _processor(pid: int) -> float:
    """The seconds of processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _transactions(url: str) -> int:
    time.sleep(1.2)  # a server tells of its transactions about once a second
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row[0])
