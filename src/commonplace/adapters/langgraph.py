"""LangGraph's long-term store and checkpointer on a book.

    graph = builder.compile(store=CommonplaceStore(book), checkpointer=CommonplaceSaver(book.space("agent", "a-1")))

`CommonplaceStore` is a `BaseStore`: its namespaces are namespaces of the book, its items are items there, with history,
undo and the search of the book. `CommonplaceSaver` is a `BaseCheckpointSaver`: it stores checkpoints as items of one
namespace, by default without history, and search does not see them. Nothing is unpickled.

Needs `pip install 'commonplace-memory[langgraph]'`.
"""

from __future__ import annotations

import asyncio
import base64
import math
import random
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

from commonplace.adapters.thread_items import storable
from commonplace.book import Book
from commonplace.checks import INT64, JSON, Namespace, check_namespace
from commonplace.errors import ConfigurationError, InvalidInput, install_command
from commonplace.space.items import MAX_ITEMS, Item, NewItem, item_of
from commonplace.space.names import ITEM, item_key_of, label_of, text_of_item_key, text_of_label
from commonplace.space.space import Space

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        ListNamespacesOp,
        PutOp,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        validate_op_namespace,
    )
    from langgraph.store.base import Item as StoreItem
except ImportError as error:
    raise ConfigurationError(
        f"langgraph-checkpoint is not installed, or too old; run: {install_command('langgraph')}"
    ) from error

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.store.base import MatchCondition, Op, Result

__all__ = ["CommonplaceSaver", "CommonplaceStore"]

PAGE = 1_000
KEYS = "langgraph"
"""The first part of the keys of checkpoints: other programs may keep items in the same space."""

_CHOICE = re.compile(r"\{([^{}]*)\}")


class CommonplaceStore(BaseStore):
    """Long-term memory of LangGraph. All its namespaces are below `prefix`, by default at the top of the book.

    With an `index`, searches use your embedding function; `model` is the name that its vectors are stored under.
    Without one, they use the search of the book, which needs no network. `ttl` is LangGraph's `TTLConfig`.
    """

    supports_ttl = True
    __slots__ = ("_book", "_embeddings", "_fields", "_model", "_prefix", "ttl_config")

    def __init__(
        self,
        book: Book,
        *,
        prefix: Sequence[str] = (),
        index: IndexConfig | None = None,
        model: str | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._book = book
        self._prefix: Namespace = check_namespace(prefix) if tuple(prefix) else ()
        self._embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        self._fields = None if index is None else list(index.get("fields") or ["$"])
        self._model = _model_name(index, model)
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        batch = _Batch(ops, self._texts_of)
        queries, texts = list(batch.queries), list(batch.texts)
        if self._embeddings is not None:
            batch.queries = {query: self._embeddings.embed_query(query) for query in queries}
            batch.texts = dict(zip(texts, self._embeddings.embed_documents(texts) if texts else (), strict=True))
        return self._run(batch)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        batch = _Batch(ops, self._texts_of)
        queries, texts = list(batch.queries), list(batch.texts)
        if self._embeddings is not None:
            found = await asyncio.gather(*(self._embeddings.aembed_query(query) for query in queries))
            batch.queries = dict(zip(queries, found, strict=True))
            made = await self._embeddings.aembed_documents(texts) if texts else []
            batch.texts = dict(zip(texts, made, strict=True))
        return await asyncio.to_thread(self._run, batch)

    def _texts_of(self, op: PutOp) -> list[str]:
        """The texts of a put that need a vector."""
        if self._embeddings is None or op.index is False or op.value is None:
            return []
        paths = self._fields or ["$"] if op.index is None else op.index
        return [text for path in paths for text in get_text_at_path(op.value, path) if text]

    def _run(self, batch: _Batch) -> list[Result]:
        """Answer the reads, then write: a batch reads what was there before it."""
        results: list[Result] = [self._read(op, batch) for op in batch.ops]
        for namespace, puts in batch.puts.items():
            deletes = [item_key_of(key) for key, op in puts.items() if op.value is None]
            written = [self._new(op, batch) for op in puts.values() if op.value is not None]
            self._space(namespace).items.write_all(written, deletes)
        return results

    def _read(self, op: Op, batch: _Batch) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, SearchOp):
            return self._search(op, batch)
        return self._list_namespaces(op) if isinstance(op, ListNamespacesOp) else None

    def _get(self, op: GetOp) -> StoreItem | None:
        items = self._space(op.namespace).items
        key = item_key_of(op.key)
        (found,) = items.get_all([key])
        if found is not None and found.ttl_seconds is not None and op.refresh_ttl:
            (found,) = items.refresh([key])
        return None if found is None else StoreItem(**self._fields_of(found))

    def _new(self, op: PutOp, batch: _Batch) -> NewItem:
        texts = self._texts_of(op)
        return NewItem(
            item_key_of(op.key),
            cast("JSON", op.value),
            fields=_search_fields(self._fields if op.index is None else op.index),
            ttl_seconds=None if op.ttl is None else op.ttl * 60,
            model=self._model if texts else None,
            vectors=[batch.texts[text] for text in texts],
        )

    def _search(self, op: SearchOp, batch: _Batch) -> list[SearchItem]:
        below = (*self._prefix, *map(label_of, op.namespace_prefix))
        where = _filter(op.filter)
        if where is None:
            return []
        op = op._replace(filter=where)
        found: list[tuple[Item, float | None]]
        if op.query:
            how: dict[str, Any] = {"query": op.query}
            if self._embeddings is not None:
                how = {"vector": batch.queries[op.query], "model": self._model}
            search = partial(self._book.search, **how, below=below, filter=op.filter, kinds=[ITEM])
            hits = _paged(search, op)
            # The cosine of an own embedding function can be negative, which a score of the book never is.
            scores = [hit.score if self._embeddings is None else hit.parts["meaning"] for hit in hits]
            found = [(item_of(hit.entry), score) for hit, score in zip(hits, scores, strict=True)]
            if self._embeddings is not None and len(found) < op.limit:
                found += self._without_vectors(op, below, len(found))
        else:
            listed = _paged(partial(self._book.list_items, below=below, filter=op.filter, history=True), op)
            found = [(item, None) for item in listed]
        if op.refresh_ttl:
            self._refresh([item for item, _ in found if item.ttl_seconds is not None])
        return [SearchItem(**self._fields_of(item), score=score) for item, score in found]

    def _without_vectors(self, op: SearchOp, below: Namespace, found: int) -> list[tuple[Item, float | None]]:
        """Items that have no vector of the model follow those that have one, as in LangGraph's own store."""
        every = op._replace(offset=0, limit=MAX_ITEMS)
        listed = _paged(partial(self._book.list_items, below=below, filter=op.filter, history=True), every)
        rest: list[tuple[Item, float | None]] = [(item, None) for item in listed if item.model != self._model]
        start = max(0, op.offset - (len(listed) - len(rest)))
        return rest[start : start + op.limit - found]

    def _refresh(self, items: Sequence[Item]) -> None:
        keys: dict[Namespace, list[str]] = {}
        for item in items:
            keys.setdefault(item.namespace, []).append(item.key)
        for namespace, some in keys.items():
            self._book.space(*namespace).items.refresh(some)

    def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found: dict[tuple[str, ...], None] = {}
        after: Namespace | None = None
        while page := self._book.namespaces(*self._prefix, after=after, limit=PAGE, kinds=[ITEM], history=True):
            for after in page:
                namespace = tuple(map(text_of_label, after[len(self._prefix) :]))
                if all(_matches(condition, namespace) for condition in op.match_conditions or ()):
                    found[namespace[: op.max_depth]] = None
        return sorted(found)[op.offset : op.offset + op.limit]

    def _space(self, namespace: Sequence[str]) -> Space:
        return self._book.space(*self._prefix, *map(label_of, namespace))

    def _fields_of(self, item: Item) -> dict[str, Any]:
        return {
            "namespace": tuple(map(text_of_label, item.namespace[len(self._prefix) :])),
            "key": text_of_item_key(item.key),
            "value": item.value,
            "created_at": item.created_at,
            "updated_at": item.updated_at,
        }


class _Batch:
    """Operations, of puts only the last one of each key, and the texts that need a vector."""

    def __init__(self, ops: Iterable[Op], texts_of: Callable[[PutOp], list[str]]) -> None:
        self.ops: list[Op] = []
        self.puts: dict[tuple[str, ...], dict[str, PutOp]] = {}
        self.queries: dict[str, Sequence[float]] = {}
        self.texts: dict[str, Sequence[float]] = {}
        for op in ops:
            validate_op_namespace(op)
            self.ops.append(op)
            if isinstance(op, PutOp):
                puts = self.puts.setdefault(op.namespace, {})
                puts.pop(op.key, None)
                puts[op.key] = op
            elif isinstance(op, SearchOp) and op.query:
                self.queries[op.query] = ()
        for puts in self.puts.values():
            for op in puts.values():
                self.texts.update(dict.fromkeys(texts_of(op), ()))


def _paged(read: Callable[..., Sequence[Any]], op: SearchOp) -> list[Any]:
    """What an operation asks for, in pages: one call gives at most PAGE."""
    found: list[Any] = []
    while (most := min(PAGE, op.limit - len(found))) > 0:
        page = read(limit=most, offset=op.offset + len(found))
        found += page
        if len(page) < most:
            break
    return found


_LARGEST = sys.float_info.max


def _filter(filter: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """LangGraph's filter for the book; None if nothing can match, because no value in a book equals what it names."""
    found: dict[str, Any] = {}
    for name, wanted in (filter or {}).items():
        conditions = dict(wanted) if isinstance(wanted, Mapping) else {"$eq": wanted}
        for operator, value in list(conditions.items()):
            if _is_storable(value):
                continue
            if operator == "$ne":
                del conditions[operator]  # everything differs from it
            elif not isinstance(value, (int, float)) or value != value:  # a text, or NaN
                return None
            elif (operator in ("$lt", "$lte") and value > 0) or (operator in ("$gt", "$gte") and value < 0):
                conditions[operator] = math.copysign(_LARGEST, value)
            else:
                return None
        if conditions or not isinstance(wanted, Mapping):
            found[name] = conditions
    return found


def _is_storable(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value in INT64 if isinstance(value, int) else bool(storable(value) == value)


def _model_name(index: IndexConfig | None, model: str | None) -> str | None:
    if index is None or model is not None:
        return model
    embed = index.get("embed")
    name = embed if isinstance(embed, str) else getattr(embed, "__qualname__", type(embed).__qualname__)
    return f"langgraph:{name}@{index.get('dims')}"


def _search_fields(paths: Sequence[str] | bool | None) -> tuple[str, ...] | None:
    """LangGraph's paths as the fields that our search sees: `{a,b}` becomes two paths, `$` is everything."""
    if paths is None or paths is True or (paths is not False and "$" in paths):
        return None
    found = list(() if paths is False else paths)
    while any(_CHOICE.search(path) for path in found):
        found = [
            path if choice is None else path[: choice.start()] + name.strip() + path[choice.end() :]
            for path in found
            for choice in [_CHOICE.search(path)]
            for name in (choice[1].split(",") if choice else [""])
        ]
    return tuple(dict.fromkeys(found))


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


# Checkpoints


class CommonplaceSaver(BaseCheckpointSaver[str]):
    """Checkpoints of LangGraph in a space: one item each, one for each value of a channel, one for each pending write.

    `history=True` keeps former states of replaced and deleted ones.
    """

    def __init__(self, space: Space, *, serde: SerializerProtocol | None = None, history: bool = False) -> None:
        super().__init__(serde=serde or JsonPlusSerializer())
        if getattr(self.serde, "pickle_fallback", False):
            raise InvalidInput("a serializer with pickle_fallback would run what the book holds; use one without")
        self._items = space.items
        self._history = history

    # Reads

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _thread_of(config), _namespace_of(config) or ""
        id = get_checkpoint_id(config)
        if id:
            (found,) = self._items.get_all([_key(thread, "c", namespace, id)])
        else:
            page = self._items.list(_key(thread, "c", namespace, ""), order="key", descending=True, limit=1)
            found = page.items[0] if page.items else None
        return None if found is None else self._tuple(found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        stop = get_checkpoint_id(before) if before else None
        wanted = get_checkpoint_id(config) if config else None
        count = 0
        for item in self._checkpoints(config):
            id = _parts(item.key)[-1]
            if (wanted and id != wanted) or (stop and id >= stop):
                continue
            if limit is not None and count >= limit:
                return
            if filter and not _has(self._loads(cast("Any", item.value)["metadata"]), filter):
                continue
            count += 1
            yield self._tuple(item)

    def _checkpoints(self, config: RunnableConfig | None) -> Iterable[Item]:
        """The items of checkpoints, the newest first."""
        if config is None:
            every = (item for item in self._pages(_key("")) if _parts(item.key)[1] == "c")
            return sorted(every, key=lambda item: _parts(item.key)[-1], reverse=True)
        thread, namespace = _thread_of(config), _namespace_of(config)
        if namespace is not None:
            return self._pages(_key(thread, "c", namespace, ""), descending=True)
        some = self._pages(_key(thread, "c", ""))
        return sorted(some, key=lambda item: _parts(item.key)[-1], reverse=True)

    def _pages(self, prefix: str, *, descending: bool = False) -> Iterator[Item]:
        cursor: str | None = None
        while True:
            page = self._items.list(prefix, order="key", descending=descending, limit=PAGE, cursor=cursor)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return

    def _tuple(self, item: Item) -> CheckpointTuple:
        thread, _, namespace, id = _parts(item.key)
        value = cast("Mapping[str, Any]", item.value)
        versions: Mapping[str, Any] = value["versions"]
        keys = {channel: _key(thread, "b", namespace, channel, str(version)) for channel, version in versions.items()}
        blobs = dict(zip(keys, self._items.get_all([*keys.values()]), strict=True))
        checkpoint = self._loads(value["checkpoint"])
        checkpoint["channel_values"] = {
            channel: self._loads(blob.value)
            for channel, blob in blobs.items()
            if blob is not None and blob.value is not False
        }
        parent = value["parent"]
        return CheckpointTuple(
            config=_config(thread, namespace, id),
            checkpoint=checkpoint,
            metadata=self._loads(value["metadata"]),
            parent_config=_config(thread, namespace, parent) if parent else None,
            pending_writes=[
                (write["task"], write["channel"], self._loads(write["data"]))
                for write in self._writes(thread, namespace, id)
            ],
        )

    def _writes(self, thread: str, namespace: str, id: str) -> Sequence[Mapping[str, Any]]:
        some = [cast("Mapping[str, Any]", item.value) for item in self._pages(_key(thread, "w", namespace, id, ""))]
        return sorted(some, key=lambda write: writes_sort_key(write["path"], write["task"], write["number"]))

    # Writes

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, namespace = _thread_of(config), _namespace_of(config) or ""
        bare = dict(checkpoint)
        values = cast("dict[str, Any]", bare.pop("channel_values"))
        puts = [
            # False is a channel that was emptied.
            self._new(
                _key(thread, "b", namespace, channel, str(version)),
                self._dumps(values[channel]) if channel in values else False,
            )
            for channel, version in new_versions.items()
        ]
        full = get_checkpoint_metadata(config, metadata)
        stored: dict[str, JSON] = {
            "checkpoint": self._dumps(bare),
            "metadata": self._dumps(full),
            "parent": config["configurable"].get("checkpoint_id"),
            "run": cast("JSON", full.get("run_id")),
            "versions": dict(checkpoint["channel_versions"]),
            "deltas": [*cast("Mapping[str, Any]", full.get("counters_since_delta_snapshot") or {})],
        }
        puts.append(self._new(_key(thread, "c", namespace, checkpoint["id"]), stored))
        self._items.write_all(puts)
        return _config(thread, namespace, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread, namespace = _thread_of(config), _namespace_of(config) or ""
        id = config["configurable"]["checkpoint_id"]
        new: dict[str, NewItem] = {}
        for place, (channel, value) in enumerate(writes):
            number = WRITES_IDX_MAP.get(channel, place)
            key = _key(thread, "w", namespace, id, task_id, str(number))
            stored: dict[str, JSON] = {"task": task_id, "number": number, "channel": channel, "path": task_path}
            new[key] = self._new(key, {**stored, "data": self._dumps(value)})
        known = self._items.get_all([*new])
        # A write that is there stays, unless it is of a special channel, such as an error.
        missing = [
            put
            for put, there in zip(new.values(), known, strict=True)
            if there is None or cast("Any", put.value)["number"] < 0
        ]
        if missing:
            self._items.write_all(missing)

    def _new(self, key: str, value: JSON) -> NewItem:
        return NewItem(key, value, fields=(), history=self._history)

    def delete_thread(self, thread_id: str) -> None:
        self._items.clear(_key(thread_id, ""))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        wanted = set(map(str, run_ids))
        threads: dict[str, set[str]] = {}
        for item in self._pages(_key("")):
            parts = _parts(item.key)
            if parts[1] == "c" and cast("Any", item.value)["run"] in wanted:
                threads.setdefault(parts[0], set()).add(item.key)
        for thread, gone in threads.items():
            self._keep(thread, lambda item, gone=gone: item.key not in gone)  # type: ignore[misc]

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f'strategy must be "keep_latest" or "delete", not {strategy!r:.100}')
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            kept = self._latest_with_deltas(thread)
            self._keep(thread, lambda item, kept=kept: item.key in kept)  # type: ignore[misc]

    def _latest_with_deltas(self, thread: str) -> set[str]:
        """The latest checkpoint of each namespace, and the ones before it that its delta channels are rebuilt from."""
        items = {item.key: item for item in self._pages(_key(thread, "c", ""))}
        blobs = {item.key for item in self._pages(_key(thread, "b", "")) if item.value is not False}
        latest = {_parts(key)[2]: key for key in sorted(items)}
        kept: set[str] = set()
        for namespace, key in latest.items():
            needed: set[str] | None = None
            while key in items and (needed is None or needed):
                kept.add(key)
                value = cast("Mapping[str, Any]", items[key].value)
                needed = set(value["deltas"]) if needed is None else needed
                needed -= {
                    channel
                    for channel in needed
                    if _key(thread, "b", namespace, channel, str(value["versions"].get(channel))) in blobs
                }
                key = _key(thread, "c", namespace, str(value["parent"]))
        return kept

    def _keep(self, thread: str, is_kept: Callable[[Item], bool]) -> None:
        """Delete the other checkpoints of a thread, with their writes and the values that no kept one has."""
        checkpoints = [*self._pages(_key(thread, "c", ""))]
        kept = [item for item in checkpoints if is_kept(item)]
        ids = {tuple(_parts(item.key)[2:]) for item in kept}
        values = {
            _key(thread, "b", _parts(item.key)[2], channel, str(version))
            for item in kept
            for channel, version in cast("Any", item.value)["versions"].items()
        }
        gone = [item.key for item in checkpoints if tuple(_parts(item.key)[2:]) not in ids]
        gone += [item.key for item in self._pages(_key(thread, "w", "")) if tuple(_parts(item.key)[2:4]) not in ids]
        gone += [item.key for item in self._pages(_key(thread, "b", "")) if item.key not in values]
        for start in range(0, len(gone), PAGE):
            self._items.write_all([], gone[start : start + PAGE])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        copies = [
            self._new(_key(target_thread_id, *_parts(item.key)[1:]), item.value)
            for item in self._pages(_key(source_thread_id, ""))
        ]
        for start in range(0, len(copies), PAGE):
            self._items.write_all(copies[start : start + PAGE])

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        # Two runs may continue from one checkpoint, and must not write the same version.
        last = 0 if current is None else int(str(current).partition(".")[0])
        return f"{last + 1:032}.{random.random():.16f}"

    def _dumps(self, value: Any) -> JSON:
        type, data = self.serde.dumps_typed(value)
        return [type, base64.b64encode(data).decode()]

    def _loads(self, stored: Any) -> Any:
        type, data = stored
        if type == "pickle":
            raise InvalidInput("this checkpoint holds a pickle, which is never loaded")
        return self.serde.loads_typed((type, base64.b64decode(data)))

    # The same for asyncio

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(partial(self.prune, thread_ids, strategy=strategy))


def _key(*parts: str) -> str:
    """A key whose parts can hold any text: thread, what it is (c, b or w), namespace of the graph, and the rest."""
    return "/".join((KEYS, *(quote(part, safe="") for part in parts)))


def _parts(key: str) -> list[str]:
    return [unquote(part) for part in key.split("/")[1:]]


def _thread_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _namespace_of(config: RunnableConfig) -> str | None:
    return config["configurable"].get("checkpoint_ns")


def _config(thread: str, namespace: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": id}}


def _has(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    return all(metadata.get(name) == wanted for name, wanted in filter.items())
