"""Copies a whole book with its history from one store to another, on any backends. Verified and resumable.

Namespaces are copied one by one, each completely or not at all. Each is read back and compared by the number of states
and a hash. A namespace that is already there and identical is skipped, so you can run an interrupted move again.
Vectors are not copied; the target embeds its texts again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from commonplace.backends.ledger import is_late
from commonplace.checks import Namespace
from commonplace.errors import Unavailable
from commonplace.space.records import confirmations_of
from commonplace.store import NamespaceHead, Progress, State, Store

NAMESPACES_A_PAGE = 1_000
DAY = 86_400_000_000
Export = Callable[[list[Namespace]], Iterable[NamespaceHead | State]]
SYSTEM_PARTS = ("keys", "keys-used")
"""What the book has besides entries: the API keys and when they were last used."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What must be equal in two copies of a namespace."""

    states: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Moved:
    namespaces: int
    states: int
    already_there: int
    """Namespaces that an earlier run copied."""


def move_book(source: Store, target: Store, progress: Progress | None = None, *, now: int | None = None) -> Moved:
    """Copy every namespace; the source is only read. Raises Conflict if the target has other entries.

    With `now`, times after it are set back (see `mended`).
    """
    export = source.export if now is None else partial(mended, source, now)
    total = sum(source.stats().entries.values()) + source.stats().former_states
    namespaces = states = already_there = done = 0
    for namespace in _namespaces(source):
        head, wanted = _digest(export, namespace)
        if _digest(target.export, namespace)[1] == wanted:
            already_there += 1
        else:
            _move_one(export, target, head, wanted)
            namespaces += 1
            states += wanted.states
        confirmations = confirmations_of(namespace)
        for id, confirmed in source.system_list(confirmations).items():
            target.system_put(confirmations, id, confirmed, only_new=True)
        done += wanted.states
        if progress is not None:
            progress(done, max(total, done), "states")
    for part in SYSTEM_PARTS:
        for key, value in source.system_list(part).items():
            target.system_put(part, key, value, only_new=True)
    return Moved(namespaces, states, already_there)


def mended(store: Store, now: int, namespaces: Sequence[Namespace]) -> Iterator[NamespaceHead | State]:
    """Export with the times of commits that are ahead of the clock set back, to follow the last correct one in order.

    The time until an entry expires stays the same. If no time is correct, they start at the beginning of today.
    """
    for namespace in namespaces:
        times = set[int]()
        for item in store.export([namespace]):
            if isinstance(item, State):
                times |= {item.valid_from} if item.ended is None else {item.valid_from, item.ended.at}
            else:
                times.add(item.commit_time)
        late = sorted(time for time in times if time > is_late(now))
        last = max(times - set(late), default=now - now % DAY)
        new = {time: last + number for number, time in enumerate(late, 1)}
        for item in store.export([namespace]):
            yield _set_back(item, new)


def _set_back(item: NamespaceHead | State, new: Mapping[int, int]) -> NamespaceHead | State:
    if isinstance(item, NamespaceHead):
        return replace(item, commit_time=new.get(item.commit_time, item.commit_time))
    entry, ended = item.entry, item.ended
    expires_at = entry.expires_at
    if expires_at is not None and item.valid_from in new:
        expires_at += new[item.valid_from] - item.valid_from
    return replace(
        item,
        entry=replace(
            entry,
            created_at=new.get(entry.created_at, entry.created_at),
            updated_at=new.get(entry.updated_at, entry.updated_at),
            expires_at=expires_at,
        ),
        valid_from=new.get(item.valid_from, item.valid_from),
        ended=None if ended is None else replace(ended, at=new.get(ended.at, ended.at)),
    )


def _move_one(export: Export, target: Store, head: NamespaceHead, wanted: Digest) -> None:
    path = "/".join(head.namespace)

    def read() -> Iterator[State]:
        return (item for item in export([head.namespace]) if isinstance(item, State))

    target.adopt(head, read)
    _, found = _digest(target.export, head.namespace)
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


def _digest(export: Export, namespace: Namespace) -> tuple[NamespaceHead, Digest]:
    """Return the counters of a namespace and a hash of its states. Ids differ between stores, so their order counts."""
    head = NamespaceHead(namespace, 0, 0, 0)
    states = 0
    hashed = hashlib.sha256()
    numbers: dict[int, int] = {}
    for item in export([namespace]):
        if isinstance(item, NamespaceHead):
            head = item
            hashed.update(f"{item.commit} {item.commit_time}\n".encode())
            continue
        states += 1
        number = numbers.setdefault(item.entry.id, len(numbers))
        hashed.update(json.dumps(_fields(item, number), ensure_ascii=False, sort_keys=True, default=dict).encode())
    return head, Digest(states, hashed.hexdigest())


def _fields(state: State, number: int) -> dict[str, Any]:
    fields = asdict(state)
    fields["entry"]["id"] = number
    return fields
