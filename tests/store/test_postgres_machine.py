"""PostgreSQL against the same model of plain dictionaries as SQLite: any operations in any order."""

from __future__ import annotations

from hypothesis import settings
from test_state_machine import StoreMachine

from commonplace.backends.postgres import PostgresStore
from commonplace.store import Store
from doubles import rounds
from postgres_server import empty, shared_book


class PostgresMachine(StoreMachine):
    def open_store(self) -> Store:
        store = PostgresStore(shared_book(), clock=self.clock)
        empty(shared_book())
        return store


TestPostgresMachine = PostgresMachine.TestCase
TestPostgresMachine.settings = settings(max_examples=rounds(12), stateful_step_count=25)
