"""langchain-mcp-adapters: the tools as LangChain runs them, resources as blobs, prompts as messages."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient  # type: ignore[import-not-found, unused-ignore]
from langchain_mcp_adapters.prompts import load_mcp_prompt  # type: ignore[import-not-found, unused-ignore]
from langchain_mcp_adapters.resources import get_mcp_resource  # type: ignore[import-not-found, unused-ignore]
from langchain_mcp_adapters.tools import load_mcp_tools  # type: ignore[import-not-found, unused-ignore]
from visit import address, read_task, tell, wire


async def main() -> None:
    task = read_task()
    connection: dict[str, Any] = {"transport": "streamable_http", "url": task.url}
    if task.url is None:
        connection = {"transport": "stdio", "command": task.command, "args": task.args, "env": task.env}
    client = MultiServerMCPClient({"memory": connection})
    async with client.session("memory", auto_initialize=False) as session:
        hello = wire(await session.initialize())
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            # A call as a model makes it, so that LangChain's own check of the arguments runs too.
            request = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
            return _result(await tools[name].ainvoke(request))

        created = await call("memory_create", task.create)
        found = await call("memory_search", task.search)
        refused = await call("memory_search", task.wrong_search)
        place = address(found)
        blobs = await get_mcp_resource(session, place)
        prompts = await session.list_prompts()
        messages = await load_mcp_prompt(session, task.prompt, arguments=task.prompt_arguments)
        tell(
            protocol=hello["protocolVersion"],
            server=hello["serverInfo"]["name"],
            tools=[_tool(tool) for tool in tools.values()],
            created=created,
            found=found,
            refused=refused,
            resource={"contents": [{"uri": place, "text": blob.as_string()} for blob in blobs]},
            prompts=prompts.prompts,
            prompt={"messages": [{"content": {"type": "text", "text": message.content}} for message in messages]},
        )


def _tool(tool: Any) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.args_schema}


def _result(message: Any) -> dict[str, Any]:
    """LangChain's message as a result of MCP; it calls a resource link a file."""
    given = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
    content = [{"type": "resource_link", "uri": block["url"]} if block["type"] == "file" else block for block in given]
    structured = (message.artifact or {}).get("structured_content")
    return {"isError": message.status == "error", "content": content, "structuredContent": structured}


asyncio.run(main())
