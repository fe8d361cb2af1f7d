"""Answers that are given before or in place of a route: a problem of a known code, as two messages."""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.types import Send

from commonplace.wire.problems import BY_CODE, MEDIA_TYPE, problem


@dataclass(frozen=True, slots=True)
class Refusal:
    """A problem by its code. `retry_after_seconds` goes into the header of that name."""

    code: str
    detail: str
    retry_after_seconds: int | None = None

    async def send(self, send: Send, *, request_id: str | None = None) -> None:
        kind = BY_CODE[self.code]
        form = problem(kind, self.detail, None if request_id is None else {"request_id": request_id})
        body = json.dumps(form).encode()
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        if self.retry_after_seconds is not None:
            headers.append((b"retry-after", str(self.retry_after_seconds).encode()))
        await send({"type": "http.response.start", "status": kind.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
