"""Claude's memory tool for the Anthropic SDK's tool runner: `client.beta.messages.tool_runner(tools=[…])`.

Needs `pip install 'commonplace-memory[anthropic]'`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from commonplace.errors import ConfigurationError, install_command
from commonplace.space.space import Space
from commonplace.tools.claude import ClaudeMemoryTool, WordingName
from commonplace.tools.memory_store import InMemoryMemoryStore, MemoryStore
from commonplace.tools.tool import ANSWER_CHARACTERS

try:
    from anthropic.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anyio.to_thread import run_sync
except ImportError as error:
    raise ConfigurationError(
        f"the Anthropic SDK is not installed, or too old; run: {install_command('anthropic')}"
    ) from error

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )
    from pydantic import BaseModel

__all__ = ["AnthropicMemoryTool", "AsyncAnthropicMemoryTool"]

_CLEARED = "All memory cleared"


class AnthropicMemoryTool(BetaAbstractMemoryTool):
    """The memory tool for `Anthropic` clients, over a space or a memory store, by default one in memory."""

    def __init__(
        self,
        store: MemoryStore | Space | None = None,
        *,
        wording: WordingName = "anthropic",
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self.tool = _tool(store, wording)

    def call(self, input: object) -> str:
        return _answer(self.tool, input)

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        return self.call(_arguments(command))

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        return self.call(_arguments(command))

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return self.call(_arguments(command))

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return self.call(_arguments(command))

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        return self.call(_arguments(command))

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        return self.call(_arguments(command))

    def clear_all_memory(self) -> str:
        self.tool.store.clear()
        return _CLEARED


class AsyncAnthropicMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for `AsyncAnthropic` clients. It works in a worker thread."""

    def __init__(
        self,
        store: MemoryStore | Space | None = None,
        *,
        wording: WordingName = "anthropic",
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self.tool = _tool(store, wording)

    async def call(self, input: object) -> str:
        return await run_sync(_answer, self.tool, input)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        return await self.call(_arguments(command))

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        return await self.call(_arguments(command))

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return await self.call(_arguments(command))

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return await self.call(_arguments(command))

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        return await self.call(_arguments(command))

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        return await self.call(_arguments(command))

    async def clear_all_memory(self) -> str:
        await run_sync(self.tool.store.clear)
        return _CLEARED


def _tool(store: MemoryStore | Space | None, wording: WordingName) -> ClaudeMemoryTool:
    made = InMemoryMemoryStore() if store is None else store
    return ClaudeMemoryTool(made, wording, max_characters=ANSWER_CHARACTERS)


def _arguments(command: BaseModel) -> dict[str, object]:
    return command.model_dump(exclude_unset=True)


def _answer(tool: ClaudeMemoryTool, arguments: object) -> str:
    """The tool's text. The runner turns a ToolError into a result with `is_error`."""
    answer = tool.call(cast("Mapping[str, object]", arguments))
    if answer.is_error:
        raise ToolError(answer.text)
    return answer.text
