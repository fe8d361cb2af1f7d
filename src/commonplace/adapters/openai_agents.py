"""A `Session` of the OpenAI Agents SDK: `Runner.run(agent, "hello", session=CommonplaceSession(space, "chat-1"))`.

A session is a thread, and its items are the thread's messages. Every item comes back unchanged and in order, and can be
searched, recalled, undone and exported like any other message. Characters that cannot be stored (NUL and lone
surrogates) become U+FFFD, so that the output of a model cannot end its run.

Needs `pip install 'commonplace-memory[openai-agents]'`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from commonplace.errors import AlreadyExists, ConfigurationError, InvalidInput, NotFound, install_command
from commonplace.space.conversation import MAX_PAGE
from commonplace.space.messages import Message
from commonplace.space.space import Space
from commonplace.space.threads import Threads

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


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class HasSpace(Protocol):
    """An object with a space, such as an agent's memory. If it has `save_messages`, that saves the items and titles the
    thread.
    """

    @property
    def space(self) -> Space: ...


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
        self._threads = _threads_of(memory)
        self._save: Callable[..., object] = getattr(memory, "save_messages", self._threads.add)
        self._resource = resource

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, or all, oldest first. More than 1,000 are read in pages."""
        chosen = resolve_session_limit(limit, self.session_settings)
        if chosen is not None and chosen <= READ_AT_ONCE and self._threads.reads_at_once:
            return self._items(chosen)
        return await asyncio.get_running_loop().run_in_executor(None, self._items, chosen)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none."""
        if items:
            await _finished(lambda: self._add(cast("list[dict[str, Any]]", items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item; None if there is none."""
        return await _finished(self._pop)

    async def clear_session(self) -> None:
        """Delete all items in one commit, which `Space.undo` can undo."""
        await _finished(self._clear)

    def close(self) -> None:
        """Does nothing; the book belongs to the caller and stays open."""

    # These run in a worker thread, except for reading the newest few items

    def _items(self, limit: int | None) -> list[TResponseInputItem]:
        if limit is not None and limit <= MAX_PAGE:
            return self._last_items(limit) if limit > 0 else []
        items: list[TResponseInputItem] = []
        cursor: str | None = None
        while True:
            try:
                page = self._threads.messages(self.session_id, resource=self._resource, limit=MAX_PAGE, cursor=cursor)
            except NotFound:
                return []
            items += map(_item, page.messages)
            cursor = page.cursor
            if cursor is None:
                return items if limit is None else items[-limit:]

    def _last_items(self, count: int) -> list[TResponseInputItem]:
        try:
            found = self._threads.items(self.session_id, last=count, resource=self._resource)
        except NotFound:
            return []
        return cast("list[TResponseInputItem]", list(found))

    def _last(self, count: int) -> tuple[Message, ...]:
        try:
            return self._threads.messages(self.session_id, resource=self._resource, last=count).messages
        except NotFound:
            return ()

    def _add(self, items: list[dict[str, Any]]) -> None:
        try:
            self._add_to_thread(items)
        except InvalidInput:
            storable = _storable(items)
            if storable == items:
                raise
            self._add_to_thread(storable)

    def _add_to_thread(self, items: list[dict[str, Any]]) -> None:
        try:
            self._save(self.session_id, items, resource=self._resource, verbatim=True)
        except NotFound:
            with suppress(AlreadyExists):  # another session may have just created it
                self._threads.create(id=self.session_id, resource=self._resource)
            self._save(self.session_id, items, resource=self._resource, verbatim=True)

    def _pop(self) -> TResponseInputItem | None:
        while newest := self._last(1):
            # If several pop at once, the item belongs to the one whose deletion made a commit.
            if self._threads.delete_messages([newest[0].id], resource=self._resource) is not None:
                return _item(newest[0])
        return None

    def _clear(self) -> None:
        try:
            self._threads.clear(self.session_id, resource=self._resource)
        except NotFound:
            return


def _threads_of(memory: object) -> Threads:
    space = memory if isinstance(memory, Space) else getattr(memory, "space", None)
    if not isinstance(space, Space):
        raise InvalidInput(
            'a session needs a space, such as book.space("user", "u-123"), or an agent\'s memory, '
            f"not {type(memory).__name__}"
        )
    return space.threads


def _item(message: Message) -> TResponseInputItem:
    assert message.entry is not None
    return cast("TResponseInputItem", message.entry.value)


def _storable(value: Any) -> Any:
    """A copy with U+FFFD for each character that cannot be stored."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return [*map(_storable, value)] if isinstance(value, (list, tuple)) else value


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
