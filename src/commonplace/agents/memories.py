"""The memories of many agents, one instance each, in a folder with a `memory.db` per agent or in one shared book.

Only a bounded number of files is open. The store that a memory holds leases the real one for each call. A book that no
call is using may be closed to make room, and the next call opens it again. Before each call, a file that was deleted or
replaced is noticed, because a write to a deleted file would be lost silently.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import threading
import unicodedata
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from weakref import WeakValueDictionary

from commonplace.agents.agent_memory import AgentMemory, Background, MemoryConfig
from commonplace.book import Book, open_book
from commonplace.checks import Limits, check_line, check_visible, local_path
from commonplace.embedding import Embedder, create_embedder
from commonplace.engine.embedders import Models
from commonplace.engine.indexer import CLOSE_SECONDS
from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput, NotFound, Unavailable
from commonplace.language.dates import DateOrder
from commonplace.space.space import Space
from commonplace.store import Store

if TYPE_CHECKING:
    from typing import Self

    from commonplace.redaction import Redactor

LABEL = "agent"
"""An agent's namespace is `("agent", its id)`, both in its own file and in a shared book."""

MAX_OPEN = 64
TITLE_THREADS = 4
DATABASE = "memory.db"
MAX_NAME_BYTES = 400
MAX_SLUG_CHARACTERS = 60

MASTRA_MARK = b"mastra_"
MARK_BYTES = 1_000_000
"""How much of a foreign file is searched for table names, which are near its beginning."""

BOOK_MARK = b"CMNP"
"""The application id of a book, at byte 68 of the first page of a SQLite file, which may also be in its log."""

Lease: TypeAlias = Callable[[], AbstractContextManager[Store]]
_BOOK = re.compile(rb"SQLite format 3\x00.{52}" + BOOK_MARK, re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")
_REGISTERED = "agent"
_REGISTRAR = "commonplace"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BookOptions:
    """How the books of agents are opened. They share one embedder."""

    embedder: Embedder | str | None = None
    make_embedder: Callable[[str], Embedder] = create_embedder
    limits: Limits | None = None
    durability: Literal["full", "normal"] = "full"
    busy_seconds: float = 10.0
    clock: Callable[[], int] | None = None
    background: bool = True
    """Whether to embed new texts in the background; otherwise only a search embeds them."""
    redaction: Redactor | None = None
    date_order: DateOrder = "both"


class AgentMemories:
    """Finds, creates and caches agents' memories. It is thread-safe. Close it, or use it in a `with` block.

    At most `max_open` files stay open, besides those that calls are using. A memory that you hold keeps working: its
    file is opened again when needed.
    """

    def __init__(
        self,
        base_folder: str | Path | None = None,
        *,
        book: Book | None = None,
        config: MemoryConfig | None = None,
        options: BookOptions | None = None,
        max_open: int = MAX_OPEN,
    ) -> None:
        if (base_folder is None) == (book is None):
            raise InvalidInput("give either base_folder or book")
        if max_open < 1:
            raise InvalidInput(f"max_open must be at least 1, not {max_open}")
        self.config = config or MemoryConfig()
        self._max_open = max_open
        self._mutex = threading.Lock()
        self._recent: OrderedDict[str, AgentMemory] = OrderedDict()
        self._held: WeakValueDictionary[str, AgentMemory] = WeakValueDictionary()
        self._titling = Background("commonplace-titles", threads=TITLE_THREADS)
        self._place: _Folders | _SharedBook
        if book is not None:
            self._place = _SharedBook(book)
        else:
            folder = local_path("the agents' folder", base_folder)
            self._place = _Folders(folder, options or BookOptions(), max_open)

    def create_agent(self, name: str) -> str:
        """Create an agent; returns its id, a UUID."""
        return self._place.create(name)

    def get_agent_memory(self, agent_id: str) -> AgentMemory:
        """The one instance of an agent's memory; raises NotFound if there is no such agent, or its folder is gone.

        Its first call opens the file.
        """
        id = check_agent_id(agent_id)
        self._place.check(id)
        with self._mutex:
            memory = self._held.get(id)
            if memory is None:
                memory = self._held[id] = AgentMemory(id, self._place.space(id), self.config, self._titling)
            self._recent[id] = memory
            self._recent.move_to_end(id)
            if len(self._recent) > self._max_open:
                self._recent.popitem(last=False)
            return memory

    def get_agent_folder_name(self, agent_id: str) -> str | None:
        """`{name-slug}-{uuid}` of an agent, or None; never raises."""
        return self._place.folder_name(agent_id)

    @property
    def open_books(self) -> int:
        """How many books are open."""
        return self._place.open_books

    def invalidate(self, agent_id: str) -> None:
        """Forget what is cached for an agent, and close its file after the calls in progress."""
        id = check_agent_id(agent_id)
        with self._mutex:
            self._recent.pop(id, None)
            self._held.pop(id, None)
        self._place.forget(id)

    def settle(self, seconds: float = 10.0) -> bool:
        """Wait until pending titles and vectors are done; returns whether that happened in time."""
        return self._titling.settle(seconds) and self._place.settle(seconds)

    def close(self) -> None:
        """Close every file after the current batch of vectors. Pending titles are dropped. A shared book stays open."""
        self._titling.close()
        self._place.close()
        with self._mutex:
            self._recent.clear()
            self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Folders:
    """Agents in folders, each with its own book. They share one model and one embedding thread."""

    def __init__(self, base: Path, options: BookOptions, max_open: int) -> None:
        given = options.embedder
        embedder = create_embedder(given) if given is None or isinstance(given, str) else given
        self._base = base
        self._limits = options.limits or Limits()
        self._models = Models(embedder, options.make_embedder)
        self._embeds = options.background
        self._redaction = options.redaction
        self._date_order = options.date_order
        self._embedding = Background("commonplace-agents-indexer")
        opened = partial(
            open_book,
            embedder=embedder,
            make_embedder=options.make_embedder,
            limits=self._limits,
            durability=options.durability,
            busy_seconds=options.busy_seconds,
            clock=options.clock,
            background=False,
        )
        self._books = OpenBooks(self._locate, opened, max_open)

    def create(self, name: str) -> str:
        """Create a new agent's folder, and the base folder if it is missing; returns the agent's id."""
        agent_id, folder = new_agent(name)
        self._make_base()
        try:
            (self._base / folder).mkdir(mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"cannot create {self._base / folder}: {error.strerror}; check the folder"
            ) from error
        return agent_id

    def folder_name(self, agent_id: object) -> str | None:
        """The name of an agent's folder, or None; never raises."""
        try:
            return self._scan(check_agent_id(agent_id))
        except (InvalidInput, OSError):
            return None

    def check(self, agent_id: str) -> None:
        self._books.check(agent_id)

    def space(self, agent_id: str) -> Space:
        store = leased_store(partial(self._books.lease, agent_id), lambda: self._written(agent_id, book))
        book = Book(
            store,
            self._models,
            self._limits,
            background=False,
            redaction=self._redaction,
            date_order=self._date_order,
        )
        return book.space(LABEL, agent_id)

    def _written(self, agent_id: str, book: Book) -> None:
        if self._embeds:
            self._embedding.submit(agent_id, lambda: _embed(agent_id, book))

    @property
    def open_books(self) -> int:
        return self._books.count

    def forget(self, agent_id: str) -> None:
        self._books.forget(agent_id)

    def settle(self, seconds: float) -> bool:
        return self._embedding.settle(seconds)

    def close(self) -> None:
        self._embedding.close()
        self._books.close()  # the running job ends when it next uses a book
        self._embedding.settle(CLOSE_SECONDS)

    def _locate(self, agent_id: str) -> Path:
        """The path of an agent's database, which need not exist yet. Raises NotFound if the agent has no folder."""
        self._make_base()
        try:
            folder = self._scan(agent_id)
        except OSError as error:
            raise _unreachable(error) from error
        if folder is None:
            raise not_found(agent_id)
        return self._base / folder / DATABASE

    def _scan(self, agent_id: str) -> str | None:
        if not self._base.is_dir():
            return None
        with os.scandir(self._base) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name.lower().endswith(f"-{agent_id}") and entry.is_dir(follow_symlinks=False)
            )
        if len(names) < 2:
            return names[0] if names else None
        # If there are several, such as a renamed copy, prefer one with a database.
        return next((name for name in names if (self._base / name / DATABASE).exists()), names[0])

    def _make_base(self) -> None:
        try:
            self._base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot create the agents' folder {self._base}: {error.strerror}; set COMMONPLACE_AGENTS to another"
            ) from error


class _SharedBook:
    """Agents as namespaces of one book, on any backend. An agent exists once its namespace holds anything."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def create(self, name: str) -> str:
        agent_id, folder = new_agent(name)
        self.space(agent_id).records.create(
            type=_REGISTERED, content={"name": name, "folder": folder}, source=_REGISTRAR, confidence=1.0
        )
        return agent_id

    def folder_name(self, agent_id: str) -> str | None:
        try:
            id = check_agent_id(agent_id)
            found = self.space(id).records.list(type=_REGISTERED, filter={"source": _REGISTRAR}, limit=1_000).records
        except CommonplaceError:
            return None
        # The agent may have its own records of that type, but not with a folder name that ends in its id.
        folders = (record.content.get("folder") for record in found if isinstance(record.content, Mapping))
        return next((name for name in folders if isinstance(name, str) and name.endswith(f"-{id}")), None)

    def check(self, agent_id: str) -> None:
        if not self._book.namespaces(LABEL, agent_id, limit=1, emptied=True):
            raise not_found(agent_id)

    def space(self, agent_id: str) -> Space:
        return self._book.space(LABEL, agent_id)

    @property
    def open_books(self) -> int:
        return 1

    def forget(self, agent_id: str) -> None:
        """Nothing is cached for an agent."""

    def settle(self, seconds: float) -> bool:
        indexer = getattr(self._book, "indexer", None)  # a remote book has none; the service embeds
        return indexer is None or indexer.settle(seconds)

    def close(self) -> None:
        """Whoever opened the book closes it."""


def _embed(agent_id: str, book: Book) -> None:
    try:
        book.indexer.run()
    except CommonplaceError as error:
        # A search reports the same error. The passages stay pending.
        _log.info("the messages of agent %s have no vectors yet: %s", agent_id, error)


# Agents and their folders


def check_agent_id(agent_id: object) -> str:
    """An agent id in lower case. Anything but a UUID raises before the file system is touched."""
    if not isinstance(agent_id, str) or not _UUID.fullmatch(agent_id):
        raise InvalidInput(
            f"an agent id is a UUID such as a1b2c3d4-e5f6-7890-abcd-ef1234567890, not {agent_id!r:.100}; "
            "create_agent gives one"
        )
    return agent_id.lower()


def slug_of(name: str) -> str:
    """A name as the first part of a folder name: `Café Helper!` becomes `cafe-helper`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = _BETWEEN_WORDS.sub("-", plain).strip("-")
    return slug[:MAX_SLUG_CHARACTERS].strip("-") or "agent"


def new_agent(name: str) -> tuple[str, str]:
    """An id for a new agent, and the name of its folder."""
    if not check_line("an agent's name", name, max_bytes=MAX_NAME_BYTES).strip():
        raise InvalidInput("an agent's name must not be blank")
    check_visible("an agent's name", name)
    agent_id = str(uuid.uuid4())
    return agent_id, f"{slug_of(name)}-{agent_id}"


def not_found(agent_id: str) -> NotFound:
    return NotFound(f"Agent folder not found for agentId: {agent_id}")


def _exists(path: Path) -> bool:
    """Whether a file exists. A folder that we may not read is an error, because its file may exist."""
    try:
        return path.exists()
    except OSError as error:
        raise _unreachable(error) from error


def _unreachable(error: OSError) -> ConfigurationError:
    return ConfigurationError(f"cannot reach {error.filename}: {error.strerror}; check the permissions")


# Open books


class _OpenBook:
    """An agent's entry in the list of open books. It is taken off the list first, then its last user closes it."""

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
        """Whether this process opened the book, and the file at its path is still the same."""
        if self.book is None or self.file is None:
            return self.process == os.getpid()
        path, identity = self.file
        return self.process == os.getpid() and _identity(path) == identity

    def close(self) -> None:
        # A book that was opened before a fork belongs to the parent process.
        if self.book is not None and self.process == os.getpid():
            self.book.close()


class OpenBooks:
    """Opens agents' books when they are used, and closes the least recently used ones if there are too many."""

    def __init__(self, locate: Callable[[str], Path], open: Callable[[Path], Book], max_open: int) -> None:
        self._locate = locate
        self._open = open
        self._max_open = max_open
        self._mutex = threading.Lock()
        self._books: OrderedDict[str, _OpenBook] = OrderedDict()
        self._known: dict[str, Path] = {}
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many books are open."""
        with self._mutex:
            return sum(one.book is not None for one in self._books.values())

    @contextmanager
    def lease(self, agent_id: str) -> Iterator[Store]:
        """An agent's store, which stays open inside the `with` block."""
        opened = self._take(agent_id)
        try:
            with opened.lock:
                if opened.book is None:
                    self._fill(opened)
            assert opened.book is not None
            yield opened.book.store
        finally:
            self._give_back(opened)

    def check(self, agent_id: str) -> None:
        """Raise NotFound if an agent's folder is gone, or a database that was in use."""
        self._check_open()
        path = self._known.get(agent_id)
        if path is None or not _exists(path):
            self._find(agent_id)

    def forget(self, agent_id: str) -> None:
        """Close an agent's book after the calls in progress; the next call looks for its folder again."""
        with self._mutex:
            self._known.pop(agent_id, None)
            opened = self._books.get(agent_id)
            leaving = [opened] if opened is not None and self._leaves(opened) else []
        _close_all(leaving)

    def close(self) -> None:
        """Close every book, each after the calls in progress, and open no more."""
        with self._mutex:
            self._is_closed = True
            leaving = [opened for opened in list(self._books.values()) if self._leaves(opened)]
        _close_all(leaving)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("these agents' memories were closed; call get_agent_memory again")

    def _take(self, agent_id: str) -> _OpenBook:
        with self._mutex:
            self._check_open()
            opened = self._books.get(agent_id)
            leaving = []
            if opened is not None and not opened.is_current:
                leaving = [opened] if self._leaves(opened) else []
                opened = None
            if opened is None:
                opened = self._books[agent_id] = _OpenBook(agent_id)
            opened.users += 1
            self._books.move_to_end(agent_id)
        _close_all(leaving)
        return opened

    def _give_back(self, opened: _OpenBook) -> None:
        with self._mutex:
            opened.users -= 1
            leaving = [opened] if opened.is_leaving and not opened.users else []
            if opened.book is None and not opened.users and not opened.is_leaving:
                del self._books[opened.agent_id]  # it could not be opened
            while len(self._books) > self._max_open:
                idle = next((one for one in self._books.values() if not one.users), None)
                if idle is None:
                    break
                self._leaves(idle)
                leaving.append(idle)
        _close_all(leaving)

    def _leaves(self, opened: _OpenBook) -> bool:
        """Take a book off the list; returns whether to close it now."""
        del self._books[opened.agent_id]
        opened.is_leaving = True
        return not opened.users

    def _fill(self, opened: _OpenBook) -> None:
        path = self._find(opened.agent_id)
        try:
            path.parent.mkdir(exist_ok=True)
            book = self._open(path)
        except ConfigurationError as error:
            raise _worded(error, path, opened.agent_id) from error
        except OSError as error:
            raise ConfigurationError(f"cannot create {path.parent}: {error.strerror}; check the folder") from error
        identity = _identity(path)
        if identity is None:
            book.close()
            raise not_found(opened.agent_id)
        opened.book, opened.file = book, (path, identity)
        self._known[opened.agent_id] = path

    def _find(self, agent_id: str) -> Path:
        path = self._locate(agent_id)
        if agent_id in self._known and not _exists(path):
            # An empty book in its place would hide that the memories are gone.
            raise NotFound(
                f"{path} was deleted while it was in use; put it back, or call invalidate({agent_id!r}) to start again"
            )
        return path


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _close_all(books: Sequence[_OpenBook]) -> None:
    for opened in books:
        opened.close()


# The store that callers hold

_NEEDS_MORE_THAN_A_CALL = ("close", "export", "salvage", "waker")


class _LeasedStore:
    """Leases the real store for each call of a method. A lease ends with the call."""

    reads_at_once = False
    indexes_later = False

    def __init__(self, lease: Lease, wrote: Callable[[], None]) -> None:
        self._lease = lease
        self._wrote = wrote

    def write(self, *args: Any, **options: Any) -> Any:
        with self._lease() as store:
            result = store.write(*args, **options)
        if result[1] is not None:
            self._wrote()
        return result

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _NEEDS_MORE_THAN_A_CALL or not callable(getattr(Store, name, None)):
            raise AttributeError(f"a leased store has no {name}")

        def call(*args: Any, **options: Any) -> Any:
            with self._lease() as store:
                return getattr(store, name)(*args, **options)

        return call


def leased_store(lease: Lease, wrote: Callable[[], None]) -> Store:
    """A store that opens the real one for each call. `wrote` is called after every commit."""
    return cast("Store", _LeasedStore(lease, wrote))


# Files of other programs


def _worded(error: ConfigurationError, path: Path, agent_id: str) -> ConfigurationError:
    """The error for a file that is not a book. If it is Mastra's, it says how to import it."""
    if not _is_mastras(path):
        return error
    aside = path.with_name("mastra.db")
    command = shlex.join(
        ["commonplace", "import-mastra", str(aside), "--db", str(path), "--namespace", f"agent/{agent_id}"]
    )
    return ConfigurationError(
        f"{path} is a Mastra memory, not a commonplace book; nothing was changed. Import it: move it to {aside} "
        f"(with its -wal, if there is one), then run `{command}`"
    )


def _is_mastras(path: Path) -> bool:
    """Whether a file names Mastra's tables and is not a book, whose messages may name them too."""
    starts = [_start(Path(f"{path}{suffix}")) for suffix in ("", "-wal")]
    return any(MASTRA_MARK in start for start in starts) and not any(_BOOK.search(start) for start in starts)


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MARK_BYTES)
    except OSError:
        return b""
