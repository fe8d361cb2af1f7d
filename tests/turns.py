"""What people and models say in the tests of conversations, in OpenAI's shapes, and what is given of it."""

from __future__ import annotations


def words(text: str) -> int:
    return len(text.split())


def user(text, **fields):
    return {"role": "user", "content": text, **fields}


def assistant(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def call(*ids, text=None):
    functions = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
    return assistant(text, tool_calls=functions)


def result(id, text="found"):
    return {"role": "tool", "tool_call_id": id, "content": text}


def function_call(id):
    return {"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"}


def function_output(id):
    return {"type": "function_call_output", "call_id": id, "output": "found"}


def contents(context):
    return [message["content"] for message in context.messages]


OPENAI = [call("c1"), result("c1")]
THOUGHT = {"type": "reasoning", "summary": []}
