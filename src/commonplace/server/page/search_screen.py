"""Search, the first screen: what a question finds, why it was found, and what a model would be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from markupsafe import Markup

from commonplace.entry import Hit
from commonplace.language.relevance import DEFAULT_FLOOR
from commonplace.language.snippets import matched_spans
from commonplace.language.tokenizer import query_terms
from commonplace.server.http.sessions import PAGE_PATH
from commonplace.server.http.worker_threads import ThreadedRoute
from commonplace.server.page.templates import pieces
from commonplace.server.page.visit import Visit, VisitOf, page_number
from commonplace.server.usage import is_good
from commonplace.space.context import estimate_tokens
from commonplace.space.names import FILE, SEARCHED_KINDS
from commonplace.tools.as_data import hits_as_data

PAGE_SIZE = 20
MOST_PAGES = 50
RECENT = 20
BAR_WIDTH = 100
router = APIRouter(route_class=ThreadedRoute)


@dataclass(frozen=True, slots=True)
class ScoreBar:
    """A score as two lengths of `BAR_WIDTH`: what the words give, and what the meaning gives."""

    score: float
    words: float
    meaning: float

    @property
    def label(self) -> str:
        words, meaning = self.words / BAR_WIDTH, self.meaning / BAR_WIDTH
        return f"Score {self.score:.2f}: words {words:.2f}, meaning {meaning:.2f}"

    @property
    def drawing(self) -> Markup:
        """The bar as an SVG of numbers alone: in the template, it took a third of the time of a hit."""
        label = self.label
        return Markup(
            f'<svg class="score" viewBox="0 0 {BAR_WIDTH} 8" role="img" preserveAspectRatio="none"'
            f' aria-label="{label}"><title>{label}</title><rect class="track" width="{BAR_WIDTH}" height="8"/>'
            f'<rect class="words" width="{self.words}" height="8"/>'
            f'<rect class="meaning" x="{self.words}" width="{self.meaning}" height="8"/></svg>'
        )


@dataclass(frozen=True, slots=True)
class ShownHit:
    kind: str
    key: str
    url: str
    pieces: tuple[tuple[str, bool], ...]
    bar: ScoreBar
    updated_at: datetime
    actor: str | None
    type: str | None
    tags: tuple[str, ...]

    @property
    def is_named(self) -> bool:
        """Whether its key says something to people. An id does not: its text is the link instead."""
        return self.kind == FILE


@router.get(PAGE_PATH, include_in_schema=False)
def search(visit: VisitOf) -> Response:
    template = "_hits.html" if visit.is_fragment else "search.html"
    return visit.render(template, **_found(visit))


def _found(visit: Visit) -> dict[str, Any]:
    query, kind, number = visit.param("q").strip(), visit.param("kind"), page_number(visit, MOST_PAGES)
    shown: dict[str, Any] = {
        "query": query,
        "kind": kind,
        "kinds": SEARCHED_KINDS,
        "number": number,
        "hits": [],
        "notices": (),
        "recent": [],
        "is_empty": False,
        "context": "",
        "tokens": 0,
        "has_more": False,
        "left_out": 0,
        "good": 0,
    }
    if not query:
        recent = [] if visit.as_of else visit.space.recent(RECENT, [kind] if kind else None)
        return {**shown, "recent": recent, "is_empty": not recent and visit.is_empty}
    is_all = visit.param("all") == "1"
    found = visit.space.search(
        query,
        limit=PAGE_SIZE + 1,
        offset=(number - 1) * PAGE_SIZE,
        kinds=[kind] if kind else None,
        as_of=visit.as_of,
        min_relevance=None if is_all else DEFAULT_FLOOR,
    )
    hits = found[:PAGE_SIZE]
    context = "" if is_all else hits_as_data(hits)  # a model gets what the floor lets through
    terms = query_terms(query)
    return {
        **shown,
        "hits": [_shown(visit, hit, terms) for hit in hits],
        "good": _good(hits),
        "notices": found.notices,
        "left_out": found.left_out if len(found) <= PAGE_SIZE else 0,
        "has_more": len(found) > PAGE_SIZE and number < MOST_PAGES,
        "context": context,
        "tokens": estimate_tokens(context),
    }


def _good(hits: Sequence[Hit]) -> int:
    """How many hits there are up to the last one that matches well. The order is by score, not by relevance."""
    return max((at for at, hit in enumerate(hits, 1) if is_good(hit.score, hit.relevance)), default=0)


def _shown(visit: Visit, hit: Hit, terms: Mapping[str, float]) -> ShownHit:
    type, tags = hit.entry.attributes.get("type"), hit.entry.attributes.get("tags", ())
    return ShownHit(
        kind=hit.kind,
        key=hit.key,
        url=visit.entry_url(hit.kind, hit.key),
        # Without a keyword score no term is in the text.
        pieces=tuple(pieces(hit.snippet, matched_spans(hit.snippet, terms if hit.parts.get("keyword") else {}))),
        bar=score_bar(hit.score, hit.parts),
        updated_at=hit.updated_at,
        actor=hit.entry.actor,
        type=type if isinstance(type, str) else None,
        tags=tuple(map(str, tags)) if isinstance(tags, list | tuple) else (),
    )


def score_bar(score: float, parts: Mapping[str, float]) -> ScoreBar:
    """The score divided in the ratio of its two parts. Time and conversation make both longer."""
    words, meaning = parts.get("keyword", 0.0), parts.get("meaning", 0.0)
    length = BAR_WIDTH * min(max(score, 0.0), 1.0)
    by_words = length * words / (words + meaning) if words + meaning else 0.0
    return ScoreBar(score, round(by_words, 1), round(length - by_words, 1))
