"""What every answer of the page has: headers that confine it, and errors as pages in plain words."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.api.problems import MEDIA_TYPE
from commonplace.server.http.sessions import PAGE_PATH, cookie_name, is_page, session_of
from commonplace.server.page.templates import render
from commonplace.server.page.visit import sign_in_url

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    # Not `no-referrer`: browsers would then send forms with the Origin `null`.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_ADVICE = {
    403: "Not permitted",
    404: "Not found",
    409: "This conflicts with something else",
    412: "This was changed since",
    413: "This is too large",
    421: "This address is not served",
    422: "This cannot be used",
    429: "Too many requests",
    500: "Something failed here",
    503: "Not available now",
    504: "This took too long",
}
"""Titles of error pages. What to do next is in the error's own text."""


class PageMiddleware:
    """ASGI middleware: adds the headers of the page, and answers a problem with a page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_page(scope["path"]):
            await self._app(scope, receive, send)
            return
        problem: list[bytes] | None = None
        status = 500
        kept: list[tuple[bytes, bytes]] = []

        async def as_page(message: Message) -> None:
            nonlocal problem, status, kept
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=[*message.get("headers", ())])
                if headers.get("content-type", "").startswith(MEDIA_TYPE):
                    problem, status = [], message["status"]
                    kept = [(name, value) for name, value in headers.raw if name in (b"retry-after", b"allow")]
                    return
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
                await send({**message, "headers": headers.raw})
            elif problem is None:
                await send(message)
            else:
                problem.append(message.get("body", b""))
                if not message.get("more_body", False):
                    response = _error_page(Request(scope), status, json.loads(b"".join(problem)))
                    response.raw_headers += kept
                    problem = None
                    await response(scope, receive, as_page)

        await self._app(scope, receive, as_page)


def _error_page(request: Request, status: int, problem: dict[str, Any]) -> Response:
    if status == 401:
        return _sign_in(request)
    detail = str(problem.get("detail", ""))
    if problem.get("code") == "no_such_route":
        detail = "there is no such page; the navigation above lists all of them"
    values = {
        "status": status,
        "title": _ADVICE.get(status, "This did not work"),
        "detail": detail[:1].upper() + detail[1:],
        "is_fragment": request.headers.get("hx-request") == "true",
        "home": PAGE_PATH,
    }
    return HTMLResponse(render("error.html", values), status)


def _sign_in(request: Request) -> Response:
    """Send the browser to the sign-in page. A link on another site brings no cookie: load the page once more first."""
    if request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET":
        again = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return HTMLResponse(render("again.html", {"url": again}))
    url = sign_in_url(request)
    is_fragment = request.headers.get("hx-request") == "true"
    response = Response(headers={"HX-Redirect": url}) if is_fragment else RedirectResponse(url, 303)
    if session_of(request.headers) is not None:
        response.delete_cookie(cookie_name(request.headers), path=PAGE_PATH)
    return response
