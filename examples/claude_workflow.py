"""Work in several steps: a second session, on another day, continues where the first one stopped.

The seed's third use case. The memory is a space of a book, so it has history too. Run it with
`.venv/bin/python examples/claude_workflow.py`; it needs no network.
"""

import asyncio
import tempfile
from pathlib import Path

from mcp import Client
from mcp.server.mcpserver import MCPServer

import commonplace
from commonplace.adapters.mcp_memory import enable_memory

STATE = "/memories/workflows/release-7.md"


def make_server(space: commonplace.Space) -> MCPServer:
    server = MCPServer("WorkflowBot")
    enable_memory(server, space)

    @server.tool()
    def continue_workflow(workflow_id: str) -> str:
        """Continue a workflow."""
        return f"Continuing workflow: {workflow_id}"

    return server


async def session(space: commonplace.Space, calls: list[dict[str, object]]) -> None:
    async with Client(make_server(space)) as client:
        answer = await client.call_tool("continue_workflow", {"workflow_id": "release-7"})
        print(answer.content[0].text)
        for call in calls:
            result = await client.call_tool("memory", call)
            print(f"> {call['command']}\n{result.content[0].text}")


FIRST = [
    {"command": "create", "path": STATE, "file_text": "1. tests: done\n2. changelog: next\n3. upload: open\n"},
]
SECOND = [
    {"command": "view", "path": STATE},
    {"command": "str_replace", "path": STATE, "old_str": "changelog: next", "new_str": "changelog: done"},
    {"command": "str_replace", "path": STATE, "old_str": "upload: open", "new_str": "upload: next"},
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for day, calls in enumerate([FIRST, SECOND], 1):
            print(f"\nSession {day}")
            with commonplace.open(Path(folder) / "memory.db", background=False) as book:
                space = book.space("user", "u-123")
                asyncio.run(session(space, calls))
                revisions = space.history("file", "/workflows/release-7.md")
                print(f"The file has {len(revisions)} states; any of them can be restored.")


if __name__ == "__main__":
    main()
