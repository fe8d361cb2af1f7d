"""What goes wrong in Mastra's form: `{"error": message}` with the status that the error has everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from commonplace.errors import CommonplaceError
from commonplace.server.http.problems import problem_response
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.wire.forms import dumps
from commonplace.wire.problems import kind_of

MAX_SHOWN_CHARACTERS = 200
INVALID = 422
"""What the other routes answer to a wrong argument; Mastra's server answers 400."""

STATUSES = (400, 403, 404, 409, 413, 503)
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "issues": {"type": "array", "items": {"type": "object"}}},
    "required": ["error"],
}
_PROBLEM = {"application/problem+json": {"schema": {"type": "object"}}}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    **{
        status: {
            "description": "What was wrong.",
            "content": {"application/json": {"schema": _ERROR}, **_PROBLEM},
        }
        for status in STATUSES
    },
    **{status: {"description": "Refused before it came here.", "content": _PROBLEM} for status in (401, 429, 500, 504)},
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class MastraRoute(ThreadedRoute):
    """A route that words its errors as Mastra's client reads them, and reads the body of a PATCH as JSON.

    client-js 0.17 sends that as text. Only of a PATCH: other sites' pages may send a POST of text without asking.
    """

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_or_refuse(request: Request) -> Response:
            if request.method == "PATCH":
                request = _as_json(request)
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _invalid(error)
            except HTTPException as error:
                return JSONResponse({"error": str(error.detail)[:MAX_SHOWN_CHARACTERS]}, error.status_code)
            except CommonplaceError as error:
                kind = kind_of(error)
                if kind.status >= 500:
                    return problem_response(error)
                status = 400 if kind.status == INVALID else kind.status
                return Response(dumps({"error": str(error)}), status, media_type="application/json")

        return handle_or_refuse


def _as_json(request: Request) -> Request:
    headers = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
    return Request({**request.scope, "headers": [*headers, (b"content-type", b"application/json")]}, request.receive)


def _invalid(error: RequestValidationError) -> Response:
    found = error.errors()
    place = "query parameters" if any(one["loc"][:1] == ("query",) for one in found) else "request body"
    issues = [
        {
            "field": ".".join(map(str, one["loc"][1:]))[:MAX_SHOWN_CHARACTERS] or "root",
            "message": str(one["msg"])[:MAX_SHOWN_CHARACTERS],
        }
        for one in found[:10]
    ]
    told = "; ".join(f"{issue['field']}: {issue['message']}" for issue in issues)
    body = {"error": f"Invalid {place}: {told}", "issues": issues}
    return Response(dumps(body), 400, media_type="application/json")
