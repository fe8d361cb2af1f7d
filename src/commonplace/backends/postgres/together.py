"""A search by words and by meaning: three questions in two round trips.

First what ranks all passages of the namespace by either side. Then the best with all passages of their entries, and
together with that the entries that will most likely be chosen: of passages all is known by then but which entry each
belongs to and whether that passes, so they are chosen among as if each were an entry. Where that guess was wrong, too
few of the best pass a filter, or a namespace is so large that its vectors have an index, more is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from commonplace.backends.postgres import listing, reading, searching
from commonplace.backends.postgres.connection import Session, Vector, array_of
from commonplace.backends.postgres.pipeline import Answer as Told
from commonplace.backends.postgres.reading import NOW, Spot
from commonplace.backends.postgres.searching import Page
from commonplace.backends.postgres.vectors import Model
from commonplace.backends.ranking import Ranking, best, chunk_of
from commonplace.backends.states import columns, entry_of
from commonplace.entry import Entry
from commonplace.store import Answer, Asked, Candidate, Choose

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


def search(
    session: Session, spot: Spot, asked: Asked, choose: Choose, model: Model, now: int | None, *, unless_pending: bool
) -> Answer | None:
    """Both sides' candidates and the chosen entries; None where passages wait and that was to be told.

    Of the spot, tenant, path and part are enough: its number comes with the first answer.
    """
    assert asked.meaning is not None, "words alone are searched by `searching`"
    query = asked.meaning[1]
    listed = listing.ask_lists(session, spot, asked.terms, (model, query))()
    if listed is None:
        return Answer([], [], {})
    if unless_pending and listed.is_pending:
        return None
    both = _Both(session, replace(spot, id=listed.namespace_id), Page(asked.filter, asked.limit, now), model, query)
    words = listed.words(asked.terms)
    both.look_ahead(words, listed.meaning, choose)
    by_words, by_meaning = both.candidates(words, listed.meaning, has_words=bool(asked.terms))
    return Answer(by_words, by_meaning, both.load(choose(by_words, by_meaning)))


class _Both:
    """The candidates of both sides; what is known of the passages' entries is shared by them."""

    def __init__(self, session: Session, spot: Spot, page: Page, model: Model, query: NDArray[float32]) -> None:
        self._session = session
        self.spot = spot
        self._page = page
        self._model = model
        self._query = query
        self._step = page.limit + page.limit // 2
        """So many passages of each side are looked at first: half as many again as entries are wanted."""
        self._asked: set[int] = set()
        self._places: dict[int, tuple[int, int, int]] = {}
        self._passages: dict[int, list[tuple[int, int, int, int]]] = {}
        self._entries: dict[int, Entry] = {}

    def look_ahead(self, words: Ranking, meaning: Ranking | None, choose: Choose) -> None:
        """Ask about the best of both sides, and for the entries of those that would be chosen of them."""
        best_by_words = [chunk for chunk, _ in words.rank(self._step)]
        if meaning is None:
            self._select(best_by_words)
            return
        best_by_meaning = [chunk for chunk, _ in meaning.rank(self._step)]
        chunks = list(dict.fromkeys(best_by_words + best_by_meaning))
        first = best_by_words[: self._page.limit] + best_by_meaning[: self._page.limit]
        likely = choose(
            [Candidate(chunk, share, 0, 0) for chunk, share in words.shares(first).items()],
            [Candidate(chunk, share, 0, 0) for chunk, share in meaning.shares(first).items()],
        )
        passages = self._ask_passages(chunks)
        entries = self._ask_entries(likely)
        self._session.end()
        self._learn(chunks, passages)
        self._entries = {row[0]: entry_of(self.spot.namespace, row) for row in entries.fetchall()}

    def load(self, entries: Sequence[int]) -> dict[int, Entry]:
        """These entries, those that were not guessed asked for now."""
        if missing := [entry_id for entry_id in entries if entry_id not in self._entries]:
            self._entries |= reading.load(self._session, self.spot, missing, self._page.now)
        return {entry_id: self._entries[entry_id] for entry_id in entries if entry_id in self._entries}

    def candidates(
        self, words: Ranking, meaning: Ranking | None, *, has_words: bool
    ) -> tuple[list[Candidate], list[Candidate]]:
        by_meaning = self._nearest(meaning)
        if not has_words:
            return [], by_meaning
        near = {candidate.entry_id for candidate in by_meaning}
        by_words = searching.by_words(
            self._session, self.spot, self._page, words, self._known(near), self._select, self._step
        )
        # Each side's finds are scored by the other side too: half a score would rank them too low.
        others = dict.fromkeys(candidate.entry_id for candidate in by_words if candidate.entry_id not in near)
        return by_words, by_meaning + self._nearness(self._known(others), meaning)

    def _nearest(self, meaning: Ranking | None) -> list[Candidate]:
        if meaning is None:
            return searching.search_vectors(self._session, self.spot, self._model, self._query, self._page)
        return best(
            meaning.rank,
            self._select,
            lambda: searching.allowed_chunks(self._session, self.spot, self._page),
            self._page.limit,
            step=self._step,
        )

    def _select(self, chunks: Sequence[int]) -> dict[int, tuple[int, int, int]]:
        """Of these passages, those whose entry passes: the entry, start and stop."""
        if missing := [chunk for chunk in chunks if chunk not in self._asked]:
            self._learn(missing, self._ask_passages(missing))
        return self._places

    def _known(self, entries: Iterable[int]) -> list[tuple[int, int, int, int]]:
        """All passages of these entries, which pass: posting, entry, start and stop."""
        if missing := [entry_id for entry_id in entries if entry_id not in self._passages]:
            found = searching.ask_passages(self._session, self.spot, missing).fetchall()
            for passage in found:
                self._passages.setdefault(passage[1], []).append(passage)
        return [passage for entry_id in entries for passage in self._passages.get(entry_id, ())]

    def _ask_passages(self, chunks: Sequence[int]) -> Told:
        """All passages of these passages' entries, where those pass."""
        spot, where = self.spot, searching.conditions(self.spot, self._page)
        # Each table is asked once for all its rows: that reads far fewer pages than a look for each.
        return self._session.ask(
            f"SELECT c.posting, c.entry, c.start, c.stop FROM {spot.of('entry')} AS e"
            f" JOIN {spot.of('chunk')} AS c ON c.tenant = e.tenant AND c.entry = e.id AND c.ended_commit IS NULL"
            f" WHERE e.id = ANY(ARRAY(SELECT entry FROM {spot.of('chunk')}"
            f" WHERE tenant = %s AND id = ANY(%s::bigint[]) AND ended_commit IS NULL)) AND {where.sql}",
            (spot.tenant, array_of(chunks), *where.parameters),
            binary=True,
            prepare=True,
        )

    def _ask_entries(self, chunks: Sequence[int]) -> Told:
        """The live entries that these passages belong to."""
        spot = self.spot
        return self._session.ask(
            f"SELECT {columns('e')} FROM {spot.of('entry')} AS e WHERE e.tenant = %s AND e.id = ANY(ARRAY("
            f"SELECT entry FROM {spot.of('chunk')} WHERE tenant = %s AND id = ANY(%s::bigint[])"
            f" AND ended_commit IS NULL)) AND e.namespace = %s AND (e.expires_at IS NULL OR e.expires_at > {NOW})",
            (spot.tenant, spot.tenant, array_of(chunks), spot.id, self._page.now),
            binary=True,
            prepare=True,
        )

    def _learn(self, chunks: Sequence[int], passages: Told) -> None:
        self._asked.update(chunks)
        learned: dict[int, list[tuple[int, int, int, int]]] = {}
        for row, entry_id, start, stop in passages.fetchall():
            self._places[chunk_of(row)] = entry_id, start, stop
            learned.setdefault(entry_id, []).append((row, entry_id, start, stop))
        self._passages |= learned

    def _nearness(self, known: searching.Known, meaning: Ranking | None) -> list[Candidate]:
        """How near these passages are, those that have a vector."""
        chunks = [chunk_of(row) for row, *_ in known]
        shares = self._ask_nearness(chunks) if meaning is None else meaning.shares(chunks)
        return [
            Candidate(entry_id, shares[chunk], start, stop)
            for chunk, (_, entry_id, start, stop) in zip(chunks, known, strict=True)
            if chunk in shares
        ]

    def _ask_nearness(self, chunks: Sequence[int]) -> dict[int, float]:
        return dict(
            self._session.ask(
                f"SELECT chunk, -(value::vector <#> %s) FROM {self.spot.of('embedding')}"
                " WHERE tenant = %s AND chunk = ANY(%s::bigint[]) AND model = %s",
                (Vector.of(self._query), self.spot.tenant, array_of(chunks), self._model.id),
                binary=True,
            ).fetchall()
        )
