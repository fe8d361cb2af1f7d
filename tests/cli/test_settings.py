"""The environment, read once: every variable, its default, and what a wrong value is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonplace import ConfigurationError, Limits, Unavailable
from commonplace.settings import Settings, open_from_settings


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({"LOG_LEVEL": "", "DATABASE_URL": "  "}) == Settings()


@pytest.mark.promise("cli-settings")
def test_every_variable_is_read() -> None:
    read = Settings.from_environment(
        {
            "DATABASE_URL": "/data/book.db",
            "COMMONPLACE_NAMESPACE": "org/acme/alpha",
            "COMMONPLACE_AGENTS": "/agents",
            "COMMONPLACE_MODELS": "/models",
            "COMMONPLACE_EMBEDDINGS_KEY": "key-1",
            "OPENAI_API_KEY": "key-2",
            "EMBEDDINGS_MODEL": "Xenova/all-MiniLM-L6-v2",
            "EMBEDDINGS_POOLING": "Mean",
            "EMBEDDINGS_NORMALIZE": "false",
            "EMBEDDINGS_MAX_RETRIES": "0",
            "SEARCH_DEFAULT_LIMIT": "7",
            "SEARCH_MAX_LIMIT": "70",
            "COMMONPLACE_DATE_ORDER": "Day-First",
            "MAX_CONTENT_LENGTH": "500",
            "MAX_TAGS_COUNT": "3",
            "COMMONPLACE_MAX_MESSAGE_BYTES": "5000000",
            "DB_QUERY_TIMEOUT": "1500",
            "DB_MAX_POOL_SIZE": "5",
            "DB_IDLE_TIMEOUT": "2500",
            "COMMONPLACE_REDACT": "Mask",
            "COMMONPLACE_REDACT_KINDS": "secrets, email",
            "COMMONPLACE_REDACT_RULES": "/rules.toml",
            "COMMONPLACE_WRAP_RESULTS": "yes",
            "MCP_PROTOCOL_VERSION": "2025-03-26",
            "MCP_DEBUG_LOG_PATH": "/logs/mcp.log",
            "COMMONPLACE_MAX_BODY_BYTES": "5000",
            "COMMONPLACE_MAX_REQUESTS": "20",
            "COMMONPLACE_MAX_STREAMS": "0",
            "COMMONPLACE_REQUEST_SECONDS": "9",
            "COMMONPLACE_STOP_SECONDS": "0",
            "COMMONPLACE_METRICS_OPEN": "true",
            "COMMONPLACE_TRACING": "on",
            "COMMONPLACE_EMBED": "false",
            "COMMONPLACE_KEEP_HISTORY_DAYS": "90",
            "COMMONPLACE_HOST": "0.0.0.0",
            "COMMONPLACE_PORT": "8080",
            "COMMONPLACE_PUBLIC_URL": "https://memory.example",
            "COMMONPLACE_CORS_ORIGINS": "https://a.example, https://b.example,",
            "COMMONPLACE_JWT_JWKS": "/keys/jwks.json",
            "COMMONPLACE_JWT_AUDIENCE": "memory",
            "COMMONPLACE_JWT_ISSUER": "https://id.example",
            "COMMONPLACE_JWT_NAMESPACE": "org/{org}",
            "COMMONPLACE_JWT_ACTIONS": "scope",
            "COMMONPLACE_RATE": "100/m",
            "COMMONPLACE_MAX_ENTRIES": "1000",
            "COMMONPLACE_MAX_BYTES": "2000",
            "LOG_LEVEL": "DEBUG",
            "NO_COLOR": "1",
            "PAGER": "more -d",
        }
    )
    assert read == Settings(
        database_url="/data/book.db",
        namespace="org/acme/alpha",
        agents_folder=Path("/agents"),
        models_folder=Path("/models"),
        embeddings_key="key-1",
        openai_key="key-2",
        embeddings_model="Xenova/all-MiniLM-L6-v2",
        embeddings_pooling="mean",
        embeddings_normalize=False,
        embeddings_max_retries=0,
        search_default_limit=7,
        search_max_limit=70,
        date_order="day-first",
        max_content_length=500,
        max_tags_count=3,
        max_message_bytes=5_000_000,
        db_query_timeout_ms=1_500,
        db_max_pool_size=5,
        db_idle_timeout_ms=2_500,
        redact="mask",
        redact_kinds=("secrets", "email"),
        redact_rules=Path("/rules.toml"),
        wrap_results=True,
        mcp_protocol_version="2025-03-26",
        mcp_debug_log=Path("/logs/mcp.log"),
        max_body_bytes=5_000,
        max_requests=20,
        max_streams=0,
        request_seconds=9,
        stop_seconds=0,
        metrics_open=True,
        tracing=True,
        embeds=False,
        keep_history_days=90,
        host="0.0.0.0",
        port=8080,
        public_url="https://memory.example",
        cors_origins=("https://a.example", "https://b.example"),
        jwt_jwks="/keys/jwks.json",
        jwt_audience="memory",
        jwt_issuer="https://id.example",
        jwt_namespace="org/{org}",
        jwt_actions_claim="scope",
        rate="100/m",
        max_entries=1_000,
        max_bytes=2_000,
        log_level="debug",
        has_colors=False,
        pager="more -d",
    )
    assert read.limits == Limits(record_characters=500, tags=3, message_bytes=5_000_000)
    assert read.namespace_labels == ("org", "acme", "alpha")


def test_traces_are_on_where_a_collector_is_named_and_not_switched_off() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    assert Settings.from_environment(endpoint).tracing
    assert not Settings.from_environment({**endpoint, "COMMONPLACE_TRACING": "false"}).tracing
    assert not Settings.from_environment({}).tracing


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COMMONPLACE_MAX_BODY_BYTES", "10"),
        ("COMMONPLACE_MAX_MESSAGE_BYTES", "10"),
        ("COMMONPLACE_REQUEST_SECONDS", "0"),
        ("COMMONPLACE_METRICS_OPEN", "perhaps"),
        ("COMMONPLACE_NAMESPACE", "user//x"),
        ("EMBEDDINGS_POOLING", "max"),
        ("EMBEDDINGS_NORMALIZE", "perhaps"),
        ("EMBEDDINGS_MAX_RETRIES", "-1"),
        ("SEARCH_DEFAULT_LIMIT", "0"),
        ("SEARCH_DEFAULT_LIMIT", "ten"),
        ("SEARCH_MAX_LIMIT", "100000"),
        ("COMMONPLACE_DATE_ORDER", "us"),
        ("MAX_CONTENT_LENGTH", "1.5"),
        ("MAX_TAGS_COUNT", "²"),
        ("COMMONPLACE_REDACT", "sometimes"),
        ("COMMONPLACE_WRAP_RESULTS", "perhaps"),
        ("LOG_LEVEL", "loud"),
        ("COMMONPLACE_AGENTS", "~no-such-user/x"),
        ("COMMONPLACE_MODELS", "~no-such-user/x"),
        ("COMMONPLACE_REDACT_RULES", "~no-such-user/x"),
        ("MCP_DEBUG_LOG_PATH", "~no-such-user/x"),
        ("COMMONPLACE_PORT", "70000"),
        ("COMMONPLACE_MAX_ENTRIES", "0"),
        ("COMMONPLACE_MAX_BYTES", "much"),
        ("COMMONPLACE_PUBLIC_URL", "memory.example"),
        ("COMMONPLACE_PUBLIC_URL", "https://memory.example/#a"),
        ("COMMONPLACE_CORS_ORIGINS", "app.example"),
        ("COMMONPLACE_CORS_ORIGINS", "https://app.example/"),
    ],
)
def test_a_wrong_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is {value!r}"):
        Settings.from_environment({name: value})


def test_one_wrong_origin_among_others_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"COMMONPLACE_CORS_ORIGINS is 'b\.example', which is not an origin"):
        Settings.from_environment({"COMMONPLACE_CORS_ORIGINS": "https://a.example, b.example"})
    told = Settings.from_environment({"COMMONPLACE_CORS_ORIGINS": "*, app://obsidian.md"})
    assert told.cors_origins == ("*", "app://obsidian.md")


def test_a_default_limit_above_the_cap_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="SEARCH_DEFAULT_LIMIT is 50, above SEARCH_MAX_LIMIT"):
        Settings.from_environment({"SEARCH_DEFAULT_LIMIT": "50", "SEARCH_MAX_LIMIT": "20"})


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("openai:text-embedding-3-small", "from-openai"),
        ("openai:text-embedding-3-small@https://api.openai.com/v1", "from-openai"),
        ("openai:text-embedding-3-small@https://elsewhere.example/v1", None),
        ("openai:x@https://api.openai.com.evil.example/v1", None),
        ("ollama:nomic", None),
        (None, None),
    ],
)
def test_the_openai_key_goes_to_openai_alone(model: str | None, key: str | None) -> None:
    environ = {"OPENAI_API_KEY": "from-openai"}
    assert Settings.from_environment(environ).endpoint_key(model) == key
    assert Settings.from_environment({**environ, "COMMONPLACE_EMBEDDINGS_KEY": "own"}).endpoint_key(model) == "own"


def test_a_key_is_never_shown() -> None:
    environ = {"COMMONPLACE_EMBEDDINGS_KEY": "hidden-1", "OPENAI_API_KEY": "hidden-2"}
    assert "hidden" not in repr(Settings.from_environment(environ))


def test_the_book_is_opened_with_the_settings_limits(tmp_path: Path) -> None:
    settings = Settings(database_url=str(tmp_path / "b.db"), max_tags_count=1)
    with open_from_settings(settings, background=False) as book:
        assert book.limits.tags == 1
    assert settings.book_file == tmp_path / "b.db"
    assert Settings(database_url=":memory:").book_file is None
    assert Settings(database_url="postgres://x/y").book_file is None


def test_a_book_in_the_home_of_nobody_is_told() -> None:
    with pytest.raises(ConfigurationError, match="the book is '~no-such-user/book'; there is no such home folder"):
        _ = Settings(database_url="~no-such-user/book").book_file


def test_the_query_timeout_bounds_the_wait_for_a_busy_book(tmp_path: Path) -> None:
    settings = Settings.from_environment({"DATABASE_URL": str(tmp_path / "book.db"), "DB_QUERY_TIMEOUT": "100"})
    with (
        open_from_settings(settings, background=False) as book,
        open_from_settings(settings, background=False) as other,
    ):
        other.space("a").files.write("/x", "y")
        with other.store._queue.held(), pytest.raises(Unavailable, match=r"more than 0\.1 s"):
            book.space("a").files.write("/x", "z")
        assert book.space("a").files.read("/x") == "y"


@pytest.mark.promise("limits-of-a-message")
def test_a_service_takes_bodies_of_the_messages_that_it_allows() -> None:
    """There was no setting for the size of a message."""
    large = Settings.from_environment({"COMMONPLACE_MAX_MESSAGE_BYTES": "50000000"})
    assert (large.limits.message_bytes, large.max_body_bytes) == (50_000_000, 100_000_000)
    assert Settings.from_environment({}).max_body_bytes == 32_000_000
