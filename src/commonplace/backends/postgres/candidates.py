"""Candidates of a search: passages ranked by keywords and by vectors, mapped to live entries that pass the filter.

What ranks them is in memory (memory.py). A search sends three queries in one round trip: what has changed since memory
was read, the best passages with all other passages of their entries, and the entries that will most likely be chosen.
Only two things are unknown about a passage: which entry it belongs to and whether that entry passes the filter. So the
choice is made as if each passage were an entry. More queries follow if something has changed, if that guess was wrong,
or if too few of the best pass the filter.

A namespace that memory does not hold is ranked by PostgreSQL: keywords by the GIN index, vectors by pgvector's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from numpy import concatenate, empty, flatnonzero, int64, uint64

from commonplace.backends.filter_sql import add_filter
from commonplace.backends.postgres.connection import (
    Halfvec,
    Result,
    Session,
    Vector,
    array_of,
    numbers_of,
    texts_of,
)
from commonplace.backends.postgres.index import Model
from commonplace.backends.postgres.memory import NamespaceMemory, Near, ask_changes, ranked_words, read_passages
from commonplace.backends.postgres.reader import NOW, Location, keyword_index, load
from commonplace.backends.postgres.where import Where
from commonplace.backends.ranking import (
    LEVELS,
    Counts,
    Located,
    Page,
    Rank,
    Ranked,
    Ranking,
    best,
    chunk_of,
    score_arrays,
    term_hash,
    with_known,
)
from commonplace.backends.rows import columns, entry_of
from commonplace.entry import Entry
from commonplace.filters import Filter
from commonplace.language.tokenizer import present_weight
from commonplace.store import Candidate, Candidates, Choose, SearchQuery, TermCounts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

EF_SEARCH = 600
"""How many nodes of the index a search visits. Among 100,000 sentences of real conversations, 300 found 0.959 to 0.973
of the ten nearest, depending on how the index was built, and 600 found 0.983 to 0.987.
"""

SCANNED = 200_000
RESCORED_SHARE = 4
"""Vectors are ordered by a query in half precision, so 1 in this many more are read and scored exactly.
"""

_NO_POSTINGS: NDArray[int64] = empty(0, int64)
MOST_TRIES = 5
"""How often a search catches up with a namespace that is written to all the time, before it takes a snapshot."""


class Meanings(Protocol):
    """Passages by similarity to the query: those of a `Near` in memory, or of an `Indexed` in the database."""

    def rank(self, keep: int | None, allowed: Sequence[int] | None = None) -> Ranked: ...

    def shares(self, chunks: Sequence[int]) -> dict[int, float]: ...


# Posting lists from the database


@dataclass(frozen=True, slots=True)
class Listed:
    """What BM25 needs of a namespace: counts, and a posting list for each term."""

    counts: Counts
    postings: list[NDArray[int64]]
    is_pending: bool
    """Whether vectors of passages are pending."""

    def words(self, terms: Mapping[str, float]) -> Ranking:
        weighed = (
            (present_weight(term, weight, len(found)), found // LEVELS, found % LEVELS)
            for (term, weight), found in zip(terms.items(), self.postings, strict=True)
        )
        return score_arrays(self.counts, weighed)


def read_lists(session: Session, spot: Location, terms: Iterable[str]) -> Listed | None:
    """Posting lists in the order of the terms; None if there is no such namespace.

    Until the index of a namespace that has become large is built, all of its passages are read for this.
    """
    wanted = list(terms)
    if session.is_distributed:
        return _read_lists_of_nodes(session, spot, wanted)
    rows = session.rows(
        "SELECT n.id, n.chunk_count, n.term_total,"
        f" EXISTS (SELECT 1 FROM {spot.of('pending')} AS p WHERE p.tenant = n.tenant AND p.namespace = n.id),"
        " CASE WHEN (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s))"
        f" THEN {spot.of('postings')}(n.id, %s::text[]) END FROM {spot.of('namespace')} AS n"
        " WHERE n.tenant = %s AND n.path = %s",
        (keyword_index(spot), texts_of(wanted), spot.tenant, "/".join(spot.namespace)),
        binary=True,
        prepare=True,
    )
    for id, passages, total_length, is_pending, postings in rows:
        found = _scanned(session, spot, wanted) if postings is None else map(numbers_of, postings)
        return Listed(Counts(id, passages, total_length), list(found), is_pending)
    return None


def _read_lists_of_nodes(session: Session, spot: Location, wanted: Sequence[str]) -> Listed | None:
    """The same on Citus, where only the coordinator knows the index, and the function has to be called there."""
    rows = session.rows(
        "SELECT n.id, n.chunk_count, n.term_total, EXISTS (SELECT 1 FROM pending AS p WHERE p.tenant = %s"
        " AND p.namespace = n.id) FROM namespace AS n WHERE n.tenant = %s AND n.path = %s",
        (spot.tenant, spot.tenant, "/".join(spot.namespace)),
    )
    for id, passages, total_length, is_pending in rows:
        [(has_index,)] = session.rows(
            "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid)",
            (keyword_index(spot),),
        )
        if has_index:
            [(postings,)] = session.rows("SELECT postings(%s, %s::text[])", (id, texts_of(wanted)), binary=True)
            found = [numbers_of(one) for one in postings]
        else:
            found = _scanned(session, spot, wanted)
        return Listed(Counts(id, passages, total_length), found, is_pending)
    return None


def _scanned(session: Session, spot: Location, terms: Sequence[str]) -> list[NDArray[int64]]:
    """The posting lists of some terms, from all passages of a namespace."""
    hashes = [term_hash(term) for term in terms]
    found: list[list[NDArray[int64]]] = [[_NO_POSTINGS] for _ in terms]
    for batch in read_passages(session, spot, 0) if terms else ():
        marked, places = batch.marked()
        terms_only = marked & ~uint64(LEVELS - 1)
        for lists, wanted in zip(found, hashes, strict=True):
            hits = flatnonzero(terms_only == uint64(wanted))
            levels = (marked[hits] & uint64(LEVELS - 1)).astype(int64)
            lists.append(batch.postings[places[hits]] * LEVELS + levels)
    return [concatenate(lists) for lists in found]


def term_counts(
    session: Session, spot: Location, terms: Iterable[str], model: Model | None, part: NamespaceMemory | None
) -> TermCounts:
    wanted = list(dict.fromkeys(terms))
    if part is not None:
        _Search(session, spot, Page(Filter(), 0, None)).from_memory(part, model, {}, None, None)
        with part.lock:
            counts = part.counts
            return TermCounts(counts.passages, counts.average_length, part.keywords.counted(wanted))
    listed = read_lists(session, spot, wanted)
    if listed is None:
        return TermCounts(0, 0.0, {})
    containing = {term: len(found) for term, found in zip(wanted, listed.postings, strict=True)}
    return TermCounts(listed.counts.passages, listed.counts.average_length, containing)


# The search


class Stale(Exception):
    """Memory cannot catch up with the changes of one statement, so it must be loaded in a snapshot."""


def search(
    session: Session,
    spot: Location,
    query: SearchQuery,
    choose: Choose,
    model: Model | None,
    part: NamespaceMemory | None,
    now: int | None,
    *,
    unless_pending: bool,
) -> Candidates | None:
    """The candidates of both rankings and the chosen entries; with `unless_pending`, None if vectors are pending."""
    found = _Search(session, spot, Page(query.filter, query.limit, now))
    vector = None if query.meaning is None or model is None else query.meaning[1]
    if part is not None:
        meaning: Meanings | None
        words, meaning, is_pending = found.from_memory(part, model, query.terms, vector, choose)
    else:
        listed = read_lists(session, spot, query.terms)
        if listed is None:
            return Candidates([], [], {})
        words, is_pending = listed.words(query.terms), listed.is_pending
        meaning = None if vector is None or model is None else Indexed(session, spot, model, vector)
        found.look_ahead(words, meaning, choose)
    if unless_pending and is_pending:
        return None
    by_words, by_meaning = found.candidates(words, meaning, has_words=bool(query.terms))
    return Candidates(by_words, by_meaning, found.load(choose(by_words, by_meaning)))


def search_text(
    session: Session,
    spot: Location,
    terms: Mapping[str, float],
    page: Page,
    model: Model | None,
    part: NamespaceMemory | None,
) -> list[Candidate]:
    """The candidates by keywords only, then the entries of `page.also` that contain any of the terms."""
    found = _Search(session, spot, page)
    if part is not None:
        return found.by_words(found.from_memory(part, model, terms, None, None)[0], page.also)
    listed = read_lists(session, spot, terms)
    return [] if listed is None else found.by_words(listed.words(terms), page.also)


def search_vectors(
    session: Session, spot: Location, model: Model, query: NDArray[float32], page: Page, part: NamespaceMemory | None
) -> list[Candidate]:
    """The candidates by vectors only."""
    found = _Search(session, spot, page)
    if part is None:
        return found.nearest(Indexed(session, spot, model, query))
    meaning = found.from_memory(part, model, {}, query, None)[1]
    assert meaning is not None, "there is a query vector"
    return found.nearest(meaning)


class _Search:
    """The candidates of one search. Both rankings share what is known about the passages' entries."""

    def __init__(self, session: Session, spot: Location, page: Page) -> None:
        self._session = session
        self._spot = spot
        self._page = page
        self._step = page.limit + page.limit // 2
        """How many passages of each ranking are looked at first: half as many again as entries are wanted."""
        self._asked: set[int] = set()
        self._places: dict[int, tuple[int, int, int]] = {}
        self._passages: dict[int, list[Located]] = {}
        self._entries: dict[int, Entry] = {}

    def from_memory(
        self,
        part: NamespaceMemory,
        model: Model | None,
        terms: Mapping[str, float],
        vector: NDArray[float32] | None,
        choose: Choose | None,
    ) -> tuple[Ranking, Near | None, bool]:
        """The rankings of both kinds by what is in memory, which has caught up, and whether vectors are pending."""
        for _ in range(MOST_TRIES):
            version = part.version
            words = ranked_words(part, terms)
            near = None if vector is None else Near(part, vector)
            told = ask_changes(self._session, self._spot, model, version)
            if choose is not None:
                self.look_ahead(words, near, choose)
            changes = told()
            if changes is None:
                raise Stale
            if changes.is_nothing(version):
                return words, near, changes.is_pending
            if not changes.is_complete(version) or not part.fits(changes.counts):
                raise Stale
            part.apply(self._session, self._spot, changes, version)
        raise Stale

    def look_ahead(self, words: Ranking, meaning: Meanings | None, choose: Choose) -> None:
        """Read the best of both rankings, and the entries of those that would be chosen."""
        best_by_words = [chunk for chunk, _ in words.rank(self._step)]
        best_by_meaning = [] if meaning is None else [chunk for chunk, _ in meaning.rank(self._step)]
        chunks = [chunk for chunk in dict.fromkeys(best_by_words + best_by_meaning) if chunk not in self._asked]
        first = best_by_words[: self._page.limit] + best_by_meaning[: self._page.limit]
        likely = choose(
            [Candidate(chunk, share, 0, 0) for chunk, share in words.shares(first).items()],
            [Candidate(chunk, share, 0, 0) for chunk, share in meaning.shares(first).items()] if meaning else [],
        )
        passages = self._ask_passages(chunks)
        entries = self._ask_entries(likely)
        self._session.end()
        self._learn(chunks, passages)
        found = (entry_of(self._spot.namespace, row) for row in entries.fetchall())
        self._entries |= {entry.id: entry for entry in found}

    def load(self, entries: Sequence[int]) -> dict[int, Entry]:
        """These entries. Those that were not read in advance are read now."""
        if missing := [entry_id for entry_id in entries if entry_id not in self._entries]:
            self._entries |= load(self._session, self._spot, missing, self._page.now)
        return {entry_id: self._entries[entry_id] for entry_id in entries if entry_id in self._entries}

    def candidates(
        self, words: Ranking, meaning: Meanings | None, *, has_words: bool
    ) -> tuple[list[Candidate], list[Candidate]]:
        by_meaning = [] if meaning is None else self.nearest(meaning)
        if not has_words:
            return [], by_meaning
        near = {candidate.entry_id for candidate in by_meaning}
        by_words = self.by_words(words, near)
        if meaning is None:
            return by_words, []
        # The candidates of each ranking are scored by the other one too. Half a score would rank them too low.
        others = dict.fromkeys(candidate.entry_id for candidate in by_words if candidate.entry_id not in near)
        return by_words, by_meaning + self._nearness(self._known(others), meaning)

    def by_words(self, words: Ranking, also: Iterable[int]) -> list[Candidate]:
        """The best by keywords, then the other passages of `also` that contain any of the terms."""
        known = self._known(also)
        return with_known(self._best(words.rank), known, words.shares([passage.chunk for passage in known]))

    def nearest(self, meaning: Meanings) -> list[Candidate]:
        """The best by vectors."""
        return self._best(meaning.rank)

    def _best(self, rank: Rank) -> list[Candidate]:
        return best(
            rank,
            self._select,
            lambda: allowed_chunks(self._session, self._spot, self._page),
            self._page.limit,
            step=self._step,
        )

    # What is known of the passages

    def _select(self, chunks: Sequence[int]) -> dict[int, tuple[int, int, int]]:
        """Of these passages, those whose entry passes: the entry, start and stop."""
        if missing := [chunk for chunk in chunks if chunk not in self._asked]:
            self._learn(missing, self._ask_passages(missing))
        return self._places

    def _known(self, entries: Iterable[int]) -> list[Located]:
        """All passages of these entries, which pass."""
        if missing := [entry_id for entry_id in entries if entry_id not in self._passages]:
            for passage in _located(self._ask_known(missing)):
                self._passages.setdefault(passage.entry_id, []).append(passage)
        return [passage for entry_id in entries for passage in self._passages.get(entry_id, ())]

    def _ask_known(self, entries: Sequence[int]) -> Result:
        return self._session.ask(
            f"SELECT posting, entry, start, stop FROM {self._spot.of('chunk')} WHERE tenant = %s AND entry = ANY(%s)"
            " AND ended_commit IS NULL",
            (self._spot.tenant, list(entries)),
        )

    def _ask_passages(self, chunks: Sequence[int]) -> Result:
        """All passages of these passages' entries, if those pass."""
        spot, where = self._spot, conditions(self._spot, self._page)
        # Each table is queried once for all its rows, which reads far fewer pages than a query for each row.
        return self._session.ask(
            f"SELECT c.posting, c.entry, c.start, c.stop FROM {spot.of('entry')} AS e"
            f" JOIN {spot.of('chunk')} AS c ON c.tenant = e.tenant AND c.entry = e.id AND c.ended_commit IS NULL"
            f" WHERE e.id = ANY(ARRAY(SELECT entry FROM {spot.of('chunk')} WHERE tenant = %s AND namespace = %s"
            f" AND id = ANY(%s::bigint[]) AND ended_commit IS NULL)) AND {where.sql}",
            (spot.tenant, spot.id, array_of(chunks), *where.parameters),
            binary=True,
            prepare=True,
        )

    def _ask_entries(self, chunks: Sequence[int]) -> Result:
        """The live entries that these passages belong to."""
        spot = self._spot
        return self._session.ask(
            f"SELECT {columns('e')} FROM {spot.of('entry')} AS e WHERE e.tenant = %s AND e.id = ANY(ARRAY("
            f"SELECT entry FROM {spot.of('chunk')} WHERE tenant = %s AND namespace = %s AND id = ANY(%s::bigint[])"
            f" AND ended_commit IS NULL)) AND e.namespace = %s AND (e.expires_at IS NULL OR e.expires_at > {NOW})",
            (spot.tenant, spot.tenant, spot.id, array_of(chunks), spot.id, self._page.now),
            binary=True,
            prepare=True,
        )

    def _learn(self, chunks: Sequence[int], passages: Result) -> None:
        self._asked.update(chunks)
        learned: dict[int, list[Located]] = {}
        for passage in _located(passages):
            self._places[passage.chunk] = passage.entry_id, passage.start, passage.end
            learned.setdefault(passage.entry_id, []).append(passage)
        self._passages |= learned

    def _nearness(self, known: Sequence[Located], meaning: Meanings) -> list[Candidate]:
        """The similarities of those passages that have a vector."""
        shares = meaning.shares([passage.chunk for passage in known])
        return [
            Candidate(entry_id, shares[chunk], start, end) for chunk, entry_id, start, end in known if chunk in shares
        ]


def _located(passages: Result) -> Iterator[Located]:
    return (Located(chunk_of(row), entry_id, start, end) for row, entry_id, start, end in passages.fetchall())


class Indexed:
    """Ranks the passages of a namespace that memory does not hold, by pgvector."""

    def __init__(self, session: Session, spot: Location, model: Model, query: NDArray[float32]) -> None:
        self._session = session
        self._spot = spot
        self._model = model
        self._query = query
        self._kept = 0
        self._best: Ranked = ()

    def rank(self, keep: int | None, allowed: Sequence[int] | None = None) -> Ranked:
        if keep is None or allowed is not None:
            return self._among(keep, allowed)
        if keep > self._kept:  # a caller that asks for some most likely asks for more
            self._kept = 3 * keep
            self._best = self._by_index(self._kept)
        return self._best[:keep]

    def shares(self, chunks: Sequence[int]) -> dict[int, float]:
        return dict(
            self._session.ask(
                f"SELECT chunk, -(value::vector <#> %s) FROM {self._spot.of('embedding')}"
                " WHERE tenant = %s AND chunk = ANY(%s::bigint[]) AND model = %s",
                (Vector.of(self._query), self._spot.tenant, array_of(chunks), self._model.id),
                binary=True,
            ).fetchall()
        )

    def _among(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        """Compare every vector of these passages. `+ 0` prevents the use of the approximate index."""
        return self._read(
            f"SELECT chunk, value FROM {self._spot.of('embedding')} WHERE tenant = %s AND namespace = %s AND model = %s"
            " AND NOT former AND chunk = ANY(%s::bigint[]) ORDER BY (value <#> %s) + 0, chunk DESC LIMIT %s",
            [
                self._spot.tenant,
                self._spot.id,
                self._model.id,
                array_of(allowed or ()),
                Halfvec.of(self._query),
                _rows_for(keep),
            ],
            keep,
        )

    def _by_index(self, keep: int) -> Ranked:
        """Scan the index. It holds other namespaces too, so the scan continues until enough of this one are found."""
        for name, value in (
            ("hnsw.ef_search", str(min(1_000, max(EF_SEARCH, 2 * keep)))),
            ("hnsw.iterative_scan", "relaxed_order"),
            ("hnsw.max_scan_tuples", str(SCANNED)),
        ):
            self._session.set_local(name, value)
        # The model and the namespace are literals in the statement: the planner uses a partial index only if they are
        # known.
        dimensions = f"{self._model.dimensions:d}"
        return self._read(
            f"SELECT chunk, value FROM {self._spot.of('embedding')} WHERE tenant = %s AND namespace = {self._spot.id:d}"
            f" AND model = {self._model.id:d} AND NOT former"
            f" ORDER BY value::halfvec({dimensions}) <#> %s::halfvec({dimensions}) LIMIT %s",
            [self._spot.tenant, Halfvec.of(self._query), _rows_for(keep)],
            keep,
        )

    def _read(self, near: str, parameters: Sequence[Any], keep: int | None) -> Ranked:
        """The nearest passages with their scores, best first."""
        rows = self._session.rows(
            f"WITH near AS MATERIALIZED ({near}) SELECT chunk, -(value::vector <#> %s) FROM near",
            [*parameters, Vector.of(self._query)],
            binary=True,
        )
        return sorted(rows, key=lambda one: (-one[1], -one[0]))[:keep]


def _rows_for(keep: int | None) -> int | None:
    return None if keep is None else keep + keep // RESCORED_SHARE


def conditions(spot: Location, page: Page, *, driving_labels: bool = False) -> Where:
    where = Where()
    where.add(
        f"e.tenant = %s AND e.namespace = %s AND (e.expires_at IS NULL OR e.expires_at > {NOW})",
        spot.tenant,
        spot.id,
        page.now,
    )
    add_filter(where, spot.id, page.filter, driving_labels=driving_labels)
    return where


def allowed_chunks(session: Session, spot: Location, page: Page) -> list[int]:
    where = conditions(spot, page, driving_labels=True)
    rows = session.rows(
        f"SELECT c.id FROM {spot.of('entry')} AS e"
        f" JOIN {spot.of('chunk')} AS c ON c.tenant = e.tenant AND c.entry = e.id"
        f" WHERE c.ended_commit IS NULL AND {where.sql}",
        where.parameters,
    )
    return [chunk for (chunk,) in rows]
