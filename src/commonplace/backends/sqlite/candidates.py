"""Candidates of a search: passages ranked by keywords or by vectors, mapped to live entries that pass the filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import TYPE_CHECKING, Any

from commonplace.backends.filter_sql import add_filter
from commonplace.backends.ranking import (
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
    with_known,
)
from commonplace.backends.sqlite.backlog import NONE, Waiting, has_labels
from commonplace.backends.sqlite.checksums import damaged_row, damaged_vector, is_whole_vector
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.index import tokens
from commonplace.backends.sqlite.reader import SQLiteReader
from commonplace.backends.sqlite.where import Where
from commonplace.backends.sqlite.writer import NamespaceRow, read_namespace
from commonplace.checks import Namespace
from commonplace.errors import Corrupt
from commonplace.language.passages import LEVEL_FREQUENCY
from commonplace.language.tokenizer import present_weight
from commonplace.store import Candidate, Candidates, Choose, SearchQuery, TermCounts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from commonplace.backends.vectors import Batch, Halves, Similarity, VectorCache

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
        words = _ranking(connection, counts, query.terms, waiting)
        by_words, by_meaning = _search_both(connection, row.id, words, similarity, page, waiting)
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
    lists = _lists(connection, counts.namespace_id, terms)
    for term, weight in terms.items():
        levels = []
        for level, frequency in LEVEL_FREQUENCY.items():
            rows = json.loads(next(lists)) + waiting.postings(term, level)
            if rows:
                levels.append((frequency, rows))
        containing = sum(len(rows) for _, rows in levels)
        _check_containing(containing, counts)
        yield Postings(present_weight(term, weight, containing), levels)


def _ranking(connection: Connection, counts: Counts, terms: Mapping[str, float], waiting: Waiting) -> Ranking:
    """All passages that hold any of the terms, scored as arrays: NumPy is loaded for the vectors anyway, and reads
    numbers from text several times as fast as JSON is read.
    """
    import numpy as np

    texts = []
    lists = _lists(connection, counts.namespace_id, terms)
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
        _check_containing(stop - start, counts)
        weighed.append((present_weight(term, weight, stop - start), rows[start:stop], levels[start:stop]))
    return score_arrays(counts, weighed)


def _lists(connection: Connection, namespace_id: int, terms: Iterable[str]) -> Iterator[str]:
    """The postings of each term and frequency level, as a JSON array."""
    phrases = [f'"{tokens(namespace_id, {term: level})}"' for term in terms for level in LEVEL_FREQUENCY]
    rows = connection.execute(
        "SELECT (SELECT json_group_array(rowid) FROM keywords WHERE keywords MATCH phrase.value)"
        " FROM json_each(?) AS phrase ORDER BY phrase.key",
        (json.dumps(phrases),),
    )
    return (listed for (listed,) in rows)


def _check_containing(containing: int, counts: Counts) -> None:
    if containing > counts.passages:  # BM25 is not defined for this
        raise Corrupt("the keyword index is damaged; run `commonplace reindex --keywords`")


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
        rows = self._connection.execute(
            "SELECT c.id FROM (SELECT DISTINCT entry FROM history WHERE namespace = ? AND ended_commit > ?) AS h"
            " CROSS JOIN chunk AS c ON c.entry = h.entry WHERE c.ended_commit > ?",
            (self._namespace_id, after, after),
        )
        return [chunk for (chunk,) in rows]

    def values(self, sequences: Sequence[int]) -> tuple[list[int], Halves]:
        from commonplace.backends.vectors import halves

        rows = self._connection.execute(
            "SELECT v.sequence, v.value FROM json_each(?) AS j CROSS JOIN vector AS v"
            " WHERE v.namespace = ? AND v.model = ? AND v.former = 0 AND v.sequence = j.value",
            (json.dumps(sequences), self._namespace_id, self._model_id),
        ).fetchall()
        return [sequence for sequence, _ in rows], halves([value for _, value in rows], self.dimensions)
