"""Commands that read: `search`, `ls`, `cat`, `history` and `changes`."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonplace.cli.arguments import KIND_AND_KEY, Commands, find_entry, kind_and_key, time
from commonplace.cli.exit_codes import NEGATIVE, OK
from commonplace.cli.invocation import Context
from commonplace.cli.output import format_bytes, record_fields
from commonplace.errors import InvalidInput, NotFound
from commonplace.language.relevance import DEFAULT_FLOOR

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.checks import Namespace
    from commonplace.engine.search import SearchResult
    from commonplace.entry import Change, Entry, Hit
    from commonplace.space.conversation import Thread
    from commonplace.space.files import FileInfo
    from commonplace.space.records import Record
    from commonplace.space.space import Space
    from commonplace.store import Store

GROUP = "Find and read"
SHOWN_CHARACTERS = 60
LIMIT = 100
THREADS_A_PAGE = 1_000
PAGE = 500


def register(commands: Commands) -> None:
    _declare_search(commands)
    _declare_ls(commands)
    _declare_history(commands)


# search


def _declare_search(commands: Commands) -> None:
    parser = commands.add(
        "search",
        GROUP,
        "Search by keyword and by meaning, best hits first.",
        search,
        about="Hits that are unlikely to be relevant are left out. Exits with 1 if nothing is left, like grep. "
        "Notices, such as a missing model, go to stderr.",
        examples="""\
  commonplace search "when do we deploy?"
  commonplace search tea --kind record --tag person:ana
  commonplace search budget --as-of 2026-01-31 --json
  commonplace search error --filter '{"severity": {"$gte": 3}}'
  commonplace search "anything on Lyon?" --min 0""",
    )
    parser.add_argument("query", nargs="+", help="what to search for")
    parser.add_argument("--limit", metavar="N", type=int, help="at most this many hits (default: 10)")
    parser.add_argument("--offset", metavar="N", type=int, default=0, help="skip the first N hits")
    parser.add_argument(
        "--min",
        metavar="P",
        type=float,
        help="leave out hits whose probability of being relevant is lower (default: the model's floor; 0 shows all)",
    )
    parser.add_argument("--kind", metavar="KIND", action="append", help="only file, record, message …; may be repeated")
    parser.add_argument("--type", metavar="TYPE", help="only records of this type")
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="only with this tag; may be repeated")
    match = parser.add_mutually_exclusive_group()
    match.add_argument("--match", choices=("all", "any"), help="all of the tags (default), or any")
    match.add_argument("--any-tag", dest="match", action="store_const", const="any", help="the same as --match any")
    parser.add_argument("--filter", metavar="JSON", help='only with these fields, such as \'{"size": {"$gt": 3}}\'')
    parser.add_argument("--after", metavar="TIME", type=time, help="only entries updated at this time or later")
    parser.add_argument("--before", metavar="TIME", type=time, help="only entries updated before this time")
    parser.add_argument("--as-of", metavar="TIME", type=time, help="search the state of this time")
    parser.add_argument("--below", action="store_true", help="search the namespaces below this one too")


def search(context: Context) -> int:
    arguments = context.arguments
    limit, most = arguments.limit, context.settings.search_max_limit
    if limit is not None and limit > most:
        context.out.note(f"--limit {limit} was lowered to {most}; SEARCH_MAX_LIMIT sets it")
        limit = most
    with context.space() as space, context.clock("searching"):
        found = space.search(
            " ".join(arguments.query),
            limit=context.settings.search_default_limit if limit is None else limit,
            offset=arguments.offset,
            kinds=arguments.kind,
            type=arguments.type,
            tags=arguments.tag,
            match=arguments.match or "all",
            filter=_filter(arguments.filter),
            after=arguments.after,
            before=arguments.before,
            as_of=arguments.as_of,
            below=arguments.below,
            min_relevance=DEFAULT_FLOOR if arguments.min is None else arguments.min,
        )
    _show_found(context, found)
    return OK if found else NEGATIVE


def _filter(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f'--filter is not valid JSON: {error}; write it like \'{{"size": {{"$gt": 3}}}}\''
        ) from error


def _show_found(context: Context, found: SearchResult) -> None:
    from commonplace.engine.search import PENDING

    for notice in found.notices:
        is_lagging = getattr(notice, "code", None) == PENDING and context.settings.remote is None
        context.out.note(notice + (f"; run `{context.command('reindex')}` to embed now" if is_lagging else ""))
    if context.out.is_json:
        hits = [_hit_fields(hit) for hit in found]
        context.out.document({"hits": hits, "notices": list(found.notices), "left_out": found.left_out})
        return
    if not found:
        context.out.note(_nothing(found.left_out))
    for hit in found:
        _show_hit(context, hit)


def _nothing(left_out: int) -> str:
    if not left_out:
        return "nothing was found"
    some = "1 less relevant hit was" if left_out == 1 else f"{left_out:,} less relevant hits were"
    return f"nothing relevant was found; {some} left out, --min 0 shows them"


def _hit_fields(hit: Hit) -> dict[str, Any]:
    from commonplace.checks import moment

    return {
        "namespace": "/".join(hit.entry.namespace),
        "kind": hit.kind,
        "key": hit.key,
        "score": round(hit.score, 4),
        "parts": {name: round(part, 4) for name, part in hit.parts.items()},
        "relevance": None if hit.relevance is None else round(hit.relevance, 4),
        "snippet": hit.snippet,
        "revision": hit.entry.revision,
        "updated_at": moment(hit.entry.updated_at),
    }


def _show_hit(context: Context, hit: Hit) -> None:
    out = context.out
    place = f"{'/'.join(hit.entry.namespace)}  " if context.arguments.below else ""
    score = out.style(f"{hit.score:.2f}", "green")
    out.line(f"{score}  {hit.kind:<7} {out.style(place, 'dim')}{out.style(out.clean(hit.key), 'bold')}")
    if not hit.snippet:
        return
    if not out.is_terminal:
        out.line(f"      {hit.snippet}")
        return
    width = max(40, shutil.get_terminal_size().columns - 6)
    for line in textwrap.wrap(out.clean(hit.snippet), width):
        out.line("      " + out.style(line, "dim"))


# ls


def _declare_ls(commands: Commands) -> None:
    ls = commands.add(
        "ls",
        GROUP,
        "List files, records or threads.",
        list_entries,
        examples="""\
  commonplace ls
  commonplace ls -l /notes
  commonplace ls --records --tag project:x""",
    )
    ls.add_argument("path", nargs="?", help="a directory (default: /)")
    ls.add_argument("-l", "--long", action="store_true", help="with sizes, revisions and times")
    ls.add_argument("-R", "--recursive", action="store_true", help="everything below the directory")
    chosen = ls.add_mutually_exclusive_group()
    chosen.add_argument("--records", action="store_true", help="list records, newest first")
    chosen.add_argument("--threads", action="store_true", help="list threads, last used first")
    ls.add_argument("--type", metavar="TYPE", help="with --records: only this type")
    ls.add_argument("--tag", metavar="TAG", action="append", default=[], help="with --records: only with this tag")
    ls.add_argument("--limit", metavar="N", type=int, help="at most this many records or threads (default: 100)")


def list_entries(context: Context) -> int:
    arguments = context.arguments
    _refuse_idle_options(arguments)
    if arguments.records or arguments.threads:
        limit = LIMIT if arguments.limit is None else arguments.limit
        if not 1 <= limit <= 10_000:
            raise InvalidInput(f"--limit must be between 1 and 10,000, not {limit}")
        (_list_records if arguments.records else _list_threads)(context, limit)
        return 0
    path = "/" if arguments.path is None else arguments.path
    with context.space() as space, context.clock("reading"):
        found = (
            sorted(space.files.walk(path), key=lambda info: info.path.split("/"))
            if arguments.recursive
            else space.files.list(path)
        )
    if context.out.is_json:
        context.out.document([_file_fields(info) for info in found])
        return 0
    names = [_file_name(context, info) for info in found]
    if arguments.long:
        rows = [
            [
                str(info.revision),
                format_bytes(info.size) if info.kind == "file" else "-",
                context.out.time(info.updated_at),
            ]
            for info in found
        ]
        context.out.table(
            ("revision", "size", "updated", "name"),
            [[*row, name] for row, name in zip(rows, names, strict=True)],
            right=(0, 1),
        )
    else:
        for name in names:
            context.out.line(context.out.clean(name))
    return 0


def _refuse_idle_options(arguments: Any) -> None:
    if arguments.records or arguments.threads:
        if arguments.path is not None or arguments.recursive:
            raise InvalidInput("records and threads are not in directories; remove the path and -R")
    elif arguments.limit is not None:
        raise InvalidInput("--limit is only for records and threads; add --records or --threads")
    if not arguments.records and (arguments.type is not None or arguments.tag):
        raise InvalidInput("only records have a type and tags; add --records, or remove --type and --tag")


def _file_name(context: Context, info: FileInfo) -> str:
    return (info.path if context.arguments.recursive else info.name) + ("/" if info.kind == "directory" else "")


def _file_fields(info: FileInfo) -> dict[str, Any]:
    return {
        "path": info.path,
        "kind": info.kind,
        "size": info.size,
        "lines": info.lines,
        "revision": info.revision,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
    }


def _list_records(context: Context, limit: int) -> None:
    arguments = context.arguments
    with context.space() as space, context.clock("reading"):
        page = space.records.list(type=arguments.type, tags=arguments.tag, limit=limit)
    if context.out.is_json:
        context.out.document([record_fields(record) for record in page.records])
        return
    rows = [
        [record.id, record.type, " ".join(record.tags), *_update_time(context, record.updated_at), _record_line(record)]
        for record in page.records
    ]
    if rows:
        context.out.table(("id", "type", "tags", *(("updated",) if arguments.long else ()), "content"), rows)
    if page.cursor is not None:
        context.out.note(f"there are more than {limit:,}; --limit shows more of them")


def _update_time(context: Context, at: datetime) -> list[str]:
    return [context.out.time(at)] if context.arguments.long else []


def _record_line(record: Record) -> str:
    content = record.content
    if isinstance(content, dict) and set(content) == {"text"}:
        content = content["text"]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _list_threads(context: Context, limit: int) -> None:
    threads: list[Thread] = []
    cursor: str | None = None
    with context.space() as space, context.clock("reading"):
        while len(threads) < limit:
            page = space.threads.list(limit=min(limit - len(threads), THREADS_A_PAGE), cursor=cursor)
            threads += page.threads
            cursor = page.cursor
            if cursor is None:
                break
    if context.out.is_json:
        context.out.document(
            [
                {"id": thread.id, "resource_id": thread.resource_id, "title": thread.title}
                | {"created_at": thread.created_at, "updated_at": thread.updated_at}
                for thread in threads
            ]
        )
        return
    rows = [[thread.id, context.out.time(thread.updated_at), thread.title or ""] for thread in threads]
    if rows:
        context.out.table(("id", "updated", "title"), rows)
    if cursor is not None:
        context.out.note(f"there are more than {limit:,}; --limit shows more of them")


# cat, history and changes


def _declare_history(commands: Commands) -> None:
    cat = commands.add(
        "cat",
        GROUP,
        "Print a file's text, a record, or a thread's messages.",
        print_entry,
        examples="""\
  commonplace cat /notes/today
  commonplace cat /notes/today --as-of 2h
  commonplace cat 7b1f0c9e-52f4-4e0a-9f0e-6a8f8f6f8a11 --revision 2""",
    )
    cat.add_argument("key", help="a path, a record's id or a thread's id")
    earlier = cat.add_mutually_exclusive_group()
    earlier.add_argument("--revision", metavar="N", type=int, help="print this revision")
    earlier.add_argument("--as-of", metavar="TIME", type=time, help="print the state of this time")

    history = commands.add(
        "history",
        GROUP,
        "List every revision of an entry, oldest first.",
        print_history,
        about="A key that begins with / is the path of a file; any other is the id of a record or a thread.",
        examples="""\
  commonplace history /notes/today
  commonplace history directory /notes""",
    )
    history.add_argument("names", nargs="+", metavar=KIND_AND_KEY, help="a path or an id, with its kind if needed")

    changes = commands.add(
        "changes",
        GROUP,
        "List the changes in the namespace, oldest first.",
        print_changes,
        about="With --json, one JSON object per line.",
        examples="""\
  commonplace changes | tail
  commonplace changes --after 120 --json""",
    )
    changes.add_argument("--after", metavar="COMMIT", type=int, help="only changes after this commit")


def print_entry(context: Context) -> int:
    with context.book() as book:
        space = book.space(*context.labels(book))
        key = context.arguments.key = context.whole_id(book, context.arguments.key)
        if key.startswith("/"):
            _print_file(context, space)
        elif (record := _record(context, space)) is not None:
            context.out.document(record_fields(record))
        else:
            _print_thread(context, book, space)
    return 0


def _print_file(context: Context, space: Space) -> None:
    arguments = context.arguments
    if arguments.revision is None:
        text = space.files.read(arguments.key, as_of=arguments.as_of)
    else:
        text = str(space.state("file", arguments.key, arguments.revision).value)
    if context.out.is_json:
        context.out.document({"path": arguments.key, "text": text})
    else:
        context.out.text(text)


def _record(context: Context, space: Space) -> Record | None:
    """Return the record, or None if there is no record with the id."""
    from commonplace.space.records import record_of

    arguments = context.arguments
    if arguments.revision is not None:
        kind, _ = find_entry(space, arguments.key)
        if kind != "record" and not space.history("record", arguments.key):
            raise InvalidInput("--revision is for files and records; use --as-of for a thread")
        return record_of(space.state("record", arguments.key, arguments.revision))
    try:
        return space.records.get(arguments.key, as_of=arguments.as_of)
    except NotFound:
        return None


def _print_thread(context: Context, book: Book, space: Space) -> None:
    from commonplace.checks import microseconds, moment

    key = context.arguments.key
    as_of = microseconds("--as-of", context.arguments.as_of)
    with context.clock("reading"):
        found = _thread(space, key) if as_of is None else _former_thread(book.store, space.namespace, key, as_of)
    if found is None:
        if any(line.action == "deleted" for line in space.history("record", key)):
            raise NotFound(
                f"record {key} was deleted; `{context.command('history', key)}` lists the revisions that you can read "
                "and restore"
            )
        place = "/".join(space.namespace)
        raise NotFound(f"there is no record or thread {key} in {place}; `search` and `ls` find ids")
    thread, messages = found
    if context.out.is_json:
        context.out.document(
            {"id": thread.id, "resource_id": thread.resource_id, "title": thread.title}
            | {"created_at": thread.created_at, "updated_at": thread.updated_at}
            | {"messages": [_message_fields(message) for message in messages]}
        )
        return
    if thread.title:
        context.out.line(context.out.style(context.out.clean(thread.title), "bold"))
    for message in messages:
        when = context.out.style(context.out.time(moment(message.created_at)), "dim")
        context.out.line(f"{when}  {message.attributes.get('role')}: {context.out.clean(message.text)}")


def _thread(space: Space, id: str) -> tuple[Thread, list[Entry]] | None:
    """Return a thread with all its stored messages."""
    try:
        thread = space.threads.get(id)
    except NotFound:
        return None
    entries: list[Entry] = []
    cursor: str | None = None
    while True:
        page = space.threads.messages(id, limit=PAGE, cursor=cursor)
        entries += [message.entry for message in page.messages if message.entry is not None]
        cursor = page.cursor
        if cursor is None:
            return thread, entries


def _former_thread(store: Store, namespace: Namespace, id: str, as_of: int) -> tuple[Thread, list[Entry]] | None:
    from commonplace.space.conversation import thread_of

    entry = store.get(namespace, "thread", [id], as_of=as_of)[0]
    return None if entry is None else (thread_of(entry), list(_former_messages(store, entry, as_of)))


def _former_messages(store: Store, thread: Entry, as_of: int) -> Iterator[Entry]:
    from commonplace.entry import SEPARATOR
    from commonplace.filters import Filter
    from commonplace.store import Scan

    cursor: str | None = None
    while True:
        narrowed = Filter(kinds=("message",), key_prefix=thread.key + SEPARATOR)
        page = store.scan(thread.namespace, Scan(narrowed, limit=PAGE, after=cursor, as_of=as_of))
        yield from page.entries
        cursor = page.cursor
        if cursor is None:
            return


def _message_fields(message: Entry) -> dict[str, Any]:
    from commonplace.checks import moment

    return {
        "id": message.identity,
        "role": message.attributes.get("role"),
        "value": message.value,
        "created_at": moment(message.created_at),
    }


def print_history(context: Context) -> int:
    from commonplace.checks import moment

    kind, key = kind_and_key(context.arguments.names)
    with context.book() as book:
        key = context.whole_id(book, key)
        kind, revisions = find_entry(context.space_of(book), key, kind)
    if context.out.is_json:
        context.out.document(
            {
                "kind": kind,
                "key": key,
                "revisions": [
                    {
                        "revision": line.revision,
                        "action": line.action,
                        "commit": line.commit,
                        "at": moment(line.at),
                        "actor": line.actor,
                    }
                    for line in revisions
                ],
            }
        )
        return 0
    rows = [
        [str(line.revision), line.action, str(line.commit), context.out.time(moment(line.at)), line.actor or ""]
        for line in revisions
    ]
    context.out.table(("revision", "action", "commit", "when", "by"), rows, right=(0, 2))
    return 0


def print_changes(context: Context) -> int:
    from commonplace.checks import moment

    header = f"{'commit':>7}  {'when':<19}  {'action':<10}  {'kind':<9}  key"
    if not context.out.is_json:
        context.out.line(context.out.style(header, "dim"))
    for change in _changes(context):
        at = moment(change.at)
        if context.out.is_json:
            context.out.json_line(
                {"commit": change.commit, "at": at, "action": change.action, "kind": change.kind, "key": change.key}
                | {"revision": change.revision, "actor": change.actor}
            )
        else:
            place = context.out.clean(change.key)
            context.out.line(
                f"{change.commit:>7}  {context.out.time(at):<19}  {change.action:<10}  {change.kind:<9}  {place}"
            )
    return 0


class _Stop(Exception):
    """Ends an export early."""


def _history_floor(book: Book, namespace: Namespace) -> int:
    """Return the commit after which all history is kept; it is in the first lines of an export."""
    lines: list[bytes] = []

    def take(piece: bytes) -> None:
        lines.extend(piece.splitlines())
        if len(lines) > 1:
            raise _Stop

    if namespace not in book.namespaces(*namespace, limit=1, emptied=True):
        return 0
    try:
        book.export(take, namespaces=[namespace])
    except _Stop:
        return int(json.loads(lines[1])["history_floor"])
    return 0


def _changes(context: Context) -> Iterator[Change]:
    """Yield the changes, page by page; without --after from the oldest one that is kept."""
    with context.book() as book:
        namespace = context.labels(book)
        after = context.arguments.after
        if after is None:
            after = _history_floor(book, namespace)
            if after:
                context.out.note(f"older changes were purged; these begin after commit {after}")
        space = book.space(*namespace)
        if not context.is_shown_in_pager:
            yield from _pages(space, after)
            return
        # The pager starts when everything has been read.
        first, last = after, space.stats().commit
        with context.progress() as progress:
            for change in _pages(space, after):
                progress(change.commit - first, last - first, "commits read")
                yield change


def _pages(space: Space, after: int) -> Iterator[Change]:
    while page := space.changes(after, PAGE):
        yield from page
        after = page[-1].commit
