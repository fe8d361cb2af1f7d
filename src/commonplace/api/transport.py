"""How an operation becomes a request to a service, and the connections that carry it.

Connections are kept alive, one per thread. A request that was not sent is sent again, and so is one that may be
repeated: a read, or a change under an idempotency key.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import select
import socket
import threading
import time
import urllib.parse
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import IO, Any
from urllib.parse import quote, urlencode

from commonplace.api.parameters import Argument, Operation
from commonplace.api.problems import MEDIA_TYPE, error_of
from commonplace.checks import Limits, Namespace
from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput, Unavailable
from commonplace.space.handle import Expected, Once

PIECE_BYTES = 1 << 16
FIRST_WAIT_SECONDS = 0.05
MAX_WAIT_SECONDS = 2.0
_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Request:
    """A request to send. `is_repeatable` means that sending it twice has the same effect as sending it once."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | IO[bytes] | None = None
    is_repeatable: bool = False


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """A header, ignoring case; empty if there is none."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Unavailable("the answer is not JSON; is this the address of a commonplace service?") from error


class _Lost(Exception):
    """The connection broke. `was_sent` is true if the service may have received the whole request."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


def _address(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        is_address = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        )
    except (ValueError, AttributeError):
        is_address = False
    if not is_address:
        raise ConfigurationError(f"{url} is not the address of a service; write it like http://127.0.0.1:8765")
    return parts


def _checked_key(key: str | None) -> str | None:
    """A key without the line break of the file that it was read from. Errors never show it."""
    key = None if key is None else key.strip()
    if key is not None and not _KEY.fullmatch(key):
        raise ConfigurationError("the key has characters that keys never have; give it as it was created")
    return key


class Connections:
    """Sends requests to one service, from any number of threads."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        timeout_seconds: float,
        max_retries: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = _address(url)
        key = _checked_key(key)
        if not timeout_seconds > 0 or max_retries < 0:
            raise ConfigurationError("timeout_seconds must be above 0, and max_retries 0 or more")
        self.url = url.rstrip("/")
        self._parts = parts
        self._base = parts.path.rstrip("/")
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._timeout_seconds = timeout_seconds
        self._max_retries = max_retries
        self._sleep = sleep
        self._own = threading.local()
        self._all: weakref.WeakSet[http.client.HTTPConnection] = weakref.WeakSet()
        self._mutex = threading.Lock()
        self._is_closed = False

    def ask(self, request: Request) -> Response:
        """The answer. Raises the error that the service reports, or Unavailable if there is no answer."""
        for attempt in range(self._max_retries + 1):
            try:
                return self._ask_once(request)
            except _Lost as lost:
                may_repeat = request.is_repeatable or not lost.was_sent
                if not may_repeat or attempt == self._max_retries or hasattr(request.body, "read"):
                    raise self._unavailable(lost, request) from lost
                most = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**attempt)
                self._sleep(most * random.uniform(0.5, 1))
        raise AssertionError("every attempt returns or raises")

    def _ask_once(self, request: Request) -> Response:
        with self._begun(request) as response:
            answer = _read(response)
        if answer.status >= 300 and answer.status != 304:
            raise self._error(answer)
        return answer

    @contextmanager
    def stream(self, request: Request) -> Iterator[Iterator[bytes]]:
        """The answer in pieces. Raises Unavailable if it is cut off."""
        try:
            with self._begun(request) as response:
                if response.status >= 300:
                    raise self._error(_read(response))
                yield iter(lambda: _piece(response, PIECE_BYTES), b"")
        except _Lost as lost:
            raise self._unavailable(lost, request) from lost

    @contextmanager
    def _begun(self, request: Request) -> Iterator[http.client.HTTPResponse]:
        """A response whose headers have arrived. The connection is dropped unless the body is read to the end."""
        connection = self._connection()
        was_sent = False
        try:
            try:
                headers = {**self._headers, **request.headers}
                connection.request(request.method, self._base + request.path, request.body, headers)
                was_sent = True
            except (BrokenPipeError, ConnectionResetError):
                # The service may refuse a request before it has read all of a large body; the answer can still be read.
                if not hasattr(request.body, "read"):
                    raise
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise _Lost(_reason(error), was_sent=was_sent) from error
        try:
            yield response
        finally:
            if not response.isclosed():
                self._drop()

    def _connection(self) -> http.client.HTTPConnection:
        """This thread's connection, or a new one if the service has closed it."""
        if self._is_closed:
            raise Unavailable("this book is closed; connect again")
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None and connection.sock is not None and not _is_readable(connection.sock):
            return connection
        self._drop()
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        assert self._parts.hostname is not None
        connection = kind(self._parts.hostname, self._parts.port, timeout=self._timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            raise _Lost(_reason(error), was_sent=False) from error
        with self._mutex:
            self._all.add(connection)
        self._own.connection = connection
        return connection

    def _drop(self) -> None:
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def close(self) -> None:
        self._is_closed = True
        with self._mutex:
            for connection in list(self._all):
                connection.close()

    def _error(self, answer: Response) -> CommonplaceError:
        content = answer.header("Content-Type")
        if content.partition(";")[0] != MEDIA_TYPE:
            return Unavailable(
                f"{self.url} answered with status {answer.status} and no reason; is this a commonplace service?"
            )
        return error_of(answer.json(), answer.status)

    def _unavailable(self, lost: _Lost, request: Request) -> Unavailable:
        if lost.was_sent and not request.is_repeatable:
            return Unavailable(
                f"the connection to {self.url} was lost before the answer arrived ({lost}); the change may have been "
                "made, so check before you repeat it"
            )
        return Unavailable(f"the service at {self.url} cannot be reached ({lost}); does `commonplace serve` run there?")


def _read(response: http.client.HTTPResponse) -> Response:
    return Response(response.status, dict(response.headers.items()), _piece(response))


def _piece(response: http.client.HTTPResponse, most: int | None = None) -> bytes:
    """The rest of the body, or at most `limit` bytes of it."""
    try:
        return response.read(most)
    except (OSError, http.client.HTTPException) as error:
        raise _Lost(_reason(error), was_sent=True) from error


def _is_readable(sock: socket.socket) -> bool:
    """A service sends nothing between answers, so anything readable is the end of the connection."""
    poll = select.poll() if hasattr(select, "poll") else None
    if poll is None:
        return bool(select.select([sock], [], [], 0)[0])
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


# Operations

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
        """The result of an operation with the library's arguments, which have the library's defaults."""
        answer = self.ask(operation, given, is_keyed=is_keyed, if_match=if_match)
        return answer.body.decode() if operation.result is None else operation.result.read(answer.json())

    def ask(
        self,
        operation: Operation,
        given: Mapping[str, Any],
        *,
        is_keyed: bool | None = None,
        if_match: str | None = None,
    ) -> Response:
        """The answer to an operation. If the connection is lost, a repeatable request is sent again."""
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
    """A text as the last part of a URL, with every special character escaped."""
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
    # JSON escapes can hold what UTF-8 cannot, so that the service refuses it with its own error.
    try:
        return json.dumps(body, separators=(",", ":"), default=_plain).encode()
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(
            "an argument contains a number that is too long, or contains itself; JSON allows neither"
        ) from error


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
    """A text for a header. Headers are ASCII, so any other text is sent as its hash."""
    return text if _HEADER_TEXT.fullmatch(text) else sha256(text.encode(errors="surrogatepass")).hexdigest()


def _header_word(actor: str | None) -> str:
    word = re.sub(r"[^!-~]+", "-", actor or CLIENT)[:80]
    return word or CLIENT
