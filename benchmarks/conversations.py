"""Large conversations: adding one message and reading the last ten, with 100 to 100,000 messages in the thread.

Compared with the OpenAI Agents SDK's own SQLiteSession, on files on the same disk, in alternating turns of the same
run. Each has its own event loop with its own threads, because threads that the other has used are slower. The limit is
a table with one row per message and nothing else: the cost of the thread, the commit and the disk for any equally
durable write.

python benchmarks/conversations.py [--sizes 100 1000 10000 100000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

from agents.memory import SessionABC, SQLiteSession

import commonplace
from commonplace.adapters.openai_agents import CommonplaceSession

T = TypeVar("T")
SIZES = (100, 1_000, 10_000, 100_000)
ROUNDS = 200
WRITERS = 8
GOAL_GROWTH = 1.5
ITEMS_A_CALL = 10_000
SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def item(number: int) -> Any:
    service, day = number % 97, number % 365
    return {
        "role": "assistant" if number % 2 else "user",
        "content": f"Message {number}: service {service} goes out on day {day}, after the checklist of its team was "
        "read and the owner of the payment path has agreed.",
    }


@dataclass
class Contender:
    """A session, and how long each of its calls took, in milliseconds."""

    name: str
    session: SessionABC
    durability: str
    close: Callable[[], object]
    times: dict[str, list[float]] = field(default_factory=dict)
    loop: asyncio.Runner = field(default_factory=asyncio.Runner)

    def timed(self, what: str, call: Coroutine[Any, Any, T]) -> T:
        async def run() -> T:
            start = time.perf_counter()
            result = await call
            self.times.setdefault(what, []).append((time.perf_counter() - start) * 1e3)
            return result

        return self.loop.run(run())

    def median(self, what: str) -> float:
        return statistics.median(self.times[what])


class BareRows(SessionABC):
    """The minimum for a session on SQLite: one row per message."""

    def __init__(self, path: Path) -> None:
        self.session_id = "chat"
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")

    async def add_items(self, items: list[Any]) -> None:
        await asyncio.to_thread(self._add, items)

    def _add(self, items: list[Any]) -> None:
        with self._lock:
            marks = ", ".join(["(?)"] * len(items))
            self._connection.execute(f"INSERT INTO message (item) VALUES {marks}", [json.dumps(one) for one in items])

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await asyncio.to_thread(self._newest, -1 if limit is None else limit)

    def _newest(self, limit: int) -> list[Any]:
        with self._lock:
            rows = self._connection.execute("SELECT item FROM message ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
        return [json.loads(item) for (item,) in reversed(rows)]

    async def pop_item(self) -> Any:
        raise NotImplementedError("the benchmark deletes nothing")

    async def clear_session(self) -> None:
        raise NotImplementedError("the benchmark deletes nothing")

    def close(self) -> None:
        self._connection.close()


def ours(folder: Path, durability: Literal["full", "normal"]) -> Contender:
    book = commonplace.open(folder / f"commonplace-{durability}.db", durability=durability, background=False)
    session = CommonplaceSession(book.space("user", "u-1"), "chat")
    return Contender(f"commonplace, {durability}", session, f"WAL, synchronous={durability}", book.close)


def theirs(folder: Path) -> Contender:
    session = SQLiteSession("chat", folder / "agents.db")
    connection = session._get_connection()
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    synchronous = SYNCHRONOUS[connection.execute("PRAGMA synchronous").fetchone()[0]]
    return Contender("SQLiteSession", session, f"{mode.upper()}, synchronous={synchronous}", session.close)


def limit(folder: Path) -> Contender:
    session = BareRows(folder / "bare.db")
    return Contender("limit: bare rows", session, "WAL, synchronous=full", session.close)


def measure(contenders: list[Contender], size: int) -> None:
    """Fill up to a size, then measure all in turns, so that a disturbance of the disk affects all of them."""
    for one in contenders:
        present = len(one.loop.run(one.session.get_items()))
        for first in range(present, size, ITEMS_A_CALL):
            added = [item(number) for number in range(first, min(size, first + ITEMS_A_CALL))]
            one.loop.run(one.session.add_items(added))
        one.times.clear()
    for number in range(ROUNDS):
        for one in contenders[number % len(contenders) :] + contenders[: number % len(contenders)]:
            added = item(size + number)
            one.timed("add", one.session.add_items([added]))
            newest = one.timed("last 10", one.session.get_items(limit=10))
            assert len(newest) == 10
            assert newest[-1] == added
    for one in contenders:
        start = time.perf_counter()
        one.loop.run(_writers(one.session, size))
        one.times[f"add, {WRITERS} at once"] = [(time.perf_counter() - start) * 1e3 / ROUNDS]


async def _writers(session: SessionABC, size: int) -> None:
    await asyncio.gather(*(_writer(session, size + ROUNDS * (number + 1)) for number in range(WRITERS)))


async def _writer(session: SessionABC, first: int) -> None:
    for number in range(ROUNDS // WRITERS):
        await session.add_items([item(first + number)])


def report(medians: dict[str, dict[int, list[float]]], contenders: list[Contender], sizes: list[int]) -> None:
    print(f"\n{'median in ms':<16}{'messages':>10}" + "".join(f"{one.name:>21}" for one in contenders), end="")
    print("   the first divided by the second, goal: at most 1, below it from 1,000 on")
    for what, by_size in medians.items():
        for size in sizes:
            ratio = by_size[size][0] / by_size[size][1]
            verdict = "ok" if ratio < 1 or (ratio <= 1 and size < 1_000) else "missed"
            print(f"{what:<16}{size:>10,}" + "".join(f"{took:>21.3f}" for took in by_size[size]), end="")
            print(f"   {ratio:.2f} {verdict}")
    print(f"\nGrowth with the thread; goal: at most {GOAL_GROWTH:g} times")
    for place, one in enumerate(contenders):
        for what, by_size in medians.items():
            growth = by_size[sizes[-1]][place] / by_size[sizes[0]][place]
            verdict = "ok" if growth <= GOAL_GROWTH else "missed"
            print(f"{one.name}: {what}: {growth:.2f} times from {sizes[0]:,} to {sizes[-1]:,} messages, {verdict}")


def run(folder: Path, sizes: list[int]) -> None:
    contenders = [ours(folder, "full"), theirs(folder), ours(folder, "normal"), limit(folder)]
    print(f"commonplace {commonplace.__version__}, openai-agents {version('openai-agents')}; {ROUNDS} rounds a size")
    for one in contenders:
        print(f"{one.name}: {one.durability}")
    medians: dict[str, dict[int, list[float]]] = {}
    for size in sizes:
        measure(contenders, size)
        for what in contenders[0].times:
            medians.setdefault(what, {})[size] = [one.median(what) for one in contenders]
    report(medians, contenders, sizes)
    for one in contenders:
        one.loop.close()
        one.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--folder", help="where the files are made, for another disk (default: the temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run(Path(folder), sorted(arguments.sizes))


if __name__ == "__main__":
    main()
