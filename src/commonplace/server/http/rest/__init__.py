"""REST at `/v1`: each route parses, calls the space and words the answer; nothing is decided here."""

from __future__ import annotations

from commonplace.server.http.rest import tails

tails.register()  # before the routes that have one

from commonplace.server.http.rest.routes import router  # noqa: E402

__all__ = ["router"]
