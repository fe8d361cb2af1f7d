"""`stats`, `namespaces` and `reindex`: what the book holds, and how its indexes are rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import Context
from commonplace.cli.output import counted, shown_bytes, shown_time
from commonplace.errors import Forbidden

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.checks import Namespace
    from commonplace.cli.parser import Commands
    from commonplace.store import NamespaceStats, StoreStats

GROUP = "Care"
PAGE = 1_000


def register(commands: Commands) -> None:
    commands.add(
        "stats",
        GROUP,
        "Count what the book and the namespace hold.",
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
    namespaces.add_argument("prefix", nargs="?", help="only those at or below this one, such as user")
    namespaces.add_argument("-l", "--long", action="store_true", help="with counts and times")

    reindex = commands.add(
        "reindex",
        GROUP,
        "Embed what has no vector yet, or everything with a new model.",
        make_index,
        about="The old vectors serve until the new ones are complete. Stopped with Ctrl-C, it goes on from there\n"
        "when run again.",
        examples="""\
  commonplace reindex
  commonplace reindex --model all-MiniLM-L6-v2
  commonplace reindex --keywords""",
    )
    chosen = reindex.add_mutually_exclusive_group()
    chosen.add_argument(
        "--model", metavar="NAME", help="the model to embed with (default: $EMBEDDINGS_MODEL, else the book's own)"
    )
    chosen.add_argument("--keywords", action="store_true", help="rebuild the keyword index instead")


def print_stats(context: Context) -> int:
    from commonplace.checks import moment

    with context.book() as book:
        try:
            whole: StoreStats | None = book.stats()
        except Forbidden:  # a service's key for one namespace
            whole = None
        own = book.space(*context.labels(book)).stats()
    place = str(context.settings.remote or context.settings.place)
    if context.out.is_json:
        counts = {} if whole is None else {"book": {"path": place, **asdict(whole)}}
        counts["namespace"] = _fields(own)
        context.out.document(counts)
        return 0
    rows = [] if whole is None else _whole_rows(place, whole)
    rows += [
        ("namespace", "/".join(own.namespace)),
        ("entries", _kinds(own.entries)),
        ("former states", f"{own.former_states:,}"),
        ("holds", f"{shown_bytes(own.bytes)} in entries, {shown_bytes(own.former_bytes)} in history"),
        ("last change", f"commit {own.commit}, {shown_time(moment(own.updated_at))}" if own.commit else "none yet"),
    ]
    for name, value in rows:
        context.out.line(f"{context.out.paint(f'{name:<15}', 'dim')}{value}".rstrip())
    return 0


def _whole_rows(place: str, whole: StoreStats) -> list[tuple[str, str]]:
    return [
        ("book", f"{place} ({shown_bytes(whole.bytes)}, schema {whole.schema})"),
        ("namespaces", f"{whole.namespaces:,}"),
        ("entries", _kinds(whole.entries)),
        ("former states", f"{whole.former_states:,}"),
        ("passages", f"{whole.chunks:,}, {whole.vectors:,} with vectors, {whole.pending:,} waiting"),
        ("model", whole.model or "none yet; the first search embeds"),
        ("", ""),
    ]


def _kinds(entries: Mapping[str, int]) -> str:
    plural = {"directory": "directories", "working": "working"}
    return ", ".join(counted(count, kind, plural.get(kind)) for kind, count in entries.items()) or "none"


def _fields(stats: NamespaceStats) -> dict[str, Any]:
    from commonplace.checks import moment

    return {**asdict(stats), "namespace": "/".join(stats.namespace), "updated_at": moment(stats.updated_at)}


def print_namespaces(context: Context) -> int:
    from commonplace.checks import moment, parse_namespace

    prefix = parse_namespace(context.arguments.prefix) if context.arguments.prefix else ()
    with context.book() as book:
        found = _all_namespaces(book, prefix)
        stats = [book.space(*namespace).stats() for namespace in found] if context.arguments.long else []
    if context.out.is_json:
        if context.arguments.long:
            context.out.document([_fields(one) for one in stats])
        else:
            context.out.document(["/".join(namespace) for namespace in found])
    elif context.arguments.long:
        rows = [
            [
                "/".join(one.namespace),
                f"{sum(one.entries.values()):,}",
                f"{one.former_states:,}",
                str(one.commit),
                shown_time(moment(one.updated_at)),
            ]
            for one in stats
        ]
        context.out.table(("namespace", "entries", "former states", "commit", "last change"), rows, right=(1, 2, 3))
    else:
        for namespace in found:
            context.out.line("/".join(namespace))
    return 0


def _all_namespaces(book: Book, prefix: Namespace) -> list[Namespace]:
    found: list[Namespace] = []
    while page := book.namespaces(*prefix, after=found[-1] if found else None, limit=PAGE):
        found += page
    return found


def make_index(context: Context) -> int:
    context.refuse_a_service("reindex")
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
                context.out.note("stopped; what is embedded stays, and the same command goes on from there")
                raise
            done = f"everything is embedded with {book.stats().model}"
        stats = book.stats()
    if context.out.is_json:
        context.out.document({"model": stats.model, "vectors": stats.vectors, "passages": stats.chunks})
    else:
        context.out.line(done)
    return 0
