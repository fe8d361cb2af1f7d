"""A whole book from one store into another, on any backends: everything and its history, checked, and resumable.

Namespaces go one by one, each whole or not at all, and each is read back and compared by the number of its states and
a hash over them. One that is there already and the same is passed over: so a move that was cut short is begun again
and goes on from where it was. Vectors are no part of it; they are made anew where the book goes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from commonplace.checks import Namespace
from commonplace.errors import Unavailable
from commonplace.store import NamespaceHead, Progress, State, Store

NAMESPACES_A_PAGE = 1_000
SYSTEM_PARTS = ("keys", "keys-used")
"""What stands beside the entries and belongs to the book: the keys that callers show."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What two copies of a namespace must share."""

    states: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Moved:
    namespaces: int
    states: int
    already_there: int
    """Namespaces that an earlier run had brought."""


def move_book(source: Store, target: Store, progress: Progress | None = None) -> Moved:
    """Copy every namespace; the source is only read. Raises Conflict where the target holds something else."""
    total = sum(source.stats().entries.values()) + source.stats().former_states
    namespaces = states = already_there = done = 0
    for namespace in _namespaces(source):
        head, wanted = _digest(source, namespace)
        if _digest(target, namespace)[1] == wanted:
            already_there += 1
        else:
            _move_one(source, target, head, wanted)
            namespaces += 1
            states += wanted.states
        done += wanted.states
        if progress is not None:
            progress(done, max(total, done), "states")
    for part in SYSTEM_PARTS:
        for key, value in source.system_list(part).items():
            target.system_put(part, key, value, only_new=True)
    return Moved(namespaces, states, already_there)


def _move_one(source: Store, target: Store, head: NamespaceHead, wanted: Digest) -> None:
    path = "/".join(head.namespace)

    def read() -> Iterator[State]:
        return (item for item in source.export([head.namespace]) if isinstance(item, State))

    target.adopt(head, read)
    _, found = _digest(target, head.namespace)
    if found != wanted:
        raise Unavailable(
            f"namespace {path} was written to while it was moved ({wanted.states:,} states before, {found.states:,} in "
            "the copy); stop its writers, purge it in the copy, and run the move again"
        )


def _namespaces(store: Store) -> Iterator[Namespace]:
    after: Namespace | None = None
    while page := store.namespaces(after=after, limit=NAMESPACES_A_PAGE):
        yield from page
        after = page[-1]


def _digest(store: Store, namespace: Namespace) -> tuple[NamespaceHead, Digest]:
    """The counters of a namespace, and a hash over its states; ids are each store's own and count only by order."""
    head = NamespaceHead(namespace, 0, 0, 0)
    states = 0
    hashed = hashlib.sha256()
    numbers: dict[int, int] = {}
    for item in store.export([namespace]):
        if isinstance(item, NamespaceHead):
            head = item
            hashed.update(f"{item.commit} {item.commit_time}\n".encode())
            continue
        states += 1
        number = numbers.setdefault(item.entry.id, len(numbers))
        hashed.update(json.dumps(_told(item, number), ensure_ascii=False, sort_keys=True, default=dict).encode())
    return head, Digest(states, hashed.hexdigest())


def _told(state: State, number: int) -> dict[str, Any]:
    told = asdict(state)
    told["entry"]["id"] = number
    return told
