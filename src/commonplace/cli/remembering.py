"""`add`: a new record, or more text in a file."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import ACTOR, Context
from commonplace.cli.output import counted
from commonplace.cli.values import duration
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.cli.parser import Commands
    from commonplace.space.files import FileInfo
    from commonplace.space.records import Record


def register(commands: Commands) -> None:
    parser = commands.add(
        "add",
        "Remember",
        "Remember a text: as a record, or at the end of a file.",
        add,
        about="A record with the same type, source and text as an old one is that old one: their tags are united.",
        examples="""\
  commonplace add "Ana prefers tea" --tag person:ana --confidence 0.9
  commonplace add --file /notes/today "called the bank"
  git log -1 | commonplace add --type commit --source git
  commonplace add "the door code is 4711" --ttl 2d""",
    )
    parser.add_argument("text", nargs="*", help="the text; - or nothing reads it from standard input")
    parser.add_argument("--file", metavar="PATH", help="append to this file instead of making a record")
    parser.add_argument("--type", metavar="TYPE", help="what kind of record it is (default: note)")
    parser.add_argument("--tag", metavar="TAG", action="append", help="a tag, such as project:x; may be repeated")
    parser.add_argument("--source", metavar="SOURCE", help="where it comes from (default: cli)")
    parser.add_argument("--confidence", metavar="0..1", type=float, help="how sure it is (default: 1)")
    parser.add_argument("--as-json", action="store_true", help="the text is JSON: keep it as the record's content")
    parser.add_argument("--ttl", metavar="TIME", type=duration, help="forget it after 90s, 30m, 12h, 7d or 2w")


def add(context: Context) -> int:
    arguments = context.arguments
    if arguments.file is not None:
        _refuse_record_options(arguments)
        return _add_to_file(context, _text(arguments.text))
    text = _text(arguments.text)

    def create(book: Book) -> Record:
        return book.space(*context.labels(book), actor=ACTOR).records.create(
            type=arguments.type or "note",
            content=_content(text) if arguments.as_json else {"text": text.rstrip("\n")},
            source=arguments.source or "cli",
            confidence=1.0 if arguments.confidence is None else arguments.confidence,
            tags=arguments.tag or (),
            ttl_seconds=arguments.ttl,
        )

    context.rehearse(create)
    with context.book(create=True) as book:
        record = create(book)
    if context.out.is_json:
        context.out.document(record_fields(record))
    else:
        done = "added" if record.created_at == record.updated_at else "merged into"
        context.out.line(f"{done} record {context.out.paint(record.id, 'bold')}")
    return 0


def _add_to_file(context: Context, text: str) -> int:
    path, ttl = context.arguments.file, context.arguments.ttl

    def write(book: Book) -> FileInfo:
        files = book.space(*context.labels(book), actor=ACTOR).files
        if ttl is None:
            return files.append(path, text)
        # An append keeps the file's own expiry, so only a new file can be given one.
        return files.write(path, text, overwrite=False, ttl_seconds=ttl)

    context.rehearse(write)
    with context.book(create=True) as book:
        info = write(book)
    if context.out.is_json:
        context.out.document(
            {"path": info.path, "size": info.size, "lines": info.lines, "revision": info.revision}
            | {"created_at": info.created_at, "updated_at": info.updated_at}
        )
    else:
        path = context.out.paint(info.path, "bold")
        context.out.line(f"appended to {path} (revision {info.revision}, {counted(info.lines, 'line')})")
    return 0


def _refuse_record_options(arguments: Any) -> None:
    given = {
        "--type": arguments.type,
        "--tag": arguments.tag,
        "--source": arguments.source,
        "--confidence": arguments.confidence,
        "--as-json": arguments.as_json or None,
    }
    wrong = [flag for flag, value in given.items() if value is not None]
    if wrong:
        raise InvalidInput(f"{', '.join(wrong)} belongs to a record, and --file names a file; use one or the other")


def _text(words: list[str]) -> str:
    text = " ".join(words) if words and words != ["-"] else _input(words)
    if not text.strip():
        raise InvalidInput("there is nothing to remember: the text is empty")
    return text


def _input(words: list[str]) -> str:
    if not words and sys.stdin.isatty():
        raise InvalidInput('give a text to remember, or pipe one: `commonplace add "Ana prefers tea"`')
    try:
        return sys.stdin.buffer.read().decode() if hasattr(sys.stdin, "buffer") else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not UTF-8 text (byte {error.start}); convert it first") from error


def _content(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--as-json was given, but the text is not valid JSON: {error}") from error


def record_fields(record: Record) -> dict[str, Any]:
    """A record as the CLI's JSON shows it."""
    return {
        "id": record.id,
        "type": record.type,
        "content": record.content,
        "source": record.source,
        "tags": list(record.tags),
        "confidence": record.confidence,
        "hash": record.hash,
        "revision": record.revision,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "expires_at": record.expires_at,
    }
