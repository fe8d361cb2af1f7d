"""Anthropic's memory stores through its SDK: all operations, rights, and the reach of keys."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import Anthropic, APIStatusError, BadRequestError, NotFoundError, PermissionDeniedError
from real_server import Server, start_server

import commonplace
from commonplace.server.http.api_keys import Key, Keys
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.http.service import Service
from commonplace.settings import Settings
from commonplace.space.rules import ACTIONS
from memory_store_calls import check_memories, check_stores, check_versions


@pytest.fixture(params=["file", "postgres"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Anthropic]:
    """The SDK at a service without keys, on each kind of book."""
    url: str | Path = tmp_path / "book.db"
    if request.param == "postgres":
        from postgres_server import empty, shared_book

        url = shared_book()
        empty(url)
    with commonplace.open(url, background=False) as book:
        server, key = serve(book)
        try:
            with sdk(server, key) as one:
                yield one
        finally:
            server.stop()


def serve(book: commonplace.Book) -> tuple[Server, str]:
    """A service, and a key of it with all rights."""
    keys = Keys(book.store)
    key = keys.create(Key("ana", ("user", "ana"), actions=frozenset(ACTIONS)))[1]
    gate = Gate(keys, Principal("local", ("user", "default"), "all"))
    return start_server(Service(book, gate, Settings())), key


def sdk(server: Server, key: str) -> Anthropic:
    return Anthropic(base_url=server.address, api_key=key, max_retries=0)


@pytest.mark.promise("memory-stores-through-the-sdk")
def test_the_sdk_drives_all_operations_on_stores(client: Anthropic) -> None:
    check_stores(client)


@pytest.mark.promise("memory-stores-through-the-sdk")
def test_the_sdk_drives_all_operations_on_memories(client: Anthropic) -> None:
    check_memories(client)


@pytest.mark.promise("memory-stores-through-the-sdk")
def test_the_sdk_drives_all_operations_on_versions(client: Anthropic) -> None:
    check_versions(client)


@pytest.mark.promise("memory-stores-are-files")
def test_a_memory_is_a_file_that_every_interface_sees_and_changes(
    server: Server, book: commonplace.Book, make_key: Any
) -> None:
    with sdk(server, make_key("ana", "user/ana")) as client:
        store = client.beta.memory_stores.create(name="notes").id
        made = client.beta.memory_stores.memories.create(store, path="/tea.md", content="Ana likes green tea")
        space = book.space("user", "ana", "memory_store", store)
        assert [hit.key for hit in space.search("green tea")] == ["/tea.md"]
        space.files.append("/tea.md", "and coffee")
        space.files.move("/tea.md", "/drinks/tea.md")
        found = client.beta.memory_stores.memories.retrieve(made.id, memory_store_id=store)
        assert (found.path, found.content) == ("/drinks/tea.md", "Ana likes green tea\nand coffee")
        space.files.write("/own.md", "written by another interface")
        paths = {one.path: one for one in client.beta.memory_stores.memories.list(store)}
        assert paths.keys() == {"/drinks/tea.md", "/own.md"}
        own = paths["/own.md"]
        assert own.type == "memory"
        assert own.id.startswith("mem_")
        space.undo(space.stats().commit)
        assert [one.path for one in client.beta.memory_stores.memories.list(store)] == ["/drinks/tea.md"]
        versions = [one.operation for one in client.beta.memory_stores.memory_versions.list(store, memory_id=made.id)]
        assert versions == ["modified", "modified", "created"]


def operations(client: Anthropic, store: str, memory: str, version: str) -> list[Any]:
    """All operations on a given store, those that change something last."""
    stores = client.beta.memory_stores
    place: dict[str, Any] = {"memory_store_id": store}
    return [
        lambda: stores.retrieve(store),
        lambda: list(stores.memories.list(store, view="full")),
        lambda: stores.memories.retrieve(memory, **place),
        lambda: list(stores.memory_versions.list(store, view="full")),
        lambda: stores.memory_versions.retrieve(version, **place),
        lambda: stores.update(store, name="taken"),
        lambda: stores.memories.create(store, path="/taken", content="x"),
        lambda: stores.memories.update(memory, **place, content="taken"),
        lambda: stores.archive(store),
        lambda: stores.memory_versions.redact(version, **place),
        lambda: stores.memories.delete(memory, **place),
        lambda: stores.delete(store),
    ]


@pytest.mark.promise("memory-stores-stay-in-reach")
@pytest.mark.parametrize("reach", ["own", "below"])
def test_no_key_reaches_the_store_of_another_namespace(server: Server, make_key: Any, reach: str) -> None:
    actions = ("read", "write", "delete", "admin")
    owner = sdk(server, make_key("ana", "team/ana", actions=actions, reach=reach))
    store = owner.beta.memory_stores.create(name="secret canary").id
    memory = owner.beta.memory_stores.memories.create(store, path="/canary", content="canary")
    owner.beta.memory_stores.memories.update(memory.id, memory_store_id=store, content="canary two")
    before = owner.beta.memory_stores.memories.retrieve(memory.id, memory_store_id=store)
    others = [
        "team/anabel",
        "team/bob",
        "team/ana/x",
        f"team/ana/memory_store/{store}",
        "team/ana/memory_store",
    ]
    for number, namespace in enumerate(others):
        other = sdk(server, make_key(f"key-{number}", namespace, actions=actions, reach=reach))
        own = other.beta.memory_stores.create(name="own").id
        mine = other.beta.memory_stores.memories.create(own, path="/own", content="own")
        for asked in (None, "team/ana", "team", "", "team/ana/..", f"team/ana/memory_store/{store}"):
            if asked == namespace:
                continue
            reached = other if asked is None else other.with_options(default_query={"namespace": asked})
            for call in operations(reached, store, memory.id, memory.memory_version_id):
                with pytest.raises(APIStatusError) as refused:
                    call()
                assert refused.value.status_code in (400, 403, 404)
            assert "canary" not in str(_listed(reached))
        in_own = operations(other, own, memory.id, memory.memory_version_id)
        for place in (2, 4, 7, 9, 10):  # those that name a memory or a version
            with pytest.raises(NotFoundError):
                in_own[place]()
        assert other.beta.memory_stores.memories.retrieve(mine.id, memory_store_id=own).content == "own"
    assert owner.beta.memory_stores.memories.retrieve(memory.id, memory_store_id=store) == before
    assert [one.id for one in owner.beta.memory_stores.list(include_archived=True)] == [store]


def _listed(client: Anthropic) -> list[Any]:
    try:
        return list(client.beta.memory_stores.list(include_archived=True))
    except APIStatusError:
        return []


def test_a_key_that_reaches_below_opens_the_stores_of_those_namespaces(server: Server, make_key: Any) -> None:
    inner = sdk(server, make_key("ana", "team/ana"))
    store = inner.beta.memory_stores.create(name="notes").id
    team = sdk(server, make_key("lead", "team", reach="below"))
    assert not list(team.beta.memory_stores.list())
    named = team.with_options(default_query={"namespace": "team/ana"})
    assert [one.id for one in named.beta.memory_stores.list()] == [store]


@pytest.mark.promise("memory-stores-need-rights")
def test_rights_hold_on_every_operation(server: Server, make_key: Any) -> None:
    full = sdk(server, make_key("full", "team/a", actions=("read", "write", "delete", "admin")))
    store = full.beta.memory_stores.create(name="notes").id
    memory = full.beta.memory_stores.memories.create(store, path="/a", content="first")
    full.beta.memory_stores.memories.update(memory.id, memory_store_id=store, content="second")
    allowed = {("read",): 5, ("read", "write"): 8, ("read", "write", "delete"): 8}
    for actions, count in allowed.items():
        client = sdk(server, make_key("-".join(actions), "team/a", actions=actions))
        for number, call in enumerate(operations(client, store, memory.id, memory.memory_version_id)[:10]):
            if number < count:
                call()
            elif number != 8 or len(actions) == 1:  # 8 would archive the store
                with pytest.raises(PermissionDeniedError):
                    call()
        if len(actions) > 1:
            for one in client.beta.memory_stores.memories.list(store):
                if one.type == "memory" and one.path == "/taken":
                    full.beta.memory_stores.memories.delete(one.id, memory_store_id=store)
    reader = sdk(server, make_key("reader", "team/a", actions=("read",)))
    with pytest.raises(PermissionDeniedError):
        reader.beta.memory_stores.create(name="no")
    writer = sdk(server, make_key("writer", "team/a", actions=("read", "write")))
    for call in operations(writer, store, memory.id, memory.memory_version_id)[10:]:
        with pytest.raises(PermissionDeniedError):
            call()
    assert httpx.get(f"{server.address}/v1/memory_stores").status_code == 401


@pytest.mark.promise("redacted-versions-are-erased")
def test_a_redacted_version_is_nowhere_in_the_file_and_its_neighbours_stay(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with commonplace.open(path, background=False) as book:
        server, key = serve(book)
        with sdk(server, key) as client:
            store = client.beta.memory_stores.create(name="notes").id
            memories, versions = client.beta.memory_stores.memories, client.beta.memory_stores.memory_versions
            made = memories.create(store, path="/a", content="common text with an apple")
            bad = memories.update(made.id, memory_store_id=store, content="common text with zebraquartz42")
            memories.update(made.id, memory_store_id=store, content="common text with a cherry")
            before = bad.updated_at
            versions.redact(bad.memory_version_id, memory_store_id=store)
            texts = [one.content for one in versions.list(store, view="full")]
            assert texts == ["common text with a cherry", None, "common text with an apple"]
            space = book.space("user", "ana", "memory_store", store)
            assert not space.search("zebraquartz42", as_of=before).hits or all(
                "zebraquartz42" not in hit.snippet for hit in space.search("zebraquartz42", as_of=before)
            )
            assert [hit.key for hit in space.search("apple", as_of=made.created_at)] == ["/a"]
            assert book.verify() == []
        server.stop()
    assert b"zebraquartz42" not in path.read_bytes()


def test_items_of_other_forms_and_cursors_of_nobody_are_refused_or_left_out(
    server: Server, book: commonplace.Book, make_key: Any
) -> None:
    with sdk(server, make_key("ana", "user/ana")) as client:
        stores = client.beta.memory_stores
        store = stores.create(name="notes").id
        memory = stores.memories.create(store, path="/a", content="x")
        whole = {"name": "x", "description": "", "metadata": {}, "archived": False, "archived_at": None}
        wrong = [
            5,
            {},
            {**whole, "metadata": 5},
            {**whole, "archived_at": "soon"},
            {**whole, "archived_at": "2026-01-01"},
        ]
        for number, value in enumerate(wrong):
            id = f"memstore_{number:032x}"
            book.space("user", "ana").items.put(f"memory_store/{id}", value)
            for call in (stores.retrieve, stores.archive, stores.delete, lambda id: stores.update(id, name="y")):
                with pytest.raises(NotFoundError):
                    call(id)
        assert [one.id for one in stores.list()] == [store]
        kept = {"memory": memory.id, "operation": "created", "commit": 1, "actor": None, "path": None}
        name = f"memory_version/{memory.memory_version_id}"
        for at in (5, "2026-01-01T00:00:00", "soon"):
            value = {**kept, "created_at": at, "redacted_at": None, "redacted_by": None}
            book.space("user", "ana", "memory_store", store).items.put(name, value, history=False)
            assert [one.id for one in stores.memory_versions.list(store)] == [memory.memory_version_id]
        for text in ("²:x", "1", "x", "9" * 19 + ":x"):
            page = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
            with pytest.raises(BadRequestError):
                stores.memory_versions.list(store, page=page)
            with pytest.raises(BadRequestError):
                stores.list(page=page)
