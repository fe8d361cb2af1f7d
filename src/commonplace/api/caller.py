"""A namespace of a service: how an operation becomes a request, and under which conditions it is sent."""

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

from commonplace.api.arguments import Argument
from commonplace.api.operations import Operation
from commonplace.api.transport import Answer, Connections, Request
from commonplace.checks import Limits, Namespace
from commonplace.errors import InvalidInput
from commonplace.space.handle import Expected, Once

_HEADER_TEXT = re.compile(r"[!-~]{1,255}")
CLIENT = "commonplace-python"
HEADERS = {"User-Agent": CLIENT}
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

    def perform(
        self,
        operation: Operation,
        given: Mapping[str, Any],
        *,
        is_keyed: bool | None = None,
        if_match: str | None = None,
    ) -> Any:
        """The result of an operation with the library's arguments; what is not given keeps the library's default."""
        answer = self.ask(operation, given, is_keyed=is_keyed, if_match=if_match)
        return answer.body.decode() if operation.result is None else operation.result.read(answer.json())

    def ask(
        self,
        operation: Operation,
        given: Mapping[str, Any],
        *,
        is_keyed: bool | None = None,
        if_match: str | None = None,
    ) -> Answer:
        """The answer to an operation. What may be repeated is repeated where the connection is lost."""
        is_keyed = operation.keyed if is_keyed is None else is_keyed
        conditions = {} if operation.is_read else self._conditions(str(uuid.uuid4()) if is_keyed else None)
        if if_match is not None:
            conditions["If-Match"] = if_match
        sent = _Sent(operation, given, self.limits)
        if operation.in_namespace:
            sent.query["namespace"] = "/".join(self.namespace)
        headers = {"User-Agent": _header_word(self.actor), **conditions, **sent.headers}
        address = f"{sent.address}?{query_text(sent.query)}".rstrip("?")
        is_repeatable = operation.is_read or is_keyed
        return self.connections.ask(Request(operation.method, address, headers, sent.content, is_repeatable))

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


class _Sent:
    """The arguments of an operation in their places."""

    def __init__(self, operation: Operation, given: Mapping[str, Any], limits: Limits) -> None:
        self.address = operation.address
        self.query: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.content: bytes | None = None
        body: dict[str, Any] = {}
        for argument in operation.arguments:
            if argument.sent is not None:
                self.query[argument.wire] = argument.sent
            elif argument.name in given:
                value = argument.kind.send(given[argument.name], limits)
                self._put(argument, value, body)
        if operation.body is not None:
            self.content = _dumps(body)
            self.headers["Content-Type"] = "application/json"

    def _put(self, argument: Argument, value: Any, body: dict[str, Any]) -> None:
        if argument.place == "path":
            self.address = self.address.replace(f"{{{argument.wire}}}", tail(value))
        elif argument.place == "text":
            self.content = value
            self.headers["Content-Type"] = "text/plain; charset=utf-8"
        else:
            (body if argument.place == "body" else self.query)[argument.wire] = value


def tail(text: str) -> str:
    """A text as the last part of an address; each of its characters arrives as it is."""
    try:
        return quote(text, safe="/")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"a name contains a lone surrogate at character {error.start}; correct it") from error


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
