"""Candidates from the two indexes: ranked passages, turned into live entries that pass the filter."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.backends.ranking import Counts, Page, Rank, Ranked, best, posting
from commonplace.backends.sqlite import keywords
from commonplace.backends.sqlite.checksums import damaged_row, damaged_vector, is_whole_vector
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.where import Where, add_filter
from commonplace.store import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.backends.sqlite.matrix import Matrix

ROWS_A_READ = 4_000
"""What catching up makes of so many at once is 20 MB; of five times as many, 90 MB of the process stayed in use."""
STALE_SHARE = 10
"""A matrix is read anew when more than 1 in so many of its rows may have ended."""


def search_text(
    connection: Connection,
    counts: Counts,
    terms: Mapping[str, float],
    page: Page,
) -> list[Candidate]:
    known = _passages_of(connection, page.also)
    scores: dict[int, float] = {}

    def rank(keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        rows = [posting(chunk, length) for chunk, length, *_ in known]
        ranked, of_known = keywords.rank(connection, counts, terms, keep if allowed is None else None, rows)
        scores.update(of_known)
        if allowed is None:
            return ranked
        chosen = set(allowed)
        return [(chunk, score) for chunk, score in ranked if chunk in chosen]

    found = _best(connection, counts.namespace_id, rank, page)
    listed = {candidate.entry_id for candidate in found}
    others = [row for row in known if row[2] not in listed and row[0] in scores]
    others.sort(key=lambda row: (-scores[row[0]], -row[0]))
    return found + [Candidate(entry_id, scores[chunk], start, stop) for chunk, _, entry_id, start, stop in others]


def _passages_of(connection: Connection, entry_ids: Sequence[int]) -> list[tuple[int, int, int, int, int]]:
    """Chunk, length, entry, start and stop of the live passages of some entries."""
    if not entry_ids:
        return []
    return _whole_numbers(
        connection.execute(
            "SELECT c.id, c.length, c.entry, c.start, c.stop FROM json_each(?) AS j"
            " CROSS JOIN chunk AS c ON c.entry = j.value WHERE c.ended_commit IS NULL",
            (json.dumps(entry_ids),),
        )
    )


def _whole_numbers(rows: Iterable[Any]) -> list[Any]:
    """Rows of passages, which have no checksum: what their readers rely on."""
    found = list(rows)
    for row in found:
        if not all(type(number) is int for number in row):
            raise damaged_row("a passage of this namespace")
    return found


def _best(connection: Connection, namespace_id: int, rank: Rank, page: Page) -> list[Candidate]:
    return best(
        rank,
        lambda chunks: _select(connection, namespace_id, chunks, page),
        lambda: _allowed(connection, namespace_id, page),
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
    return {row[0]: row[1:] for row in _whole_numbers(rows)}


def _allowed(connection: Connection, namespace_id: int, page: Page) -> list[int]:
    where = _conditions(namespace_id, page, driving_labels=True)
    rows = connection.execute(
        f"SELECT c.id FROM entry AS e JOIN chunk AS c ON c.entry = e.id WHERE c.ended_commit IS NULL AND {where.sql}",
        where.parameters,
    )
    return [chunk for (chunk,) in rows]


class VectorCache:
    """The matrices of the namespaces searched last, within a bound of memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._matrices: OrderedDict[tuple[int, int], tuple[threading.Lock, Matrix]] = OrderedDict()
        self._mutex = threading.Lock()
        self._held: dict[tuple[int, int], int] = {}
        self._held_total = 0

    @property
    def held_bytes(self) -> int:
        """What all of them take."""
        return self._held_total

    def search(
        self,
        connection: Connection,
        place: tuple[int, int, int, int],
        query: NDArray[np.float32],
        page: Page,
    ) -> list[Candidate]:
        """`place` is the namespace's id, the model's id, its dimensions and how many chunks ever ended there."""
        import numpy as np

        namespace_id, model_id, dimensions, chunks_ended = place
        lock, matrix = self._matrix(namespace_id, model_id, dimensions, chunks_ended)
        with lock:
            _catch_up(connection, matrix, namespace_id, model_id)

            def fetch(sequences: Sequence[int]) -> list[tuple[int, bytes]]:
                return connection.execute(
                    "SELECT v.sequence, v.value FROM json_each(?) AS j CROSS JOIN vector AS v"
                    " WHERE v.namespace = ? AND v.model = ? AND v.former = 0 AND v.sequence = j.value",
                    (json.dumps(sequences), namespace_id, model_id),
                ).fetchall()

            def rank(keep: int | None, allowed: Sequence[int] | None) -> Ranked:
                chosen = None if allowed is None else np.asarray(allowed, np.int64)
                return matrix.search(query, keep, chosen, fetch)

            candidates = _best(connection, namespace_id, rank, page)
        self._account((namespace_id, model_id), matrix.held_bytes)
        return candidates

    def _matrix(
        self, namespace_id: int, model_id: int, dimensions: int, chunks_ended: int
    ) -> tuple[threading.Lock, Matrix]:
        from commonplace.backends.sqlite.matrix import Matrix

        key = (namespace_id, model_id)
        with self._mutex:
            known = self._matrices.get(key)
            if known is not None:
                ended = chunks_ended - known[1].chunks_ended
                if ended > max(1_000, known[1].size // STALE_SHARE):
                    known = None
            if known is None:
                known = (threading.Lock(), Matrix(dimensions, chunks_ended, self._max_bytes // 2))
                self._matrices[key] = known
            self._matrices.move_to_end(key)
            return known

    def _account(self, key: tuple[int, int], size: int) -> None:
        with self._mutex:
            self._held_total += size - self._held.get(key, 0)
            self._held[key] = size
            while len(self._matrices) > 1 and self._held_total > self._max_bytes:
                oldest, _ = self._matrices.popitem(last=False)
                self._held_total -= self._held.pop(oldest, 0)


def _catch_up(connection: Connection, matrix: Matrix, namespace_id: int, model_id: int) -> None:
    while True:
        rows = connection.execute(
            "SELECT sequence, chunk, value, checksum FROM vector"
            " WHERE namespace = ? AND model = ? AND former = 0 AND sequence > ? ORDER BY sequence LIMIT ?",
            (namespace_id, model_id, matrix.last_sequence, ROWS_A_READ),
        ).fetchall()
        for _, chunk, value, checksum in rows:
            if not is_whole_vector(chunk, value, checksum) or len(value) != 2 * matrix.dimensions:
                raise damaged_vector()
        if rows:
            matrix.extend(*list(zip(*rows, strict=True))[:3])
        if len(rows) < ROWS_A_READ:
            return
