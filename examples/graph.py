"""An agent with two memory tools, loaded from a graph, and shown its memory before each call. Run it as it is.

The model here is a script, so that the example needs no key. A real one takes its place in one line:

    from commonplace.graph import AnthropicChat, OpenAIChat

    model = OpenAIChat("gpt-5-mini", api_key=…)                        # or url="http://localhost:11434/v1" for Ollama
    model = AnthropicChat("claude-sonnet-4-5", api_key=…)               # pip install 'commonplace-memory[anthropic]'
"""

import json
from typing import Any

import commonplace
from commonplace.graph import load_graph

GRAPH = {
    "nodes": [
        {"id": "M", "data": {"template": "memory", "config": {"scope": "global"}}},
        {"id": "A", "data": {"template": "agent", "config": {}}},
        {
            "id": "T1",
            "data": {
                "template": "memoryTool",
                "config": {"name": "memory_readonly", "description": "Read-only memory tool", "title": "Mem Read"},
            },
        },
        {
            "id": "T2",
            "data": {
                "template": "memoryTool",
                "config": {"name": "memory_write", "description": "Write memory tool", "title": "Mem Write"},
            },
        },
    ],
    "edges": [
        {"source": "A", "sourceHandle": "tools", "target": "T1", "targetHandle": "$self"},
        {"source": "A", "sourceHandle": "tools", "target": "T2", "targetHandle": "$self"},
        {"source": "M", "sourceHandle": "$self", "target": "T1", "targetHandle": "$memory"},
        {"source": "M", "sourceHandle": "$self", "target": "T2", "targetHandle": "$memory"},
        {"source": "M", "sourceHandle": "$self", "target": "A", "targetHandle": "setMemoryConnector"},
    ],
}


def call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


class ScriptedModel:
    """Stands in for a model: any callable from messages and tools to an assistant message will do."""

    def __init__(self) -> None:
        self.script = [
            call("memory_write", path="/people/ana", command="append", content="Ana prefers trains to planes."),
            {"role": "assistant", "content": "I will remember that."},
            call("memory_readonly", path="/people/ana", command="read"),
            {"role": "assistant", "content": "Ana would rather take the train."},
        ]

    def __call__(self, messages: Any, tools: Any) -> dict[str, Any]:
        print(f"  the model sees  {messages[0]['content']!r}")
        return self.script.pop(0)


def main() -> None:
    with commonplace.open(":memory:") as book:
        agent = load_graph(GRAPH, book, namespace=("user", "demo"), model=ScriptedModel()).agents["A"]
        for question in ("Ana prefers trains to planes.", "How does Ana like to travel?"):
            print(f"user: {question}")
            run = agent.run(question, thread_id="t-1")
            for message in run.messages:
                for used in message.get("tool_calls") or []:
                    print(f"  {used['function']['name']}  {used['function']['arguments']}")
                if message["role"] == "tool":
                    print(f"    → {message['content']}")
            print(f"agent: {run.output}\n")


if __name__ == "__main__":
    main()
