"""A `Session` of the OpenAI Agents SDK: `Runner.run(agent, "hello", session=CommonplaceSession(space, "chat-1"))`.

A session is a thread, and its items are the thread's messages. Every item comes back unchanged and in order, and can be
searched, recalled, undone and exported like any other message. Characters that cannot be stored (NUL and lone
surrogates) become U+FFFD, so that the output of a model cannot end its run.

Needs `pip install 'commonplace-memory[openai-agents]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from commonplace.adapters.thread_items import HasSpace, ThreadItems
from commonplace.errors import ConfigurationError, install_command
from commonplace.space.space import Space

try:
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ImportError as error:
    raise ConfigurationError(
        f"the OpenAI Agents SDK is not installed, or too old; run: {install_command('openai-agents')}"
    ) from error

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

__all__ = ["CommonplaceSession"]

T = TypeVar("T")
READ_AT_ONCE = 50
"""Reading up to this many items of a local book takes less time than starting a worker thread."""


class CommonplaceSession(SessionABC):
    """One conversation in a space. The first item creates the thread with the session's id."""

    def __init__(
        self,
        memory: Space | HasSpace,
        session_id: str,
        *,
        resource: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._stored = ThreadItems(memory, session_id, resource=resource)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, or all, oldest first. More than 1,000 are read in pages."""
        chosen = resolve_session_limit(limit, self.session_settings)
        if chosen is not None and chosen <= READ_AT_ONCE and self._stored.threads.reads_at_once:
            return self._stored.read(chosen)
        return await asyncio.get_running_loop().run_in_executor(None, self._stored.read, chosen)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none."""
        if items:
            await _finished(lambda: self._stored.add(cast("list[dict[str, Any]]", items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item; None if there is none."""
        return await _finished(self._stored.pop)

    async def clear_session(self) -> None:
        """Delete all items in one commit, which `Space.undo` can undo."""
        await _finished(self._stored.clear)

    def close(self) -> None:
        """Does nothing; the book belongs to the caller and stays open."""


async def _finished(change: Callable[[], T]) -> T:
    """Run a change in a worker thread. A cancelled caller still waits until it has finished.

    Otherwise a later change, such as removing the items again, could overtake it.
    """
    future = asyncio.get_running_loop().run_in_executor(None, change)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):  # cancelled again; keep waiting
                await asyncio.wait({future})
        if not future.cancelled():
            future.exception()  # otherwise asyncio logs that it was never retrieved
        raise
