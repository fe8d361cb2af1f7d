"""What the server is doing right now: requests under way, open streams, and whether it is about to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class Work:
    """Counted and read on the event loop alone, so plain numbers will do."""

    in_flight: int = 0
    """Requests whose answer has not been given; a stream counts only until it has begun."""
    streams: int = 0
    is_stopping: bool = False
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """From now on: not ready, every answer ends its connection, and streams come to their end."""
        self.is_stopping = True
        self._stop.set()

    async def until_stop(self) -> None:
        await self._stop.wait()
