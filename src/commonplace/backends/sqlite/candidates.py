"""Candidates of a search: passages ranked by keywords or by vectors, mapped to live entries that pass the filter.

A process keeps in memory what it needs of a namespace that it searches often, besides the vectors: where the passages
are, which of them pass a filter, and the posting lists of the words that were searched for. It is read in the snapshot
of a search and belongs to that state of the namespace. The next search catches up with what was committed since, which
the namespace's counts must confirm; otherwise everything is read again. The first search of a namespace reads nothing
for this, because many processes search once. While entries wait for their passages (see backlog.py), and for filters by
time, key or field, a search reads the rows instead.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from commonplace.backends.filter_sql import add_filter, labels_of
from commonplace.backends.ranking import (
    SPARE,
    Counts,
    Located,
    Page,
    Postings,
    Rank,
    Ranked,
    Ranking,
    best,
    posting,
    score,
    score_arrays,
    score_places,
    with_known,
)
from commonplace.backends.sqlite.backlog import NONE, Waiting, has_labels
from commonplace.backends.sqlite.checksums import KIND_CODES, damaged_row, damaged_vector, is_whole_vector
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.index import check_containing, damaged_keywords, ended_chunks, posting_lists
from commonplace.backends.sqlite.reader import SQLiteReader
from commonplace.backends.sqlite.where import Where
from commonplace.backends.sqlite.writer import NamespaceRow, read_namespace
from commonplace.checks import Namespace
from commonplace.filters import Filter
from commonplace.language.passages import LENGTH_STEPS, LEVEL_FREQUENCY
from commonplace.language.tokenizer import present_weight
from commonplace.store import Candidate, Candidates, Choose, SearchQuery, TermCounts

if TYPE_CHECKING:
    from numpy import bool_, float32, float64, int32, intp, uint8
    from numpy.typing import NDArray

    from commonplace.backends.vectors import Batch, Floats, Halves, Integers, Similarity, VectorCache

    Places = NDArray[intp]
    Mask = NDArray[bool_]

BYTES_A_PASSAGE = 80
BYTES_A_TABLE = 4_000
MOST_CHANGED = 5_000
"""If more entries have changed since the last search, everything is read again."""
MOST_POSTING_BYTES = 9_000_000
"""How much the posting lists of a namespace may take. Those that were read first are dropped first."""
BYTES_A_TERM = 500
"""What a list takes besides its postings, which take 5 bytes each."""
MOST_FILTERS = 16
MOST_LABELS = 64
MOSTLY = 4
"""A filter that leaves out at most 1 in this many passages is not applied before ranking."""
DEEPER = 4
"""How many times as many passages are ranked if too few entries were found."""

_LIVE = (
    "SELECT c.id, c.entry, c.start, c.stop, e.kind_code FROM entry AS e INDEXED BY entry_created"
    " CROSS JOIN chunk AS c ON c.entry = e.id WHERE e.namespace = ? AND c.ended_commit IS NULL"
)
_EXPIRING = "SELECT id, expires_at FROM entry WHERE namespace = ? AND expires_at IS NOT NULL"
_CHANGED = "SELECT id, expires_at FROM entry WHERE namespace = ? AND commit_number > ? LIMIT ?"
_ENDED = "SELECT DISTINCT entry FROM history WHERE namespace = ? AND ended_commit > ? LIMIT ?"
_TIMES = "SELECT count(*), sum(expires_at) FROM entry WHERE namespace = ? AND expires_at IS NOT NULL"
_PRESENT = (
    "SELECT c.id, c.entry, c.start, c.stop, e.kind_code FROM json_each(?) AS j"
    " CROSS JOIN chunk AS c ON c.entry = j.value CROSS JOIN entry AS e ON e.id = c.entry"
    " WHERE c.ended_commit IS NULL"
)
_LABELLED = "SELECT entry FROM label WHERE namespace = ? AND name = ? AND value = ?"
_LABELLED_AMONG = (
    "SELECT l.entry FROM json_each(?) AS j CROSS JOIN label AS l"
    " ON l.namespace = ? AND l.name = ? AND l.value = ? AND l.entry = j.value"
)
_INTEGERS = frozenset((int,))


def search(
    connection: Connection,
    namespace: Namespace,
    query: SearchQuery,
    choose: Choose,
    now: int,
    vectors: Callable[[], VectorCache],
    *,
    unless_pending: bool,
) -> Candidates | None:
    """As `Store.search`, on a connection with a snapshot: the namespace and what waits are read once."""
    row = read_namespace(connection, namespace)
    if row is None:
        return Candidates([], [], {})
    waiting = Waiting.of(connection, namespace, row)
    if unless_pending and (waiting.pending or _is_pending(connection, row.id)):
        return None
    page = Page(query.filter, query.limit, now)
    counts = counts_of(row, waiting)
    similarity = None if query.meaning is None else _similarity(connection, row, *query.meaning, vectors)
    if similarity is None:
        by_meaning: list[Candidate] = []
        by_words = search_text(connection, counts, query.terms, page, waiting)
    else:
        table = None if waiting is not NONE else _table(connection, row, vectors())
        allowed = None if table is None else table.allowed(connection, query.filter)
        if table is None or allowed is None:
            words = _ranking(connection, counts, query.terms, waiting)
            by_words, by_meaning = _search_both(connection, row.id, words, similarity, page, waiting)
        else:
            words = table.rank(connection, counts, query.terms)
            by_words, by_meaning = _search_table(table, allowed, words, similarity, page)
        if table is not None:
            place = row.id, "passages"
            vectors().account(place, vectors().hold(place, NamespaceMemory))
    reader = SQLiteReader(connection, namespace, row.id, now)
    return Candidates(by_words, by_meaning, reader.load(choose(by_words, by_meaning)))


def _search_both(
    connection: Connection, namespace_id: int, words: Ranking, similarity: Similarity, page: Page, waiting: Waiting
) -> tuple[list[Candidate], list[Candidate]]:
    """The best entries by keywords, and the best by vectors; each is scored by both, because with half a score it
    would rank too low.
    """
    by_meaning = candidates(connection, namespace_id, similarity.rank, page)
    by_words = candidates(connection, namespace_id, words.rank, page, waiting)
    near = {candidate.entry_id for candidate in by_meaning}
    both = list(near.union(candidate.entry_id for candidate in by_words))
    located = [passage for _, passage in _passages_of(connection, both)]
    known = [*located, *waiting.located(both).values()]
    by_words = with_known(by_words, known, words.shares([passage.chunk for passage in known]))
    far = [passage for passage in located if passage.entry_id not in near]
    cosines = similarity.cosines([passage.chunk for passage in far])
    by_meaning += [
        Candidate(entry_id, cosines[chunk], start, end) for chunk, entry_id, start, end in far if chunk in cosines
    ]
    return by_words, by_meaning


def _table(connection: Connection, row: NamespaceRow, vectors: VectorCache) -> Table | None:
    """The passages of a namespace in memory, if they are."""
    if row.chunk_count * BYTES_A_PASSAGE > vectors.largest_bytes:
        return None
    return vectors.hold((row.id, "passages"), NamespaceMemory).table(connection, row)


def _search_table(
    table: Table, allowed: Allowed, words: Ranking, similarity: Similarity, page: Page
) -> tuple[list[Candidate], list[Candidate]]:
    """The same with the passages in memory. Words are ranked by places of the table, vectors by passages."""
    narrowed = allowed if allowed.narrows else None
    words_among = words if narrowed is None else words.among(allowed.mask)

    def nearest(keep: int) -> tuple[Integers, Floats]:
        chunks, cosines = similarity.nearest(keep, narrowed)
        return table.places_of(chunks), cosines

    by_meaning = allowed.best(nearest, page)
    by_words = allowed.best(words_among.first, page)
    near = {candidate.entry_id for candidate in by_meaning}
    already = {candidate.entry_id for candidate in by_words}
    places = table.places_of_entries([*near.union(already)])
    shares = words.shares_of(places).tolist()
    known = list(zip(*table.columns(places), shares, strict=True))
    others = [one for one in known if one[4] and one[1] not in already]
    others.sort(key=lambda one: (-one[4], -one[0]))
    by_words += [Candidate(entry_id, share, start, end) for _, entry_id, start, end, share in others]
    far = [one for one in known if one[1] not in near]
    chunks = table.chunks[[one[0] for one in far]].tolist()
    cosines = similarity.cosines(chunks)
    by_meaning += [
        Candidate(entry_id, cosines[chunk], start, end)
        for chunk, (_, entry_id, start, end, _) in zip(chunks, far, strict=True)
        if chunk in cosines
    ]
    return by_words, by_meaning


def counts_of(row: NamespaceRow, waiting: Waiting) -> Counts:
    return Counts(row.id, row.chunk_count + waiting.passages, row.term_total + waiting.total_length)


def _is_pending(connection: Connection, namespace_id: int) -> bool:
    return bool(connection.execute("SELECT 1 FROM pending WHERE namespace = ? LIMIT 1", (namespace_id,)).fetchall())


def _similarity(
    connection: Connection,
    row: NamespaceRow,
    model: str,
    query: NDArray[float32],
    vectors: Callable[[], VectorCache],
) -> Similarity | None:
    """The vectors of a namespace compared with a query; None if there is no such model."""
    known = connection.execute("SELECT id, dimensions FROM model WHERE identity = ?", (model,)).fetchall()
    if not known:
        return None
    [(model_id, dimensions)] = known
    if dimensions != len(query):
        raise damaged_row(f"the row of model {model}")
    return vectors().similarity(StoredVectors(connection, row, model_id, dimensions), query)


def search_vectors(
    connection: Connection,
    row: NamespaceRow,
    model: str,
    query: NDArray[float32],
    page: Page,
    vectors: Callable[[], VectorCache],
) -> list[Candidate]:
    similarity = _similarity(connection, row, model, query, vectors)
    return [] if similarity is None else candidates(connection, row.id, similarity.rank, page)


def search_text(
    connection: Connection,
    counts: Counts,
    terms: Mapping[str, float],
    page: Page,
    waiting: Waiting,
) -> list[Candidate]:
    also = {posting(passage.chunk, length): passage for length, passage in _passages_of(connection, page.also)}
    also |= waiting.located(page.also)
    shares: dict[int, float] = {}
    postings = list(_postings(connection, counts, terms, waiting))

    def rank(keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        ranked, of_also = score(counts, postings, keep if allowed is None else None, list(also))
        shares.update(of_also)
        if allowed is None:
            return ranked
        chosen = set(allowed)
        return [(chunk, score) for chunk, score in ranked if chunk in chosen]

    return with_known(candidates(connection, counts.namespace_id, rank, page, waiting), also.values(), shares)


def term_counts(connection: Connection, counts: Counts, terms: Iterable[str], waiting: Waiting) -> TermCounts:
    weights = dict.fromkeys(terms, 1.0)
    postings = _postings(connection, counts, weights, waiting)
    return TermCounts(
        counts.passages,
        counts.average_length,
        {term: sum(len(rows) for _, rows in found.levels) for term, found in zip(weights, postings, strict=True)},
    )


def _postings(
    connection: Connection, counts: Counts, terms: Mapping[str, float], waiting: Waiting
) -> Iterator[Postings]:
    lists = posting_lists(connection, counts.namespace_id, list(terms))
    for term, weight in terms.items():
        levels = []
        for level, frequency in LEVEL_FREQUENCY.items():
            rows = json.loads(next(lists)) + waiting.postings(term, level)
            if rows:
                levels.append((frequency, rows))
        containing = sum(len(rows) for _, rows in levels)
        check_containing(containing, counts)
        yield Postings(present_weight(term, weight, containing), levels)


def _ranking(connection: Connection, counts: Counts, terms: Mapping[str, float], waiting: Waiting) -> Ranking:
    """All passages that hold any of the terms, scored as arrays: NumPy is loaded for the vectors anyway, and reads
    numbers from text several times as fast as JSON is read.
    """
    import numpy as np

    texts = []
    lists = posting_lists(connection, counts.namespace_id, list(terms))
    for (term, level), listed in zip(product(terms, LEVEL_FREQUENCY), lists, strict=True):
        waits = map(str, waiting.postings(term, level))
        texts.append(",".join(filter(None, (listed[1:-1], *waits))))
    sizes = [text.count(",") + 1 if text else 0 for text in texts]
    rows = np.fromstring(",".join(filter(None, texts)), np.int64, sep=",")
    levels = np.repeat([*LEVEL_FREQUENCY] * len(terms), sizes)
    weighed = []
    stop = 0
    for place, (term, weight) in enumerate(terms.items()):
        start, stop = stop, stop + sum(sizes[place * len(LEVEL_FREQUENCY) : (place + 1) * len(LEVEL_FREQUENCY)])
        check_containing(stop - start, counts)
        weighed.append((present_weight(term, weight, stop - start), rows[start:stop], levels[start:stop]))
    return score_arrays(counts, weighed)


def _passages_of(connection: Connection, entry_ids: Sequence[int]) -> list[tuple[int, Located]]:
    """The live passages of some entries, each after its length."""
    if not entry_ids:
        return []
    rows = connection.execute(
        "SELECT c.length, c.id, c.entry, c.start, c.stop FROM json_each(?) AS j"
        " CROSS JOIN chunk AS c ON c.entry = j.value WHERE c.ended_commit IS NULL",
        (json.dumps(entry_ids),),
    )
    return [(length, Located._make(passage)) for length, *passage in _whole_numbers(rows)]


def _whole_numbers(rows: Iterable[Any]) -> list[Any]:
    """Rows of passages. They have no checksum, so only their types are checked."""
    found = list(rows)
    if not _INTEGERS.issuperset(map(type, chain.from_iterable(found))):
        raise damaged_row("a passage of this namespace")
    return found


def candidates(
    connection: Connection, namespace_id: int, rank: Rank, page: Page, waiting: Waiting = NONE
) -> list[Candidate]:
    """Entries that wait have passages in `waiting` only, and all others have rows of labels."""
    return best(
        rank,
        lambda chunks: _select(connection, namespace_id, chunks, page) | waiting.selected(page, chunks),
        lambda: [*_allowed(connection, namespace_id, page), *waiting.selected(page)],
        page.limit,
        has_filter=has_labels(page.filter),
    )


def _conditions(namespace_id: int, page: Page, *, driving_labels: bool = False) -> Where:
    where = Where()
    where.add("e.namespace = ? AND (e.expires_at IS NULL OR e.expires_at > ?)", namespace_id, page.now)
    add_filter(where, namespace_id, page.filter, driving_labels=driving_labels)
    return where


def _select(
    connection: Connection, namespace_id: int, chunks: Sequence[int], page: Page
) -> dict[int, tuple[int, int, int]]:
    where = _conditions(namespace_id, page)
    rows = connection.execute(
        "SELECT c.id, e.id, c.start, c.stop FROM json_each(?) AS j CROSS JOIN chunk AS c ON c.id = j.value"
        f" CROSS JOIN entry AS e ON e.id = c.entry WHERE c.ended_commit IS NULL AND {where.sql}",
        (json.dumps(chunks), *where.parameters),
    )
    return {chunk: (entry_id, start, stop) for chunk, entry_id, start, stop in _whole_numbers(rows)}


def _allowed(connection: Connection, namespace_id: int, page: Page) -> list[int]:
    where = _conditions(namespace_id, page, driving_labels=True)
    rows = connection.execute(
        f"SELECT c.id FROM entry AS e JOIN chunk AS c ON c.entry = e.id WHERE c.ended_commit IS NULL AND {where.sql}",
        where.parameters,
    )
    return [chunk for (chunk,) in rows]


class StoredVectors:
    """The vectors of a namespace in the file, as `backends.vectors` reads them."""

    def __init__(self, connection: Connection, row: NamespaceRow, model_id: int, dimensions: int) -> None:
        self._connection = connection
        self._namespace_id = row.id
        self._model_id = model_id
        self.place = (row.id, model_id)
        self.dimensions = dimensions
        self.commit = row.commit_number
        self.chunks_ended = row.chunks_ended

    def added(self, after: int, limit: int) -> Batch:
        from commonplace.backends.vectors import Batch, halves

        rows = self._connection.execute(
            "SELECT sequence, chunk, value, checksum FROM vector"
            " WHERE namespace = ? AND model = ? AND former = 0 AND sequence > ? ORDER BY sequence LIMIT ?",
            (self._namespace_id, self._model_id, after, limit),
        ).fetchall()
        for _, chunk, value, checksum in rows:
            if not is_whole_vector(chunk, value, checksum) or len(value) != 2 * self.dimensions:
                raise damaged_vector()
        sequences, chunks, values, _ = zip(*rows, strict=True) if rows else ((), (), (), ())
        return Batch(sequences, chunks, halves(values, self.dimensions))

    def ended(self, after: int) -> list[int]:
        return ended_chunks(self._connection, self._namespace_id, after)

    def values(self, sequences: Sequence[int]) -> tuple[list[int], Halves]:
        from commonplace.backends.vectors import halves

        rows = self._connection.execute(
            "SELECT v.sequence, v.value FROM json_each(?) AS j CROSS JOIN vector AS v"
            " WHERE v.namespace = ? AND v.model = ? AND v.former = 0 AND v.sequence = j.value",
            (json.dumps(sequences), self._namespace_id, self._model_id),
        ).fetchall()
        return [sequence for sequence, _ in rows], halves([value for _, value in rows], self.dimensions)


# Passages in memory


class NamespaceMemory:
    """The passages of one namespace, as far as this process has read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._was_searched = False
        self._version: tuple[int, ...] = ()
        self._table: Table | None = None

    @property
    def held_bytes(self) -> int:
        table = self._table
        return 0 if table is None else table.held_bytes

    def table(self, connection: Connection, row: NamespaceRow) -> Table | None:
        """The passages in the state that the connection's snapshot shows, of which this is the namespace's row.

        None if they are not in memory.
        """
        version = (row.commit_number, row.chunk_count, row.term_total, row.chunks_ended)
        with self._lock:
            if version == self._version:
                return self._table
            if not self._was_searched:
                self._was_searched = True
                return None
            if self._version and row.commit_number < self._version[0]:
                return None  # another thread has a newer snapshot
            found = None
            if self._table is not None:
                found = self._table.caught_up(connection, row, self._version[0], self._version[3])
            self._table = found or Table.read(connection, row)
            self._version = version
            return self._table


class _Postings(NamedTuple):
    """The posting list of a word, as a table has it that has so many places, of which so many are not live."""

    places: NDArray[int32]
    codes: NDArray[uint8]
    size: int
    ended: int

    @property
    def held_bytes(self) -> int:
        return BYTES_A_TERM + self.places.nbytes + self.codes.nbytes


class Table:
    """The live passages of a namespace in one state of it, as arrays in the order of their ids. It never changes, but
    remembers what was asked of it. A place is a number of a passage here; it stays the same in the tables that follow.
    """

    def __init__(
        self,
        namespace_id: int,
        columns: Sequence[Integers],
        is_live: Mask,
        kinds: Mapping[int | str, int],
        expiring: Mapping[int, int],
        labelled: dict[tuple[str, str], Integers],
    ) -> None:
        self._namespace_id = namespace_id
        self._columns = columns
        self._size = len(is_live)
        self._is_live = is_live
        self._kinds = kinds
        self.expiring = expiring
        self._labelled = labelled
        self.chunks, self.entries, self.starts, self.stops, self._kind_of = (one[: self._size] for one in columns)
        self._is_dense = bool(self._size) and int(self.chunks[-1] - self.chunks[0]) == self._size - 1
        self._scores: list[NDArray[float64]] = []
        self._by_entry: tuple[Integers, Places] | None = None
        self._filters: dict[tuple[object, ...], Allowed] = {}
        self._ended = self._size - int(is_live.sum())
        self._postings: dict[str, _Postings] = {}
        self._posting_bytes = 0
        self._posting_lock = threading.Lock()
        self._rows: tuple[Integers, Places] | None = None

    @property
    def held_bytes(self) -> int:
        arrays = [*self._columns, self._is_live, *self._labelled.values(), *self._scores]
        arrays += [*(self._by_entry or ()), *(self._rows or ())[1:]]
        for allowed in [*self._filters.values()]:
            arrays += [allowed.mask, *(allowed.rows or ())[1:]]
        return BYTES_A_TABLE + sum(one.nbytes for one in arrays) + self._posting_bytes

    # Reading

    @classmethod
    def read(cls, connection: Connection, row: NamespaceRow) -> Table | None:
        """None if a row is damaged or missing. The searches that need that row tell."""

        import numpy as np

        rows = connection.execute(_LIVE, (row.id,)).fetchall()
        expiring = dict(connection.execute(_EXPIRING, (row.id,)).fetchall())
        if len(rows) != row.chunk_count:
            return None
        columns = [np.empty(0, np.int64)] * 5
        table = cls(row.id, columns, np.empty(0, np.bool_), {}, expiring, {})
        return table._with(rows, np.empty(0, np.int64), expiring)

    def caught_up(self, connection: Connection, row: NamespaceRow, commit: int, chunks_ended: int) -> Table | None:
        """The table of a later state, made from this one; None if that is not certain."""

        import numpy as np

        changed = connection.execute(_CHANGED, (row.id, commit, MOST_CHANGED + 1)).fetchall()
        former = connection.execute(_ENDED, (row.id, commit, MOST_CHANGED + 1)).fetchall()
        ended = [] if row.chunks_ended == chunks_ended else ended_chunks(connection, row.id, commit)
        if max(len(changed), len(former)) > MOST_CHANGED or len(ended) != row.chunks_ended - chunks_ended:
            return None
        # Of an ended passage without a vector no row is left, so the passages of all that changed are read.
        touched = {entry_id for entry_id, *_ in (*changed, *former)}
        rows = connection.execute(_PRESENT, (json.dumps([*touched]),)).fetchall()
        last = int(self.chunks[-1]) if self._size else 0
        kept = [one[0] for one in rows if one[0] <= last]
        places = self.places_of_entries([*touched])
        is_kept = np.isin(self.chunks[places], np.asarray(kept, np.int64))
        if int(is_kept.sum()) != len(kept):
            return None
        expiring = self._expiring_after(connection, row, changed)
        table = self._with([one for one in rows if one[0] > last], self.chunks[places[~is_kept]], expiring)
        if table is None or table._size - table._ended != row.chunk_count:
            return None
        with self._posting_lock:
            table._postings, table._posting_bytes = self._postings.copy(), self._posting_bytes
        table._scores = self._scores
        ids = json.dumps([entry_id for entry_id, _ in changed])
        if changed:
            table._labelled = {
                label: _relabelled(connection, row.id, label, known, ids)
                for label, known in dict(self._labelled).items()
            }
        if self._rows is not None and (self._rows[1] >= 0).all():
            table._rows = self._rows
        return table

    def _expiring_after(
        self, connection: Connection, row: NamespaceRow, changed: Iterable[tuple[int, int | None]]
    ) -> Mapping[int, int]:
        """When entries expire in a later state. A renewal changes that, and the entry stays as it was."""
        expiring = dict(self.expiring)
        for entry_id, expires_at in changed:
            if expires_at is None:
                expiring.pop(entry_id, None)
            else:
                expiring[entry_id] = expires_at
        ((count, total),) = connection.execute(_TIMES, (row.id,)).fetchall()
        if (count, total or 0) == (len(expiring), sum(expiring.values())):
            return expiring
        return dict(connection.execute(_EXPIRING, (row.id,)).fetchall())

    def _with(self, rows: Sequence[Sequence[Any]], ended: Integers, expiring: Mapping[int, int]) -> Table | None:
        """A table with more passages and fewer live ones."""

        import numpy as np

        from commonplace.backends.vectors import grown

        kinds, columns, is_live = dict(self._kinds), self._columns, self._is_live
        if len(ended):
            is_live = is_live & ~np.isin(self.chunks, ended)
        if rows:
            *numbers, codes = zip(*rows, strict=True)
            if not _INTEGERS.issuperset(map(type, chain(*numbers))):
                return None
            for code in set(codes):
                kinds.setdefault(code, len(kinds))
            added = np.array([*numbers, [kinds[code] for code in codes]], np.int64)
            added = added[:, added[0].argsort(kind="stable")]
            columns = [grown(known, self._size, more) for known, more in zip(columns, added, strict=True)]
            is_live = np.concatenate([is_live, np.ones(len(rows), np.bool_)])
        return Table(self._namespace_id, columns, is_live, kinds, expiring, self._labelled)

    # Passages

    def places_of(self, chunks: Integers) -> Places:
        """Where these passages are here; -1 for each that is not."""

        import numpy as np

        if not self._size:
            return np.full(len(chunks), -1)
        if self._is_dense:
            places = chunks - self.chunks[0]
            return (
                places
                if not ((places < 0) | (places >= self._size)).any()
                else np.where((places < 0) | (places >= self._size), -1, places)
            )
        places = np.minimum(self.chunks.searchsorted(chunks), self._size - 1)
        return np.where(self.chunks[places] == chunks, places, -1)

    def places_of_entries(self, entry_ids: Sequence[int]) -> Places:
        """The live passages of some entries."""

        import numpy as np

        if self._by_entry is None:
            order = self.entries.argsort(kind="stable")
            self._by_entry = self.entries[order], order
        known, order = self._by_entry
        wanted = np.asarray(entry_ids, np.int64)
        starts, stops = known.searchsorted(wanted), known.searchsorted(wanted, side="right")
        counts = stops - starts
        within = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
        places: Places = order[starts.repeat(counts) + within]
        return places[self._is_live[places]]

    def rows_of(self, chunks: Integers) -> Places:
        """As `places_of`, for all passages of a matrix, which grows at its end."""

        import numpy as np

        known = self._rows
        base = chunks if chunks.base is None else chunks.base
        if known is None or known[0] is not base or len(known[1]) > len(chunks):
            places = self.places_of(chunks)
        elif len(known[1]) < len(chunks):
            places = np.concatenate([known[1], self.places_of(chunks[len(known[1]) :])])
        else:
            return known[1]
        self._rows = base, places
        return places

    def columns(self, places: Places) -> tuple[list[int], list[int], list[int], list[int]]:
        """The passages at these places: the place, the entry, the start and the stop of each."""
        return places.tolist(), self.entries[places].tolist(), self.starts[places].tolist(), self.stops[places].tolist()

    def is_expired(self, entry_id: int, now: int | None) -> bool:
        expires_at = self.expiring.get(entry_id)
        return expires_at is not None and now is not None and expires_at <= now

    # Filters

    def allowed(self, connection: Connection, filter: Filter) -> Allowed | None:
        """The passages of entries that pass a filter, if it only has kinds and labels. Expired ones are among them."""

        import numpy as np

        if (
            filter.conditions
            or filter.key_prefix is not None
            or filter.unchanged_since is not None
            or any(
                bound is not None
                for bound in (
                    filter.created_after,
                    filter.created_before,
                    filter.updated_after,
                    filter.updated_before,
                    filter.key_after,
                    filter.key_before,
                )
            )
        ):
            return None
        wanted = labels_of(filter)
        key = (filter.kinds, *((name, *values) for name, values in wanted))
        known = self._filters.get(key)
        if known is None:
            mask = self._is_live
            if filter.kinds:
                codes = [self._kinds.get(KIND_CODES.get(kind, kind), -1) for kind in filter.kinds]
                if not {*self._kinds.values()}.issubset(codes):
                    mask = mask & np.isin(self._kind_of, codes)
            for name, values in wanted:
                labelled = np.concatenate([self._entries_with(connection, (name, value)) for value in values])
                mask = mask & np.isin(self.entries, labelled)
            for oldest in list(self._filters)[: max(0, len(self._filters) - MOST_FILTERS + 1)]:
                self._filters.pop(oldest, None)
            known = self._filters[key] = Allowed(self, mask)
        return known

    def _entries_with(self, connection: Connection, label: tuple[str, str]) -> Integers:
        import numpy as np

        known = self._labelled.get(label)
        if known is None:
            rows = connection.execute(_LABELLED, (self._namespace_id, *label)).fetchall()
            known = np.array([entry_id for (entry_id,) in rows], np.int64)
            if len(self._labelled) < MOST_LABELS:
                self._labelled[label] = known
        return known

    # Words

    def rank(self, connection: Connection, counts: Counts, terms: Mapping[str, float]) -> Ranking:
        """All passages that hold any of the terms, by their places."""

        import numpy as np

        found = self._posting_lists(connection, terms)
        weighed = []
        for term, weight in terms.items():
            places, codes, *_ = found[term]
            check_containing(len(places), counts)
            weighed.append((present_weight(term, weight, len(places)), places, codes))
        try:
            scores = self._scores.pop()
        except IndexError:
            scores = np.empty(0)
        if len(scores) < self._size:
            scores = np.zeros(len(self._columns[0]))  # with room for the passages that the tables after this one add
        ranked = score_places(counts, weighed, scores[: self._size])
        self._scores.append(scores)
        return ranked

    def _posting_lists(self, connection: Connection, terms: Iterable[str]) -> dict[str, _Postings]:
        """The lists of these words. Of one that an earlier table had, only what was added since is read."""
        none = self._no_postings()
        known = {term: self._postings.get(term, none) for term in terms}
        shorter: dict[int, list[str]] = {}
        for term, postings in known.items():
            if postings.size < self._size:
                shorter.setdefault(postings.size, []).append(term)
        changed = {term: self._without_ended(one) for term, one in known.items() if one.ended != self._ended}
        known |= changed
        for size, some in shorter.items():
            added = self._read_postings(connection, some, size)
            changed |= {term: self._joined(known[term], *one) for term, one in zip(some, added, strict=True)}
        if changed:
            self._keep_postings(changed)
        return known | changed

    def _no_postings(self) -> _Postings:
        import numpy as np

        return _Postings(np.empty(0, np.int32), np.empty(0, np.uint8), 0, self._ended)

    def _without_ended(self, postings: _Postings) -> _Postings:
        is_live = self._is_live[postings.places]
        return _Postings(postings.places[is_live], postings.codes[is_live], postings.size, self._ended)

    def _joined(self, postings: _Postings, places: NDArray[int32], codes: NDArray[uint8]) -> _Postings:
        import numpy as np

        if len(postings.places):
            places, codes = np.concatenate([postings.places, places]), np.concatenate([postings.codes, codes])
        return _Postings(places, codes, self._size, self._ended)

    def _keep_postings(self, changed: Mapping[str, _Postings]) -> None:
        with self._posting_lock:
            for term, postings in changed.items():
                former = self._postings.get(term)
                self._posting_bytes += postings.held_bytes - (0 if former is None else former.held_bytes)
                self._postings[term] = postings
            while self._posting_bytes > MOST_POSTING_BYTES:
                oldest = next(iter(self._postings))
                self._posting_bytes -= self._postings.pop(oldest).held_bytes

    def _read_postings(
        self, connection: Connection, terms: Sequence[str], size: int
    ) -> list[tuple[NDArray[int32], NDArray[uint8]]]:
        """The passages from the place `size` on that hold each of these words."""

        import numpy as np

        after = int(self.chunks[size - 1]) if size else 0
        texts = [listed[1:-1] for listed in posting_lists(connection, self._namespace_id, terms, after=after)]
        sizes = [text.count(",") + 1 if text else 0 for text in texts]
        rows = np.fromstring(",".join(filter(None, texts)), np.int64, sep=",")
        levels = np.repeat([level for _, level in product(terms, LEVEL_FREQUENCY)], sizes)
        places = self.places_of(rows // LENGTH_STEPS)
        codes = (levels * LENGTH_STEPS + rows % LENGTH_STEPS).astype(np.uint8)
        if (places < size).any():
            raise damaged_keywords()
        narrow: NDArray[int32] = places.astype(np.int32)
        found = []
        stop = 0
        for number in range(len(terms)):
            some = sizes[number * len(LEVEL_FREQUENCY) : (number + 1) * len(LEVEL_FREQUENCY)]
            start, stop = stop, stop + sum(some)
            found.append((narrow[start:stop].copy(), codes[start:stop].copy()))
        return found


def _relabelled(
    connection: Connection, namespace_id: int, label: tuple[str, str], known: Integers, changed: str
) -> Integers:
    """The entries with a label, after some have changed."""

    import numpy as np

    rows = connection.execute(_LABELLED_AMONG, (changed, namespace_id, *label)).fetchall()
    others = known[~np.isin(known, np.asarray(json.loads(changed), np.int64))]
    return np.concatenate([others, np.array([entry_id for (entry_id,) in rows], np.int64)])


class Allowed:
    """The passages of a table that pass a filter."""

    def __init__(self, table: Table, mask: Mask) -> None:
        self.mask = mask
        self._table = table
        self.rows: tuple[Integers, Places] | None = None
        self.narrows = int(mask.sum()) * MOSTLY < len(mask) * (MOSTLY - 1)
        """Whether ranking is told of it. Otherwise those that do not pass are left out afterwards."""

    def best(self, rank: Callable[[int], tuple[Places, NDArray[Any]]], page: Page) -> list[Candidate]:
        """The best entries of a ranking, as `best` of ranking.py finds them; `rank` ranks so many places at least."""
        limit = page.limit
        keep = 2 * limit + SPARE
        while True:
            places, scores = rank(keep)
            found = self._pick(places, scores, page)
            if len(found) >= limit or len(places) < keep:
                return found[:limit]
            keep *= DEEPER

    def _pick(self, places: Places, scores: NDArray[Any], page: Page) -> list[Candidate]:
        table = self._table
        passes = self._pass(places)
        if not passes.all():
            places, scores = places[passes], scores[passes]
        _, entries, starts, stops = table.columns(places)
        rows = list(zip(entries, scores.tolist(), starts, stops, strict=True))
        found: dict[int, Candidate] = {}
        begin, step = 0, page.limit
        while begin < len(rows) and len(found) < page.limit:
            for row in rows[begin : begin + step]:
                entry_id, _, start, stop = row
                known = found.get(entry_id)
                if known is None:
                    if not (table.expiring and table.is_expired(entry_id, page.now)):
                        found[entry_id] = Candidate._make(row)
                elif known.end == 0 and stop:  # a heading matched best, but a passage is more useful to show
                    found[entry_id] = Candidate(entry_id, known.score, start, stop)
            begin += step
            step *= 2
        return list(found.values())

    def _pass(self, places: Places) -> Mask:
        """Which of these passages pass. Those that are not in the table, with -1 as their place, do not."""

        import numpy as np

        return self.mask[places] & (places >= 0) if len(self.mask) else np.zeros(len(places), np.bool_)

    def rows_of(self, chunks: Integers) -> Places:
        """Which rows of a matrix, given by their passages, are of these."""

        import numpy as np

        places = self._table.rows_of(chunks)
        known = self.rows
        if known is None or known[0] is not places:
            known = self.rows = places, np.flatnonzero(self._pass(places))
        return known[1]
