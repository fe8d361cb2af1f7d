"""MongoDB against the same model of plain dictionaries as SQLite, and its replays of the frozen programs."""

from __future__ import annotations

import json
from typing import Any

import pymongo
import pytest
from hypothesis import settings
from test_frozen_runs import SEEDS, Run, check, delta_of, read
from test_state_machine import StoreMachine

from commonplace.backends.mongodb import MongoStore
from commonplace.store import Store
from doubles import Clock, rounds
from mongodb_server import empty, shared_book


class MongoMachine(StoreMachine):
    def open_store(self) -> Store:
        store = MongoStore(shared_book(), clock=self.clock)
        empty(shared_book())
        return store


TestMongoMachine = MongoMachine.TestCase
TestMongoMachine.settings = settings(max_examples=rounds(12), stateful_step_count=25)


def uncompressed(line: str) -> str:
    """A line of how a former text is kept, without whether a whole one is compressed: a range is, entry by entry."""
    name, values = json.loads(line)
    if name != "kept":
        return line
    kept = [value[-1] if isinstance(value, list) and value[0] == "z" else value for value in values]
    return json.dumps([name, kept])


@pytest.mark.parametrize("seed", SEEDS)
def test_mongodb_reproduces_a_frozen_run(seed: int, clock: Clock) -> None:
    program, frozen = read(seed)
    store = MongoStore(shared_book(), clock=clock)
    try:
        empty(shared_book())
        run = Run(store, clock)
        found = list(run.lines(program))
        with pymongo.MongoClient[dict[str, Any]](shared_book()) as client:
            rows = list(client.get_default_database()["history"].find({}, sort=[("entry", 1), ("revision", 1)]))
        for row in rows:
            kept = [delta_of(row[name]) if name in row else None for name in ("text", "value")]
            found.append(run._line("kept", [run.numbers[row["entry"]], row["revision"], *kept]))
        check(list(map(uncompressed, found)), list(map(uncompressed, frozen)))
    finally:
        store.close()
