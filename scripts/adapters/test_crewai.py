"""CrewAI's storage backend on a book, with the real package. It carries no suite for storage backends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError, StorageBackend
from crewai.memory.storage.factory import set_memory_storage_factory
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory
from shared_behaviour import AdapterBehaviour

import commonplace
from commonplace.adapters.crewai import CommonplaceStorage
from commonplace.space.names import label_of


def vector(text: str) -> list[float]:
    """A vector of the letters of a text."""
    return [text.casefold().count(letter) + 0.01 for letter in "abcdefghijklmnopqrstuvwxyz"]


def embed(texts: list[str]) -> list[list[float]]:
    return [vector(text) for text in texts]


def record(id: str, content: str, scope: str = "/", **more: object) -> MemoryRecord:
    return MemoryRecord(id=id, content=content, scope=scope, embedding=vector(content), **more)


class TestStorage(AdapterBehaviour):
    def write(self, book: commonplace.Book, owner: str, name: str, text: str) -> None:
        CommonplaceStorage(book.space("crew", label_of(owner))).save([record(name, text)])

    def read_all(self, book: commonplace.Book, owner: str) -> dict[str, str]:
        listed = CommonplaceStorage(book.space("crew", label_of(owner))).list_records(limit=1_000)
        return {one.id: one.content for one in listed}


@pytest.fixture
def storage(book: commonplace.Book) -> CommonplaceStorage:
    return CommonplaceStorage(book.space("crew"))


def test_it_is_a_storage_backend(storage: CommonplaceStorage) -> None:
    assert isinstance(storage, StorageBackend)


def test_a_record_comes_back_whole(storage: CommonplaceStorage) -> None:
    given = record(
        "a/1 ü", "tea", "/company/team", categories=["drinks"], metadata={"n": 1}, importance=0.9, source="s"
    )
    storage.save([given])
    assert storage.get_record("a/1 ü").model_dump() == given.model_dump()
    storage.update(given.model_copy(update={"content": "coffee"}))
    assert storage.get_record("a/1 ü").content == "coffee"
    assert storage.get_record("b") is None
    assert storage.count() == 1


def test_a_search_finds_the_nearest_that_pass_every_filter(storage: CommonplaceStorage) -> None:
    storage.save(
        [
            record("1", "green tea", "/a", categories=["drinks"], metadata={"by": "ana"}),
            record("2", "green tee", "/a/b", categories=["golf"], metadata={"by": "ana"}),
            record("3", "green tea", "/ab", categories=["drinks"], metadata={"by": "bob"}),
            record("4", "xylophon", "/a", categories=["music"]),
        ]
    )
    query = vector("green tea")
    assert [one.id for one, _ in storage.search(query, limit=2)] in (["1", "3"], ["3", "1"])
    assert [one.id for one, _ in storage.search(query, scope_prefix="/a")] == ["1", "2", "4"]
    assert [one.id for one, _ in storage.search(query, scope_prefix="/a/", categories=["golf", "music"])] == ["2", "4"]
    assert [one.id for one, _ in storage.search(query, metadata_filter={"by": "bob"})] == ["3"]
    assert [one.id for one, score in storage.search(query, "/a", min_score=0.99)] == ["1"]
    assert [one.id for one, _ in asyncio.run(storage.asearch(query, scope_prefix="/a/b"))] == ["2"]
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.search([1.0, 2.0])
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.save([MemoryRecord(content="short", embedding=[1.0])])
    assert storage.count() == 4


def test_records_are_deleted_by_age_scope_category_id_and_metadata(
    book: commonplace.Book, storage: CommonplaceStorage
) -> None:
    now = datetime(2026, 5, 1)

    def saved() -> None:
        storage.save(
            [
                record(
                    str(day),
                    f"day {day}",
                    f"/d/{day % 2}",
                    created_at=now - timedelta(days=day),
                    categories=[f"c{day}"],
                )
                for day in range(4)
            ]
        )

    def left() -> list[str]:
        return [one.id for one in storage.list_records()]

    saved()
    assert left() == ["0", "1", "2", "3"]
    assert [one.id for one in storage.list_records(limit=2, offset=1)] == ["1", "2"]
    assert storage.delete(older_than=now - timedelta(days=2)) == 1
    assert left() == ["0", "1", "2"]
    assert storage.delete(scope_prefix="/d/0", older_than=now) == 1
    assert left() == ["0", "1"]
    saved()
    assert storage.delete(categories=["c1", "c2"]) == 2
    assert storage.delete(record_ids=["3", "none"]) == 1
    assert left() == ["0"]
    assert asyncio.run(storage.adelete(record_ids=[])) == 0
    storage.reset("/other")
    assert left() == ["0"]
    saved()
    storage.reset()
    assert storage.count() == 0
    space = book.space("crew")
    space.undo(space.stats().commit)
    assert left() == ["0", "1", "2", "3"]


def test_scopes_and_categories_are_counted(storage: CommonplaceStorage) -> None:
    old, new = datetime(2026, 1, 1), datetime(2026, 2, 1)
    storage.save(
        [
            record("1", "x", "/a/b/c", categories=["p", "q"], created_at=old),
            record("2", "y", "/a", categories=["q"], created_at=new),
            record("3", "z", "/ab"),
        ]
    )
    assert storage.list_scopes() == ["/a", "/ab"]
    assert storage.list_scopes("/a") == ["/a/b"]
    assert storage.list_categories() == {"p": 1, "q": 2}
    assert storage.list_categories("/a/b") == {"p": 1, "q": 1}
    info = storage.get_scope_info("/a")
    assert (info.path, info.record_count, info.categories, info.child_scopes) == ("/a", 2, ["p", "q"], ["/a/b"])
    assert (info.oldest_record, info.newest_record) == (old, new)
    assert storage.get_scope_info("/none").record_count == 0
    assert [storage.count(scope) for scope in (None, "/", "/a", "/ab", "/a/b/c/d")] == [3, 3, 2, 1, 0]


@pytest.fixture
def factory(book: commonplace.Book) -> Iterator[None]:
    space = book.space("user", "ana")
    set_memory_storage_factory(lambda spec: CommonplaceStorage(space) if spec == "commonplace" else None)
    yield
    set_memory_storage_factory(None)


def test_crewai_remembers_recalls_and_forgets_through_the_factory(book: commonplace.Book, factory: None) -> None:
    memory = Memory(storage="commonplace", embedder=embed)
    for text, scope in (("Ana likes green tea", "/ana"), ("Deploys run on Tuesdays", "/ops")):
        memory.remember(text, scope=scope, categories=["facts"], importance=0.5, metadata={"n": 1})
    memory.drain_writes()
    found = memory.recall("green tea", depth="shallow", limit=1)
    assert [one.record.content for one in found] == ["Ana likes green tea"]
    assert [hit.kind for hit in book.space("user", "ana").search("green tea", limit=1)] == ["item"]
    assert memory.list_scopes() == ["/ana", "/ops"]
    assert memory.forget(scope="/ana") == 1
    assert [one.content for one in memory.list_records()] == ["Deploys run on Tuesdays"]
