"""`serve`: the memory for other programs and computers, over HTTP."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import Context
from commonplace.cli.values import count, message_bytes, origin, port, web_address
from commonplace.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands
    from commonplace.server.http.service import Service

_PACKAGES = ("fastapi", "uvicorn", "mcp", "prometheus_client", "jwt")


def register(commands: Commands) -> None:
    parser = commands.add(
        "serve",
        "Serve",
        "Serve the book over HTTP: REST, MCP and Mastra's routes.",
        run,
        about=(
            "Without keys it answers to this computer alone; `commonplace keys create` makes one, and from then on "
            "every call needs one. Needs `pip install 'commonplace-memory[server]'`. Logs are JSON lines on standard "
            "error. SIGTERM and Ctrl-C let the requests under way finish."
        ),
        examples="""\
  commonplace serve
  commonplace serve --host 0.0.0.0 --port 8080 --rate 600/m
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
        help="a web page that may call, such as https://app.example; may be repeated",
    )
    parser.add_argument("--rate", metavar="N/UNIT", help="rate limit of a key that has none of its own, such as 100/m")
    parser.add_argument(
        "--max-entries", metavar="N", type=count, help="entries that such a key may hold in all its namespaces"
    )
    parser.add_argument("--max-bytes", metavar="N", type=count, help="bytes that it may hold there, history included")
    parser.add_argument(
        "--max-message-bytes", metavar="N", type=message_bytes, help="bytes that a message may have (default: 16000000)"
    )
    parser.add_argument("--metrics-open", action="store_const", const=True, help="let /metrics be read without a key")
    parser.add_argument(
        "--wrap-results",
        action="store_const",
        const=True,
        help="mark what MCP clients find as data, not instructions, for the model",
    )
    parser.add_argument("--jwt-jwks", metavar="FILE|URL", help="accept tokens that are signed with one of these keys")
    parser.add_argument("--jwt-audience", metavar="NAME", help="the audience that a token must name")
    parser.add_argument("--jwt-issuer", metavar="NAME", help="the issuer that a token must name")
    parser.add_argument(
        "--jwt-namespace", metavar="TEMPLATE", help="the namespace, filled from the claims (default: user/{sub})"
    )
    parser.add_argument(
        "--jwt-actions-claim",
        metavar="CLAIM",
        help="the claim that lists the allowed actions (without it: read, write, delete)",
    )


_FLAGS = (
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
    "jwt_jwks",
    "jwt_audience",
    "jwt_issuer",
    "jwt_namespace",
    "jwt_actions_claim",
)
"""Each stands in place of the setting of its name."""


def run(context: Context) -> int:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the service needs the packages {', '.join(missing)}; run: {install_command('server')}"
        )
    from commonplace.server.http.auth import make_gate
    from commonplace.server.http.run import run as serve

    given: dict[str, Any] = {name: getattr(context.arguments, name) for name in _FLAGS}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    given = {name: value for name, value in given.items() if value is not None}
    settings = replace(context.settings, **given)
    key_command = context.command("keys", "create", "NAME", "--namespace", "user/NAME")
    context.rehearse(lambda book: make_gate(book, settings, key_command))
    serve(settings, key_command=key_command, ready=lambda service, address: _tell(context, service, address))
    return 0


def _tell(context: Context, service: Service, address: str) -> None:
    """Where everything is; printed once calls are answered."""
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
        out.line(f"commonplace serves {settings.book_file or 'the book'} at {out.paint(address, 'bold')}")
        out.line()
        for name, place in places.items():
            out.line(f"  {out.paint(f'{name:<9}', 'dim')}{place}")
        out.line()
        header = "" if is_open else ' --header "Authorization: Bearer YOUR_KEY"'
        out.line(f"  claude mcp add --transport http memory {places['mcp']}{header}")
        out.line()
        if is_open:
            namespace = "/".join(settings.namespace_labels)
            out.line(f"From this computer no key is needed, and the namespace is {namespace}.")
        else:
            out.line("Every call needs a key or a token.")
        out.line("Ctrl-C stops it.")
    out.stdout.flush()
