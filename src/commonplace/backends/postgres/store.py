"""The store on PostgreSQL: one schema of a database that any number of servers share."""

from __future__ import annotations

from commonplace.backends.postgres.store_care import CareStore
from commonplace.backends.postgres.store_entries import EntryStore
from commonplace.backends.postgres.store_search import SearchStore


class PostgresStore(EntryStore, SearchStore, CareStore):
    """Entries in PostgreSQL. Safe for many threads and many servers."""
