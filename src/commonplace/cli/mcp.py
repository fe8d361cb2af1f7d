"""`mcp`: the memory for programs that speak the Model Context Protocol."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from commonplace.cli.context import Context
from commonplace.settings import hide_password

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands

# Written out: the parser must not load the server for other commands. A test compares them with the server's.
PROFILES = ("records", "files", "claude", "facts", "conversations", "all")
WORDINGS = ("seed", "anthropic")
CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode")


def register(commands: Commands) -> None:
    parser = commands.add(
        "mcp",
        "Serve",
        "Serve the memory to an MCP client over standard input/output.",
        run,
        about=(
            "A client such as Claude Code starts this by itself; --print-config shows what to paste into its settings. "
            "Needs `pip install 'commonplace-memory[mcp]'`. Logs are JSON lines on standard error."
        ),
        examples="""\
  commonplace mcp --print-config claude-code
  commonplace mcp --namespace user/u-123 --profile all""",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        choices=PROFILES,
        default="records",
        help=f"which tools the client gets: {', '.join(PROFILES)} (default: records)",
    )
    parser.add_argument(
        "--wording",
        metavar="NAME",
        choices=WORDINGS,
        default="seed",
        help="how Claude's memory tool answers: seed, or anthropic as the Anthropic SDK does (default: seed)",
    )
    parser.add_argument(
        "--per-thread",
        action="store_true",
        help="files of its own for each thread; the client names it in _meta.threadId of a call",
    )
    parser.add_argument(
        "--wrap-results", action="store_true", help="mark what is found as data, not instructions, for the model"
    )
    parser.add_argument(
        "--print-config",
        metavar="CLIENT",
        choices=CLIENTS,
        default=None,
        help=f"print the JSON for this client's settings, and exit: {', '.join(CLIENTS)}",
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
        wording=context.arguments.wording,
        is_per_thread=context.arguments.per_thread,
    )
    return 0


def print_config(context: Context) -> int:
    """Print what this command would work on: a client with windows does not have the variables of this shell."""
    from commonplace.server.mcp.client_config import NAME, client_config

    given, settings = context.arguments, context.settings
    words, variables = _place(context)
    if settings.namespace is not None:
        words += ["--namespace", settings.namespace]
    if given.profile != "records":
        words += ["--profile", given.profile]
    if given.wording != "seed":
        words += ["--wording", given.wording]
    if given.per_thread:
        words += ["--per-thread"]
    if given.wrap_results or settings.wrap_results:
        words += ["--wrap-results"]
    config = json.loads(client_config(given.print_config, words))
    if variables:
        (servers,) = config.values()
        servers[NAME]["env"] = variables
    context.out.document(config)
    if any("YOUR_" in value for value in variables.values()):
        context.out.note("no secret is printed; put yours in place of what begins with YOUR_")
    return 0


def _place(context: Context) -> tuple[list[str], dict[str, str]]:
    """The words that name the book or the service, and the variables; a secret is left to fill in."""
    settings = context.settings
    if settings.remote is not None:
        # A service without keys refuses one: where none is set, none is needed.
        variables = {} if settings.remote_key is None else {"COMMONPLACE_KEY": "YOUR_KEY"}
        return ["--remote", settings.remote], variables
    if settings.database_url is None:
        return [], {}
    if settings.book_file is not None:
        return ["--db", str(settings.book_file)], {}
    return [], {"DATABASE_URL": hide_password(settings.database_url)}
