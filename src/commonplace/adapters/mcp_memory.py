"""Claude's memory tool on a user's own MCP server, in one line: `enable_memory(server)`.

The server is an `MCPServer` of the package `mcp` or a `FastMCP` of the package `fastmcp`, whose package is then there;
for the first, `pip install 'commonplace[mcp]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commonplace.errors import AlreadyExists, ConfigurationError
from commonplace.space.space import Space
from commonplace.tools.claude import ClaudeMemoryTool
from commonplace.tools.claude_wording import WordingName
from commonplace.tools.memory_store import InMemoryMemoryStore, MemoryStore
from commonplace.tools.protocol import memory_protocol

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp.server.mcpserver import Context, MCPServer

__all__ = ["enable_memory"]


def enable_memory(
    server: MCPServer | FastMCP[Any],
    store: MemoryStore | Space | None = None,
    *,
    wording: WordingName = "seed",
    name: str = ClaudeMemoryTool.name,
) -> ClaudeMemoryTool:
    """Give a server the memory tool, over a space, a memory store, or one that ends with the program; the tool."""
    add = next((_ADD[key] for cls in type(server).__mro__ if (key := _place_of(cls)) in _ADD), None)
    if add is None:
        raise ConfigurationError(
            f"enable_memory takes an MCPServer (pip install 'commonplace[mcp]') or a FastMCP (pip install fastmcp), "
            f"not a {type(server).__name__}"
        )
    tool = ClaudeMemoryTool(InMemoryMemoryStore() if store is None else store, wording)
    add(server, tool, name)
    _add_protocol(server, name)
    return tool


def _add_protocol(server: MCPServer | FastMCP[Any], name: str) -> None:
    """A prompt that tells a model how to use the memory well."""

    def protocol() -> str:
        return memory_protocol("claude", tool_name=name)

    server.prompt(name=f"{name}_protocol", description="How to use the memory well.")(protocol)


def _place_of(cls: type) -> tuple[str, str]:
    return cls.__module__.partition(".")[0], cls.__name__


def _add_to_mcp(server: MCPServer, tool: ClaudeMemoryTool, name: str) -> None:
    from anyio.to_thread import run_sync
    from mcp.server.mcpserver.tools import Tool
    from mcp_types import CallToolResult, TextContent

    class MemoryTool(Tool):
        """Passes the arguments on as they came: the SDK would drop unknown ones and parse texts that look like JSON."""

        async def run(
            self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
        ) -> CallToolResult:
            answer = await run_sync(tool.call, arguments)
            return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=answer.is_error)

    def memory() -> None:
        """Stands in for the signature that the SDK reads."""

    # The server takes a tool of its own making only; its registry takes ours.
    registry = server._tool_manager._tools
    _refuse_taken(name, registry)
    registry[name] = MemoryTool.from_function(
        memory, name, description=tool.description, structured_output=False
    ).model_copy(update={"parameters": tool.input_schema})


def _add_to_fastmcp(server: FastMCP[Any], tool: ClaudeMemoryTool, name: str) -> None:
    from anyio.to_thread import run_sync
    from fastmcp.tools import Tool
    from fastmcp.tools.base import ToolResult

    class MemoryTool(Tool):
        async def run(self, arguments: dict[str, Any]) -> ToolResult:
            answer = await run_sync(tool.call, arguments)
            return ToolResult(content=answer.text, is_error=answer.is_error)

    server.add_tool(MemoryTool(name=name, description=tool.description, parameters=tool.input_schema))


def _refuse_taken(name: str, names: Any) -> None:
    if name in names:
        raise AlreadyExists(f"the server has a tool named {name} already; give this one another name")


_ADD: dict[tuple[str, str], Any] = {("fastmcp", "FastMCP"): _add_to_fastmcp, ("mcp", "MCPServer"): _add_to_mcp}
