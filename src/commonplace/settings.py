"""Settings from the environment. It is only read here; everything below takes plain arguments.

    DATABASE_URL                the book: a file, postgresql://… or mongodb://… (default memory.db in the user's data
                                folder)
    DATABASE_REPLICA_URL        a read replica of that PostgreSQL, for searches (default none)
    COMMONPLACE_REMOTE          the URL of a service to use instead of a book, such as http://127.0.0.1:8765
    COMMONPLACE_KEY             the key for that service
    COMMONPLACE_NAMESPACE       the namespace, such as user/u-123 (default user/default)
    COMMONPLACE_AGENTS          the folder of agents' memories (default _tables/agents below the working directory)
    COMMONPLACE_MODELS          the folder of embedding models
    COMMONPLACE_EMBEDDINGS_KEY  the key for an embedding endpoint
    OPENAI_API_KEY              the same, but only used for OpenAI's endpoint
    EMBEDDINGS_MODEL            the embedding model (default: the built-in default)
    EMBEDDINGS_POOLING          cls or mean (default: the model's)
    EMBEDDINGS_NORMALIZE        true or false (default: the model's)
    EMBEDDINGS_MAX_RETRIES      how often a call of an endpoint is retried (default 3)
    SEARCH_DEFAULT_LIMIT        how many hits a search returns (default 10)
    SEARCH_MAX_LIMIT            how many hits a search returns at most (default 100)
    COMMONPLACE_DATE_ORDER      how a query such as 3/4/2024 is read: day-first, month-first or both (default both)
    MAX_CONTENT_LENGTH          how many characters a record may have (default 10000)
    MAX_TAGS_COUNT              how many tags a call may name (default 20)
    COMMONPLACE_MAX_MESSAGE_BYTES  how many bytes a message may have, images in it included (default 16000000)
    DB_QUERY_TIMEOUT            how many ms a call waits while others write to the book (default 30000)
    DB_MAX_POOL_SIZE            how many connections to a database server (default 20); not used for a file
    DB_IDLE_TIMEOUT             after how many ms an idle one is closed (default 30000); not used for a file
    COMMONPLACE_EMBED           false: leave the embedding of new texts to `commonplace embed` (default true)
    COMMONPLACE_KEEP_HISTORY_DAYS  how many days a replaced or deleted state is kept (default: for ever)
    COMMONPLACE_HOST            where the service listens (default 127.0.0.1)
    COMMONPLACE_PORT            the port of the service (default 8765)
    COMMONPLACE_PUBLIC_URL      the public URL of the service, if it is behind a proxy
    COMMONPLACE_CORS_ORIGINS    the origins that may call the service, such as https://app.example, separated by commas
    COMMONPLACE_OAUTH           true: MCP clients may ask people for access, by OAuth 2.1 (default false)
    COMMONPLACE_JWT_JWKS        the issuer's public keys for tokens: a file or an https:// URL
    COMMONPLACE_JWT_AUDIENCE    the audience that a token must have
    COMMONPLACE_JWT_ISSUER      the issuer that a token must have
    COMMONPLACE_JWT_NAMESPACE   the namespace, filled from a token's claims (default user/{sub})
    COMMONPLACE_JWT_ACTIONS     the claim that lists the allowed actions (without it: read, write and delete)
    COMMONPLACE_RATE            the default rate limit of a key, such as 100/m
    COMMONPLACE_MAX_ENTRIES     the default limit of entries in all namespaces of a key
    COMMONPLACE_MAX_BYTES       the default limit of bytes there, history included
    COMMONPLACE_MAX_BODY_BYTES  the limit of bytes in a request (default: twice that of a message, at least 32000000);
                                imports may be larger
    COMMONPLACE_MAX_REQUESTS    how many requests the service handles at once (default 1000)
    COMMONPLACE_MAX_STREAMS     how many event streams it keeps open (default 1000)
    COMMONPLACE_REQUEST_SECONDS after how many seconds a request times out (default 60)
    COMMONPLACE_STOP_SECONDS    how many seconds a stopping service waits for running requests (default 30)
    COMMONPLACE_METRICS_OPEN    true: serve the metrics without a key
    COMMONPLACE_TRACING         true or false: send traces (default: true if OTEL_EXPORTER_OTLP_ENDPOINT is set)
    COMMONPLACE_REDACT          mask or reject secrets in writes (default off)
    COMMONPLACE_REDACT_KINDS    what to redact: secrets, pii, all, or names of kinds with commas (default secrets)
    COMMONPLACE_REDACT_RULES    a TOML or JSON file with your redaction rules
    COMMONPLACE_WRAP_RESULTS    true: mark search results for MCP clients as data, not instructions
    LOG_LEVEL                   error, warn, info or debug (default info)
    MCP_PROTOCOL_VERSION        the revision for an MCP client that names none or an unknown one (default 2024-11-05)
    MCP_DEBUG_LOG_PATH          a file for the log of the MCP server too, only at LOG_LEVEL debug
    NO_COLOR                    if set to anything: no colours on the command line
    PAGER                       the program that shows long lists on a terminal (default less; cat for none)

An empty variable counts as unset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlsplit, urlunsplit

from commonplace.errors import CommonplaceError, ConfigurationError

if TYPE_CHECKING:
    from typing import Self

    from commonplace.book import Book
    from commonplace.checks import Limits, Namespace
    from commonplace.embedding import Embedder
    from commonplace.language.dates import DateOrder
    from commonplace.redaction import Redactor

LogLevel = Literal["error", "warn", "info", "debug"]
Redact = Literal["off", "mask", "reject"]
DEFAULT_NAMESPACE = "user/default"
LARGEST_SEARCH_LIMIT = 1_000
MESSAGE_BYTES = (1_000, 100_000_000)
"""The smallest and the largest limit for the bytes of a message."""
WEB_ADDRESS_FORM = "URL; write it like https://memory.example"
ORIGIN_FORM = "origin; write only scheme, host and port, like https://app.example"
_WEB_ADDRESS = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")
_PASSWORD = re.compile(r"(?<=://)(?P<user>[^:/@]*:)[^/]*(?=@)|(?<=password=)[^&]*")
_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True)
class Settings:
    """The checked settings; a field that is not set has its default."""

    database_url: str | None = None
    database_replica_url: str | None = None
    remote: str | None = None
    remote_key: str | None = field(default=None, repr=False)
    namespace: str | None = None
    """As it was given, or None. A service then uses the namespace of the key."""

    agents_folder: Path = Path("_tables/agents")
    models_folder: Path | None = None
    embeddings_model: str | None = None
    embeddings_pooling: Literal["cls", "mean"] | None = None
    embeddings_normalize: bool | None = None
    embeddings_max_retries: int = 3
    embeddings_key: str | None = field(default=None, repr=False)
    openai_key: str | None = field(default=None, repr=False)
    search_default_limit: int = 10
    search_max_limit: int = 100
    date_order: DateOrder = "both"
    max_content_length: int = 10_000
    max_tags_count: int = 20
    max_message_bytes: int = 16_000_000
    db_query_timeout_ms: int = 30_000
    db_max_pool_size: int = 20
    db_idle_timeout_ms: int = 30_000
    embeds: bool = True
    keep_history_days: int | None = None
    host: str = "127.0.0.1"
    port: int = 8765
    public_url: str | None = None
    cors_origins: tuple[str, ...] = ()
    oauth: bool = False
    jwt_jwks: str | None = None
    jwt_audience: str | None = None
    jwt_issuer: str | None = None
    jwt_namespace: str = "user/{sub}"
    jwt_actions_claim: str | None = None
    rate: str | None = None
    max_entries: int | None = None
    max_bytes: int | None = None
    max_body_bytes: int = 32_000_000
    max_requests: int = 1_000
    max_streams: int = 1_000
    request_seconds: int = 60
    stop_seconds: int = 30
    metrics_open: bool = False
    tracing: bool = False
    redact: Redact = "off"
    redact_kinds: tuple[str, ...] = ("secrets",)
    redact_rules: Path | None = None
    wrap_results: bool = False
    log_level: LogLevel = "info"
    mcp_protocol_version: str | None = None
    mcp_debug_log: Path | None = None
    has_colors: bool = True
    pager: str = "less"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read and check every variable; an invalid value raises ConfigurationError with the variable's name."""
        read = _Reader(environ)
        default_limit = read.number("SEARCH_DEFAULT_LIMIT", 10, 1, LARGEST_SEARCH_LIMIT)
        max_limit = read.number("SEARCH_MAX_LIMIT", max(100, default_limit), 1, LARGEST_SEARCH_LIMIT)
        if default_limit > max_limit:
            raise ConfigurationError(
                f"SEARCH_DEFAULT_LIMIT is {default_limit}, above SEARCH_MAX_LIMIT ({max_limit}); lower the first"
            )
        message_bytes = read.number("COMMONPLACE_MAX_MESSAGE_BYTES", 16_000_000, *MESSAGE_BYTES)
        return cls(
            database_url=read.text("DATABASE_URL"),
            database_replica_url=read.text("DATABASE_REPLICA_URL"),
            remote=read.text("COMMONPLACE_REMOTE"),
            remote_key=read.text("COMMONPLACE_KEY"),
            namespace=read.namespace("COMMONPLACE_NAMESPACE"),
            agents_folder=read.path("COMMONPLACE_AGENTS") or cls.agents_folder,
            models_folder=read.path("COMMONPLACE_MODELS"),
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
            date_order=cast(
                "DateOrder", read.choice("COMMONPLACE_DATE_ORDER", ("both", "day-first", "month-first")) or "both"
            ),
            max_content_length=read.number("MAX_CONTENT_LENGTH", 10_000, 1, 100_000_000),
            max_tags_count=read.number("MAX_TAGS_COUNT", 20, 0, 10_000),
            max_message_bytes=message_bytes,
            db_query_timeout_ms=read.number("DB_QUERY_TIMEOUT", 30_000, 1, 3_600_000),
            db_max_pool_size=read.number("DB_MAX_POOL_SIZE", 20, 1, 10_000),
            db_idle_timeout_ms=read.number("DB_IDLE_TIMEOUT", 30_000, 1, 86_400_000),
            embeds=read.switch("COMMONPLACE_EMBED") is not False,
            keep_history_days=read.number("COMMONPLACE_KEEP_HISTORY_DAYS", 0, 1, 36_500) or None,
            host=read.text("COMMONPLACE_HOST") or "127.0.0.1",
            port=read.number("COMMONPLACE_PORT", 8765, 0, 65_535),
            public_url=read.web_address("COMMONPLACE_PUBLIC_URL"),
            cors_origins=read.origins("COMMONPLACE_CORS_ORIGINS"),
            oauth=read.switch("COMMONPLACE_OAUTH") or False,
            jwt_jwks=read.text("COMMONPLACE_JWT_JWKS"),
            jwt_audience=read.text("COMMONPLACE_JWT_AUDIENCE"),
            jwt_issuer=read.text("COMMONPLACE_JWT_ISSUER"),
            jwt_namespace=read.text("COMMONPLACE_JWT_NAMESPACE") or "user/{sub}",
            jwt_actions_claim=read.text("COMMONPLACE_JWT_ACTIONS"),
            rate=read.text("COMMONPLACE_RATE"),
            max_entries=read.number("COMMONPLACE_MAX_ENTRIES", 0, 1, 10**12) or None,
            max_bytes=read.number("COMMONPLACE_MAX_BYTES", 0, 1, 10**15) or None,
            max_body_bytes=read.number(
                "COMMONPLACE_MAX_BODY_BYTES", max(32_000_000, 2 * message_bytes), 1_000, 10_000_000_000
            ),
            max_requests=read.number("COMMONPLACE_MAX_REQUESTS", 1_000, 1, 100_000),
            max_streams=read.number("COMMONPLACE_MAX_STREAMS", 1_000, 0, 100_000),
            request_seconds=read.number("COMMONPLACE_REQUEST_SECONDS", 60, 1, 86_400),
            stop_seconds=read.number("COMMONPLACE_STOP_SECONDS", 30, 0, 3_600),
            metrics_open=read.switch("COMMONPLACE_METRICS_OPEN") or False,
            tracing=read.tracing(),
            redact=cast("Redact", read.choice("COMMONPLACE_REDACT", ("off", "mask", "reject")) or "off"),
            redact_kinds=read.words("COMMONPLACE_REDACT_KINDS") or ("secrets",),
            redact_rules=read.path("COMMONPLACE_REDACT_RULES"),
            wrap_results=read.switch("COMMONPLACE_WRAP_RESULTS") or False,
            log_level=cast("LogLevel", read.choice("LOG_LEVEL", ("error", "warn", "info", "debug")) or "info"),
            mcp_protocol_version=read.text("MCP_PROTOCOL_VERSION"),
            mcp_debug_log=read.path("MCP_DEBUG_LOG_PATH"),
            has_colors=read.text("NO_COLOR") is None and read.text("TERM") != "dumb",
            pager=read.text("PAGER") or "less",
        )

    @property
    def limits(self) -> Limits:
        from commonplace.checks import Limits

        return Limits(
            record_characters=self.max_content_length,
            tags=self.max_tags_count,
            message_bytes=self.max_message_bytes,
        )

    def redaction(self) -> Redactor | None:
        """Return the redactor for all writes, or None; the file of rules is read again each time."""
        if self.redact == "off":
            return None
        from commonplace.redaction import Redactor, load_rules

        rules = () if self.redact_rules is None else load_rules(self.redact_rules)
        try:
            return Redactor(self.redact, kinds=self.redact_kinds, rules=rules)
        except ConfigurationError as error:
            raise ConfigurationError(f"COMMONPLACE_REDACT_KINDS or COMMONPLACE_REDACT_RULES: {error}") from error

    @property
    def namespace_labels(self) -> Namespace:
        from commonplace.checks import parse_namespace

        return parse_namespace(self.namespace or DEFAULT_NAMESPACE)

    @property
    def book_file(self) -> Path | None:
        """The file of the book, or None if it is not a file (`:memory:`, a server)."""
        if self.database_url is None:
            from commonplace.book import default_path

            return default_path()
        text = self.database_url.removeprefix("sqlite:///")
        if text == ":memory:" or "://" in text:
            return None
        return _absolute("the book", text)

    @property
    def place(self) -> str:
        """The book for people to read: its file, or its URL without user and password."""
        if self.book_file is not None or self.database_url is None:
            return str(self.book_file)
        url = hide_password(self.database_url)
        parts = urlsplit(url)
        return url if not parts.hostname else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def embedder(self, model: str | None = None) -> Embedder:
        """Return the embedder of the settings, or of another model with the same settings. Nothing is loaded yet."""
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
        """Return the API key for a model's endpoint. OPENAI_API_KEY is only sent to OpenAI."""
        provider, _, name = (model or "").partition(":")
        url = name.partition("@")[2]
        is_openai = provider == "openai" and (not url or urlsplit(url).hostname == "api.openai.com")
        return self.embeddings_key or (self.openai_key if is_openai else None)


def open_from_settings(settings: Settings, *, background: bool) -> Book:
    """Open the book of the settings; with `background`, new texts are embedded while the program runs."""
    if settings.remote is not None:
        from commonplace.api.client import connect

        return connect(settings.remote, settings.remote_key)
    from commonplace.book import Background, Pooling, open_book

    days = settings.keep_history_days
    return open_book(
        settings.database_url,
        embedder=settings.embedder(),
        make_embedder=settings.embedder,
        limits=settings.limits,
        busy_seconds=settings.db_query_timeout_ms / 1_000,
        pooling=Pooling(
            size=settings.db_max_pool_size,
            idle_seconds=settings.db_idle_timeout_ms / 1_000,
            replica_url=settings.database_replica_url,
        ),
        background=background and Background(settings.embeds, None if days is None else days * 86_400.0),
        redaction=settings.redaction(),
        date_order=settings.date_order,
    )


class _Reader:
    """Reads and checks variables."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str) -> str | None:
        return self._environ.get(name, "").strip() or None

    def path(self, name: str) -> Path | None:
        value = self.text(name)
        return None if value is None else _absolute(name, value)

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

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in (self.text(name) or "").split(",") if word.strip())

    def tracing(self) -> bool:
        given = self.switch("COMMONPLACE_TRACING")
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        return any(self.text(name) for name in endpoints) if given is None else given

    def number(self, name: str, default: int, least: int, most: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        number = int(value) if value.isascii() and value.lstrip("-").isdigit() else least - 1
        if not least <= number <= most:
            raise ConfigurationError(f"{name} is {value!r}; it must be a whole number from {least:,} to {most:,}")
        return number

    def namespace(self, name: str) -> str | None:
        from commonplace.checks import parse_namespace

        value = self.text(name)
        if value is None:
            return None
        try:
            parse_namespace(value)
        except CommonplaceError as error:
            raise ConfigurationError(f"{name} is {value!r}: {error}; write it like user/u-123") from error
        return value

    def web_address(self, name: str) -> str | None:
        value = self.text(name)
        if value is not None and not is_web_address(value):
            raise ConfigurationError(f"{name} is {value!r}, which is not a {WEB_ADDRESS_FORM}")
        return value

    def origins(self, name: str) -> tuple[str, ...]:
        for value in (values := self.words(name)):
            if not is_origin(value):
                raise ConfigurationError(f"{name} is {value!r}, which is not an {ORIGIN_FORM}")
        return values


def hide_password(address: str) -> str:
    """Replace the password in a URL with YOUR_PASSWORD; a file name is returned unchanged."""
    return _PASSWORD.sub(r"\g<user>YOUR_PASSWORD", address) if "://" in address else address


def is_web_address(text: str) -> bool:
    return _WEB_ADDRESS.fullmatch(text) is not None


def is_origin(text: str) -> bool:
    """Whether a browser can send this as an origin, such as app://obsidian.md of an app; `*` means any."""
    return text == "*" or _ORIGIN.fullmatch(text) is not None


def _absolute(name: str, path: str) -> Path:
    from commonplace.checks import local_path
    from commonplace.errors import InvalidInput

    try:
        return local_path(name, path)
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from error
