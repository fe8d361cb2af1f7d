"""A search by words and by meaning in one transaction: its questions travel together, in three round trips.

First what both sides need to rank their passages, then the entries of the best by words with their vectors, then the
entries that were chosen. Where too few of the best pass a filter, `searching` looks further, as it does for one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonplace.backends.postgres import keywords, reading, searching
from commonplace.backends.postgres.connection import Session, Vector, array_of
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.postgres.searching import Page, first_few
from commonplace.backends.postgres.vectors import Model
from commonplace.store import Answer, Asked, Candidate, Choose

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


def search(
    session: Session, spot: Spot, asked: Asked, choose: Choose, model: Model, now: int | None, *, unless_pending: bool
) -> Answer | None:
    """Both sides' candidates and the chosen entries; None where passages wait and that was to be told."""
    assert asked.meaning is not None, "words alone are searched by `searching`"
    query = asked.meaning[1]
    page = Page(asked.filter, asked.limit, now)
    nearest = searching.Nearest(session, spot, model, query, page)
    looked_at = nearest.ask_ahead()
    listed = keywords.ask_postings(session, spot, asked.terms)()
    if unless_pending and listed.is_pending:
        return None
    rows = looked_at.fetchall()
    is_exact = listed.counts.passages <= searching.EXACT_ROWS
    by_meaning = nearest.best(rows if is_exact else None)
    near = {candidate.entry_id for candidate in by_meaning}
    by_words: list[Candidate] = []
    if asked.terms:
        known = [(row[0], *row[2:]) for row in rows if row[1] is None and row[2] in near]
        if unknown := near.difference(row[1] for row in known):
            known += searching.ask_passages(session, spot, list(unknown)).fetchall()
        others = _Others(session, spot, model, query, page, near)
        by_words = searching.by_words(session, spot, page, listed, known, others.select, first_few(page))
        # Each side's finds are scored by the other side too: half a score would rank them too low.
        missing = dict.fromkeys(candidate.entry_id for candidate in by_words if candidate.entry_id not in near)
        by_meaning += [candidate for entry_id in missing for candidate in others.nearness.get(entry_id, ())]
    return Answer(by_words, by_meaning, reading.load(session, spot, choose(by_words, by_meaning), now))


class _Others:
    """What the best passages by words belong to, and how near the passages of those are that are not known to be."""

    def __init__(
        self, session: Session, spot: Spot, model: Model, query: NDArray[float32], page: Page, near: set[int]
    ) -> None:
        self._session = session
        self._spot = spot
        self._model = model
        self._query = query
        self._page = page
        self._near = array_of(near)
        self.nearness: dict[int, list[Candidate]] = {}

    def select(self, chunks: Sequence[int]) -> dict[int, tuple[int, int, int]]:
        spot = self._spot
        where = searching.conditions(spot, self._page)
        # Each table is asked once for all its rows: that reads far fewer pages than a look for each.
        rows = self._session.ask(
            f"WITH place AS MATERIALIZED (SELECT id, entry, start, stop FROM {spot.of('chunk')}"
            " WHERE tenant = %s AND id = ANY(%s::bigint[]) AND ended_commit IS NULL),"
            f" passing AS MATERIALIZED (SELECT e.id FROM {spot.of('entry')} AS e"
            f" WHERE e.id = ANY(ARRAY(SELECT entry FROM place)) AND {where.sql})"
            " SELECT id, entry, start, stop, NULL AS score FROM place"
            " WHERE entry = ANY(ARRAY(SELECT id FROM passing)) UNION ALL"
            f" SELECT c.id, c.entry, c.start, c.stop, -(v.value::vector <#> %s) FROM {spot.of('chunk')} AS c"
            f" JOIN {spot.of('embedding')} AS v ON v.tenant = c.tenant AND v.chunk = c.id AND v.model = %s"
            " WHERE c.tenant = %s AND c.entry = ANY(ARRAY(SELECT id FROM passing WHERE id <> ALL(%s::bigint[])))"
            " AND c.ended_commit IS NULL",
            (
                spot.tenant,
                array_of(chunks),
                *where.parameters,
                Vector.of(self._query),
                self._model.id,
                spot.tenant,
                self._near,
            ),
            binary=True,
            prepare=True,
        ).fetchall()
        found: dict[int, tuple[int, int, int]] = {}
        nearness: dict[int, list[Candidate]] = {}
        for chunk, entry_id, start, stop, share in rows:
            if share is None:
                found[chunk] = (entry_id, start, stop)
            else:
                nearness.setdefault(entry_id, []).append(Candidate(entry_id, share, start, stop))
        self.nearness |= nearness
        return found
