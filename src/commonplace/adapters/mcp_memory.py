"""A memory tool on your own MCP server, in one line.

`enable_memory(server)` adds Claude's tool, `enable_unified_memory(server, tool)` the unified one, whose thread id is
`_meta.threadId` of a call. The server is an `MCPServer` of the package `mcp`
(`pip install 'commonplace-memory[mcp]'`) or a `FastMCP` of the package `fastmcp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.errors import AlreadyExists, ConfigurationError, InvalidInput, install_command
from commonplace.space.space import Space
from commonplace.tools.claude import ClaudeMemoryTool, WordingName
from commonplace.tools.memory_store import InMemoryMemoryStore, MemoryStore
from commonplace.tools.tool import ANSWER_CHARACTERS, ToolAnswer, memory_protocol
from commonplace.tools.unified import UnifiedMemoryTool

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp.server.mcpserver import Context, MCPServer

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What model APIs accept."""

__all__ = ["enable_memory", "enable_unified_memory"]


@dataclass(frozen=True)
class _Served:
    """A tool as a server needs it. `call` takes the arguments and the thread id."""

    name: str
    description: str
    input_schema: dict[str, Any]
    call: Callable[[dict[str, Any], str | None], ToolAnswer]
    title: str | None = None


def enable_memory(
    server: MCPServer | FastMCP[Any],
    store: MemoryStore | Space | None = None,
    *,
    wording: WordingName = "seed",
    name: str = ClaudeMemoryTool.name,
) -> ClaudeMemoryTool:
    """Add Claude's tool to a server, over a space or a memory store, by default one in memory; returns the tool."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(f"a tool's name must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -, not {name!r:.100}")
    made = InMemoryMemoryStore() if store is None else store
    tool = ClaudeMemoryTool(made, wording, max_characters=ANSWER_CHARACTERS)
    served = _Served(name, tool.description, tool.input_schema, lambda arguments, _: tool.call(arguments))
    _serve(server, served, lambda: memory_protocol("claude", tool_name=name, root=tool.root))
    return tool


def enable_unified_memory(server: MCPServer | FastMCP[Any], tool: UnifiedMemoryTool) -> None:
    """Add the unified tool to a server. With the perThread scope, a call must name its thread.

    A tool without `max_characters` gets a default, so that no answer fills the client's context.
    """
    if tool.max_characters is None:
        tool.max_characters = ANSWER_CHARACTERS

    def call(arguments: dict[str, Any], thread_id: str | None) -> ToolAnswer:
        return tool.answer(arguments, thread_id=thread_id).as_answer()

    _serve(
        server,
        _Served(tool.name, tool.description, tool.parameters(), call, tool.title),
        lambda: memory_protocol(tool_name=tool.name),
    )


def _serve(server: MCPServer | FastMCP[Any], tool: _Served, protocol: Callable[[], str]) -> None:
    """Add the tool, and a prompt that explains to a model how to use it."""
    add = next((_ADD[key] for cls in type(server).__mro__ if (key := _place_of(cls)) in _ADD), None)
    if add is None:
        raise ConfigurationError(
            f"a memory can be enabled on an MCPServer ({install_command('mcp')}) or a FastMCP "
            f"(pip install fastmcp), not on a {type(server).__name__}"
        )
    add(server, tool)
    server.prompt(name=f"{tool.name}_protocol", description="How to use the memory well.")(protocol)


def _place_of(cls: type) -> tuple[str, str]:
    return cls.__module__.partition(".")[0], cls.__name__


def _thread_of(meta: Mapping[str, Any] | None) -> str | None:
    thread = (meta or {}).get("threadId")
    return thread if isinstance(thread, str) else None


def _add_to_mcp(server: MCPServer, tool: _Served) -> None:
    from anyio.to_thread import run_sync
    from mcp.server.mcpserver.tools import Tool
    from mcp_types import CallToolResult, TextContent

    class MemoryTool(Tool):
        """Passes the arguments unchanged. The SDK would drop unknown ones and parse strings that look like JSON."""

        async def run(
            self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
        ) -> CallToolResult:
            answer = await run_sync(tool.call, arguments, _thread_of(context.request_context.meta))
            return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=answer.is_error)

    def memory() -> None:
        """Only gives the SDK a signature to read."""

    # The server accepts only functions; its registry also accepts a tool.
    registry = server._tool_manager._tools
    _refuse_taken(tool.name, registry)
    registry[tool.name] = MemoryTool.from_function(
        memory, tool.name, title=tool.title, description=tool.description, structured_output=False
    ).model_copy(update={"parameters": tool.input_schema})


def _add_to_fastmcp(server: FastMCP[Any], tool: _Served) -> None:
    from anyio.to_thread import run_sync
    from fastmcp.server.dependencies import get_context
    from fastmcp.tools import Tool
    from fastmcp.tools.base import ToolResult

    class MemoryTool(Tool):
        async def run(self, arguments: dict[str, Any]) -> ToolResult:
            request = get_context().request_context
            answer = await run_sync(tool.call, arguments, _thread_of(request.meta if request else None))
            return ToolResult(content=answer.text, is_error=answer.is_error)

    # The public method to list tools is async. Without this check, the server would replace a tool of the same name.
    held = server.local_provider._components.values()
    _refuse_taken(tool.name, [one.name for one in held if isinstance(one, Tool)])
    server.add_tool(
        MemoryTool(name=tool.name, title=tool.title, description=tool.description, parameters=tool.input_schema)
    )


def _refuse_taken(name: str, names: Any) -> None:
    if name in names:
        raise AlreadyExists(f"the server has a tool named {name} already; give this one another name")


_ADD: dict[tuple[str, str], Any] = {("fastmcp", "FastMCP"): _add_to_fastmcp, ("mcp", "MCPServer"): _add_to_mcp}
