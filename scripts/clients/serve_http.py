"""The app of `commonplace serve` on a free port of this computer, which it prints.

`serve_http.py FILE [--fixtures]`: the book, and whether to add the conformance suite's tools.
"""

from __future__ import annotations

import socket
import sys
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import uvicorn
from conformance_fixtures import mount
from mcp.server.lowlevel import Server

from commonplace.book import open_book
from commonplace.server.http.app import build_app
from commonplace.server.http.auth import make_gate
from commonplace.server.http.run import UVICORN, GracefulServer
from commonplace.server.http.service import Service
from commonplace.server.mcp.server import build_server
from commonplace.settings import Settings


def main() -> None:
    fixtures = patch("commonplace.server.http.mcp_http.build_server", _build_with_fixtures)
    with (
        open_book(sys.argv[1]) as book,
        socket.create_server(("127.0.0.1", 0)) as listening,
        fixtures if "--fixtures" in sys.argv[2:] else nullcontext(),
    ):
        settings = Settings()
        app = build_app(Service(book, make_gate(book, settings), settings))
        server = GracefulServer(uvicorn.Config(app, lifespan="on", **UVICORN))  # type: ignore[arg-type]
        print(listening.getsockname()[1], flush=True)
        server.run(sockets=[listening])


def _build_with_fixtures(*words: Any, **more: Any) -> Server[Any]:
    return mount(build_server(*words, **more))


main()
