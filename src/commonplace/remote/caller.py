"""A namespace of a service: what its parts share to ask for something, and under which conditions."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from commonplace.checks import Limits, Namespace, microseconds
from commonplace.errors import InvalidInput
from commonplace.remote.connection import Answer, Connections, Request
from commonplace.space.handle import Expected, Once

_HEADER_TEXT = re.compile(r"[!-~]{1,255}")
CLIENT = "commonplace-python"
MOST_AT_ONCE = 10_000
"""How many namespaces or changes a service gives in one answer."""


@dataclass(frozen=True)
class Caller:
    """One namespace of a service, narrowed like a `Handle` on a store."""

    connections: Connections
    namespace: Namespace
    limits: Limits
    actor: str | None = None
    once: Once | None = None
    expected: tuple[Expected, ...] = ()

    def read(self, path: str, query: Mapping[str, Any] | None = None, *, body: object = None) -> Any:
        """The JSON of an address; with a body it is asked for by POST, and changes nothing all the same."""
        return self.answer(path, query, body=body).json()

    def answer(self, path: str, query: Mapping[str, Any] | None = None, *, body: object = None) -> Answer:
        return self._ask("GET" if body is None else "POST", path, query, body, {}, is_repeatable=True)

    def make(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: object = None,
        *,
        if_match: str | None = None,
    ) -> Any:
        """The JSON that tells of what was made. It has a key, so that a lost answer can be asked for again."""
        conditions = self._conditions(str(uuid.uuid4()))
        if if_match is not None:
            conditions["If-Match"] = if_match
        return self._ask(method, path, query, body, conditions, is_repeatable=True).json()

    def change(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: object = None) -> Any:
        """The JSON that tells of a change which, made twice, would be another one."""
        return self._ask(method, path, query, body, self._conditions(None), is_repeatable=False).json()

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: object,
        conditions: Mapping[str, str],
        *,
        is_repeatable: bool,
    ) -> Answer:
        """Bytes go as text, all else as JSON."""
        headers = {"User-Agent": _header_word(self.actor), **conditions}
        content: bytes | None = None
        if body is not None:
            headers["Content-Type"] = "text/plain; charset=utf-8" if isinstance(body, bytes) else "application/json"
            content = body if isinstance(body, bytes) else _dumps(body)
        address = f"/v1{path}?{query_text({**(query or {}), 'namespace': '/'.join(self.namespace)})}"
        return self.connections.ask(Request(method, address, headers, content, is_repeatable))

    def _conditions(self, idempotency_key: str | None) -> dict[str, str]:
        headers = {}
        if self.once is not None:
            headers["Idempotency-Key"] = _header_text(self.once.key)
            headers["Idempotency-Fingerprint"] = _header_text(self.once.fingerprint)
        elif idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if self.expected:
            headers["If-Revision"] = ", ".join(map(_condition, self.expected))
        return headers


def tail(text: str) -> str:
    """A text as the last part of an address; each of its characters arrives as it is."""
    try:
        return quote(text, safe="/")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"a name contains a lone surrogate at character {error.start}; correct it") from error


def time_argument(name: str, time: datetime | str | None) -> str | None:
    """A time as the library takes it, checked as it checks it."""
    microseconds(name, time)
    return time.isoformat() if isinstance(time, datetime) else time


def query_text(query: Mapping[str, Any]) -> str:
    given = {}
    for name, value in query.items():
        if isinstance(value, bool):
            given[name] = "true" if value else "false"
        elif value is not None:
            given[name] = value
    try:
        return urlencode(given, doseq=True)
    except UnicodeEncodeError as error:
        raise InvalidInput("an argument contains a lone surrogate; send valid Unicode text") from error


def _dumps(body: object) -> bytes:
    # Escapes carry what UTF-8 cannot, so that the service refuses it in its own words.
    try:
        return json.dumps(body, separators=(",", ":"), default=_plain).encode()
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput("an argument contains a number that is too long, or itself; JSON holds neither") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise InvalidInput(f"an argument contains a {type(value).__name__}, which JSON cannot hold")


def _condition(expected: Expected) -> str:
    states = (seen if isinstance(seen, tuple) else (seen,) for seen in expected.revisions)
    revisions = ",".join(".".join(map(str, state)) for state in states) or "*"
    return f"{expected.kind} {quote(expected.name, safe='')} {revisions}"


def _header_text(text: str) -> str:
    """A text for a header, which holds ASCII alone: another one goes as its hash."""
    return text if _HEADER_TEXT.fullmatch(text) else sha256(text.encode(errors="surrogatepass")).hexdigest()


def _header_word(actor: str | None) -> str:
    word = re.sub(r"[^!-~]+", "-", actor or CLIENT)[:80]
    return word or CLIENT
