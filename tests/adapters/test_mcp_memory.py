"""One line gives a user's own MCP server the memory tool; the real clients of both packages use it."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import fastmcp
import mcp
import pytest
from mcp.server.mcpserver import MCPServer

import commonplace
from commonplace.adapters.mcp_memory import enable_memory, enable_unified_memory
from commonplace.errors import AlreadyExists, ConfigurationError, InvalidInput
from commonplace.graph import MemoryNode
from commonplace.tools import FolderMemoryStore, InMemoryMemoryStore, UnifiedMemoryTool, memory_protocol

Ask = Callable[..., Awaitable[tuple[str, bool]]]


def use(server: Any, talk: Callable[[Ask, list[Any]], Awaitable[None]], name: str = "memory") -> None:
    """Connect the server's own client in this process, and let a test talk to the tool."""

    async def run() -> None:
        is_fastmcp = isinstance(server, fastmcp.FastMCP)
        async with fastmcp.Client(server) if is_fastmcp else mcp.Client(server) as client:
            listed = await client.list_tools()

            async def ask(command: object, **arguments: object) -> tuple[str, bool]:
                options = {"raise_on_error": False} if is_fastmcp else {}
                result = await client.call_tool(name, {"command": command, **arguments}, **options)
                (block,) = result.content
                assert result.structured_content is None
                return block.text, result.is_error

            await talk(ask, listed if is_fastmcp else listed.tools)

    asyncio.run(run())


@pytest.fixture(params=[MCPServer, fastmcp.FastMCP], ids=["mcp", "fastmcp"])
def server(request: pytest.FixtureRequest) -> Any:
    made = request.param("MyServer")

    @made.tool()
    def process_task(task: str) -> str:
        """Process a task."""
        return "Processing: " + task

    return made


def test_the_server_also_gets_a_prompt_that_tells_how_to_use_the_memory(server):
    enable_memory(server, name="notes")

    async def run() -> str:
        is_fastmcp = isinstance(server, fastmcp.FastMCP)
        async with fastmcp.Client(server) if is_fastmcp else mcp.Client(server) as client:
            prompt = await client.get_prompt("notes_protocol")
            return prompt.messages[0].content.text

    assert asyncio.run(run()) == memory_protocol("claude", tool_name="notes")


@pytest.mark.promise("claude-enable-memory")
def test_one_line_enables_the_memory_on_a_users_server(server):
    enable_memory(server)

    async def talk(ask: Ask, tools: list[Any]) -> None:
        assert sorted(tool.name for tool in tools) == ["memory", "process_task"]
        memory = next(tool for tool in tools if tool.name == "memory")
        assert memory.input_schema["properties"]["command"]["enum"] == [
            *("view", "create", "str_replace", "insert", "delete", "rename"),
        ]
        assert memory.input_schema["additionalProperties"] is False
        assert "/memories" in memory.description
        assert await ask("create", path="/memories/notes.txt", content="My notes here") == (
            "File created successfully at: /memories/notes.txt",
            False,
        )
        assert await ask("view", path="/memories/notes.txt") == (
            "Here's the content of /memories/notes.txt with line numbers:\n     1\tMy notes here",
            False,
        )
        assert await ask(
            "str_replace", path="/memories/notes.txt", old_str="My notes here", new_str="Updated notes"
        ) == (
            "Updated notes",
            False,
        )

    use(server, talk)


@pytest.mark.promise("claude-enable-memory", "claude-arguments-checked")
def test_refusals_are_error_results_and_arguments_arrive_as_they_were_sent(server):
    enable_memory(server)

    async def talk(ask: Ask, tools: list[Any]) -> None:
        assert await ask("create", path="/memories/data.json", content='{"a": [1, 2]}') == (
            "File created successfully at: /memories/data.json",
            False,
        )
        assert (await ask("view", path="/memories/data.json"))[0].endswith('     1\t{"a": [1, 2]}')
        for arguments, text in (
            ({"command": "view", "path": "/etc/passwd"}, "Error: Path must start with /memories, got: /etc/passwd"),
            (
                {"command": "view", "path": "/memories", "x": 1},
                "Error: view does not take x; it takes path, view_range",
            ),
            ({"command": "view", "path": 7}, "Error: path must be a string, not int"),
            (
                {"command": "insert", "path": "/memories/data.json", "insert_line": "0", "insert_text": ""},
                "Error: Invalid `insert_line` parameter: '0'. It should be a whole number",
            ),
        ):
            assert await ask(**arguments) == (text, True)

    use(server, talk)


@pytest.mark.promise("claude-enable-memory", "claude-custom-store")
def test_a_custom_store_is_the_second_step(server, tmp_path):
    tool = enable_memory(server, FolderMemoryStore(tmp_path / "m", "/custom"), wording="anthropic", name="notes")

    async def talk(ask: Ask, tools: list[Any]) -> None:
        assert await ask("create", path="/custom/a", file_text="x") == (
            "File created successfully at: /custom/a",
            False,
        )
        assert await ask("delete", path="/custom/b") == ("The path /custom/b does not exist", True)

    use(server, talk, "notes")
    assert tool.root == "/custom"
    assert (tmp_path / "m" / "a").read_text() == "x"


@pytest.mark.promise("claude-enable-memory")
def test_a_space_is_a_store_and_two_memories_have_two_names(server, space):
    enable_memory(server, space)
    with InMemoryMemoryStore() as scratch:
        enable_memory(server, scratch, name="scratch")

        async def talk(ask: Ask, tools: list[Any]) -> None:
            assert not (await ask("create", path="/memories/x", content="kept"))[1]
            assert sorted(tool.name for tool in tools) == ["memory", "process_task", "scratch"]

        use(server, talk)
        assert scratch.list("/memories") == []
    assert space.files.read("/x") == "kept"


@pytest.mark.promise("claude-enable-memory")
def test_many_calls_at_once_do_not_wait_for_each_other_or_lose_anything(server):
    tool = enable_memory(server)

    async def talk(ask: Ask, tools: list[Any]) -> None:
        await ask("create", path="/memories/log", content="")
        answers = await asyncio.gather(
            *(ask("insert", path="/memories/log", insert_line=0, insert_text=f"line {number}") for number in range(20))
        )
        assert set(answers) == {("The file /memories/log has been edited.", False)}

    use(server, talk)
    assert sorted(tool.store.read("/memories/log").split("\n")) == sorted(f"line {number}" for number in range(20))


@pytest.mark.promise("graph-thread-id")
def test_a_call_of_the_unified_tool_names_its_thread_in_its_meta(server: Any, book: commonplace.Book) -> None:
    node = MemoryNode(book, "notes", ("user", "u1"), scope="perThread")
    enable_unified_memory(server, UnifiedMemoryTool(node, name="notes"))
    is_fastmcp = isinstance(server, fastmcp.FastMCP)
    options = {"raise_on_error": False} if is_fastmcp else {}

    async def run() -> None:
        async with fastmcp.Client(server) if is_fastmcp else mcp.Client(server) as client:

            async def ask(meta: dict[str, Any] | None, **arguments: object) -> tuple[Any, bool]:
                result = await client.call_tool("notes", arguments, meta=meta, **options)
                return json.loads(result.content[0].text), result.is_error

            made, is_error = await ask({"threadId": "t-1"}, command="append", path="/plan", content="Call Ana.")
            assert (made["ok"], is_error) == (True, False)
            found, _ = await ask({"threadId": "t-1"}, command="read", path="/plan")
            assert found["result"]["content"] == "Call Ana."
            missing, is_error = await ask({"threadId": "t-2"}, command="read", path="/plan")
            assert (missing["error"]["code"], is_error) == ("ENOENT", True)
            for meta in (None, {"threadId": 1}):
                refused, _ = await ask(meta, command="read", path="/plan")
                assert refused["error"] == {
                    "message": "threadId is required for perThread scope",
                    "code": "ENOTMEM",
                }
            told = await client.get_prompt("notes_protocol")
            assert told.messages[0].content.text == memory_protocol(tool_name="notes")

    asyncio.run(run())


def test_the_title_of_the_unified_tool_is_shown_as_given(server: Any, space: commonplace.Space) -> None:
    """The title that a tool was made with was lost on the way to the server."""
    enable_unified_memory(server, UnifiedMemoryTool(space, name="notes", title="Mem Read", commands=["read", "list"]))

    async def talk(ask: Ask, tools: list[Any]) -> None:
        assert {tool.name: tool.title for tool in tools}["notes"] == "Mem Read"

    use(server, talk)


def test_a_name_that_a_server_has_already_is_refused(server):
    with pytest.raises(AlreadyExists, match="a tool named process_task already"):
        enable_memory(server, name="process_task")
    enable_memory(server)
    with pytest.raises(AlreadyExists, match="a tool named memory already"):
        enable_memory(server)

    async def talk(ask: Ask, tools: list[Any]) -> None:
        described = {tool.name: tool.description for tool in tools}
        assert (sorted(described), described["process_task"]) == (["memory", "process_task"], "Process a task.")

    use(server, talk)


@pytest.mark.promise("claude-missing-package")
def test_what_is_no_known_server_is_told_which_packages_there_are():
    with pytest.raises(ConfigurationError, match=r"pip install 'commonplace-memory\[mcp\]'.*not on a dict"):
        enable_memory({})  # type: ignore[arg-type]


def test_importing_the_adapter_loads_neither_package():
    code = (
        "import sys, commonplace.adapters.mcp_memory as m; print([n for n in ('mcp', 'fastmcp') if n in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(printed) == []


@pytest.mark.parametrize("name", ["", "two words", "é", None, 5, "x" * 65])
def test_a_tool_has_a_name_that_models_apis_take(name: Any) -> None:
    """Any name was taken, and the first request to a model failed."""
    with pytest.raises(InvalidInput, match="a tool's name must be 1 to 64"):
        enable_memory(MCPServer("test"), name=name)
