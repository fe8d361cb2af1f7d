"""The MCP client of openai-agents: `MCPServerStdio` and `MCPServerStreamableHttp`."""

from __future__ import annotations

import asyncio
from typing import Any

from agents.mcp import (  # type: ignore[import-not-found, unused-ignore]
    MCPServerStdio,
    MCPServerStreamableHttp,
    MCPUtil,
)
from visit import address, read_task, tell


async def main() -> None:
    task = read_task()
    server: Any
    if task.url is None:
        server = MCPServerStdio({"command": task.command, "args": task.args, "env": task.env}, **_PATIENT)
    else:
        server = MCPServerStreamableHttp({"url": task.url}, **_PATIENT)
    async with server:
        tools = await server.list_tools()
        # What the agent's model is shown: the SDK must accept our schemas.
        shown = [MCPUtil.to_function_tool(tool, server, convert_schemas_to_strict=False) for tool in tools]
        created = await server.call_tool("memory_create", task.create)
        found = await server.call_tool("memory_search", task.search)
        refused = await server.call_tool("memory_search", task.wrong_search)
        resource = await server.read_resource(address(found))
        prompts = await server.list_prompts()
        prompt = await server.get_prompt(task.prompt, task.prompt_arguments)
        tell(
            protocol=server.session.protocol_version,
            server=server.session.server_info.name,
            tools=[
                {"name": tool.name, "description": tool.description, "inputSchema": tool.params_json_schema}
                for tool in shown
            ],
            created=created,
            found=found,
            refused=refused,
            resource=resource,
            prompts=prompts.prompts,
            prompt=prompt,
        )


_PATIENT: dict[str, Any] = {"client_session_timeout_seconds": 60}

asyncio.run(main())
