"""Our server over streamable HTTP on a free port of this computer, which it prints.

`serve_http.py FILE [--fixtures]`: the book, and whether the conformance suite's tools stand beside ours.
"""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any
from unittest.mock import patch

import uvicorn
from conformance_fixtures import mount
from mcp.server.lowlevel import Server

from commonplace.book import Book, open_book
from commonplace.server.mcp import http_app
from commonplace.server.mcp.app import build_server

NAMESPACE = ("user", "default")


def main() -> None:
    with open_book(sys.argv[1]) as book, socket.create_server(("127.0.0.1", 0)) as listening:
        app = app_with_fixtures(book) if "--fixtures" in sys.argv[2:] else http_app(book, NAMESPACE)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        print(listening.getsockname()[1], flush=True)
        server.run(sockets=[listening])


def app_with_fixtures(book: Book) -> Any:
    """Our real app; each server that it builds gets the fixtures."""

    def build(*words: Any, **more: Any) -> Server[Any]:
        return mount(build_server(*words, **more))

    # The suite sends a foreign Host on purpose.
    logging.getLogger("mcp.server.transport_security").setLevel(logging.ERROR)
    with patch("commonplace.server.mcp.http.build_server", build):
        return http_app(book, NAMESPACE)


main()
