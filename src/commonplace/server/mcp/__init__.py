"""The MCP server: `run_stdio` and, for streamable HTTP, `http_app`. Needs `pip install 'commonplace-memory[mcp]'`."""

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
    from commonplace.tools.claude_wording import WordingName

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

    `wording` is that of Claude's tool; with `is_per_thread` each `_meta.threadId` of a call has files of its own.
    """
    _check_installed()
    from commonplace.server.mcp.running import run

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
    """An ASGI app that serves one namespace at `/mcp` and each profile at `/mcp/PROFILE`.

    It does not ask who calls. On a loopback `host` it refuses other Host headers and foreign Origins, so that no web
    page reaches it; on any other, put it behind something that knows its callers. `is_stateless` is for several
    workers without sticky routing: a session lives in one process.
    """
    _check_installed()
    from commonplace.server.mcp.http import build_app

    return build_app(book, namespace, limits=(default_limit, max_limit), host=host, is_stateless=is_stateless)


def _check_installed() -> None:
    if find_spec("mcp") is None:
        raise ConfigurationError(f"the MCP server needs the package mcp; run: {install_command('mcp')}")
