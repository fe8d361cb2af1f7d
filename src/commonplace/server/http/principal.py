"""Who calls, and what that opens: one namespace or those below it, some actions, limits. Arguments never widen it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from commonplace.book import Book
from commonplace.checks import Namespace, parse_namespace
from commonplace.errors import Forbidden
from commonplace.space.rules import Rules
from commonplace.space.space import Space

Reach = Literal["own", "below", "all"]
AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller as its credentials describe it. `name` stands in the history of what it writes."""

    name: str
    namespace: Namespace
    reach: Reach = "own"
    rules: Rules = field(default_factory=Rules)

    def resolve(self, asked: str | None) -> Namespace:
        """The namespace of a request: the caller's own, or the one it names within its reach."""
        if asked is None:
            return self.namespace
        namespace = parse_namespace(asked)
        is_below = namespace[: len(self.namespace)] == self.namespace
        if namespace == self.namespace or self.reach == "all" or (self.reach == "below" and is_below):
            return namespace
        raise Forbidden(f"this access does not reach the namespace {asked}; leave it out, or use another key")

    def space(self, book: Book, asked: str | None, *, face: str, client: str | None = None) -> Space:
        """The one way from a caller to a memory. The write's actor is `name face client`."""
        actor = " ".join(filter(None, (self.name, face, client)))
        return book.space(*self.resolve(asked), actor=actor, rules=self.rules)

    def agent_space(self, book: Book, agent: str | None, *, face: str, client: str | None = None) -> Space:
        """The memory of an agent, `("agent", id)` below the caller's own namespace, so that no key reaches another's.

        Who reaches everything shares the book's own agents, whose memories lie at the top. Without an agent it is the
        caller's own memory.
        """
        above = () if self.reach == "all" else self.namespace
        labels = self.namespace if agent is None else (*above, AGENT, agent)
        actor = " ".join(filter(None, (self.name, face, client)))
        return book.space(*labels, actor=actor, rules=self.rules)
