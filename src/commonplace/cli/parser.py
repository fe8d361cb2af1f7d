"""The command line: its commands in groups, the flags that hold everywhere, and help that shows examples."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any, NoReturn

from commonplace import __version__
from commonplace.cli.context import Context
from commonplace.cli.values import KIND_AND_KEY, namespace

DESCRIPTION = "Long-term memory for AI agents: add, search, read and undo."
EXAMPLES = """\
  commonplace add "Deploys go out on Tuesdays" --tag project:x
  commonplace search "when do we deploy?"
  echo "call Ana" | commonplace add --file /notes/today
  commonplace history /notes/today"""
_ENDING = "Run `commonplace COMMAND --help` for its options and examples. docs/cli.md lists the exit codes."
GROUPS = ("Remember", "Find and read", "Change and take back", "Move and keep", "Care", "Serve")

Handler = Callable[[Context], int]


class Parser(argparse.ArgumentParser):
    """Argparse with our errors: one line that says what is wrong, and one that says where help is."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"argument COMMAND: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if unknown is not None:
            message = _no_such_command(unknown[1], re.findall(r"[a-z-]+", unknown[2]))
        sys.stderr.write(f"commonplace: {message}\nTry `{self.prog} --help`.\n")
        sys.exit(2)


class CommandParser(Parser):
    """Takes options between the arguments, too: `keys create --db book.db ada`."""

    _is_mixing = False

    def parse_known_args(self, args: Any, namespace: Any = None) -> Any:  # type: ignore[override]
        if self._is_mixing or "--" in args:  # argparse loses what comes after it in the midst
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False


def _no_such_command(typed: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(typed, known, 1)
    return f"there is no command {typed!r}" + (f"; did you mean {near[0]}?" if near else "")


@dataclass(frozen=True)
class Command:
    """A command as help and the reference tell of it."""

    name: str
    group: str
    summary: str
    examples: str
    parser: argparse.ArgumentParser


@dataclass
class Commands:
    """Where the command modules register what they offer."""

    subparsers: argparse._SubParsersAction[Parser]
    all: list[Command] = field(default_factory=list)

    def add(self, name: str, group: str, summary: str, run: Handler, *, about: str = "", examples: str) -> Parser:
        """A command; `about` follows its summary in its own help."""
        parser = self.subparsers.add_parser(
            name,
            description="\n\n".join(filter(None, (summary, about))),
            epilog=f"examples:\n{examples}",
            formatter_class=_Help,
            add_help=False,
            allow_abbrev=False,
        )
        parser.set_defaults(run=run)
        add_everywhere(parser, is_root=False)
        self.all.append(Command(name, group, summary, examples, parser))
        return parser


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal; examples and lists, which have indented lines, stay as they are."""

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
    """The flags that stand before or after the command; after it, an absent one must not undo one before."""
    group = parser.add_argument_group("options of every command")
    missing = None if is_root else argparse.SUPPRESS
    switched_off = False if is_root else argparse.SUPPRESS
    group.add_argument(
        "--db",
        metavar="URL",
        default=missing,
        help="the book: a file, :memory: or postgresql://… (default: $DATABASE_URL, or memory.db in your data folder)",
    )
    group.add_argument(
        "--remote",
        metavar="URL",
        default=missing,
        help="a service to work on in place of a book, with $COMMONPLACE_KEY (default: $COMMONPLACE_REMOTE)",
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
    group.add_argument("-h", "--help", action="help", help="show this help and exit")


def build() -> tuple[Parser, list[Command]]:
    from commonplace.cli import (
        care,
        changing,
        checking,
        finding,
        keys,
        listing,
        mcp,
        migrating,
        models,
        moving,
        reading,
        remembering,
        serve,
    )

    parser = Parser(
        prog="commonplace",
        usage="commonplace [OPTIONS] COMMAND …",
        formatter_class=_Help,
        add_help=False,
        allow_abbrev=False,
    )
    add_everywhere(parser, is_root=True)
    parser.add_argument("--version", action="version", version=f"commonplace {__version__}", help="show the version")
    commands = Commands(
        parser.add_subparsers(
            prog="commonplace",
            metavar="COMMAND",
            dest="command",
            required=True,
            help=argparse.SUPPRESS,
            parser_class=CommandParser,
        )
    )
    for module in (
        remembering,
        finding,
        listing,
        reading,
        changing,
        moving,
        migrating,
        care,
        checking,
        models,
        serve,
        keys,
        mcp,
    ):
        module.register(commands)
    parser.description = _overview(commands.all)
    parser.epilog = f"examples:\n{EXAMPLES}\n\n{_ENDING}"
    return parser, commands.all


def build_parser() -> Parser:
    return build()[0]


def _overview(commands: list[Command]) -> str:
    blocks = [DESCRIPTION]
    width = max(len(command.name) for command in commands) + 2
    for group in GROUPS:
        lines = [f"  {command.name:<{width}}{command.summary}" for command in commands if command.group == group]
        blocks.append("\n".join([f"{group}:", *lines]))
    return "\n\n".join(blocks)
