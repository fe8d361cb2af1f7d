"""Commands for other programs: `serve` over HTTP, `embed` beside it, the `keys` of the service, and `mcp` over standard
input/output.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from threading import Event
from typing import TYPE_CHECKING, Any

from commonplace.cli.arguments import Commands, count, duration, message_bytes, origin, port, web_address
from commonplace.cli.invocation import Context
from commonplace.errors import AlreadyExists, ConfigurationError, InvalidInput, install_command
from commonplace.server.mcp.clients import CLIENTS, YOUR_KEY, HttpServer, StdioServer, claude_code_command, program
from commonplace.settings import hide_password, open_from_settings

if TYPE_CHECKING:
    from commonplace.server.http.api_keys import Key
    from commonplace.server.http.service import Service
    from commonplace.space.rules import Action

WORKERS_LOOK_SECONDS = 0.2
_PACKAGES = ("fastapi", "uvicorn", "mcp", "prometheus_client", "jwt")

# Repeated here, so that the parser loads neither the library nor the server. Tests compare them with the originals.
ACTIONS: tuple[Action, ...] = ("read", "write", "delete", "admin")
PROFILES = ("records", "files", "claude", "facts", "conversations", "all")
WORDINGS = ("seed", "anthropic")

_SERVE_FLAGS = (
    "host",
    "port",
    "public_url",
    "cors_origins",
    "rate",
    "max_entries",
    "max_bytes",
    "max_message_bytes",
    "metrics_open",
    "wrap_results",
    "oauth",
    "jwt_jwks",
    "jwt_audience",
    "jwt_issuer",
    "jwt_namespace",
    "jwt_actions_claim",
)
"""Each overrides the setting of the same name."""

_KEY_FLAGS = {
    "create": ("claim", "below", "everything", "actions", "expires", "rate", "max_entries", "max_bytes"),
    "revoke": ("forget",),
}
"""The flags of only one action."""


def register(commands: Commands) -> None:
    _declare_serve(commands)
    _declare_embed(commands)
    _declare_keys(commands)
    _declare_mcp(commands)


# serve


def _declare_serve(commands: Commands) -> None:
    parser = commands.add(
        "serve",
        "Serve",
        "Serve the book over HTTP: REST, MCP and Mastra's routes.",
        run_serve,
        about=(
            "Without keys it only answers requests from this computer. Creating the first key with `commonplace keys "
            "create` turns authentication on. Needs `pip install 'commonplace-memory[server]'`. Logs are JSON lines "
            "on standard error. On SIGTERM and Ctrl-C running requests are finished first."
        ),
        examples="""\
  commonplace serve
  commonplace serve --host 0.0.0.0 --port 8080 --rate 600/m
  commonplace serve --oauth --public-url https://memory.example
  commonplace serve --jwt-jwks https://id.example/jwks.json --jwt-issuer https://id.example --jwt-audience memory""",
    )
    parser.add_argument("--host", metavar="H", help="where to listen (default: $COMMONPLACE_HOST, then 127.0.0.1)")
    parser.add_argument("--port", metavar="P", type=port, help="the port (default: $COMMONPLACE_PORT, then 8765)")
    parser.add_argument(
        "--public-url",
        metavar="URL",
        type=web_address,
        help="the public address, if a proxy is in front of the service",
    )
    parser.add_argument(
        "--cors-origin",
        dest="cors_origins",
        metavar="ORIGIN",
        type=origin,
        action="append",
        help="an origin that may call, such as https://app.example; may be repeated",
    )
    parser.add_argument("--rate", metavar="N/UNIT", help="default rate limit of a key, such as 100/m")
    parser.add_argument(
        "--max-entries", metavar="N", type=count, help="default limit of entries in all namespaces of a key"
    )
    parser.add_argument("--max-bytes", metavar="N", type=count, help="limit of bytes there, history included")
    parser.add_argument(
        "--max-message-bytes", metavar="N", type=message_bytes, help="limit of bytes in a message (default: 16000000)"
    )
    parser.add_argument("--metrics-open", action="store_const", const=True, help="serve /metrics without a key")
    parser.add_argument(
        "--wrap-results",
        action="store_const",
        const=True,
        help="mark search results for MCP clients as data, not instructions",
    )
    parser.add_argument(
        "--oauth",
        action="store_const",
        const=True,
        help="let MCP clients such as claude.ai ask for access; a person signs in with a key and approves",
    )
    parser.add_argument("--jwt-jwks", metavar="FILE|URL", help="accept JWTs that are signed with one of these keys")
    parser.add_argument("--jwt-audience", metavar="NAME", help="the audience that a token must have")
    parser.add_argument("--jwt-issuer", metavar="NAME", help="the issuer that a token must have")
    parser.add_argument(
        "--jwt-namespace", metavar="TEMPLATE", help="the namespace, filled from the claims (default: user/{sub})"
    )
    parser.add_argument(
        "--jwt-actions-claim",
        metavar="CLAIM",
        help="the claim that lists the allowed actions (without it: read, write, delete)",
    )


def run_serve(context: Context) -> int:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the service needs the packages {', '.join(missing)}; run: {install_command('server')}"
        )
    from commonplace.server.http.auth import make_gate
    from commonplace.server.http.run import run as serve

    given: dict[str, Any] = {name: getattr(context.arguments, name) for name in _SERVE_FLAGS}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    given = {name: value for name, value in given.items() if value is not None}
    settings = replace(context.settings, **given)
    key_command = context.command("keys", "create", "NAME", "--namespace", "user/NAME")
    context.try_in_memory(lambda book: make_gate(book, settings, key_command))
    serve(settings, key_command=key_command, ready=lambda service, address: _show_addresses(context, service, address))
    return 0


def _show_addresses(context: Context, service: Service, address: str) -> None:
    """Print the addresses, once requests are answered."""
    is_open = service.access.is_open()
    settings = service.settings
    places = {
        "page": f"{address}/",
        "rest": f"{address}/v1",
        "docs": f"{address}/docs",
        "openapi": f"{address}/openapi.json",
        "mcp": f"{address}/mcp",
        "mastra": f"{address}/api/memory",
        "health": f"{address}/healthz",
        "ready": f"{address}/readyz",
        "metrics": f"{address}/metrics",
    }
    out = context.out
    if out.is_json:
        out.json_line({"address": address, **places, "needs_key": not is_open})
    else:
        out.line(f"commonplace serves {settings.book_file or 'the book'} at {out.style(address, 'bold')}")
        out.line()
        for name, place in places.items():
            out.line(f"  {out.style(f'{name:<9}', 'dim')}{place}")
        out.line()
        out.line(f"  {claude_code_command(HttpServer(places['mcp'], None if is_open else YOUR_KEY))}")
        out.line()
        if is_open:
            namespace = "/".join(settings.namespace_labels)
            out.line(f"From this computer no key is needed, and the namespace is {namespace}.")
        else:
            out.line("Every call needs a key or a token.")
        out.line("Press Ctrl-C to stop.")
    out.stdout.flush()


# embed


def _declare_embed(commands: Commands) -> None:
    parser = commands.add(
        "embed",
        "Serve",
        "Embed what other programs write to the book.",
        run_embed,
        about=(
            "Runs until SIGTERM or Ctrl-C. Start it on as many machines as you like: each embeds other passages. "
            "Servers with COMMONPLACE_EMBED=false leave the work to it."
        ),
        examples="""\
  commonplace embed
  commonplace embed --workers 4""",
    )
    parser.add_argument("--workers", metavar="N", type=count, default=1, help="how many processes embed (default: 1)")


def run_embed(context: Context) -> int:
    context.require_book("embed")
    stopping = Event()
    former = {one: signal.signal(one, lambda *_: stopping.set()) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        if context.arguments.workers > 1:
            return _run_workers(context, stopping)
        embedding = replace(context.settings, embeds=True)
        with open_from_settings(embedding, background=True) as book:
            context.out.note(f"embeds the texts of {context.settings.place}; press Ctrl-C to stop")
            book.indexer.work(stopping.is_set)
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
    return 0


def _run_workers(context: Context, stopping: Event) -> int:
    """Run one process for each worker; if one fails, the others stop."""
    command = [sys.executable, "-m", "commonplace", "embed"]
    url = context.settings.database_url  # not among the arguments, which every user of the machine can see
    environment = os.environ if url is None else {**os.environ, "DATABASE_URL": url, "COMMONPLACE_REMOTE": ""}
    # In groups of their own: Ctrl-C reaches them through this process.
    workers = [
        subprocess.Popen(command, env=environment, start_new_session=True) for _ in range(context.arguments.workers)
    ]
    try:
        while not stopping.wait(WORKERS_LOOK_SECONDS) and all(worker.poll() is None for worker in workers):
            continue
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
        codes = [worker.wait() for worker in workers]
    return max(map(abs, codes))


# keys


def _declare_keys(commands: Commands) -> None:
    parser = commands.add(
        "keys",
        "Serve",
        "Create, list and revoke the keys of the service.",
        run_keys,
        about=(
            "create NAME prints a new key once; only its hash is stored. --namespace is the namespace that it opens "
            "(default: user/NAME); a template such as user/{user_id} is filled with --claim user_id=u-1. list shows "
            "what each key opens. revoke NAME disables a key within two seconds; with --forget it is also removed "
            "from the list. Without keys, programs on the same computer need none."
        ),
        examples="""\
  commonplace keys create laptop --namespace user/u-123
  commonplace keys create reader --namespace user/u-123 --actions read --expires 90d --rate 100/m
  commonplace keys create support --namespace org/acme --below
  commonplace keys list
  commonplace keys revoke laptop""",
    )
    parser.add_argument("action", choices=("create", "list", "revoke"), help="what to do")
    parser.add_argument("name", nargs="?", help="the key's name; the history shows it as the actor")
    parser.add_argument(
        "--claim", metavar="NAME=VALUE", action="append", default=[], help="a value for the template of the namespace"
    )
    reach = parser.add_mutually_exclusive_group()
    reach.add_argument("--below", action="store_true", help="it also opens the namespaces below its own")
    reach.add_argument("--everything", action="store_true", help="it opens every namespace of the book")
    parser.add_argument(
        "--actions", metavar="LIST", type=_actions, help="read, write, delete, admin (default: read,write,delete)"
    )
    parser.add_argument("--expires", metavar="DURATION", type=duration, help="how long it is valid, such as 90d")
    parser.add_argument("--rate", metavar="N/UNIT", help="rate limit, such as 100/m")
    parser.add_argument("--max-entries", metavar="N", type=count, help="limit of entries in all its namespaces")
    parser.add_argument("--max-bytes", metavar="N", type=count, help="limit of bytes there, history included")
    parser.add_argument("--forget", action="store_true", help="with revoke: also remove the key from the list")


def run_keys(context: Context) -> int:
    arguments = context.arguments
    _refuse_idle_options(arguments)
    if arguments.action == "list":
        return _list_keys(context)
    if arguments.name is None:
        raise InvalidInput(f"name the key: {context.command('keys', arguments.action, 'NAME')}")
    return _create_key(context) if arguments.action == "create" else _revoke_key(context)


def _refuse_idle_options(given: argparse.Namespace) -> None:
    if given.action == "list" and given.name is not None:
        raise InvalidInput("`keys list` lists all keys; remove the name")
    for action, names in _KEY_FLAGS.items():
        wrong = [f"--{name.replace('_', '-')}" for name in names if getattr(given, name)]
        if wrong and given.action != action:
            raise InvalidInput(f"remove {', '.join(wrong)}; it is only for `keys {action}`")


def _create_key(context: Context) -> int:
    from commonplace.server.http.api_keys import Key, Keys, Rate, system_time

    given = context.arguments
    key = Key(
        name=given.name,
        namespace=_namespace_of_key(context),
        reach="all" if given.everything else "below" if given.below else "own",
        actions=frozenset(given.actions or ("read", "write", "delete")),
        expires_at=None if given.expires is None else system_time() + round(given.expires * 1_000_000),
        rate=None if given.rate is None else Rate.parse(given.rate),
        max_entries=given.max_entries,
        max_bytes=given.max_bytes,
    )
    context.try_in_memory(lambda book: Keys(book.store).create(key))
    with context.book(create=True) as book:
        try:
            made, text = Keys(book.store).create(key)
        except AlreadyExists as error:
            raise AlreadyExists(
                f"there is a key {key.name} already, in use or revoked; choose another name, "
                f"or remove that one: {context.command('keys', 'revoke', key.name, '--forget')}"
            ) from error
    if context.out.is_json:
        context.out.document({**_key_fields(made, None), "key": text})
    else:
        context.out.line(text)
        context.out.note(f"the key {made.name} opens {made.opens}; it is shown this once, so keep it now")
    return 0


def _namespace_of_key(context: Context) -> tuple[str, ...]:
    from commonplace.tools.namespace_template import NamespaceTemplate

    given = context.arguments
    written = given.namespace or f"user/{given.name}"
    claims: dict[str, str] = {}
    for claim in given.claim:
        name, separator, value = claim.partition("=")
        if not separator or not name:
            raise InvalidInput(f"{claim!r} is not a claim; write --claim user_id=u-123")
        claims[name] = value
    labels = tuple(written.split("/"))
    template = NamespaceTemplate(labels)
    wanted = {label[1:-1] for label in labels if label.startswith("{")}
    if missing := sorted(wanted - claims.keys()):
        flags = " ".join(f"--claim {name}=VALUE" for name in missing)
        raise InvalidInput(f"the namespace {written} is a template; fill it with {flags}")
    if unknown := sorted(claims.keys() - wanted):
        places = "/".join(f"{{{name}}}" for name in unknown)
        raise InvalidInput(f"the namespace {written} has no {places} to fill; give a template with --namespace")
    return template.resolve({"configurable": claims})


def _list_keys(context: Context) -> int:
    from commonplace.checks import moment
    from commonplace.server.http.api_keys import Keys

    with context.book() as book:
        found = Keys(book.store).list()
    if context.out.is_json:
        context.out.document([_key_fields(key, used) for key, used in found])
        return 0
    rows = [
        [
            key.name,
            key.opens,
            _state(context, key),
            "" if key.rate is None else str(key.rate),
            "never" if used is None else context.out.time(moment(used)),
        ]
        for key, used in found
    ]
    context.out.table(("name", "opens", "state", "rate", "last used"), rows)
    return 0


def _revoke_key(context: Context) -> int:
    from commonplace.server.http.api_keys import Keys

    with context.book() as book:
        key = Keys(book.store).revoke(context.arguments.name, forget=context.arguments.forget)
    if context.out.is_json:
        context.out.document(_key_fields(key, None))
    else:
        context.out.line(f"revoked {key.name}; running services refuse it within two seconds")
    return 0


def _state(context: Context, key: Key) -> str:
    from commonplace.checks import moment
    from commonplace.server.http.api_keys import system_time

    if key.revoked_at is not None:
        return f"revoked {context.out.time(moment(key.revoked_at))}"
    if key.expires_at is None:
        return "good"
    word = "expired" if key.expires_at <= system_time() else "good until"
    return f"{word} {context.out.time(moment(key.expires_at))}"


def _key_fields(key: Key, used: int | None) -> dict[str, Any]:
    from commonplace.checks import moment

    def shown(time: int | None) -> Any:
        return None if time is None else moment(time)

    return {
        "name": key.name,
        "namespace": "/".join(key.namespace),
        "reach": key.reach,
        "actions": [action for action in ACTIONS if action in key.actions],
        "rate": None if key.rate is None else str(key.rate),
        "max_entries": key.max_entries,
        "max_bytes": key.max_bytes,
        "created_at": shown(key.created_at),
        "expires_at": shown(key.expires_at),
        "revoked_at": shown(key.revoked_at),
        "last_used_at": shown(used),
    }


def _actions(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words or any(word not in ACTIONS for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of actions; choose from {', '.join(ACTIONS)}")
    return words


# mcp


def _declare_mcp(commands: Commands) -> None:
    parser = commands.add(
        "mcp",
        "Serve",
        "Serve the memory to an MCP client over standard input/output.",
        run_mcp,
        about=(
            "A client such as Claude Code starts this command; --print-config shows what to paste into its settings. "
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
        help=f"the tools that the client gets: {', '.join(PROFILES)} (default: records)",
    )
    parser.add_argument(
        "--wording",
        metavar="NAME",
        choices=WORDINGS,
        default="seed",
        help="the texts of Claude's memory tool: seed, or anthropic as in the Anthropic SDK (default: seed)",
    )
    parser.add_argument(
        "--per-thread",
        action="store_true",
        help="separate files for each thread, which the client names in _meta.threadId of a call",
    )
    parser.add_argument("--wrap-results", action="store_true", help="mark search results as data, not instructions")
    parser.add_argument(
        "--print-config",
        metavar="CLIENT",
        choices=tuple(CLIENTS),
        default=None,
        help=f"print what to add to this client's settings, and exit: {', '.join(CLIENTS)}",
    )


def run_mcp(context: Context) -> int:
    if context.arguments.print_config is not None:
        return print_config(context)
    from commonplace.server.mcp import run_stdio

    settings = context.settings
    if sys.stdin.isatty():
        context.out.note(
            "waiting for an MCP client on standard input; a client such as Claude Code starts this command itself. "
            "Run `commonplace setup` to connect one. Ctrl-C stops it"
        )
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
    """Print the client's settings for this book. Desktop clients do not inherit your shell's environment."""
    given, settings = context.arguments, context.settings
    words, variables = _place_words(context)
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
    client = CLIENTS[given.print_config]
    command, *first = program()
    server = StdioServer(command, (*first, "mcp", *words), variables)
    if client.format in ("json", "jsonc"):
        context.out.document(client.settings(server))
    else:
        context.out.stdout.write(client.text(server))
    if any("YOUR_" in value for value in variables.values()):
        context.out.note("secrets are not printed; replace the values that begin with YOUR_")
    return 0


def _place_words(context: Context) -> tuple[list[str], dict[str, str]]:
    """Return the arguments for the book or the service, and the variables; secrets are placeholders."""
    settings = context.settings
    if settings.remote is not None:
        # A service without keys refuses a key, so it is only passed if it is set.
        variables = {} if settings.remote_key is None else {"COMMONPLACE_KEY": "YOUR_KEY"}
        return ["--remote", settings.remote], variables
    if settings.database_url is None:
        return [], {}
    if settings.book_file is not None:
        return ["--db", str(settings.book_file)], {}
    return [], {"DATABASE_URL": hide_password(settings.database_url)}
