"""Commands for whole books and namespaces: exports, imports, backups and moves."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from commonplace.checks import local_path, unfinished_file
from commonplace.cli.arguments import Commands
from commonplace.cli.exit_codes import DAMAGED, NEGATIVE, OK
from commonplace.cli.invocation import ACTOR, Context
from commonplace.cli.output import format_bytes, pluralize
from commonplace.errors import AlreadyExists, InvalidInput, IsADirectory, NotFound
from commonplace.settings import Settings, open_from_settings

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.exchange import Imported
    from commonplace.exchange.mastra import MastraImport

GROUP = "Transfer and back up"
STDOUT = ("-", "/dev/stdout")


def register(commands: Commands) -> None:
    _declare_transfer(commands)
    _declare_move(commands)


# export, import, import-mastra, backup and restore-backup


def _declare_transfer(commands: Commands) -> None:
    export = commands.add(
        "export",
        GROUP,
        "Export everything, history included, as JSON lines.",
        export_lines,
        about="All namespaces, or one if --namespace is given. docs/export-format.md describes the lines.\n"
        "If the book is damaged, it stops with exit code 7. With --salvage it writes everything that can be read,\n"
        "lists what cannot on standard error, and then exits with 7.",
        examples="""\
  commonplace export memory.jsonl
  commonplace export --salvage rescued.jsonl
  commonplace export --namespace user/u-123 | gzip > u-123.jsonl.gz""",
    )
    export.add_argument("file", nargs="?", default="-", help="the file to write (default: standard output)")
    export.add_argument("--force", action="store_true", help="replace the file if it exists")
    export.add_argument("--salvage", action="store_true", help="write everything that can be read from a damaged book")

    importing = commands.add(
        "import",
        GROUP,
        "Import an export, without losses and without duplicates.",
        import_lines,
        about="A namespace that is empty in the book gets everything, history and commit numbers included. One that\n"
        "is identical is left alone. Any other is refused (exit code 4), or with --merge gets the live entries that\n"
        "it does not have, as one commit that you can undo. Each namespace is imported completely or not at all.",
        examples="""\
  commonplace import memory.jsonl
  zcat u-123.jsonl.gz | commonplace import - --merge""",
    )
    importing.add_argument("file", help="the file to read; - is standard input")
    importing.add_argument("--merge", action="store_true", help="add what is missing to namespaces that differ")

    mastra = commands.add(
        "import-mastra",
        GROUP,
        "Import threads, messages and working memory from Mastra.",
        import_mastra_file,
        about="Reads the file of Mastra's LibSQLStore, which is not changed. Ids and times are kept. Entries that\n"
        "exist already are kept, so you can continue or repeat an import without duplicates. Rows that cannot be\n"
        "read are reported and skipped, and the exit code is 1.",
        examples="""\
  commonplace import-mastra memory.db
  commonplace import-mastra mastra.db --db agent.db --namespace agent/a1b2c3d4-e5f6-7890-abcd-ef1234567890""",
    )
    mastra.add_argument("file", help="the memory.db to read")

    backup = commands.add(
        "backup",
        GROUP,
        "Copy the whole book to a new file while it is in use.",
        backup_book,
        about="The copy of a file is a book; open it with --db. It is checked like `doctor` does. A damaged book is\n"
        "not copied, and the exit code is 7. The backup of a book on PostgreSQL is an archive, from which\n"
        "`commonplace restore-backup` fills an empty database.",
        examples="  commonplace backup ~/backups/memory-2026-01-31.db",
    )
    backup.add_argument("target", help="the file to write, which must not exist yet")

    restoring = commands.add(
        "restore-backup",
        GROUP,
        "Replace the book with a backup.",
        restore_book,
        about="A book in a file may be in use. The backup replaces it at once, and programs that have the former book\n"
        "open cannot write until they open the book again. The former book is kept as a file with the time in its\n"
        "name. A database on PostgreSQL must be empty.",
        examples="""\
  commonplace restore-backup ~/backups/memory-2026-01-31.db
  commonplace --db postgresql://user@host/empty restore-backup memory.backup""",
    )
    restoring.add_argument("file", help="the file that `commonplace backup` wrote")
    restoring.add_argument("--discard", action="store_true", help="do not keep the former book")


def export_lines(context: Context) -> int:
    arguments = context.arguments
    chosen = None if arguments.namespace is None else [context.settings.namespace_labels]
    if arguments.salvage:
        context.require_book("export --salvage")
    with context.book() as book, context.progress() as progress, _target(context) as write:
        exported = book.export(write, namespaces=chosen, progress=progress, salvage=arguments.salvage)
    for name in exported.unreadable:
        context.out.note(f"not readable: {name}")
    code = DAMAGED if exported.unreadable else OK
    if arguments.file in STDOUT:
        return code
    if context.out.is_json:
        fields = {"file": arguments.file, "namespaces": exported.namespaces, "states": exported.states}
        context.out.document({**fields, "unreadable": exported.unreadable} if arguments.salvage else fields)
    else:
        where = pluralize(exported.namespaces, "namespace")
        context.out.line(f"exported {pluralize(exported.states, 'state')} of {where} to {arguments.file}")
    return code


@contextmanager
def _target(context: Context) -> Iterator[Callable[[bytes], object]]:
    """Where the lines go. A file gets its name when it is complete and on disk; only its owner can read it."""
    name, stdout = context.arguments.file, context.out.stdout
    if name in STDOUT:
        yield stdout.buffer.write
        stdout.buffer.flush()
        return
    given = local_path("the file to write", name)
    if given.is_dir():
        raise IsADirectory(f"{given} is a directory; name a file in it")
    if given.exists() and not given.is_file():  # a FIFO or a device; a file of /dev/fd cannot be resolved
        with given.open("wb") as stream:
            yield stream.write
        return
    target = Path(os.path.realpath(given))
    if target.exists() and any(file.exists() and target.samefile(file) for file in _book_files(context)):
        raise AlreadyExists(f"{target} is a file of the book; choose another name")
    if os.path.lexists(target) and not context.arguments.force:
        raise AlreadyExists(f"{target} exists already; choose another name, or replace it with --force")
    if not target.parent.is_dir():
        raise InvalidInput(f"the folder {target.parent} does not exist; create it first")
    unfinished = unfinished_file(target)
    unfinished.unlink(missing_ok=True)  # left by a run that was killed
    try:
        with open(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
            yield stream.write
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _book_files(context: Context) -> Iterator[Path]:
    book = context.settings.book_file
    if book is not None:
        for name in (book, os.path.realpath(book)):  # behind a link, SQLite's files are next to the real file
            yield from (Path(f"{name}{suffix}") for suffix in ("", "-wal", "-shm", "-lock", "-turn"))


def import_lines(context: Context) -> int:
    arguments = context.arguments
    only = None if arguments.namespace is None else context.settings.namespace_labels
    outcomes = []
    with _source(arguments.file) as stream:
        context.try_in_memory(lambda book: _check_beginning(stream))
        with context.book(create=True) as book, context.progress(in_bytes=True) as progress:
            for outcome in book.import_lines(stream, only=only, merge=arguments.merge, actor=ACTOR, progress=progress):
                outcomes.append(outcome)
    if context.out.is_json:
        context.out.document([_outcome_fields(outcome) for outcome in outcomes])
        return 0
    for outcome in outcomes:
        context.out.line(f"{'/'.join(outcome.namespace)}: {_outcome_sentence(outcome)}")
    if context.settings.remote is None and any(one.states and one.outcome != "identical" for one in outcomes):
        context.out.note(f"vectors are made as you search, or all at once with `{context.command('reindex')}`")
    return 0


def _check_beginning(stream: BinaryIO) -> None:
    """Read an export to the end of its first namespace; if this fails, nothing can be imported."""
    from commonplace.exchange import namespaces_of

    for _ in islice(namespaces_of(stream), 2):
        pass


@contextmanager
def _source(name: str) -> Iterator[BinaryIO]:
    """Open the file. Standard input and pipes are copied to a temporary file, because a namespace may be read twice."""
    if name == "-":
        with _copied(sys.stdin.buffer) as copy:
            yield copy
        return
    try:
        stream = local_path("the file to import", name).open("rb")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {name} to import") from error
    with stream, nullcontext(stream) if stream.seekable() else _copied(stream) as source:
        yield source


@contextmanager
def _copied(stream: BinaryIO) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy)
        yield copy


def _outcome_fields(outcome: Imported) -> dict[str, Any]:
    return {
        "namespace": "/".join(outcome.namespace),
        "outcome": outcome.outcome,
        "states": outcome.states,
        "kept": outcome.kept,
        "differing": outcome.differing,
        "commit": outcome.commit,
    }


def _outcome_sentence(outcome: Imported) -> str:
    if outcome.outcome == "identical":
        return "the same is there already; nothing was changed"
    if outcome.outcome == "imported":
        return f"imported {pluralize(outcome.states, 'state')}, with history"
    kept = f"{outcome.kept:,} were there already"
    differing = f", {outcome.differing:,} of them differ and stayed as they were" if outcome.differing else ""
    return f"added {pluralize(outcome.states, 'entry', 'entries')}; {kept}{differing}"


def import_mastra_file(context: Context) -> int:
    from commonplace.exchange.mastra import check_mastra, import_mastra

    source = local_path("the file to import", context.arguments.file)
    check_mastra(source)  # before the book is opened, so that a refused file does not create a book
    with context.book(create=True) as book, context.progress() as progress:
        found = import_mastra(
            book.store,
            context.settings.namespace_labels,
            source,
            limits=book.limits,
            actor=ACTOR,
            screen=None if book.redaction is None else book.redaction.screen,
            progress=progress,
        )
    if context.out.is_json:
        context.out.document(asdict(found))
        return NEGATIVE if found.damaged else OK
    context.out.line(_mastra_sentence(found))
    for reason in found.reasons:
        context.out.note(f"left out: {reason}")
    if found.damaged > len(found.reasons):
        context.out.note(f"and {found.damaged - len(found.reasons):,} more rows were left out")
    if found.messages:
        context.out.note(f"vectors are made as you search, or all at once with `{context.command('reindex')}`")
    return NEGATIVE if found.damaged else OK


def _mastra_sentence(found: MastraImport) -> str:
    came = [pluralize(found.threads, "thread"), pluralize(found.messages, "message")]
    came.append(pluralize(found.working_memories, "working memory", "working memories"))
    sentence = f"imported {', '.join(came)}"
    if found.kept:
        sentence += f"; {found.kept:,} were there already"
    if found.differing:
        sentence += f", {found.differing:,} of them differ and stayed as they were"
    if found.left_out:
        sentence += f"; {pluralize(found.left_out, 'system message')} left out"
    return sentence


def backup_book(context: Context) -> int:
    target = local_path("the backup's path", context.arguments.target)
    with context.book() as book, context.progress() as progress:
        book.backup(target, progress=progress)
    size = target.stat().st_size
    if context.out.is_json:
        context.out.document({"target": str(target), "bytes": size})
    elif context.settings.book_file is None:
        context.out.line(
            f"wrote a backup of the database to {target} ({format_bytes(size)}); "
            "`commonplace restore-backup` fills an empty database from it"
        )
    else:
        context.out.line(f"copied the book to {target} ({format_bytes(size)})")
    return 0


def restore_book(context: Context) -> int:
    from commonplace.book import restore_backup

    context.require_book("restore-backup")
    settings = context.settings
    url = settings.database_url if settings.book_file is None else settings.book_file
    with context.progress() as progress:
        former = restore_backup(
            context.arguments.file, url, keep_former=not context.arguments.discard, progress=progress
        )
    if context.out.is_json:
        context.out.document({"restored": context.arguments.file, "former": None if former is None else str(former)})
    elif former is None:
        context.out.line(f"restored {settings.place} from {context.arguments.file}")
    else:
        context.out.line(
            f"restored {settings.place} from {context.arguments.file}; the former book is now {former}. "
            "Programs that have it open must open the book again"
        )
    return 0


# move


def _declare_move(commands: Commands) -> None:
    move = commands.add(
        "move",
        GROUP,
        "Copy a whole book, history included, to another backend.",
        move_book,
        about="Each namespace is copied completely or not at all, then read back and compared. If it is interrupted, "
        "run it again to continue. The source is only read. Vectors are not copied; run "
        "`commonplace --db DST reindex` next.",
        examples="""\
  commonplace move memory.db postgresql://user@host/database
  commonplace move postgresql://user@host/database copy.db""",
    )
    move.add_argument("source", metavar="SRC", help="the book to copy: a file or postgresql://…")
    move.add_argument("target", metavar="DST", help="the target: a new book, or one that an interrupted move has begun")
    move.add_argument(
        "--mend-times", action="store_true", help="set back times that are ahead of the clock (`doctor` names them)"
    )


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
    there = f"; {pluralize(moved.already_there, 'namespace')} copied before" if moved.already_there else ""
    context.out.line(
        f"moved {pluralize(moved.namespaces, 'namespace')} with {pluralize(moved.states, 'state')}, all compared{there}"
    )
    return 0


@contextmanager
def _opened(settings: Settings, *, create: bool) -> Iterator[Book]:
    if not create and settings.book_file is not None and not settings.book_file.exists():
        raise NotFound(f"there is no book at {settings.book_file}; name the one to move")
    with open_from_settings(settings, background=False) as book:
        yield book


def _is_one_file(one: Path | None, other: Path | None) -> bool:
    return one is not None and other is not None and one.exists() and other.exists() and one.samefile(other)
