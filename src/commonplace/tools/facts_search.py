"""Facts as a search finds them, and a search that can also narrow by a fact's whole content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from commonplace.checks import JSON, Namespace, moment
from commonplace.entry import Entry, Hit
from commonplace.filters import Condition, hold, parse_conditions
from commonplace.space.names import MESSAGE

if TYPE_CHECKING:
    from commonplace.space.space import Space

_PAGE = 1_000
_LAST_OFFSET = 10_000


@dataclass(frozen=True, slots=True)
class Fact:
    """A found memory. `value` is `{"content": …}` with the content as it was given."""

    namespace: Namespace
    key: str
    value: Mapping[str, JSON]
    created_at: datetime
    updated_at: datetime
    score: float

    def dict(self) -> dict[str, Any]:
        return {
            "namespace": list(self.namespace),
            "key": self.key,
            "value": self.value,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "score": self.score,
        }


class FoundFacts(list[Fact]):
    """Facts, the best first; `notices` say where vectors could not take part."""

    def __init__(self, facts: Iterable[Fact], notices: Sequence[str] = ()) -> None:
        super().__init__(facts)
        self.notices = tuple(notices)


@dataclass(frozen=True, slots=True)
class FactSearch:
    """One search. A filter's field is looked up in an object content, then in the value, then in the attributes."""

    space: Space
    query: str
    kinds: Sequence[str]
    below: bool
    filter: Mapping[str, Any] | None

    def page(self, limit: int, offset: int) -> FoundFacts:
        """The facts from `offset` on, the best first."""
        notices: dict[str, None] = {}
        if not isinstance(self.filter, Mapping) or "content" not in self.filter:
            return FoundFacts([*map(_fact, self._hits(self.filter, limit, offset, notices))], [*notices])
        rest = {name: wanted for name, wanted in self.filter.items() if name != "content"}
        conditions = parse_conditions({"content": self.filter["content"]})
        # Only the facts' own dialect has a field named content that is the whole content: the store cannot look for it.
        matching = (hit for hit in self._all_hits(rest, notices) if _has_content(hit.entry, conditions))
        facts = [*map(_fact, islice(matching, offset, offset + limit))]
        return FoundFacts(facts, [*notices])

    def _hits(
        self, filter: Mapping[str, Any] | None, limit: int, offset: int, notices: dict[str, None]
    ) -> Sequence[Hit]:
        found = self.space.search(
            self.query, limit=limit, offset=offset, kinds=self.kinds, filter=filter, below=self.below
        )
        notices.update(dict.fromkeys(found.notices))
        return found.hits

    def _all_hits(self, filter: Mapping[str, Any], notices: dict[str, None]) -> Iterator[Hit]:
        for offset in range(0, _LAST_OFFSET + 1, _PAGE):
            hits = self._hits(filter, _PAGE, offset, notices)
            yield from hits
            if len(hits) < _PAGE:
                return


def _has_content(entry: Entry, conditions: Sequence[Condition]) -> bool:
    if not isinstance(entry.value, Mapping) or "content" not in entry.value:
        entry = replace(entry, value={"content": entry.value})
    return hold(conditions, entry.value, entry.attributes)


def _fact(hit: Hit) -> Fact:
    entry = hit.entry
    content = entry.value
    if hit.kind == MESSAGE and isinstance(content, Mapping):
        content = content.get("content")
    return Fact(
        namespace=entry.namespace,
        key=hit.key,
        value={"content": content},
        created_at=moment(entry.created_at),
        updated_at=moment(entry.updated_at),
        score=hit.score,
    )
