"""LangGraph's own tests of its stores, unmodified, with `CommonplaceStore` in the place of the store that they test.

`python langgraph_store.py PACKAGE`: `langgraph-checkpoint` has those of `InMemoryStore`, `langgraph-checkpoint-sqlite`
those of `SqliteStore` and `AsyncSqliteStore`.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import source_suite

import commonplace
from commonplace.adapters.langgraph import CommonplaceStore


class InMemoryStore(CommonplaceStore):
    """Made like LangGraph's own."""

    def __init__(self, *, index: Any = None) -> None:
        source_suite.Made.count += 1
        super().__init__(commonplace.open(":memory:", background=False), index=index)
        self.index_config = index


def opened(path: str, index: Any, ttl: Any) -> Any:
    source_suite.Made.count += 1
    if index is not None and index.get("text_fields"):  # the name that SqliteStore has for `fields`
        index = {**index, "fields": index["text_fields"]}
    return commonplace.open(":memory:" if path == ":memory:" else f"{path}.book", background=False), index, ttl


class SqliteStore(CommonplaceStore):
    """Made like LangGraph's own. What has expired is never returned, so there is nothing to sweep."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, path: str, *, index: Any = None, ttl: Any = None) -> Any:
        book, index, ttl = opened(path, index, ttl)
        with book:
            store = cls(book, index=index, ttl=ttl)
            store.index_config = index
            yield store

    def setup(self) -> None: ...

    def sweep_ttl(self) -> None: ...

    def start_ttl_sweeper(self) -> None: ...

    def stop_ttl_sweeper(self) -> None: ...


class AsyncSqliteStore(CommonplaceStore):
    """The same, with its coroutines."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, path: str, *, index: Any = None, ttl: Any = None) -> Any:
        book, index, ttl = opened(path, index, ttl)
        with book:
            store = cls(book, index=index, ttl=ttl)
            store.index_config = index
            yield store

    async def setup(self) -> None: ...

    async def sweep_ttl(self) -> None: ...

    async def start_ttl_sweeper(self) -> None: ...

    async def stop_ttl_sweeper(self) -> None: ...


REASONS: dict[str, dict[str, tuple[str, ...]]] = {
    "langgraph-checkpoint": {},
    "langgraph-checkpoint-sqlite": {
        "reads the SQL statements or the SQLite connection of SqliteStore": (
            "test_store.py::test_nonnull_migrations",
            "test_store.py::test_vector_store_initialization",
        ),
        "wants a ValueError for a filter key with quotes, which is SQL there; here it is data and finds nothing": (
            "test_store.py::test_sql_injection_vulnerability",
        ),
        "wants an error from the sync methods in an event loop; ours work there": (
            "test_async_store.py::test_no_running_loop",
        ),
        "wants the number of rows that a sweep removed; ours never returns expired items and has no sweep": (
            "test_ttl.py::test_ttl_refresh",
        ),
        "wants no refresh on reads by default; LangGraph's own default is True, unlike its SqliteStore's": (
            "test_ttl.py::test_ttl_override_default",
        ),
    },
}
TESTS = {
    "langgraph-checkpoint": ("tests/test_store.py",),
    "langgraph-checkpoint-sqlite": ("tests/test_store.py", "tests/test_async_store.py", "tests/test_ttl.py"),
}


def swap_in_memory() -> None:
    import langgraph.store.memory

    langgraph.store.memory.InMemoryStore = InMemoryStore


def swap_sqlite() -> None:
    import langgraph.store.sqlite
    import langgraph.store.sqlite.aio

    langgraph.store.sqlite.SqliteStore = SqliteStore
    langgraph.store.sqlite.AsyncSqliteStore = langgraph.store.sqlite.aio.AsyncSqliteStore = AsyncSqliteStore


def main() -> int:
    (package,) = sys.argv[1:]
    swap = swap_in_memory if package == "langgraph-checkpoint" else swap_sqlite
    return 0 if source_suite.run(package, TESTS[package], swap, REASONS[package]) else 1


if __name__ == "__main__":
    sys.exit(main())
