"""Candidates from the two indexes: ranked passages, turned into live entries that pass the filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.backends.postgres import keywords
from commonplace.backends.postgres.connection import Halfvec, Session, Vector
from commonplace.backends.postgres.reading import NOW, Spot
from commonplace.backends.postgres.vectors import Model
from commonplace.backends.postgres.where import Where, add_filter
from commonplace.backends.ranking import Counts, Ranked, best, posting, score
from commonplace.filters import Filter
from commonplace.store import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXACT_ROWS = 20_000
"""Up to so many passages in a namespace every vector is looked at; above, the index of its part of the table."""

EF_SEARCH = 200
SCANNED = 200_000
RESCORED_SHARE = 4
"""Vectors are ordered by a query rounded to half precision; 1 in so many more are read and scored by it whole."""


@dataclass(frozen=True, slots=True)
class Page:
    """How many entries are wanted, which, and at what time; `also` names entries to score in any case."""

    filter: Filter
    limit: int
    now: int | None
    also: Sequence[int] = ()


_COUNTS = "SELECT chunk_count, term_total FROM namespace WHERE tenant = %s AND path = %s"
_PASSAGES = (
    "SELECT id, length, entry, start, stop FROM chunk WHERE tenant = %s AND entry = ANY(%s) AND ended_commit IS NULL"
)


def search_text(session: Session, spot: Spot, terms: Mapping[str, float], page: Page) -> list[Candidate]:
    """Counts, lists and the passages of `also` in one round trip, the entries of the best in another."""
    counted = session.ask(_COUNTS, (spot.tenant, "/".join(spot.namespace)))
    of_also = session.ask(_PASSAGES, (spot.tenant, list(page.also))) if page.also else None
    lists = keywords.ask_postings(session, spot.id, terms)()
    counts = Counts(spot.id, *counted.fetchall()[0])
    known = [] if of_also is None else of_also.fetchall()
    rows = [posting(chunk, length) for chunk, length, *_ in known]
    scores: dict[int, float] = {}

    def rank(keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        ranked, of_known = score(counts, lists, keep if allowed is None else None, rows)
        scores.update(of_known)
        if allowed is None:
            return ranked
        chosen = set(allowed)
        return [(chunk, share) for chunk, share in ranked if chunk in chosen]

    def select(chunks: Sequence[int]) -> dict[int, tuple[int, int, int]]:
        return _select(session, spot, chunks, page)

    found = best(rank, select, lambda: _allowed(session, spot, page), page.limit, step=2**31)
    listed = {candidate.entry_id for candidate in found}
    for chunk, _, entry_id, start, stop in known:
        if entry_id not in listed and chunk in scores:
            found.append(Candidate(entry_id, scores[chunk], start, stop))
    return found


def search_vectors(
    session: Session, spot: Spot, model: Model, query: NDArray[np.float32], page: Page
) -> list[Candidate]:
    """Usually one round trip: the nearest and what they belong to, by one statement."""
    places: dict[int, tuple[int, int, int]] = {}
    nearest = _Nearest(session, spot, model, query, page, places)
    return best(nearest.rank, lambda chunks: places, lambda: _allowed(session, spot, page), page.limit, step=2**31)


class _Nearest:
    """Ranks passages by their vectors, and keeps which of them belong to entries that pass."""

    def __init__(
        self,
        session: Session,
        spot: Spot,
        model: Model,
        query: NDArray[np.float32],
        page: Page,
        places: dict[int, tuple[int, int, int]],
    ) -> None:
        self._session = session
        self._spot = spot
        self._model = model
        self._query = query
        self._places = places
        self._passing = _conditions(spot, page)

    def rank(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        if keep is None or allowed is not None:
            return self._all(keep, allowed)
        counted = self._session.ask(_COUNTS, (self._spot.tenant, "/".join(self._spot.namespace)))
        ranked = self._all(keep, None)
        return ranked if counted.fetchall()[0][0] <= EXACT_ROWS else self._by_index(keep)

    def _all(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        """Look at every vector of the namespace, unless it is large. `+ 0` keeps an approximate index out of it."""
        spot = self._spot
        which: tuple[Any, ...]
        if allowed is not None:
            narrowed, which = " AND chunk = ANY(%s)", (list(allowed),)
        else:
            narrowed = " AND (SELECT chunk_count FROM namespace WHERE tenant = %s AND path = %s) <= %s"
            which = (spot.tenant, "/".join(spot.namespace), EXACT_ROWS)
        return self._read(
            "SELECT chunk, value FROM embedding WHERE tenant = %s AND namespace = %s AND model = %s AND NOT former"
            f"{narrowed} ORDER BY (value <#> %s) + 0, chunk DESC LIMIT %s",
            [spot.tenant, spot.id, self._model.id, *which, Halfvec.of(self._query), _read_for(keep)],
            keep,
        )

    def _by_index(self, keep: int) -> Ranked:
        """Ask the index. It holds other namespaces too, so it goes on until enough of this one were found."""
        self._session.send(
            "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),"
            " set_config('hnsw.max_scan_tuples', %s, true)",
            (str(min(1_000, max(EF_SEARCH, 2 * keep))), str(SCANNED)),
        )
        # The model and the namespace stand in the statement as numbers: a partial index is used only if they are known.
        dimensions = f"{self._model.dimensions:d}"
        return self._read(
            f"SELECT chunk, value FROM embedding WHERE tenant = %s AND namespace = {self._spot.id:d}"
            f" AND model = {self._model.id:d} AND NOT former"
            f" ORDER BY value::halfvec({dimensions}) <#> %s::halfvec({dimensions}) LIMIT %s",
            [self._spot.tenant, Halfvec.of(self._query), _read_for(keep)],
            keep,
        )

    def _read(self, near: str, parameters: Sequence[Any], keep: int | None) -> Ranked:
        rows = self._session.rows(
            f"WITH near AS MATERIALIZED ({near}) SELECT near.chunk, -(near.value::vector <#> %s), place.entry,"
            " place.start, place.stop"
            " FROM near LEFT JOIN LATERAL (SELECT e.id AS entry, c.start, c.stop FROM chunk AS c"
            " JOIN entry AS e ON e.tenant = c.tenant AND e.id = c.entry"
            f" WHERE c.tenant = %s AND c.id = near.chunk AND c.ended_commit IS NULL AND {self._passing.sql}"
            ") AS place ON true",
            [*parameters, Vector.of(self._query), self._spot.tenant, *self._passing.parameters],
            binary=True,
            last=True,
        )
        self._places.update({row[0]: row[2:] for row in rows if row[2] is not None})
        return sorted([(row[0], row[1]) for row in rows], key=lambda one: (-one[1], -one[0]))[:keep]


def _read_for(keep: int | None) -> int | None:
    return None if keep is None else keep + keep // RESCORED_SHARE


def _conditions(spot: Spot, page: Page, *, driving_labels: bool = False) -> Where:
    where = Where()
    where.add(
        f"e.tenant = %s AND e.namespace = %s AND (e.expires_at IS NULL OR e.expires_at > {NOW})",
        spot.tenant,
        spot.id,
        page.now,
    )
    add_filter(where, spot.id, page.filter, driving_labels=driving_labels)
    return where


def _select(session: Session, spot: Spot, chunks: Sequence[int], page: Page) -> dict[int, tuple[int, int, int]]:
    where = _conditions(spot, page)
    rows = session.rows(
        "SELECT c.id, e.id, c.start, c.stop FROM chunk AS c JOIN entry AS e ON e.tenant = c.tenant AND e.id = c.entry"
        f" WHERE c.tenant = %s AND c.id = ANY(%s) AND c.ended_commit IS NULL AND {where.sql}",
        (spot.tenant, list(chunks), *where.parameters),
        last=True,
    )
    return {chunk: (entry_id, start, stop) for chunk, entry_id, start, stop in rows}


def _allowed(session: Session, spot: Spot, page: Page) -> list[int]:
    where = _conditions(spot, page, driving_labels=True)
    rows = session.rows(
        "SELECT c.id FROM entry AS e JOIN chunk AS c ON c.tenant = e.tenant AND c.entry = e.id"
        f" WHERE c.ended_commit IS NULL AND {where.sql}",
        where.parameters,
    )
    return [chunk for (chunk,) in rows]
