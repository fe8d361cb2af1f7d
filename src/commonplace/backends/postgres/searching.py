"""Candidates from the two indexes: ranked passages, turned into live entries that pass the filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.backends.postgres import listing
from commonplace.backends.postgres.connection import Halfvec, Session, Vector
from commonplace.backends.postgres.pipeline import Answer
from commonplace.backends.postgres.reading import NOW, Spot
from commonplace.backends.postgres.vectors import Model
from commonplace.backends.postgres.where import Where, add_filter
from commonplace.backends.ranking import Ranked, Ranking, Select, best, chunk_of
from commonplace.filters import Filter
from commonplace.store import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


Known = Sequence[tuple[int, int, int, int]]
"""Passages to score in any case: posting, entry, start and stop."""


def search_text(session: Session, spot: Spot, terms: Mapping[str, float], page: Page) -> list[Candidate]:
    """Counts, lists and the passages of `also` in one round trip, the entries of the best in another."""
    of_also = ask_passages(session, spot, page.also) if page.also else None
    listed = listing.ask_lists(session, spot, terms)()
    if listed is None:
        return []
    known = [] if of_also is None else of_also.fetchall()
    words = listed.words(terms)
    return by_words(session, spot, page, words, known, lambda chunks: _select(session, spot, chunks, page))


def by_words(
    session: Session, spot: Spot, page: Page, words: Ranking, known: Known, select: Select, step: int = 2**31
) -> list[Candidate]:
    """The best by their words, then those of `known` that are not among them and hold any."""
    found = best(words.rank, select, lambda: allowed_chunks(session, spot, page), page.limit, step=step)
    already = {candidate.entry_id for candidate in found}
    others = [(chunk_of(row), entry_id, start, stop) for row, entry_id, start, stop in known if entry_id not in already]
    shares = words.shares([chunk for chunk, *_ in others])
    others = sorted((row for row in others if row[0] in shares), key=lambda row: (-shares[row[0]], -row[0]))
    return found + [Candidate(entry_id, shares[chunk], start, stop) for chunk, entry_id, start, stop in others]


def ask_passages(session: Session, spot: Spot, entries: Sequence[int]) -> Answer:
    return session.ask(
        f"SELECT posting, entry, start, stop FROM {spot.of('chunk')} WHERE tenant = %s AND entry = ANY(%s)"
        " AND ended_commit IS NULL",
        (spot.tenant, list(entries)),
    )


def search_vectors(
    session: Session, spot: Spot, model: Model, query: NDArray[np.float32], page: Page
) -> list[Candidate]:
    """Usually one round trip: the nearest and what they belong to, by one statement."""
    return Nearest(session, spot, model, query, page).best()


class Nearest:
    """Ranks passages by their vectors, and keeps which of them belong to entries that pass."""

    def __init__(
        self,
        session: Session,
        spot: Spot,
        model: Model,
        query: NDArray[np.float32],
        page: Page,
    ) -> None:
        self._session = session
        self._spot = spot
        self._model = model
        self._query = query
        self._page = page
        self._places: dict[int, tuple[int, int, int]] = {}
        self._passing = conditions(spot, page)

    def best(self) -> list[Candidate]:
        """The nearest entries that pass."""
        return best(
            self._rank,
            lambda chunks: self._places,
            lambda: allowed_chunks(self._session, self._spot, self._page),
            self._page.limit,
            step=2**31,
        )

    def _rank(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        if keep is None or allowed is not None:
            return self._all(keep, allowed)
        counted = self._session.ask(
            f"SELECT chunk_count FROM {self._spot.of('namespace')} WHERE tenant = %s AND path = %s",
            (self._spot.tenant, "/".join(self._spot.namespace)),
        )
        ranked = self._all(keep, None)
        return ranked if counted.fetchall()[0][0] <= listing.EXACT_ROWS else self._by_index(keep)

    def _all(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        return self._read(*self._every(keep, allowed), keep)

    def _every(self, keep: int | None, allowed: Sequence[int] | None) -> tuple[str, list[Any]]:
        """Look at every vector of the namespace, unless it is large. `+ 0` keeps an approximate index out of it."""
        spot = self._spot
        which: tuple[Any, ...]
        if allowed is not None:
            narrowed, which = " AND chunk = ANY(%s)", (list(allowed),)
        else:
            narrowed = f" AND (SELECT chunk_count FROM {spot.of('namespace')} WHERE tenant = %s AND path = %s) <= %s"
            which = (spot.tenant, "/".join(spot.namespace), listing.EXACT_ROWS)
        return (
            f"SELECT chunk, value FROM {spot.of('embedding')} WHERE tenant = %s AND namespace = %s AND model = %s"
            f" AND NOT former{narrowed} ORDER BY (value <#> %s) + 0, chunk DESC LIMIT %s",
            [spot.tenant, spot.id, self._model.id, *which, Halfvec.of(self._query), read_for(keep)],
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
            f"SELECT chunk, value FROM {self._spot.of('embedding')} WHERE tenant = %s AND namespace = {self._spot.id:d}"
            f" AND model = {self._model.id:d} AND NOT former"
            f" ORDER BY value::halfvec({dimensions}) <#> %s::halfvec({dimensions}) LIMIT %s",
            [self._spot.tenant, Halfvec.of(self._query), read_for(keep)],
            keep,
        )

    def _read(self, near: str, parameters: Sequence[Any], keep: int | None) -> Ranked:
        sql, values = self._placed(near, parameters)
        return self._ranked(self._session.rows(sql, values, binary=True, last=True), keep)

    def _placed(self, near: str, parameters: Sequence[Any]) -> tuple[str, list[Any]]:
        """The nearest with their scores and what they belong to."""
        chunk, entry = self._spot.of("chunk"), self._spot.of("entry")
        return (
            f"WITH near AS MATERIALIZED ({near}) SELECT near.chunk, -(near.value::vector <#> %s) AS score, place.entry,"
            f" place.start, place.stop FROM near LEFT JOIN LATERAL (SELECT e.id AS entry, c.start, c.stop"
            f" FROM {chunk} AS c JOIN {entry} AS e ON e.tenant = c.tenant AND e.id = c.entry"
            f" WHERE c.tenant = %s AND c.id = near.chunk AND c.ended_commit IS NULL AND {self._passing.sql}"
            ") AS place ON true",
            [*parameters, Vector.of(self._query), self._spot.tenant, *self._passing.parameters],
        )

    def _ranked(self, rows: Sequence[tuple[Any, ...]], keep: int | None) -> Ranked:
        """Of rows with passage, score, entry, start and stop: the passages, best first."""
        self._places.update({row[0]: row[2:] for row in rows if row[2] is not None})
        return sorted(((row[0], row[1]) for row in rows), key=lambda one: (-one[1], -one[0]))[:keep]


def read_for(keep: int | None) -> int | None:
    return None if keep is None else keep + keep // RESCORED_SHARE


def conditions(spot: Spot, page: Page, *, driving_labels: bool = False) -> Where:
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
    where = conditions(spot, page)
    rows = session.rows(
        f"SELECT c.id, e.id, c.start, c.stop FROM {spot.of('chunk')} AS c"
        f" JOIN {spot.of('entry')} AS e ON e.tenant = c.tenant AND e.id = c.entry"
        f" WHERE c.tenant = %s AND c.id = ANY(%s) AND c.ended_commit IS NULL AND {where.sql}",
        (spot.tenant, list(chunks), *where.parameters),
        last=True,
    )
    return {chunk: (entry_id, start, stop) for chunk, entry_id, start, stop in rows}


def allowed_chunks(session: Session, spot: Spot, page: Page) -> list[int]:
    where = conditions(spot, page, driving_labels=True)
    rows = session.rows(
        f"SELECT c.id FROM {spot.of('entry')} AS e"
        f" JOIN {spot.of('chunk')} AS c ON c.tenant = e.tenant AND c.entry = e.id"
        f" WHERE c.ended_commit IS NULL AND {where.sql}",
        where.parameters,
    )
    return [chunk for (chunk,) in rows]
