"""The async API: every call runs in a worker thread, so that the event loop never waits for the disk or a model.

    book = await commonplace.aio.open("memory.db")
    space = book.space("user", "u-123")
    await space.files.append("/notes/today", "hello")
    async with book: ...

Each class mirrors one of the synchronous API, method by method, and has no logic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, ParamSpec, TypeVar

from commonplace import book as sync
from commonplace.api.client import connect as connect_to_service
from commonplace.api.operations import OPERATIONS
from commonplace.checks import Limits, Namespace
from commonplace.space.files import FileInfo, Files
from commonplace.space.handle import Seen
from commonplace.space.records import Records
from commonplace.space.rules import Rules
from commonplace.space.space import Space
from commonplace.space.threads import Threads
from commonplace.space.working_memory import WorkingMemories
from commonplace.store import Progress

if TYPE_CHECKING:
    from typing import Self

    from commonplace.exchange import Imported

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def _awaited(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    """The method of the wrapped object, called in a worker thread."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        # By name: the wrapped object may be remote, with its own implementation.
        return asyncio.to_thread(getattr(self._wrapped, method.__name__), *args, **kwargs)

    return call


def _with_operations(original: type, part: str) -> Callable[[type[S]], type[S]]:
    """Adds the methods that are operations of a service and that the class does not list with their types."""

    def add(mirror: type[S]) -> type[S]:
        for operation in OPERATIONS:
            owner, _, name = (operation.call or "").rpartition(".")
            if name and owner == part and not hasattr(mirror, name):
                setattr(mirror, name, _awaited(getattr(original, name)))
        return mirror

    return add


@_with_operations(Files, "files")
class AsyncFiles:
    """`Files`, asynchronous."""

    def __init__(self, wrapped: Files) -> None:
        self._wrapped = wrapped

    read = _awaited(Files.read)
    exists = _awaited(Files.exists)
    stat = _awaited(Files.stat)
    list = _awaited(Files.list)
    page = _awaited(Files.page)
    write = _awaited(Files.write)
    write_all = _awaited(Files.write_all)
    append = _awaited(Files.append)
    edit = _awaited(Files.edit)
    replace = _awaited(Files.replace)
    insert = _awaited(Files.insert)
    make_directory = _awaited(Files.make_directory)
    delete = _awaited(Files.delete)
    move = _awaited(Files.move)

    async def walk(self, path: str = "/") -> AsyncIterator[FileInfo]:
        """Everything below a directory, read a page at a time."""
        found = iter(self._wrapped.walk(path))
        while (info := await asyncio.to_thread(next, found, None)) is not None:
            yield info


@_with_operations(Records, "records")
class AsyncRecords:
    """`Records`, asynchronous."""

    def __init__(self, wrapped: Records) -> None:
        self._wrapped = wrapped

    create = _awaited(Records.create)
    get = _awaited(Records.get)
    update = _awaited(Records.update)
    delete = _awaited(Records.delete)
    undelete = _awaited(Records.undelete)
    list = _awaited(Records.list)


@_with_operations(WorkingMemories, "threads.working")
class AsyncWorkingMemories:
    """`WorkingMemories`, asynchronous."""

    def __init__(self, wrapped: WorkingMemories) -> None:
        self._wrapped = wrapped

    read = _awaited(WorkingMemories.read)
    write = _awaited(WorkingMemories.write)
    clear = _awaited(WorkingMemories.clear)
    history = _awaited(WorkingMemories.history)


@_with_operations(Threads, "threads")
class AsyncThreads:
    """`Threads`, asynchronous."""

    def __init__(self, wrapped: Threads) -> None:
        self._wrapped = wrapped

    @cached_property
    def working(self) -> AsyncWorkingMemories:
        return AsyncWorkingMemories(self._wrapped.working)

    create = _awaited(Threads.create)
    begin = _awaited(Threads.begin)
    get = _awaited(Threads.get)
    list = _awaited(Threads.list)
    update = _awaited(Threads.update)
    suggest_title = _awaited(Threads.suggest_title)
    delete = _awaited(Threads.delete)
    clone = _awaited(Threads.clone)
    transfer = _awaited(Threads.transfer)
    add = _awaited(Threads.add)
    messages = _awaited(Threads.messages)
    items = _awaited(Threads.items)
    page_of_threads = _awaited(Threads.page_of_threads)
    page_of_messages = _awaited(Threads.page_of_messages)
    around = _awaited(Threads.around)
    get_message = _awaited(Threads.get_message)
    update_message = _awaited(Threads.update_message)
    clear = _awaited(Threads.clear)
    delete_messages = _awaited(Threads.delete_messages)
    recall = _awaited(Threads.recall)
    context = _awaited(Threads.context)
    search = _awaited(Threads.search)


@_with_operations(Space, "")
class AsyncSpace:
    """`Space`, asynchronous."""

    def __init__(self, wrapped: Space) -> None:
        self._wrapped = wrapped

    @property
    def namespace(self) -> Namespace:
        return self._wrapped.namespace

    @property
    def limits(self) -> Limits:
        return self._wrapped.limits

    @cached_property
    def files(self) -> AsyncFiles:
        return AsyncFiles(self._wrapped.files)

    @cached_property
    def records(self) -> AsyncRecords:
        return AsyncRecords(self._wrapped.records)

    @cached_property
    def threads(self) -> AsyncThreads:
        return AsyncThreads(self._wrapped.threads)

    def once(self, key: str, fingerprint: str) -> AsyncSpace:
        return AsyncSpace(self._wrapped.once(key, fingerprint))

    def expecting(self, kind: str, key: str, *revisions: Seen) -> AsyncSpace:
        return AsyncSpace(self._wrapped.expecting(kind, key, *revisions))

    search = _awaited(Space.search)
    history = _awaited(Space.history)
    state = _awaited(Space.state)
    restore = _awaited(Space.restore)
    undo = _awaited(Space.undo)
    recent = _awaited(Space.recent)
    changes = _awaited(Space.changes)
    stats = _awaited(Space.stats)
    purge = _awaited(Space.purge)


class AsyncBook:
    """`Book`, asynchronous."""

    def __init__(self, wrapped: sync.Book) -> None:
        self._wrapped = wrapped

    def space(self, *labels: str, actor: str | None = None, rules: Rules | None = None) -> AsyncSpace:
        return AsyncSpace(self._wrapped.space(*labels, actor=actor, rules=rules))

    namespaces = _awaited(sync.Book.namespaces)
    reindex = _awaited(sync.Book.reindex)
    rebuild_keywords = _awaited(sync.Book.rebuild_keywords)
    stats = _awaited(sync.Book.stats)
    export = _awaited(sync.Book.export)
    backup = _awaited(sync.Book.backup)
    verify = _awaited(sync.Book.verify)
    close = _awaited(sync.Book.close)

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
