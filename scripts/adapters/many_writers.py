"""Processes with threads that write through each adapter at once: nothing is lost, and nothing is doubled.

`python many_writers.py PROCESSES THREADS WRITES [--book URL]` prints a line for each adapter.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import commonplace


def langgraph_store(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from commonplace.adapters.langgraph import CommonplaceStore

    store = CommonplaceStore(book, prefix=("load",))

    def names() -> list[str]:
        found: list[str] = []
        while page := store.search(("a",), limit=1_000, offset=len(found)):
            found += [item.value["name"] for item in page]
        return found

    return lambda name: store.put(("a",), name, {"name": name}), names


def langgraph_saver(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from langgraph.checkpoint.base import empty_checkpoint

    from commonplace.adapters.langgraph import CommonplaceSaver

    saver = CommonplaceSaver(book.space("saver"))

    def write(name: str) -> None:
        checkpoint = {**empty_checkpoint(), "id": name, "channel_values": {"x": name}, "channel_versions": {"x": name}}
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saver.put(config, checkpoint, {"source": "loop", "step": 1}, {"x": name})

    def names() -> list[str]:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        return [one.checkpoint["channel_values"]["x"] for one in saver.list(config)]

    return write, names


def key_value(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from commonplace.adapters.key_value import CommonplaceKeyValue

    store = CommonplaceKeyValue(book.space("kv"))
    return lambda name: asyncio.run(store.put(name, {"n": 1})), lambda: asyncio.run(store.keys())


def chat_history(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from langchain_core.messages import HumanMessage

    from commonplace.adapters.langchain import CommonplaceChatHistory

    history = CommonplaceChatHistory(book.space("chat"), "c-1")
    return lambda name: history.add_message(HumanMessage(name)), lambda: [str(m.content) for m in history.messages]


def byte_store(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from commonplace.adapters.langchain import CommonplaceByteStore

    store = CommonplaceByteStore(book.space("bytes"))
    return lambda name: store.mset([(name, b"x")]), lambda: list(store.yield_keys())


ADAPTERS = {one.__name__: one for one in (langgraph_store, langgraph_saver, key_value, chat_history, byte_store)}


def open_book(url: str) -> commonplace.Book:
    if url.startswith("http"):
        return commonplace.connect(url)
    return commonplace.open(url, background=False, busy_seconds=120)


def write(url: str, adapter: str, process: int, threads: int, writes: int) -> None:
    with open_book(url) as book:
        put, _ = ADAPTERS[adapter](book)

        def run(thread: int) -> None:
            for number in range(writes):
                put(f"{process:02}-{thread:02}-{number:04}")

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(threads)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("processes", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("writes", type=int)
    parser.add_argument("--book")
    parser.add_argument("--only")
    parser.add_argument("--as-process", nargs=2)
    given = parser.parse_args()
    if given.as_process:
        write(given.book, given.as_process[0], int(given.as_process[1]), given.threads, given.writes)
        return 0
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for adapter in [given.only] if given.only else ADAPTERS:
            faults += check(given.book or str(Path(folder) / f"{adapter}.db"), adapter, given)
    return 1 if faults else 0


def check(url: str, adapter: str, given: argparse.Namespace) -> int:
    counts = [str(given.processes), str(given.threads), str(given.writes)]
    with open_book(url) as book:
        ADAPTERS[adapter](book)[0]("first")
    started = time.monotonic()
    running = [
        subprocess.Popen([sys.executable, __file__, *counts, "--book", url, "--as-process", adapter, str(process)])
        for process in range(given.processes)
    ]
    failed = sum(one.wait() != 0 for one in running)
    seconds = time.monotonic() - started
    wanted = {
        f"{process:02}-{thread:02}-{number:04}"
        for process in range(given.processes)
        for thread in range(given.threads)
        for number in range(given.writes)
    } | {"first"}
    with open_book(url) as book:
        found = ADAPTERS[adapter](book)[1]()
    lost, doubled = len(wanted - set(found)), len(found) - len(set(found))
    unknown = len(set(found) - wanted)
    print(
        f"{adapter}: {given.processes} processes x {given.threads} threads x {given.writes} writes, {lost} lost, "
        f"{doubled} doubled, {unknown} unknown, {failed} processes failed, {seconds:.1f} s",
        flush=True,
    )
    return lost + doubled + unknown + failed


if __name__ == "__main__":
    sys.exit(main())
