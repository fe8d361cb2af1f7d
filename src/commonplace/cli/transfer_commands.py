"""Commands for whole books and namespaces: exports, imports, backups and moves."""

from __future__ import annotations

import os
import shlex
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
from commonplace.settings import Settings, hide_password, open_from_settings

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.exchange import Imported, ImportedCommits, ImportReport
    from commonplace.exchange.recognition import Source

GROUP = "Transfer and back up"
STDOUT = ("-", "/dev/stdout")
_WATCH_SECONDS = 5.0
"""How often a watch looks for entries that have expired, of which no commit tells."""


def register(commands: Commands) -> None:
    _declare_transfer(commands)
    _declare_move(commands)


# export, import, import-mastra, backup and restore-backup


def _declare_transfer(commands: Commands) -> None:
    export = commands.add(
        "export",
        GROUP,
        "Export everything, as JSON lines or as a folder of Markdown.",
        export_anything,
        about="JSON lines have everything, history included: all namespaces, or one if --namespace is given.\n"
        "docs/internal/export-format.md describes the lines. If the book is damaged, it stops with exit code 7.\n"
        "With --salvage it writes everything that can be read, lists the rest on standard error, then exits with 7.\n\n"
        "--format markdown writes one namespace to a folder that people and other programs read: a file for each\n"
        "record and thread, files as they are, and an index. `commonplace import` reads it back, without history.\n"
        "--watch keeps it current. It does not overwrite files that were changed there (exit code 4).\n"
        "--format server-memory writes the records for @modelcontextprotocol/server-memory.",
        examples="""\
  commonplace export memory.jsonl
  commonplace export --salvage rescued.jsonl
  commonplace export --namespace user/u-123 | gzip > u-123.jsonl.gz
  commonplace export --format markdown notes --watch
  commonplace export --format server-memory memory.jsonl""",
    )
    export.add_argument(
        "file", nargs="?", default="-", metavar="PATH", help="the file or folder to write (default: standard output)"
    )
    export.add_argument("--force", action="store_true", help="replace what exists")
    export.add_argument(
        "--format",
        choices=("jsonl", "markdown", "server-memory"),
        default="jsonl",
        help="what to write (default: jsonl)",
    )
    export.add_argument("--watch", action="store_true", help="keep a folder of Markdown current until you stop it")
    export.add_argument("--salvage", action="store_true", help="write everything that can be read from a damaged book")

    importing = commands.add(
        "import",
        GROUP,
        "Import an export, or the memory of another program.",
        import_anything,
        about="Takes a file, a folder, a zip archive or a database, and recognises the format by the content.\n\n"
        "The formats, which --from names:\n"
        "  commonplace, commonplace-markdown  what `commonplace export` wrote\n"
        "  chatgpt, chatgpt-memory            ChatGPT: the export, saved memories\n"
        "  claude, claude-projects            Claude.ai: the export, projects\n"
        "  claude-code, claude-code-memory    Claude Code: sessions, memory folder\n"
        "  codex, gemini                      sessions of Codex and Gemini CLI\n"
        "  mem0, mem0-history                 mem0: JSON, history.db\n"
        "  langgraph                          LangGraph's store (SQLite, PostgreSQL)\n"
        "  mastra                             Mastra's LibSQLStore\n"
        "  mcp-memory-service, server-memory  the MCP servers of these names\n"
        "  letta                              agent files of Letta\n"
        "  basic-memory, obsidian, text       folders of notes\n"
        "  messages                           messages as OpenAI, LangChain write them\n\n"
        "Entries that the book already has are kept, so a second import adds only what is new.\n"
        "Every conversation is one commit, which you can undo. What cannot be read is named, the rest is imported,\n"
        "and the exit code is 1.\n\n"
        "If you give an export of commonplace, a namespace that is empty in the book gets everything, history and\n"
        "commit numbers included. One that is identical is left alone. Any other is refused (exit code 4), or with\n"
        "--merge gets the live entries that it does not have. Each namespace is imported completely or not at all.",
        examples="""\
  commonplace import memory.jsonl
  zcat u-123.jsonl.gz | commonplace import - --merge
  commonplace import chatgpt-export.zip --dry-run
  commonplace import mem0.json --map 'user/*=people/*'
  commonplace import --undo 12-345""",
    )
    importing.add_argument("file", nargs="?", metavar="PATH", help="the file, folder or address; - is standard input")
    importing.add_argument("--from", dest="format", metavar="NAME", help="the format, if it is not recognised")
    importing.add_argument("--dry-run", action="store_true", help="only say what it holds and what would be added")
    importing.add_argument(
        "--map", action="append", default=[], metavar="FROM=TO", help="import a part of the source into this namespace"
    )
    importing.add_argument("--again", action="store_true", help="also import what was deleted here since")
    importing.add_argument("--undo", metavar="COMMITS", help="undo an import by the commits that it printed: 12-345")
    importing.add_argument("--merge", action="store_true", help="add what is missing to namespaces that differ")

    mastra = commands.add(
        "import-mastra",
        GROUP,
        "Import threads, messages and working memory from Mastra.",
        import_mastra_file,
        about="The same as `import --from mastra`. Reads the file of Mastra's LibSQLStore, which is not changed.\n"
        "Ids and times are kept. Rows that cannot be read are reported and skipped, and the exit code is 1.",
        examples="""\
  commonplace import-mastra memory.db
  commonplace import-mastra mastra.db --db agent.db --namespace agent/a1b2c3d4-e5f6-7890-abcd-ef1234567890""",
    )
    mastra.set_defaults(format="mastra", map=[], again=False, dry_run=False)
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


def export_anything(context: Context) -> int:
    arguments = context.arguments
    if arguments.watch and arguments.format != "markdown":
        raise InvalidInput("--watch keeps a folder of Markdown current; add --format markdown")
    if arguments.format == "jsonl":
        return export_lines(context)
    if arguments.salvage:
        raise InvalidInput("--salvage writes JSON lines; leave --format out")
    context.require_book(f"export --format {arguments.format}")
    return export_markdown(context) if arguments.format == "markdown" else export_server_memory(context)


def export_server_memory(context: Context) -> int:
    from commonplace.exchange.memory_programs import server_memory_lines

    with context.book() as book, _target(context) as write:
        lines = book.store.read(context.labels(book), lambda reader: list(server_memory_lines(reader)))
        for line in lines:
            write(line)
    if context.arguments.file not in STDOUT:
        context.out.line(f"wrote {pluralize(len(lines), 'entity or relation', 'entities and relations')}")
    return OK


def export_markdown(context: Context) -> int:
    from commonplace.exchange.markdown import MarkdownFolder, Written

    arguments = context.arguments
    if arguments.file in STDOUT:
        raise InvalidInput("name the folder to write: commonplace export --format markdown DIR")
    target = local_path("the folder to write", arguments.file)

    def report(written: Written) -> None:
        if context.out.is_json:
            context.out.json_line({"folder": str(target), **asdict(written)})
        else:
            removed = f", removed {written.removed:,}" if written.removed else ""
            context.out.line(f"wrote {pluralize(written.files, 'file')}{removed} in {target} (commit {written.commit})")
        for path in written.foreign:
            context.out.note(f"left alone, because it was changed by somebody else: {path}")
        context.out.stdout.flush()

    with context.book() as book:
        namespace = context.labels(book)
        folder = MarkdownFolder(target, namespace, force=arguments.force)
        with context.progress() as progress:
            written = folder.write(book.store, progress)
        report(written)
        if not arguments.watch:
            return 4 if written.foreign else OK
        waker = book.store.waker()
        try:
            while True:
                book.store.end_expired(namespace)
                changes = book.store.changes(namespace, folder.commit, 1_000)
                if changes:
                    report(folder.update(book.store, changes, upto=changes[-1].commit))
                else:
                    waker.wait(_WATCH_SECONDS)
        finally:
            waker.close()


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


def import_anything(context: Context) -> int:
    from commonplace.exchange.recognition import OWN, open_source

    arguments = context.arguments
    if arguments.undo is not None:
        return _undo_import(context)
    if arguments.file is None:
        raise InvalidInput("name the file or folder to import; - is standard input")
    with _local_source(arguments.file) as path, open_source(path, arguments.format) as source:
        if source.names == (OWN,):
            with _only_export(source) as lines:
                return import_lines(context, lines)
        if arguments.merge:
            raise InvalidInput("--merge is for exports of commonplace; another import always adds what is missing")
        if not context.out.is_json:
            for sentence in source.sentences:
                context.out.note(f"found {sentence}")
        return _import_memory(context, path)


@contextmanager
def _only_export(source: Source) -> Iterator[Path]:
    """The export of commonplace that a file, a folder or an archive holds."""
    leaves = [leaf for part in source.parts for leaf in part.leaves]
    if len(leaves) > 1:
        raise InvalidInput(f"{source.tree.name} has {len(leaves)} exports of commonplace; import one at a time")
    with leaves[0].on_disk() as path:
        yield path


def _import_memory(context: Context, path: Path | str) -> int:
    from commonplace.exchange.foreign import parse_rule

    arguments = context.arguments
    for rule in arguments.map:
        parse_rule(rule)  # before the book is created
    with _book_to_import(context) as book, context.progress(in_bytes=True) as progress:
        report = book.import_memory(
            path,
            context.labels(book),
            format=arguments.format,
            mapping=arguments.map,
            again=arguments.again,
            dry_run=arguments.dry_run,
            actor=ACTOR,
            progress=progress,
        )
    code = NEGATIVE if report.unreadable else OK
    if context.out.is_json:
        context.out.document({**asdict(report), "commits": [_commit_fields(one) for one in report.commits]})
        return code
    _print_report(context, report)
    return code


@contextmanager
def _book_to_import(context: Context) -> Iterator[Book]:
    """The book. A dry run does not create it."""
    settings = context.settings
    is_missing = settings.remote is None and settings.book_file is not None and not settings.book_file.exists()
    if context.arguments.dry_run and is_missing:
        with open_from_settings(replace(settings, database_url=":memory:"), background=False) as book:
            yield book
    else:
        with context.book(create=True) as book:
            yield book


def _commit_fields(commits: ImportedCommits) -> dict[str, Any]:
    return {**asdict(commits), "namespace": "/".join(commits.namespace)}


def _print_report(context: Context, report: ImportReport) -> None:
    out = context.out
    parts = [
        pluralize(count, one)
        for count, one in (
            (report.threads, "thread"),
            (report.messages, "message"),
            (report.records, "record"),
            (report.files, "file"),
        )
        if count
    ]
    if report.working_memories:
        parts.append(pluralize(report.working_memories, "working memory", "working memories"))
    verb = "would import" if report.is_dry else "imported"
    sentence = (
        f"{verb} {', '.join(parts)}" if parts else f"nothing new{' would be' if report.is_dry else ' was'} imported"
    )
    for count, what in (
        (report.updated, "changed in the source since and updated"),
        (report.kept, "there already"),
        (report.deleted_here, "deleted here since (--again imports them)"),
        (report.left_out, "left out"),
        (report.unreadable, "not readable"),
    ):
        sentence += f"; {count:,} {what}" if count else ""
    if report.differing:
        sentence += f"; {report.differing:,} of those there already differ and stayed as they were"
    out.line(sentence)
    for sample in report.samples if report.is_dry else ():
        out.line(f"  {out.clean(sample)}")
    for reason in report.reasons:
        out.note(f"not readable: {out.clean(reason)}")
    if report.unreadable > len(report.reasons):
        out.note(f"and {report.unreadable - len(report.reasons):,} more that are not readable")
    for reason in report.left_out_reasons:
        out.note(f"left out: {out.clean(reason)}")
    if report.left_out > len(report.left_out_reasons):
        out.note(f"and {report.left_out - len(report.left_out_reasons):,} more that were left out")
    for one in report.commits:
        span = str(one.first) if one.first == one.last else f"{one.first}-{one.last}"
        words = ["commonplace", *_flags(context), "--namespace", "/".join(one.namespace), "import", "--undo", span]
        out.note(f"to undo it: {shlex.join(words)}")
    if report.added and not report.is_dry and context.settings.remote is None:
        out.note(f"vectors are made as you search, or all at once with `{context.command('reindex')}`")


def _flags(context: Context) -> list[str]:
    given = (("--db", context.arguments.db), ("--remote", context.arguments.remote))
    return [word for flag, value in given if value is not None for word in (flag, hide_password(value))]


def _undo_import(context: Context) -> int:
    from commonplace.exchange.foreign import commit_range, undo_import

    first, last = commit_range(context.arguments.undo)
    with context.space() as space, context.progress() as progress:
        undone = undo_import(space, first, last, progress)
    if context.out.is_json:
        context.out.document(asdict(undone))
    else:
        context.out.line(f"undid {pluralize(undone.commits, 'commit')} of the import")
        for conflict in undone.conflicts:
            context.out.note(conflict)
    return 4 if undone.conflicts else OK


@contextmanager
def _local_source(name: str) -> Iterator[Path | str]:
    """What to import as a path. Standard input and pipes are copied to a temporary file, which is read twice."""
    if name.partition("://")[0] in ("postgres", "postgresql"):
        yield name
        return
    path = Path("-") if name == "-" else local_path("the file to import", name)
    if name != "-" and not path.exists():
        raise NotFound(f"there is no file {name} to import")
    if name != "-" and (path.is_file() or path.is_dir()):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="commonplace-import-") as folder:
        copy = Path(folder) / "import"
        with copy.open("wb") as target, _source(name) as stream:
            stream.seek(0)
            shutil.copyfileobj(stream, target)
        yield copy


def import_lines(context: Context, path: Path) -> int:
    arguments = context.arguments
    only = None if arguments.namespace is None else context.settings.namespace_labels
    outcomes = []
    if arguments.map:
        raise InvalidInput("--map does not apply to an export of commonplace, which says itself where things go")
    with path.open("rb") as stream:
        if arguments.dry_run:
            return _list_namespaces(context, stream)
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


def _list_namespaces(context: Context, stream: BinaryIO) -> int:
    from commonplace.exchange import namespaces_of

    names = ["/".join(namespace) for namespace in namespaces_of(stream)]
    if context.out.is_json:
        context.out.document(names)
    else:
        context.out.line(f"an export of commonplace with {pluralize(len(names), 'namespace')}: {', '.join(names[:20])}")
    return OK


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
    """`import --from mastra`; a file that is refused does not create a book."""
    from commonplace.exchange.mastra import check_mastra

    source = local_path("the file to import", context.arguments.file)
    check_mastra(source)
    return _import_memory(context, source)


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
    move.add_argument("source", metavar="SRC", help="the book to copy: a file, postgresql://… or mongodb://…")
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
