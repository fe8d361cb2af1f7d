"""`commonplace mcp`, put together: settings, logs, the lazy book, and the loop on stdio."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from commonplace.server.logs import configure_logging
from commonplace.server.mcp.app import build_server
from commonplace.server.mcp.eras import check_version
from commonplace.server.mcp.memory import ACTOR, Memory
from commonplace.server.mcp.profiles import check_profile
from commonplace.server.mcp.stdio import claimed_pipes, serve
from commonplace.settings import Settings, open_from_settings
from commonplace.tools.claude import WordingName, wording_named

if TYPE_CHECKING:
    from commonplace.book import Book
    from commonplace.space.space import Space

_log = logging.getLogger(__name__)


def run(
    settings: Settings,
    profile: str,
    *,
    protocol_version: str | None,
    debug_file: Path | None,
    wording: WordingName = "seed",
    is_per_thread: bool = False,
) -> None:
    configure_logging(settings.log_level, debug_file)
    chosen = check_profile(profile)
    wording_named(wording)
    version = None if protocol_version is None else check_version(protocol_version)
    is_keys_own = settings.remote is not None and settings.namespace is None
    labels = () if is_keys_own else settings.namespace_labels
    with ExitStack() as opened:
        books: list[Book] = []

        def open_thread(thread_id: str) -> Space:
            namespace = memory.space.namespace
            return books[-1].space(*namespace, "thread", thread_id, actor=ACTOR)

        def open_space() -> Space:
            book = opened.enter_context(open_from_settings(settings, background=True))
            books.append(book)
            space = book.space(*labels, actor=ACTOR)
            _log.info("opened the book for %s", "/".join(space.namespace))
            return space

        memory = Memory(
            open_space,
            default_limit=settings.search_default_limit,
            max_limit=settings.search_max_limit,
            wraps_results=settings.wrap_results,
            open_thread=open_thread if is_per_thread else None,
            wording=wording,
        )
        server = build_server(memory, chosen, is_stdio=True)
        with claimed_pipes() as (stdin, stdout):
            anyio.run(lambda: serve(server, stdin, stdout, version=version))
