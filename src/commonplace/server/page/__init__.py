"""The page for people. A screen is a module with a `router`, a template, and a row of `NAVIGATION` in `visit`."""

from __future__ import annotations

from starlette.routing import BaseRoute

from commonplace.server.http.sessions import PAGE_PATH
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
