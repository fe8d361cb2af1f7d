"""CrewAI's memory on a space: a `StorageBackend`.

    set_memory_storage_factory(lambda spec: CommonplaceStorage(space) if spec == "commonplace" else None)
    crew = Crew(agents=…, tasks=…, memory=Memory(storage="commonplace"))

A memory is an item with the vector that CrewAI made, so `recall` works as with CrewAI's own storage. Every other
search of the book finds its text too, and what CrewAI replaces or deletes stays in history.

Needs `pip install 'commonplace-memory[crewai]'`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from commonplace.checks import JSON
from commonplace.errors import ConfigurationError, InvalidInput, install_command
from commonplace.space.items import Item, NewItem, item_of
from commonplace.space.names import ITEM, item_key_of
from commonplace.space.space import Space

try:
    from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
    from crewai.memory.types import MemoryRecord, ScopeInfo
except ImportError as error:
    raise ConfigurationError(f"CrewAI is not installed, or too old; run: {install_command('crewai')}") from error

__all__ = ["CommonplaceStorage"]

PREFIX = "crewai/"
PAGE = 1_000
_BELOW = chr(ord("/") + 1)
"""The first character after a slash: what lies between `/a/` and `/a0` is below `/a`."""


class CommonplaceStorage:
    """Memories of CrewAI in a space. `model` names the vectors; give each embedding model its own name."""

    def __init__(self, space: Space, *, model: str = "crewai") -> None:
        self._space = space
        self._model = model

    # Writes

    def save(self, records: list[MemoryRecord]) -> None:
        """Save records, all or none. One whose id is known replaces it."""
        if not records:
            return
        sizes = {len(record.embedding) for record in records if _has_vector(record)}
        stored = self._stored_size()
        for size in sizes:
            if stored not in (None, size) or len(sizes) > 1:
                raise EmbeddingDimensionMismatchError(stored or min(sizes), size if stored else max(sizes))
        for start in range(0, len(records), PAGE):
            self._space.items.write_all([self._new(record) for record in records[start : start + PAGE]])

    def update(self, record: MemoryRecord) -> None:
        """Replace the record with the same id."""
        self.save([record])

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that match everything that is given; without anything, all."""
        narrowed = _conditions(scope_prefix, older_than)
        if record_ids is None and not categories and not metadata_filter:
            return self._space.items.clear(PREFIX, filter=narrowed)
        wanted = None if record_ids is None else {_key(one) for one in record_ids}
        gone = [
            item.key
            for item in self._items(narrowed)
            if (wanted is None or item.key in wanted) and _matches(_record(item), categories, metadata_filter)
        ]
        for start in range(0, len(gone), PAGE):
            self._space.items.write_all([], gone[start : start + PAGE])
        return len(gone)

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete all records of a scope and below it. `Space.undo` brings them back."""
        self._space.items.clear(PREFIX, filter=_conditions(scope_prefix))

    def _new(self, record: MemoryRecord) -> NewItem:
        value: dict[str, JSON] = {
            "content": record.content,
            "scope": _scope(record.scope),
            "created": _time(record.created_at),
            "size": len(record.embedding) if _has_vector(record) else 0,
            "record": cast("JSON", record.model_dump(mode="json", exclude={"content"})),
        }
        vectors = [record.embedding] if value["size"] else []
        return NewItem(
            _key(record.id), value, fields=["content"], model=self._model if vectors else None, vectors=vectors
        )

    # Reads

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """The records whose vectors are nearest, with their cosine from 0 to 1."""
        found: list[tuple[MemoryRecord, float]] = []
        narrowed = _conditions(scope_prefix)
        offset = 0
        while len(found) < limit:
            hits = self._nearest(query_embedding, narrowed, offset)
            for hit in hits:
                if hit.score < min_score:
                    return found[:limit]
                record = _record(item_of(hit.entry))
                if hit.entry.key.startswith(PREFIX) and _matches(record, categories, metadata_filter):
                    found.append((record, hit.score))
            offset += len(hits)
            if len(hits) < PAGE:
                break
        return found[:limit]

    def _nearest(self, vector: Sequence[float], narrowed: Mapping[str, object], offset: int) -> Sequence[Any]:
        try:
            return self._space.search(
                vector=vector, model=self._model, kinds=[ITEM], filter=narrowed, limit=PAGE, offset=offset
            ).hits
        except InvalidInput:
            stored = self._stored_size()
            if stored is None or stored == len(vector):
                raise
            raise EmbeddingDimensionMismatchError(stored, len(vector)) from None

    def get_record(self, record_id: str) -> MemoryRecord | None:
        (found,) = self._space.items.get_all([_key(record_id)])
        return None if found is None else _record(found)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """The records of a scope and below it, the newest first."""
        if limit <= 0 or offset < 0:
            return []
        newest = heapq.nlargest(
            offset + limit, self._items(_conditions(scope_prefix)), key=lambda item: (_created(item), item.key)
        )
        return [_record(item) for item in newest[offset:]]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        records = [_record(item) for item in self._items(_conditions(scope))]
        times = sorted(record.created_at for record in records)
        return ScopeInfo(
            path=_scope(scope).rstrip("/") or "/",
            record_count=len(records),
            categories=sorted({category for record in records for category in record.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=_children(scope, records),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        return _children(parent, [_record(item) for item in self._items(_conditions(parent))])

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        return dict(Counter(one for item in self._items(_conditions(scope_prefix)) for one in _record(item).categories))

    def count(self, scope_prefix: str | None = None) -> int:
        return sum(1 for _ in self._items(_conditions(scope_prefix)))

    def _items(self, narrowed: Mapping[str, object]) -> Iterator[Item]:
        cursor: str | None = None
        while True:
            page = self._space.items.list(PREFIX, filter=narrowed, limit=PAGE, cursor=cursor)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return

    def _stored_size(self) -> int | None:
        """How many numbers the stored vectors have; None if there are none."""
        page = self._space.items.list(PREFIX, filter={"size": {"$gt": 0}}, limit=1)
        return int(cast("Any", page.items[0].value)["size"]) if page.items else None

    # The same for asyncio

    async def asave(self, records: list[MemoryRecord]) -> None:
        await asyncio.to_thread(self.save, records)

    async def asearch(
        self, query_embedding: list[float], *args: Any, **kwargs: Any
    ) -> list[tuple[MemoryRecord, float]]:
        return await asyncio.to_thread(partial(self.search, query_embedding, *args, **kwargs))

    async def adelete(self, *args: Any, **kwargs: Any) -> int:
        return await asyncio.to_thread(partial(self.delete, *args, **kwargs))


def _key(id: str) -> str:
    return PREFIX + item_key_of(id)


def _has_vector(record: MemoryRecord) -> bool:
    return bool(record.embedding) and any(record.embedding)


def _scope(scope: str) -> str:
    """A scope that begins and ends with a slash, so that `/a` does not hold `/ab`."""
    inner = scope.strip("/")
    return f"/{inner}/" if inner else "/"


def _conditions(scope: str | None, older_than: datetime | None = None) -> dict[str, object]:
    found: dict[str, object] = {}
    if scope is not None and scope.strip("/"):
        whole = _scope(scope)
        found["scope"] = {"$gte": whole, "$lt": whole[:-1] + _BELOW}
    if older_than is not None:
        found["created"] = {"$lt": _time(older_than)}
    return found


def _time(time: datetime) -> str:
    """A time as a text that sorts. CrewAI's times have no zone and are UTC."""
    whole = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return whole.isoformat(timespec="microseconds")


def _created(item: Item) -> str:
    return str(cast("Any", item.value)["created"])


def _record(item: Item) -> MemoryRecord:
    value = cast("Mapping[str, Any]", item.value)
    return MemoryRecord(content=value["content"], **value["record"])


def _matches(record: MemoryRecord, categories: list[str] | None, metadata: Mapping[str, Any] | None) -> bool:
    if categories and not set(categories).intersection(record.categories):
        return False
    return not metadata or all(record.metadata.get(name) == value for name, value in metadata.items())


def _children(parent: str, records: Sequence[MemoryRecord]) -> list[str]:
    above = _scope(parent)
    below = (_scope(record.scope) for record in records)
    return sorted({above + scope[len(above) :].partition("/")[0] for scope in below if scope != above})
