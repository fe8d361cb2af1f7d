"""A book: an open store with its indexer, its searches and the spaces of its namespaces."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from commonplace.checks import Limits, Namespace, check_line, check_namespace, check_number, local_path
from commonplace.embedding import Embedder, create_embedder
from commonplace.engine.embedders import Models
from commonplace.engine.indexer import Indexer
from commonplace.engine.search import Searcher, SearchResult
from commonplace.errors import ConfigurationError, InvalidInput, NotFound, install_command
from commonplace.language.dates import DATE_ORDERS, DateOrder
from commonplace.space.handle import Handle
from commonplace.space.items import Item
from commonplace.space.rules import Meter, Rules
from commonplace.space.space import Space, check_kinds
from commonplace.store import Progress, Store, StoreStats

if TYPE_CHECKING:
    from typing import Self

    from commonplace.backends.postgres import PostgresStore
    from commonplace.exchange import Exported, Imported, ImportReport
    from commonplace.exchange.sources import Bounds
    from commonplace.redaction import Redactor

DEFAULT_FILE = "memory.db"
MAX_ACTOR_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Pooling:
    """The connections of a book on a database server. `replica_url` is a read replica for searches."""

    size: int = 20
    idle_seconds: float = 30.0
    replica_url: str | None = None


@dataclass(frozen=True, slots=True)
class Background:
    """What a book does while it is open. Without `embeds`, other processes embed what is written.

    History is kept for ever, unless `keep_history_seconds` says for how long after a state was replaced or deleted.
    """

    embeds: bool = True
    keep_history_seconds: float | None = None


def default_path() -> Path:
    """`memory.db` in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("commonplace", appauthor=False) / DEFAULT_FILE


def open_book(
    url: str | Path | None = None,
    *,
    embedder: Embedder | str | None = None,
    make_embedder: Callable[[str], Embedder] = create_embedder,
    limits: Limits | None = None,
    durability: Literal["full", "normal"] = "full",
    busy_seconds: float = 10.0,
    background: bool | Background = True,
    clock: Callable[[], int] | None = None,
    redaction: Redactor | None = None,
    pooling: Pooling | None = None,
    date_order: DateOrder = "both",
) -> Book:
    """Open a book, and create it if it does not exist.

    `url` is a file, `:memory:`, `postgresql://…` or `mongodb://…`; the default is a file in the data folder of the
    user. `embedder` is the name of a model or an object with an `embed` method. `make_embedder` makes the embedder of
    another model whose vectors the book still holds, from its name. `durability="normal"` is faster, but a power cut
    may lose the last writes. `background=False` embeds only when someone searches. `redaction` masks or refuses secrets
    in everything that is written. `pooling` is for a database server. `date_order` says how a query such as `on
    3/4/2024` is read: `day-first`, `month-first` or `both`.
    """
    if date_order not in DATE_ORDERS:
        raise InvalidInput(f"date_order must be one of {', '.join(DATE_ORDERS)}, not {date_order!r}")
    store = _open_store(
        url, durability=durability, busy_seconds=busy_seconds, clock=clock, pooling=pooling or Pooling()
    )
    chosen = create_embedder(embedder) if embedder is None or isinstance(embedder, str) else embedder
    return Book(
        store,
        Models(chosen, make_embedder),
        limits or Limits(),
        background=background,
        redaction=redaction,
        date_order=date_order,
    )


def restore_backup(
    source: str | Path,
    url: str | Path | None = None,
    *,
    keep_former: bool = True,
    busy_seconds: float = 10.0,
    progress: Progress | None = None,
) -> Path | None:
    """Replace a book by a backup that `Book.backup` wrote, atomically; return the path of the former book.

    A file may be in use: programs that have it open cannot write to it any more and must open it again. A database must
    be empty.
    """
    backup = local_path("the backup's path", source)
    if is_mongodb(url):
        raise InvalidInput(
            "a book on MongoDB is restored with the tools of its database, such as mongorestore; or import an export"
        )
    if is_postgres(url):
        store = _open_store(url, durability="full", busy_seconds=busy_seconds, clock=None, pooling=Pooling())
        try:
            cast("PostgresStore", store).restore(backup)
        finally:
            store.close()
        return None
    from commonplace.backends.sqlite import maintenance as restore

    if str(url) == ":memory:":
        raise InvalidInput("a book in memory ends with its program; name a file to restore the backup to")
    path = default_path() if url is None else local_path("the book's path", str(url).removeprefix("sqlite:///"))
    return restore.restore(backup, str(path), busy_seconds, progress, keep_former=keep_former)


def is_postgres(url: str | Path | None) -> bool:
    return isinstance(url, str) and url.partition("://")[0] in ("postgres", "postgresql")


def is_mongodb(url: str | Path | None) -> bool:
    return isinstance(url, str) and url.partition("://")[0] in ("mongodb", "mongodb+srv")


def _open_store(
    url: str | Path | None,
    *,
    durability: Literal["full", "normal"],
    busy_seconds: float,
    clock: Callable[[], int] | None,
    pooling: Pooling,
) -> Store:
    if durability not in ("full", "normal"):
        raise InvalidInput(f"durability must be 'full' or 'normal', not {durability!r}")
    if is_postgres(url):
        return _open_postgres(str(url), durability, busy_seconds, clock, pooling)
    if is_mongodb(url):
        return _open_mongodb(str(url), durability, clock, pooling)
    from commonplace.backends.sqlite import SQLiteStore
    from commonplace.backends.sqlite.connection import MEMORY
    from commonplace.backends.sqlite.store import system_time

    path = default_path() if url is None else url
    if url is None:
        folder = Path(path).parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"cannot make the folder {folder} for the book: {error.strerror}; name a file elsewhere, with --db, "
                "DATABASE_URL or the path to open"
            ) from error
    elif str(path) != MEMORY:
        text = str(path).removeprefix("sqlite:///")
        if "://" in text:
            raise ConfigurationError(
                f"unsupported URL scheme {text.partition('://')[0]}://; give a file, :memory:, postgresql://… or "
                "mongodb://…"
            )
        path = local_path("the book's path", text)
    return SQLiteStore(path, durability=durability, busy_seconds=busy_seconds, clock=clock or system_time)


def _open_postgres(
    url: str,
    durability: Literal["full", "normal"],
    busy_seconds: float,
    clock: Callable[[], int] | None,
    pooling: Pooling,
) -> Store:
    try:
        from commonplace.backends.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"a book on PostgreSQL needs {error.name}; run: {install_command('postgres')}"
        ) from error
    return PostgresStore(
        url,
        pool_size=pooling.size,
        idle_seconds=pooling.idle_seconds,
        query_seconds=busy_seconds,
        durability=durability,
        clock=clock,
        replica_url=pooling.replica_url,
    )


def _open_mongodb(
    url: str, durability: Literal["full", "normal"], clock: Callable[[], int] | None, pooling: Pooling
) -> Store:
    try:
        from commonplace.backends.mongodb import MongoStore
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"a book on MongoDB needs {error.name}; run: {install_command('mongodb')}") from error
    if pooling.replica_url is not None:
        raise ConfigurationError("DATABASE_REPLICA_URL is for PostgreSQL; on MongoDB the primary answers searches")
    return MongoStore(
        url, pool_size=pooling.size, idle_seconds=pooling.idle_seconds, durability=durability, clock=clock
    )


def check_actor(actor: str | None) -> str | None:
    """Return a name that can be recorded with a write."""
    return None if actor is None else check_line("actor", actor, max_bytes=MAX_ACTOR_BYTES)


def check_namespaces(namespaces: Sequence[Namespace] | None) -> list[Namespace] | None:
    """Return the given namespaces without duplicates; None means all of them."""
    return None if namespaces is None else list(dict.fromkeys(map(check_namespace, namespaces)))


class Book(ABC):  # noqa: B024 - so that the client's class can be registered as one
    """An open store. Close it, or use it in a `with` block."""

    def __init__(
        self,
        store: Store,
        models: Models,
        limits: Limits,
        *,
        background: bool | Background = True,
        redaction: Redactor | None = None,
        date_order: DateOrder = "both",
    ) -> None:
        chosen = background if isinstance(background, Background) else Background()
        self.store = store
        self.limits = limits
        self.redaction = redaction
        self._models = models
        self.indexer = Indexer(
            store,
            self._models,
            is_background=background is not False,
            embeds=chosen.embeds,
            keep_history_seconds=chosen.keep_history_seconds,
        )
        self.searcher = Searcher(store, self._models, self.indexer, date_order)
        self._meter = Meter(store)

    def space(self, *labels: str, actor: str | None = None, rules: Rules | None = None) -> Space:
        """One namespace, such as `book.space("user", "u-123")`; `actor` is recorded with every write."""
        rules = rules or Rules()
        if self.redaction is not None:
            rules = rules.with_screen(self.redaction.screen)
        return self._space(check_namespace(labels), actor, rules)

    def _space(self, namespace: Namespace, actor: str | None, rules: Rules) -> Space:
        handle = Handle(self.store, namespace, self.indexer, check_actor(actor), rules, meter=self._meter)
        return Space(handle, self.searcher, self.limits)

    def root(self, *, rules: Rules | None = None) -> Space:
        """The space above all namespaces, for `search(…, below=True)` and `items.list_below()`. It holds nothing."""
        return self._space((), None, rules or Rules())

    def search(self, /, query: str = "", *, below: Sequence[str], **options: Any) -> SearchResult:
        """Search all namespaces at and below one, such as `below=("user",)`; `below=()` searches all of the book.

        The other arguments are those of `Space.search`.
        """
        return self._below(below).search(query, below=True, **options)

    def list_items(self, /, *, below: Sequence[str], **options: Any) -> tuple[Item, ...]:
        """The items of all namespaces at and below one; `below=()` lists those of the whole book.

        The other arguments are those of `Items.list_below`.
        """
        return self._below(below).items.list_below(**options)

    def _below(self, prefix: Sequence[str]) -> Space:
        return self.space(*check_namespace(prefix)) if prefix != () else self.root()

    def namespaces(
        self,
        *prefix: str,
        after: Namespace | None = None,
        limit: int = 1_000,
        emptied: bool = False,
        kinds: Sequence[str] | None = None,
        history: bool = False,
    ) -> list[Namespace]:
        """The namespaces at or below a prefix that hold something, in order.

        With `emptied`, also those that did; with `kinds`, only those that hold an entry of one of these kinds; with
        `history`, entries without history do not count.
        """
        if emptied and (kinds is not None or history):
            raise InvalidInput("ask for emptied namespaces or for those that hold something of a kind, not for both")
        if check_number("limit", limit) < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")
        return self.store.namespaces(
            check_namespace(prefix) if prefix else (),
            after=None if after is None else check_namespace(after),
            limit=limit,
            holding=None if emptied else () if kinds is None else check_kinds(kinds),
            history=history,
        )

    def reindex(self, embedder: Embedder | str | None = None, *, progress: Progress | None = None) -> None:
        """Embed everything with a model; searches use the old vectors meanwhile. You can stop it and start it again.

        If the model cannot embed, this raises and changes nothing.
        """
        if embedder is None:
            chosen = self._models.chosen
        else:
            chosen = create_embedder(embedder) if isinstance(embedder, str) else embedder
        self._models.add(chosen)
        self.indexer.set_target_model(chosen)
        self.indexer.run(progress)

    def rebuild_keywords(self, *, progress: Progress | None = None) -> None:
        """Rebuild the keyword index from the texts."""
        self.store.rebuild_keywords(progress)

    def stats(self) -> StoreStats:
        return self.store.stats()

    def export(
        self,
        write: Callable[[bytes], object],
        *,
        namespaces: Sequence[Namespace] | None = None,
        progress: Progress | None = None,
        salvage: bool = False,
    ) -> Exported:
        """Export the whole book, or some namespaces, as JSON lines without loss, from one snapshot.

        A damaged book raises `Corrupt`. With `salvage` everything readable is written, and the result names the rest.
        """
        from commonplace.exchange import export_book

        chosen = check_namespaces(namespaces)
        for namespace in chosen or ():
            if namespace not in self.namespaces(*namespace, limit=1, emptied=True):
                raise NotFound(f"there is no namespace {'/'.join(namespace)}; `namespaces` lists all")
        return export_book(self.store, write, namespaces=chosen, progress=progress, salvage=salvage)

    def import_lines(
        self,
        stream: BinaryIO,
        *,
        only: Namespace | None = None,
        merge: bool = False,
        actor: str | None = None,
        rules: Rules | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Imported]:
        """Import what `export` wrote. Each namespace is imported completely or not at all, and yielded when durable.

        The limits of `rules` apply: a namespace that would be too large is refused.
        """
        from commonplace.exchange import import_book
        from commonplace.exchange.import_ import Target

        target = Target(self.store, self._meter, rules or Rules(), actor)
        for imported in import_book(target, stream, only=only, merge=merge, progress=progress):
            self.indexer.notice_write()
            yield imported

    def import_memory(
        self,
        path: str | Path,
        namespace: Namespace,
        *,
        format: str | None = None,
        mapping: Sequence[str] = (),
        again: bool = False,
        dry_run: bool = False,
        name: str | None = None,
        bounds: Bounds | None = None,
        actor: str | None = None,
        rules: Rules | None = None,
        reaches: Callable[[Namespace], object] | None = None,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Import the memory of another program: a file, a folder, a zip archive or `postgresql://…`.

        What it is is recognised by its content, unless `format` names it. Everything goes to `namespace`, or where a
        rule of `mapping` says, such as `user/*=people/*`. A dry run only counts. `again` also imports what was deleted
        here. `name` is what an uploaded file was called. `reaches` is called with every namespace before it is read or
        written, and raises if the caller may not.
        """
        from commonplace.exchange.foreign import Importer, Options, Placement, parse_rule
        from commonplace.exchange.recognition import open_source

        placement = Placement(check_namespace(namespace), tuple(map(parse_rule, mapping)))
        allowed = rules or Rules()
        allowed.check("write")
        if self.redaction is not None:
            allowed = allowed.with_screen(self.redaction.screen)

        def opened(labels: Namespace, mark: str) -> Handle:
            if reaches is not None:
                reaches(labels)
            by = check_actor((actor or "") + mark)
            return Handle(self.store, labels, self.indexer, by, allowed, meter=self._meter)

        importer = Importer(opened, self.limits, Options(placement, again, dry_run), progress)
        with open_source(path, format, name=name, bounds=bounds) as source:
            return importer.run(source)

    def backup(self, target: str | Path, *, progress: Progress | None = None) -> None:
        """Copy the whole book to a new file while it is in use."""
        self.store.backup(local_path("the backup's path", target), progress)

    def verify(self, *, progress: Progress | None = None) -> list[str]:
        """Look for damage; an empty list means none was found."""
        return self.store.verify(progress)

    def close(self) -> None:
        """Stop the indexer and close the store. Every write that has returned is on disk already."""
        self.indexer.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
