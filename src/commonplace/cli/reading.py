"""`cat`, `history` and `changes`: an entry as it is and as it was, and how it came to be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import Context
from commonplace.cli.output import shown_time
from commonplace.cli.remembering import record_fields
from commonplace.cli.values import KIND_AND_KEY, guess, kind_and_key, time
from commonplace.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.checks import Namespace
    from commonplace.cli.parser import Commands
    from commonplace.entry import Change, Entry
    from commonplace.space.conversation import Thread
    from commonplace.space.records import Record
    from commonplace.space.space import Space
    from commonplace.store import Store

GROUP = "Find and read"
PAGE = 500


def register(commands: Commands) -> None:
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
    earlier.add_argument("--revision", metavar="N", type=int, help="as it was in this revision")
    earlier.add_argument("--as-of", metavar="TIME", type=time, help="as it was at this time")

    history = commands.add(
        "history",
        GROUP,
        "List every revision of an entry, oldest first.",
        print_history,
        about="A name that begins with / is a file's path; any other is a record's or a thread's id.",
        examples="""\
  commonplace history /notes/today
  commonplace history directory /notes""",
    )
    history.add_argument("names", nargs="+", metavar=KIND_AND_KEY, help="a path or an id, with its kind where needed")

    changes = commands.add(
        "changes",
        GROUP,
        "List what was changed in the namespace, oldest first.",
        print_changes,
        about="With --json, one JSON object a line.",
        examples="""\
  commonplace changes | tail
  commonplace changes --after 120 --json""",
    )
    changes.add_argument("--after", metavar="COMMIT", type=int, help="only what came after this commit")


# cat


def print_entry(context: Context) -> int:
    key = context.arguments.key
    with context.book() as book:
        space = book.space(*context.labels(book))
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
    """The record that is meant, or None where the id is no record's."""
    from commonplace.space.records import record_of

    arguments = context.arguments
    if arguments.revision is not None:
        kind, _ = guess(space, arguments.key)
        if kind != "record" and not space.history("record", arguments.key):
            raise InvalidInput("--revision is for files and records; a thread can be read --as-of a time")
        return record_of(space.state("record", arguments.key, arguments.revision))
    try:
        return space.records.get(arguments.key, as_of=arguments.as_of)
    except NotFound:
        return None


def _print_thread(context: Context, book: Book, space: Space) -> None:
    from commonplace.checks import microseconds, moment

    key = context.arguments.key
    as_of = microseconds("--as-of", context.arguments.as_of)
    found = _thread(space, key) if as_of is None else _former_thread(book.store, space.namespace, key, as_of)
    if found is None:
        if any(line.action == "deleted" for line in space.history("record", key)):
            raise NotFound(
                f"record {key} was deleted; `{context.command('history', key)}` lists the revisions that can be read "
                "and restored"
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
        context.out.line(context.out.paint(context.out.clean(thread.title), "bold"))
    for message in messages:
        when = context.out.paint(shown_time(moment(message.created_at)), "dim")
        context.out.line(f"{when}  {message.attributes.get('role')}: {context.out.clean(message.text)}")


def _thread(space: Space, id: str) -> tuple[Thread, list[Entry]] | None:
    """A thread with all its messages as they are stored."""
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


# history and changes


def print_history(context: Context) -> int:
    from commonplace.checks import moment

    kind, key = kind_and_key(context.arguments.names)
    with context.space() as space:
        kind, revisions = guess(space, key, kind)
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
        [str(line.revision), line.action, str(line.commit), shown_time(moment(line.at)), line.actor or ""]
        for line in revisions
    ]
    context.out.table(("revision", "action", "commit", "when", "by"), rows, right=(0, 2))
    return 0


def print_changes(context: Context) -> int:
    from commonplace.checks import moment

    header = f"{'commit':>7}  {'when':<19}  {'action':<10}  {'kind':<9}  key"
    if not context.out.is_json:
        context.out.line(context.out.paint(header, "dim"))
    for change in _changes(context):
        at = moment(change.at)
        if context.out.is_json:
            context.out.json_line(
                {"commit": change.commit, "at": at, "action": change.action, "kind": change.kind, "key": change.key}
                | {"revision": change.revision, "actor": change.actor}
            )
        else:
            place = context.out.clean(change.key)
            context.out.line(f"{change.commit:>7}  {shown_time(at)}  {change.action:<10}  {change.kind:<9}  {place}")
    return 0


class _Enough(Exception):
    """What was wanted of an export has come."""


def _history_floor(book: Book, namespace: Namespace) -> int:
    """The commit after which all history is kept, as the head of an export tells it."""
    lines: list[bytes] = []

    def take(piece: bytes) -> None:
        lines.extend(piece.splitlines())
        if len(lines) > 1:
            raise _Enough

    if namespace not in book.namespaces(*namespace, limit=1):
        return 0
    try:
        book.export(take, namespaces=[namespace])
    except _Enough:
        return int(json.loads(lines[1])["history_floor"])
    return 0


def _changes(context: Context) -> Iterator[Change]:
    """The feed, a page at a time; without --after from the oldest that is kept."""
    with context.book() as book:
        namespace = context.labels(book)
        after = context.arguments.after
        if after is None:
            after = _history_floor(book, namespace)
            if after:
                context.out.note(f"older changes were purged; these begin after commit {after}")
        space = book.space(*namespace)
        while page := space.changes(after, PAGE):
            yield from page
            after = page[-1].commit
