"""The MCP server: `run_stdio` and, for streamable HTTP, `http_app`.

`run_stdio` needs `pip install 'commonplace-memory[mcp]'`, `http_app` the extra `server`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from commonplace.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette

    from commonplace.book import Book
    from commonplace.settings import Settings
    from commonplace.tools.claude import WordingName

__all__ = ["http_app", "run_stdio"]


def run_stdio(
    settings: Settings,
    profile: str = "records",
    *,
    protocol_version: str | None = None,
    debug_file: Path | None = None,
    wording: WordingName = "seed",
    is_per_thread: bool = False,
) -> None:
    """Serve the settings' namespace on standard input and output until the input ends.

    `wording` is that of Claude's tool. With `is_per_thread`, each `_meta.threadId` has its own files.
    """
    _check_installed("mcp", "mcp")
    from commonplace.server.mcp.stdio import run

    run(
        settings,
        profile,
        protocol_version=protocol_version,
        debug_file=debug_file,
        wording=wording,
        is_per_thread=is_per_thread,
    )


def http_app(
    book: Book,
    namespace: Sequence[str],
    *,
    default_limit: int = 10,
    max_limit: int = 100,
    host: str = "127.0.0.1",
    is_stateless: bool = False,
) -> Starlette:
    """The MCP part of `commonplace serve` as an ASGI app, for one namespace: `/mcp`, and `/mcp/PROFILE` per profile.

    It has the sessions and the limits of the service, but it does not ask for keys. On a loopback `host` it refuses
    other Host headers and foreign Origins, so that web pages cannot call it. On any other host, put your own access
    control in front of it. A session lives in one process: use `is_stateless` for several workers without sticky
    routing.
    """
    _check_installed("server", "mcp", "fastapi", "prometheus_client")
    from commonplace.server.http.api_keys import LOCAL, Keys
    from commonplace.server.http.app import build_app
    from commonplace.server.http.auth import OpenGate, Principal
    from commonplace.server.http.origins import is_loopback
    from commonplace.server.http.service import Service
    from commonplace.settings import Settings

    settings = Settings(host=host, search_default_limit=default_limit, search_max_limit=max_limit)
    gate = OpenGate(Keys(book.store), Principal(LOCAL, tuple(namespace)), checks_pages=is_loopback(host))
    return build_app(Service(book, gate, settings), is_only_mcp=True, is_stateless=is_stateless)


def _check_installed(extra: str, *packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise ConfigurationError(f"the MCP server needs the package {package}; run: {install_command(extra)}")
