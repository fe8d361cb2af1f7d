"""One call of a chat model: the system prompt in front, the memory in its place, the tools beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from commonplace.errors import ConfigurationError, InvalidInput
from commonplace.graph.connector import MemoryConnector, Message

ToolSchema: TypeAlias = dict[str, Any]
"""A tool in OpenAI's shape."""


class ChatModel(Protocol):
    """Anything that answers messages with one assistant message; messages and tools are in OpenAI's shape."""

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSchema], /) -> Mapping[str, Any]: ...


class Tool(Protocol):
    """What an agent needs of a tool. The thread id comes from the run, never from the model."""

    @property
    def name(self) -> str: ...

    def openai_schema(self) -> ToolSchema: ...

    def call(self, arguments: object, *, thread_id: str | None = None) -> str: ...


class CallModel:
    """A chat model with its system prompt, tools and memory connector; the memory is in calls, never in a history."""

    def __init__(
        self, model: ChatModel | None = None, *, system_prompt: str | None = None, tools: Sequence[Tool] = ()
    ) -> None:
        self.model = model
        self.system_prompt = system_prompt
        self.memory_connector: MemoryConnector | None = None
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add_tool(tool)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return self._tools

    def add_tool(self, tool: Tool) -> None:
        """Offer a tool; its name must be its own."""
        if tool.name in self._tools:
            raise InvalidInput(f"two tools are named {tool.name!r}; give one of them another name")
        self._tools[tool.name] = tool

    def set_memory_connector(self, connector: MemoryConnector | None) -> None:
        """Show a memory in every call from now on, or none."""
        self.memory_connector = connector

    def prepare(self, messages: Sequence[Message], *, thread_id: str | None = None) -> list[Message]:
        """The messages as the model gets them."""
        prompt = [] if self.system_prompt is None else [{"role": "system", "content": self.system_prompt}]
        prepared = [*prompt, *messages]
        if self.memory_connector is not None:
            prepared = self.memory_connector.place(prepared, thread_id)
        return prepared

    def __call__(self, messages: Sequence[Message], *, thread_id: str | None = None) -> Message:
        """The model's answer: one assistant message."""
        if self.model is None:
            raise ConfigurationError("no chat model is set; give one to the agent, or to load_graph(model=…)")
        schemas = [tool.openai_schema() for tool in self._tools.values()]
        answer = self.model(self.prepare(messages, thread_id=thread_id), schemas)
        if not isinstance(answer, Mapping) or answer.get("role") != "assistant":
            raise InvalidInput(f"a chat model must answer with one assistant message, not {str(answer)[:100]!r}")
        return dict(answer)
