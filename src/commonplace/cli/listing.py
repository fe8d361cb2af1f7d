"""`ls`: files in their directories, records, threads."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import Context
from commonplace.cli.output import shown_bytes, shown_time
from commonplace.cli.remembering import record_fields
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands
    from commonplace.space.conversation import Thread
    from commonplace.space.files import FileInfo
    from commonplace.space.records import Record

SHOWN_CHARACTERS = 60
LIMIT = 100
PAGE = 1_000


def register(commands: Commands) -> None:
    ls = commands.add(
        "ls",
        "Find and read",
        "List files; or records, or threads.",
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
    chosen.add_argument("--records", action="store_true", help="list records, the newest first")
    chosen.add_argument("--threads", action="store_true", help="list threads, the last used first")
    ls.add_argument("--type", metavar="TYPE", help="with --records: only this type")
    ls.add_argument("--tag", metavar="TAG", action="append", default=[], help="with --records: only with this tag")
    ls.add_argument("--limit", metavar="N", type=int, help="at most so many records or threads (default: 100)")


def list_entries(context: Context) -> int:
    arguments = context.arguments
    _refuse_what_does_nothing(arguments)
    if arguments.records or arguments.threads:
        limit = LIMIT if arguments.limit is None else arguments.limit
        if not 1 <= limit <= 10_000:
            raise InvalidInput(f"--limit must be between 1 and 10,000, not {limit}")
        (_list_records if arguments.records else _list_threads)(context, limit)
        return 0
    path = "/" if arguments.path is None else arguments.path
    with context.space() as space:
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
            [str(info.revision), shown_bytes(info.size) if info.kind == "file" else "-", shown_time(info.updated_at)]
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


def _refuse_what_does_nothing(arguments: Any) -> None:
    if arguments.records or arguments.threads:
        if arguments.path is not None or arguments.recursive:
            raise InvalidInput("records and threads are not in a directory; leave out the path and -R")
    elif arguments.limit is not None:
        raise InvalidInput("--limit is for records and threads, and files are listed whole; add --records or --threads")
    if not arguments.records and (arguments.type is not None or arguments.tag):
        raise InvalidInput("only records have a type and tags; add --records, or leave out --type and --tag")


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
    with context.space() as space:
        page = space.records.list(type=arguments.type, tags=arguments.tag, limit=limit)
    if context.out.is_json:
        context.out.document([record_fields(record) for record in page.records])
        return
    rows = [
        [record.id, record.type, " ".join(record.tags), *_shown_at(context, record.updated_at), _content(record)]
        for record in page.records
    ]
    if rows:
        context.out.table(("id", "type", "tags", *(("updated",) if arguments.long else ()), "content"), rows)
    if page.cursor is not None:
        context.out.note(f"there are more than {limit:,}; --limit shows more of them")


def _shown_at(context: Context, at: datetime) -> list[str]:
    return [shown_time(at)] if context.arguments.long else []


def _content(record: Record) -> str:
    content = record.content
    if isinstance(content, dict) and set(content) == {"text"}:
        content = content["text"]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _list_threads(context: Context, limit: int) -> None:
    threads: list[Thread] = []
    cursor: str | None = None
    with context.space() as space:
        while len(threads) < limit:
            page = space.threads.list(limit=min(limit - len(threads), PAGE), cursor=cursor)
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
    rows = [[thread.id, shown_time(thread.updated_at), thread.title or ""] for thread in threads]
    if rows:
        context.out.table(("id", "updated", "title"), rows)
    if cursor is not None:
        context.out.note(f"there are more than {limit:,}; --limit shows more of them")
