"""Frozen runs: seeded random programs over the store, compared byte for byte with what an earlier version wrote.

A file in `frozen/` holds a program, one step a line, and after it what the program left behind: the outcome of each
step, the export, how each former text is kept, every key's history, every state, the namespace as of each commit, the
feed, and the same of a namespace that was adopted. Every backend must reproduce all of it. Only the numbers of entries
may differ; they are counted in the order in which the export shows them.

`PYTHONPATH=tests python tests/store/test_frozen_runs.py --freeze` makes the files from the code as it is. Do that only
when a change of behaviour is meant.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from commonplace.backends.sqlite import SQLiteStore
from commonplace.entry import Draft, Entry
from commonplace.errors import CommonplaceError
from commonplace.filters import Filter
from commonplace.space.history import draft_of, undo
from commonplace.store import NamespaceHead, Scan, State, Store, Transaction
from doubles import START, Clock

FROZEN = Path(__file__).parent / "frozen"
SEEDS = range(1, 9)
STEPS = 150
SECOND = 1_000_000

NAMESPACES = [["user", "u1"], ["user", "u10"], ["org", "ü"]]
KINDS = ["file", "record"]
KEYS = ["a", "a\x01b", "a\x01c", "a\x01c\x01d", "b", "b\x01b", "b\x01c", "ç", "日\x01本"]
PREFIXES = ["a", "a\x01", "b\x01", "日\x01"]
MOVES = [["a\x01", "b\x01"], ["b\x01", "a\x01"], ["a\x01c\x01", "x\x01"], ["x\x01", "a\x01c\x01"]]
WORDS = ["alpha", "bravo", "kilo", "zebra", "日", "sigma", "naïve", "🙂"]
EDITS = ["append", "prepend", "cut", "middle", "same"]
IDENTITIES = [None, None, None, "i1", "i2", "i3"]


# Programs


def make_program(seed: int) -> list[list[Any]]:
    """Steps that are data alone, so that a program stays the same whatever comes of it."""
    chance = random.Random(seed)
    return [_step(chance) for _ in range(STEPS)]


def _step(chance: random.Random) -> list[Any]:
    kind = chance.choices(
        ["write", "fail", "wait", "restore", "undo", "burst", "end_expired", "purge", "purge_prefix", "purge_history"],
        [60, 4, 12, 8, 14, 1, 3, 2, 1, 1],
    )[0]
    if kind == "wait":
        return [kind, chance.choice([1, 4, 30])]
    namespace = chance.choice(NAMESPACES)
    if kind in ("write", "fail"):
        size = chance.choice([1, 1, 1, 2, 5, 12])
        return [kind, namespace, chance.choice([None, "ann", "bob"]), [_change(chance) for _ in range(size)]]
    if kind in ("restore", "purge"):
        return [kind, namespace, chance.choice(KINDS), chance.choice(KEYS), chance.randrange(1, 12)]
    if kind == "purge_prefix":
        return [kind, namespace, chance.choice(KINDS), chance.choice(PREFIXES)]
    if kind == "burst":
        return [kind, namespace, chance.choice(KEYS), [_text(chance) for _ in range(40)]]
    return [kind, namespace, chance.choice([0, 0, 0, 1, 2, 5, 20])]


def _change(chance: random.Random) -> list[Any]:
    place = [chance.choice(KINDS), chance.choice(KEYS)]
    kind = chance.choices(
        ["put", "fresh", "edit", "delete", "move", "delete_range", "move_range", "touch", "operation"],
        [30, 3, 24, 10, 10, 3, 4, 3, 3],
    )[0]
    if kind in ("put", "fresh"):
        return [kind, *place, _fields(chance)]
    if kind == "edit":
        return [kind, *place, chance.choice(EDITS), _text(chance)]
    if kind == "move":
        return [kind, *place, chance.choice(KEYS), chance.choice([None, "bravo head"])]
    if kind == "delete_range":
        return [kind, place[0], chance.choice(PREFIXES)]
    if kind == "move_range":
        return [kind, place[0], *chance.choice(MOVES)]
    if kind == "operation":
        return [kind, chance.choice(["o1", "o2"]), chance.randrange(5), chance.choice([2, 20])]
    return [kind, *place]


def _fields(chance: random.Random) -> dict[str, Any]:
    text = _text(chance)
    is_json = chance.random() < 0.5
    return {
        "value": {"text": text, "n": chance.randrange(4)} if is_json else text,
        "text": chance.choice([text, text, None, "zebra"]) if is_json else chance.choice([None, None, None, "kilo"]),
        "heading": chance.choice([None, "alpha head", "kilo head"]),
        "attributes": {"tags": chance.sample(["t1", "t2", "t3"], chance.randrange(3)), "n": chance.randrange(2)},
        "identity": chance.choice(IDENTITIES),
        "expires_in": chance.choice([None, None, None, -1, 3, 20]),
        "created_at": chance.choice([None, None, None, START - 5 * SECOND]),
        "updated_at": chance.choice([None, None, None, START - 4 * SECOND]),
    }


def _text(chance: random.Random) -> str:
    words = " ".join(chance.choices(WORDS, k=chance.randrange(6)))
    return chance.choice([words, words, f"{words}\n\n" * 60, ""])


# Runs


class Run:
    """Plays a program on an empty store, and tells what it left behind as lines of JSON."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.numbers: dict[int, int] = {}
        self.times: dict[tuple[str, ...], list[int]] = {}

    def lines(self, program: list[list[Any]]) -> Iterator[str]:
        outcomes = [self._outcome(step) for step in program]
        exported = list(self.store.export())
        for item in exported:  # first, so that entries are counted in the order of their numbers
            if isinstance(item, State):
                self.numbers.setdefault(item.entry.id, len(self.numbers) + 1)
        for outcome in outcomes:
            yield self._line("outcome", outcome)
        for item in exported:
            yield self._line("export", asdict(item))
        for namespace in self.store.namespaces():
            yield from self._namespace(namespace)
        yield from self._adopted(exported)

    def _line(self, name: str, told: Any) -> str:
        return json.dumps([name, self._counted(told)], ensure_ascii=False, sort_keys=True)

    def _counted(self, told: Any) -> Any:
        """With entries' numbers replaced by the order in which the export shows them; 0 for one that was erased."""
        if isinstance(told, dict):
            is_entry = "id" in told and "namespace" in told
            found = {name: self._counted(value) for name, value in told.items()}
            return {**found, "id": self.numbers.get(told["id"], 0)} if is_entry else found
        return [self._counted(value) for value in told] if isinstance(told, (list, tuple)) else told

    # Steps

    def _outcome(self, step: list[Any]) -> Any:
        self.clock.advance(0.5)
        name, *arguments = step
        try:
            return getattr(self, f"_{name}")(*arguments)
        except CommonplaceError as error:
            return [type(error).__name__, str(error)]

    def _change(self, namespace: list[str], actor: str | None, work: Callable[[Transaction], Any]) -> Any:
        result, commit = self.store.write(tuple(namespace), work, actor=actor)
        self.times.setdefault(tuple(namespace), []).append(self.clock())
        return [commit, result]

    def _write(self, namespace: list[str], actor: str | None, changes: list[list[Any]]) -> Any:
        return self._change(namespace, actor, lambda transaction: [_made(transaction, *change) for change in changes])

    def _fail(self, namespace: list[str], actor: str | None, changes: list[list[Any]]) -> Any:
        def work(transaction: Transaction) -> None:
            for change in changes:
                _made(transaction, *change)
            raise CommonplaceError("on purpose")

        return self._change(namespace, actor, work)

    def _wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    def _restore(self, namespace: list[str], kind: str, key: str, revision: int) -> Any:
        def work(transaction: Transaction) -> Any:
            state = transaction.state(kind, key, revision)
            draft = None if state is None else replace(draft_of(state), expires_at=None)
            return None if draft is None else asdict(transaction.put(draft, is_restored=True))

        return self._change(namespace, "rita", work)

    def _burst(self, namespace: list[str], key: str, texts: list[str]) -> Any:
        """So many edits that a chain of deltas is broken by a whole text."""
        return [self._write(namespace, None, [["edit", "file", key, "middle", text or "-"]])[0] for text in texts]

    def _undo(self, namespace: list[str], back: int) -> Any:
        commit = self.store.namespace_stats(tuple(namespace)).commit - back

        def work(transaction: Transaction) -> Any:
            gone, back = undo(transaction, commit, lambda state: state.identity == "i3")
            return [_sorted(gone), _sorted(back)]

        return self._change(namespace, "uma", work)

    def _end_expired(self, namespace: list[str], _: int) -> Any:
        return self.store.end_expired(tuple(namespace))

    def _purge(self, namespace: list[str], kind: str, key: str, _: int) -> Any:
        return self.store.purge(tuple(namespace), kind=kind, key=key)

    def _purge_prefix(self, namespace: list[str], kind: str, prefix: str) -> Any:
        return self.store.purge(tuple(namespace), kind=kind, prefix=prefix)

    def _purge_history(self, namespace: list[str], seconds: int) -> Any:
        return self.store.purge(tuple(namespace), history_before=self.clock() - seconds * SECOND)

    # What is left

    def _namespace(self, namespace: tuple[str, ...]) -> Iterator[str]:
        usage = self.store.write(namespace, lambda transaction: transaction.usage())[0]
        stats = asdict(self.store.namespace_stats(namespace))
        stats["former_bytes"] = 0  # it depends on the version of zlib
        yield self._line("stats", [usage.entries, usage.bytes, usage.former_states, stats])
        for kind in KINDS:
            for key in (*KEYS, "x\x01d"):
                yield from self._key(namespace, kind, key)
            for identity in ("i1", "i2", "i3"):
                found = self.store.find(namespace, kind, identity)
                last = self.store.last_key(namespace, kind, identity)
                yield self._line("identity", [namespace, kind, identity, found and asdict(found), last])
        for time in self.times.get(namespace, ()):
            yield self._line("as of", [namespace, time, self._as_of(namespace, time)])
        for commit in range(1, stats["commit"] + 1):
            yield self._line("commit", [namespace, commit, *self._of_commit(namespace, commit)])
        yield self._line("feed", [namespace, self._feed(namespace)])

    def _key(self, namespace: tuple[str, ...], kind: str, key: str) -> Iterator[str]:
        history = self.store.history(namespace, kind, key)
        yield self._line("history", [namespace, kind, key, [asdict(line) for line in history]])
        for revision in range(1, max((line.revision for line in history), default=0) + 2):
            state = self.store.state(namespace, kind, key, revision)
            yield self._line("state", [namespace, kind, key, revision, state and asdict(state)])

    def _as_of(self, namespace: tuple[str, ...], time: int) -> list[Any]:
        try:
            page = self.store.scan(namespace, Scan(Filter(), as_of=time))
        except CommonplaceError as error:
            return [type(error).__name__, str(error)]
        return [[entry.kind, entry.key, entry.revision, zlib.crc32(_dump(entry))] for entry in page.entries]

    def _of_commit(self, namespace: tuple[str, ...], commit: int) -> tuple[Any, Any]:
        def work(transaction: Transaction) -> tuple[Any, Any]:
            begun, ended = transaction.states_begun(commit), transaction.states_ended(commit)
            return [[state.kind, state.key, state.revision] for state in begun], [
                [state.kind, state.key, state.revision] for state in ended
            ]

        begun, ended = self.store.write(namespace, work)[0]
        return sorted(begun), sorted(ended)

    def _feed(self, namespace: tuple[str, ...]) -> list[Any]:
        after, found = 0, []
        while True:
            try:
                changes = self.store.changes(namespace, after=after, limit=20)
            except CommonplaceError as error:
                found.append(str(error))
                floor = next(item.history_floor for item in self._heads(namespace))
                if floor <= after:
                    raise
                after = floor
                continue
            if not changes:
                return found
            # The feed promises the order of commits, keys and revisions; two kinds may share all three.
            changes.sort(key=lambda change: (change.commit, change.key, change.revision, change.kind, change.action))
            found += [asdict(change) for change in changes]
            after = changes[-1].commit

    def _heads(self, namespace: tuple[str, ...]) -> Iterator[NamespaceHead]:
        return (item for item in self.store.export([namespace]) if isinstance(item, NamespaceHead))

    def _adopted(self, exported: list[NamespaceHead | State]) -> Iterator[str]:
        """The first namespace under another name: its export must be the same, and its deltas go on from there."""
        head, *states = exported
        assert isinstance(head, NamespaceHead)
        own: list[State] = []
        for item in states:
            if not isinstance(item, State):
                break
            own.append(item)
        copy = replace(head, namespace=("copy",))
        self.store.adopt(copy, lambda: own)
        for item in self.store.export([("copy",)]):
            if isinstance(item, State):
                self.numbers[item.entry.id] = len(self.numbers) + 1
            yield self._line("adopted", asdict(item))
        self.clock.advance(1)
        yield self._line(
            "adopted", self._write(["copy"], "eve", [["edit", "file", key, "middle", "zebra"] for key in KEYS])
        )


def _made(transaction: Transaction, name: str, *arguments: Any) -> Any:
    if name in ("put", "fresh"):
        kind, key, fields = arguments
        if name == "fresh":
            key = f"x\x01{transaction.time}\x01{key}"
            if transaction.was_used(kind, key, key):
                return "used"
        expires_in = fields["expires_in"]
        expires_at = None if expires_in is None else transaction.time + expires_in * SECOND
        others = {name: value for name, value in fields.items() if name != "expires_in"}
        return asdict(transaction.put(Draft(kind, key, expires_at=expires_at, **others), is_fresh=name == "fresh"))
    if name == "edit":
        kind, key, how, words = arguments
        known = transaction.get(kind, key)
        text = known.value if known is not None and isinstance(known.value, str) else ""
        return asdict(transaction.put(Draft(kind, key, _edited(text, how, words))))
    if name == "move_range":
        return transaction.move_range(*arguments, lambda key: f"head {key[-1]}")
    if name == "operation":
        key, value, seconds = arguments
        before = transaction.operation(key)
        transaction.record_operation(key, {"n": value}, expires_at=transaction.time + seconds * SECOND)
        return before
    if name == "move" and transaction.get(*arguments[:2]) is None:
        return None
    made = getattr(transaction, name)(*arguments)
    return asdict(made) if isinstance(made, Entry) else made


def _edited(text: str, how: str, words: str) -> str:
    middle = len(text) // 2
    return {
        "append": f"{text} {words}",
        "prepend": f"{words} {text}",
        "cut": text[:middle],
        "middle": f"{text[:middle]}{words}{text[middle:]}",
        "same": text,
    }[how]


def _dump(entry: Entry) -> bytes:
    return json.dumps(asdict(replace(entry, id=0)), ensure_ascii=False, sort_keys=True).encode()


def _sorted(states: list[Entry]) -> list[Any]:
    return [asdict(state) for state in sorted(states, key=lambda state: (state.kind, state.key, state.revision))]


def delta_of(stored: Any) -> Any:
    """How a former text is kept, without what depends on the version of zlib."""
    if isinstance(stored, bytes) and stored[:1] == b"s":
        _, head, tail = struct.unpack_from("<cII", stored)
        return ["s", head, tail, zlib.decompress(stored[9:]).decode()]
    if isinstance(stored, bytes):
        return ["z", zlib.decompress(stored[1:]).decode()]
    return stored


# The files


def read(seed: int) -> tuple[list[list[Any]], list[str]]:
    lines = gzip.decompress((FROZEN / f"{seed}.jsonl.gz").read_bytes()).decode().splitlines()
    program = [json.loads(line) for line in lines[:STEPS]]
    return program, lines[STEPS:]


def freeze() -> None:
    for seed in SEEDS:
        program, clock = make_program(seed), Clock()
        store = SQLiteStore(":memory:", clock=clock)
        lines = [*(json.dumps(step, ensure_ascii=False) for step in program), *play_sqlite(store, clock, program)]
        store.close()
        (FROZEN / f"{seed}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


def play_sqlite(store: SQLiteStore, clock: Clock, program: list[list[Any]]) -> list[str]:
    run = Run(store, clock)
    lines = list(run.lines(program))
    rows = store._writing.execute(
        "SELECT entry, revision, text, value FROM history ORDER BY entry, revision"
    ).fetchall()
    return lines + [run._line("kept", [run.numbers[row[0]], row[1], *map(delta_of, row[2:])]) for row in rows]


def check(found: list[str], frozen: list[str]) -> None:
    for number, (line, expected) in enumerate(zip(found, frozen, strict=False)):
        assert line == expected, f"line {number} after the program"
    assert len(found) == len(frozen)


@pytest.mark.parametrize("seed", SEEDS)
def test_sqlite_reproduces_a_frozen_run(seed: int, tmp_path: Path, clock: Clock) -> None:
    program, frozen = read(seed)
    store = SQLiteStore(tmp_path / "book.db", clock=clock, durability="normal")
    try:
        check(play_sqlite(store, clock, program), frozen)
    finally:
        store.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_postgres_reproduces_a_frozen_run(seed: int, clock: Clock) -> None:
    import psycopg

    from commonplace.backends.postgres import PostgresStore
    from commonplace.backends.postgres.reader import unpack_delta
    from postgres_server import empty, shared_book

    program, frozen = read(seed)
    store = PostgresStore(shared_book(), clock=clock)
    try:
        empty(shared_book())
        run = Run(store, clock)
        found = list(run.lines(program))
        with psycopg.connect(shared_book().partition("?")[0], autocommit=True) as connection:
            rows = connection.execute(
                "SELECT entry, revision, text, value FROM commonplace.history ORDER BY entry, revision"
            ).fetchall()
        for entry, revision, *texts in rows:
            kept = [None if text is None else delta_of(unpack_delta(text)) for text in texts]
            found.append(run._line("kept", [run.numbers[entry], revision, *kept]))
        check(found, frozen)
    finally:
        store.close()


@pytest.mark.parametrize("seed", [2, 8])
def test_postgres_keeps_the_namespaces_of_one_tenant_apart(seed: int, clock: Clock) -> None:
    """Row-level security divides tenants, so between these only the conditions of the statements do."""
    from commonplace.backends.postgres import PostgresStore
    from postgres_server import empty, shared_book

    program = [
        [["user", "u1", "-".join(part)] if part in NAMESPACES else part for part in step] for step in read(seed)[0]
    ]
    other_clock = Clock()
    in_memory = SQLiteStore(":memory:", clock=other_clock)
    expected = list(Run(in_memory, other_clock).lines(program))
    in_memory.close()
    store = PostgresStore(shared_book(), clock=clock)
    try:
        empty(shared_book())
        check(list(Run(store, clock).lines(program)), expected)
    finally:
        store.close()


if __name__ == "__main__" and "--freeze" in sys.argv:
    freeze()
