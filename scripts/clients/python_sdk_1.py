"""The client of the Python SDK 1.x: `ClientSession` on the streams of a transport."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from visit import WATCHED, Hearing, address, read_task, tell, wire


async def main() -> None:
    task = read_task()
    hearing = Hearing()
    async with AsyncExitStack() as opened:
        streams: Any
        if task.url is None:
            server = StdioServerParameters(command=task.command, args=task.args, env=task.env)
            streams = await opened.enter_async_context(stdio_client(server))
        else:
            streams = await opened.enter_async_context(streamable_http_client(task.url))
        # 1.x gives a third one over HTTP, which tells the id of the session.
        session: Any = await opened.enter_async_context(ClientSession(streams[0], streams[1], message_handler=hearing))
        hello = wire(await session.initialize())
        listed = await session.list_tools()
        await session.subscribe_resource(WATCHED)
        created = await session.call_tool("memory_create", task.create)
        found = await session.call_tool("memory_search", task.search)
        refused = await session.call_tool("memory_search", task.wrong_search)
        resource = await session.read_resource(address(found))
        prompts = await session.list_prompts()
        prompt = await session.get_prompt(task.prompt, task.prompt_arguments)
        tell(
            protocol=hello["protocolVersion"],
            server=hello["serverInfo"]["name"],
            tools=listed.tools,
            created=created,
            updated=await hearing.updated(),
            found=found,
            refused=refused,
            resource=resource,
            prompts=prompts.prompts,
            prompt=prompt,
        )


asyncio.run(main())
