"""Candidates of a search: passages ranked by keywords or by vectors, mapped to live entries that pass the filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.backends.mongodb.connection import Document, Location, Session
from commonplace.backends.mongodb.documents import live_row, whole_documents
from commonplace.backends.mongodb.index import LIVE_CHUNK, Model, marked
from commonplace.backends.mongodb.reader import NamespaceRow, filter_query, unexpired
from commonplace.backends.ranking import (
    Counts,
    Located,
    Page,
    Postings,
    Rank,
    Ranked,
    best,
    posting,
    score,
    with_known,
)
from commonplace.backends.rows import entry_of
from commonplace.filters import Filter
from commonplace.language.passages import LEVEL_FREQUENCY
from commonplace.language.tokenizer import present_weight
from commonplace.store import Candidate, TermCounts

if TYPE_CHECKING:
    from commonplace.backends.vectors import Batch, Halves

TERMS_A_QUERY = 40
_REPEATED: Document = {"$ifNull": ["$repeated", []]}


def search_text(
    session: Session, place: Location, row: NamespaceRow, terms: Mapping[str, float], page: Page
) -> list[Candidate]:
    also = _passages_of(session, place, page.also)
    counts, postings = _postings(session, place, row, terms)
    shares: dict[int, float] = {}

    def rank(keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        ranked, of_also = score(counts, postings, keep if allowed is None else None, list(also))
        shares.update(of_also)
        if allowed is None:
            return ranked
        chosen = set(allowed)
        return [(chunk, share) for chunk, share in ranked if chunk in chosen]

    return with_known(candidates(session, place, rank, page), also.values(), shares)


def term_counts(session: Session, place: Location, row: NamespaceRow, terms: Iterable[str]) -> TermCounts:
    weights = dict.fromkeys(terms, 1.0)
    counts, postings = _postings(session, place, row, weights)
    containing = [sum(len(rows) for _, rows in found.levels) for found in postings]
    return TermCounts(counts.passages, counts.average_length, dict(zip(weights, containing, strict=True)))


def _postings(
    session: Session, place: Location, row: NamespaceRow, terms: Mapping[str, float]
) -> tuple[Counts, list[Postings]]:
    names = list(terms)
    lists: dict[tuple[str, int], list[int]] = {}
    for start in range(0, len(names), TERMS_A_QUERY):
        for one in session.aggregate("chunk", _posting_steps(place, names[start : start + TERMS_A_QUERY])):
            lists[one["_id"]["term"], one["_id"]["level"]] = one["rows"]
    found = []
    most = 0
    for term, weight in terms.items():
        known = ((frequency, lists.get((term, level))) for level, frequency in LEVEL_FREQUENCY.items())
        levels = [(frequency, rows) for frequency, rows in known if rows]
        containing = sum(len(rows) for _, rows in levels)
        most = max(most, containing)
        found.append(Postings(present_weight(term, weight, containing), levels))
    # Without a snapshot, a passage may have been added since the counts were read.
    return Counts(place.number, max(row.chunk_count, most), row.term_total), found


def _posting_steps(place: Location, terms: Sequence[str]) -> list[Document]:
    """One query for the posting lists of all terms, by term and frequency level."""

    def of(term: str) -> list[Document]:
        branches = [{"case": {"$in": [marked(term, level), _REPEATED]}, "then": level} for level in (2, 3)]
        level = {"$switch": {"branches": branches, "default": 1}}
        return [
            {"$match": {**place.mine, "terms": {"$eq": term}}},
            {"$group": {"_id": level, "rows": {"$push": "$posting"}}},
            {"$project": {"_id": {"term": {"$literal": term}, "level": "$_id"}, "rows": 1}},
        ]

    first, *others = terms
    return [*of(first), *({"$unionWith": {"coll": "chunk", "pipeline": of(term)}} for term in others)]


def _passages_of(session: Session, place: Location, entry_ids: Sequence[int]) -> dict[int, Located]:
    """The live passages of some entries by their postings."""
    fields = ["length", "entry", "start", "stop"]
    found = session.find_ids("chunk", entry_ids, {**place.mine, **LIVE_CHUNK}, fields, by="entry")
    return {
        posting(one["_id"], one["length"]): Located(one["_id"], one["entry"], one["start"], one["stop"])
        for one in found
    }


def candidates(session: Session, place: Location, rank: Rank, page: Page) -> list[Candidate]:
    return best(
        rank,
        lambda chunks: _select(session, place, chunks, page),
        lambda: _allowed(session, place, page),
        page.limit,
    )


def _passing(session: Session, place: Location, page: Page, ids: Sequence[int] | None) -> set[int]:
    """The entries, of some or of all, that are live and pass the filter."""
    query: dict[str, Any] = {**place.mine, **filter_query(page.filter), "expires_at": unexpired(page.now or 0)}
    conditions = page.filter.conditions
    fields = None if conditions else ["_id"]
    found = session.iterate("entry", query, fields) if ids is None else session.find_ids("entry", ids, query, fields)
    if not conditions:
        return {one["_id"] for one in found}
    remaining = Filter(conditions=conditions)
    entries = (entry_of(place.namespace, live_row(one)) for one in whole_documents(session, place, found))
    return {entry.id for entry in entries if remaining.matches(entry)}


def _select(session: Session, place: Location, chunks: Sequence[int], page: Page) -> dict[int, tuple[int, int, int]]:
    found = list(session.find_ids("chunk", chunks, {**place.mine, **LIVE_CHUNK}, ["entry", "start", "stop"]))
    passing = _passing(session, place, page, sorted({one["entry"] for one in found}))
    return {one["_id"]: (one["entry"], one["start"], one["stop"]) for one in found if one["entry"] in passing}


def _allowed(session: Session, place: Location, page: Page) -> list[int]:
    entries = sorted(_passing(session, place, page, None))
    query = {**place.mine, **LIVE_CHUNK}
    return [one["_id"] for one in session.find_ids("chunk", entries, query, ["_id"], by="entry")]


class StoredVectors:
    """The vectors of a namespace in the database, as `backends.vectors` reads them."""

    def __init__(self, session: Session, place: Location, row: NamespaceRow, model: Model) -> None:
        self._session = session
        self._of_model = {**place.mine, "model": model.number, "former": False}
        self._mine = place.mine
        self.place = (place.number, model.number)
        self.dimensions = model.dimensions
        self.commit = row.commit_number
        self.chunks_ended = row.chunks_ended

    def added(self, after: int, limit: int) -> Batch:
        from commonplace.backends.vectors import Batch, halves

        found = self._session.find(
            "vector",
            {**self._of_model, "sequence": {"$gt": after}},
            ["sequence", "chunk", "value"],
            sort=[("sequence", 1)],
            limit=limit,
        )
        values = halves([bytes(one["value"]) for one in found], self.dimensions)
        return Batch([one["sequence"] for one in found], [one["chunk"] for one in found], values)

    def ended(self, after: int) -> list[int]:
        found = self._session.find("history", {**self._mine, "ended_commit": {"$gt": after}}, ["entry"])
        entries = sorted({one["entry"] for one in found})
        query = {**self._mine, "ended": {"$gt": after}}
        return [one["_id"] for one in self._session.find_ids("chunk", entries, query, ["_id"], by="entry")]

    def values(self, sequences: Sequence[int]) -> tuple[list[int], Halves]:
        from commonplace.backends.vectors import halves

        found = {
            one["sequence"]: bytes(one["value"])
            for one in self._session.find_ids("vector", sequences, self._of_model, ["sequence", "value"], by="sequence")
        }
        kept = [sequence for sequence in sequences if sequence in found]
        return kept, halves([found[sequence] for sequence in kept], self.dimensions)
