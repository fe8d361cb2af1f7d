"""A change that is made once, however often it is asked for: what a caller's own key was used for is kept with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from commonplace.checks import JSON, check_line
from commonplace.entry import Entry
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.store import Transaction

T = TypeVar("T")

KEPT_SECONDS = 24 * 60 * 60
MAX_KEY_BYTES = 255


@dataclass(frozen=True, slots=True)
class Once:
    """A caller's key for one operation, and what tells this operation from another one under the same key."""

    key: str
    fingerprint: str

    def __post_init__(self) -> None:
        if not self.key.strip():
            raise InvalidInput("the idempotency key is empty; send any text that is new for each operation")
        check_line("idempotency key", self.key, max_bytes=MAX_KEY_BYTES)

    def done(self, work: Callable[[Transaction], T], operation: str) -> Callable[[Transaction], T]:
        """A change that is made the first time; a repeated one answers with the states that were made then.

        For changes that give an entry or a tuple of entries. `operation` names the kind of change: what another kind
        made is no answer to this one.
        """

        def once(transaction: Transaction) -> T:
            known = transaction.operation(self.key)
            if known is not None:
                return cast(T, self._former_answer(transaction, known, operation))
            result = work(transaction)
            entries = result if isinstance(result, tuple) else (result,)
            if not all(isinstance(entry, Entry) for entry in entries):
                raise InvalidInput("this change cannot be made once only; leave the idempotency key out")
            value: dict[str, JSON] = {
                "fingerprint": self.fingerprint,
                "operation": operation,
                "is_many": isinstance(result, tuple),
                # By number, not by name: a purge erases a name, and this is kept.
                "states": [[entry.commit, entry.id, entry.revision] for entry in cast(tuple[Entry, ...], entries)],
            }
            transaction.record_operation(self.key, value, expires_at=transaction.time + KEPT_SECONDS * 1_000_000)
            return result

        return once

    def _former_answer(self, transaction: Transaction, known: JSON, operation: str) -> Entry | tuple[Entry, ...]:
        value = cast("dict[str, Any]", known)
        # A server of the version before, which may still run, does not name the operation.
        if (value["fingerprint"], value.get("operation", operation)) != (self.fingerprint, operation):
            raise Conflict(f"the idempotency key {self.key} was used for another request; send a new one")
        commits = {commit: transaction.begun(commit) for commit in {commit for commit, _, _ in value["states"]}}
        states = {(commit, state.id, state.revision): state for commit, begun in commits.items() for state in begun}
        try:
            found = tuple(states[commit, id, revision] for commit, id, revision in value["states"])
        except KeyError:
            raise NotFound(f"what was made under the idempotency key {self.key} has been erased since") from None
        return found if value["is_many"] else found[0]
