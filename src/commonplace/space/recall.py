"""What an agent is reminded of before it answers: the last messages, and those that the query brings to mind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, overload

from commonplace.checks import check_text
from commonplace.engine.search import Searcher, SearchRequest, SearchResult
from commonplace.entry import Entry, Hit
from commonplace.errors import InvalidInput
from commonplace.filters import Filter
from commonplace.space import timeline
from commonplace.space.conversation import check_count
from commonplace.space.handle import Handle
from commonplace.space.keys import MESSAGE, name_of_entry, thread_of_entry
from commonplace.space.messages import Message, in_time_order, message_of

RecallScope = Literal["thread", "resource"]
MAX_TOP = 100
MAX_NEIGHBOURS = 100
MAX_QUERY_CHARACTERS = 8_000
"""A turn may be a pasted log; its beginning is enough to be reminded by, and longer queries are refused by search."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    query: str | None
    last: int
    top: int
    neighbours: int
    scope: RecallScope

    def __post_init__(self) -> None:
        if self.query is not None:
            check_text("query", self.query)
        check_count("last", self.last, 0, timeline.MAX_PAGE)
        check_count("top", self.top, 0, MAX_TOP)
        check_count("neighbours", self.neighbours, 0, MAX_NEIGHBOURS)
        if self.scope not in ("thread", "resource"):
            raise InvalidInput(f'scope must be "thread" or "resource", not {self.scope!r}')


@dataclass(frozen=True, slots=True)
class Recall(Sequence[Message]):
    """The messages, each once, in time order; `hits` are those that the query found, best first."""

    messages: tuple[Message, ...]
    hits: tuple[Hit, ...] = ()
    notices: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.messages[index]

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)


def recall(handle: Handle, searcher: Searcher, thread: Entry, request: RecallRequest) -> Recall:
    """The last messages of a thread, and what its query finds there or in all threads of its resource."""
    found = _search(handle, searcher, thread, request)
    chosen = {entry.key: entry for entry in timeline.last(handle, timeline.messages_filter(thread.key), request.last)}
    for hit in found:
        for entry in timeline.around(handle, hit.entry, request.neighbours, request.neighbours):
            chosen[entry.key] = entry
    messages = tuple(map(message_of, sorted(chosen.values(), key=in_time_order)))
    named = tuple(replace(hit, key=name_of_entry(hit.entry)) for hit in found)
    return Recall(messages, named, found.notices)


def _search(handle: Handle, searcher: Searcher, thread: Entry, request: RecallRequest) -> SearchResult:
    query = (request.query or "").strip()[:MAX_QUERY_CHARACTERS]
    if not query or not request.top:
        return SearchResult(())
    if request.scope == "thread":
        narrowed = timeline.messages_filter(thread.key)
    else:
        narrowed = Filter(kinds=(MESSAGE,), resource=cast(str, thread.attributes["resourceId"]))
    asked = SearchRequest(query, narrowed, request.top, conversation=thread_of_entry)
    return searcher.search([handle.namespace], asked)
