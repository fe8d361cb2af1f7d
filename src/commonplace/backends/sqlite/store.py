"""The store on SQLite: a file in WAL mode that many processes share, or a database in memory."""

from __future__ import annotations

from commonplace.backends.sqlite.store_care import CareStore
from commonplace.backends.sqlite.store_entries import EntryStore
from commonplace.backends.sqlite.store_search import SearchStore


class SQLiteStore(EntryStore, SearchStore, CareStore):
    """Entries in one SQLite file. Safe for many threads and many processes."""
