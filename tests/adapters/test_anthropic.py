"""Anthropic's own tool runner drives our memory tool, end to end, against a scripted model and no network."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.tools import ToolError
from anthropic.types.beta import BetaMemoryTool20250818StrReplaceCommand, BetaMemoryTool20250818ViewCommand

from commonplace.adapters.anthropic import AnthropicMemoryTool, AsyncAnthropicMemoryTool
from commonplace.tools import InMemoryMemoryStore

MAX_TURNS = 20

# What the scripted model asks for, turn by turn, and the result that it must get.
SCRIPT: list[tuple[dict[str, object], str, bool]] = [
    (
        {"command": "view", "path": "/memories"},
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n4K\t/memories",
        False,
    ),
    (
        {"command": "create", "path": "/memories/coffee.md", "file_text": "likes coffee\n"},
        "File created successfully at: /memories/coffee.md",
        False,
    ),
    (
        {"command": "create", "path": "/memories/coffee.md", "file_text": "again"},
        "File /memories/coffee.md already exists",
        True,
    ),
    (
        {"command": "str_replace", "path": "/memories/coffee.md", "old_str": "coffee", "new_str": "tea"},
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     1\tlikes tea\n     2\t",
        False,
    ),
    (
        {"command": "insert", "path": "/memories/coffee.md", "insert_line": 0, "insert_text": "# Drinks"},
        "The file /memories/coffee.md has been edited.",
        False,
    ),
    (
        {"command": "rename", "old_path": "/memories/coffee.md", "new_path": "/memories/drinks.md"},
        "Successfully renamed /memories/coffee.md to /memories/drinks.md",
        False,
    ),
    ({"command": "delete", "path": "/memories/gone"}, "The path /memories/gone does not exist", True),
    ({"command": "view", "path": "/memories/../etc"}, "Path /memories/../etc would escape /memories directory", True),
    (
        {"command": "forget"},
        "Unknown command: forget; use one of view, create, str_replace, insert, delete, rename",
        True,
    ),
    ({}, "command is required; use one of view, create, str_replace, insert, delete, rename", True),
    ({"command": "view", "path": 7}, "path must be a string, not int", True),
    ({"command": "view", "path": "/memories", "self": 1}, "view does not take self; it takes path, view_range", True),
    (
        {"command": "create", "path": "/memories/a", "file_text": "tea\x00"},
        "file_text contains a NUL character; remove it",
        True,
    ),
]


class ScriptedModel:
    """Plays the Messages API: one tool call a turn, then a last word; keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[dict[str, object]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        turn = len(self.requests)
        self.requests.append(json.loads(request.read()))
        if turn < len(SCRIPT):
            block = {"type": "tool_use", "id": f"call_{turn}", "name": "memory", "input": SCRIPT[turn][0]}
        else:
            block = {"type": "text", "text": "Remembered."}
        return httpx2.Response(
            200,
            json={
                "id": f"msg_{turn}",
                "type": "message",
                "role": "assistant",
                "model": "claude-scripted",
                "content": [block],
                "stop_reason": "tool_use" if turn < len(SCRIPT) else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        )

    def results(self) -> Iterator[tuple[str, bool]]:
        """The tool results that the runner sent back, one a turn."""
        for request in self.requests[1:]:
            (result,) = request["messages"][-1]["content"]  # type: ignore[index]
            content = result["content"]
            text = content if isinstance(content, str) else content[0]["text"]
            yield text, bool(result.get("is_error"))


REQUEST = {"max_tokens": 100, "model": "claude-scripted", "max_iterations": MAX_TURNS, "thread": False}
MESSAGES = [{"role": "user", "content": "Remember that I like tea"}]


@pytest.mark.promise("claude-tool-runner")
def test_the_sdks_tool_runner_drives_our_tool(space):
    model = ScriptedModel()
    client = Anthropic(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(model)), max_retries=0)

    runner = client.beta.messages.tool_runner(messages=MESSAGES, tools=[AnthropicMemoryTool(space)], **REQUEST)
    last = runner.until_done()

    assert last.content[0].text == "Remembered."
    assert list(model.results()) == [(text, is_error) for _, text, is_error in SCRIPT]
    assert model.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert space.files.read("/drinks.md") == "# Drinks\nlikes tea\n"


@pytest.mark.promise("claude-tool-runner")
def test_the_sdks_async_tool_runner_drives_our_tool(space):
    model = ScriptedModel()

    async def run() -> str:
        transport = httpx2.MockTransport(model)
        client = AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport), max_retries=0)
        tool = AsyncAnthropicMemoryTool(space)
        runner = client.beta.messages.tool_runner(messages=MESSAGES, tools=[tool], **REQUEST)
        last = await runner.until_done()
        assert await tool.view(BetaMemoryTool20250818ViewCommand(command="view", path="/memories/drinks.md"))
        assert await tool.clear_all_memory() == "All memory cleared"
        return last.content[0].text

    assert asyncio.run(run()) == "Remembered."
    assert list(model.results()) == [(text, is_error) for _, text, is_error in SCRIPT]
    assert space.files.list() == []


@pytest.mark.promise("claude-tool-runner")
def test_the_methods_of_the_abstract_tool_work_one_by_one():
    tool = AnthropicMemoryTool(wording="seed", cache_control={"type": "ephemeral"})
    assert isinstance(tool.tool.store, InMemoryMemoryStore)
    tool.call({"command": "create", "path": "/memories/a", "content": "one"})
    replace = BetaMemoryTool20250818StrReplaceCommand(
        command="str_replace", path="/memories/a", old_str="one", new_str="two"
    )

    assert tool.str_replace(replace) == "two"
    assert tool.execute(BetaMemoryTool20250818ViewCommand(command="view", path="/memories/a")).endswith("     1\ttwo")
    with pytest.raises(ToolError, match="did not appear verbatim"):
        tool.str_replace(replace)
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory", "cache_control": {"type": "ephemeral"}}
    assert tool.clear_all_memory() == "All memory cleared"
    assert tool.tool.store.list("/memories") == []


@pytest.mark.promise("claude-missing-package")
def test_a_missing_sdk_names_the_line_that_installs_it():
    code = (
        "import sys; sys.modules['anthropic'] = None\n"
        "from commonplace.errors import ConfigurationError\n"
        "try:\n    import commonplace.adapters.anthropic\n"
        "except ConfigurationError as error:\n    print(error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'commonplace-memory[anthropic]'" in printed
