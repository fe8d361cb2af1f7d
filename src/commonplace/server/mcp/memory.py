"""The memory that a server offers: one namespace, opened when it is first needed, never before the handshake."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING

from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from commonplace.checks import Limits
    from commonplace.space.files import Files
    from commonplace.space.space import Space
    from commonplace.tools.claude import WordingName
    from commonplace.tools.record_tools import RecordTools

ACTOR = "mcp"
"""Noted with every write of this face."""

CLIENT: ContextVar[str | None] = ContextVar("client", default=None)
"""What the client whose request is being answered says it is."""

THREAD: ContextVar[str | None] = ContextVar("thread", default=None)
"""The `_meta.threadId` of the call that is being answered."""

MAX_CLIENTS = 32


class Memory:
    """One space and its record tools. `open_space` is called once, in a worker thread, again where it failed.

    With `is_per_client` it is called once for each name of a client, so that it can note `CLIENT` as the actor. With
    `wraps_results` what is found in it is shown to the client's model as data, not instructions. With `open_thread`
    each thread has files of its own; `wording` is that of Claude's tool.
    """

    def __init__(
        self,
        open_space: Callable[[], Space],
        *,
        default_limit: int = 10,
        max_limit: int = 100,
        is_per_client: bool = False,
        wraps_results: bool = False,
        open_thread: Callable[[str], Space] | None = None,
        wording: WordingName = "seed",
    ) -> None:
        self._open_space = open_space
        self._limits = (default_limit, max_limit)
        self._is_per_client = is_per_client
        self.wraps_results = wraps_results
        self.wording = wording
        self._open_thread = open_thread
        self._lock = Lock()
        self._records: OrderedDict[str | None, RecordTools] = OrderedDict()

    @property
    def records(self) -> RecordTools:
        client = CLIENT.get() if self._is_per_client else None
        with self._lock:
            if client not in self._records:
                from commonplace.tools.record_tools import RecordTools

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

    # The memory of the unified tool: one tree for all threads, or one for each

    @property
    def needs_thread(self) -> bool:
        return self._open_thread is not None

    @property
    def limits(self) -> Limits:
        return self.space.limits

    def files_space(self, thread_id: str | None = None) -> Space:
        """Where the files are; with a tree for each thread, that of the call's thread."""
        if self._open_thread is None:
            return self.space
        if not thread_id:
            raise InvalidInput("threadId is required for perThread scope; the client sends it as _meta.threadId")
        return self._open_thread(thread_id)

    def tree(self, thread_id: str | None = None) -> Files:
        return self.files_space(thread_id).files
