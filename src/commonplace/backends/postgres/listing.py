"""What a search needs of a whole namespace, by one statement: counts, posting lists, and how near each vector is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.backends.postgres.connection import Halves, Session, floats_of, numbers_of, texts_of
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.postgres.vectors import Model
from commonplace.backends.ranking import Counts, Ranking, score_arrays
from commonplace.store import TermCounts

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

EXACT_ROWS = 20_000
"""Up to so many passages in a namespace every vector is looked at; above, the index of its part of the table."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What a search needs of a whole namespace: counts, a posting list for each term, and all its vectors' nearness."""

    namespace_id: int
    counts: Counts
    postings: list[NDArray[int64]]
    is_pending: bool
    """Whether passages wait for their vectors."""
    meaning: Ranking | None
    """None where it was not asked for, or the namespace is too large for a look at every vector."""

    def words(self, terms: Mapping[str, float]) -> Ranking:
        return score_arrays(self.counts, zip(terms.values(), self.postings, strict=True))


def ask_lists(
    session: Session,
    spot: Spot,
    terms: Mapping[str, float],
    meaning: tuple[Model, NDArray[float32]] | None = None,
) -> Callable[[], Listed | None]:
    """The lists in the order of the terms, by one statement; None where there is no namespace. Waited for when called.

    Only the spot's tenant, path and part are used: its number is among what is told.
    """
    near, query = "NULL::bytea, NULL::bytea", list[Any]()
    if meaning is not None:
        model, vector = meaning
        halves = Halves.of(vector)
        near = "near.chunks, near.shares"
        query = [halves.coarse, halves.fine, Halves.SCALE, model.id, EXACT_ROWS]
    answer = session.ask(
        "SELECT n.id, n.chunk_count, n.term_total,"
        f" EXISTS (SELECT 1 FROM {spot.of('pending')} AS p WHERE p.tenant = n.tenant AND p.namespace = n.id),"
        f" {spot.of('postings')}(n.id, %s::text[]), {near} FROM {spot.of('namespace')} AS n"
        + (_NEAR.format(embedding=spot.of("embedding")) if query else "")
        + " WHERE n.tenant = %s AND n.path = %s",
        (texts_of(terms), *query, spot.tenant, "/".join(spot.namespace)),
        binary=True,
        prepare=True,
    )

    def read() -> Listed | None:
        for id, passages, total_length, is_pending, postings, chunks, shares in answer.fetchall():
            is_exact = meaning is not None and passages <= EXACT_ROWS
            return Listed(
                id,
                Counts(id, passages, total_length),
                [numbers_of(found) for found in postings],
                is_pending,
                Ranking(numbers_of(chunks), floats_of(shares)) if is_exact else None,
            )
        return None

    return read


_NEAR = (
    " CROSS JOIN LATERAL (SELECT array_send(array_agg(v.chunk)) AS chunks,"
    " array_send(array_agg(-(v.value <#> %s) - (v.value <#> %s) / %s::float8)) AS shares FROM {embedding} AS v"
    " WHERE v.tenant = n.tenant AND v.namespace = n.id AND v.model = %s AND NOT v.former AND n.chunk_count <= %s"
    ") AS near"
)
"""Every vector of the namespace, unless it is large: its passages and how near they are, as two arrays."""


def term_counts(session: Session, spot: Spot, terms: Iterable[str]) -> TermCounts:
    weights = dict.fromkeys(terms, 1.0)
    listed = ask_lists(session, spot, weights)()
    if listed is None:
        return TermCounts(0, 0.0, {})
    return TermCounts(
        listed.counts.passages,
        listed.counts.average_length,
        {term: len(found) for term, found in zip(weights, listed.postings, strict=True)},
    )
