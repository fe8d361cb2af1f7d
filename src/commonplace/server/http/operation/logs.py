"""The service's logs: JSON lines on stderr, uvicorn's own among them. No contents, queries, keys or namespaces."""

from __future__ import annotations

import logging

from commonplace.server.mcp.logs import configure_logging


def configure_service_logging(level: str) -> None:
    """Send every logger's records to stderr, from a level on: error, warn, info or debug."""
    configure_logging(level)
    if level != "debug":
        # It tells of the start and the stop in many lines; the command prints what matters of that.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
