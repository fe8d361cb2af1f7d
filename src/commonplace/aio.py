"""The async API: every call runs in a worker thread, so that the event loop never waits for the disk or a model.

    book = await commonplace.aio.open("memory.db")
    space = book.space("user", "u-123")
    await space.files.append("/notes/today", "hello")
    async with book: ...

Each class mirrors one of the synchronous API, method by method, and has no logic. The mirrors of a space and its parts
are next to the classes that they mirror.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, ParamSpec

from commonplace import book as sync
from commonplace.api.client import connect as connect_to_service
from commonplace.checks import Namespace
from commonplace.space.files import AsyncFiles
from commonplace.space.handle import awaited
from commonplace.space.items import AsyncItems
from commonplace.space.records import AsyncRecords
from commonplace.space.rules import Rules
from commonplace.space.space import AsyncSpace
from commonplace.space.threads import AsyncThreads
from commonplace.space.working_memory import AsyncWorkingMemories
from commonplace.store import Progress

if TYPE_CHECKING:
    from typing import Self

    from commonplace.exchange import Imported

__all__ = [
    "AsyncBook",
    "AsyncFiles",
    "AsyncItems",
    "AsyncRecords",
    "AsyncSpace",
    "AsyncThreads",
    "AsyncWorkingMemories",
    "connect",
    "open",
]

P = ParamSpec("P")


class AsyncBook:
    """`Book`, asynchronous."""

    def __init__(self, wrapped: sync.Book) -> None:
        self._wrapped = wrapped

    def space(self, *labels: str, actor: str | None = None, rules: Rules | None = None) -> AsyncSpace:
        return AsyncSpace(self._wrapped.space(*labels, actor=actor, rules=rules))

    def root(self, *, rules: Rules | None = None) -> AsyncSpace:
        return AsyncSpace(self._wrapped.root(rules=rules))

    namespaces = awaited(sync.Book.namespaces)
    search = awaited(sync.Book.search)
    list_items = awaited(sync.Book.list_items)
    reindex = awaited(sync.Book.reindex)
    rebuild_keywords = awaited(sync.Book.rebuild_keywords)
    stats = awaited(sync.Book.stats)
    export = awaited(sync.Book.export)
    import_memory = awaited(sync.Book.import_memory)
    backup = awaited(sync.Book.backup)
    verify = awaited(sync.Book.verify)
    close = awaited(sync.Book.close)

    async def import_lines(
        self,
        stream: BinaryIO,
        *,
        only: Namespace | None = None,
        merge: bool = False,
        actor: str | None = None,
        rules: Rules | None = None,
        progress: Progress | None = None,
    ) -> AsyncIterator[Imported]:
        """Import what `export` wrote, a namespace at a time."""
        taken = self._wrapped.import_lines(stream, only=only, merge=merge, actor=actor, rules=rules, progress=progress)
        while (one := await asyncio.to_thread(next, taken, None)) is not None:
            yield one

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _opened(method: Callable[P, sync.Book]) -> Callable[P, Awaitable[AsyncBook]]:
    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncBook:
        return AsyncBook(await asyncio.to_thread(method, *args, **kwargs))

    return call


open = _opened(sync.open_book)
connect = _opened(connect_to_service)
