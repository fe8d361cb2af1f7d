"""The page for people. A screen is a module with a `router`, a template, and a row of `NAVIGATION` in `visit`."""

from __future__ import annotations

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from commonplace.server.http.sessions import PAGE_PATH, is_page
from commonplace.server.page import (
    connect_screen,
    files_screen,
    history_screen,
    import_screen,
    records_screen,
    search_screen,
    sign_in,
    templates,
    threads_screen,
    undo_screen,
    usage_screen,
)

OPEN_PATHS = (sign_in.SIGN_IN, f"{PAGE_PATH}/static/*")
"""They need no key, and reveal nothing about the memory."""


def routes() -> list[BaseRoute]:
    screens = (
        search_screen,
        files_screen,
        records_screen,
        threads_screen,
        history_screen,
        undo_screen,
        usage_screen,
        import_screen,
        connect_screen,
        sign_in,
        templates,
    )
    return [route for screen in screens for route in screen.router.routes]


class PageRoutes(BaseRoute):
    """The routes of the page as one: a router compares a request with each of its routes, and REST has many."""

    def __init__(self) -> None:
        self._routes = routes()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or not is_page(scope["path"]):
            return Match.NONE, {}
        other_method: tuple[Match, Scope] | None = None
        for route in self._routes:
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                return match, child_scope
            if match is Match.PARTIAL and other_method is None:
                other_method = match, child_scope
        return other_method or (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["route"].handle(scope, receive, send)
