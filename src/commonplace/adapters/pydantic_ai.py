"""A memory store of the Pydantic AI harness on a space: `Memory(store=CommonplaceMemoryStore(space))`.

A memory file is an item with a version in it. The receipt of an operation is written in the same commit
as the change, so that a repeated operation is answered and not done again, whatever fails between.

Needs `pip install 'commonplace-memory[pydantic-ai]'`.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, cast

from commonplace.errors import ConfigurationError, InvalidInput, Outdated, install_command
from commonplace.space.items import Item, NewItem
from commonplace.space.names import ITEM, item_key_of
from commonplace.space.space import Space

try:
    from pydantic_ai_harness.memory import (
        MemoryConflictError,
        MemoryFile,
        MemoryMutation,
        MemoryOperation,
        MemoryOperationConflictError,
        MemorySearchMatch,
        MemorySearchResult,
    )
except ImportError as error:
    raise ConfigurationError(
        f"the Pydantic AI harness is not installed, or too old; run: {install_command('pydantic-ai')}"
    ) from error

__all__ = ["CommonplaceMemoryStore"]

RECEIPT_SECONDS = 24 * 60 * 60
"""How long an operation is remembered."""

MAX_HITS = 1_000
MAX_METADATA = 4_096
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]{1,200}")


class CommonplaceMemoryStore:
    """Versioned memory files, found by the search of the book; with metadata."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def read(self, path: str, *, max_chars: int) -> MemoryFile | None:
        if max_chars <= 0:
            raise InvalidInput("max_chars must be positive")
        (item,) = await asyncio.to_thread(self._space.items.get_all, [_file_key(path)])
        if item is None:
            return None
        value = cast("Mapping[str, Any]", item.value)
        return MemoryFile(
            content=value["content"][:max_chars],
            version=value["version"],
            operation_id=value["operation"],
            truncated=len(value["content"]) > max_chars,
            metadata=value["metadata"],
        )

    async def get_operation(self, operation: MemoryOperation) -> MemoryMutation | None:
        return await asyncio.to_thread(self._known, operation)

    async def write(
        self, path: str, content: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        return await self.write_with_metadata(
            path, content, expected_version=expected_version, metadata=None, operation=operation
        )

    async def write_with_metadata(
        self,
        path: str,
        content: str,
        *,
        expected_version: str | None,
        metadata: Mapping[str, str] | None,
        operation: MemoryOperation | None = None,
    ) -> MemoryMutation:
        value = {
            "content": content,
            "metadata": _check_metadata(metadata),
            "operation": None if operation is None else operation.id,
        }
        return await asyncio.to_thread(self._change, path, value, expected_version, operation)

    async def delete(
        self, path: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        return await asyncio.to_thread(self._change, path, None, expected_version, operation)

    def _change(
        self, path: str, value: dict[str, Any] | None, expected: str | None, operation: MemoryOperation | None
    ) -> MemoryMutation:
        """Write or delete a file, and the receipt with it, if the version is the expected one."""
        key = _file_key(path)
        if operation is not None and (known := self._known(operation)) is not None:
            return known
        (present,) = self._space.items.get_all([key])
        if expected != (None if present is None else cast("Any", present.value)["version"]):
            raise MemoryConflictError(f"{path} has another version than {expected}; read it again")
        version = None if value is None else uuid.uuid4().hex
        mutation = MemoryMutation(version=version, replayed=False, existed=present is not None)
        puts = [] if value is None else [NewItem(key, {**value, "version": version}, fields=["content"])]
        if operation is not None:
            receipt = {"fingerprint": operation.fingerprint, "version": version, "existed": mutation.existed}
            key_of_receipt = _receipt_key(operation)
            puts.append(NewItem(key_of_receipt, receipt, ttl_seconds=RECEIPT_SECONDS, revision=0, history=False))
        gone = [key] if value is None and present is not None else []
        if puts or gone:
            self._write(key, present, puts, gone, path)
        return mutation

    def _write(self, key: str, present: Item | None, puts: list[NewItem], gone: list[str], path: str) -> None:
        revision = 0 if present is None else present.revision
        try:
            self._space.expecting(ITEM, key, revision).items.write_all(puts, gone)
        except Outdated as error:
            raise MemoryConflictError(f"{path} was changed by another writer; read it again") from error

    def _known(self, operation: MemoryOperation) -> MemoryMutation | None:
        (receipt,) = self._space.items.get_all([_receipt_key(operation)])
        return None if receipt is None else _replayed(receipt, operation)

    async def list_paths(self, prefix: str = "", *, limit: int) -> list[str]:
        if limit <= 0:
            raise InvalidInput("limit must be positive")
        return await asyncio.to_thread(self._paths, prefix, limit)

    def _paths(self, prefix: str, limit: int) -> list[str]:
        if prefix:
            _check_path(prefix.removesuffix("/"))
        page = self._space.items.list(f"file/{prefix}", limit=min(limit, 10_000))
        return [item.key.removeprefix("file/") for item in page.items]

    async def search(
        self, prefix: str, query: str, *, limit: int, max_files: int, max_chars: int, max_file_chars: int
    ) -> MemorySearchResult:
        if limit <= 0 or max_files <= 0 or max_chars <= 0 or max_file_chars <= 0 or not query.strip():
            return MemorySearchResult(matches=[], scanned=0, truncated=False)
        return await asyncio.to_thread(self._search, prefix, query, limit, min(max_files, MAX_HITS), max_chars)

    def _search(self, prefix: str, query: str, limit: int, max_files: int, max_chars: int) -> MemorySearchResult:
        start = f"file/{prefix}"
        hits = self._space.search(query, kinds=[ITEM], limit=MAX_HITS, min_relevance="default")
        # What is deeper below the prefix belongs to another namespace or agent.
        found = [hit for hit in hits if hit.key.startswith(start) and "/" not in hit.key[len(start) :]][:max_files]
        matches: list[MemorySearchMatch] = []
        room = max_chars
        for hit in found[:limit]:
            path = hit.key.removeprefix("file/")
            room -= len(path.removeprefix(prefix))
            if room <= 0:
                break
            shown = hit.snippet[:room]
            matches.append(MemorySearchMatch(path=path, snippet=shown, score=hit.score))
            room -= len(shown)
        return MemorySearchResult(matches=matches, scanned=len(found), truncated=len(matches) < len(found))


def _replayed(receipt: Item, operation: MemoryOperation) -> MemoryMutation:
    value = cast("Mapping[str, Any]", receipt.value)
    if value["fingerprint"] != operation.fingerprint:
        raise MemoryOperationConflictError(f"the operation {operation.id} was used for another change")
    return MemoryMutation(version=value["version"], replayed=True, existed=value["existed"])


def _file_key(path: str) -> str:
    _check_path(path)
    return f"file/{path}"


def _check_path(path: str) -> None:
    segments = path.split("/") if isinstance(path, str) else [""]
    if not all(_SEGMENT.fullmatch(one) and ".." not in one and one != "." for one in segments):
        raise InvalidInput(f"invalid memory path: {path!r:.200}; its parts hold letters, digits and _ . - only")


def _receipt_key(operation: MemoryOperation) -> str:
    return f"operation/{item_key_of(operation.id)}"


def _check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    if not metadata:
        return None
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in metadata.items()):
        raise TypeError("memory metadata keys and values must be strings")
    size = len(json.dumps(dict(metadata), ensure_ascii=False))
    if size > MAX_METADATA:
        raise InvalidInput(f"memory metadata has {size:,} characters; at most {MAX_METADATA:,} are allowed")
    return dict(metadata)
