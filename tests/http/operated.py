"""A real server whose app has a few routes more: ones that wait, stream, read or fail as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from real_server import Server

from commonplace.server.http.app import build_app
from commonplace.server.http.run import UVICORN, GracefulServer
from commonplace.server.http.service import Service


@dataclass
class Routes:
    """What the routes below `/test` wait for, and how often they got so far."""

    go_on: threading.Event = field(default_factory=threading.Event)
    has_come: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    has_ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: list[str] = field(default_factory=list)

    def add_to(self, app: FastAPI) -> None:
        app.add_api_route("/test/wait/{name}", self.wait, methods=["POST"], include_in_schema=False)
        app.add_api_route("/test/read", self.read, methods=["POST"], include_in_schema=False)
        app.add_api_route("/test/fail", self.fail, methods=["GET"], include_in_schema=False)
        app.add_api_route("/test/fail-midway", self.fail_midway, methods=["GET"], include_in_schema=False)
        app.add_api_route("/test/stream", self.stream, methods=["GET"], include_in_schema=False)

    def wait(self, name: str) -> Response:
        self.has_come.release()
        assert self.go_on.wait(30)
        self.done.append(name)
        self.has_ended.release()
        return Response(f"{name} is done")

    async def read(self, request: Request) -> Response:
        return Response(str(len(await request.body())))

    def fail(self) -> Response:
        raise RuntimeError("nobody foresaw the word turquoise")

    async def fail_midway(self) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            yield b"one\n"
            raise RuntimeError("nobody foresaw the word turquoise")

        return StreamingResponse(lines(), media_type="text/plain")

    async def stream(self) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield b"data: first\n\n"
            self.has_come.release()
            await anyio.sleep_forever()

        return StreamingResponse(events(), media_type="text/event-stream")


@contextmanager
def operated(service: Service, **options: Any) -> Iterator[tuple[Server, Routes]]:
    """Serve until the end of the block."""
    app, routes = build_app(service), Routes()
    routes.add_to(app)
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(app, lifespan="on", **{**UVICORN, "timeout_graceful_shutdown": 1, **options})
    server = GracefulServer(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    running = Server(service, f"http://127.0.0.1:{listening.getsockname()[1]}", server, thread, listening)
    try:
        yield running, routes
    finally:
        routes.go_on.set()
        running.stop()
