"""Learning from feedback: lessons are kept as plain files in a folder, where people can read and correct them.

The seed's second use case. Run it with `.venv/bin/python examples/claude_learning.py`; it needs no network.
"""

import asyncio
import tempfile
from pathlib import Path

from mcp import Client
from mcp.server.mcpserver import MCPServer

from commonplace.adapters.mcp_memory import enable_memory
from commonplace.tools import FolderMemoryStore

LESSONS = "/memories/lessons.md"


def make_server(folder: Path) -> MCPServer:
    server = MCPServer("LearningBot")
    enable_memory(server, FolderMemoryStore(folder))

    @server.tool()
    def learn_feedback(lesson: str) -> str:
        """Learn from user feedback."""
        return f"I've learned: {lesson}"

    return server


async def main(folder: Path) -> None:
    async with Client(make_server(folder)) as client:

        async def ask(tool: str, **arguments: object) -> str:
            result = await client.call_tool(tool, arguments)
            return result.content[0].text

        print(await ask("learn_feedback", lesson="Answer in short sentences."))
        print(
            await ask("memory", command="create", path=LESSONS, file_text="# Lessons\n- Answer in short sentences.\n")
        )
        print(await ask("learn_feedback", lesson="Show the command before its output."))
        lesson = "- Show the command before its output."
        print(await ask("memory", command="insert", path=LESSONS, insert_line=2, insert_text=lesson))

        print("\nA person corrects the file in an editor:")
        file = folder / "lessons.md"
        file.write_text(file.read_text().replace("short sentences", "short sentences, in English"))
        print(await ask("memory", command="view", path=LESSONS))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary) / "memories"))
