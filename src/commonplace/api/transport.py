"""Connections to a service: kept alive, one a thread, with time-outs, and with retries where these cannot do harm.

What was surely not sent is sent again, and so is what may be repeated: reading, and changes under an idempotency key.
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
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from commonplace.api.problems import MEDIA_TYPE, error_of
from commonplace.errors import CommonplaceError, ConfigurationError, Unavailable

PIECE_BYTES = 1 << 16
FIRST_WAIT_SECONDS = 0.05
MAX_WAIT_SECONDS = 2.0
_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Request:
    """What to ask for. `is_repeatable`: sent twice, it does no more than sent once."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | IO[bytes] | None = None
    is_repeatable: bool = False


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """A header, whatever the case of its letters; empty where there is none."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Unavailable("the answer is no JSON; is this the address of a commonplace service?") from error


class _Lost(Exception):
    """The connection broke; `was_sent` tells whether the service may have got the whole request."""

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
        raise ConfigurationError(f"{url} is no address of a service; write it like http://127.0.0.1:8765")
    return parts


def _checked_key(key: str | None) -> str | None:
    """A key as a header may hold it. A file that it was read from ends its line; an error never shows it."""
    key = None if key is None else key.strip()
    if key is not None and not _KEY.fullmatch(key):
        raise ConfigurationError("the key has characters that no key has; give it as it was made")
    return key


class Connections:
    """The way to one service, for any number of threads."""

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

    def ask(self, request: Request) -> Answer:
        """The answer, or the error that the service tells of; Unavailable where there is no answer."""
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

    def _ask_once(self, request: Request) -> Answer:
        with self._begun(request) as response:
            answer = _read(response)
        if answer.status >= 300 and answer.status != 304:
            raise self._error(answer)
        return answer

    @contextmanager
    def stream(self, request: Request) -> Iterator[Iterator[bytes]]:
        """The answer in pieces; one that is cut off raises Unavailable."""
        try:
            with self._begun(request) as response:
                if response.status >= 300:
                    raise self._error(_read(response))
                yield iter(lambda: _piece(response, PIECE_BYTES), b"")
        except _Lost as lost:
            raise self._unavailable(lost, request) from lost

    @contextmanager
    def _begun(self, request: Request) -> Iterator[http.client.HTTPResponse]:
        """A response whose head is there; the connection is dropped unless its body is read to the end."""
        connection = self._connection()
        was_sent = False
        try:
            try:
                headers = {**self._headers, **request.headers}
                connection.request(request.method, self._base + request.path, request.body, headers)
                was_sent = True
            except (BrokenPipeError, ConnectionResetError):
                # A refusal may come before all of a large body was taken: then it waits to be read.
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
        """This thread's connection, a new one where the service has closed it meanwhile."""
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

    def _error(self, answer: Answer) -> CommonplaceError:
        content = answer.header("Content-Type")
        if content.partition(";")[0] != MEDIA_TYPE:
            return Unavailable(
                f"{self.url} answered with status {answer.status} and no reason; is this a commonplace service?"
            )
        return error_of(answer.json(), answer.status)

    def _unavailable(self, lost: _Lost, request: Request) -> Unavailable:
        if lost.was_sent and not request.is_repeatable:
            return Unavailable(
                f"the connection to {self.url} was lost before its answer came ({lost}); the change may have been "
                "made: look before you repeat it"
            )
        return Unavailable(f"the service at {self.url} cannot be reached ({lost}); does `commonplace serve` run there?")


def _read(response: http.client.HTTPResponse) -> Answer:
    return Answer(response.status, dict(response.headers.items()), _piece(response))


def _piece(response: http.client.HTTPResponse, most: int | None = None) -> bytes:
    """All of the body that is left, or at most so much of it."""
    try:
        return response.read(most)
    except (OSError, http.client.HTTPException) as error:
        raise _Lost(_reason(error), was_sent=True) from error


def _is_readable(sock: socket.socket) -> bool:
    """Between answers a service sends nothing: what can be read is the end of the connection."""
    poll = select.poll() if hasattr(select, "poll") else None
    if poll is None:
        return bool(select.select([sock], [], [], 0)[0])
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
