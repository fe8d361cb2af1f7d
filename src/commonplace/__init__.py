"""Long-term memory for AI agents: files, records and conversations, with offline semantic search, history and undo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commonplace.errors import (
    AlreadyExists,
    Ambiguous,
    CommonplaceError,
    ConfigurationError,
    Conflict,
    Corrupt,
    Forbidden,
    InvalidInput,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    Outdated,
    RateLimited,
    TooLarge,
    Unauthorized,
    Unavailable,
)

if TYPE_CHECKING:
    from commonplace import aio as aio
    from commonplace.api.client import connect
    from commonplace.book import Book
    from commonplace.book import open_book as open
    from commonplace.checks import Limits
    from commonplace.space.space import Space

__version__ = "0.2.0"

__all__ = [
    "AlreadyExists",
    "Ambiguous",
    "Book",
    "CommonplaceError",
    "ConfigurationError",
    "Conflict",
    "Corrupt",
    "Forbidden",
    "InvalidInput",
    "InvalidPath",
    "IsADirectory",
    "Limits",
    "NotADirectory",
    "NotFound",
    "Outdated",
    "RateLimited",
    "Space",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "connect",
    "open",
]

# Submodules are imported on first use, so that `import commonplace` is fast.
_LAZY = {
    "open": ("commonplace.book", "open_book"),
    "connect": ("commonplace.api.client", "connect"),
    "Book": ("commonplace.book", "Book"),
    "Limits": ("commonplace.checks", "Limits"),
    "Space": ("commonplace.space.space", "Space"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "aio":
        return import_module("commonplace.aio")
    if name not in _LAZY:
        raise AttributeError(f"module 'commonplace' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__", "aio"]
