"""Writers through MCP: real clients over streamable HTTP, one profile each, and the answers that they got."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import httpx2
from mcp import Client, MCPError
from mcp_types import INTERNAL_ERROR
from servers_load import (
    CALL_SECONDS,
    CLAUDE_FILE,
    PAUSE_SECONDS,
    THREAD,
    UNIFIED_FILE,
    Writer,
    found,
    pages,
    read,
)

LOST = (httpx.TransportError, httpx2.TransportError, MCPError, OSError)
"""The errors of a client whose service was killed."""


class McpWriter(Writer):
    """A real client in its own session; if that breaks, in a new one with any service."""

    profile: str
    tool: str
    is_repeatable = False
    _pending: str | None = None

    @abstractmethod
    def arguments(self, word: str) -> dict[str, Any]: ...

    def write_until(self, stop: threading.Event) -> None:
        anyio.run(self._write_until, stop)

    async def _write_until(self, stop: threading.Event) -> None:
        while self._goes_on(stop):
            address = self._fleet.address()
            asked_at = time.monotonic()
            try:
                async with Client(f"{address}/mcp/{self.profile}", read_timeout_seconds=CALL_SECONDS) as client:
                    while self._goes_on(stop):
                        self._pending = self._pending or self.next_word()
                        asked_at = time.monotonic()
                        result = await client.call_tool(self.tool, self.arguments(self._pending))
                        self._hear(self._pending, str(result.content), is_error=bool(result.is_error))
            except Exception as error:  # noqa: BLE001 - the SDK wraps what broke in groups: each is looked at
                self.faults += [f"{self._pending}: {one!r}" for one in _causes(error) if not _is_lost(one)]
                if time.monotonic() - asked_at >= CALL_SECONDS and self._fleet.is_running(address):
                    self.faults.append(f"{self._pending}: no answer within {CALL_SECONDS} s")
                self._leave()
            await anyio.sleep(PAUSE_SECONDS)

    def _goes_on(self, stop: threading.Event) -> bool:
        return not self.faults and not (stop.is_set() and self._pending is None)

    def _hear(self, word: str, text: str, *, is_error: bool) -> None:
        if not is_error:
            self.acknowledged.append(word)
            self._pending = None
        elif "try again" in text or "is not known" in text:
            self._leave()
        else:
            self.faults.append(f"{word}: {text[:300]}")

    def _leave(self) -> None:
        """The call was not acknowledged, so it is repeated or left as it is."""
        if self._pending is not None and not self.is_repeatable:
            self.uncertain.append(self._pending)
            self._pending = None

    def call(self, reader: httpx.Client, tool: str, query: str) -> str:
        """The results of a search through this interface, in a separate session."""

        async def ask() -> Any:
            async with Client(f"{str(reader.base_url).rstrip('/')}/mcp/{self.profile}") as client:
                return await client.call_tool(tool, {"query": query})

        result = anyio.run(ask)
        assert not result.is_error, result.content
        return str(result.structured_content["items"])


def _causes(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [one for each in error.exceptions for one in _causes(each)]
    return [error]


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, LOST) and not (isinstance(error, MCPError) and error.code == INTERNAL_ERROR)


class McpRecords(McpWriter):
    """The same content again is the same record."""

    name, profile, tool, is_repeatable = "created", "records", "memory_create", True

    def arguments(self, word: str) -> dict[str, Any]:
        return {"type": "note", "content": {"text": word}, "source": "load://mcp", "confidence": 0.5}

    def words(self, reader: httpx.Client) -> Iterator[str]:
        for record in pages(reader, "/v1/records?type=note&limit=1000", "records"):
            if record["source"] == "load://mcp":
                yield record["content"]["text"]

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in self.call(reader, "memory_search", word)


class McpFacts(McpWriter):
    name, profile, tool = "fact", "facts", "manage_memory"

    def arguments(self, word: str) -> dict[str, Any]:
        return {"action": "create", "content": word}

    def words(self, reader: httpx.Client) -> Iterator[str]:
        for record in pages(reader, "/v1/records?type=fact&limit=1000", "records"):
            yield record["content"]

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in self.call(reader, "search_memory", word)


class McpMessages(McpWriter):
    name, order, profile, tool, is_repeatable = "said", 1, "conversations", "message_add", True

    def arguments(self, word: str) -> dict[str, Any]:
        return {"thread": THREAD, "messages": [{"id": word, "role": "user", "content": word}]}

    def words(self, reader: httpx.Client) -> Iterator[str]:
        for message in pages(reader, f"/v1/messages?thread={THREAD}&limit=1000", "messages"):
            if message["content"].startswith(self.name):
                yield message["content"]

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in self.call(reader, "conversation_search", word)


class McpAppends(McpWriter):
    """The unified tool: lines of one file that all append to."""

    name, order, profile, tool = "unified", 1, "files", "memory"

    def arguments(self, word: str) -> dict[str, Any]:
        return {"command": "append", "path": f"/{UNIFIED_FILE}", "content": word}

    def words(self, reader: httpx.Client) -> Iterator[str]:
        yield from read(reader, f"/v1/files/{UNIFIED_FILE}").text.splitlines()

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in found(reader, word, "file")


class McpInserts(McpWriter):
    """Claude's tool: lines inserted at the beginning of one file."""

    name, order, profile, tool = "claude", -1, "claude", "memory"

    def arguments(self, word: str) -> dict[str, Any]:
        return {"command": "insert", "path": f"/memories/{CLAUDE_FILE}", "insert_line": 0, "insert_text": f"{word}\n"}

    def words(self, reader: httpx.Client) -> Iterator[str]:
        yield from filter(None, read(reader, f"/v1/files/{CLAUDE_FILE}").text.splitlines())

    def finds(self, reader: httpx.Client, word: str) -> bool:
        return word in found(reader, word, "file")


MCP_INTERFACES: tuple[type[McpWriter], ...] = (McpRecords, McpFacts, McpMessages, McpAppends, McpInserts)
