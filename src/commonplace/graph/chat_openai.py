"""A chat model behind an OpenAI-compatible `/chat/completions` endpoint: a hosted one, Ollama, vLLM or another server.

Short failures are retried; what stays is said as Unavailable (try later) or ConfigurationError (the endpoint
refuses: a wrong key, model or address).
"""

from __future__ import annotations

import email.utils
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commonplace.errors import ConfigurationError, Unavailable
from commonplace.graph.call_model import ToolSchema
from commonplace.graph.connector import Message

FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 30.0
MAX_ANSWER_BYTES = 16 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the API key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _TryAgain(Exception):
    """A failure that may pass; `after_seconds` is what the endpoint asked for."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


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
        parts = urllib.parse.urlsplit(url)
        if not model or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("give the chat model's name, and its address as https://host/v1")
        if parts.username or parts.password:
            raise ConfigurationError("the chat model's address must hold no credentials; give the API key by itself")
        self.model = model
        self._url = url.rstrip("/") + "/chat/completions"
        self._api_key = api_key
        self._timeout_seconds = timeout_seconds
        self._max_retries = max_retries
        self._options = dict(options or {})
        self._sleep = sleep
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSchema], /) -> Message:
        """One assistant message; tools are left out of a request that has none."""
        offered = {"tools": list(tools)} if tools else {}
        body = {**self._options, "model": self.model, "messages": list(messages), **offered}
        data = json.dumps(body).encode()
        for attempt in range(self._max_retries + 1):
            try:
                return _message(self._post(data))
            except _TryAgain as failure:
                wait = _wait_seconds(attempt, failure.after_seconds)
                if attempt >= self._max_retries or wait > MAX_WAIT_SECONDS:
                    raise Unavailable(
                        f"chat model {self.model} at {self._url} failed {attempt + 1} times, at last: {failure}; "
                        "see that it runs, then try again"
                    ) from failure
            self._sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _post(self, data: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(self._url, data=data, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as response:
                answer: bytes = response.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode("utf-8", "replace").strip()
            reason = f"HTTP {error.code} {said}".strip()
            if error.code in (408, 409, 429) or error.code >= 500:
                raise _TryAgain(reason, _retry_after_seconds(error.headers.get("Retry-After"))) from error
            raise ConfigurationError(
                f"chat model {self.model} at {self._url} refused the request: {reason}; "
                "check the model's name, the address and the API key"
            ) from error
        except (http.client.HTTPException, OSError) as error:
            raise _TryAgain(str(getattr(error, "reason", None) or error) or type(error).__name__) from error
        if len(answer) > MAX_ANSWER_BYTES:
            raise Unavailable(f"chat model {self.model} at {self._url} sent more than {MAX_ANSWER_BYTES} bytes")
        return answer


def _message(answer: bytes) -> Message:
    """The assistant message alone: what else a provider adds is refused by others when it comes back."""
    try:
        message = json.loads(answer)["choices"][0]["message"]
        content, calls = message.get("content"), message.get("tool_calls")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise _TryAgain(f"the answer holds no message: {answer[:100]!r}") from error
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def _wait_seconds(attempt: int, asked: float | None) -> float:
    """What the endpoint asked for, and a little more so that many clients do not return together."""
    if asked is not None:
        return asked + random.uniform(0, FIRST_WAIT_SECONDS)
    return random.uniform(0.5, 1.0) * min(FIRST_WAIT_SECONDS * 2.0**attempt, MAX_WAIT_SECONDS)


def _retry_after_seconds(header: str | None) -> float | None:
    """Read seconds or an HTTP date; what is neither counts as not sent."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
