"""The session tests of the OpenAI Agents SDK, unmodified, with `CommonplaceSession` in the place of `SQLiteSession`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import agents.memory.sqlite_session
import source_suite

import commonplace
from commonplace.adapters.openai_agents import CommonplaceSession

BOOKS: dict[str, commonplace.Book] = {}
"""Open books by path: sessions of one file share it."""


class SQLiteSession(CommonplaceSession):
    """Made like the SDK's own. It also has its name, which stands in the errors that the tests expect."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        source_suite.Made.count += 1
        path = str(db_path)
        book = BOOKS.get(path) or commonplace.open(path, background=False)
        if path != ":memory:":
            BOOKS[path] = book
        super().__init__(book.space(sessions_table, messages_table), session_id, session_settings=session_settings)
        self.db_path = db_path


class PublicPartsOnly:
    """The SDK's own session without its private parts. The tests that it fails are those that touch one.

    The method for compaction stays: its name is private, but the SDK asks every session for it, and ours has it.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        source_suite.Made.count += 1
        self.__own = OWN(*given, **named)
        self.session_id, self.session_settings = self.__own.session_id, self.__own.session_settings
        self.db_path = self.__own.db_path

    async def get_items(self, limit: int | None = None) -> list[Any]:
        self.__own.session_settings = self.session_settings
        return await self.__own.get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        await self.__own.add_items(items)

    async def pop_item(self) -> Any:
        return await self.__own.pop_item()

    async def clear_session(self) -> None:
        await self.__own.clear_session()

    async def _get_compaction_snapshot(self, limit: int, **given: Any) -> Any:
        return await self.__own._get_compaction_snapshot(limit, **given)

    def close(self) -> None:
        self.__own.close()


OWN = agents.memory.sqlite_session.SQLiteSession
PRIVATE: dict[str, tuple[str, ...]] = {
    "replaces the private method `_insert_items` of the session": (
        "test_compaction_suffix.py::test_cancelled_suffix_transaction_settles_before_newer_append[sqlite",
    ),
    "reads or replaces the private SQLite connections and locks of the session": (
        "test_openai_responses_compaction_session.py::TestOpenAIResponsesCompactionSession::test_settled_clear_failure_invalidates_response_chain",
        "test_openai_responses_compaction_session.py::TestOpenAIResponsesCompactionSession::test_settled_pop_failure_invalidates_response_chain",
        "test_session.py::test_sqlite_session_close_closes_worker_thread_connections",
        "test_session.py::test_sqlite_session_close_retries_quarantined_connection",
        "test_session.py::test_sqlite_session_closes_retired_connections_before_the_next_allocation",
        "test_session.py::test_sqlite_session_file_lock_is_shared_across_instances",
        "test_session.py::test_sqlite_session_keeps_connections_of_live_worker_threads",
        "test_session.py::test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
        "test_session.py::test_sqlite_session_reaps_connections_from_exited_worker_threads",
        "test_session.py::test_sqlite_session_rollback_failure_evicts_connection",
    ),
    "writes damaged rows through the private `_locked_connection`": (
        "test_session.py::test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
        "test_session.py::test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
        "test_session.py::test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
        "test_session.py::test_sqlite_session_pop_item_skips_corrupt_most_recent",
    ),
    "drops a table of SQLiteSession by SQL, and reads its private `_connections`": (
        "test_session.py::test_sqlite_session_failed_clear_session_rolls_back",
        "test_session.py::test_sqlite_session_failed_pop_item_releases_write_lock",
    ),
}
"""The tests that touch a private part, by what they touch. `--public-parts` shows that they do: the SDK's own session
fails them too once it has only its public parts.
"""
TABLES = {
    "makes writes fail with a trigger on a table of SQLiteSession": (
        "test_compaction_suffix.py::test_failed_encrypted_suffix_transaction_preserves_original_tokens[sqlite",
        "test_compaction_suffix.py::test_suffix_transaction_rolls_back_failed_insert[sqlite",
    ),
    "writes into the tables of SQLiteSession with a connection of its own": (
        "test_session.py::test_sqlite_session_failed_add_items_releases_write_lock",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--public-parts", action="store_true", help="run the SDK's own session, without private parts")
    only_public = parser.parse_args().public_parts

    def swap() -> None:
        # Where tests import it from. The SDK's own modules keep their class, whose private parts they call.
        agents.SQLiteSession = agents.memory.SQLiteSession = PublicPartsOnly if only_public else SQLiteSession

    reasons = PRIVATE if only_public else {**PRIVATE, **TABLES}
    passed = source_suite.run("openai-agents", ("tests/memory",), swap, reasons)
    for book in BOOKS.values():
        book.close()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
