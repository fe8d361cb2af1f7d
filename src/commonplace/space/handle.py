"""The store narrowed to one namespace and one caller: every write of a space passes `Handle.write`.

A write can carry an idempotency key (`Once`), so that a repeated request is answered and not executed again, and
preconditions (`Expected`), so that it is made only if entries are unchanged since the caller read them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, cast

from commonplace.checks import JSON, Namespace, check_line
from commonplace.engine.indexer import Indexer
from commonplace.entry import Draft, Entry
from commonplace.errors import Conflict, InvalidInput, NotFound, Outdated, TooLarge
from commonplace.space.rules import Action, Meter, Note, Rules
from commonplace.store import Store, Transaction, Usage

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

Operation: TypeAlias = Literal[
    "Files.append",
    "Files.delete",
    "Files.edit",
    "Files.make_directory",
    "Files.move",
    "Files.write",
    "Files.write_all",
    "Items.clear",
    "Items.delete",
    "Items.refresh",
    "Items.write_all",
    "MemoryStores.delete_memory",
    "MemoryStores.update_memory",
    "Records.create",
    "Records.delete",
    "Records.delete_all",
    "Records.tag_all",
    "Records.undelete",
    "Records.update",
    "Space.import",
    "Space.restore",
    "Space.undo",
    "ThreadMessages.add",
    "ThreadMessages.clear",
    "ThreadMessages.delete_messages",
    "ThreadMessages.replace_messages",
    "ThreadMessages.update_message",
    "Threads.begin",
    "Threads.clone",
    "Threads.create",
    "Threads.delete",
    "Threads.suggest_title",
    "Threads.transfer",
    "Threads.update",
    "WorkingMemories.clear",
    "WorkingMemories.write",
]
"""What a write does. The names are stored with idempotency keys, so never change one, whatever the code is called."""

KEPT_SECONDS = 24 * 60 * 60
"""How long an idempotency key is remembered."""

MAX_KEY_BYTES = 255
MAX_NAMESPACES = 10_000
"""How many namespaces one call may read. Each is read on its own."""

_STORED_ENDING = ".<locals>.work"
"""Ends every stored operation name. Older versions, which may run on the same database, compare the whole name."""

Seen: TypeAlias = int | tuple[int, int]
"""A revision, or a pair of a revision and `updated_at` in microseconds. A pair identifies one state.

A revision alone does not: a new message updates its thread without a new revision, and after a purge revisions start
again at 1.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """A precondition: the revisions that an entry may have. 0 means that it does not exist, () any revision but 0."""

    kind: str
    key: str
    name: str
    """What the caller calls the entry; `key` is its stored key."""
    revisions: tuple[Seen, ...]

    def guard(self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """Wrap a change so that it raises Outdated, and changes nothing, if the entry has another revision."""

        def change(transaction: Transaction) -> T:
            entry = transaction.get(self.kind, self.key)
            found, at = (0, 0) if entry is None else (entry.revision, entry.updated_at)
            if not {found, (found, at)}.intersection(self.revisions) and (self.revisions or not found):
                present = f"is at revision {found}" if found else "does not exist"
                if any(isinstance(seen, tuple) and seen[0] == found for seen in self.revisions):
                    present += ", but has changed since it was read"
                raise Outdated(f"{self.kind} {self.name} {present}; read it again, then decide", found)
            return work(transaction)

        return change


@dataclass(frozen=True, slots=True)
class Once:
    """An idempotency key, and the fingerprint of the request that it is used for."""

    key: str
    fingerprint: str

    def __post_init__(self) -> None:
        if not self.key.strip():
            raise InvalidInput("the idempotency key is empty; send any text that is new for each operation")
        check_line("idempotency key", self.key, max_bytes=MAX_KEY_BYTES)

    def guard(self, work: Callable[[Transaction], T], operation: Operation) -> Callable[[Transaction], T]:
        """Wrap a change so that only the first call makes it; later calls return the states that the first one made.

        This works for changes that return an entry or a tuple of entries. A key that was used for another operation
        raises Conflict.
        """

        def change(transaction: Transaction) -> T:
            known = transaction.operation(self.key)
            if known is not None:
                return cast("T", self._first_result(transaction, known, operation))
            result = work(transaction)
            entries = result if isinstance(result, tuple) else (result,)
            if not all(isinstance(entry, Entry) for entry in entries):
                raise InvalidInput("this change does not support an idempotency key; leave it out")
            value: dict[str, JSON] = {
                "fingerprint": self.fingerprint,
                "operation": operation + _STORED_ENDING,
                "is_many": isinstance(result, tuple),
                # By number: a purge erases names, but not this row.
                "states": [[entry.commit, entry.id, entry.revision] for entry in cast("tuple[Entry, ...]", entries)],
            }
            transaction.record_operation(self.key, value, expires_at=transaction.time + KEPT_SECONDS * 1_000_000)
            return result

        return change

    def _first_result(self, transaction: Transaction, known: JSON, operation: Operation) -> Entry | tuple[Entry, ...]:
        value = cast("dict[str, Any]", known)
        name = operation + _STORED_ENDING
        # Keys that an older version stored have no operation.
        if (value["fingerprint"], value.get("operation", name)) != (self.fingerprint, name):
            raise Conflict(f"the idempotency key {self.key} was used for another request; send a new one")
        commits = {commit for commit, _, _ in value["states"]}
        states = {
            (commit, state.id, state.revision): state
            for commit in commits
            for state in transaction.states_begun(commit)
        }
        try:
            found = tuple(states[commit, id, revision] for commit, id, revision in value["states"])
        except KeyError:
            raise NotFound(f"the result stored under the idempotency key {self.key} was erased since") from None
        return found if value["is_many"] else found[0]


@dataclass(frozen=True, slots=True)
class Handle:
    """A store narrowed to one namespace, for one actor and under that actor's rules."""

    store: Store
    namespace: Namespace
    indexer: Indexer
    actor: str | None
    rules: Rules = Rules()  # noqa: RUF009 - frozen
    once: Once | None = None
    expected: tuple[Expected, ...] = ()
    meter: Meter | None = None
    """Measures the usage below a root of limits. Without it, limits apply to the namespace alone."""

    def write(self, operation: Operation, work: Callable[[Transaction], T], *actions: Action) -> tuple[T, int | None]:
        """Run a change. Return its result and its commit number, which is None when nothing changed.

        The caller needs the permission `write`, or those that `actions` names.
        """
        self.rules.check(*(actions or ("write",)))
        if not self.namespace:
            raise InvalidInput("nothing can be written above all namespaces; name one")

        def run(held: Usage | None = None, note: Note | None = None) -> tuple[T, int | None]:
            change = self.rules.guard(work, held, note)
            for expected in self.expected:
                change = expected.guard(change)
            if self.once is not None:
                change = self.once.guard(change, operation)
            self.indexer.begin_write()
            try:
                return self.store.write(self.namespace, change, actor=self.actor)
            finally:
                self.indexer.end_write()

        result = run() if self.meter is None else self.meter.run(self.rules, run)
        if result[1] is not None:
            self.indexer.notice_write()
        return result

    def prepared(self, draft: Draft) -> Draft:
        """A draft with its passages, which are made before the transaction, unless the store makes them after it."""
        return draft if self.store.indexes_later else draft.with_passages()

    @property
    def default_resource(self) -> str:
        """Whose threads and working memory these are, unless a caller says: the last label of the namespace."""
        if not self.namespace:
            raise InvalidInput("nothing is kept above all namespaces; name one")
        return self.namespace[-1]

    def namespaces_below(self, holding: Sequence[str] | None) -> list[Namespace]:
        """The namespaces at and below this one, if the caller may read them all at once.

        With `holding`, only those with a live entry of one of these kinds.
        """
        self.rules.check_reach(self.namespace)
        found: list[Namespace] = []
        while page := self.store.namespaces(self.namespace, after=found[-1] if found else None, holding=holding):
            found += page
            if len(found) > MAX_NAMESPACES:
                raise TooLarge(
                    f"more than {MAX_NAMESPACES:,} namespaces are below "
                    f"{'/'.join(self.namespace) or 'the root'}; name one that is further down"
                )
        return found

    def get(self, kind: str, key: str, *, as_of: int | None = None) -> Entry | None:
        return self.store.get(self.namespace, kind, [key], as_of=as_of)[0]


# The async API. Each class of a space has a mirror next to it, so that a new method needs no other file.


def awaited(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    """A method of an async mirror: calls the method of the wrapped object in a worker thread."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        import asyncio  # takes tens of milliseconds, and the command line does not need it

        # By name: the wrapped object may be remote, with its own implementation.
        return asyncio.to_thread(getattr(self._wrapped, method.__name__), *args, **kwargs)

    return call
