"""A `Session` of the OpenAI Agents SDK: `Runner.run(agent, "hello", session=CommonplaceSession(space, "chat-1"))`.

A session is a thread, and its items are the thread's messages. Every item comes back unchanged and in order, and can be
searched, recalled, undone and exported like any other message. Characters that cannot be stored (NUL and lone
surrogates) become U+FFFD, so that the output of a model cannot end its run.

Needs `pip install 'commonplace-memory[openai-agents]'`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from commonplace.adapters.thread_items import HasSpace, ThreadItems, item_of, revision_of
from commonplace.errors import ConfigurationError, Outdated, install_command
from commonplace.space.conversation import MAX_PAGE
from commonplace.space.messages import MAX_MESSAGES, Message
from commonplace.space.space import Space

try:
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ImportError as error:
    raise ConfigurationError(
        f"the OpenAI Agents SDK is not installed, or too old; run: {install_command('openai-agents')}"
    ) from error

try:
    from agents.memory.session import _CompactionSnapshot
except ImportError:  # not a public name, so another version may lack it; compaction then replaces whole histories only
    _CompactionSnapshot = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

__all__ = ["CommonplaceSession"]

T = TypeVar("T")
MOST_WORKERS = 32
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
        self._is_closed = False

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, or all, oldest first. More than 1,000 are read in pages."""
        self._check_open()
        chosen = resolve_session_limit(limit, self.session_settings)
        if chosen is not None and chosen <= READ_AT_ONCE and self._stored.threads.reads_at_once:
            return self._stored.read(chosen)
        return await asyncio.get_running_loop().run_in_executor(None, self._stored.read, chosen)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none."""
        self._check_open()
        if items:
            await _finished(lambda: self._stored.add(cast("list[dict[str, Any]]", items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item; None if there is none."""
        self._check_open()
        return await _finished(self._stored.pop)

    async def clear_session(self) -> None:
        """Delete all items in one commit, which `Space.undo` can undo."""
        self._check_open()
        await _finished(self._stored.clear)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """The newest items, and how to replace some of them in one commit.

        `OpenAIResponsesCompactionSession` asks its sessions for this. Without it, a session of which the model sees
        only a part is never compacted. `EncryptedSession` tells with `prune_prefix` which items are expired.
        """
        if _CompactionSnapshot is None or not self._stores_items_as_given or limit >= MAX_PAGE:
            return None
        self._check_open()
        read = await asyncio.to_thread(self._stored.newest, limit + 1)
        found = read[-limit:]

        def replace(expected: Sequence[Message], output: list[TResponseInputItem]) -> bool:
            seen = {message.id: revision_of(message) for message in expected}
            if prune_prefix is not None:
                for message in self._stored.messages():
                    if message.id in seen or len(seen) == MAX_MESSAGES or not prune_prefix(item_of(message)):
                        break
                    seen[message.id] = revision_of(message)
            try:
                self._stored.replace(cast("list[dict[str, Any]]", output), seen)
            except Outdated:
                return False
            return True

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected = found[start:]
            return bool(expected) and await _finished(lambda: replace(expected, output))

        return _CompactionSnapshot([item_of(message) for message in found], len(read) <= limit, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one commit. `OpenAIResponsesCompactionSession` asks for this too."""
        if not self._stores_items_as_given:
            return False
        self._check_open()
        await _finished(lambda: self._stored.replace(cast("list[dict[str, Any]]", items)))
        return True

    def close(self) -> None:
        """End this session object, as the SDK's own does. The book belongs to the caller and stays open."""
        self._is_closed = True

    @property
    def _stores_items_as_given(self) -> bool:
        """Whether no subclass changes them on their way to or from the thread."""
        ours = ("get_items", "add_items")
        return all(getattr(type(self), name) is getattr(CommonplaceSession, name) for name in ours)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{type(self).__name__} is closed")  # the same error as from the SDK's sessions


class _Change(Generic[T]):
    """A change that a worker thread makes for a task of an event loop."""

    def __init__(self, change: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self.is_done = False
        self.waiter: asyncio.Future[None] | None = None
        self.result: T | None = None
        self.error: BaseException | None = None
        self._change = change
        self._loop = loop

    def make(self) -> None:
        try:
            self.result = self._change()
        except BaseException as error:  # noqa: BLE001  # the task raises it
            self.error = error

    def announce(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self.is_done = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class _Workers:
    """Threads that make changes. `loop.run_in_executor` takes twice the processor time, with two futures for each call.

    They are daemons, so that an idle one does not keep the program from ending; a busy one is waited for.
    """

    def __init__(self) -> None:
        self._changes: SimpleQueue[_Change[Any] | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._running = 0
        self._threads: list[threading.Thread] = []

    def start(self, change: _Change[Any]) -> None:
        with self._mutex:
            self._running += 1
            if len(self._threads) < min(self._running, MOST_WORKERS):
                self._threads.append(threading.Thread(target=self._work, name="commonplace-session", daemon=True))
                self._threads[-1].start()
        self._changes.put(change)

    def _work(self) -> None:
        while (change := self._changes.get()) is not None:
            change.make()
            with self._mutex:  # before the task goes on, so that its next change finds this thread
                self._running -= 1
            change.announce()
            del change

    def end(self) -> None:
        for _ in self._threads:
            self._changes.put(None)
        for thread in self._threads:
            thread.join()


_workers = _Workers()


@atexit.register
def _end_workers() -> None:
    _workers.end()


def _replace_workers() -> None:
    global _workers
    _workers = _Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_workers)  # a child process has no threads of its parent


async def _finished(make: Callable[[], T]) -> T:
    """Make a change in a worker thread. A cancelled caller still waits until it has finished.

    Otherwise a later change, such as removing the items again, could overtake it.
    """
    loop = asyncio.get_running_loop()
    change = _Change(make, loop)
    _workers.start(change)
    cancelled: asyncio.CancelledError | None = None
    while not change.is_done:
        change.waiter = loop.create_future()
        try:
            await change.waiter
        except asyncio.CancelledError as error:  # perhaps again; keep waiting
            cancelled = error
    if cancelled is not None:
        raise cancelled
    if change.error is not None:
        raise change.error
    return cast("T", change.result)
