"""Processes with threads that write through each adapter at once: nothing is lost, and nothing is doubled.

`python many_writers.py PROCESSES THREADS WRITES ADAPTER…` prints a line for each adapter, on a file, on PostgreSQL and
over a service.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


def openai_session(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from commonplace.adapters.openai_agents import CommonplaceSession

    session = CommonplaceSession(book.space("openai"), "s-1")
    return (
        lambda name: asyncio.run(session.add_items([{"role": "user", "content": name}])),
        lambda: [item["content"] for item in asyncio.run(session.get_items())],
    )


def pydantic_ai(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from commonplace.adapters.pydantic_ai import CommonplaceMemoryStore

    store = CommonplaceMemoryStore(book.space("pydantic"))
    return (
        lambda name: asyncio.run(store.write(name, name, expected_version=None)),
        lambda: asyncio.run(store.list_paths(limit=10_000)),
    )


def strands(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from strands.types.session import SessionAgent

    from commonplace.adapters.strands import CommonplaceSessionRepository

    space = book.space("strands")
    repository = CommonplaceSessionRepository(space)
    return (
        lambda name: repository.create_agent("s-1", SessionAgent(name, {}, {})),
        lambda: [item.value["agent_id"] for item in all_items(space)],
    )


def llama_index(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from llama_index.core.base.llms.types import ChatMessage

    from commonplace.adapters.llama_index import CommonplaceChatStore

    store = CommonplaceChatStore(space=book.space("llama"))
    return (
        lambda name: store.add_message("c-1", ChatMessage(role="user", content=name)),
        lambda: [message.content for message in store.get_messages("c-1")],
    )


def google_adk(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from commonplace.adapters.google_adk import CommonplaceSessionService

    service = CommonplaceSessionService(book)
    return (
        lambda name: asyncio.run(service.create_session(app_name="app", user_id="ana", session_id=name)),
        lambda: [one.id for one in asyncio.run(service.list_sessions(app_name="app", user_id="ana")).sessions],
    )


def agent_framework(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from agent_framework import Content, Message

    from commonplace.adapters.agent_framework import CommonplaceHistoryProvider

    history = CommonplaceHistoryProvider(book.space("framework"))

    def write(name: str) -> None:
        asyncio.run(history.save_messages("s-1", [Message(role="user", contents=[Content.from_text(name)])]))

    return write, lambda: [message.text for message in asyncio.run(history.get_messages("s-1"))]


def crewai(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from crewai.memory.types import MemoryRecord

    from commonplace.adapters.crewai import CommonplaceStorage

    storage = CommonplaceStorage(book.space("crew"))
    return (
        lambda name: storage.save([MemoryRecord(id=name, content=name, embedding=[1.0, 2.0])]),
        lambda: [record.id for record in storage.list_records(limit=10_000)],
    )


def hermes(book: commonplace.Book) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    from commonplace.adapters.hermes import CommonplaceMemoryProvider
    from commonplace.adapters.thread_items import ThreadItems

    space = book.space("hermes")
    provider = CommonplaceMemoryProvider(space)
    provider.initialize("s-1")

    def write(name: str) -> None:
        provider.sync_turn(name, "")
        provider.on_session_end([])

    return write, lambda: [item["content"] for item in ThreadItems(space, "s-1").read()]


def all_items(space: commonplace.Space) -> Iterator[Any]:
    cursor = None
    while True:
        page = space.items.list(limit=1_000, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


ADAPTERS = {
    one.__name__: one
    for one in (
        *(langgraph_store, langgraph_saver, key_value, chat_history, byte_store, openai_session, pydantic_ai),
        *(strands, llama_index, google_adk, agent_framework, crewai, hermes),
    )
}
BOOKS = ("file", "postgres", "service")


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
    parser.add_argument("adapters", nargs="*")
    parser.add_argument("--on", choices=BOOKS, action="append")
    parser.add_argument("--book")
    parser.add_argument("--as-process", nargs=2)
    given = parser.parse_args()
    if given.as_process:
        write(given.book, given.as_process[0], int(given.as_process[1]), given.threads, given.writes)
        return 0
    faults = 0
    for adapter in given.adapters:
        for kind in given.on or BOOKS:
            with opened(kind) as url:
                faults += check(url, adapter, kind, given)
    return 1 if faults else 0


@contextmanager
def opened(kind: str) -> Iterator[str]:
    """The address of an empty book."""
    if kind == "postgres":
        from postgres_server import empty, shared_book

        empty(shared_book())
        yield shared_book()
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "book.db")
        if kind == "file":
            yield path
            return
        from conftest import serving

        with serving(path) as address:
            yield address


def check(url: str, adapter: str, kind: str, given: argparse.Namespace) -> int:
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
        f"{adapter} on {kind}: {given.processes} processes x {given.threads} threads x {given.writes} writes, "
        f"{lost} lost, {doubled} doubled, {unknown} unknown, {failed} processes failed, {seconds:.1f} s",
        flush=True,
    )
    return lost + doubled + unknown + failed


if __name__ == "__main__":
    sys.exit(main())
