"""The parser of the whole command line: all commands in their groups, and help with examples."""

from __future__ import annotations

import argparse

from commonplace import __version__
from commonplace.cli import (
    maintenance_commands,
    read_commands,
    service_commands,
    setup_commands,
    transfer_commands,
    write_commands,
)
from commonplace.cli.arguments import GROUPS, Command, CommandParser, Commands, HelpFormatter, Parser, add_everywhere

MODULES = (write_commands, read_commands, transfer_commands, maintenance_commands, setup_commands, service_commands)
DESCRIPTION = "Long-term memory for AI agents: add, search, read and undo."
EXAMPLES = """\
  commonplace add "Deploys go out on Tuesdays" --tag project:x
  commonplace search "when do we deploy?"
  echo "call Ana" | commonplace add --file /notes/today
  commonplace history /notes/today"""
_ENDING = "Run `commonplace COMMAND --help` for its options and examples. docs/cli.md lists the exit codes."


def build() -> tuple[Parser, list[Command]]:
    parser = Parser(
        prog="commonplace",
        usage="commonplace [OPTIONS] COMMAND …",
        formatter_class=HelpFormatter,
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
    for module in MODULES:
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
