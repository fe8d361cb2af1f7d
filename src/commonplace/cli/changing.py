"""`rm`, `mv`, `restore`, `undo` and `purge`: what changes or takes back; all but the last can be undone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import Context
from commonplace.cli.output import counted
from commonplace.cli.values import KIND_AND_KEY, guess, kind_and_key, time
from commonplace.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands

GROUP = "Change and take back"


def register(commands: Commands) -> None:
    rm = commands.add(
        "rm",
        GROUP,
        "Delete a file, directory, record or thread. It can be undone.",
        remove,
        about="It prints the command that brings everything back. To erase for good, use `purge`.",
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
    mv.add_argument("old", help="the present path")
    mv.add_argument("new", help="the new path")

    restore = commands.add(
        "restore",
        GROUP,
        "Make a former revision the present one, as a new revision.",
        restore_revision,
        examples="  commonplace restore /notes/today 3",
    )
    restore.add_argument("names", nargs="+", metavar=KIND_AND_KEY, help="a path or an id, with its kind where needed")
    restore.add_argument("revision", type=int, help="the revision, as `history` lists it")

    undo = commands.add(
        "undo",
        GROUP,
        "Undo a whole commit, such as a deletion; all of it or nothing.",
        undo_commit,
        about="Refused (exit code 4) where something it touched was changed since.",
        examples="  commonplace undo 42",
    )
    undo.add_argument("commit", type=int, help="the commit, as `changes` and `history` list it")

    purge = commands.add(
        "purge",
        GROUP,
        "Erase for good, history included. It can NOT be undone.",
        purge_entries,
        about="Asks first, unless --yes is given.",
        examples="""\
  commonplace purge /notes/secret
  commonplace purge --history-before 30d
  commonplace purge --namespace user/u-123 --all --yes""",
    )
    purge.add_argument("names", nargs="*", metavar=KIND_AND_KEY, help="one entry with all its history")
    purge.add_argument(
        "--history-before", metavar="TIME", type=time, help="only former states that ended before this time"
    )
    purge.add_argument("--all", action="store_true", help="everything in the namespace")
    purge.add_argument("--yes", action="store_true", help="do not ask")


def remove(context: Context) -> int:
    key = context.arguments.key
    with context.space() as space:
        if key.startswith("/"):
            info = space.files.stat(key)
            if info.kind == "directory" and not context.arguments.recursive:
                raise InvalidInput(f"{info.path} is a directory; -r deletes it with everything in it")
            removed = space.files.delete(key)
            what = counted(removed.files, "file")
            if removed.directories:
                what += f" and {counted(removed.directories, 'directory', 'directories')}"
            commit = removed.commit
        else:
            kind, _ = guess(space, key)
            what = f"the {kind} {key}"
            if kind == "thread":
                commit = space.threads.delete(key)
            else:
                commit = space.records.delete(key)
    _tell(context, {"deleted": key}, f"deleted {what}", commit)
    return 0


def move(context: Context) -> int:
    old, new = context.arguments.old, context.arguments.new
    with context.space() as space:
        moved = space.files.move(old, new)
    _tell(context, {"moved": moved.entries, "from": old, "to": new}, f"moved {old} to {new}", moved.commit)
    return 0


def restore_revision(context: Context) -> int:
    kind, key = kind_and_key(context.arguments.names)
    revision = context.arguments.revision
    with context.space() as space:
        kind, _ = guess(space, key, kind)
        commit = space.restore(kind, key, revision)
    _tell(context, {"restored": key, "revision": revision}, f"restored {key} as it was in revision {revision}", commit)
    return 0


def undo_commit(context: Context) -> int:
    undone = context.arguments.commit
    with context.space() as space:
        commit = space.undo(undone)
    _tell(context, {"undone": undone}, f"took back commit {undone}", commit)
    return 0


def _tell(context: Context, fields: dict[str, Any], sentence: str, commit: int | None) -> None:
    if context.out.is_json:
        context.out.document({**fields, "commit": commit})
        return
    undo = "" if commit is None else f"; to undo: {context.out.paint(context.command('undo', str(commit)), 'cyan')}"
    context.out.line(context.out.clean(sentence) + undo)


# purge


def purge_entries(context: Context) -> int:
    arguments = context.arguments
    chosen = [bool(arguments.names), arguments.history_before is not None, arguments.all]
    if sum(chosen) != 1:
        raise InvalidInput("name what to erase: one KEY, --history-before TIME, or --all for the whole namespace")
    with context.space() as space:
        place = "/".join(space.namespace)
        kind: str | None = None
        key: str | None = None
        if arguments.names:
            kind, key = kind_and_key(arguments.names)
            kind, revisions = guess(space, key, kind)
            what = f"the {kind} {key} with its {counted(len(revisions), 'line')} of history"
        elif arguments.all:
            stats = space.stats()
            what = (
                f"ALL of {place}: {counted(sum(stats.entries.values()), 'entry', 'entries')} "
                f"and {counted(stats.former_states, 'former state')}"
            )
        else:
            what = f"all history of {place} that ended before {arguments.history_before.isoformat()}"
        _confirm(context, what)
        erased = space.purge(kind, key, history_before=arguments.history_before)
    if key is not None and not erased:
        raise NotFound(f"there is nothing of {kind} {key} to erase")
    if context.out.is_json:
        context.out.document({"erased_states": erased})
    else:
        context.out.line(f"erased {counted(erased, 'state')} for good")
    return 0


def _confirm(context: Context, what: str) -> None:
    if context.arguments.yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"this would erase {what} for good; add --yes to do it without being asked")
    context.out.stderr.write(f"This erases {what}, for good. Type yes to go on: ")
    context.out.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise InvalidInput("nothing was erased")
