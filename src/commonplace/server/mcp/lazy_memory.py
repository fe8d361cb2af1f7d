"""The memory behind an MCP server: one namespace, opened by the first call that needs it, not at the handshake."""

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
"""The actor of every write over MCP."""

CLIENT: ContextVar[str | None] = ContextVar("client", default=None)
"""The name that the client of the current request gives itself."""

THREAD: ContextVar[str | None] = ContextVar("thread", default=None)
"""The `_meta.threadId` of the current call."""

MAX_CLIENTS = 32
MAX_CLIENT_CHARACTERS = 80


def client_word(said: str) -> str | None:
    """The first printable word of a client's name, for the history. It is only the client's own claim."""
    first = next(iter(said.split()), "")
    return "".join(character for character in first if character.isprintable())[:MAX_CLIENT_CHARACTERS] or None


class Memory:
    """One space and its record tools. `open_space` is called once, in a worker thread, and again if it failed.

    With `is_per_client` it is called once for each client name, so that it can record `CLIENT` as the actor. With
    `wraps_results`, results are marked as data for the client's model, not as instructions. With `open_thread`, each
    thread has its own files. `wording` is that of Claude's tool.
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

    # The files of the unified tool: one tree for all threads, or one per thread

    @property
    def needs_thread(self) -> bool:
        return self._open_thread is not None

    @property
    def limits(self) -> Limits:
        return self.space.limits

    def files_space(self, thread_id: str | None = None) -> Space:
        """The space with the files; with a tree per thread, that of the call's thread."""
        if self._open_thread is None:
            return self.space
        if not thread_id:
            raise InvalidInput("threadId is required for perThread scope; the client sends it as _meta.threadId")
        return self._open_thread(thread_id)

    def tree(self, thread_id: str | None = None) -> Files:
        return self.files_space(thread_id).files
