"""A server that stops in good order: what was sent to it is answered, and only then does it close."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from fastapi import FastAPI
from sse_starlette.sse import AppStatus

IDLE_SECONDS = 0.5
"""How long a connection that is between two requests stays open, so that one already on its way is not cut off."""

LOOK_SECONDS = 0.02


class GracefulServer(uvicorn.Server):
    """For an app with `operation` installed."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        # Else every answer in events is cut within half a second, an MCP call's too; `Limiting` ends those that listen.
        AppStatus.enable_automatic_graceful_drain = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connections; answer on those there are, each time ending one; then close what is idle.

        The server underneath closes idle connections at once: a request that a client has just sent on one is lost.
        """
        app = self.config.app
        assert isinstance(app, FastAPI)
        app.state.work.stop()
        for listener in self.servers:
            listener.close()
        for listening in sockets or ():
            listening.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + IDLE_SECONDS
        while self.server_state.connections and loop.time() < deadline and not self.force_exit:
            await asyncio.sleep(LOOK_SECONDS)
        await super().shutdown(sockets)
