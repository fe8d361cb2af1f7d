"""FastMCP's client, through its own results (`data`, `ToolError`) as well as the protocol's."""

from __future__ import annotations

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError
from visit import address, read_task, tell


async def main() -> None:
    task = read_task()
    transport: StdioTransport | StreamableHttpTransport
    if task.url is None:
        transport = StdioTransport(command=task.command, args=task.args, env=task.env, keep_alive=False)
    else:
        transport = StreamableHttpTransport(task.url)
    async with Client(transport) as client:
        tools = await client.list_tools()
        created = await client.call_tool_mcp("memory_create", task.create)
        found = await client.call_tool_mcp("memory_search", task.search)
        try:
            accepted = await client.call_tool("memory_search", task.wrong_search)
            refused = {"isError": False, "content": [{"type": "text", "text": str(accepted)}]}
        except ToolError as error:
            refused = {"isError": True, "content": [{"type": "text", "text": str(error)}]}
        contents = await client.read_resource(address(found))
        prompts = await client.list_prompts()
        prompt = await client.get_prompt(task.prompt, task.prompt_arguments)
        tell(
            protocol=client.session.protocol_version,
            server=client.session.server_info.name if client.session.server_info else None,
            tools=tools,
            created=created,
            found=found,
            refused=refused,
            resource={"contents": [one.model_dump(mode="json", by_alias=True) for one in contents]},
            prompts=prompts,
            prompt=prompt,
        )


asyncio.run(main())
