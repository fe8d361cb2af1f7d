"""A chat model behind Anthropic's messages API, through their SDK: `pip install 'commonplace-memory[anthropic]'`.

Messages are in OpenAI's shape on this side. A system message at the front goes to `system`; one further down, such as
a memory placed last, becomes text of the user's turn, for the API takes none there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from commonplace.errors import ConfigurationError, Unavailable, install_command
from commonplace.graph.call_model import ToolSchema
from commonplace.graph.connector import Message

if TYPE_CHECKING:
    from anthropic import Anthropic

_MAY_PASS = (408, 409, 429)


class AnthropicChat:
    """Answers through the SDK's client, which times out and retries; `client` takes one of the caller's own."""

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
        """One assistant message in OpenAI's shape."""
        import anthropic

        system, turns = to_anthropic(messages)
        try:
            answer = self._client.messages.create(
                model=self.model,
                max_tokens=self._max_tokens,
                messages=cast(Any, turns),
                system=system or anthropic.omit,
                tools=cast(Any, [_tool(tool) for tool in tools]) or anthropic.omit,
            )
        except anthropic.APIStatusError as error:
            if error.status_code in _MAY_PASS or error.status_code >= 500:
                raise Unavailable(f"chat model {self.model} cannot answer now: {error}; try again later") from error
            raise ConfigurationError(
                f"chat model {self.model} refused the request: {error}; check the model's name and the API key"
            ) from error
        except anthropic.APIError as error:
            raise Unavailable(f"chat model {self.model} was not reached: {error}; try again later") from error
        return _from_anthropic([block.model_dump() for block in answer.content])


def to_anthropic(messages: Sequence[Message]) -> tuple[str, list[dict[str, Any]]]:
    """The system text, and the turns with neighbours of one role made one: an answer to tool calls is one turn."""
    leading = 0
    while leading < len(messages) and messages[leading].get("role") in ("system", "developer"):
        leading += 1
    system = "\n\n".join(_plain(message.get("content")) for message in messages[:leading])
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
    text = _plain(message.get("content"))
    if message.get("role") == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
    # The API refuses a blank text.
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text.strip() else []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        given = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function)}
        blocks.append(given)
    return blocks


def _plain(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(part.get("text") or "" for part in parts if isinstance(part, Mapping))


def _input(function: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as an object, which the API insists on; what another model garbled is sent as none."""
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
