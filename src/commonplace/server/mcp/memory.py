"""The memory that a server offers: one namespace, opened when it is first needed, never before the handshake."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonplace.space.space import Space
    from commonplace.tools.records import RecordTools

ACTOR = "mcp"
"""Noted with every write of this face."""


class Memory:
    """One space and its record tools. `open_space` is called once, in a worker thread, again where it failed."""

    def __init__(self, open_space: Callable[[], Space], *, default_limit: int = 10, max_limit: int = 100) -> None:
        self._open_space = open_space
        self._limits = (default_limit, max_limit)
        self._lock = Lock()
        self._records: RecordTools | None = None

    @property
    def records(self) -> RecordTools:
        with self._lock:
            if self._records is None:
                from commonplace.tools.records import RecordTools

                default_limit, max_limit = self._limits
                self._records = RecordTools(self._open_space(), default_limit=default_limit, max_limit=max_limit)
            return self._records

    @property
    def space(self) -> Space:
        return self.records.space
