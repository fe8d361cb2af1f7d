"""Agents in a folder of the test's own, with its clock and embedder; closed with the test."""

from __future__ import annotations

import pytest

import commonplace
from commonplace.agents import AgentMemories, BookOptions, MemoryConfig
from postgres_server import empty, shared_book


@pytest.fixture
def base(tmp_path):
    return tmp_path / "_tables" / "agents"


@pytest.fixture
def open_memories(base, clock, embedder):
    """Makes `AgentMemories`; words are its arguments, `config` those of `MemoryConfig`."""
    opened = []

    def open_one(base_folder=base, *, config=None, **options):
        books = BookOptions(embedder=embedder, clock=clock, durability="normal", background=False)
        place = {} if "book" in options else {"base_folder": base_folder, "options": books}
        memories = AgentMemories(**{**place, "config": MemoryConfig(**(config or {})), **options})
        opened.append(memories)
        return memories

    yield open_one
    for memories in opened:
        memories.close()


@pytest.fixture(params=["a folder each", "one shared book", "one shared database"])
def open_anywhere(request, open_memories, open_book):
    """`open_memories` on each kind of place."""
    url = None
    if request.param == "one shared database":
        url = shared_book()
        commonplace.open(url, background=False).close()  # the schema, where no test has made it yet
        empty(url)

    def open_one(**options):
        if request.param == "a folder each":
            return open_memories(**options)
        return open_memories(book=open_book(url), **options)

    return open_one


@pytest.fixture
def memories(open_anywhere):
    return open_anywhere()


@pytest.fixture
def memory(memories):
    return memories.get_agent_memory(memories.create_agent("Test agent"))
