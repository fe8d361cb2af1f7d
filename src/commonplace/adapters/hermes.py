"""A memory provider of the Hermes agent on a book.

Put this into `$HERMES_HOME/plugins/commonplace/__init__.py`, and set `memory.provider: commonplace` in its config.yaml:

    from commonplace.adapters.hermes import CommonplaceMemoryProvider

    def register(ctx):
        ctx.register_memory_provider(CommonplaceMemoryProvider())

Each session is a thread. Before a turn, the provider adds what the memory holds about the message, marked as data. Each
profile and user of Hermes has a namespace below `hermes`, unless you give a space.

Needs `pip install 'commonplace-memory[hermes]'`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from commonplace.adapters.thread_items import ThreadItems, storable
from commonplace.api.client import connect
from commonplace.book import Book, open_book
from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput, install_command
from commonplace.space.names import RECORD, label_of
from commonplace.space.space import Space
from commonplace.tools.as_data import hits_as_data

try:
    from agent.memory_provider import MemoryProvider
except ImportError as error:
    raise ConfigurationError(f"hermes-agent is not installed, or too old; run: {install_command('hermes')}") from error

__all__ = ["CommonplaceMemoryProvider"]

CONFIG = "commonplace.json"
BOOK = "commonplace.db"
SOURCE = "hermes"
TYPE = "memory"
RECALLED = 5
MAX_QUERY_CHARACTERS = 8_000
PRIMARY = ("", "primary")
"""Contexts whose turns are saved; those of subagents and of timed jobs are not the user's."""

_log = logging.getLogger(__name__)
_TEXT = {"type": "string"}
_TOOLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "commonplace_search",
        "Search the long-term memory by meaning and by keywords: earlier sessions, saved facts, files.",
        {"query": _TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 50}},
    ),
    (
        "commonplace_remember",
        "Save a fact that later sessions should know. The same fact is saved once.",
        {"fact": _TEXT},
    ),
    ("commonplace_forget", "Delete a saved fact by the id that a search or `remember` returned.", {"id": _TEXT}),
)


class CommonplaceMemoryProvider(MemoryProvider):
    """A provider on a given space, or on the book that `commonplace.json` in HERMES_HOME names."""

    def __init__(self, space: Space | None = None) -> None:
        self._given = space
        self._space = space
        self._book: Book | None = None
        self._path: Path | None = None
        self._session = ""
        self._saves = True
        self._queue = ThreadPoolExecutor(1, "commonplace-hermes")
        self._last: Future[None] | None = None

    @property
    def name(self) -> str:
        return "commonplace"

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self._session = session_id
        self._saves = str(kwargs.get("agent_context") or "") in PRIMARY
        if self._given is not None:
            return
        home = Path(str(kwargs["hermes_home"]))
        config = _read_config(home)
        url = str(config.get("book") or home / BOOK)
        owner = [str(kwargs.get(name) or "default") for name in ("agent_identity", "user_id")]
        self._book = connect(url) if url.startswith(("http://", "https://")) else open_book(url)
        self._path = None if "://" in url else Path(url)
        labels = str(config.get("namespace") or "").split("/") if config.get("namespace") else [SOURCE]
        self._space = self._book.space(*labels, *map(label_of, owner))

    def system_prompt_block(self) -> str:
        return (
            "You have a long-term memory (commonplace). Relevant memories are added to each turn. "
            "Use commonplace_search to look further and commonplace_remember to save a lasting fact."
        )

    # A turn

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """What the memory holds about a message; empty if nothing is relevant."""
        asked = storable(query[:MAX_QUERY_CHARACTERS]).strip()
        if not asked:
            return ""
        hits = self._open_space.search(asked, limit=RECALLED, min_relevance="default")
        return hits_as_data(hits) if hits else ""

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Save a turn in the background, in order."""
        said = (("user", user_content), ("assistant", assistant_content))
        turn = [{"role": role, "content": text} for role, text in said if isinstance(text, str) and text.strip()]
        if turn and self._saves:
            stored = ThreadItems(self._open_space, session_id or self._session or SOURCE)
            self._later(lambda: stored.add(turn))

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        self._session = new_session_id

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Wait until the turns of the session are saved."""
        self._wait()

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        return "The whole conversation is kept in long-term memory; commonplace_search finds it again."

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Save what Hermes' own memory tool saves."""
        if action in ("add", "replace") and self._saves and isinstance(content, str) and content.strip():
            self._later(lambda: self._remember(content))

    def shutdown(self) -> None:
        """Save what is queued, and close the book if this provider has opened it."""
        self._queue.shutdown()
        if self._book is not None:
            self._book.close()
            self._book = None

    # Tools

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "description": about,
                "parameters": {"type": "object", "properties": fields, "required": [next(iter(fields))]},
            }
            for name, about, fields in _TOOLS
        ]

    def handle_tool_call(self, tool_name: str, args: Mapping[str, Any], **kwargs: Any) -> str:
        """The result of a tool as JSON. A refusal is a result too, which the model can read."""
        try:
            return json.dumps(self._called(tool_name, args), ensure_ascii=False)
        except CommonplaceError as error:
            return json.dumps({"error": str(error)}, ensure_ascii=False)

    def _called(self, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if tool == "commonplace_search":
            hits = self._open_space.search(
                _text(args, "query"), limit=args.get("limit", RECALLED), min_relevance="default"
            )
            return {"result": hits_as_data(hits), "ids": [hit.key for hit in hits if hit.kind == RECORD]}
        if tool == "commonplace_remember":
            return {"id": self._remember(_text(args, "fact"))}
        if tool == "commonplace_forget":
            self._open_space.records.delete(_text(args, "id"))
            return {"result": "deleted"}
        raise InvalidInput(f"unknown tool {tool!r:.100}")

    def _remember(self, fact: str) -> str:
        content = {"text": storable(fact)}
        return self._open_space.records.create(type=TYPE, content=content, source=SOURCE, confidence=1.0).id

    # Setup

    def get_config_schema(self) -> list[dict[str, Any]]:
        return [
            {"key": "book", "description": f"A file, PostgreSQL or a service (default: {BOOK} in HERMES_HOME)"},
            {"key": "namespace", "description": "The namespace above those of profiles and users", "default": SOURCE},
        ]

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        kept = {name: value for name, value in values.items() if name in ("book", "namespace") and value}
        (Path(hermes_home) / CONFIG).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")

    def backup_paths(self) -> list[str]:
        """The book, if it is a file outside of HERMES_HOME. `commonplace backup` copies it while it is in use."""
        return [] if self._path is None else [str(self._path.resolve())]

    @property
    def _open_space(self) -> Space:
        if self._space is None:
            raise ConfigurationError("the provider is not initialized; call initialize() first")
        return self._space

    def _later(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            except CommonplaceError:
                _log.exception("a memory could not be saved")

        self._last = self._queue.submit(run)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{name} is required")
    return value


def _read_config(home: Path) -> Mapping[str, Any]:
    path = home / CONFIG
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from error
    return found if isinstance(found, Mapping) else {}
