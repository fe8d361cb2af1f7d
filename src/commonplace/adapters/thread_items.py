"""A thread as a list of objects of another program: every object comes back unchanged and in order.

The adapters for sessions and chat histories are built on it. Characters that cannot be stored (NUL and lone surrogates)
become U+FFFD, so that the output of a model cannot end its run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from commonplace.errors import AlreadyExists, InvalidInput, NotFound
from commonplace.space.conversation import MAX_PAGE
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
        items: list[Any] = []
        cursor: str | None = None
        while True:
            try:
                page = self.threads.messages(self._id, resource=self._resource, limit=MAX_PAGE, cursor=cursor)
            except NotFound:
                return []
            items += map(_item, page.messages)
            cursor = page.cursor
            if cursor is None:
                return items if limit is None else items[-limit:]

    def _newest(self, count: int) -> list[Any]:
        try:
            return list(self.threads.items(self._id, last=count, resource=self._resource))
        except NotFound:
            return []

    def add(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Append items, all or none."""
        try:
            self._add(items)
        except InvalidInput:
            kept = storable(items)
            if kept == list(items):
                raise
            self._add(kept)

    def _add(self, items: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._save(self._id, items, resource=self._resource, verbatim=True)
        except NotFound:
            with suppress(AlreadyExists):  # another session may have just created it
                self.threads.create(id=self._id, resource=self._resource)
            self._save(self._id, items, resource=self._resource, verbatim=True)

    def pop(self) -> Any | None:
        """Remove the newest item; None if there is none."""
        while newest := self._last():
            # If several pop at once, the item belongs to the one whose deletion made a commit.
            if self.threads.delete_messages([newest[0].id], resource=self._resource) is not None:
                return _item(newest[0])
        return None

    def _last(self) -> tuple[Message, ...]:
        try:
            return self.threads.messages(self._id, resource=self._resource, last=1).messages
        except NotFound:
            return ()

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


def _item(message: Message) -> Any:
    assert message.entry is not None
    return cast("Any", message.entry.value)


def storable(value: Any) -> Any:
    """A copy with U+FFFD for each character that cannot be stored."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {storable(key): storable(item) for key, item in value.items()}
    return [*map(storable, value)] if isinstance(value, (list, tuple)) else value
