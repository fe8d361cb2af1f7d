"""The program, run in this process on a book of its own, without a model unless a test asks for one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commonplace.cli import main

VARIABLES = (
    "COMMONPLACE_NAMESPACE COMMONPLACE_EMBEDDINGS_KEY OPENAI_API_KEY EMBEDDINGS_MODEL EMBEDDINGS_POOLING"
    " EMBEDDINGS_NORMALIZE EMBEDDINGS_MAX_RETRIES SEARCH_DEFAULT_LIMIT SEARCH_MAX_LIMIT MAX_CONTENT_LENGTH"
    " MAX_TAGS_COUNT COMMONPLACE_DATE_ORDER LOG_LEVEL NO_COLOR PAGER DB_QUERY_TIMEOUT DB_MAX_POOL_SIZE DB_IDLE_TIMEOUT"
    " MCP_PROTOCOL_VERSION MCP_DEBUG_LOG_PATH COMMONPLACE_HOST COMMONPLACE_PORT COMMONPLACE_PUBLIC_URL"
    " COMMONPLACE_CORS_ORIGINS COMMONPLACE_JWT_JWKS COMMONPLACE_JWT_AUDIENCE COMMONPLACE_JWT_ISSUER"
    " COMMONPLACE_JWT_NAMESPACE COMMONPLACE_JWT_ACTIONS COMMONPLACE_RATE COMMONPLACE_MAX_ENTRIES COMMONPLACE_MAX_BYTES"
)


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def book_file(tmp_path: Path) -> Path:
    return tmp_path / "book.db"


@pytest.fixture
def run(book_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    for name in VARIABLES.split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABASE_URL", str(book_file))
    monkeypatch.setenv("COMMONPLACE_MODELS", str(book_file.parent / "no-models"))
    monkeypatch.chdir(book_file.parent)

    def run(*words: str) -> Ran:
        code = main(words)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def give_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
