"""A service on a port of this computer, in a thread of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from commonplace.server.http.app import build_app
from commonplace.server.http.service import Service

SECONDS = 20


class QuickServer(uvicorn.Server):
    """Stops at once. uvicorn looks only ten times a second whether to stop, and then waits for a tenth in any case."""

    _ended: asyncio.Event | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def wake(self) -> None:
        """Look now whether to stop."""
        if self._loop is not None and self._ended is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._ended.set)

    async def main_loop(self) -> None:
        self._ended, self._loop = asyncio.Event(), asyncio.get_running_loop()
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for _ in range(20):  # clients that have closed their connections are noticed in a moment
            if not self.server_state.connections and not self.server_state.tasks:
                break
            await asyncio.sleep(0.002)
        else:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
        await self.lifespan.shutdown()


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
        if isinstance(self.uvicorn, QuickServer):
            self.uvicorn.wake()
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
    server = QuickServer(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    return Server(service, f"http://127.0.0.1:{listening.getsockname()[1]}", server, thread, listening)
