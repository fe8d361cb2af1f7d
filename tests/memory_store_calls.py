"""All 14 operations on Anthropic's memory stores through its SDK, with what each must answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from anthropic import Anthropic, BadRequestError, ConflictError, NotFoundError


def sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def check_stores(client: Anthropic) -> None:
    """The 6 operations on stores."""
    stores = client.beta.memory_stores
    made = stores.create(name="Notes of Ana", description="What Ana said", metadata={"user": "ana"})
    assert (made.type, made.name, made.description, made.metadata) == (
        "memory_store",
        "Notes of Ana",
        "What Ana said",
        {"user": "ana"},
    )
    assert made.id.startswith("memstore_")
    assert made.archived_at is None
    assert stores.retrieve(made.id) == made
    changed = stores.update(made.id, name="Notes", metadata={"user": None, "team": "a"})
    assert (changed.name, changed.description, changed.metadata) == ("Notes", "What Ana said", {"team": "a"})
    assert changed.created_at == made.created_at
    assert changed.updated_at > made.updated_at
    others = [stores.create(name=f"store {number}") for number in range(4)]
    assert [store.id for store in stores.list(limit=2)] == [*(store.id for store in reversed(others)), made.id]
    assert [store.id for store in stores.list(created_at_lte=made.created_at)] == [made.id]
    assert [store.id for store in stores.list(created_at_gte=others[3].created_at)] == [others[3].id]
    archived = stores.archive(others[0].id)
    assert archived.archived_at is not None
    assert stores.archive(others[0].id) == archived
    assert others[0].id not in [store.id for store in stores.list()]
    assert others[0].id in [store.id for store in stores.list(include_archived=True)]
    with pytest.raises(BadRequestError):
        stores.update(others[0].id, name="again")
    with pytest.raises(BadRequestError):
        stores.memories.create(others[0].id, path="/a", content="a")
    deleted = stores.delete(others[1].id)
    assert (deleted.id, deleted.type) == (others[1].id, "memory_store_deleted")
    for id in (others[1].id, "memstore_" + "0" * 32, "../x"):
        with pytest.raises(NotFoundError):
            stores.retrieve(id)
    with pytest.raises(BadRequestError):
        stores.create(name="x" * 256)
    with pytest.raises(BadRequestError):
        stores.create(name="x", metadata={str(number): "x" for number in range(17)})


def check_memories(client: Anthropic) -> None:
    """The 5 operations on memories."""
    store = client.beta.memory_stores.create(name="memories").id
    memories = client.beta.memory_stores.memories
    made = memories.create(store, path="/projects/tea.md", content="Ana likes tea ☕")
    assert (made.type, made.path, made.content, made.memory_store_id) == ("memory", "/projects/tea.md", None, store)
    assert made.content_sha256 == sha("Ana likes tea ☕")
    assert made.content_size_bytes == 17
    assert memories.retrieve(made.id, memory_store_id=store).content == "Ana likes tea ☕"
    assert memories.retrieve(made.id, memory_store_id=store, view="basic").content is None
    with pytest.raises(ConflictError) as taken:
        memories.create(store, path="/projects/tea.md", content="other")
    assert taken.value.body["error"]["type"] == "memory_path_conflict_error"  # type: ignore[index]

    changed = memories.update(made.id, memory_store_id=store, content="Ana likes coffee", view="full")
    assert changed.content == "Ana likes coffee"
    assert changed.id == made.id
    assert changed.memory_version_id != made.memory_version_id
    with pytest.raises(ConflictError) as outdated:
        memories.update(
            made.id,
            memory_store_id=store,
            content="lost",
            precondition={"type": "content_sha256", "content_sha256": made.content_sha256},
        )
    assert outdated.value.body["error"]["type"] == "memory_precondition_failed_error"  # type: ignore[index]
    moved = memories.update(
        made.id,
        memory_store_id=store,
        path="/drinks/coffee.md",
        content="Ana likes much coffee",
        precondition={"type": "content_sha256", "content_sha256": changed.content_sha256},
    )
    assert (moved.id, moved.path, moved.content_sha256) == (made.id, "/drinks/coffee.md", sha("Ana likes much coffee"))
    assert moved.created_at == made.created_at

    for path in ("/a.md", "/b/c.md", "/b/d/e.md", "/b-archive/f.md"):
        memories.create(store, path=path, content=path)
    every = ["/a.md", "/b/c.md", "/b/d/e.md", "/b-archive/f.md", "/drinks/coffee.md"]
    assert sorted(one.path for one in memories.list(store, limit=2)) == sorted(every)
    assert [one.path for one in memories.list(store, path_prefix="/b/")] == ["/b/c.md", "/b/d/e.md"]
    tops = [(one.type, one.path) for one in memories.list(store, depth=1, limit=1)]
    assert sorted(tops) == [
        ("memory", "/a.md"),
        ("memory_prefix", "/b-archive/"),
        ("memory_prefix", "/b/"),
        ("memory_prefix", "/drinks/"),
    ]
    below = [(one.type, one.path) for one in memories.list(store, path_prefix="/b/", depth=1)]
    assert below == [("memory", "/b/c.md"), ("memory_prefix", "/b/d/")]
    shown = next(iter(memories.list(store, path_prefix="/drinks/", view="full")))
    assert shown.type == "memory"
    assert shown.content == "Ana likes much coffee"

    with pytest.raises(ConflictError):
        memories.delete(made.id, memory_store_id=store, expected_content_sha256=made.content_sha256)
    assert memories.delete(made.id, memory_store_id=store, expected_content_sha256=moved.content_sha256).id == made.id
    for call in (memories.retrieve, memories.delete):
        with pytest.raises(NotFoundError):
            call(made.id, memory_store_id=store)
    for path in ("no-slash", "/", "/a//b", "/../b", "/x/../b", "/a\n", "/a\u2028b", "/e\u0301", "/" + "x/" * 21, "/a/"):
        with pytest.raises(BadRequestError):
            memories.create(store, path=path, content="x")
    assert memories.create(store, path="/empty", content="").content_size_bytes == 0


def check_versions(client: Anthropic) -> None:
    """The 3 operations on versions."""
    store = client.beta.memory_stores.create(name="versions").id
    memories, versions = client.beta.memory_stores.memories, client.beta.memory_stores.memory_versions
    made = memories.create(store, path="/secret", content="the first password")
    memories.update(made.id, memory_store_id=store, content="the second password")
    last = memories.update(made.id, memory_store_id=store, path="/moved")
    other = memories.create(store, path="/other", content="other")

    listed = list(versions.list(store, limit=1))
    assert [(one.operation, one.path) for one in listed] == [
        ("created", "/other"),
        ("modified", "/moved"),
        ("modified", "/secret"),
        ("created", "/secret"),
    ]
    assert [one.memory_id for one in listed] == [other.id, *[made.id] * 3]
    assert listed[1].id == last.memory_version_id
    assert listed[3].id == made.memory_version_id
    assert listed[3].content is None
    assert listed[3].content_sha256 == sha("the first password")
    actor = listed[0].created_by
    assert actor is not None
    assert actor.type == "api_actor"
    assert actor.api_key_id
    assert versions.retrieve(listed[2].id, memory_store_id=store).content == "the second password"
    assert [one.content for one in versions.list(store, memory_id=made.id, view="full")] == [
        "the second password",
        "the second password",
        "the first password",
    ]
    assert [one.id for one in versions.list(store, operation="created")] == [listed[0].id, listed[3].id]
    assert len(list(versions.list(store, api_key_id=actor.api_key_id))) == 4
    assert not list(versions.list(store, api_key_id="nobody"))
    assert not list(versions.list(store, session_id="s"))
    assert not list(versions.list(store, created_at_gte=datetime.now(UTC) + timedelta(hours=1)))
    assert len(list(versions.list(store, created_at_lte=listed[2].created_at))) == 2

    with pytest.raises(BadRequestError):
        versions.redact(last.memory_version_id, memory_store_id=store)
    redacted = versions.redact(listed[3].id, memory_store_id=store)
    assert (redacted.content, redacted.path, redacted.content_sha256, redacted.content_size_bytes) == (None,) * 4
    assert redacted.redacted_at is not None
    assert redacted.redacted_by is not None
    assert redacted.created_at == listed[3].created_at
    assert redacted.created_by == actor
    assert versions.redact(listed[3].id, memory_store_id=store) == redacted
    assert versions.retrieve(listed[3].id, memory_store_id=store) == redacted
    assert versions.retrieve(listed[2].id, memory_store_id=store).content == "the second password"

    memories.delete(made.id, memory_store_id=store)
    after = list(versions.list(store, memory_id=made.id))
    assert [one.operation for one in after] == ["deleted", "modified", "modified", "created"]
    assert (after[0].path, after[0].content_sha256, after[3].redacted_at) == ("/moved", None, redacted.redacted_at)
    assert versions.retrieve(after[0].id, memory_store_id=store) == after[0]
    versions.redact(after[1].id, memory_store_id=store)
    versions.redact(after[2].id, memory_store_id=store)
    again = list(versions.list(store))
    assert [(one.operation, one.path, one.redacted_at is not None) for one in again] == [
        ("deleted", "/moved", False),
        ("created", "/other", False),
        ("modified", None, True),
        ("modified", None, True),
        ("created", None, True),
    ]
    assert [one.id for one in versions.list(store, limit=2)] == [one.id for one in again]
    for id in ("memver_x", made.memory_version_id + "9", other.id):
        with pytest.raises(NotFoundError):
            versions.retrieve(id, memory_store_id=store)
    with pytest.raises(NotFoundError):
        versions.list(client.beta.memory_stores.create(name="empty").id + "0")
