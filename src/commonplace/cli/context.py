"""What every command is given: its arguments, the settings, the output, and the way to the book."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from commonplace.cli.output import Output
from commonplace.cli.progress import ProgressBar
from commonplace.errors import NotFound
from commonplace.settings import Settings, open_from_settings

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.space.space import Space

ACTOR = "cli"
"""Noted with every write of this face."""


@dataclass(frozen=True)
class Context:
    arguments: argparse.Namespace
    settings: Settings
    out: Output

    @classmethod
    def create(cls, arguments: Any) -> Context:
        settings = Settings.from_environment(os.environ)
        if arguments.db is not None:
            settings = replace(settings, database_url=arguments.db)
        if arguments.namespace is not None:
            settings = replace(settings, namespace=arguments.namespace)
        wants_color = settings.has_colors and not arguments.no_color
        return cls(arguments, settings, Output(is_json=arguments.json, wants_color=wants_color))

    @contextmanager
    def book(self, *, create: bool = False) -> Iterator[Book]:
        """The book, opened without a thread that embeds: a short command loads no model for a write.

        Only a command that writes may create it: a mistyped name must not become an empty book.
        """
        file = self.settings.book_file
        if not create and file is not None and not file.exists():
            raise NotFound(
                f"there is no book at {file} yet; `{self.command('add', 'some text')}` makes one, "
                "or name another with --db"
            )
        with open_from_settings(self.settings, background=False) as book:
            yield book

    @contextmanager
    def space(self, *, create: bool = False) -> Iterator[Space]:
        labels = self.settings.namespace_labels
        with self.book(create=create) as book:
            yield book.space(*labels, actor=ACTOR)

    def progress(self, *, in_bytes: bool = False) -> ProgressBar:
        return ProgressBar(self.out.stderr, is_shown=not self.out.is_json, in_bytes=in_bytes)

    def command(self, *words: str) -> str:
        """A command line to type next, for the same book and namespace as this one."""
        flags = []
        for flag, value in (("--db", self.arguments.db), ("--namespace", self.arguments.namespace)):
            if value is not None:
                flags += [flag, value]
        return shlex.join(["commonplace", *flags, *words])
