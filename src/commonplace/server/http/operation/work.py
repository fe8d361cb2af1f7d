"""What the server is doing right now: requests under way, open streams, and whether it is about to stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field


class Shares:
    """Places of which one caller may hold as many as are still free: one takes half of them at most, two two thirds.

    So whoever comes finds one, whatever the others do. None is nobody in particular, and may take all.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._held: Counter[str] = Counter()

    def take(self, caller: str | None) -> bool:
        """Take a place; False where there is none for this caller."""
        free = self.most - self.taken
        if free <= 0 or (caller is not None and self._held[caller] >= free):
            return False
        self.taken += 1
        if caller is not None:
            self._held[caller] += 1
        return True

    def give(self, caller: str | None) -> None:
        """Give a place back."""
        self.taken -= 1
        if caller is not None:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]


@dataclass
class Work:
    """Counted and read on the event loop alone, so plain numbers will do."""

    requests: Shares
    """Requests whose answer has not been given; a stream counts only until it has begun."""
    streams: Shares
    is_stopping: bool = False
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """From now on: not ready, every answer ends its connection, and streams come to their end."""
        self.is_stopping = True
        self._stop.set()

    async def until_stop(self) -> None:
        await self._stop.wait()
