"""Settings from the environment: the one place where it is read. Everything below takes plain arguments.

    DATABASE_URL                the book: a file; unset, memory.db in the user's data folder
    COMMONPLACE_NAMESPACE       the namespace, such as user/u-123 (default user/default)
    COMMONPLACE_MODELS          the folder of embedding models
    COMMONPLACE_EMBEDDINGS_KEY  the key for an embedding endpoint
    OPENAI_API_KEY              the same, only for OpenAI's own endpoint
    EMBEDDINGS_MODEL            the embedding model; unset, the default one
    EMBEDDINGS_POOLING          cls or mean; unset, the model's own
    EMBEDDINGS_NORMALIZE        true or false; unset, the model's own
    EMBEDDINGS_MAX_RETRIES      how often an endpoint is tried again (default 3)
    SEARCH_DEFAULT_LIMIT        how many hits a search gives (default 10)
    SEARCH_MAX_LIMIT            how many it gives at most (default 100)
    MAX_CONTENT_LENGTH          how many characters a record may have (default 10000)
    MAX_TAGS_COUNT              how many tags a call may name (default 20)
    DB_QUERY_TIMEOUT            how many ms a call waits for a book that others are writing to (default 30000)
    DB_MAX_POOL_SIZE            how many connections to a database server (default 20); a file needs none
    DB_IDLE_TIMEOUT             after how many ms an idle one is closed (default 30000); a file needs none
    LOG_LEVEL                   error, warn, info or debug (default info)
    MCP_PROTOCOL_VERSION        the revision for an MCP client that names none (default 2024-11-05) or an unknown one
    MCP_DEBUG_LOG_PATH          where the MCP server writes its log as well, at LOG_LEVEL debug only
    NO_COLOR                    set to anything: no colours on the command line

A variable that is set to nothing counts as unset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlsplit

from commonplace.errors import CommonplaceError, ConfigurationError

if TYPE_CHECKING:
    from typing import Self

    from commonplace.book import Book
    from commonplace.checks import Namespace
    from commonplace.embedding import Embedder
    from commonplace.limits import Limits

LogLevel = Literal["error", "warn", "info", "debug"]
LARGEST_SEARCH_LIMIT = 1_000
_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True)
class Settings:
    """What the environment says, checked; a field left out of it has its default."""

    database_url: str | None = None
    namespace: str = "user/default"
    models_folder: Path | None = None
    embeddings_model: str | None = None
    embeddings_pooling: Literal["cls", "mean"] | None = None
    embeddings_normalize: bool | None = None
    embeddings_max_retries: int = 3
    embeddings_key: str | None = field(default=None, repr=False)
    openai_key: str | None = field(default=None, repr=False)
    search_default_limit: int = 10
    search_max_limit: int = 100
    max_content_length: int = 10_000
    max_tags_count: int = 20
    db_query_timeout_ms: int = 30_000
    db_max_pool_size: int = 20
    db_idle_timeout_ms: int = 30_000
    log_level: LogLevel = "info"
    mcp_protocol_version: str | None = None
    mcp_debug_log: Path | None = None
    has_colors: bool = True

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read and check every variable; a bad value raises ConfigurationError with the variable's name."""
        read = _Reader(environ)
        default_limit = read.number("SEARCH_DEFAULT_LIMIT", 10, 1, LARGEST_SEARCH_LIMIT)
        max_limit = read.number("SEARCH_MAX_LIMIT", max(100, default_limit), 1, LARGEST_SEARCH_LIMIT)
        if default_limit > max_limit:
            raise ConfigurationError(
                f"SEARCH_DEFAULT_LIMIT is {default_limit}, above SEARCH_MAX_LIMIT ({max_limit}); lower the first"
            )
        folder = read.text("COMMONPLACE_MODELS")
        debug_log = read.text("MCP_DEBUG_LOG_PATH")
        return cls(
            database_url=read.text("DATABASE_URL"),
            namespace=read.namespace("COMMONPLACE_NAMESPACE", "user/default"),
            models_folder=None if folder is None else Path(folder).expanduser().absolute(),
            embeddings_model=read.text("EMBEDDINGS_MODEL"),
            embeddings_pooling=cast(
                'Literal["cls", "mean"] | None', read.choice("EMBEDDINGS_POOLING", ("cls", "mean"))
            ),
            embeddings_normalize=read.switch("EMBEDDINGS_NORMALIZE"),
            embeddings_max_retries=read.number("EMBEDDINGS_MAX_RETRIES", 3, 0, 100),
            embeddings_key=read.text("COMMONPLACE_EMBEDDINGS_KEY"),
            openai_key=read.text("OPENAI_API_KEY"),
            search_default_limit=default_limit,
            search_max_limit=max_limit,
            max_content_length=read.number("MAX_CONTENT_LENGTH", 10_000, 1, 100_000_000),
            max_tags_count=read.number("MAX_TAGS_COUNT", 20, 0, 10_000),
            db_query_timeout_ms=read.number("DB_QUERY_TIMEOUT", 30_000, 1, 3_600_000),
            db_max_pool_size=read.number("DB_MAX_POOL_SIZE", 20, 1, 10_000),
            db_idle_timeout_ms=read.number("DB_IDLE_TIMEOUT", 30_000, 1, 86_400_000),
            log_level=cast(LogLevel, read.choice("LOG_LEVEL", ("error", "warn", "info", "debug")) or "info"),
            mcp_protocol_version=read.text("MCP_PROTOCOL_VERSION"),
            mcp_debug_log=None if debug_log is None else Path(debug_log).expanduser().absolute(),
            has_colors=read.text("NO_COLOR") is None and read.text("TERM") != "dumb",
        )

    @property
    def limits(self) -> Limits:
        from commonplace.limits import Limits

        return Limits(record_characters=self.max_content_length, tags=self.max_tags_count)

    @property
    def namespace_labels(self) -> Namespace:
        from commonplace.checks import parse_namespace

        return parse_namespace(self.namespace)

    @property
    def book_file(self) -> Path | None:
        """The file that the book is, or None where it is none (`:memory:`, a server)."""
        if self.database_url is None:
            from commonplace.book import default_path

            return default_path()
        text = self.database_url.removeprefix("sqlite:///")
        if text == ":memory:" or "://" in text:
            return None
        return Path(text).expanduser().absolute()

    def embedder(self, model: str | None = None) -> Embedder:
        """The embedder that the settings name, or another model with the same settings; nothing is loaded yet."""
        from commonplace.embedding import EndpointOptions, create_embedder

        name = model or self.embeddings_model
        return create_embedder(
            name,
            pooling=self.embeddings_pooling,
            normalize=self.embeddings_normalize,
            models_folder=self.models_folder,
            endpoint=EndpointOptions(api_key=self.endpoint_key(name), max_retries=self.embeddings_max_retries),
        )

    def endpoint_key(self, model: str | None) -> str | None:
        """The key for a model's endpoint. OPENAI_API_KEY goes to OpenAI alone: any other address needs its own."""
        provider, _, name = (model or "").partition(":")
        url = name.partition("@")[2]
        is_openai = provider == "openai" and (not url or urlsplit(url).hostname == "api.openai.com")
        return self.embeddings_key or (self.openai_key if is_openai else None)


def open_from_settings(settings: Settings, *, background: bool) -> Book:
    """Open the book that the settings name; `background` embeds what is written while the program runs."""
    from commonplace.book import open_book

    return open_book(
        settings.database_url,
        embedder=settings.embedder(),
        make_embedder=settings.embedder,
        limits=settings.limits,
        busy_seconds=settings.db_query_timeout_ms / 1_000,
        background=background,
    )


class _Reader:
    """Variables with their checks."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str) -> str | None:
        return self._environ.get(name, "").strip() or None

    def choice(self, name: str, known: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is not None and value.lower() not in known:
            raise ConfigurationError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
        return None if value is None else value.lower()

    def switch(self, name: str) -> bool | None:
        value = self.text(name)
        if value is not None and value.lower() not in _SWITCH:
            raise ConfigurationError(f"{name} is {value!r}; it must be true or false")
        return None if value is None else _SWITCH[value.lower()]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        number = int(value) if value.isascii() and value.lstrip("-").isdigit() else least - 1
        if not least <= number <= most:
            raise ConfigurationError(f"{name} is {value!r}; it must be a whole number from {least:,} to {most:,}")
        return number

    def namespace(self, name: str, default: str) -> str:
        from commonplace.checks import parse_namespace

        value = self.text(name)
        if value is None:
            return default
        try:
            parse_namespace(value)
        except CommonplaceError as error:
            raise ConfigurationError(f"{name} is {value!r}: {error}; write it like user/u-123") from error
        return value
