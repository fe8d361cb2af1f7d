"""`commonplace mcp`: the server on standard input and output, with one message per line.

It does what the SDK leaves out: every invalid line is answered with an error, an incomplete `initialize` is completed,
and the end of the input waits for the answers that are still due.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio
from anyio.to_thread import run_sync
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter

from commonplace.api.encoding import on_one_line
from commonplace.server.logs import configure_logging
from commonplace.server.mcp.jsonrpc import (
    END_BYTES,
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    Refusal,
    check_version,
    completed_initialize,
    parse_line,
    too_long,
)
from commonplace.server.mcp.lazy_memory import ACTOR, Memory
from commonplace.server.mcp.profiles import check_profile
from commonplace.server.mcp.server import build_server
from commonplace.settings import Settings, open_from_settings
from commonplace.tools.claude import WordingName, wording_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.lowlevel import Server

    from commonplace.book import Book
    from commonplace.space.space import Space

_ENDLESS = "subscriptions/listen"
_log = logging.getLogger(__name__)


def run(
    settings: Settings,
    profile: str,
    *,
    protocol_version: str | None,
    debug_file: Path | None,
    wording: WordingName = "seed",
    is_per_thread: bool = False,
) -> None:
    """Serve the settings' namespace until the input ends. See `commonplace.server.mcp.run_stdio`."""
    configure_logging(settings.log_level, debug_file)
    chosen = check_profile(profile)
    wording_named(wording)
    version = None if protocol_version is None else check_version(protocol_version)
    is_keys_own = settings.remote is not None and settings.namespace is None
    labels = () if is_keys_own else settings.namespace_labels
    with ExitStack() as opened:
        books: list[Book] = []

        def open_thread(thread_id: str) -> Space:
            namespace = memory.space.namespace
            return books[-1].space(*namespace, "thread", thread_id, actor=ACTOR)

        def open_space() -> Space:
            from commonplace.server.usage import SearchCounters

            book = opened.enter_context(open_from_settings(settings, background=True))
            books.append(book)
            if settings.remote is None:  # else the service counts
                counters = SearchCounters(book.store)
                book.searcher.observe = counters.count
                counters.start()
                opened.callback(counters.close)
            space = book.space(*labels, actor=ACTOR)
            _log.info("opened the book for %s", "/".join(space.namespace))
            return space

        memory = Memory(
            open_space,
            default_limit=settings.search_default_limit,
            max_limit=settings.search_max_limit,
            wraps_results=settings.wrap_results,
            open_thread=open_thread if is_per_thread else None,
            wording=wording,
        )
        server = build_server(memory, chosen, is_stdio=True)
        with claimed_pipes() as (stdin, stdout):
            anyio.run(lambda: serve(server, stdin, stdout, version=version))


@contextmanager
def claimed_pipes() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Standard input and output for the protocol only; anything else that prints meanwhile goes to stderr."""
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    sys.stdout.flush()
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        # Not closed with the object: a thread may still be blocked in a read when the server has ended.
        yield os.fdopen(reading, "rb", closefd=False), os.fdopen(writing, "wb", closefd=False)
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.close(nothing)


async def serve(server: Server[Any], stdin: BinaryIO, stdout: BinaryIO, *, version: str | None = None) -> None:
    """Serve one client until its input ends; `version` is the revision for a client that does not name a known one."""
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception]()
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage]()
    due = _Due()
    async with anyio.create_task_group() as group:
        group.start_soon(_read, _Input(stdin, version), to_server, to_client.clone(), due)
        group.start_soon(_write, stdout, from_server, due, group.cancel_scope)
        await server.run(from_client, to_client, server.create_initialization_options())


class _Due:
    """The requests that are not answered yet."""

    def __init__(self) -> None:
        self._ids: Counter[str | int] = Counter()
        self._none_left = anyio.Event()
        self._none_left.set()

    def add(self, message: dict[str, Any]) -> None:
        if "id" in message and "method" in message and message["method"] != _ENDLESS:
            self._ids[message["id"]] += 1
            if self._none_left.is_set():
                self._none_left = anyio.Event()
        elif message.get("method") == "notifications/cancelled":
            # A cancelled request is never answered.
            self.remove((message.get("params") or {}).get("requestId"))

    def remove(self, id: object) -> None:
        if not isinstance(id, (str, int)) or self._ids[id] < 1:
            return
        self._ids[id] -= 1
        self._ids += Counter()
        if not self._ids:
            self._none_left.set()

    async def wait(self) -> None:
        await self._none_left.wait()


class _Input:
    """The lines of the client as messages or refusals."""

    def __init__(self, stdin: BinaryIO, version: str | None) -> None:
        self._stdin = stdin
        self._version = version

    def next(self) -> dict[str, Any] | Refusal | None:
        """Wait for the next message; None at the end."""
        while line := self._stdin.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                start, end = line[:END_BYTES], line[-END_BYTES:]
                while line and not line.endswith(b"\n"):
                    line = self._stdin.readline(MAX_LINE_BYTES)
                    end = (end + line[-END_BYTES:])[-END_BYTES:]
                return too_long(start + end)
            if line.strip():
                message = parse_line(line)
                if isinstance(message, dict) and message.get("method") == "initialize":
                    message["params"] = completed_initialize(message.get("params"), self._version)
                return message
        return None


def _lines(source: _Input) -> MemoryObjectReceiveStream[dict[str, Any] | Refusal]:
    """The input as a stream, read in its own thread.

    The thread is a daemon, so that the program can exit while it waits for a line.
    """
    sending, receiving = anyio.create_memory_object_stream[dict[str, Any] | Refusal]()
    loop = asyncio.get_running_loop()

    def pump() -> None:
        # A loop that has ended accepts nothing more, and raises one of these.
        with suppress(RuntimeError, CancelledError, anyio.BrokenResourceError):
            while (message := source.next()) is not None:
                asyncio.run_coroutine_threadsafe(sending.send(message), loop).result()
            loop.call_soon_threadsafe(sending.close)

    Thread(target=pump, name="stdin", daemon=True).start()
    return receiving


async def _read(
    source: _Input,
    to_server: MemoryObjectSendStream[SessionMessage | Exception],
    to_client: MemoryObjectSendStream[SessionMessage],
    due: _Due,
) -> None:
    lines = _lines(source)
    async with to_server, to_client, lines:
        async for message in lines:
            if isinstance(message, Refusal):
                await to_client.send(_refused(message))
                continue
            try:
                parsed: JSONRPCMessage = jsonrpc_message_adapter.validate_python(message, by_name=False)
            except ValueError:
                await to_client.send(_refused(Refusal(None, INVALID_REQUEST, "Invalid Request")))
                continue
            due.add(message)
            await to_server.send(SessionMessage(parsed))
        # The SDK cancels requests in progress when its input ends.
        await due.wait()


def _refused(refusal: Refusal) -> SessionMessage:
    _log.info("refused a line: %s", refusal.message)
    error = ErrorData(code=refusal.code, message=refusal.message)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=refusal.id, error=error))


def _line_of(message: JSONRPCMessage) -> bytes:
    """A message as JSON, or an error if it cannot be written as JSON."""
    try:
        return on_one_line(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
    except ValueError:
        _log.exception("cannot write a message as JSON")
        error = ErrorData(code=INTERNAL_ERROR, message="The answer cannot be written; the server's log says why")
        instead = JSONRPCError(jsonrpc="2.0", id=getattr(message, "id", None), error=error)
        return instead.model_dump_json(by_alias=True, exclude_unset=True).encode()


async def _write(
    stdout: BinaryIO, from_server: MemoryObjectReceiveStream[SessionMessage], due: _Due, scope: anyio.CancelScope
) -> None:
    def put(line: bytes) -> None:
        stdout.write(line)
        stdout.flush()

    async with from_server:
        async for answer in from_server:
            try:
                await run_sync(put, _line_of(answer.message) + b"\n")
            except BrokenPipeError:
                _log.info("the client has disconnected")
                scope.cancel()
                return
            if isinstance(answer.message, (JSONRPCResponse, JSONRPCError)):
                due.remove(answer.message.id)
