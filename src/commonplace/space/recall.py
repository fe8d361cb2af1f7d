"""What a query finds in conversations: messages to remind an agent of, and threads that are about a subject.

A thread scores as its best message, and higher if several are nearly as good. Its title counts like a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, overload

from commonplace.checks import check_text
from commonplace.engine.search import MAX_LIMIT, Searcher, SearchRequest, SearchResult, check_relevance
from commonplace.entry import Entry, Hit
from commonplace.errors import InvalidInput
from commonplace.filters import Filter
from commonplace.language import fusion
from commonplace.language.weights import HITS_A_THREAD, MESSAGES_WINDOW, THREADS_BLOCKS, THREADS_WINDOW
from commonplace.space.conversation import MAX_PAGE, Thread, check_count, check_id
from commonplace.space.handle import Handle
from commonplace.space.messages import (
    Message,
    in_time_order,
    last_messages,
    message_of,
    messages_around,
    messages_filter,
)
from commonplace.space.names import MESSAGE, THREAD, has_speaker, is_by_assistant, name_of_entry, thread_of_entry
from commonplace.space.records import Record

RecallScope = Literal["thread", "resource"]
MAX_TOP = 100
MAX_NEIGHBOURS = 100
MAX_QUERY_CHARACTERS = 8_000
"""A turn may be a pasted log. Its start is enough for a query, and search refuses longer ones."""

MAX_THREADS = 100


# Messages


@dataclass(frozen=True, slots=True)
class RecallRequest:
    query: str | None
    last: int
    top: int
    neighbours: int
    scope: RecallScope
    min_relevance: float | None = None

    def __post_init__(self) -> None:
        if self.query is not None:
            check_text("query", self.query)
        check_count("last", self.last, 0, MAX_PAGE)
        check_count("top", self.top, 0, MAX_TOP)
        check_count("neighbours", self.neighbours, 0, MAX_NEIGHBOURS)
        if self.scope not in ("thread", "resource"):
            raise InvalidInput(f'scope must be "thread" or "resource", not {self.scope!r}')
        check_relevance(self.min_relevance)


@dataclass(frozen=True, slots=True)
class Recall(Sequence[Message]):
    """The messages, each once, in time order; `hits` are those that the query found, best first.

    `standing` are the confirmed instructions and preferences, whatever the query is.
    """

    messages: tuple[Message, ...]
    hits: tuple[Hit, ...] = ()
    notices: tuple[str, ...] = ()
    standing: tuple[Record, ...] = ()

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


def recall(
    handle: Handle, searcher: Searcher, thread: Entry, request: RecallRequest, standing: tuple[Record, ...] = ()
) -> Recall:
    """The last messages of a thread, and what its query finds there or in all threads of its resource."""
    found = _search(handle, searcher, thread, request)
    chosen = {entry.key: entry for entry in last_messages(handle, messages_filter(thread.key), request.last)}
    for hit in found:
        for entry in messages_around(handle, hit.entry, request.neighbours, request.neighbours):
            chosen[entry.key] = entry
    messages = tuple(map(message_of, sorted(chosen.values(), key=in_time_order)))
    named = tuple(replace(hit, key=name_of_entry(hit.entry)) for hit in found)
    return Recall(messages, named, found.notices, standing)


def _search(handle: Handle, searcher: Searcher, thread: Entry, request: RecallRequest) -> SearchResult:
    query = (request.query or "").strip()[:MAX_QUERY_CHARACTERS]
    if not query or not request.top:
        return SearchResult(())
    if request.scope == "thread":
        narrowed = messages_filter(thread.key)
    else:
        narrowed = Filter(kinds=(MESSAGE,), resource=cast("str", thread.attributes["resourceId"]))
    asked = SearchRequest(
        query,
        narrowed,
        request.top,
        conversation=thread_of_entry,
        has_speaker=has_speaker,
        by_assistant=is_by_assistant,
        window=MESSAGES_WINDOW,
        min_relevance=request.min_relevance,
    )
    return searcher.search([handle.namespace], asked)


# Threads


@dataclass(frozen=True, slots=True)
class ThreadSearchRequest:
    query: str
    limit: int
    resource: str | None
    now: int | None
    min_relevance: float | None = None

    def __post_init__(self) -> None:
        check_count("limit", self.limit, 1, MAX_THREADS)
        if self.resource is not None:
            check_id("resource", self.resource)


@dataclass(frozen=True, slots=True)
class ThreadHit:
    """A thread that a search found; `hits` are its messages and title that matched, best first."""

    thread: Thread
    score: float
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class ThreadSearchResult(Sequence[ThreadHit]):
    """The threads, best first. `notices` say if vectors could not be used."""

    threads: tuple[ThreadHit, ...]
    notices: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> ThreadHit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ThreadHit]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.threads[index]

    def __len__(self) -> int:
        return len(self.threads)

    def __iter__(self) -> Iterator[ThreadHit]:
        return iter(self.threads)


def search_threads(
    handle: Handle, searcher: Searcher, request: ThreadSearchRequest, thread_of: Callable[[Entry], Thread]
) -> ThreadSearchResult:
    """Find messages and titles, group them by thread, and rank the threads by them.

    The threads of a query are one list, which `limit` cuts. It is made of blocks of hits, which do not depend on the
    limit. Threads that first appear in a further block come after those of the blocks before, and their scores are not
    higher.
    """
    ends = [*THREADS_BLOCKS, MAX_LIMIT]
    while len(ends) > 1 and ends[0] < HITS_A_THREAD * request.limit:
        ends.pop(0)
    for end in ends:
        found = _hits(handle, searcher, request, end)
        ranked = _in_blocks(found)
        live = _live(handle, list(ranked), request.limit)
        if len(live) >= request.limit or len(found) < end:
            break
    return ThreadSearchResult(tuple(ThreadHit(thread_of(entry), *ranked[entry.key]) for entry in live), found.notices)


def _in_blocks(found: Sequence[Hit]) -> dict[str, tuple[float, tuple[Hit, ...]]]:
    """The score and the hits of each thread, best first."""
    ranked: dict[str, tuple[float, tuple[Hit, ...]]] = {}
    start, highest = 0, 1.0
    for end in (*THREADS_BLOCKS, MAX_LIMIT):
        hits = {id: some for id, some in _threads(found[start:end]).items() if id not in ranked}
        scores = {id: fusion.conversation_score([hit.score for hit in some]) for id, some in hits.items()}
        # Hits come best first, so among equal threads the one with the better hit stays first.
        for id in sorted(scores, key=lambda id: -scores[id]):
            highest = min(highest, scores[id])
            ranked[id] = (highest, tuple(hits[id]))
        start = end
    return ranked


def _threads(found: Iterable[Hit]) -> dict[str, list[Hit]]:
    hits: dict[str, list[Hit]] = {}
    for hit in found:
        hits.setdefault(thread_of_entry(hit.entry) or "", []).append(hit)
    return hits


def _hits(handle: Handle, searcher: Searcher, request: ThreadSearchRequest, count: int) -> SearchResult:
    narrowed = Filter(kinds=(MESSAGE, THREAD), resource=request.resource)
    asked = SearchRequest(
        request.query,
        narrowed,
        count,
        name=name_of_entry,
        of_threads=True,
        now=request.now,
        window=THREADS_WINDOW,
        min_relevance=request.min_relevance,
    )
    return searcher.search([handle.namespace], asked)


def _live(handle: Handle, ids: Sequence[str], limit: int) -> list[Entry]:
    """The first `limit` of these threads that still exist."""
    return [entry for entry in handle.store.get(handle.namespace, THREAD, ids) if entry is not None][:limit]
