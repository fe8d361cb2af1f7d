"""HEAD on every address that GET reads: load balancers and caches ask with it."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.server.http.problems import is_mcp


class HeadAsGet:
    """ASGI middleware: a HEAD is answered as a GET is, without the body. MCP has methods of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or is_mcp(scope["path"]):
            await self._app(scope, receive, send)
            return
        has_ended = False

        async def bodiless(message: Message) -> None:
            nonlocal has_ended
            if message["type"] != "http.response.body":
                await send(message)
                return
            has_ended = True
            await send({"type": "http.response.body", "body": b""})
            if message.get("more_body", False):
                raise ClientDisconnect  # a stream or an export is not to go on for nobody

        asked = {**scope, "method": "GET"}
        try:
            await self._app(asked, receive, bodiless)
        except ClientDisconnect:
            if not has_ended:
                raise
        finally:
            scope.update(asked, method="HEAD")  # the log and the metrics read there which route was taken
