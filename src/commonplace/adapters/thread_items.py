"""A thread as a list of objects of another program: every object comes back unchanged and in order.

The adapters for sessions and chat histories are built on it. Characters that cannot be stored (NUL and lone surrogates)
become U+FFFD, so that the output of a model cannot end its run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

from commonplace.errors import AlreadyExists, InvalidInput, NotFound
from commonplace.space.conversation import MAX_PAGE
from commonplace.space.message_text import searchable_text
from commonplace.space.messages import Message
from commonplace.space.space import Space
from commonplace.space.threads import Threads

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class HasSpace(Protocol):
    """An object with a space, such as an agent's memory. If it has `save_messages`, that saves the items and titles the
    thread.
    """

    @property
    def space(self) -> Space: ...


class ThreadItems:
    """The items of one thread. The first one creates it."""

    def __init__(self, memory: Space | HasSpace, id: str, *, resource: str | None = None) -> None:
        self.threads = _threads_of(memory)
        self._save: Callable[..., object] = getattr(memory, "save_messages", self.threads.add)
        self._id = id
        self._resource = resource

    def read(self, limit: int | None = None) -> list[Any]:
        """The newest `limit` items, or all, oldest first. More than 1,000 are read in pages."""
        if limit is not None and limit <= MAX_PAGE:
            return self._newest(limit) if limit > 0 else []
        items = [item_of(message) for message in self.messages()]
        return items if limit is None else items[-limit:]

    def _newest(self, count: int) -> list[Any]:
        try:
            return list(self.threads.items(self._id, last=count, resource=self._resource))
        except NotFound:
            return []

    def add(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Append items, all or none."""
        self._written(self._save, items)

    def replace(self, items: Sequence[Mapping[str, Any]], seen: Mapping[str, int] | None = None) -> None:
        """Replace all items in one commit, which `Space.undo` can undo. For `seen` see `Threads.replace_messages`."""
        self._written(partial(self.threads.replace_messages, seen=seen), items)

    def _written(self, write: Callable[..., object], items: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._in_thread(write, items)
        except InvalidInput:
            kept = storable(items)
            if kept == list(items):
                raise
            self._in_thread(write, kept)

    def _in_thread(self, write: Callable[..., object], items: Sequence[Mapping[str, Any]]) -> None:
        try:
            write(self._id, items, resource=self._resource, verbatim=True)
        except NotFound:
            with suppress(AlreadyExists):  # another session may have just created it
                self.threads.create(id=self._id, resource=self._resource)
            write(self._id, items, resource=self._resource, verbatim=True)

    def pop(self) -> Any | None:
        """Remove the newest item; None if there is none."""
        while newest := self.newest(1):
            # If several pop at once, the item belongs to the one whose deletion made a commit.
            if self.threads.delete_messages([newest[0].id], resource=self._resource) is not None:
                return item_of(newest[0])
        return None

    def newest(self, count: int) -> tuple[Message, ...]:
        """The newest messages, at most 1,000, oldest first."""
        try:
            return self.threads.messages(self._id, resource=self._resource, last=count).messages
        except NotFound:
            return ()

    def messages(self) -> Iterator[Message]:
        """All messages with their ids and revisions, oldest first, read in pages."""
        cursor: str | None = None
        while True:
            try:
                page = self.threads.messages(self._id, resource=self._resource, limit=MAX_PAGE, cursor=cursor)
            except NotFound:
                return
            yield from page.messages
            cursor = page.cursor
            if cursor is None:
                return

    def clear(self) -> None:
        """Delete all items in one commit, which `Space.undo` can undo."""
        with suppress(NotFound):
            self.threads.clear(self._id, resource=self._resource)


def _threads_of(memory: object) -> Threads:
    space = memory if isinstance(memory, Space) else getattr(memory, "space", None)
    if not isinstance(space, Space):
        raise InvalidInput(
            'a session needs a space, such as book.space("user", "u-123"), or an agent\'s memory, '
            f"not {type(memory).__name__}"
        )
    return space.threads


def item_of(message: Message) -> Any:
    assert message.entry is not None
    return cast("Any", message.entry.value)


def revision_of(message: Message) -> int:
    assert message.entry is not None
    return message.entry.revision


def said(item: Mapping[str, Any]) -> tuple[str, str]:
    """Who said what, of an item that another program wrote: `user`, `system` or `assistant`, and the text."""
    role = {"human": "user", "developer": "system"}.get(str(item.get("role")), item.get("role"))
    return role if role in ("user", "system") else "assistant", searchable_text(item)


def storable(value: Any) -> Any:
    """A copy with U+FFFD for each character that cannot be stored."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {storable(key): storable(item) for key, item in value.items()}
    return [*map(storable, value)] if isinstance(value, (list, tuple)) else value
