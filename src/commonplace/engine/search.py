"""Search over one or more namespaces: by keywords and by vectors, fused, read from the store and cut to the page.

A search always has a result. If vectors are missing or pending, or their model is unavailable, keywords are used alone
and a notice says so.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from commonplace.checks import Namespace, check_text
from commonplace.embedding import Embedder, calibrate
from commonplace.engine.embedders import Models, embed
from commonplace.engine.indexer import Indexer
from commonplace.entry import Entry, Hit, SearchSeen
from commonplace.errors import CommonplaceError, InvalidInput, Unavailable
from commonplace.filters import Filter
from commonplace.language import fusion
from commonplace.language.dates import DateOrder, periods
from commonplace.language.fusion import Fused, fuse
from commonplace.language.passages import (
    LEVEL_FREQUENCY,
    STEP_LENGTH,
    Passage,
    Span,
    frequency_level,
    length_step,
    passage,
    passages,
)
from commonplace.language.question import content_terms, is_about_assistant, is_about_plan, question_terms
from commonplace.language.relevance import (
    DEFAULT_FLOOR,
    EVERY_WORD,
    Calibration,
    Floor,
    calibration_of,
    holds_every_word,
    names_in,
)
from commonplace.language.snippets import snippet
from commonplace.language.tokenizer import present_weight
from commonplace.language.weights import ASSISTANT, FIRST_WINDOW, FRAME, HEAD, WINDOW_GROWTH
from commonplace.store import Candidate, Candidates, SearchQuery, Store, TermCounts

if TYPE_CHECKING:
    from typing import Self

    from numpy import float32
    from numpy.typing import NDArray

MAX_QUERY_BYTES = 100_000
MAX_LIMIT = 1_000
MAX_OFFSET = 10_000
MAX_QUERY_TERMS = 64
LAG_SECONDS = 0.2
"""How long a search waits for the vectors of what was written just before it."""

MOST_EXAMINED = 1_000
"""A search with a floor looks at no more candidates than this for entries whose vectors are pending."""

KEPT_LISTS = 32
KEPT_SECONDS = 60.0
"""While vectors are pending, the lists of so many searches are kept for their further pages, for so long after each."""

KEPT_RESULTS = 20_000
"""How many results all kept lists have together. One takes about 700 bytes."""

MOST_SWEEPS = 1_000
"""One write ends a few hundred expired entries; a search of the past waits for at most this many writes."""


class Notice(str):
    """A text for people; `code` tells programs what kind of notice it is."""

    code: str

    def __new__(cls, text: str, code: str) -> Self:
        notice = super().__new__(cls, text)
        notice.code = code
        return notice


PENDING = "pending"
"""The code of the notice that passages have no vector yet."""

UNCALIBRATED = "uncalibrated"
"""The code of the notice that no floor was applied, because the model has no calibration."""


def waiting(pending: int) -> Notice:
    """The notice that passages have no vector yet."""
    some = (
        "1 passage waits for its vector and is"
        if pending == 1
        else f"{pending:,} passages wait for their vectors and are"
    )
    return Notice(f"{some} found by keywords only", PENDING)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    query: str
    filter: Filter
    limit: int = 10
    offset: int = 0
    as_of: int | None = None
    name: Callable[[Entry], str] = attrgetter("key")
    """The path or id of an entry."""
    conversation: Callable[[Entry], str | None] | None = None
    """The conversation of an entry; entries of one conversation raise each other. None turns this off."""
    has_speaker: Callable[[Entry], bool] | None = None
    """Whether an entry names who said it; only such entries are raised by others of their conversation. In a chat with
    an assistant the others are of the same subject and rarely answer. None raises all."""
    by_assistant: Callable[[Entry], bool] | None = None
    """Whether an assistant without a name said this; such entries of conversations count less. None turns this off."""
    of_threads: bool = False
    """Whether the entries are messages and titles that speak for their threads, which says how words are trusted."""
    now: int | None = None
    """The time that `yesterday` refers to; None is the time of the search, or `as_of`."""
    window: int = FIRST_WINDOW
    """How many candidates the first window has. Pages with equal windows are parts of one list."""
    min_relevance: Floor = None
    """The floor: hits that are less likely to be relevant are left out. None or 0 leaves nothing out."""
    vector: NDArray[float32] | None = None
    """A vector of the serving model to search by, in place of the query."""

    def __post_init__(self) -> None:
        check_text("query", self.query, max_bytes=MAX_QUERY_BYTES)
        if not self.query.strip() and self.vector is None:
            raise InvalidInput("query is required and must be a non-empty string")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise InvalidInput(f"limit must be between 1 and {MAX_LIMIT:,}, not {self.limit}")
        if not 0 <= self.offset <= MAX_OFFSET:
            raise InvalidInput(f"offset must be between 0 and {MAX_OFFSET:,}, not {self.offset}")
        check_relevance(self.min_relevance)


def check_relevance(value: object) -> Floor:
    """A floor: None, a number from 0 to 1, or `default`, which is the floor of the model."""
    if value is None:
        return None
    if value == DEFAULT_FLOOR:
        return DEFAULT_FLOOR
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInput(f'min_relevance must be a number from 0 to 1, or "default", not {value!r:.100}')
    return float(value)


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """The hits, best first. `notices` say if vectors could not be used.

    `left_out` says how many hits were below `min_relevance` among those that were looked at for this page.
    """

    hits: tuple[Hit, ...]
    notices: tuple[str, ...] = ()
    left_out: int = 0

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
    """The query as a vector of the serving model."""

    model: str
    vector: NDArray[float32]
    calibration: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Question:
    """A request as it is sent to every namespace: its words, its vector, and the times that it names."""

    request: SearchRequest
    terms: Mapping[str, float]
    share_of_words: float
    """The share of the terms in the query, by their weights."""
    meaning: _Meaning | None
    times: tuple[tuple[int, int], ...]
    calibration: Calibration | None
    """None if the model has no calibration."""
    floor: _Floor | None
    by_assistant: Callable[[Entry], bool] | None
    """Which entries count less because of who said them; None if the question asks what the assistant said."""

    def relevance(self, parts: Mapping[str, float]) -> float | None:
        """The probability that a hit with these parts is relevant."""
        calibration = self.calibration
        if calibration is not None and "meaning" not in parts:
            calibration = calibration_of(None)
        if calibration is None:
            return None
        return calibration.relevance(parts.get("keyword", 0.0), parts.get("meaning", 0.0))


@dataclass(frozen=True, slots=True)
class _Floor:
    """What a search leaves out: hits below a relevance, unless they are exempt."""

    least: float
    calibration: Calibration
    words: frozenset[str]
    """The words that the query is about."""
    names: frozenset[str]
    """What the query may name: paths, ids and tags."""
    name_of: Callable[[Entry], str]
    has_vectors: bool

    def keeps(self, one: _Found, question: _Question) -> bool:
        relevance = question.relevance(one.parts)
        return relevance is None or relevance >= self.least or self._is_exempt(one)

    def _is_exempt(self, one: _Found) -> bool:
        """Whether a hit is never left out: its vector is pending, the query names it, or it has all words of it."""
        entry = one.entry
        if (self.has_vectors and "meaning" not in one.parts and entry.text) or self.is_named(entry):
            return True
        return "keyword" in one.parts and holds_every_word(self.words, entry.heading, entry.text)

    def is_named(self, entry: Entry) -> bool:
        """Whether the query names the entry by its path, its id or a tag."""
        tags = entry.attributes.get("tags", ())
        names = (self.name_of(entry), entry.identity, *(tags if isinstance(tags, list | tuple) else ()))
        return not self.names.isdisjoint(str(name).casefold() for name in names)

    def may_keep(self, keyword: float, meaning: float, *, some_wait: bool) -> bool:
        """Whether a hit may be kept that has at most this share of the words and at most this meaning."""
        # Without framing words such as `how many`, the share of an entry with all other words is somewhat lower.
        is_exempt = keyword >= EVERY_WORD * FRAME or (some_wait and keyword > 0)
        return is_exempt or self.calibration.relevance(keyword, meaning) >= self.least


@dataclass(frozen=True, slots=True)
class _Found:
    """A candidate that was read, with its score and the parts of it."""

    entry: Entry
    span: Span
    score: float
    parts: Mapping[str, float]


class Searcher:
    """Searches one store."""

    def __init__(self, store: Store, models: Models, indexer: Indexer, date_order: DateOrder = "both") -> None:
        self._store = store
        self._date_order = date_order
        self._models = models
        self._indexer = indexer
        self._lists = _Lists(store)
        self._embed_query = lru_cache(maxsize=256)(self._embed_query_uncached)
        self.observe: Callable[[SearchSeen], None] | None = None
        """Is called after each search, but not for its further pages. It must be quick and must not fail."""

    def search(self, namespaces: Sequence[Namespace], request: SearchRequest) -> SearchResult:
        started = time.perf_counter()
        result = self._search(namespaces, request)
        if self.observe is not None and namespaces and not request.offset:
            seconds = time.perf_counter() - started
            relevance = max((hit.relevance for hit in result if hit.relevance is not None), default=None)
            self.observe(SearchSeen(namespaces[0], seconds, result[0].score if result else 0.0, relevance))
        return result

    def _search(self, namespaces: Sequence[Namespace], request: SearchRequest) -> SearchResult:
        known = self._lists.page(namespaces, request)
        if known is not None:
            return known
        notices: dict[str, None] = {}
        serving, target = self._store.models()
        embedder = self._meaning(serving, notices)
        meaning: _Meaning | None = None
        if request.vector is not None:
            meaning = self._given_vector(embedder, request.vector)
        elif embedder is not None:
            meaning = self._query_vector(embedder, request.query, notices)
        terms, share_of_words = question_terms(request.query)
        terms = dict(list(terms.items())[:MAX_QUERY_TERMS])
        calibration = calibration_of(None if meaning is None else meaning.model)
        question = _Question(
            request,
            terms,
            share_of_words,
            meaning,
            _times(request, self._date_order),
            calibration,
            _floor(request, calibration, meaning),
            None if is_about_assistant(request.query) else request.by_assistant,
        )
        windows = []
        deadline = time.monotonic() + LAG_SECONDS
        for namespace in namespaces:
            embed_pending = (
                None if meaning is None else partial(self._embed_pending, namespace, question, deadline, notices)
            )
            some_wait = False
            if embed_pending is not None and serving != target:
                some_wait = embed_pending()  # for its notice; older passages have vectors of the serving model
                embed_pending = None
            window = _Windows(self._store, namespace, question, embed_pending, some_wait)
            if some_wait or len(namespaces) > 1:
                window.note_commit()
            windows.append(window)
        ranking = _Ranking(windows, question)
        page = ranking.page(request)
        if page and request.min_relevance and meaning is not None and calibration is None:
            notices[uncalibrated(meaning.model)] = None
        result = SearchResult(tuple(_hit(one, question) for one in page), tuple(notices), ranking.left_out)
        self._lists.keep(namespaces, request, ranking, [window.commit for window in windows], result.notices)
        return result

    # The vector of the query

    def _meaning(self, serving: str | None, notices: dict[str, None]) -> Embedder | None:
        """The embedder of the serving model; a book without vectors uses the chosen one."""
        try:
            return self._models.chosen if serving is None else self._models.for_identity(serving)
        except CommonplaceError as error:
            notices[f"keywords only: {error}"] = None
            return None

    def _given_vector(self, embedder: Embedder | None, vector: NDArray[float32]) -> _Meaning:
        if embedder is None:
            raise Unavailable("the model of the book's vectors is not available; see `commonplace doctor`")
        if len(vector) != embedder.dimensions:
            raise InvalidInput(
                f"vectors of the book's model {embedder.identity} have {embedder.dimensions:,} numbers, and the query "
                f"has {len(vector):,}; for vectors of another model, name it in `model`"
            )
        return _Meaning(embedder.identity, vector, embedder.calibration)

    def is_serving(self, model: str) -> bool:
        """Whether a name is that of the model of the book's own vectors."""
        serving, _ = self._store.models()
        return model == (self._models.chosen.identity if serving is None else serving)

    def _query_vector(self, embedder: Embedder, query: str, notices: dict[str, None]) -> _Meaning | None:
        try:
            vector = self._embed_query(embedder.identity, query)
            return _Meaning(embedder.identity, vector, embedder.calibration)
        except CommonplaceError as error:
            notices[f"keywords only: {error}"] = None
            return None

    def _embed_query_uncached(self, model: str, query: str) -> NDArray[float32]:
        vectors = embed(self._models.for_identity(model), [query], "query")
        return vectors.reshape(-1)

    def _embed_pending(
        self, namespace: Namespace, question: _Question, deadline: float, notices: dict[str, None]
    ) -> bool:
        """Embed new passages for a bounded time, first those that the words of the query find.

        Return whether some are still pending.
        """

        def likely() -> Sequence[Candidate]:
            terms, filter = question.terms, question.request.filter
            return self._store.search_text(namespace, terms, filter, FIRST_WINDOW) if terms else ()

        try:
            state = self._indexer.embed_pending(namespace, max(0.0, deadline - time.monotonic()), likely)
        except CommonplaceError as error:
            notices[f"new passages are found by keywords only: {error}"] = None
            return True
        if state.serving != state.target:
            notices[f"re-embedding with {state.target} is in progress; results still use {state.serving}"] = None
        elif state.pending:
            notices[waiting(state.pending)] = None
        return state.pending > 0


def uncalibrated(model: str) -> Notice:
    text = f"hits of any relevance are shown: there is no calibration for the model {model}"
    return Notice(text, UNCALIBRATED)


def _floor(request: SearchRequest, calibration: Calibration | None, meaning: _Meaning | None) -> _Floor | None:
    if not request.min_relevance or calibration is None:
        return None
    return _Floor(
        calibration.floor if request.min_relevance == DEFAULT_FLOOR else float(request.min_relevance),
        calibration,
        content_terms(request.query),
        names_in(request.query),
        request.name,
        meaning is not None,
    )


class _Ranking:
    """The results of a search in all its namespaces, best first, as far as its pages needed them.

    Here the final score of each result is known. Every page of a search is a part of this one list: the windows are the
    same whatever the page is, and a further window only adds to the end. Its results may match better than the last
    ones before it; they get the score of the last one then, so that scores fall throughout the list.
    """

    def __init__(self, windows: Sequence[_Windows], question: _Question) -> None:
        self.question = question
        self.left_out = 0
        self.some_wait = False
        self.lock = threading.Lock()
        """Held for a page of a list that is kept, because several threads may ask for one."""
        self._ranked: list[_Found] = []
        self._dropped = 0
        self._windows = windows
        self._highest = 1.0

    def __len__(self) -> int:
        return len(self._ranked)

    def page(self, request: SearchRequest) -> list[_Found]:
        wanted = request.offset + request.limit
        while self._windows and len(self._ranked) < wanted:
            self._add_window(wanted - len(self._ranked))
        return self._ranked[request.offset : wanted]

    def _add_window(self, wanted: int) -> None:
        floor, highest = self.question.floor, self._highest
        window = [one for some in self._windows for one in some.next(wanted)]
        window.sort(key=_falling)
        lowered = [one if one.score <= highest else replace(one, score=highest) for one in window]
        self._highest = lowered[-1].score if lowered else highest
        kept = lowered if floor is None else [one for one in lowered if floor.keeps(one, self.question)]
        self.left_out += len(lowered) - len(kept)
        self._ranked += kept
        self.some_wait = self.some_wait or any(some.some_wait for some in self._windows)
        self._windows = [some for some in self._windows if not some.is_complete]

    def drop_contents(self) -> None:
        """Forget what is in the entries; `_Lists` reads them again for a page."""
        for place in range(self._dropped, len(self._ranked)):
            one = self._ranked[place]
            entry = replace(one.entry, value=None, text="", heading=None, attributes={})
            self._ranked[place] = replace(one, entry=entry)
        self._dropped = len(self._ranked)


@dataclass(frozen=True, slots=True)
class _KeptList:
    ranking: _Ranking
    commits: Sequence[int | None]
    """The last commit of each namespace before it was searched."""
    notices: tuple[str, ...]
    until: float
    limits: frozenset[int] = frozenset()
    """With which limits the first page was asked for. The same one again asks for a new list."""


class _Lists:
    """The lists of the last searches that met pending vectors, for their further pages.

    Vectors arrive in the background and during each search, and change the order. Without these lists a further page,
    or the first page with another limit, would be cut from another list than the one before it, and repeat and skip
    results. To search again with the same limit makes a new list. A list has no content: each page
    reads its entries again, and is not made from a list with an entry that was changed, deleted or purged since.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, _KeptList] = OrderedDict()
        self._mutex = threading.Lock()

    def page(self, namespaces: Sequence[Namespace], request: SearchRequest) -> SearchResult | None:
        """Another page of a list that is kept; None if there is none, or if the memory has changed since."""
        if not self._kept or not _is_kept(request):
            return None
        key = _list_key(namespaces, request)
        with self._mutex:
            kept = self._kept.get(key)
        if kept is None or (not request.offset and request.limit in kept.limits):
            return None
        if not request.offset:
            kept = replace(kept, limits=kept.limits | {request.limit})
        page = None
        ranking = kept.ranking
        if time.monotonic() <= kept.until and all(map(self._is_unchanged, namespaces, kept.commits)):
            with ranking.lock:
                page = self._with_contents(ranking.page(request))
                ranking.drop_contents()
        self._keep(key, None if page is None else kept)
        if page is None:
            return None
        return SearchResult(tuple(_hit(one, ranking.question) for one in page), kept.notices, ranking.left_out)

    def keep(
        self,
        namespaces: Sequence[Namespace],
        request: SearchRequest,
        ranking: _Ranking,
        commits: Sequence[int | None],
        notices: tuple[str, ...],
    ) -> None:
        """Keep the list of a search if vectors are pending; otherwise forget a former one of the same search."""
        if not _is_kept(request) or not (self._kept or ranking.some_wait):
            return
        kept = None
        if ranking.some_wait:
            ranking.drop_contents()
            limits = frozenset(() if request.offset else (request.limit,))
            kept = _KeptList(ranking, commits, notices, 0.0, limits)
        self._keep(_list_key(namespaces, request), kept)

    def _keep(self, key: str, kept: _KeptList | None) -> None:
        """Keep a list for some time from now on, or forget it; the oldest and those that are too old go."""
        now = time.monotonic()
        with self._mutex:
            self._kept.pop(key, None)
            if kept is not None:
                self._kept[key] = replace(kept, until=now + KEPT_SECONDS)
            results = sum(len(one.ranking) for one in self._kept.values())
            while self._kept:
                oldest = next(iter(self._kept.values()))
                if len(self._kept) <= KEPT_LISTS and results <= KEPT_RESULTS and oldest.until >= now:
                    return
                results -= len(oldest.ranking)
                self._kept.popitem(last=False)

    def _is_unchanged(self, namespace: Namespace, commit: int | None) -> bool:
        return commit is not None and self._store.last_commit(namespace) == commit

    def _with_contents(self, page: Sequence[_Found]) -> list[_Found] | None:
        """The results with their live entries; None if one was changed, deleted or purged, or has expired."""
        ids: dict[Namespace, list[int]] = {}
        for one in page:
            ids.setdefault(one.entry.namespace, []).append(one.entry.id)
        live = {namespace: self._store.load(namespace, some) for namespace, some in ids.items()}
        found = []
        for one in page:
            entry = live[one.entry.namespace].get(one.entry.id)
            if entry is None or entry.commit != one.entry.commit:
                return None
            found.append(replace(one, entry=entry))
        return found


def _is_kept(request: SearchRequest) -> bool:
    # The former states of a search of the past cannot be read again by their ids.
    return request.as_of is None and request.vector is None


def _list_key(namespaces: Sequence[Namespace], request: SearchRequest) -> str:
    # By `repr`, because 1 and True are equal and different in a filter.
    return repr((list(namespaces), replace(request, limit=1, offset=0)))


class _Windows:
    """The results of one namespace, window by window.

    A window holds the best candidates by keywords and by vectors that no window before it had, in the order of their
    scores. What is in a window and in which order does not depend on the page, so that pages neither repeat nor skip
    results. The first window has enough for most pages; a deep page costs more.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        question: _Question,
        embed_pending: Callable[[], bool] | None,
        some_wait: bool,
    ) -> None:
        """If vectors are pending, `embed_pending` is called before the first window, if given."""
        self.is_complete = False
        self._store = store
        self._namespace = namespace
        self._question = question
        self._embed_pending = embed_pending
        self.some_wait = some_wait
        self.commit: int | None = None
        """The last commit before the first window; known if vectors are pending, or there are several namespaces."""
        self._filter = question.request.filter
        self._limit = question.request.window
        self._seen: set[int] = set()
        self._former: list[_Found] | None = None
        self._best: float | None = None

    def note_commit(self) -> None:
        self.commit = self._store.last_commit(self._namespace)

    def next(self, wanted: int) -> list[_Found]:
        """The next window, best first, or at least its first `wanted` results."""
        if self._former is None:
            self._former = self._start()
        # Which results a floor keeps is known once they are read.
        is_whole = bool(self._question.times) or self._question.floor is not None
        at_first = 2 * self._limit if is_whole else max(HEAD, wanted)
        fused, answer = self._candidates(at_first)
        former, self._former = self._former[: self._limit], self._former[self._limit :]
        first = [answer.entries[one.id] for one in fused[:HEAD] if one.id in answer.entries]
        has_conversations = self._has_conversation([*first, *(one.entry for one in former[:HEAD])])
        # A list that is kept for further pages needs all of a window.
        is_whole = is_whole or has_conversations or self.some_wait
        found = self._read(fused, answer, at_first, len(fused) if is_whole else wanted)
        self._seen.update(one.id for one in fused)
        are_all = max(len(answer.by_words), len(answer.by_meaning)) < self._limit
        self.is_complete = not self._former and (are_all or not self._may_have_more(answer, found))
        self._limit *= WINDOW_GROWTH
        found += former
        weighed = self._in_conversation(found) if has_conversations else _timed(found, self._question)
        return sorted(weighed, key=_falling)

    def _may_have_more(self, answer: Candidates, found: Sequence[_Found]) -> bool:
        """Whether further candidates may be kept. Their scores are at most the last ones of this window."""
        floor = self._question.floor
        if floor is None:
            return True
        if self._limit < MOST_EXAMINED and any(floor.is_named(one.entry) for one in found):
            return True  # others may have the same tag
        keyword = self._question.share_of_words * _last_score(answer.by_words, self._limit)
        cosine, meaning = _last_score(answer.by_meaning, self._limit), self._question.meaning
        nearness = 0.0 if meaning is None else calibrate(cosine, meaning.calibration)
        return floor.may_keep(keyword, nearness, some_wait=self.some_wait and self._limit < MOST_EXAMINED)

    def _start(self) -> list[_Found]:
        """The former states that a search of the past finds; such a search skips what has changed since."""
        as_of = self._question.request.as_of
        if as_of is None:
            return []
        for _ in range(MOST_SWEEPS):  # a search of the past looks at former states: end what has expired
            if not self._store.end_expired(self._namespace):
                break
        self._filter = replace(self._filter, unchanged_since=as_of)
        return self._search_former(as_of)

    def _candidates(self, at_first: int) -> tuple[list[Fused], Candidates]:
        """The new candidates of this window, best first, and the entries of the first ones."""
        question, meaning = self._question, self._question.meaning
        new: list[Fused] = []

        def choose(by_words: Sequence[Candidate], by_meaning: Sequence[Candidate]) -> list[int]:
            fused = _fuse(by_words, by_meaning, question, some_wait=self.some_wait)
            new[:] = [one for one in fused if one.id not in self._seen]
            return [one.id for one in new[:at_first]]

        query = SearchQuery(
            question.terms, None if meaning is None else (meaning.model, meaning.vector), self._filter, self._limit
        )
        embed_pending, self._embed_pending = self._embed_pending, None
        answer = self._store.search(self._namespace, query, choose, unless_pending=embed_pending is not None)
        if answer is None and embed_pending is not None:
            self.some_wait = embed_pending()
            self.note_commit()
            answer = self._store.search(self._namespace, query, choose)
        assert answer is not None, "without unless_pending a search always has a result"
        return new, answer

    def _read(self, fused: Sequence[Fused], answer: Candidates, at_first: int, wanted: int) -> list[_Found]:
        """The live entries of the best candidates, from one snapshot; the next candidate replaces a deleted entry."""
        live: Mapping[int, Entry] = answer.entries
        start, stop = 0, at_first
        all_spans = partial(_spans, answer.by_words, answer.by_meaning)
        spans = all_spans(live)
        found: list[_Found] = []
        while start < len(fused) and len(found) < wanted:
            batch = fused[start:stop]
            if start:
                live = self._store.load(self._namespace, [one.id for one in batch])
                spans = all_spans(live)
            found += [_found(live[one.id], one, spans[one.id]) for one in batch if one.id in live]
            start, stop = stop, stop + wanted
        return found

    def _has_conversation(self, entries: Iterable[Entry]) -> bool:
        conversation_of = self._question.request.conversation
        return conversation_of is not None and any(conversation_of(entry) is not None for entry in entries)

    def _in_conversation(self, found: Sequence[_Found]) -> list[_Found]:
        """The results re-scored by who said them, by the times in the query, and by the rest of their conversation."""
        found = [self._as_said(one) for one in found]
        ordered = sorted(_timed(found, self._question), key=_falling)
        if self._best is None:  # of the first window; further ones hold nothing better
            self._best = ordered[0].score if ordered else 0.0
        conversations = self._conversations(ordered)
        weighed = _supported(ordered, conversations, self._best, self._question.request.has_speaker)
        if strength := fusion.strength(self._best):
            named = [places for places in conversations if self._names_a_speaker(ordered, places)]
            weighed = _with_neighbours(weighed, self._adjacent(ordered, named), strength)
        return _with_fewer_repeated(weighed, conversations, fusion.repetition(self._best))

    def _as_said(self, one: _Found) -> _Found:
        """A message with less for words that may match by chance, and with less if an assistant said it."""
        conversation_of, by_assistant = self._question.request.conversation, self._question.by_assistant
        if conversation_of is None or conversation_of(one.entry) is None:
            return one
        if "meaning" in one.parts:
            one = replace(one, score=fusion.join_said(one.parts.get("keyword", 0.0), one.parts["meaning"]))
        if by_assistant is not None and by_assistant(one.entry):
            one = replace(one, score=ASSISTANT * one.score, parts={**one.parts, "assistant": ASSISTANT})
        return one

    def _conversations(self, found: Sequence[_Found]) -> list[list[int]]:
        """The places of the results of each conversation that has several, in their order."""
        conversation_of = self._question.request.conversation
        assert conversation_of is not None, "only results with a conversation are examined for it"
        places: dict[str, list[int]] = {}
        for place, one in enumerate(found):
            conversation = conversation_of(one.entry)
            if conversation is not None:
                places.setdefault(conversation, []).append(place)
        return [some for some in places.values() if len(some) > 1]

    def _names_a_speaker(self, found: Sequence[_Found], places: Iterable[int]) -> bool:
        has_speaker = self._question.request.has_speaker
        return has_speaker is None or any(has_speaker(found[place].entry) for place in places)

    def _adjacent(self, found: Sequence[_Found], conversations: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
        """The pairs of places whose entries follow each other directly in their conversation, by one read.

        Keys of a conversation are in time order. A search of the past has no such pairs: only live keys are known.
        """
        if self._question.request.as_of is not None:
            return []
        pairs: dict[str, list[tuple[int, int]]] = {}
        for places in conversations:
            in_order = sorted(places, key=lambda place: found[place].entry.key)
            for first, second in pairwise(in_order):
                if found[first].entry.kind == found[second].entry.kind:
                    pairs.setdefault(found[first].entry.kind, []).append((first, second))
        adjacent: list[tuple[int, int]] = []
        for kind, some in pairs.items():
            following = self._store.next_keys(self._namespace, kind, [found[first].entry.key for first, _ in some])
            adjacent += [pair for pair, key in zip(some, following, strict=True) if found[pair[1]].entry.key == key]
        return adjacent

    def _search_former(self, as_of: int) -> list[_Found]:
        """States that were valid then and have ended since, best first. There are few, so each is scored."""
        question, meaning = self._question, self._question.meaning
        states = {state.id: state for state in self._store.former(self._namespace, as_of, question.request.filter)}
        if not states:
            return []
        counts = self._store.term_counts(self._namespace, list(question.terms))
        by_words = [
            candidate for state in states.values() for candidate in _score_passages(state, question.terms, counts)
        ]
        commits = [(state.id, state.commit) for state in states.values()]
        by_meaning = [] if meaning is None else self._nearness(meaning, commits)
        by_words.sort(key=lambda candidate: (-candidate.score, -candidate.entry_id))
        by_meaning.sort(key=lambda candidate: (-candidate.score, -candidate.entry_id))
        spans = _spans(by_words, by_meaning, states)
        # A state that was replaced before it had a vector never gets one.
        fused = _fuse(by_words, by_meaning, question, some_wait=meaning is not None)
        return [_found(states[one.id], one, spans[one.id]) for one in fused]

    def _nearness(self, meaning: _Meaning, states: Sequence[tuple[int, int]]) -> list[Candidate]:
        return [
            Candidate(entry_id, float(vector @ meaning.vector), start, end)
            for entry_id, start, end, vector in self._store.passage_vectors(self._namespace, meaning.model, states)
        ]


def _last_score(candidates: Sequence[Candidate], limit: int) -> float:
    """The lowest score among the best `limit`, or 0 if there are no more; others follow these in the list."""
    return min(candidate.score for candidate in candidates[:limit]) if len(candidates) >= limit else 0.0


def _times(request: SearchRequest, order: DateOrder) -> tuple[tuple[int, int], ...]:
    """The times that a query names as those of what it asks for, in microseconds."""
    if is_about_plan(request.query):
        return ()
    now = next((at for at in (request.now, request.as_of) if at is not None), time.time_ns() // 1_000)
    # In whole microseconds: as fractions of seconds, the last ones of the year 9999 would fall into the next year.
    named = periods(request.query, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now), order)
    return tuple((round(start.timestamp() * 1e6), round(end.timestamp() * 1e6)) for start, end in named)


def _timed(found: Sequence[_Found], question: _Question) -> Sequence[_Found]:
    """The results re-scored by the times in the query."""
    return [_in_time(one, question.times) for one in found] if question.times else found


def _in_time(one: _Found, times: Sequence[tuple[int, int]]) -> _Found:
    entry = one.entry
    if not any(start <= at <= end for start, end in times for at in (entry.created_at, entry.updated_at)):
        return one
    return replace(one, score=fusion.boost_by_time(one.score), parts={**one.parts, "time": 1.0})


def _supported(
    found: Sequence[_Found],
    conversations: Iterable[Sequence[int]],
    best: float,
    has_speaker: Callable[[Entry], bool] | None,
) -> list[_Found]:
    """The results; those that name their speakers with the support of the best ones of their conversation."""
    supported = list(found)
    for places in conversations:
        support = fusion.conversation_support([found[place].score for place in places], best)
        for place, others in zip(places, support, strict=True):
            one = found[place]
            if others > 0 and (has_speaker is None or has_speaker(one.entry)):
                score = fusion.boost_by_support(one.score, others)
                supported[place] = replace(one, score=score, parts={**one.parts, "conversation": others})
    return supported


def _with_neighbours(found: Sequence[_Found], adjacent: Iterable[tuple[int, int]], strength: float) -> list[_Found]:
    """The results, each with a share of the scores of those directly before and after it."""
    evidence: dict[int, float] = {}
    for first, second in adjacent:
        evidence[first] = evidence.get(first, 0.0) + strength * found[second].score / 2
        evidence[second] = evidence.get(second, 0.0) + strength * found[first].score / 2
    lifted = list(found)
    for place, neighbours in evidence.items():
        one = found[place]
        score = fusion.boost_by_neighbours(one.score, neighbours)
        lifted[place] = replace(one, score=score, parts={**one.parts, "neighbours": neighbours})
    return lifted


def _with_fewer_repeated(
    found: Sequence[_Found], conversations: Iterable[Sequence[int]], factor: float
) -> list[_Found]:
    """The results; all but the best one of a conversation count less by the factor."""
    lowered = list(found)
    if factor < 1.0:
        for places in conversations:
            best = max(places, key=lambda place: found[place].score)
            for place in places:
                one = found[place]
                if place != best:
                    lowered[place] = replace(one, score=factor * one.score, parts={**one.parts, "repeated": factor})
    return lowered


def _falling(one: _Found) -> float:
    return -one.score


def _fuse(
    by_words: Sequence[Candidate], by_meaning: Sequence[Candidate], question: _Question, *, some_wait: bool = False
) -> list[Fused]:
    """The candidates by keywords and by vectors, best first.

    Both lists put the newest passage first among equals, and equal candidates stay in that order.
    """
    calibration = question.meaning.calibration if question.meaning else (0.0, 1.0)
    share = question.share_of_words
    return fuse(
        [(entry_id, share * score) for entry_id, score, _, _ in by_words],
        [(entry_id, calibrate(score, calibration)) for entry_id, score, _, _ in by_meaning],
        presume=some_wait,
        of_threads=question.request.of_threads and question.meaning is not None,
    )


def _spans(
    by_words: Sequence[Candidate], by_meaning: Sequence[Candidate], entry_ids: Container[int]
) -> dict[int, Span]:
    """The passage to show of each of these entries: the one that keywords found, or else the one of the vector."""
    spans: dict[int, Span] = {}
    for entry_id, _, start, end in (*by_words, *by_meaning):
        if entry_id in entry_ids:
            known = spans.get(entry_id)
            if known is None or known.end == 0:
                spans[entry_id] = Span(start, end)
    return spans


def _score_passages(state: Entry, terms: Mapping[str, float], counts: TermCounts) -> list[Candidate]:
    containing = {term: counts.containing.get(term, 0) for term in terms}
    idfs = {
        term: present_weight(term, weight, containing[term]) * fusion.idf(max(1, counts.passages), containing[term])
        for term, weight in terms.items()
    }
    ceiling = fusion.ceiling(idfs.values())
    found = []
    for part in _indexed(state):
        norm = fusion.norm(STEP_LENGTH[length_step(part.length)], counts.average_length)
        score = sum(
            fusion.gain(idf, LEVEL_FREQUENCY[frequency_level(part.terms[term])], norm)
            for term, idf in idfs.items()
            if term in part.terms
        )
        if score:
            found.append(Candidate(state.id, score / ceiling, part.start, part.end))
    return found


def _indexed(state: Entry) -> Iterator[Passage]:
    """The passages that the keyword index has of an entry while it is live: its heading, and those of its text."""
    if state.heading:
        heading = passage(state.heading, 0, len(state.heading))
        yield replace(heading, start=0, end=0)
    yield from passages(state.text)


def _found(entry: Entry, fused: Fused, span: Span) -> _Found:
    parts = {name: part for name, part in (("keyword", fused.keyword), ("meaning", fused.meaning)) if part is not None}
    return _Found(entry, span, fused.score, parts)


def _hit(found: _Found, question: _Question) -> Hit:
    entry, span = found.entry, found.span
    # Without a keyword score no term is in the text.
    terms = question.terms if found.parts.get("keyword") else {}
    shown = snippet(entry.text, terms, span=span if span.end else None)
    name = question.request.name(entry)
    relevance = question.relevance(found.parts)
    return Hit(entry.kind, name, entry, found.score, found.parts, shown, span.start, span.end, relevance)
