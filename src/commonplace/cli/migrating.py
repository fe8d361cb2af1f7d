"""`move`, `migrate` and `vector-index`: a book on another backend, and the care that a database server needs."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from commonplace.cli.context import Context
from commonplace.cli.output import counted
from commonplace.cli.values import namespace
from commonplace.errors import InvalidInput, NotFound
from commonplace.settings import Settings, open_from_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from commonplace.book import Book
    from commonplace.cli.parser import Commands


def register(commands: Commands) -> None:
    move = commands.add(
        "move",
        "Move and keep",
        "Copy a whole book, history included, to another backend.",
        move_book,
        about="Each namespace is copied whole or not at all, then read back and compared. If it is stopped, the same "
        "command continues. The source is only read. Vectors are not copied: run `commonplace --db DST reindex` next.",
        examples="""\
  commonplace move memory.db postgresql://user@host/database
  commonplace move postgresql://user@host/database copy.db""",
    )
    move.add_argument("source", metavar="SRC", help="the book to copy: a file or postgresql://…")
    move.add_argument("target", metavar="DST", help="where to, a new or unfinished book")
    move.add_argument(
        "--mend-times", action="store_true", help="set back times that are ahead of the clock (`doctor` names them)"
    )
    commands.add(
        "migrate",
        "Care",
        "Bring the book to this program's schema.",
        migrate,
        about="Every program does it when it opens a book, once however many start together. Run this command to\n"
        "do it beforehand, or under another login. Servers on PostgreSQL may be at work meanwhile; restart them\n"
        "with this version afterwards.",
        examples="  commonplace migrate --db postgresql://admin@host/database",
    )
    index = commands.add(
        "vector-index",
        "Care",
        "Give a large namespace on PostgreSQL its own vector index.",
        index_vectors,
        about="Above 20,000 passages a namespace shares the index of its part of the table; one of its own finds\n"
        "more, and faster. Writing goes on while it is built.",
        examples="  commonplace vector-index user/u-123",
    )
    index.add_argument("wanted", metavar="NAME", type=namespace, help="the namespace, such as user/u-123")


@contextmanager
def _opened(settings: Settings, *, create: bool) -> Iterator[Book]:
    if not create and settings.book_file is not None and not settings.book_file.exists():
        raise NotFound(f"there is no book at {settings.book_file}; name the one to move")
    with open_from_settings(settings, background=False) as book:
        yield book


def move_book(context: Context) -> int:
    from commonplace.exchange.move import move_book as move

    source, target = (
        replace(context.settings, database_url=url, remote=None)
        for url in (context.arguments.source, context.arguments.target)
    )
    if source == target or _is_one_file(source.book_file, target.book_file):
        raise InvalidInput("source and target are the same book; name another place for the copy")
    with (
        _opened(source, create=False) as old,
        _opened(target, create=True) as new,
        context.progress() as progress,
    ):
        now = time.time_ns() // 1_000 if context.arguments.mend_times else None
        moved = move(old.store, new.store, progress, now=now)
    if context.out.is_json:
        context.out.document(asdict(moved))
        return 0
    there = f"; {counted(moved.already_there, 'namespace')} had been brought before" if moved.already_there else ""
    context.out.line(
        f"moved {counted(moved.namespaces, 'namespace')} with {counted(moved.states, 'state')}, all compared{there}"
    )
    return 0


def _is_one_file(one: Path | None, other: Path | None) -> bool:
    return one is not None and other is not None and one.exists() and other.exists() and one.samefile(other)


def migrate(context: Context) -> int:
    context.refuse_a_service("migrate")
    with context.book():  # opening is what does it
        place = context.settings.place
    if context.out.is_json:
        context.out.document({"book": place})
    else:
        context.out.line(f"{place} has the schema of this program")
    return 0


def index_vectors(context: Context) -> int:
    from commonplace.checks import parse_namespace

    wanted = parse_namespace(context.arguments.wanted)
    with context.book() as book:
        make = getattr(book.store, "index_namespace", None)
        if make is None:
            raise InvalidInput("only a book on PostgreSQL has vector indexes; on SQLite every search is exact enough")
        made = make(wanted)
    if context.out.is_json:
        context.out.document({"indexes": made})
    else:
        context.out.line(f"made {counted(len(made), 'index', 'indexes')}" if made else "it has its index already")
    return 0
