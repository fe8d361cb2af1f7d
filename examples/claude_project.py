"""Project context: a server of your own remembers a project's structure, conventions and decisions.

The seed's first use case. Run it with `.venv/bin/python examples/claude_project.py`; it needs no network.
"""

import asyncio

from mcp import Client
from mcp.server.mcpserver import MCPServer

from commonplace.adapters.mcp_memory import enable_memory

server = MCPServer("ProjectBot")
enable_memory(server)


@server.tool()
def remember_project(name: str, details: str) -> str:
    """Remember project details."""
    return f"Project remembered: {name} ({details})"


# What a model does with the memory; here it is written down.
CALLS = [
    {
        "command": "create",
        "path": "/memories/projects/apollo/structure.txt",
        "file_text": "src/guidance: the flight computer\nsrc/telemetry: the radio link\n",
    },
    {
        "command": "create",
        "path": "/memories/projects/apollo/conventions.md",
        "file_text": "- Names say the unit.\n- No merge on Fridays.\n",
    },
    {
        "command": "create",
        "path": "/memories/projects/apollo/decisions.xml",
        "file_text": "<decision>Use fixed-point numbers.</decision>\n",
    },
    {
        "command": "str_replace",
        "path": "/memories/projects/apollo/conventions.md",
        "old_str": "No merge on Fridays",
        "new_str": "No merge after noon on Fridays",
    },
    {"command": "view", "path": "/memories/projects"},
    {"command": "view", "path": "/memories/projects/apollo/structure.txt", "view_range": [2, 2]},
]


async def main() -> None:
    async with Client(server) as client:
        answer = await client.call_tool("remember_project", {"name": "apollo", "details": "a moon lander"})
        print(answer.content[0].text)
        for call in CALLS:
            result = await client.call_tool("memory", call)
            print(f"\n> {call['command']} {call['path']}\n{result.content[0].text}")


if __name__ == "__main__":
    asyncio.run(main())
