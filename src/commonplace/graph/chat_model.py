"""Chat models: what an agent needs of one, one call with its prompt, memory and tools, and two implementations.

Messages and tools are in OpenAI's format.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from commonplace.endpoint import JsonEndpoint, TryAgain
from commonplace.errors import ConfigurationError, InvalidInput, Unavailable, install_command
from commonplace.graph.memory_node import MemoryConnector, Message

if TYPE_CHECKING:
    from anthropic import Anthropic

ToolSchema: TypeAlias = dict[str, Any]
"""A tool in OpenAI's format."""


class ChatModel(Protocol):
    """Anything that answers messages with one assistant message."""

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSchema], /) -> Mapping[str, Any]: ...


class Tool(Protocol):
    """What an agent needs from a tool. The thread id comes from the run, never from the model."""

    @property
    def name(self) -> str: ...

    def openai_schema(self) -> ToolSchema: ...

    def call(self, arguments: object, *, thread_id: str | None = None) -> str: ...


class CallModel:
    """A chat model with its system prompt, tools and memory connector. The history never contains the memory."""

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
        """Offer a tool; its name must be unique."""
        if tool.name in self._tools:
            raise InvalidInput(f"two tools are named {tool.name!r}; give one of them another name")
        self._tools[tool.name] = tool

    def set_memory_connector(self, connector: MemoryConnector | None) -> None:
        """Show a memory in every call from now on; None shows none."""
        self.memory_connector = connector

    def prepare(self, messages: Sequence[Message], *, thread_id: str | None = None) -> list[Message]:
        """The messages with the system prompt and the memory."""
        prompt = [] if self.system_prompt is None else [{"role": "system", "content": self.system_prompt}]
        prepared = [*prompt, *messages]
        if self.memory_connector is not None:
            prepared = self.memory_connector.place(prepared, thread_id)
        return prepared

    def __call__(self, messages: Sequence[Message], *, thread_id: str | None = None) -> Message:
        """Call the model; returns one assistant message."""
        if self.model is None:
            raise ConfigurationError("no chat model is set; give one to the agent, or to load_graph(model=…)")
        schemas = [tool.openai_schema() for tool in self._tools.values()]
        answer = self.model(self.prepare(messages, thread_id=thread_id), schemas)
        if not isinstance(answer, Mapping) or answer.get("role") != "assistant":
            raise InvalidInput(f"a chat model must answer with one assistant message, not {str(answer)[:100]!r}")
        return dict(answer)


class OpenAIChat:
    """A chat model at an OpenAI-compatible `/chat/completions` endpoint: a hosted one, Ollama, vLLM or another server.

    `options` are further fields of the request, such as `temperature`. Short failures are retried. After that, it
    raises Unavailable, or ConfigurationError if the endpoint refuses the key, the model or the address.
    """

    def __init__(
        self,
        model: str,
        *,
        url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        max_retries: int = 2,
        options: Mapping[str, Any] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not model:
            raise ConfigurationError("give the chat model's name")
        self.model = model
        self._options = dict(options or {})
        self._endpoint = JsonEndpoint(
            f"chat model {model} at",
            url.rstrip("/") + "/chat/completions",
            api_key=api_key,
            timeout_seconds=timeout_seconds,
            max_retries=max_retries,
            sleep=sleep,
        )

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSchema], /) -> Message:
        """One assistant message. A request without tools has no such field."""
        offered = {"tools": list(tools)} if tools else {}
        body = {**self._options, "model": self.model, "messages": list(messages), **offered}
        return self._endpoint.post(body, _message)


def _message(answer: bytes) -> Message:
    """Only the standard fields of the message, because other providers refuse unknown ones."""
    try:
        message = json.loads(answer)["choices"][0]["message"]
        content, calls = message.get("content"), message.get("tool_calls")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise TryAgain(f"the response has no message: {answer[:100]!r}") from error
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


_TEMPORARY = (408, 409, 429)


class AnthropicChat:
    """A chat model behind Anthropic's messages API. Needs `pip install 'commonplace-memory[anthropic]'`.

    The SDK's client has the timeouts and retries; `client` sets your own. Leading system messages go to `system`. A
    later one, such as a memory placed last, becomes text of the user's turn, because the API has no place for it.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        url: str | None = None,
        max_tokens: int = 4_096,
        timeout_seconds: float = 120.0,
        max_retries: int = 2,
        client: Anthropic | None = None,
    ) -> None:
        try:
            import anthropic
        except ImportError as error:
            raise ConfigurationError(f"AnthropicChat needs the SDK; run: {install_command('anthropic')}") from error
        self.model = model
        self._max_tokens = max_tokens
        self._client = client or anthropic.Anthropic(
            api_key=api_key, base_url=url, timeout=timeout_seconds, max_retries=max_retries
        )
        if not (self._client.api_key or self._client.auth_token or self._client.credentials):
            raise ConfigurationError("AnthropicChat has no API key; give api_key, or set ANTHROPIC_API_KEY")

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSchema], /) -> Message:
        """One assistant message in OpenAI's format."""
        import anthropic

        system, turns = to_anthropic(messages)
        try:
            answer = self._client.messages.create(
                model=self.model,
                max_tokens=self._max_tokens,
                messages=cast("Any", turns),
                system=system or anthropic.omit,
                tools=cast("Any", [_tool(tool) for tool in tools]) or anthropic.omit,
            )
        except anthropic.APIStatusError as error:
            if error.status_code in _TEMPORARY or error.status_code >= 500:
                raise Unavailable(f"chat model {self.model} cannot answer now: {error}; try again later") from error
            raise ConfigurationError(
                f"chat model {self.model} refused the request: {error}; check the model's name and the API key"
            ) from error
        except anthropic.APIError as error:
            raise Unavailable(f"chat model {self.model} could not be reached: {error}; try again later") from error
        return _from_anthropic([block.model_dump() for block in answer.content])


def to_anthropic(messages: Sequence[Message]) -> tuple[str, list[dict[str, Any]]]:
    """The system text and the turns. Adjacent messages of one role become one turn, as the API requires."""
    leading = 0
    while leading < len(messages) and messages[leading].get("role") in ("system", "developer"):
        leading += 1
    system = "\n\n".join(text_of(message.get("content")) for message in messages[:leading])
    turns: list[dict[str, Any]] = []
    for message in messages[leading:]:
        role = "assistant" if message.get("role") == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return system, turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    text = text_of(message.get("content"))
    if message.get("role") == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
    # The API refuses blank text.
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text.strip() else []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        given = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function)}
        blocks.append(given)
    return blocks


def text_of(content: object) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(part.get("text") or "" for part in parts if isinstance(part, Mapping))


def _input(function: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as an object, as the API requires. Invalid ones from another model become an empty object."""
    given = function.get("arguments")
    try:
        parsed = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        parsed = None
    return dict(parsed) if isinstance(parsed, Mapping) else {}


def _tool(tool: ToolSchema) -> dict[str, Any]:
    function = tool["function"]
    schema = function.get("parameters") or {"type": "object"}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": schema}


def _from_anthropic(blocks: Sequence[Mapping[str, Any]]) -> Message:
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
