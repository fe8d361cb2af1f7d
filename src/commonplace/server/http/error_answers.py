"""Every failure as `application/problem+json` with a stable code. Nothing internal is shown.

At `/mcp` a failure that may be retried is a JSON-RPC error instead, with the same status and headers: MCP clients show
its message.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from commonplace.api.problems import BY_CODE, MEDIA_TYPE, Kind, kind_of, problem, problem_of
from commonplace.checks import JSON
from commonplace.errors import CommonplaceError, InvalidInput, RateLimited, Unavailable

RETRY_AFTER_SECONDS = 1
MAX_SHOWN_CHARACTERS = 200
MCP_PATH = "/mcp"
MCP_UNAVAILABLE = -32000
_HTTP_CODES = {400: "invalid_json", 404: "no_such_route", 405: "method_not_allowed", 413: "too_large"}
_log = logging.getLogger("commonplace.server")


def install(app: FastAPI) -> None:
    """Turn every error of an app's routes into a problem."""
    app.add_exception_handler(CommonplaceError, answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_unexpected)


async def answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CommonplaceError)
    kind = kind_of(error)
    if kind.status >= 500 and not isinstance(error, Unavailable):
        _log.error("%s: %s", kind.code, error, extra=_named(request), exc_info=error)
    if isinstance(error, Unavailable) and is_mcp(request.scope["path"]):
        content = json.dumps(mcp_error(problem_of(error)), separators=(",", ":"))
        return Response(content, kind.status, _retry_after(error), media_type="application/json")
    return problem_response(error)


def is_mcp(path: str) -> bool:
    return path == MCP_PATH or path.startswith(f"{MCP_PATH}/")


def mcp_error(form: Mapping[str, JSON]) -> dict[str, JSON]:
    """A problem as a JSON-RPC answer. The connection identifies the request, so it has no id."""
    error: dict[str, JSON] = {"code": MCP_UNAVAILABLE, "message": form["detail"], "data": dict(form)}
    return {"jsonrpc": "2.0", "id": None, "error": error}


def problem_response(error: CommonplaceError, kind: Kind | None = None) -> Response:
    """The answer to an error of the library, optionally with another code than its own."""
    return _response(problem_of(error, kind), _retry_after(error))


def _retry_after(error: CommonplaceError) -> dict[str, str]:
    if isinstance(error, RateLimited):
        return {"Retry-After": str(math.ceil(error.retry_after_seconds))}
    return {"Retry-After": str(RETRY_AFTER_SECONDS)} if isinstance(error, Unavailable) else {}


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        return _response(problem(BY_CODE["invalid_json"], "the body is not JSON; send one JSON object"))
    detail = "; ".join(f"{_place(one['loc'])}: {_reason(one)}" for one in found[:5])
    return problem_response(InvalidInput(detail))


def _place(location: tuple[int | str, ...]) -> str:
    """The place of an error, such as `body.tags[2]`, shortened because a field's name may be anything."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return steps.removeprefix(".")[:MAX_SHOWN_CHARACTERS]


def _reason(one: Mapping[str, object]) -> str:
    message = str(one["msg"])[:MAX_SHOWN_CHARACTERS]
    return "is unknown; leave it out" if one["type"] == "extra_forbidden" else message[:1].lower() + message[1:]


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = BY_CODE[_HTTP_CODES.get(error.status_code, "invalid_input")]
    details = {
        404: "there is nothing at this URL; GET /openapi.json lists all operations",
        405: f"{request.method} is not allowed here; GET /openapi.json lists all operations",
    }
    form = problem(kind, details.get(error.status_code, str(error.detail)))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return _response({**form, "status": error.status_code}, headers)


def _methods(request: Request) -> Iterator[str]:
    """The methods allowed at a URL. A route knows only its own methods, and several routes share a URL."""
    for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
        asked = {"type": "http", "path": request.scope["path"], "method": method}
        if any(route.matches(dict(asked))[0] == Match.FULL for route in request.app.router.routes):
            yield from ("GET", "HEAD") if method == "GET" else (method,)


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    _log.error("a request failed", extra=_named(request), exc_info=error)
    return _response(problem(BY_CODE["internal"], "an internal error; see the log of the service"))


def _named(request: Request) -> dict[str, Any]:
    """The request's id for the log. The URL is not logged, because it may contain stored data."""
    return {"fields": {"request_id": getattr(request.state, "request_id", None)}}


def _response(form: Mapping[str, JSON], headers: Mapping[str, str] | None = None) -> Response:
    # Escaped, because a refused text may contain what UTF-8 cannot encode.
    status = form["status"]
    assert isinstance(status, int)
    return Response(json.dumps(form, separators=(",", ":")), status, dict(headers or {}), media_type=MEDIA_TYPE)
