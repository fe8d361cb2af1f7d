"""The client of the Python SDK 2.x: the newest revision, or with `legacy` as second argument the handshake."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, StdioServerParameters
from visit import HEARING_SECONDS, WATCHED, Hearing, address, read_task, tell


async def main() -> None:
    task = read_task()
    target = task.url or StdioServerParameters(command=task.command, args=task.args, env=task.env)
    hearing = Hearing()
    is_legacy = "legacy" in sys.argv[2:]
    async with Client(target, mode="legacy" if is_legacy else "auto", message_handler=hearing) as client:
        listed = await client.list_tools()
        if is_legacy:
            await client.session.subscribe_resource(WATCHED)
            created = await client.call_tool("memory_create", task.create)
            updated = await hearing.updated()
        else:
            async with client.listen(resource_subscriptions=[WATCHED]) as subscription:
                created = await client.call_tool("memory_create", task.create)
                event = await asyncio.wait_for(anext(aiter(subscription)), HEARING_SECONDS)
                updated = getattr(event, "uri", None)
        found = await client.call_tool("memory_search", task.search)
        refused = await client.call_tool("memory_search", task.wrong_search)
        resource = await client.read_resource(address(found))
        prompts = await client.list_prompts()
        prompt = await client.get_prompt(task.prompt, task.prompt_arguments)
        tell(
            protocol=client.protocol_version,
            server=client.server_info.name if client.server_info else None,
            tools=listed.tools,
            created=created,
            updated=updated,
            found=found,
            refused=refused,
            resource=resource,
            prompts=prompts.prompts,
            prompt=prompt,
        )


asyncio.run(main())
