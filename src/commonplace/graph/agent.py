"""An agent: a chat model that calls its tools until it has an answer, with a limit on the turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.errors import InvalidInput
from commonplace.graph.chat_model import CallModel, ChatModel, Tool, text_of
from commonplace.graph.memory_node import MemoryConnector, Message
from commonplace.tools.tool import wire_text

DEFAULT_MAX_TURNS = 20


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run. Pass `messages` and a new question to the next run."""

    output: str
    messages: tuple[Message, ...]
    turns: int
    is_complete: bool
    """False if the limit on turns ended the run while the model still called tools."""


@dataclass(frozen=True, slots=True)
class _ToolCall:
    id: str
    name: object
    arguments: object


class Agent:
    """Runs a chat model with tools. It keeps no conversation, so any number of threads may run at once."""

    def __init__(
        self,
        model: ChatModel | None = None,
        *,
        system_prompt: str | None = None,
        tools: Sequence[Tool] = (),
        max_turns: int = DEFAULT_MAX_TURNS,
    ) -> None:
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise InvalidInput(f"maxTurns must be a whole number from 1, not {max_turns!r}")
        self.call_model = CallModel(model, system_prompt=system_prompt, tools=tools)
        self.max_turns = max_turns

    def set_memory_connector(self, connector: MemoryConnector | None) -> None:
        self.call_model.set_memory_connector(connector)

    def add_tool(self, tool: Tool) -> None:
        self.call_model.add_tool(tool)

    def run(
        self,
        messages: str | Sequence[Message],
        *,
        thread_id: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Run:
        """Answer a text, or continue from messages. The thread may also be `configurable.thread_id` of the config."""
        thread_id = _thread_id(thread_id, config)
        history = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        for turn in range(1, self.max_turns + 1):
            answer = self.call_model(history, thread_id=thread_id)
            history.append(answer)
            calls = _tool_calls(answer)
            if not calls:
                return Run(text_of(answer.get("content")), tuple(history), turn, is_complete=True)
            # The last turn's calls run too, because no model accepts a history with unanswered calls.
            history += [self._answer(call, thread_id) for call in calls]
        return Run(text_of(answer.get("content")), tuple(history), self.max_turns, is_complete=False)

    def _answer(self, call: _ToolCall, thread_id: str | None) -> Message:
        tool = self.call_model.tools.get(call.name) if isinstance(call.name, str) else None
        if tool is None:
            known = ", ".join(self.call_model.tools) or "none"
            said = f"unknown tool: {str(call.name)[:100]}; the tools are: {known}"
            content = json.dumps({"error": wire_text(said)}, ensure_ascii=False)
        else:
            content = tool.call(call.arguments, thread_id=thread_id)
        return {"role": "tool", "tool_call_id": call.id, "content": content}


def _thread_id(thread_id: str | None, config: Mapping[str, Any] | None) -> str | None:
    configured = ((config or {}).get("configurable") or {}).get("thread_id")
    if thread_id is not None and configured is not None and thread_id != configured:
        raise InvalidInput(f"two thread ids were given, {thread_id!r} and {configured!r}; give one")
    return configured if thread_id is None else thread_id


def _tool_calls(answer: Message) -> list[_ToolCall]:
    calls = answer.get("tool_calls") or []
    try:
        return [_ToolCall(call["id"], call["function"]["name"], _arguments(call["function"])) for call in calls]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"the chat model's tool calls are not in OpenAI's format: {str(calls)[:200]}") from error


def _arguments(function: Mapping[str, Any]) -> object:
    """The parsed arguments. Invalid JSON goes to the tool unchanged, whose refusal goes to the model."""
    given = function.get("arguments", "")
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given
