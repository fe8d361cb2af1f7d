"""What a server keeps in memory of the namespaces that it searches: their vectors, and their posting lists.

Memory is filled in one snapshot, and before each search it catches up with what was committed since. One statement
tells what that is, and it travels with the queries for the rows of the candidates that memory proposes. So if nothing
has changed, a search takes one round trip. All that is read here is read under row-level security.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from commonplace.backends.keywords import Keywords, Passages
from commonplace.backends.postgres.connection import Session, numbers_of, vectors_of
from commonplace.backends.postgres.index import Model
from commonplace.backends.postgres.reader import Location
from commonplace.backends.ranking import Counts, Ranked, Ranking, chunk_of
from commonplace.backends.vectors import Batch, Halves, Matrix, VectorCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

PASSAGES_A_READ = 20_000
VECTORS_A_READ = 4_000
BYTES_A_PASSAGE = 60
BYTES_A_DIMENSION = 2.7
BYTES_A_TERM = 5
"""About how much memory takes, to tell beforehand whether a namespace fits: a row in half precision with its sketch."""

_FIRST = (0, 0)
_LAST = 2**62
_PASSAGES = (
    "SELECT array_send(array_agg(c.posting)) AS postings,"
    " array_send(array_agg(octet_length(c.packed)::bigint)) AS sizes,"
    " string_agg(c.packed, ''::bytea) AS terms FROM (SELECT posting,"
    " coalesce(terms, packed_terms(tokens, repeated)) AS packed FROM {chunk}"
    " WHERE tenant = %s AND namespace = %s AND ended_commit IS NULL AND id > %s ORDER BY id LIMIT %s) AS c"
)
_ENDED = (
    "SELECT array_send(array_agg(id)) AS chunks FROM {chunk} WHERE tenant = %s AND namespace = %s AND ended_commit > %s"
)
_VECTORS = (
    "SELECT array_send(array_agg(v.sequence)) AS numbers, array_send(array_agg(v.chunk)) AS chunks,"
    " string_agg(halfvec_send(v.value), ''::bytea) AS vectors FROM ("
    "SELECT sequence, chunk, value FROM {embedding} WHERE tenant = %s AND namespace = %s AND model = %s AND NOT former"
    " AND (sequence, chunk) > (%s, %s) ORDER BY sequence, chunk LIMIT %s) AS v"
)
_HEAD = (
    "SELECT n.commit_number, n.chunk_count, n.term_total, n.chunks_ended,"
    " EXISTS (SELECT 1 FROM {pending} AS p WHERE p.tenant = %s AND p.namespace = n.id)"
)


class Version(NamedTuple):
    """How far memory has read."""

    commit: int
    chunks_ended: int
    chunk: int
    """The last passage."""
    last: tuple[int, int]
    """The sequence number and the passage of the last vector."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Some stored vectors with their sequence numbers and passages."""

    numbers: Integers
    chunks: Integers
    values: Halves

    @classmethod
    def of(cls, numbers: bytes | None, chunks: bytes | None, values: bytes | None, dimensions: int) -> Vectors:
        return cls(numbers_of(numbers), numbers_of(chunks), vectors_of(values, dimensions))


@dataclass(frozen=True, slots=True)
class Changes:
    """What a namespace's row says, and what was committed since a version."""

    counts: Counts
    commit: int
    chunks_ended: int
    is_pending: bool
    added: Passages
    ended: Integers
    vectors: Vectors

    def is_complete(self, since: Version) -> bool:
        """Whether memory can go on from that version with these changes alone."""
        return (
            len(self.added.postings) < PASSAGES_A_READ
            and len(self.vectors.chunks) < VECTORS_A_READ
            and self.chunks_ended - since.chunks_ended == len(self.ended)
        )

    def is_nothing(self, since: Version) -> bool:
        """Memory may also be newer than these changes: then another search has caught up meanwhile."""
        return self.commit <= since.commit and self.chunks_ended <= since.chunks_ended and not len(self.vectors.chunks)


def _weights(dimensions: int) -> tuple[float, float]:
    """About how many bytes a passage and a term take."""
    return BYTES_A_PASSAGE + BYTES_A_DIMENSION * dimensions, BYTES_A_TERM


def _needed_bytes(counts: Counts, model: Model | None) -> float:
    a_passage, a_term = _weights(0 if model is None else model.dimensions)
    return counts.passages * a_passage + counts.total_length * a_term


class NamespaceMemory:
    """The posting lists of one namespace and its vectors by one model. Hold `lock` to use it.

    Who has a connection may wait for `lock`. So who holds `lock` must not wait for a connection. Who waits for one to
    load everything holds `loading`.
    """

    def __init__(self, model: Model | None, most_bytes: int) -> None:
        self.lock = threading.Lock()
        self.loading = threading.Lock()
        self.is_loaded = False
        self._is_half_read = False
        self._model = model
        self._most_bytes = most_bytes
        self._clear()

    def _clear(self) -> None:
        self.keywords = Keywords()
        self.matrix = None if self._model is None else Matrix(self._model.dimensions, self._most_bytes)
        self.counts = Counts(0, 0, 0)
        self._commit = self._chunks_ended = self._chunk = 0
        self._last = _FIRST
        self._is_half_read = False

    def fits(self, counts: Counts) -> bool:
        """Whether a namespace with these counts may be held."""
        return _needed_bytes(counts, self._model) <= self._most_bytes

    @property
    def held_bytes(self) -> int:
        return self.keywords.held_bytes + (0 if self.matrix is None else self.matrix.held_bytes)

    @property
    def version(self) -> Version:
        return Version(self._commit, self._chunks_ended, self._chunk, self._last)

    def apply(self, session: Session, spot: Location, changes: Changes, since: Version) -> None:
        """Go on from the version that the changes were asked for, unless another search has done so meanwhile."""
        with self.lock:
            if self.version == since and not self._is_half_read:
                with self._whole():
                    self._extend(changes.added)
                    self._finish(session, spot, changes)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """What fails in between, such as a lost connection, leaves some rows here; then all are read again."""
        self._is_half_read = True
        try:
            yield
        except BaseException:
            self.is_loaded = False
            raise
        self._is_half_read = False

    def _finish(self, session: Session, spot: Location, changes: Changes) -> None:
        self.keywords.end(changes.ended)
        if self.matrix is not None and self._model is not None:
            rows = _Rows(session, spot, self._model, changes, self._last)
            self.matrix.catch_up(rows)
            self._last = rows.last
        self.counts = changes.counts
        self._commit, self._chunks_ended = changes.commit, changes.chunks_ended

    def load(self, session: Session, spot: Location) -> None:
        """Read all that is not here yet, in the session's snapshot."""
        with self.lock:
            if self._is_half_read:
                self._clear()
            changes = ask_changes(session, spot, self._model, self.version)()
            if changes is not None and not self._follows(changes):
                self._clear()
                changes = ask_changes(session, spot, self._model, self.version)()
            if changes is None:
                return
            with self._whole():
                self._extend(changes.added)
                if len(changes.added.postings) == PASSAGES_A_READ:
                    for batch in read_passages(session, spot, self._chunk):
                        self._extend(batch)
                self._finish(session, spot, changes)
            self.is_loaded = True

    def _extend(self, batch: Passages) -> None:
        self.keywords.extend(batch)
        if len(batch.postings):
            self._chunk = chunk_of(int(batch.postings[-1]))

    def _follows(self, changes: Changes) -> bool:
        """Whether all passages that ended since are known. If not, some were purged, or the keywords were rebuilt."""
        return not self._commit or changes.chunks_ended - self._chunks_ended == len(changes.ended)


def read_passages(session: Session, spot: Location, after: int) -> Iterator[Passages]:
    """The live passages of a namespace after one of them, some at a time."""
    while True:
        [(postings, sizes, terms)] = session.rows(
            _PASSAGES.format(chunk=spot.of("chunk")), (spot.tenant, spot.id, after, PASSAGES_A_READ), binary=True
        )
        batch = Passages(numbers_of(postings), numbers_of(sizes), terms or b"")
        if len(batch.postings):
            yield batch
        if len(batch.postings) < PASSAGES_A_READ:
            return
        after = chunk_of(int(batch.postings[-1]))


def ask_changes(session: Session, spot: Location, model: Model | None, since: Version) -> Callable[[], Changes | None]:
    """Ask what was committed since a version. Call the result to wait for it; None if there is no such namespace."""
    tables = {table: spot.of(table) for table in ("chunk", "embedding", "pending")}
    place = [spot.tenant, spot.id]
    # What has ended is looked for only if its count has changed: the planner takes tenant and namespace for
    # independent, and reads all passages of the namespace for this. An empty memory holds nothing that could have
    # ended.
    parts = [_PASSAGES, f"{_ENDED} AND n.chunks_ended > %s"]
    ended = (since.commit, since.chunks_ended if since.commit else _LAST)
    parameters = [spot.tenant, *place, since.chunk, PASSAGES_A_READ, *place, *ended]
    columns = ", added.postings, added.sizes, added.terms, ended.chunks, NULL::bytea, NULL::bytea, NULL::bytea"
    names = ["added", "ended"]
    if model is not None:
        parts.append(_VECTORS)
        names.append("near")
        parameters += [*place, model.id, *since.last, VECTORS_A_READ]
        columns = columns.replace("NULL::bytea, NULL::bytea, NULL::bytea", "near.numbers, near.chunks, near.vectors")
    joins = "".join(f", LATERAL ({part}) AS {name}" for part, name in zip(parts, names, strict=True))
    result = session.ask(
        (_HEAD + columns + f" FROM {spot.of('namespace')} AS n" + joins).format(**tables)
        + " WHERE n.tenant = %s AND n.path = %s",
        (*parameters, spot.tenant, "/".join(spot.namespace)),
        binary=True,
        prepare=True,
    )

    def read() -> Changes | None:
        for commit, passages, length, ended_count, is_pending, *lists in result.fetchall():
            postings, sizes, terms, ended, numbers, chunks, vectors = lists
            dimensions = 0 if model is None else model.dimensions
            return Changes(
                Counts(spot.id, passages, length),
                commit,
                ended_count,
                is_pending,
                Passages(numbers_of(postings), numbers_of(sizes), terms or b""),
                numbers_of(ended),
                Vectors.of(numbers, chunks, vectors, dimensions),
            )
        return None

    return read


class _Rows:
    """The stored vectors as a matrix reads them; the first ones came with the changes."""

    def __init__(self, session: Session, spot: Location, model: Model, changes: Changes, last: tuple[int, int]) -> None:
        self._session = session
        self._spot = spot
        self._model = model
        self._first: dict[tuple[int, int], Vectors] = {last: changes.vectors}
        self.last = last
        self.place: tuple[Hashable, Hashable] = (spot.id, model.id)
        self.dimensions = model.dimensions
        self.commit = changes.commit
        self.chunks_ended = changes.chunks_ended

    def added(self, after: int, limit: int) -> Batch:
        """Those that follow the ones of the last call. A matrix that starts again asks for those after 0."""
        last = self.last if after else _FIRST
        vectors = self._first.pop(last, None) or self._read(last, limit)
        if len(vectors.chunks):
            self.last = int(vectors.numbers[-1]), int(vectors.chunks[-1])
        # Vectors that have no number of their own are the oldest, and their passages are in order.
        sequences = np.where(vectors.numbers == 0, vectors.chunks, vectors.numbers)
        return Batch(sequences.tolist(), vectors.chunks.tolist(), vectors.values)

    def _read(self, last: tuple[int, int], limit: int) -> Vectors:
        [(numbers, chunks, vectors)] = self._session.rows(
            _VECTORS.format(embedding=self._spot.of("embedding")),
            (self._spot.tenant, self._spot.id, self._model.id, *last, limit),
            binary=True,
        )
        return Vectors.of(numbers, chunks, vectors, self.dimensions)

    def ended(self, after: int) -> Sequence[int]:
        [(chunks,)] = self._session.rows(
            _ENDED.format(chunk=self._spot.of("chunk")), (self._spot.tenant, self._spot.id, after), binary=True
        )
        return [int(chunk) for chunk in numbers_of(chunks)]

    def values(self, sequences: Sequence[int]) -> tuple[Sequence[int], Halves]:
        raise AssertionError("a namespace whose vectors do not fit into memory is searched by its index")


class Near:
    """The passages of a matrix by similarity to a query."""

    def __init__(self, part: NamespaceMemory, query: Floats) -> None:
        self._part = part
        self._query = query
        self._kept = 0
        self._best: Ranked = ()

    def rank(self, keep: int | None, allowed: Sequence[int] | None = None) -> Ranked:
        if keep is not None and allowed is None:
            if keep > self._kept:  # a caller that asks for some most likely asks for more
                self._kept = 3 * keep
                self._best = self._search(self._kept, None)
            return self._best[:keep]
        return self._search(keep, allowed)

    def _search(self, keep: int | None, allowed: Sequence[int] | None) -> Ranked:
        with self._part.lock:
            assert self._part.matrix is not None
            return self._part.matrix.search(self._query, keep, allowed, _NO_ROWS)

    def shares(self, chunks: Sequence[int]) -> dict[int, float]:
        with self._part.lock:
            assert self._part.matrix is not None
            return self._part.matrix.cosines(self._query, chunks, _NO_ROWS)


_NO_ROWS: Any = None
"""A matrix that holds all of its vectors does not read rows."""


class Memory:
    """The parts of the namespaces that were searched last, within a budget. Safe for many threads."""

    def __init__(self, max_bytes: int) -> None:
        self._cache = VectorCache(max_bytes)
        self._large: set[int] = set()

    @property
    def held_bytes(self) -> int:
        return self._cache.held_bytes

    def part(self, spot: Location, model: Model | None) -> NamespaceMemory | None:
        """What is held of a namespace, loaded or not; None if it is known to be too large."""
        if spot.id in self._large:
            return None
        return self._cache.hold(
            (spot.id, None if model is None else model.id), lambda: NamespaceMemory(model, self._cache.largest_bytes)
        )

    def note_size(self, spot: Location, model: Model | None, part: NamespaceMemory) -> None:
        self._cache.account((spot.id, None if model is None else model.id), part)

    def weights(self, dimensions: int) -> tuple[float, float, float]:
        """About how many bytes a passage and a term take, and how many one namespace may take."""
        return *_weights(dimensions), self._cache.largest_bytes

    def fits(self, counts: Counts, model: Model | None) -> bool:
        """Whether memory holds a namespace with these counts. If not, that is remembered until it is asked again."""
        if _needed_bytes(counts, model) <= self._cache.largest_bytes:
            self._large.discard(counts.namespace_id)
            return True
        self._large.add(counts.namespace_id)
        self._cache.evict(counts.namespace_id)
        return False

    def evict(self, namespace_id: int) -> None:
        self._cache.evict(namespace_id)

    def clear(self) -> None:
        self._cache, self._large = VectorCache(2 * self._cache.largest_bytes), set()


def ranked_words(part: NamespaceMemory, terms: Mapping[str, float]) -> Ranking:
    with part.lock:
        return part.keywords.rank(part.counts, terms)
