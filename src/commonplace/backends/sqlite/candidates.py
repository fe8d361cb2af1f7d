"""Candidates of a search: passages ranked by keywords or by vectors, mapped to live entries that pass the filter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from commonplace.backends.filter_sql import add_filter
from commonplace.backends.ranking import Counts, Located, Page, Postings, Rank, Ranked, best, posting, score, with_known
from commonplace.backends.sqlite.backlog import NONE, Waiting
from commonplace.backends.sqlite.checksums import damaged_row, damaged_vector, is_whole_vector
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.index import tokens
from commonplace.backends.sqlite.where import Where
from commonplace.backends.sqlite.writer import NamespaceRow
from commonplace.errors import Corrupt
from commonplace.language.passages import LEVEL_FREQUENCY
from commonplace.language.tokenizer import present_weight
from commonplace.store import Candidate, TermCounts

if TYPE_CHECKING:
    from commonplace.backends.vectors import Batch, Halves

_INTEGERS = frozenset((int,))


def search_text(
    connection: Connection,
    counts: Counts,
    terms: Mapping[str, float],
    page: Page,
    waiting: Waiting,
) -> list[Candidate]:
    also = _passages_of(connection, page.also) | waiting.located(page.also)
    shares: dict[int, float] = {}

    def rank(keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        postings = _postings(connection, counts, terms, waiting)
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
) -> Iterable[Postings]:
    namespace_id, passages = counts.namespace_id, counts.passages
    phrases = [f'"{tokens(namespace_id, {term: level})}"' for term in terms for level in LEVEL_FREQUENCY]
    lists = iter(
        connection.execute(
            "SELECT (SELECT json_group_array(rowid) FROM keywords WHERE keywords MATCH phrase.value)"
            " FROM json_each(?) AS phrase ORDER BY phrase.key",
            (json.dumps(phrases),),
        )
    )
    for term, weight in terms.items():
        levels = []
        for level, frequency in LEVEL_FREQUENCY.items():
            rows = json.loads(next(lists)[0])
            if waiting.passages:
                rows += waiting.postings(term, level)
            if rows:
                levels.append((frequency, rows))
        containing = sum(len(rows) for _, rows in levels)
        if containing > passages:  # BM25 is not defined for this
            raise Corrupt("the keyword index is damaged; run `commonplace reindex --keywords`")
        yield Postings(present_weight(term, weight, containing), levels)


def _passages_of(connection: Connection, entry_ids: Sequence[int]) -> dict[int, Located]:
    """The live passages of some entries by their postings."""
    if not entry_ids:
        return {}
    rows = _whole_numbers(
        connection.execute(
            "SELECT c.length, c.id, c.entry, c.start, c.stop FROM json_each(?) AS j"
            " CROSS JOIN chunk AS c ON c.entry = j.value WHERE c.ended_commit IS NULL",
            (json.dumps(entry_ids),),
        )
    )
    return {
        posting(chunk, length): Located(chunk, entry_id, start, stop) for length, chunk, entry_id, start, stop in rows
    }


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
