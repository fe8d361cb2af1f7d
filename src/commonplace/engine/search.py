"""Search over one or more namespaces: keywords and meaning, fused, then read live and cut to the page.

A search always answers. Where vectors are missing, lag behind or have no model, keywords answer alone and a notice
says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from commonplace.checks import Namespace, check_text
from commonplace.embedding import Embedder, calibrate
from commonplace.engine.indexing import Indexer
from commonplace.engine.models import Models, embed
from commonplace.entry import Entry, Hit
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.filters import Filter
from commonplace.language import bm25
from commonplace.language.chunks import Span
from commonplace.language.fusion import Fused, fuse
from commonplace.language.passages import LEVEL_FREQUENCY, STEP_LENGTH, frequency_level, length_step, passages
from commonplace.language.snippets import snippet
from commonplace.language.tokens import query_terms
from commonplace.store import Candidate, Store, TermCounts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MAX_QUERY_BYTES = 100_000
MAX_LIMIT = 1_000
MAX_OFFSET = 10_000
MAX_QUERY_TERMS = 64
LAG_SECONDS = 0.2
"""How long a search waits for what was written just before it to be embedded."""

FEWEST_CANDIDATES = 20
"""From each side. Both sides score all of them, so more change nothing: on LoCoMo 20 and 100 give the same recall."""

LIVE = 2**62
"""A commit that no namespace reaches: a state of that commit is the live one."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    query: str
    filter: Filter
    limit: int = 10
    offset: int = 0
    as_of: int | None = None
    name: Callable[[Entry], str] = attrgetter("key")
    """What people call an entry."""

    def __post_init__(self) -> None:
        check_text("query", self.query, max_bytes=MAX_QUERY_BYTES)
        if not self.query.strip():
            raise InvalidInput("query is required and must be a non-empty string")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise InvalidInput(f"limit must be between 1 and {MAX_LIMIT:,}, not {self.limit}")
        if not 0 <= self.offset <= MAX_OFFSET:
            raise InvalidInput(f"offset must be between 0 and {MAX_OFFSET:,}, not {self.offset}")


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """The hits, best first. `notices` say where vectors could not take part."""

    hits: tuple[Hit, ...]
    notices: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The query as a vector of the model that serves."""

    model: str
    vector: NDArray[float32]
    calibration: tuple[float, float]


class Searcher:
    """Answers searches on one store."""

    def __init__(self, store: Store, models: Models, indexer: Indexer) -> None:
        self._store = store
        self._models = models
        self._indexer = indexer
        self._embed_query = lru_cache(maxsize=256)(self._embed_query_anew)

    def search(self, namespaces: Sequence[Namespace], request: SearchRequest) -> SearchResult:
        notices: dict[str, None] = {}
        meaning = self._meaning(notices)
        vector = None if meaning is None else self._query_vector(meaning, request.query, notices)
        terms = dict(list(query_terms(request.query).items())[:MAX_QUERY_TERMS])
        found: list[Hit] = []
        deadline = time.monotonic() + LAG_SECONDS
        for namespace in namespaces:
            if vector is not None:
                self._hurry(namespace, max(0.0, deadline - time.monotonic()), notices)
            found += self._search_one(namespace, request, terms, vector)
        found.sort(key=lambda hit: (-hit.score, -hit.entry.updated_at, -hit.entry.id))
        return SearchResult(tuple(found[request.offset : request.offset + request.limit]), tuple(notices))

    # The query's meaning

    def _meaning(self, notices: dict[str, None]) -> Embedder | None:
        """The embedder whose vectors serve; a book without vectors yet will be served by the chosen one."""
        serving, _ = self._store.models()
        try:
            return self._models.chosen if serving is None else self._models.for_identity(serving)
        except CommonplaceError as error:
            notices[f"keywords only: {error}"] = None
            return None

    def _query_vector(self, embedder: Embedder, query: str, notices: dict[str, None]) -> _Meaning | None:
        try:
            vector = self._embed_query(embedder.identity, query)
            return _Meaning(embedder.identity, vector, embedder.calibration)
        except CommonplaceError as error:
            notices[f"keywords only: {error}"] = None
            return None

    def _embed_query_anew(self, model: str, query: str) -> NDArray[float32]:
        vectors = embed(self._models.for_identity(model), [query], "query")
        return vectors.reshape(-1)

    def _hurry(self, namespace: Namespace, seconds: float, notices: dict[str, None]) -> None:
        try:
            state = self._indexer.hurry(namespace, seconds)
        except CommonplaceError as error:
            notices[f"new passages are found by keywords only: {error}"] = None
            return
        if state.serving != state.target:
            notices[f"the book is being embedded anew with {state.target}; until then {state.serving} answers"] = None
        elif state.pending:
            notices[f"{state.pending:,} passages wait for their vectors and are found by keywords only"] = None

    # One namespace

    def _search_one(
        self,
        namespace: Namespace,
        request: SearchRequest,
        terms: Mapping[str, float],
        meaning: _Meaning | None,
    ) -> list[Hit]:
        wanted = request.offset + request.limit
        count = max(FEWEST_CANDIDATES, 2 * wanted)
        filter = request.filter
        if request.as_of is not None:
            self._store.write(namespace, lambda transaction: None)  # ends what has expired, so it is former
            filter = replace(filter, unchanged_since=request.as_of)
        by_meaning = (
            self._store.search_vectors(namespace, meaning.model, meaning.vector, filter, count) if meaning else []
        )
        near = [candidate.entry_id for candidate in by_meaning]
        by_words = self._store.search_text(namespace, terms, filter, count, near) if terms else []
        if meaning is not None:
            # Each side's finds are scored by the other side too: half a score would rank them too low.
            missing = {candidate.entry_id for candidate in by_words}.difference(near)
            by_meaning += self._nearness(namespace, meaning, [(entry_id, LIVE) for entry_id in missing])
        spans = _spans(by_words, by_meaning)
        fused = _fuse(by_words, by_meaning, meaning)
        hits = self._read(namespace, fused, spans, terms, request)
        if request.as_of is not None:
            hits += self._search_former(namespace, request, terms, meaning)
        return hits

    def _read(
        self,
        namespace: Namespace,
        fused: Sequence[Fused],
        spans: Mapping[int, Span],
        terms: Mapping[str, float],
        request: SearchRequest,
    ) -> list[Hit]:
        """The entries of the best candidates, live in one snapshot; gone ones make room for the next."""
        wanted = request.offset + request.limit
        hits: list[Hit] = []
        for start in range(0, len(fused), wanted):
            batch = fused[start : start + wanted]
            live = self._store.load(namespace, [candidate.id for candidate in batch])
            hits += [
                _hit(live[candidate.id], candidate, spans[candidate.id], terms, request)
                for candidate in batch
                if candidate.id in live
            ]
            if len(hits) >= wanted:
                break
        return hits[:wanted]

    def _nearness(self, namespace: Namespace, meaning: _Meaning, states: Sequence[tuple[int, int]]) -> list[Candidate]:
        if not states:
            return []
        return [
            Candidate(entry_id, float(vector @ meaning.vector), start, end)
            for entry_id, start, end, vector in self._store.passage_vectors(namespace, meaning.model, states)
        ]

    def _search_former(
        self,
        namespace: Namespace,
        request: SearchRequest,
        terms: Mapping[str, float],
        meaning: _Meaning | None,
    ) -> list[Hit]:
        """States that were valid then and are not any more: few, so each is looked at."""
        assert request.as_of is not None
        states = {state.id: state for state in self._store.former(namespace, request.as_of, request.filter)}
        if not states:
            return []
        counts = self._store.term_counts(namespace, list(terms))
        by_words = [candidate for state in states.values() for candidate in _score_passages(state, terms, counts)]
        commits = [(state.id, state.commit) for state in states.values()]
        by_meaning = [] if meaning is None else self._nearness(namespace, meaning, commits)
        spans = _spans(
            sorted(by_words, key=lambda candidate: -candidate.score),
            sorted(by_meaning, key=lambda candidate: -candidate.score),
        )
        fused = _fuse(by_words, by_meaning, meaning)
        return [_hit(states[found.id], found, spans[found.id], terms, request) for found in fused]


def _fuse(by_words: Sequence[Candidate], by_meaning: Sequence[Candidate], meaning: _Meaning | None) -> list[Fused]:
    calibration = meaning.calibration if meaning else (0.0, 1.0)
    return fuse(
        ((candidate.entry_id, candidate.score) for candidate in by_words),
        ((candidate.entry_id, calibrate(candidate.score, calibration)) for candidate in by_meaning),
    )


def _spans(by_words: Sequence[Candidate], by_meaning: Sequence[Candidate]) -> dict[int, Span]:
    """The passage to show of each entry: where the words are, else where the meaning is."""
    spans: dict[int, Span] = {}
    for candidate in (*by_words, *by_meaning):
        known = spans.get(candidate.entry_id)
        if known is None or known.end == 0:
            spans[candidate.entry_id] = Span(candidate.start, candidate.end)
    return spans


def _score_passages(state: Entry, terms: Mapping[str, float], counts: TermCounts) -> list[Candidate]:
    idfs = {
        term: weight * bm25.idf(max(1, counts.passages), counts.containing.get(term, 0))
        for term, weight in terms.items()
    }
    ceiling = bm25.ceiling((1.0, idf) for idf in idfs.values())
    found = []
    for passage in passages(state.text):
        length = STEP_LENGTH[length_step(passage.length)]
        score = sum(
            bm25.contribution(
                idf,
                LEVEL_FREQUENCY[frequency_level(passage.terms[term])],
                length,
                counts.average_length or length,
            )
            for term, idf in idfs.items()
            if term in passage.terms
        )
        if score:
            found.append(Candidate(state.id, score / ceiling, passage.start, passage.end))
    return found


def _hit(entry: Entry, fused: Fused, span: Span, terms: Mapping[str, float], request: SearchRequest) -> Hit:
    parts = {name: part for name, part in (("keyword", fused.keyword), ("meaning", fused.meaning)) if part is not None}
    shown = span if span.end else None
    # Without a share by words none of them is in the text: there is nothing to look for.
    shown_text = snippet(entry.text, terms if fused.keyword else {}, span=shown)
    return Hit(entry.kind, request.name(entry), entry, fused.score, parts, shown_text, span.start, span.end)
