"""Answers that are given before or in place of a route: a problem of a known code, as two messages."""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.types import Send

from commonplace.server.http.problems import mcp_error
from commonplace.wire.problems import BY_CODE, MEDIA_TYPE, problem


@dataclass(frozen=True, slots=True)
class Refusal:
    """A problem by its code. `retry_after_seconds` goes into the header of that name.

    `over_mcp` words one that may be tried again as clients of MCP read it.
    """

    code: str
    detail: str
    retry_after_seconds: int | None = None

    async def send(self, send: Send, *, request_id: str | None = None, over_mcp: bool = False) -> None:
        kind = BY_CODE[self.code]
        form = problem(kind, self.detail, None if request_id is None else {"request_id": request_id})
        is_rpc = over_mcp and self.retry_after_seconds is not None
        body = json.dumps(mcp_error(form) if is_rpc else form).encode()
        media_type = b"application/json" if is_rpc else MEDIA_TYPE.encode()
        headers = [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
        if self.retry_after_seconds is not None:
            headers.append((b"retry-after", str(self.retry_after_seconds).encode()))
        await send({"type": "http.response.start", "status": kind.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
