"""One run of the program: the arguments, the settings, the output, and access to the book."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from commonplace.cli.output import Output, ProgressBar
from commonplace.errors import ConfigurationError, InvalidInput, NotFound
from commonplace.settings import Settings, hide_password, open_from_settings

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.checks import Namespace
    from commonplace.space.space import Space

ACTOR = "cli"
"""The actor that the history records for writes of the command line."""


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

    @contextmanager
    def book(self, *, create: bool = False) -> Iterator[Book]:
        """Open the book or connect to the service, without embedding in the background, which would load the model.

        Only a command that writes may create the book, so that a mistyped name does not become an empty book.
        """
        if not create and self._is_missing:
            raise NotFound(
                f"there is no book at {self.settings.book_file} yet; `{self.command('add', 'some text')}` makes one, "
                "or name another with --db"
            )
        with open_from_settings(self.settings, background=False) as book:
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
            yield book.space(*self.labels(book), actor=ACTOR)

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
