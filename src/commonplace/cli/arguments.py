"""What a command line consists of: commands, the options that all of them have, and the types of values."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from textwrap import fill
from typing import TYPE_CHECKING, Any, NoReturn

from commonplace.cli.invocation import Context
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.settings import MESSAGE_BYTES, ORIGIN_FORM, WEB_ADDRESS_FORM, is_origin, is_web_address

if TYPE_CHECKING:
    from commonplace.entry import Revision
    from commonplace.space.space import Space

GROUPS = ("Write", "Find and read", "Change and undo", "Transfer and back up", "Maintain", "Serve", "Help")

KIND_AND_KEY = "[KIND] KEY"
"""How help shows an entry's key with an optional kind before it."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST_SECONDS = 1e11  # about 3,000 years, so that the end is still a valid date
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")

Handler = Callable[[Context], int]


class Parser(argparse.ArgumentParser):
    """Argparse with our error format: one line with the error and one that points to the help."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"argument COMMAND: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if unknown is not None:
            message = unknown_command(unknown[1], re.findall(r"[a-z-]+", unknown[2]))
        sys.stderr.write(f"commonplace: {message}\nTry `{self.prog} --help`.\n")
        sys.exit(2)


class CommandParser(Parser):
    """Accepts options between the arguments too: `keys create --db book.db ada`."""

    _is_mixing = False

    def parse_known_args(self, args: Any, namespace: Any = None) -> Any:  # type: ignore[override]
        if self._is_mixing or "--" in args:  # argparse loses what follows `--` between arguments
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False


def unknown_command(typed: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(typed, known, 1)
    return f"there is no command {typed!r}" + (f"; did you mean {near[0]}?" if near else "")


@dataclass(frozen=True)
class Command:
    """A command as the help and the reference show it."""

    name: str
    group: str
    summary: str
    examples: str
    parser: argparse.ArgumentParser


@dataclass
class Commands:
    """Where the command modules register their commands."""

    subparsers: argparse._SubParsersAction[Parser]
    all: list[Command] = field(default_factory=list)

    def add(self, name: str, group: str, summary: str, run: Handler, *, about: str = "", examples: str) -> Parser:
        """Add a command; `about` follows the summary in the command's help."""
        parser = self.subparsers.add_parser(
            name,
            description="\n\n".join(filter(None, (summary, about))),
            epilog=f"examples:\n{examples}",
            formatter_class=HelpFormatter,
            add_help=False,
            allow_abbrev=False,
        )
        parser.set_defaults(run=run)
        add_everywhere(parser, is_root=False)
        self.all.append(Command(name, group, summary, examples, parser))
        return parser


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal; paragraphs with indented lines, such as examples, are not wrapped."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(each if "\n  " in each else fill(each, width) for each in paragraphs)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if action.metavar != KIND_AND_KEY:
            return super()._format_args(action, default_metavar)
        return KIND_AND_KEY if action.nargs == "+" else f"[{KIND_AND_KEY}]"


def add_everywhere(parser: argparse.ArgumentParser, *, is_root: bool) -> None:
    """Add the options that may come before or after the command. If absent after it, the value before it is kept."""
    group = parser.add_argument_group("options of every command")
    missing = None if is_root else argparse.SUPPRESS
    switched_off = False if is_root else argparse.SUPPRESS
    group.add_argument(
        "--db",
        metavar="URL",
        default=missing,
        help="the book: a file, :memory:, postgresql://… or mongodb://… (default: $DATABASE_URL, or memory.db in your "
        "data folder)",
    )
    group.add_argument(
        "--remote",
        metavar="URL",
        default=missing,
        help="a service to use instead of a book, with $COMMONPLACE_KEY (default: $COMMONPLACE_REMOTE)",
    )
    group.add_argument(
        "--namespace",
        metavar="NAME",
        type=namespace,
        default=missing,
        help="whose memory, such as user/u-123 (default: $COMMONPLACE_NAMESPACE, then user/default)",
    )
    group.add_argument("--json", action="store_true", default=switched_off, help="print JSON, for programs")
    group.add_argument(
        "--no-color", action="store_true", default=switched_off, help="no colours, also with $NO_COLOR set"
    )
    group.add_argument("--no-pager", action="store_true", default=switched_off, help="print long lists without $PAGER")
    group.add_argument("-h", "--help", action="help", help="show this help and exit")


# Values


def duration(text: str) -> float:
    """Read seconds, or a number with s, m, h, d or w: `90`, `30m`, `7d`."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 30m, 12h, 7d or 2w")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds > _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is too long; write a shorter one, such as 90d")
    return seconds


def time(text: str) -> datetime:
    """Read ISO 8601, by default in the local time zone; or how long ago, as a duration with a unit: `2h`."""
    match = _DURATION.fullmatch(text.strip().lower())
    try:
        if match is not None and match[2]:
            return datetime.now(UTC) - timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 2026-01-31, 2026-01-31T12:00, 2026-01-31T12:00:00Z, or 2h for two hours ago"
        ) from error


def namespace(text: str) -> str:
    from commonplace.checks import parse_namespace

    try:
        parse_namespace(text)
    except CommonplaceError as error:
        raise argparse.ArgumentTypeError(f"{error}; write it like user/u-123") from error
    return text


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def message_bytes(text: str) -> int:
    least, most = MESSAGE_BYTES
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
    return int(text)


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number from 0 to 65535")
    return int(text)


def web_address(text: str) -> str:
    if not is_web_address(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a {WEB_ADDRESS_FORM}")
    return text


def origin(text: str) -> str:
    if not is_origin(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an {ORIGIN_FORM}")
    return text


def find_entry(space: Space, key: str, kind: str | None = None) -> tuple[str, list[Revision]]:
    """Return the kind and the history of the entry that a key names: a path is a file, anything else an id.

    Of a record and a thread with the same id, the live one is meant.
    """
    if kind is not None:
        kinds: tuple[str, ...] = (kind,)
    else:
        kinds = ("file", "directory") if key.startswith("/") else ("record", "thread")
    found = [(candidate, revisions) for candidate in kinds if (revisions := space.history(candidate, key))]
    if not found:
        ending = (
            ", and there never was"
            if key.startswith("/")
            else "; a deleted one needs its whole id, which `changes` lists"
        )
        raise NotFound(f"there is no {' or '.join(kinds)} {key} in {'/'.join(space.namespace)}{ending}")
    # A path means the file first: `purge` must not erase a live directory instead of a deleted file.
    if not key.startswith("/"):
        found.sort(key=lambda one: one[1][-1].action in ("deleted", "expired"))
    return found[0]


def kind_and_key(names: list[str]) -> tuple[str | None, str]:
    """Read `KEY` or `KIND KEY`."""
    from commonplace.space.names import KINDS

    if len(names) == 1:
        return None, names[0]
    if len(names) != 2 or names[0] not in KINDS:
        raise InvalidInput(f"give a key, or a kind and a key; a kind is one of {', '.join(KINDS)}")
    return names[0], names[1]
