"""What clients POST, before the SDK reads it: `initialize` is mended, and an id that is under way is refused.

The SDK answers the last of several requests with one id, and leaves the others waiting for as long as they stay
connected.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.server.mcp.eras import mended_initialize

_UNDER_WAY = "Invalid Request: a request with this id is under way in this session; give each an id of its own"


class Posts:
    """ASGI middleware inside the SDK's limit on bodies, which hands on a body as one message."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._under_way: set[tuple[str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        received = [await receive()]
        request = _request_in(received[0])
        if request.get("method") == "initialize" and isinstance(request.get("params"), (dict, type(None))):
            mended = {**request, "params": mended_initialize(request.get("params"))}
            received[0] = {**received[0], "body": to_json(mended)}

        async def replay() -> Message:
            return received.pop() if received else await receive()

        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        if session is None or "id" not in request:
            await self._app(scope, replay, send)
            return
        key = session, str(request["id"])
        if key in self._under_way:
            await _refusal()(scope, replay, send)
            return
        self._under_way.add(key)
        with ExitStack() as held:
            held.callback(self._under_way.discard, key)

            async def send_and_let_go(message: Message) -> None:
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    held.close()  # before the client, with its whole answer, can use the id again
                await send(message)

            await self._app(scope, replay, send_and_let_go)


def _request_in(received: Message) -> dict[str, Any]:
    """The request or notification in a body; empty for what is none, which the SDK words."""
    try:
        message = from_json(received.get("body", b""))
    except ValueError:
        return {}
    return message if isinstance(message, dict) and "method" in message else {}


def _refusal() -> Response:
    # Without the id: a client would take it for the answer to the request that is under way.
    error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INVALID_REQUEST, message=_UNDER_WAY))
    return Response(error.model_dump_json(by_alias=True, exclude_unset=True), 409, media_type="application/json")
