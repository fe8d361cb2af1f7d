"""A chat model behind an OpenAI-compatible `/chat/completions` endpoint: a hosted one, Ollama, vLLM or another server.

Short failures are retried; what stays is said as Unavailable (try later) or ConfigurationError (the endpoint
refuses: a wrong key, model or address).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commonplace.endpoint import JsonEndpoint, TryAgain
from commonplace.errors import ConfigurationError
from commonplace.graph.call_model import ToolSchema
from commonplace.graph.connector import Message


class OpenAIChat:
    """Answers by HTTP. `options` are further fields of the request, such as `temperature`."""

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
        """One assistant message; tools are left out of a request that has none."""
        offered = {"tools": list(tools)} if tools else {}
        body = {**self._options, "model": self.model, "messages": list(messages), **offered}
        return self._endpoint.post(body, _message)


def _message(answer: bytes) -> Message:
    """The assistant message alone: what else a provider adds is refused by others when it comes back."""
    try:
        message = json.loads(answer)["choices"][0]["message"]
        content, calls = message.get("content"), message.get("tool_calls")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise TryAgain(f"the answer holds no message: {answer[:100]!r}") from error
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
