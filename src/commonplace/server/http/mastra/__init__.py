"""Mastra's memory routes at `/api/memory`, as its JavaScript client calls them, on the conversations of a book."""

from __future__ import annotations

from commonplace.server.http.rest import tails

tails.register()  # before the routes that have one

from commonplace.server.http.mastra.routes import router  # noqa: E402

__all__ = ["router"]
