"""The server over streamable HTTP: the sessions of one memory and one profile, as an ASGI app.

A body is parsed by the same rules as a line on stdio before the SDK reads it, and every request gets an answer. The SDK
accepts JSON that can be read in two ways, takes a request whose id is null or 1.5 for a notification, and does not know
batches. Of several requests with the same id, it answers only the last one.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from anyio.to_thread import run_sync
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.errors import CommonplaceError
from commonplace.server.mcp.jsonrpc import (
    MAX_LINE_BYTES,
    Refusal,
    check_envelope,
    completed_initialize,
    has_batches,
    parse_json,
)
from commonplace.server.mcp.lazy_memory import Memory
from commonplace.server.mcp.profiles import Profile
from commonplace.server.mcp.server import Run, ToolCalls, build_server, run_in_thread
from commonplace.wire.forms import on_one_line

MAX_BATCH = 50
TOO_OFTEN = -32000
_EVENT_STREAM = b"text/event-stream"
_NO_BATCHES = "Invalid Request: only revision 2025-03-26 has batches; send one message at a time"
_BATCH_LENGTH = f"Invalid Request: a batch holds 1 to {MAX_BATCH} messages; send more in several"
_ALONE = "Invalid Request: initialize may not be part of a batch; send it alone, and first"
_IN_PROGRESS = "Invalid Request: a request with this id is in progress in this session; use another id"
MAX_SESSIONS = 1_000
"""Of one caller with one profile."""

IDLE_SECONDS = 30 * 60


def session_manager(
    memory: Memory,
    profile: Profile,
    *,
    is_stateless: bool = False,
    run: Run = run_in_thread,
    tool_calls: ToolCalls | None = None,
) -> StreamableHTTPSessionManager:
    """The sessions of one memory and one profile. Enter its `run()` before the first request."""
    manager = StreamableHTTPSessionManager(
        build_server(memory, profile, run=run, tool_calls=tool_calls),
        stateless=is_stateless,
        session_idle_timeout=IDLE_SECONDS,
        max_request_body_size=MAX_LINE_BYTES,  # the service has a lower limit
        max_sessions=MAX_SESSIONS,
    )
    manager.asgi_app.app = MessageMiddleware(manager.asgi_app.app)  # inside of its limit on bodies
    return manager


class MessageMiddleware:
    """ASGI middleware that checks what a client posts, before the SDK reads it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._in_progress: set[tuple[str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = _with_whole_lines(send)
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        received = await receive()
        if received["type"] != "http.request":
            return
        body: bytes = received.get("body", b"")
        posted = parse_json(body)
        if isinstance(posted, list):
            await self._answer_batch(posted, scope, receive, send)
            return
        message = posted if isinstance(posted, Refusal) else check_envelope(posted)
        if isinstance(message, Refusal):
            await _response(message)(scope, receive, send)
            return
        if message.get("method") == "initialize":
            body = to_json({**message, "params": completed_initialize(message.get("params"))})
        await self._answer(message, body, scope, receive, send)

    async def _answer(self, message: dict[str, Any], body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer one message, unless a request with the same id is in progress."""
        received: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return received.pop() if received else await receive()

        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        if session is None or "id" not in message or "method" not in message:
            await self._app(scope, replay, send)
            return
        key = session, str(message["id"])
        if key in self._in_progress:
            # Without the id, because a client would take it for the answer to the request in progress.
            await _response(Refusal(None, INVALID_REQUEST, _IN_PROGRESS), 409)(scope, replay, send)
            return
        self._in_progress.add(key)
        with ExitStack() as held:
            held.callback(self._in_progress.discard, key)

            async def send_and_release(message: Message) -> None:
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    held.close()  # before the client has the whole answer and can use the id again
                await send(message)

            await self._app(scope, replay, send_and_release)

    async def _answer_batch(self, posted: list[Any], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer each message in turn, as if it came alone, and send the answers together."""
        version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER)
        if not has_batches(version) or not 1 <= len(posted) <= MAX_BATCH:
            text = _BATCH_LENGTH if has_batches(version) else _NO_BATCHES
            await _response(Refusal(None, INVALID_REQUEST, text))(scope, receive, send)
            return
        answers: list[dict[str, Any]] = []
        has_done = False
        for number, one in enumerate(posted):
            message = check_envelope(one)
            if number and isinstance(message, dict):
                message = await _counted(message, scope)
            if isinstance(message, dict) and message.get("method") == "initialize":
                message = Refusal(message.get("id"), INVALID_REQUEST, _ALONE)
            if isinstance(message, Refusal):
                answers.append(_error(message))
                continue
            captured = _Captured()
            await self._answer(message, to_json(message), scope, receive, captured.send)
            if captured.status >= 400 and not has_done:
                # What they have in common is wrong: the session, or a header.
                await captured.response()(scope, receive, send)
                return
            has_done = True
            answers += captured.answers()
        response = Response(to_json(answers), media_type="application/json") if answers else Response(status_code=202)
        await response(scope, receive, send)


async def _counted(message: dict[str, Any], scope: Scope) -> dict[str, Any] | Refusal:
    """Count a further message of a batch against the caller's rate; the request itself has counted for the first."""
    count_call = scope.get("state", {}).get("count_call")
    if count_call is None:
        return message
    try:
        await run_sync(count_call)
    except CommonplaceError as error:
        return Refusal(message.get("id"), TOO_OFTEN, str(error))
    return message


class _Captured:
    """An answer that is kept instead of being sent."""

    def __init__(self) -> None:
        self.status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._headers = message["status"], list(message["headers"])
        else:
            self._body += message.get("body", b"")

    def answers(self) -> list[dict[str, Any]]:
        """The JSON-RPC answers in it, from events or from plain JSON."""
        if dict(self._headers).get(b"content-type", b"").startswith(_EVENT_STREAM):
            lines = [line[5:].strip() for line in self._body.splitlines() if line.startswith(b"data:")]
        else:
            lines = [self._body]
        found = [json.loads(line) for line in lines if line]
        return [one for one in found if isinstance(one, dict) and ("result" in one or "error" in one)]

    def response(self) -> Response:
        response = Response(self._body, self.status)
        response.raw_headers = self._headers
        return response


def _with_whole_lines(send: Send) -> Send:
    """Escape the characters that some readers take for the end of a line. The SDK sends each event in one piece."""
    is_events = False

    async def sending(message: Message) -> None:
        nonlocal is_events
        if message["type"] == "http.response.start":
            is_events = dict(message["headers"]).get(b"content-type", b"").startswith(_EVENT_STREAM)
        elif is_events:
            message = {**message, "body": on_one_line(message.get("body", b""))}
        await send(message)

    return sending


def _error(refusal: Refusal) -> dict[str, Any]:
    error = ErrorData(code=refusal.code, message=refusal.message)
    return JSONRPCError(jsonrpc="2.0", id=refusal.id, error=error).model_dump(by_alias=True, exclude_unset=True)


def _response(refusal: Refusal, status: int = 400) -> Response:
    return Response(to_json(_error(refusal)), status, media_type="application/json")
