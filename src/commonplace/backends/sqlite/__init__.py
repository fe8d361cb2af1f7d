"""The embedded backend: one SQLite file, or `:memory:`."""

from commonplace.backends.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
