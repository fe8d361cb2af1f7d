"""The Pydantic AI harness' memory on a book, with the real package. Its own tests are not in its package."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai_harness.memory import (
    InMemoryStore,
    Memory,
    MemoryConflictError,
    MemoryOperation,
    MemoryOperationConflictError,
    MemoryStore,
    MetadataMemoryStore,
    SearchableMemoryStore,
)

import commonplace
from commonplace.adapters.pydantic_ai import CommonplaceMemoryStore


async def scenario(store) -> list[object]:
    """A program over the protocol; what it sees must not depend on the store."""
    seen: list[object] = []
    first = await store.write("ana/tea.md", "green tea", expected_version=None)
    seen.append((first.replayed, first.existed))
    file = await store.read("ana/tea.md", max_chars=5)
    seen.append((file.content, file.truncated, file.version == first.version, file.operation_id, file.metadata))
    for wrong in (None, "nonsense"):
        with pytest.raises(MemoryConflictError):
            await store.write("ana/tea.md", "black", expected_version=wrong)
    operation = MemoryOperation("op-1", "f-1")
    seen.append(await store.get_operation(operation))
    second = await store.write("ana/tea.md", "black tea", expected_version=first.version, operation=operation)
    again = await store.write("ana/tea.md", "black tea", expected_version=first.version, operation=operation)
    known = await store.get_operation(operation)
    seen.append((second.existed, again.replayed, again.version == second.version == known.version, known.replayed))
    with pytest.raises(MemoryOperationConflictError):
        await store.write("ana/x", "other", expected_version=None, operation=MemoryOperation("op-1", "f-2"))
    seen.append((await store.read("ana/tea.md", max_chars=100)).operation_id)
    await store.write("ana/deep/note", "green tea again", expected_version=None)
    await store.write("bob/note", "green tea of bob", expected_version=None)
    seen.append(await store.list_paths("ana/", limit=10))
    seen.append(await store.list_paths(limit=2))
    found = await store.search("ana/", "tea", limit=5, max_files=100, max_chars=1_000, max_file_chars=1_000)
    seen.append([match.path for match in found.matches])
    with pytest.raises(MemoryConflictError):
        await store.delete("ana/tea.md", expected_version=first.version)
    gone = await store.delete("ana/tea.md", expected_version=second.version, operation=MemoryOperation("op-2", "f"))
    replay = await store.delete("ana/tea.md", expected_version=second.version, operation=MemoryOperation("op-2", "f"))
    seen.append((gone.version, gone.existed, replay.replayed, replay.existed))
    seen.append(await store.read("ana/tea.md", max_chars=10))
    back = await store.write_with_metadata("ana/tea.md", "x", expected_version=None, metadata={"by": "ana"})
    seen.append(((await store.read("ana/tea.md", max_chars=10)).metadata, back.existed))
    for wrong in ("../x", "a//b", "", "a/./b", "ä"):
        with pytest.raises(ValueError, match="path"):
            await store.write(wrong, "x", expected_version=None)
    return seen


def test_a_program_sees_the_same_as_with_the_harness_own_store(book: commonplace.Book) -> None:
    store = CommonplaceMemoryStore(book.space("user", "ana"))
    for protocol in (MemoryStore, MetadataMemoryStore, SearchableMemoryStore):
        assert isinstance(store, protocol)
    assert asyncio.run(scenario(store)) == asyncio.run(scenario(InMemoryStore()))


def test_of_many_writers_with_one_version_one_succeeds(book: commonplace.Book) -> None:
    store = CommonplaceMemoryStore(book.space("user", "ana"))

    async def race() -> list[object]:
        version = (await store.write("k", "0", expected_version=None)).version
        writes = [store.write("k", str(number), expected_version=version) for number in range(8)]
        return await asyncio.gather(*writes, return_exceptions=True)

    results = asyncio.run(race())
    assert sum(isinstance(result, MemoryConflictError) for result in results) == 7


def test_an_agent_remembers_with_it(book: commonplace.Book) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    store = CommonplaceMemoryStore(book.space("user", "ana"))
    agent = Agent(TestModel(call_tools=["write_memory"]), capabilities=[Memory(store=store)])
    asyncio.run(agent.run("remember that Ana likes tea"))
    assert asyncio.run(store.list_paths(limit=10))
