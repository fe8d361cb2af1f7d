"""The open books of agents: at most so many at once, and nobody who holds one ever meets a closed one.

What callers hold is a `LeasedStore`. Each call of it borrows the real store for as long as the call takes; a store that
nobody borrows may be closed to make room, and is opened again by the next call. A file that vanished or was exchanged
under an open store is noticed before every call: a write to a deleted file would be lost without a word.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from abc import update_abstractmethods
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from commonplace.agents.folders import is_there, not_found
from commonplace.checks import Namespace
from commonplace.errors import ConfigurationError, NotFound, Unavailable
from commonplace.store import NamespaceHead, State, Store, Waker

if TYPE_CHECKING:
    from commonplace.book import Book

Lease: TypeAlias = Callable[[], AbstractContextManager[Store]]
MASTRA_MARK = b"mastra_"
MARK_BYTES = 1_000_000
"""How much of a foreign file is looked through for its table names, which stand near its beginning."""

BOOK_MARK = b"CMNP"
"""The application id of a book, at byte 68 of the page that a SQLite file begins with, and a log where it was new."""

_BOOK = re.compile(rb"SQLite format 3\x00.{52}" + BOOK_MARK, re.DOTALL)


class _Slot:
    """One agent's place among the open books. It leaves the list before its book is closed, by its last user."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.lock = threading.Lock()
        self.users = 0
        self.is_leaving = False
        self.process = os.getpid()
        self.book: Book | None = None
        self.file: tuple[Path, tuple[int, int]] | None = None

    @property
    def is_current(self) -> bool:
        """Whether the open book is still the file that stands at its path, and was opened by this process."""
        if self.book is None or self.file is None:
            return self.process == os.getpid()
        path, identity = self.file
        return self.process == os.getpid() and _identity(path) == identity

    def close(self) -> None:
        # A book from before a fork is the parent's to close.
        if self.book is not None and self.process == os.getpid():
            self.book.close()


class OpenBooks:
    """Opens agents' books when they are used, and closes the one used longest ago where there are too many."""

    def __init__(self, locate: Callable[[str], Path], open: Callable[[Path], Book], max_open: int) -> None:
        self._locate = locate
        self._open = open
        self._max_open = max_open
        self._mutex = threading.Lock()
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._known: dict[str, Path] = {}
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many are open now."""
        with self._mutex:
            return sum(slot.book is not None for slot in self._slots.values())

    @contextmanager
    def lease(self, agent_id: str) -> Iterator[Store]:
        """The store of an agent, which stays open until it is given back."""
        slot = self._take(agent_id)
        try:
            with slot.lock:
                if slot.book is None:
                    self._fill(slot)
            assert slot.book is not None
            yield slot.book.store
        finally:
            self._give_back(slot)

    def check(self, agent_id: str) -> None:
        """Raise where an agent's folder is gone, or a file of it that was in use."""
        self._check_open()
        path = self._known.get(agent_id)
        if path is None or not is_there(path):
            self._find(agent_id)

    def forget(self, agent_id: str) -> None:
        """Close an agent's book, after the calls under way, and look for its folder anew when it is next used."""
        with self._mutex:
            self._known.pop(agent_id, None)
            slot = self._slots.get(agent_id)
            leaving = [slot] if slot is not None and self._leaves(slot) else []
        _close_all(leaving)

    def close(self) -> None:
        """Close every book, each after the calls under way, and open no more."""
        with self._mutex:
            self._is_closed = True
            leaving = [slot for slot in list(self._slots.values()) if self._leaves(slot)]
        _close_all(leaving)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("these agents' memories were closed; call get_agent_memory again")

    def _take(self, agent_id: str) -> _Slot:
        with self._mutex:
            self._check_open()
            slot = self._slots.get(agent_id)
            leaving = []
            if slot is not None and not slot.is_current:
                leaving = [slot] if self._leaves(slot) else []
                slot = None
            if slot is None:
                slot = self._slots[agent_id] = _Slot(agent_id)
            slot.users += 1
            self._slots.move_to_end(agent_id)
        _close_all(leaving)
        return slot

    def _give_back(self, slot: _Slot) -> None:
        with self._mutex:
            slot.users -= 1
            leaving = [slot] if slot.is_leaving and not slot.users else []
            if slot.book is None and not slot.users and not slot.is_leaving:
                del self._slots[slot.agent_id]  # it could not be opened
            while len(self._slots) > self._max_open:
                idle = next((one for one in self._slots.values() if not one.users), None)
                if idle is None:
                    break
                self._leaves(idle)
                leaving.append(idle)
        _close_all(leaving)

    def _leaves(self, slot: _Slot) -> bool:
        """Take a slot off the list; whether it is to be closed at once."""
        del self._slots[slot.agent_id]
        slot.is_leaving = True
        return not slot.users

    def _fill(self, slot: _Slot) -> None:
        path = self._find(slot.agent_id)
        try:
            path.parent.mkdir(exist_ok=True)
            book = self._open(path)
        except ConfigurationError as error:
            raise _worded(error, path, slot.agent_id) from error
        except OSError as error:
            raise ConfigurationError(f"cannot make {path.parent}: {error.strerror}; check the folder") from error
        identity = _identity(path)
        if identity is None:
            book.close()
            raise not_found(slot.agent_id)
        slot.book, slot.file = book, (path, identity)
        self._known[slot.agent_id] = path

    def _find(self, agent_id: str) -> Path:
        path = self._locate(agent_id)
        if agent_id in self._known and not is_there(path):
            # To begin an empty one here would hide that the memories are gone.
            raise NotFound(
                f"{path} has vanished while it was in use; put it back, or call invalidate({agent_id!r}) to begin anew"
            )
        return path


class LeasedStore(Store):
    """A store that is opened for each call and may be closed between two; made of `Store`'s own methods."""

    def __init__(self, lease: Lease, wrote: Callable[[], None]) -> None:
        self._lease = lease
        self._wrote = wrote

    def write(self, *args: Any, **options: Any) -> Any:
        with self._lease() as store:
            result = store.write(*args, **options)
        if result[1] is not None:
            self._wrote()
        return result

    def export(self, namespaces: Sequence[Namespace] | None = None) -> Generator[NamespaceHead | State, None, None]:
        with self._lease() as store:
            yield from store.export(namespaces)

    def waker(self) -> Waker:
        return _LeasedWaker(self._lease())

    def close(self) -> None:
        """Nothing: who opened the books closes them."""


class _LeasedWaker(Waker):
    """Keeps its store open until it is closed itself."""

    def __init__(self, lease: AbstractContextManager[Store]) -> None:
        with ExitStack() as held:
            self._waker = held.enter_context(lease).waker()
            self._held = held.pop_all()

    def wait(self, timeout_seconds: float) -> bool:
        return self._waker.wait(timeout_seconds)

    def close(self) -> None:
        self._waker.close()
        self._held.close()


def _leased(name: str) -> Callable[..., Any]:
    def call(self: LeasedStore, /, *args: Any, **options: Any) -> Any:
        with self._lease() as store:
            return getattr(store, name)(*args, **options)

    call.__name__ = name
    return call


# Every other method of the waist borrows the store and hands the call on; one that is added later does so too.
# Those with a way of their own in the waist go to the backend's, which may be quicker.
for _name in (*LeasedStore.__abstractmethods__, "values", "search"):
    setattr(LeasedStore, _name, _leased(_name))
_complete: Callable[[Lease, Callable[[], None]], Store] = update_abstractmethods(cast(Any, LeasedStore))


def leased_store(lease: Lease, wrote: Callable[[], None]) -> Store:
    """A store that borrows the real one for each call; `wrote` is called after every commit."""
    return _complete(lease, wrote)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _close_all(slots: Sequence[_Slot]) -> None:
    for slot in slots:
        slot.close()


def _worded(error: ConfigurationError, path: Path, agent_id: str) -> ConfigurationError:
    """The error of a file that is no book; where it is Mastra's, with the way to take it over."""
    if not _is_mastras(path):
        return error
    aside = path.with_name("mastra.db")
    command = shlex.join(
        ["commonplace", "import-mastra", str(aside), "--db", str(path), "--namespace", f"agent/{agent_id}"]
    )
    return ConfigurationError(
        f"{path} is a memory of Mastra's, not a commonplace book; nothing was changed. Import it: move it to {aside} "
        f"(with its -wal, if there is one), then run `{command}`"
    )


def _is_mastras(path: Path) -> bool:
    """Whether a file tells of Mastra's tables and is no book, whose messages may tell of them too."""
    starts = [_start(Path(f"{path}{suffix}")) for suffix in ("", "-wal")]
    return any(MASTRA_MARK in start for start in starts) and not any(_BOOK.search(start) for start in starts)


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MARK_BYTES)
    except OSError:
        return b""
