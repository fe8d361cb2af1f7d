"""What a handle may do in its namespace: which actions, how much it may hold, and what no text may contain.

They hold below every face, so that no route or tool can forget them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast, get_args

from commonplace.entry import Draft
from commonplace.errors import Forbidden, TooLarge
from commonplace.space.keys import FILE
from commonplace.space.measures import file_measures
from commonplace.store import Transaction

T = TypeVar("T")
Action = Literal["read", "write", "delete", "admin"]
Screen = Callable[[Draft], Draft]
ACTIONS: tuple[Action, ...] = get_args(Action)
_SCREENED_BY = "screened_by"


@dataclass(frozen=True, slots=True)
class Rules:
    """Everybody who has a handle may read; the other actions are named. `screen` checks or changes what is written."""

    actions: frozenset[Action] = frozenset(ACTIONS)
    max_entries: int | None = None
    max_bytes: int | None = None
    screen: Screen | None = None

    def check(self, *actions: Action) -> None:
        for action in actions:
            if action not in self.actions:
                raise Forbidden(f"this access may not {action}; use one that has the action {action!r}")

    def with_screen(self, screen: Screen) -> Rules:
        """These rules, with another screen before their own."""
        own = self.screen
        return replace(self, screen=screen if own is None else lambda draft: own(screen(draft)))

    def screened(self, draft: Draft) -> Draft:
        """What may be written in place of a draft. Asked for before a transaction, it is not worked out again in it."""
        if self.screen is None or vars(draft).get(_SCREENED_BY) is self.screen:
            return draft
        new = self.screen(draft)
        if new is not draft and new.kind == FILE:
            new = replace(new, attributes={**new.attributes, **file_measures(cast(str, new.value))})
        vars(new)[_SCREENED_BY] = self.screen
        return new

    def kept(self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """A change under these rules: what breaks one is refused whole."""
        if self.screen is None and self.max_entries is None and self.max_bytes is None:
            return work

        def change(transaction: Transaction) -> T:
            transaction.screen = None if self.screen is None else self.screened
            before = transaction.usage()
            result = work(transaction)
            after = transaction.usage()
            for held, most, had, what in (
                (after.entries, self.max_entries, before.entries, "entries"),
                (after.bytes, self.max_bytes, before.bytes, "bytes"),
            ):
                if most is not None and held > max(most, had):
                    raise TooLarge(
                        f"the namespace would hold {held:,} {what}; at most {most:,} are allowed; delete some first"
                    )
            return result

        return change
