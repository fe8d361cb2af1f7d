"""Commands that write: `add`, `confirm`, `rm`, `mv`, `restore`, `undo` and `purge`. All but `purge` can be undone."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from commonplace.cli.arguments import KIND_AND_KEY, Commands, duration, find_entry, kind_and_key, time
from commonplace.cli.invocation import ACTOR, Context
from commonplace.cli.output import pluralize, record_fields
from commonplace.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.space.files import FileInfo
    from commonplace.space.records import Record

GROUP = "Change and undo"


def register(commands: Commands) -> None:
    _declare_add(commands)
    _declare_confirm(commands)
    _declare_changes(commands)


# add


def _declare_add(commands: Commands) -> None:
    parser = commands.add(
        "add",
        "Write",
        "Store a text as a record, or append it to a file.",
        add,
        about="If a record with the same type, source and text exists, it is kept and gets the new tags as well.",
        examples="""\
  commonplace add "Ana prefers tea" --tag person:ana --confidence 0.9
  commonplace add --file /notes/today "called the bank"
  git log -1 | commonplace add --type commit --source git
  commonplace add "the door code is 4711" --ttl 2d""",
    )
    parser.add_argument("text", nargs="*", help="the text; - or nothing reads it from standard input")
    parser.add_argument("--file", metavar="PATH", help="append to this file instead of creating a record")
    parser.add_argument("--type", metavar="TYPE", help="the type of the record (default: note)")
    parser.add_argument("--tag", metavar="TAG", action="append", help="a tag, such as project:x; may be repeated")
    parser.add_argument("--source", metavar="SOURCE", help="where it comes from (default: cli)")
    parser.add_argument("--confidence", metavar="0..1", type=float, help="the confidence (default: 1)")
    parser.add_argument("--importance", metavar="0..1", type=float, help="how much it matters; you can filter by it")
    parser.add_argument("--as-json", action="store_true", help="the text is JSON; store it as the record's content")
    parser.add_argument("--ttl", metavar="TIME", type=duration, help="expire it after 90s, 30m, 12h, 7d or 2w")
    parser.add_argument(
        "--confirm", action="store_true", help="with --type instruction or preference: recall it for every question"
    )


def add(context: Context) -> int:
    arguments = context.arguments
    if arguments.file is not None:
        _refuse_record_options(arguments)
        return _add_to_file(context, _text(arguments.text))
    text = _text(arguments.text)

    def create(book: Book) -> Record:
        records = book.space(*context.labels(book), actor=ACTOR).records
        saved = records.create(
            type=arguments.type or "note",
            content=_content(text) if arguments.as_json else {"text": text.rstrip("\n")},
            source=arguments.source or "cli",
            confidence=1.0 if arguments.confidence is None else arguments.confidence,
            tags=arguments.tag or (),
            ttl_seconds=arguments.ttl,
            importance=arguments.importance,
        )
        return records.confirm(saved.id) if arguments.confirm else saved

    if arguments.confirm and arguments.type is None:
        raise InvalidInput("--confirm is for standing records; add --type instruction or --type preference")
    context.try_in_memory(create)
    with context.book(create=True) as book:
        record = create(book)
    if context.out.is_json:
        context.out.document(record_fields(record))
    else:
        done = "added" if record.created_at == record.updated_at else "merged into"
        context.out.line(f"{done} record {context.out.style(record.id, 'bold')}")
        _suggest(context, record)
    return 0


def _suggest(context: Context, record: Record) -> None:
    """Say how to have a record recalled for every question, if it reads like an instruction or a preference."""
    from commonplace.space.records import STANDING_TYPES

    if record.suggested_type is not None:
        context.out.note(
            f"this reads like a standing {record.suggested_type}; to have it recalled for every question, add it with "
            f"--type {record.suggested_type} --confirm"
        )
    elif record.type in STANDING_TYPES and not context.arguments.confirm:
        context.out.note(f"it is recalled for every question once you run `{context.command('confirm', record.id)}`")


def _add_to_file(context: Context, text: str) -> int:
    path, ttl = context.arguments.file, context.arguments.ttl

    def write(book: Book) -> FileInfo:
        files = book.space(*context.labels(book), actor=ACTOR).files
        if ttl is None:
            return files.append(path, text)
        # An append keeps the expiry of the file, so only a new file can get one.
        return files.write(path, text, overwrite=False, ttl_seconds=ttl)

    context.try_in_memory(write)
    with context.book(create=True) as book:
        info = write(book)
    if context.out.is_json:
        context.out.document(
            {"path": info.path, "size": info.size, "lines": info.lines, "revision": info.revision}
            | {"created_at": info.created_at, "updated_at": info.updated_at}
        )
    else:
        path = context.out.style(info.path, "bold")
        context.out.line(f"appended to {path} (revision {info.revision}, {pluralize(info.lines, 'line')})")
    return 0


def _refuse_record_options(arguments: Any) -> None:
    given = {
        "--type": arguments.type,
        "--tag": arguments.tag,
        "--source": arguments.source,
        "--confidence": arguments.confidence,
        "--importance": arguments.importance,
        "--as-json": arguments.as_json or None,
        "--confirm": arguments.confirm or None,
    }
    wrong = [flag for flag, value in given.items() if value is not None]
    if wrong:
        raise InvalidInput(f"{', '.join(wrong)} is for records, but --file names a file; use one or the other")


def _text(words: list[str]) -> str:
    text = " ".join(words) if words and words != ["-"] else _input(words)
    if not text.strip():
        raise InvalidInput("the text is empty; give a text to store")
    return text


def _input(words: list[str]) -> str:
    if not words and sys.stdin.isatty():
        raise InvalidInput('give a text to store, or pipe one: `commonplace add "Ana prefers tea"`')
    try:
        return sys.stdin.buffer.read().decode() if hasattr(sys.stdin, "buffer") else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not UTF-8 text (byte {error.start}); convert it first") from error


def _content(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--as-json was given, but the text is not valid JSON: {error}") from error


# confirm


def _declare_confirm(commands: Commands) -> None:
    parser = commands.add(
        "confirm",
        "Write",
        "Confirm an instruction or a preference of yours.",
        confirm,
        about="A confirmed record is part of every recall. Without an id, lists what is confirmed. Changing the type, "
        "source or content of the record ends the confirmation. No model and no import can confirm a record.",
        examples="""\
  commonplace confirm
  commonplace confirm 7b1f0c9e-52f4-4e0a-9f0e-6a8f8f6f8a11
  commonplace confirm 7b1f0c9e-52f4-4e0a-9f0e-6a8f8f6f8a11 --withdraw""",
    )
    parser.add_argument("id", nargs="?", help="the id of a record of type instruction or preference")
    parser.add_argument("--withdraw", action="store_true", help="take the confirmation back; the record stays")


def confirm(context: Context) -> int:
    from commonplace.space.records import line_of

    id, out = context.arguments.id, context.out
    if id is None and context.arguments.withdraw:
        raise InvalidInput("name the record whose confirmation you take back; `confirm` alone lists them")
    with context.book() as book:
        space = context.space_of(book)
        if id is not None:
            id = context.whole_id(book, id)
        if context.arguments.withdraw:
            if not space.records.withdraw(id):
                raise NotFound(f"the record {id} is not confirmed; `confirm` alone lists what is")
        elif id is not None:
            confirmed = space.records.confirm(id)
        standing = space.records.standing()
    if out.is_json:
        out.document([record_fields(record) for record in standing])
    elif id is None:
        rows = [[record.id, record.type, out.clean(line_of(record))] for record in standing]
        if rows:
            out.table(("id", "type", "text"), rows)
        else:
            out.note("no instruction or preference is confirmed")
    elif context.arguments.withdraw:
        out.line(f"withdrew the confirmation of record {id}")
    else:  # what a model wrote may have changed since you saw it
        out.line(f"confirmed record {id}: {out.clean(line_of(confirmed))}")
    return 0


# rm, mv, restore and undo


def _declare_changes(commands: Commands) -> None:
    rm = commands.add(
        "rm",
        GROUP,
        "Delete a file, directory, record or thread. It can be undone.",
        remove,
        about="It prints the command that restores everything. To erase permanently, use `purge`.",
        examples="""\
  commonplace rm /notes/today
  commonplace rm -r /notes
  commonplace rm 7b1f0c9e-52f4-4e0a-9f0e-6a8f8f6f8a11""",
    )
    rm.add_argument("key", help="a path, a record's id or a thread's id")
    rm.add_argument("-r", "--recursive", action="store_true", help="a directory with everything in it")

    mv = commands.add(
        "mv",
        GROUP,
        "Move a file or a directory, with its history, to another path.",
        move,
        examples="  commonplace mv /notes/today /archive/2026-01-31",
    )
    mv.add_argument("old", help="the current path")
    mv.add_argument("new", help="the new path")

    restore = commands.add(
        "restore",
        GROUP,
        "Restore a former revision, as a new revision.",
        restore_revision,
        examples="  commonplace restore /notes/today 3",
    )
    restore.add_argument("names", nargs="+", metavar=KIND_AND_KEY, help="a path or an id, with its kind if needed")
    restore.add_argument("revision", type=int, help="the revision, as `history` lists it")

    undo = commands.add(
        "undo",
        GROUP,
        "Undo a whole commit, such as a deletion.",
        undo_commit,
        about="Undoes all of it or nothing. Refused (exit code 4) if an entry of the commit was changed since.",
        examples="  commonplace undo 42",
    )
    undo.add_argument("commit", type=int, help="the commit, as `changes` and `history` list it")

    purge = commands.add(
        "purge",
        GROUP,
        "Erase permanently, history included. It can NOT be undone.",
        purge_entries,
        about="Asks for confirmation, unless --yes is given.",
        examples="""\
  commonplace purge /notes/secret
  commonplace purge --history-before 30d
  commonplace purge --namespace user/u-123 --all --yes""",
    )
    purge.add_argument("names", nargs="*", metavar=KIND_AND_KEY, help="one entry with all its history")
    purge.add_argument(
        "--history-before", metavar="TIME", type=time, help="only former revisions that ended before this time"
    )
    purge.add_argument("--all", action="store_true", help="everything in the namespace")
    purge.add_argument("--yes", action="store_true", help="do not ask")


def remove(context: Context) -> int:
    key = context.arguments.key
    with context.book() as book:
        space, key = context.space_of(book), context.whole_id(book, key)
        if key.startswith("/"):
            info = space.files.stat(key)
            if info.kind == "directory" and not context.arguments.recursive:
                raise InvalidInput(f"{info.path} is a directory; -r deletes it with everything in it")
            with context.clock("deleting"):
                removed = space.files.delete(key)
            what = pluralize(removed.files, "file")
            if removed.directories:
                what += f" and {pluralize(removed.directories, 'directory', 'directories')}"
            commit = removed.commit
        else:
            kind, _ = find_entry(space, key)
            what = f"the {kind} {key}"
            with context.clock("deleting"):
                commit = space.threads.delete(key) if kind == "thread" else space.records.delete(key)
    _report(context, {"deleted": key}, f"deleted {what}", commit)
    return 0


def move(context: Context) -> int:
    old, new = context.arguments.old, context.arguments.new
    with context.space() as space, context.clock("moving"):
        moved = space.files.move(old, new)
    _report(context, {"moved": moved.entries, "from": old, "to": new}, f"moved {old} to {new}", moved.commit)
    return 0


def restore_revision(context: Context) -> int:
    kind, key = kind_and_key(context.arguments.names)
    revision = context.arguments.revision
    with context.book() as book:
        space, key = context.space_of(book), context.whole_id(book, key)
        kind, _ = find_entry(space, key, kind)
        commit = space.restore(kind, key, revision)
    _report(
        context, {"restored": key, "revision": revision}, f"restored {key} as it was in revision {revision}", commit
    )
    return 0


def undo_commit(context: Context) -> int:
    undone = context.arguments.commit
    with context.space() as space, context.clock("undoing"):
        commit = space.undo(undone)
    _report(context, {"undone": undone}, f"undid commit {undone}", commit)
    return 0


def _report(context: Context, fields: dict[str, Any], sentence: str, commit: int | None) -> None:
    if context.out.is_json:
        context.out.document({**fields, "commit": commit})
        return
    undo = "" if commit is None else f"; to undo: {context.out.style(context.command('undo', str(commit)), 'cyan')}"
    context.out.line(context.out.clean(sentence) + undo)


# purge


def purge_entries(context: Context) -> int:
    arguments = context.arguments
    chosen = [bool(arguments.names), arguments.history_before is not None, arguments.all]
    if sum(chosen) != 1:
        raise InvalidInput("say what to erase: one KEY, --history-before TIME, or --all for the whole namespace")
    with context.book() as book:
        space = context.space_of(book)
        place = "/".join(space.namespace)
        kind: str | None = None
        key: str | None = None
        if arguments.names:
            kind, key = kind_and_key(arguments.names)
            if (whole := context.whole_id(book, key)) != key:
                raise InvalidInput(f"a purge cannot be undone, so it needs the whole id: {whole}")
            kind, revisions = find_entry(space, key, kind)
            what = f"the {kind} {key} with its {pluralize(len(revisions), 'revision')}"
        elif arguments.all:
            stats = space.stats()
            what = (
                f"ALL of {place}: {pluralize(sum(stats.entries.values()), 'entry', 'entries')} "
                f"and {pluralize(stats.former_states, 'former state')}"
            )
        else:
            what = f"all history of {place} that ended before {arguments.history_before.isoformat()}"
        _confirm(context, what)
        with context.clock("erasing"):
            erased = space.purge(kind, key, history_before=arguments.history_before)
    if key is not None and not erased:
        raise NotFound(f"there is no {kind} {key} to erase")
    if context.out.is_json:
        context.out.document({"erased_states": erased})
    else:
        context.out.line(f"permanently erased {pluralize(erased, 'state')}")
    return 0


def _confirm(context: Context, what: str) -> None:
    if context.arguments.yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"this would erase {what} permanently; add --yes to confirm")
    context.out.stderr.write(f"This erases {what} permanently. Type yes to continue:  ")
    context.out.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise InvalidInput("nothing was erased")
