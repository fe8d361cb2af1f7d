"""One run of the program: the arguments, the settings, the output, and access to the book."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from commonplace.cli.output import Output, ProgressBar, clock
from commonplace.errors import ConfigurationError, InvalidInput, NotFound
from commonplace.settings import Settings, hide_password, open_from_settings

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.checks import Namespace
    from commonplace.space.space import Space

ACTOR = "cli"
"""The actor that the history records for writes of the command line."""

PAGED = ("search", "ls", "history", "changes", "namespaces", "help")
"""The commands whose long lists are shown with a pager."""

SHORTEST_ID = 4
"""How many characters of an id are enough, if no other id begins with them; as in git."""

SHOWN_IDS = 5


@dataclass(frozen=True)
class Context:
    arguments: argparse.Namespace
    settings: Settings
    out: Output

    @classmethod
    def create(cls, arguments: Any) -> Context:
        settings = Settings.from_environment(os.environ)
        if arguments.db is not None and arguments.remote is not None:
            raise InvalidInput("--db names a book and --remote a service; give one of them")
        if arguments.db is not None:
            settings = replace(settings, database_url=arguments.db, remote=None)
        if arguments.remote is not None:
            settings = replace(settings, remote=arguments.remote)
        if arguments.namespace is not None:
            settings = replace(settings, namespace=arguments.namespace)
        wants_color = settings.has_colors and not arguments.no_color
        return cls(arguments, settings, Output(is_json=arguments.json, wants_color=wants_color))

    @property
    def is_paged(self) -> bool:
        return self.arguments.command in PAGED and not self.arguments.no_pager

    @property
    def is_shown_in_pager(self) -> bool:
        return self.is_paged and self.out.is_held_back

    @contextmanager
    def book(self, *, create: bool = False, opening: str = "opening the book") -> Iterator[Book]:
        """Open the book or connect to the service, without embedding in the background, which would load the model.

        It may take long: a book of an older version is upgraded.

        Only a command that writes may create the book, so that a mistyped name does not become an empty book.
        """
        if not create and self._is_missing:
            raise NotFound(
                f"there is no book at {self.settings.book_file} yet; `{self.command('add', 'some text')}` makes one, "
                "or name another with --db"
            )
        with self.clock(opening):
            book = open_from_settings(self.settings, background=False)
        with book:
            yield book

    def try_in_memory(self, work: Callable[[Book], object]) -> None:
        """If there is no book yet, do this in memory first, so that refused input does not create an empty book."""
        if self._is_missing:
            with open_from_settings(replace(self.settings, database_url=":memory:"), background=False) as book:
                work(book)

    @property
    def _is_missing(self) -> bool:
        file = self.settings.book_file
        return self.settings.remote is None and file is not None and not file.exists()

    @contextmanager
    def space(self) -> Iterator[Space]:
        with self.book() as book:
            yield self.space_of(book)

    def space_of(self, book: Book) -> Space:
        return book.space(*self.labels(book), actor=ACTOR)

    def whole_id(self, book: Book, key: str) -> str:
        """Return the id of the record or thread that a short id begins, and any other key unchanged.

        Of a service the ids are not known here, so it needs whole ones. So does what was deleted.
        """
        from commonplace.filters import Filter
        from commonplace.store import Scan

        if self.settings.remote is not None or key.startswith("/") or len(key) < SHORTEST_ID:
            return key
        namespace, store, kinds = self.labels(book), book.store, ("record", "thread")
        if any(store.history(namespace, kind, key) for kind in kinds):
            return key
        narrowed = (Filter(kinds=(kind,), key_prefix=key) for kind in kinds)
        pages = [store.scan(namespace, Scan(each, limit=SHOWN_IDS)).entries for each in narrowed]
        found = sorted({entry.key for page in pages for entry in page})
        if len(found) > 1:
            raise InvalidInput(f"the short id {key} is ambiguous; it may be {', '.join(found[:SHOWN_IDS])}")
        return found[0] if found else key

    def labels(self, book: Book) -> Namespace:
        """The namespace of this command: the given one, else that of the service's key, else the default."""
        if self.settings.remote is not None and self.settings.namespace is None:
            own: Namespace = book.space().namespace
            return own
        return self.settings.namespace_labels

    def require_book(self, command: str) -> None:
        if self.settings.remote is not None:
            raise ConfigurationError(
                f"{command} needs the book itself, not a service ({self.settings.remote}); "
                "run it where the book is, with --db"
            )

    def progress(self, *, in_bytes: bool = False) -> ProgressBar:
        return ProgressBar(self.out.stderr, is_shown=not self.out.is_json, in_bytes=in_bytes)

    def clock(self, what: str) -> AbstractContextManager[None]:
        """For work that may take more than two seconds and cannot tell how much of it is done."""
        return clock(self.out.stderr, what, is_shown=not self.out.is_json)

    def command(self, *words: str) -> str:
        """A command line to type next, for the same book and namespace. Passwords are hidden."""
        flags = []
        for flag, value in (
            ("--db", self.arguments.db),
            ("--remote", self.arguments.remote),
            ("--namespace", self.arguments.namespace),
        ):
            if value is not None:
                flags += [flag, hide_password(value)]
        return shlex.join(["commonplace", *flags, *words])
