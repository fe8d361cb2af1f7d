"""Which conversations are about a question: threads, best first, each with the messages that say so.

A thread is as good as its best message, and better where several are nearly as good; its title counts like a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from commonplace.engine.search import MAX_LIMIT, Searcher, SearchRequest, SearchResult
from commonplace.entry import Entry, Hit
from commonplace.filters import Filter
from commonplace.language import evidence
from commonplace.space.conversation import Thread, check_count, check_id
from commonplace.space.handle import Handle
from commonplace.space.keys import MESSAGE, THREAD, name_of_entry, thread_of_entry

MAX_THREADS = 100
HITS_A_THREAD = 3
"""So many hits are looked at for each thread that is wanted; more where they are of too few threads."""


@dataclass(frozen=True, slots=True)
class ThreadSearchRequest:
    query: str
    limit: int
    resource: str | None
    now: int | None

    def __post_init__(self) -> None:
        check_count("limit", self.limit, 1, MAX_THREADS)
        if self.resource is not None:
            check_id("resource", self.resource)


@dataclass(frozen=True, slots=True)
class ThreadHit:
    """A conversation that a search found; `hits` are what was found in it, best first."""

    thread: Thread
    score: float
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class ThreadSearchResult(Sequence[ThreadHit]):
    """The threads, best first. `notices` say where vectors could not take part."""

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
    """Find messages and titles, put them together by thread, and rank the threads by them."""
    count = HITS_A_THREAD * request.limit
    while True:
        found = _hits(handle, searcher, request, count)
        if len(found) < count or count >= MAX_LIMIT or len(_threads(found)) >= request.limit:
            break
        count = min(MAX_LIMIT, 4 * count)
    hits = _threads(found)
    scores = {id: evidence.conversation([hit.score for hit in some]) for id, some in hits.items()}
    # Hits come best first, so among equals the thread with the better hit stays first.
    best = sorted(scores, key=lambda id: -scores[id])
    live = _live(handle, best, request.limit)
    return ThreadSearchResult(
        tuple(ThreadHit(thread_of(entry), scores[entry.key], tuple(hits[entry.key])) for entry in live), found.notices
    )


def _threads(found: Iterable[Hit]) -> dict[str, list[Hit]]:
    hits: dict[str, list[Hit]] = {}
    for hit in found:
        hits.setdefault(thread_of_entry(hit.entry) or "", []).append(hit)
    return hits


def _hits(handle: Handle, searcher: Searcher, request: ThreadSearchRequest, count: int) -> SearchResult:
    narrowed = Filter(kinds=(MESSAGE, THREAD), resource=request.resource)
    asked = SearchRequest(request.query, narrowed, count, name=name_of_entry, now=request.now)
    return searcher.search([handle.namespace], asked)


def _live(handle: Handle, ids: Sequence[str], limit: int) -> list[Entry]:
    """The first so many of these threads that there are; one that was deleted meanwhile makes room for the next."""
    return [entry for entry in handle.store.get(handle.namespace, THREAD, ids) if entry is not None][:limit]
