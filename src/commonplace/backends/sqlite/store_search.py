"""Search in the store on SQLite: candidates by words and by meaning, the models, and storing their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from commonplace.backends.ranking import Counts, Page
from commonplace.backends.sqlite import candidates, index
from commonplace.backends.sqlite.checksums import damaged_row
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import Group, read_namespace
from commonplace.backends.sqlite.reading import namespace_id
from commonplace.backends.sqlite.store_base import ANY_UNCHECKED, FILL_SECONDS, OpenStore
from commonplace.checks import Namespace
from commonplace.filters import Filter
from commonplace.store import Candidate, Indexing, Pending, TermCounts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from commonplace.backends.vectors import VectorCache

MERGED_PAGES = 200
"""Of the keyword index, in one step of upkeep: some milliseconds, so that no writer waits long."""


def _counts(connection: Connection, namespace: Namespace) -> Counts | None:
    row = read_namespace(connection, namespace)
    return None if row is None else Counts(row.id, row.chunk_count, row.term_total)


class SearchStore(OpenStore):
    """Searches, and the vectors behind them."""

    @property
    def vector_bytes(self) -> int:
        """The size of the vectors in this process's memory; `cache_bytes` bounds it."""
        return self._vectors.held_bytes

    @cached_property
    def _vectors(self) -> VectorCache:
        from commonplace.backends.vectors import VectorCache  # NumPy takes a tenth of a second to import

        return VectorCache(self._cache_bytes)

    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        with self._reading(namespace, snapshot=True) as connection:
            counts = _counts(connection, namespace)
            if counts is None:
                return []
            return candidates.search_text(connection, counts, terms, Page(filter, limit, self._clock(), also))

    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        with self._reading(namespace, snapshot=True) as connection:
            row = read_namespace(connection, namespace)
            known = connection.execute("SELECT id, dimensions FROM model WHERE identity = ?", (model,)).fetchall()
            if row is None or not known:
                return []
            if known[0][1] != len(query):
                raise damaged_row(f"the row of model {model}")
            rank = self._vectors.nearest(candidates.StoredVectors(connection, row, *known[0]), query)
            return candidates.candidates(connection, row.id, rank, Page(filter, limit, self._clock()))

    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        with self._reading(namespace, snapshot=True) as connection:
            counts = _counts(connection, namespace)
            return TermCounts(0, 0.0, {}) if counts is None else candidates.term_counts(connection, counts, terms)

    def passage_vectors(
        self, namespace: Namespace, model: str, states: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, NDArray[float32]]]:
        with self._reading(namespace, snapshot=True) as connection:
            return index.passage_vectors(connection, model, states)

    # Models and vectors

    def models(self) -> tuple[str | None, str | None]:
        with self._reading() as connection:
            return index.models(connection)

    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        with self._reading() as connection:
            place = None if namespace is None else namespace_id(connection, namespace)
            return index.indexing(connection, place)

    def aim(self, model: str, dimensions: int) -> None:
        self._run(lambda group: index.set_target_model(self._writing, model, dimensions))
        self._drop_retired()

    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        with self._reading() as connection:
            if not connection.execute("SELECT 1 FROM pending LIMIT 1").fetchall():
                return []
        claimed: list[Pending] = self._run(
            lambda group: index.claim(self._writing, limit, lease_seconds, self._clock(), even_leased=even_leased)
        )
        return claimed

    def pending(
        self, namespace: Namespace, limit: int, *, among: Sequence[tuple[int, int]] | None = None
    ) -> list[Pending]:
        with self._reading(namespace, snapshot=True) as connection:
            return index.pending(connection, namespace_id(connection, namespace), limit, among)

    def index(self, model: str, embedded: Sequence[tuple[int, NDArray[float32]]]) -> None:
        self._run(lambda group: index.store_vectors(self._writing, group, model, embedded))
        self._drop_retired()

    def tidy(self) -> bool:
        def merge(group: Group) -> bool:
            before = self._writing.total_changes()
            self._writing.execute("INSERT INTO keywords (keywords, rank) VALUES ('merge', ?)", (MERGED_PAGES,))
            return self._writing.total_changes() - before >= 2  # FTS5's sign that it had something to merge

        found: bool = self._run(merge)
        with self._reading() as connection:
            is_unchecked = bool(connection.execute(ANY_UNCHECKED).fetchall())
        return (is_unchecked and self._add_checksums(FILL_SECONDS)) or found

    def _drop_retired(self) -> None:
        with self._reading() as connection:
            if not connection.execute("SELECT 1 FROM model WHERE role = 'retired'").fetchall():
                return
        while self._run(lambda group: index.drop_retired(self._writing)):
            continue
