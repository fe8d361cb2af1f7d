"""What a handle may do in its namespace: which actions, how much it may hold, and what no text may contain.

They hold below every face, so that no route or tool can forget them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast, get_args

from commonplace.checks import Namespace
from commonplace.entry import Draft
from commonplace.errors import Forbidden, TooLarge
from commonplace.space.keys import FILE
from commonplace.space.measures import file_measures
from commonplace.store import Transaction, Usage

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
    root: Namespace | None = None
    """The limits are on what the namespaces at and below this one hold together; None: on the written one alone."""

    @property
    def is_limited(self) -> bool:
        return self.max_entries is not None or self.max_bytes is not None

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

    def kept(
        self,
        work: Callable[[Transaction], T],
        held: Usage | None = None,
        note: Callable[[Usage], None] | None = None,
    ) -> Callable[[Transaction], T]:
        """A change under these rules: what breaks one is refused whole.

        `held` is what is there below the root already, and `note` is told what the change adds.
        """
        if self.screen is None and not self.is_limited:
            return work

        def change(transaction: Transaction) -> T:
            transaction.screen = None if self.screen is None else self.screened
            if not self.is_limited:
                return work(transaction)
            before = transaction.usage()
            result = work(transaction)
            more = transaction.usage() - before
            self.check_room(before if held is None else held, more)
            if note is not None:
                note(more)
            return result

        return change

    def check_room(self, held: Usage, more: Usage) -> None:
        """Refuse what would be more than allowed. A deletion may always be: who is full has to get out."""
        after = held + more
        if self.max_entries is not None and more.entries > 0 and after.entries > self.max_entries:
            raise TooLarge(
                f"{self._where} would hold {after.entries:,} entries; at most {self.max_entries:,} are allowed; "
                "delete some first"
            )
        is_deletion = more.entries < 0 and more.bytes <= 0
        if self.max_bytes is None or more.all_bytes <= 0 or is_deletion or after.all_bytes <= self.max_bytes:
            return
        raise TooLarge(
            f"{self._where} would hold {after.all_bytes:,} bytes; at most {self.max_bytes:,} are allowed, and "
            f"{held.bytes:,} are used by entries and {held.former_bytes:,} by their history; deleting keeps history: "
            "purge erases it (it needs the action 'admin'), or have the limit raised"
        )

    @property
    def _where(self) -> str:
        if self.root is None:
            return "the namespace"
        return f"{'/'.join(self.root)} with what is below it" if self.root else "the book"
