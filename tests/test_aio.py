"""The awaited library is the synchronous one, method by method."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from commonplace import Book, NotFound, Space, aio
from commonplace.space.files import Files
from commonplace.space.records import Records
from commonplace.space.threads import Threads
from commonplace.space.working_memory import WorkingMemories

MIRRORS = [
    (Book, aio.AsyncBook, {"store", "limits", "indexer"}),
    (Space, aio.AsyncSpace, set()),
    (Files, aio.AsyncFiles, {"make_parents", "has_below", "settle", "prepared", "place"}),
    (Records, aio.AsyncRecords, {"clean_tags", "wanted_tags", "prepared"}),
    (Threads, aio.AsyncThreads, {"default_resource", "reads_at_once"}),
    (WorkingMemories, aio.AsyncWorkingMemories, set()),
]


def public_names(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("plain", "awaited", "inner"), MIRRORS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_public_method_is_mirrored(plain: type, awaited: type, inner: set[str]) -> None:
    assert public_names(awaited) == public_names(plain) - inner


@pytest.mark.parametrize(("plain", "awaited", "inner"), MIRRORS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_mirrored_method_takes_the_same_arguments(plain: type, awaited: type, inner: set[str]) -> None:
    for name in public_names(awaited):
        one, other = getattr(plain, name), getattr(awaited, name)
        if inspect.isfunction(one):
            assert list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters)


def test_what_is_written_with_await_is_found_with_await() -> None:
    async def scenario() -> None:
        async with await aio.open(":memory:", background=False) as book:
            space = book.space("user", "u-1")
            await space.files.append("/notes/today", "hello")
            await space.remember("world")
            thread = await space.threads.create(title="talk")
            await space.threads.add(thread.id, [{"role": "user", "content": "good morning"}])
            assert [info.path async for info in space.files.walk()] == ["/notes", "/notes/today"]
            assert {hit.kind for hit in await space.search("hello world morning")} == {"file", "record", "message"}
            assert (await space.recall("world")).hits[0].kind == "record"
            with pytest.raises(NotFound):
                await space.files.read("/missing")

    asyncio.run(scenario())


def test_a_slow_write_does_not_stop_the_event_loop() -> None:
    async def scenario() -> int:
        async with await aio.open(":memory:", background=False) as book:
            space = book.space("user", "u-1")
            writes = asyncio.gather(*(space.files.append("/log", f"line {n}") for n in range(50)))
            turns = 0
            while not writes.done():
                turns += 1
                await asyncio.sleep(0)
            assert len((await space.files.read("/log")).splitlines()) == 50
            return turns

    assert asyncio.run(scenario()) > 50
