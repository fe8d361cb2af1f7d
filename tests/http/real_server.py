"""A service on a port of this computer, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from commonplace.server.http.app import build_app
from commonplace.server.http.service import Service

SECONDS = 20


@dataclass
class Server:
    """A running server: its address, and its end."""

    service: Service
    address: str
    uvicorn: uvicorn.Server
    thread: threading.Thread
    listening: socket.socket

    def stop(self) -> None:
        self.uvicorn.should_exit = True
        self.thread.join(SECONDS)
        self.listening.close()
        assert not self.thread.is_alive()

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """A client of this server; close it, or use it in a `with` block."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(
            base_url=self.address, headers={**headers, **options.pop("headers", {})}, timeout=SECONDS, **options
        )


def start_server(service: Service, **options: Any) -> Server:
    """Serve until `stop`; requests that come before it is ready wait in the socket."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(
        build_app(service), log_level="error", lifespan="on", **{"timeout_graceful_shutdown": 1, **options}
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    return Server(service, f"http://127.0.0.1:{listening.getsockname()[1]}", server, thread, listening)
