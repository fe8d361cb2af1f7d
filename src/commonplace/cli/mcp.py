"""`mcp`: the memory for programs that speak the Model Context Protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from commonplace.cli.context import Context

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands

# Written out: the parser must not load the server for other commands. A test compares them with the server's.
PROFILES = ("records", "files", "claude", "facts", "conversations", "all")
CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode")


def register(commands: Commands) -> None:
    parser = commands.add(
        "mcp",
        "Serve",
        "Serve the memory to an MCP client on standard input and output.",
        run,
        about=(
            "A client such as Claude Code starts this by itself; --print-config shows what to paste into its settings. "
            "Needs `pip install 'commonplace[mcp]'`. Logs are JSON lines on standard error."
        ),
        examples="""\
  commonplace mcp --print-config claude-code
  commonplace mcp --namespace user/u-123 --profile all""",
    )
    parser.add_argument(
        "--profile", choices=PROFILES, default="records", help="which tools the client is shown (default: records)"
    )
    parser.add_argument(
        "--wrap-results", action="store_true", help="mark what is found as data, not instructions, for the model"
    )
    parser.add_argument(
        "--print-config", choices=CLIENTS, default=None, help="print the JSON for this client's settings, and exit"
    )


def run(context: Context) -> int:
    if context.arguments.print_config is not None:
        return print_config(context)
    from commonplace.server.mcp import run_stdio

    settings = context.settings
    run_stdio(
        replace(settings, wrap_results=settings.wrap_results or context.arguments.wrap_results),
        context.arguments.profile,
        protocol_version=context.settings.mcp_protocol_version,
        debug_file=context.settings.mcp_debug_log,
    )
    return 0


def print_config(context: Context) -> int:
    from commonplace.server.mcp.client_config import client_config

    given = context.arguments
    words: list[str] = []
    if given.db is not None:
        file = context.settings.book_file
        words += ["--db", given.db if file is None else str(file)]
    if given.namespace is not None:
        words += ["--namespace", given.namespace]
    if given.profile != "records":
        words += ["--profile", given.profile]
    if given.wrap_results:
        words += ["--wrap-results"]
    context.out.line(client_config(given.print_config, words))
    return 0
