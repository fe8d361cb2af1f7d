"""The PostgreSQL backend passes the conformance suite on a real server; and what only it can show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance import StoreConformance

from commonplace.backends.postgres import PostgresStore
from commonplace.store import Store
from postgres_server import empty, shared_book, shared_server


class TestPostgres(StoreConformance):
    @pytest.fixture
    def store(self, clock: Any) -> Iterator[PostgresStore]:
        empty(shared_book())
        store = PostgresStore(shared_book(), clock=clock)
        yield store
        store.close()

    def open_copy(self, path: Path) -> Store:
        store = PostgresStore(shared_server().create_database() + "?partitions=2")
        store.restore(path)
        return store
