"""Calls a JSON endpoint of another service, with timeouts, bounded retries with jitter, and errors with a next step.

A passing failure (429, 5xx, a lost connection, an invalid response) is retried; if it lasts, Unavailable is raised. A
rejected request raises ConfigurationError at once. Redirects are not followed, because they would send the API key to
another address.
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
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from commonplace.errors import ConfigurationError, Unavailable

FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 30.0
MAX_RESPONSE_BYTES = 64 << 20
_PASSING_CODES = (408, 409, 429)

T = TypeVar("T")


class TryAgain(Exception):
    """A failure that may pass; `after_seconds` is from the endpoint's Retry-After."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class JsonEndpoint:
    """One URL to post to. `what` names it in errors: `embedding endpoint https://…`."""

    def __init__(
        self,
        what: str,
        url: str,
        *,
        api_key: str | None,
        timeout_seconds: float,
        max_retries: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_address(what, url)
        self._what = f"{what} {url}"
        self._url = url
        self._api_key = api_key
        self._timeout_seconds = timeout_seconds
        self._max_retries = max_retries
        self._sleep = sleep
        self._opener = urllib.request.build_opener(_NoRedirect)

    def post(self, body: Mapping[str, Any], read: Callable[[bytes], T]) -> T:
        """Send a JSON body and return what `read` makes of the response. `read` raises TryAgain if it is invalid."""
        data = json.dumps(body).encode()
        attempt = 0
        while True:
            try:
                return read(self._response(data))
            except TryAgain as failure:
                wait = _wait_seconds(attempt, failure.after_seconds)
                if attempt >= self._max_retries or wait > MAX_WAIT_SECONDS:
                    raise Unavailable(
                        f"{self._what} failed {attempt + 1} times, last with: {failure}; check that it runs, then retry"
                    ) from failure
            attempt += 1
            self._sleep(wait)

    def _response(self, data: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(self._url, data=data, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as response:
                content: bytes = response.read(MAX_RESPONSE_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode("utf-8", "replace").strip()
            reason = f"HTTP {error.code} {said}".strip()
            if error.code in _PASSING_CODES or error.code >= 500:
                raise TryAgain(reason, _retry_after_seconds(error.headers.get("Retry-After"))) from error
            raise ConfigurationError(
                f"{self._what} rejected the request: {reason}; check the model's name, the URL and the API key"
            ) from error
        except (http.client.HTTPException, OSError) as error:
            raise TryAgain(str(getattr(error, "reason", None) or error) or type(error).__name__) from error
        if len(content) > MAX_RESPONSE_BYTES:
            raise Unavailable(f"{self._what} sent more than {MAX_RESPONSE_BYTES:,} bytes")
        return content


def check_address(what: str, url: str) -> None:
    """Raise ConfigurationError unless the URL is an http(s) one without credentials."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"{what} needs a URL such as https://host/v1, not {url!r}")
    if parts.username or parts.password:
        raise ConfigurationError(f"the URL of {what} must not contain credentials; pass the API key separately")


def _wait_seconds(attempt: int, asked: float | None) -> float:
    """What the endpoint asked for, plus jitter, so that many clients do not return at the same time."""
    if asked is not None:
        return asked + random.uniform(0, FIRST_WAIT_SECONDS)
    return random.uniform(0.5, 1.0) * min(FIRST_WAIT_SECONDS * 2.0**attempt, MAX_WAIT_SECONDS)


def _retry_after_seconds(header: str | None) -> float | None:
    """Read seconds or an HTTP date; anything else counts as absent."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
