"""The memories of many agents, one instance each, in a folder with a `memory.db` per agent or in one shared book."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from commonplace.agents.agent_books import AgentFolders, OpenBooks, check_agent_id, leased_store, new_agent, not_found
from commonplace.agents.agent_memory import AgentMemory, Background, MemoryConfig
from commonplace.book import Book, open_book
from commonplace.checks import Limits, local_path
from commonplace.embedding import Embedder, create_embedder
from commonplace.engine.embedders import Models
from commonplace.engine.indexer import CLOSE_SECONDS
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.space.space import Space

if TYPE_CHECKING:
    from typing import Self

    from commonplace.redaction import Redactor

LABEL = "agent"
"""An agent's namespace is `("agent", its id)`, both in its own file and in a shared book."""

MAX_OPEN = 64
TITLE_THREADS = 4
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
            raise InvalidInput("agents live in a base folder or in a shared book; give one of them")
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
        """Wait until pending titles and vectors are done; whether that happened in time."""
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
        self._folders = AgentFolders(base)
        self._limits = options.limits or Limits()
        self._models = Models(embedder, options.make_embedder)
        self._embeds = options.background
        self._redaction = options.redaction
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
        self._books = OpenBooks(self._folders.locate, opened, max_open)

    def create(self, name: str) -> str:
        return self._folders.create(name)

    def folder_name(self, agent_id: str) -> str | None:
        return self._folders.name_of(agent_id)

    def check(self, agent_id: str) -> None:
        self._books.check(agent_id)

    def space(self, agent_id: str) -> Space:
        store = leased_store(partial(self._books.lease, agent_id), lambda: self._written(agent_id, book))
        book = Book(store, self._models, self._limits, background=False, redaction=self._redaction)
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
        if not self._book.namespaces(LABEL, agent_id, limit=1):
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
