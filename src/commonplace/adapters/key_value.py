"""py-key-value's `AsyncKeyValue` on a space, such as FastMCP uses it for caches and tokens.

    store = CommonplaceKeyValue(book.space("app", "fastmcp"))
    await store.put("token", {"secret": "…"}, collection="clients", ttl=3600)

Values are not searched and have no history, unless you ask for it. Needs `pip install 'commonplace-memory[key-value]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, SupportsFloat, cast
from urllib.parse import quote, unquote

from commonplace.checks import check_json
from commonplace.errors import ConfigurationError, install_command
from commonplace.space.items import MAX_ITEMS, Item, NewItem
from commonplace.space.space import Space

try:
    from key_value.aio.errors import InvalidTTLError
except ImportError as error:
    raise ConfigurationError(f"py-key-value-aio is not installed; run: {install_command('key-value')}") from error

__all__ = ["CommonplaceKeyValue"]

Value = dict[str, Any]


class CommonplaceKeyValue:
    """Objects by collection and key. With `history=True`, search finds them and former states are kept."""

    def __init__(self, space: Space, *, default_collection: str = "default_collection", history: bool = False) -> None:
        self._items = space.items
        self._default = default_collection
        self._history = history

    async def get(self, key: str, *, collection: str | None = None) -> Value | None:
        return (await self.get_many([key], collection=collection))[0]

    async def get_many(self, keys: Sequence[str], *, collection: str | None = None) -> list[Value | None]:
        return [value for value, _ in await self.ttl_many(keys, collection=collection)]

    async def ttl(self, key: str, *, collection: str | None = None) -> tuple[Value | None, float | None]:
        return (await self.ttl_many([key], collection=collection))[0]

    async def ttl_many(
        self, keys: Sequence[str], *, collection: str | None = None
    ) -> list[tuple[Value | None, float | None]]:
        found = await asyncio.to_thread(self._items.get_all, self._keys(keys, collection))
        return [(None, None) if item is None else (cast("Value", item.value), _seconds_left(item)) for item in found]

    async def put(
        self,
        key: str,
        value: Mapping[str, Any],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        await self.put_many([key], [value], collection=collection, ttl=ttl)

    async def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[Mapping[str, Any]],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        if len(keys) != len(values):
            raise ValueError("put_many called but a different number of keys and values were provided")
        seconds = _ttl(ttl)
        for value in values:
            check_json("value", dict(value))
        puts = [
            NewItem(key, dict(value), ttl_seconds=seconds, history=self._history)
            for key, value in zip(self._keys(keys, collection), values, strict=True)
        ]
        await asyncio.to_thread(self._items.write_all, puts)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        (stored,) = self._keys([key], collection)
        return await asyncio.to_thread(self._items.delete, stored) is not None

    async def delete_many(self, keys: Sequence[str], *, collection: str | None = None) -> int:
        return sum([await self.delete(key, collection=collection) for key in dict.fromkeys(keys)])

    # Further protocols of the package

    async def keys(self, collection: str | None = None, *, limit: int | None = None) -> list[str]:
        """The keys of a collection, in order."""
        prefix = _key(collection or self._default, "")
        found = await asyncio.to_thread(lambda: [item.key for item in self._pages(prefix)])
        return [unquote(key[len(prefix) :]) for key in found[:limit]]

    async def collections(self, *, limit: int | None = None) -> list[str]:
        """The collections that hold something, in order."""
        found = await asyncio.to_thread(lambda: dict.fromkeys(item.key.partition("/")[0] for item in self._pages("")))
        return [unquote(name) for name in found][:limit]

    async def destroy_collection(self, collection: str) -> bool:
        """Delete everything in a collection; return whether there was something."""
        return await asyncio.to_thread(self._items.clear, _key(collection, "")) > 0

    async def cull(self) -> None:
        """Does nothing: what has expired is gone."""

    def _pages(self, prefix: str) -> Iterator[Item]:
        cursor: str | None = None
        while True:
            page = self._items.list(prefix, limit=1_000, cursor=cursor)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return

    def _keys(self, keys: Sequence[str], collection: str | None) -> list[str]:
        if len(keys) > MAX_ITEMS:
            raise ValueError(f"one call takes at most {MAX_ITEMS:,} keys")
        return [_key(collection or self._default, key) for key in keys]


def _key(collection: str, key: str) -> str:
    return f"{quote(collection, safe='')}/{quote(key, safe='')}"


def _ttl(ttl: SupportsFloat | None) -> float | None:
    if ttl is None:
        return None
    try:
        seconds = float(ttl)
    except (TypeError, ValueError):
        raise InvalidTTLError(ttl=ttl) from None
    if isinstance(ttl, bool) or seconds <= 0:
        raise InvalidTTLError(ttl=ttl)
    return seconds


def _seconds_left(item: Item) -> float | None:
    return None if item.expires_at is None else max(0.0, (item.expires_at - datetime.now(UTC)).total_seconds())
