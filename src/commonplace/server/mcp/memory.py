"""The memory that a server offers: one namespace, opened when it is first needed, never before the handshake."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonplace.space.space import Space
    from commonplace.tools.records import RecordTools

ACTOR = "mcp"
"""Noted with every write of this face."""

CLIENT: ContextVar[str | None] = ContextVar("client", default=None)
"""What the client whose request is being answered says it is."""

MAX_CLIENTS = 32


class Memory:
    """One space and its record tools. `open_space` is called once, in a worker thread, again where it failed.

    With `is_per_client` it is called once for each name of a client, so that it can note `CLIENT` as the actor. With
    `wraps_results` what is found in it is shown to the client's model as data, not instructions.
    """

    def __init__(
        self,
        open_space: Callable[[], Space],
        *,
        default_limit: int = 10,
        max_limit: int = 100,
        is_per_client: bool = False,
        wraps_results: bool = False,
    ) -> None:
        self._open_space = open_space
        self._limits = (default_limit, max_limit)
        self._is_per_client = is_per_client
        self.wraps_results = wraps_results
        self._lock = Lock()
        self._records: OrderedDict[str | None, RecordTools] = OrderedDict()

    @property
    def records(self) -> RecordTools:
        client = CLIENT.get() if self._is_per_client else None
        with self._lock:
            if client not in self._records:
                from commonplace.tools.records import RecordTools

                default_limit, max_limit = self._limits
                self._records[client] = RecordTools(
                    self._open_space(), default_limit=default_limit, max_limit=max_limit
                )
                if len(self._records) > MAX_CLIENTS:
                    self._records.popitem(last=False)
            return self._records[client]

    @property
    def space(self) -> Space:
        return self.records.space
