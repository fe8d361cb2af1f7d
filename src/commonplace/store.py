"""The backend interface: what a backend must implement, and all that the layers above may use.

A write is one transaction in one namespace: a function that is called with a `Transaction`, runs alone, and takes
effect completely or not at all. `Store.write` returns when the commit is durable. A read is a call of a `Reader`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from commonplace.checks import JSON, Namespace, check_key
from commonplace.entry import Action, Change, Draft, Entry, Revision
from commonplace.errors import ConfigurationError, Conflict, InvalidInput
from commonplace.filters import Filter

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

T = TypeVar("T")
Order = Literal["key", "created", "updated"]
Progress = Callable[[int, int | None, str], None]
"""Called with the count so far, the total if it is known, and the unit."""

Part = tuple[str, str | None, str | None]
"""Entries of a kind: the one with a key, those whose keys begin with a prefix, or all."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Which entries to read, in which order. `after` is the cursor of the previous page."""

    filter: Filter = field(default_factory=Filter)
    order: Order = "key"
    descending: bool = False
    limit: int = 1_000
    after: str | None = None
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    entries: tuple[Entry, ...]
    cursor: str | None
    """Where the next page begins, or None at the end."""


@dataclass(frozen=True, slots=True)
class Child:
    """An entry directly below a key prefix, by the last part of its key, without its value."""

    name: str
    attributes: Mapping[str, JSON]
    revision: int
    created_at: int
    updated_at: int


class Candidate(NamedTuple):
    """A live entry from one of the two indexes, with its best passage."""

    entry_id: int
    score: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search in one namespace: terms with their weights, a query vector, a filter, and how many candidates."""

    terms: Mapping[str, float]
    meaning: tuple[str, NDArray[float32]] | None
    """A model and its vector of the query; None means keywords only."""
    filter: Filter
    limit: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates by keywords and by vectors, each scored both ways, and the chosen entries."""

    by_words: list[Candidate]
    by_meaning: list[Candidate]
    entries: dict[int, Entry]


Choose = Callable[[Sequence[Candidate], Sequence[Candidate]], Sequence[int]]
"""Given the candidates by keywords and by vectors, returns the entries to read. It may be called again."""

LIVE = 2**62
"""A commit number that no namespace reaches. The state at that commit is the live one."""


@dataclass(frozen=True, slots=True)
class TermCounts:
    """A namespace's counts: passages, their average length, and how many contain each term."""

    passages: int
    average_length: float
    containing: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Pending:
    """A passage whose vector is pending."""

    chunk_id: int
    namespace: Namespace
    text: str


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    namespace: Namespace
    entries: dict[str, int]
    commit: int
    updated_at: int
    chunks: int
    pending: int
    former_states: int
    bytes: int
    """Bytes of the live entries' values, texts and attributes, as a limit counts them."""
    former_bytes: int
    """Bytes of the former states, plus 200 for each."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    schema: int
    namespaces: int
    entries: dict[str, int]
    former_states: int
    chunks: int
    vectors: int
    pending: int
    model: str | None
    bytes: int
    unchecked: int = 0
    """At most this many rows of an older program have no checksum yet."""


@dataclass(frozen=True, slots=True)
class Indexing:
    """The progress of embedding: the models, and how many vectors are pending.

    While `target` differs from `serving`, re-embedding is in progress and searches use the vectors of `serving`.
    """

    serving: str | None
    target: str | None
    pending: int


@dataclass(frozen=True, slots=True)
class Ending:
    """What ended a former state."""

    action: Action
    commit: int
    at: int
    actor: str | None


@dataclass(frozen=True, slots=True)
class State:
    """A stored state, with what began and what ended it (None: it is live): everything that an export contains."""

    entry: Entry
    begun_by: Action
    valid_from: int
    ended: Ending | None


@dataclass(frozen=True, slots=True)
class NamespaceHead:
    """The counters of a namespace, which precede its states in an export."""

    namespace: Namespace
    commit: int
    commit_time: int
    history_floor: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a namespace: live entries and the bytes of their values, texts and attributes, and the same for
    former states.

    Each former state counts 200 bytes more, for its row. Keywords and vectors are not counted.
    """

    entries: int
    bytes: int
    former_states: int = 0
    former_bytes: int = 0

    @property
    def all_bytes(self) -> int:
        return self.bytes + self.former_bytes

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.entries + other.entries,
            self.bytes + other.bytes,
            self.former_states + other.former_states,
            self.former_bytes + other.former_bytes,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.entries - other.entries,
            self.bytes - other.bytes,
            self.former_states - other.former_states,
            self.former_bytes - other.former_bytes,
        )


ReadStates = Callable[[], Iterable[State]]
"""Yields a namespace's states from the first one on. It is called again if a write has to be repeated."""

CheckUsage = Callable[[Usage], object]

NOTHING = Usage(0, 0)
FORMER_STATE_BYTES = 200
"""How many bytes a former state counts in addition to its content."""


class States(NamedTuple):
    """Which states to read, live and former: those that match everything that is given here."""

    kind: str | None = None
    key: str | None = None
    revision: int | None = None
    identity: str | None = None
    begun: int | None = None
    """The commit that a state began with."""
    ended: int | None = None
    """The commit that a former state ended with."""
    former_at: int | None = None
    """A time at which a former state was valid."""
    newest: bool = False
    """Only the live state, or else the one that ended last."""

    @property
    def conditions(self) -> dict[str, str | int]:
        """The given criteria that both live and former rows have, by column."""
        columns = zip(("kind", "key", "revision", "identity", "commit_number"), self, strict=False)
        return {name: value for name, value in columns if value is not None}

    @property
    def has_live(self) -> bool:
        """Whether a live state can be among them."""
        return self.ended is None and self.former_at is None

    @property
    def is_one(self) -> bool:
        """Whether no former state needs to be looked for once the live one is found."""
        return self.newest or self.revision is not None


_ORDER = {"deleted": 1, "moved_away": 1, "expired": 2}


class Reader(ABC):
    """Reads in one namespace. Each backend implements them once, for `Store.read` and for transactions."""

    @abstractmethod
    def get_all(
        self, kind: str, names: Sequence[str], *, by: Literal["key", "identity"] = "key", as_of: int | None = None
    ) -> list[Entry | None]:
        """The live entries with these keys, or with these identities; with `as_of`, the states of keys at that time."""

    def get(self, kind: str, key: str) -> Entry | None:
        return self.get_all(kind, (key,))[0]

    def find(self, kind: str, identity: str) -> Entry | None:
        """The live entry with this identity, its second unique name."""
        return self.get_all(kind, (identity,), by="identity")[0]

    @abstractmethod
    def load(self, ids: Sequence[int]) -> dict[int, Entry]:
        """The live entries with these internal ids."""

    def next_keys(self, kind: str, keys: Sequence[str]) -> list[str | None]:
        """For each of these keys, the next greater key of a live entry of the kind. A backend may have a faster way."""
        pages = (self.scan(Scan(Filter(kinds=(kind,), key_after=key), limit=1)) for key in keys)
        return [next((entry.key for entry in page.entries), None) for page in pages]

    @abstractmethod
    def scan(self, scan: Scan) -> Page: ...

    def values(self, scan: Scan) -> list[JSON]:
        """The values of a page. A backend may have a faster way than reading whole entries."""
        return [entry.value for entry in self.scan(scan).entries]

    def counts(self, kind: str, prefixes: Sequence[str]) -> list[int]:
        """How many live entries have a key that begins with each prefix. A backend may have a faster way."""
        return [self._count(Scan(Filter(kinds=(kind,), key_prefix=prefix))) for prefix in prefixes]

    def _count(self, scan: Scan) -> int:
        page = self.scan(scan)
        rest = 0 if page.cursor is None else self._count(replace(scan, after=page.cursor))
        return len(page.entries) + rest

    @abstractmethod
    def children(
        self, kind: str, prefix: str, *, as_of: int | None = None, after: str = "", limit: int | None = None
    ) -> list[Child]:
        """The entries directly below a key prefix, by name; with `as_of`, those of that time.

        `after` is the last name of the previous page, and `limit` the most names of this one.
        """

    @abstractmethod
    def history(self, kind: str, key: str) -> list[Revision]: ...

    @abstractmethod
    def states(self, which: States) -> list[Entry]:
        """States in the order of their entries, the live ones first."""

    def state(self, kind: str, key: str, revision: int) -> Entry | None:
        """One state of a key, live or former; None if that revision is a deletion or does not exist."""
        return next(iter(self.states(States(kind, key, revision))), None)

    def states_begun(self, commit: int) -> list[Entry]:
        """The states, live or former, that began with a commit of this namespace."""
        return self.states(States(begun=commit))

    def states_ended(self, commit: int) -> list[Entry]:
        """The former states that ended with a commit of this namespace."""
        return self.states(States(ended=commit))

    def last_key(self, kind: str, identity: str) -> str | None:
        """The key of the live entry with this identity, or else of the last one that had it; searches history.

        A backend may have a faster way.
        """
        return next((state.key for state in self.states(States(kind, identity=identity, newest=True))), None)

    @abstractmethod
    def was_used(self, kind: str, first: str, last: str) -> bool:
        """Whether an entry has, or had, a key from the first to the last."""

    @abstractmethod
    def changes(self, after: int, limit: int) -> list[Change]:
        """The feed after a commit number; whole commits only.

        Raises Conflict if history does not reach back that far, or if there is no such commit yet.
        """

    def commits(self, numbers: Sequence[int], limit: int, *, skip: int = 0) -> list[tuple[int, list[Change]]]:
        """For each number, the last commit at or before it and some of its changes; 0 and none if there is none.

        Losses come after what a commit began, and what only expired last, because its time is not that of the commit.
        A commit that was purged in part has the changes that are left, perhaps none. A backend may have a faster way.
        """
        last = self.stats().commit
        return [self._commit(number, limit, skip) for number in (min(number, last) for number in numbers)]

    def _commit(self, number: int, limit: int, skip: int) -> tuple[int, list[Change]]:
        while number > 0:
            states = (*self.states_begun(number), *self.states_ended(number))
            if states:
                places = dict.fromkeys((state.kind, state.key) for state in states)
                changes = [change for place in places for change in self._changes_in(number, *place)]
                changes.sort(key=lambda change: _ORDER.get(change.action, 0))
                return number, changes[skip : skip + limit]
            number -= 1
        return 0, []

    def _changes_in(self, commit: int, kind: str, key: str) -> list[Change]:
        lines = [line for line in self.history(kind, key) if line.commit == commit]
        if lines and lines[-1].action == "expired" and len(lines) > 1:  # not ended yet; a later commit will tell
            lines.pop()
        return [Change(commit, line.at, line.action, kind, key, line.revision, line.actor) for line in lines]

    @abstractmethod
    def has_expired(self) -> bool:
        """Whether an entry has expired that no transaction has ended yet."""

    @abstractmethod
    def usage(self) -> Usage:
        """The usage of the namespace. In a transaction, its own changes count too."""

    @abstractmethod
    def stats(self) -> NamespaceStats: ...

    def last_commit(self) -> int:
        """The number of the namespace's last commit; 0 if there is none. A backend may have a faster way."""
        return self.stats().commit


class Transaction(Reader):
    """Reads and writes inside one atomic change of one namespace."""

    screen: Callable[[Draft], Draft] | None = None
    """Called with every draft that is put; returns it, or another one to write instead, or raises."""

    time: int
    """The commit time of everything that is written here."""

    @abstractmethod
    def put(self, draft: Draft, *, is_fresh: bool = False, is_restored: bool = False) -> Entry:
        """Insert, or replace the live state of the same kind and key and keep the former one in history.

        `is_fresh` promises that the key was made for this entry and never used, so that no lookup is needed.
        `is_restored` says that the draft is a former state; history shows it as such.
        """

    @abstractmethod
    def delete(self, kind: str, key: str) -> Entry | None:
        """End the live state; it stays in history."""

    @abstractmethod
    def move(self, kind: str, key: str, new_key: str, heading: str | None) -> Entry:
        """Give a live entry another key. It stays the same entry."""

    def delete_range(self, kind: str, prefix: str) -> int:
        """End every live state whose key begins with a prefix; returns how many. A backend may have a faster way."""
        keys = self._keys(kind, prefix)
        for key in keys:
            self.delete(kind, key)
        return len(keys)

    def move_range(self, kind: str, prefix: str, new_prefix: str, heading_of: Callable[[str], str | None]) -> int:
        """Replace the prefix of all live keys that begin with it; returns how many. A backend may have a faster way.

        Raises Conflict if a live key has the new prefix.
        """
        check_key(new_prefix)
        keys = self._keys(kind, prefix)
        if keys and self.scan(Scan(Filter(kinds=(kind,), key_prefix=new_prefix), limit=1)).entries:
            raise Conflict(f"there are {kind} entries with the new prefix already")
        for key in keys:
            new_key = new_prefix + key[len(prefix) :]
            self.move(kind, key, new_key, heading_of(new_key))
        return len(keys)

    def _keys(self, kind: str, prefix: str) -> list[str]:
        """The live keys that begin with a prefix."""
        scan = Scan(Filter(kinds=(kind,), key_prefix=check_key(prefix)))
        page = self.scan(scan)
        found = list(page.entries)
        while page.cursor is not None:
            page = self.scan(replace(scan, after=page.cursor))
            found += page.entries
        return [entry.key for entry in found]

    @abstractmethod
    def touch(self, kind: str, key: str) -> None:
        """Set `updated_at` to this commit's time without a new revision."""

    @abstractmethod
    def renew(self, kind: str, key: str, expires_at: int) -> Entry | None:
        """Give a live entry another end, without a new revision and without a former state; None if there is none."""

    @abstractmethod
    def operation(self, key: str) -> JSON | None:
        """The value that `record_operation` stored under a key; None if there is none, or if it has expired."""

    @abstractmethod
    def record_operation(self, key: str, value: JSON, *, expires_at: int) -> None:
        """Store a value under a key together with this change, even if nothing else was changed.

        It takes no commit number. It does not create a namespace: in one that does not exist, nothing is stored.
        """


class Waker(ABC):
    """Waits for commits. Use it in one thread at a time; any thread may call `close`."""

    changed: frozenset[Namespace] | None = None
    """In which namespaces there were commits, after a wait that returned True; None if that is not known."""

    @abstractmethod
    def wait(self, timeout_seconds: float) -> bool:
        """Wait until any process may have committed something since the last call; False if nothing was committed."""

    @abstractmethod
    def close(self) -> None:
        """End the current wait; later ones return at once."""


class Store(ABC):
    """A durable, ordered collection of entries in namespaces."""

    reads_at_once = False
    """Whether a small read never waits and costs less than a switch to another thread."""

    indexes_later = False
    """Whether the passages of a new entry are made after its commit, so that a caller need not prepare them."""

    parallel_reads = 32
    parallel_writes = 32
    """The most calls of each kind that a service should make at the same time."""

    def gauges(self) -> dict[str, float]:
        """What a backend measures of itself for those who operate it, by name. It must be quick."""
        return {}

    @abstractmethod
    def write(
        self, namespace: Namespace, work: Callable[[Transaction], T], *, actor: str | None = None
    ) -> tuple[T, int | None]:
        """Run `work` alone; once the commit is durable, return the result and the commit's number (None: no change)."""

    @abstractmethod
    def read(self, namespace: Namespace, work: Callable[[Reader], T], *, snapshot: bool = True) -> T:
        """Run `work` with a reader of a namespace and return its result.

        With `snapshot`, all reads see the same commit. Without, each call sees the newest one, which costs less.
        """

    # Single reads

    def get(
        self, namespace: Namespace, kind: str, keys: Sequence[str], *, as_of: int | None = None
    ) -> list[Entry | None]:
        return self.read(namespace, lambda reader: reader.get_all(kind, keys, as_of=as_of), snapshot=as_of is not None)

    def find(self, namespace: Namespace, kind: str, identity: str) -> Entry | None:
        return self.read(namespace, lambda reader: reader.find(kind, identity), snapshot=False)

    def last_key(self, namespace: Namespace, kind: str, identity: str) -> str | None:
        return self.read(namespace, lambda reader: reader.last_key(kind, identity), snapshot=False)

    def load(self, namespace: Namespace, ids: Sequence[int]) -> dict[int, Entry]:
        return self.read(namespace, lambda reader: reader.load(ids), snapshot=False)

    def next_keys(self, namespace: Namespace, kind: str, keys: Sequence[str]) -> list[str | None]:
        return self.read(namespace, lambda reader: reader.next_keys(kind, keys), snapshot=False)

    def scan(self, namespace: Namespace, scan: Scan) -> Page:
        return self.read(namespace, lambda reader: reader.scan(scan), snapshot=scan.as_of is not None)

    def values(self, namespace: Namespace, scan: Scan) -> list[JSON]:
        return self.read(namespace, lambda reader: reader.values(scan), snapshot=scan.as_of is not None)

    def children(
        self,
        namespace: Namespace,
        kind: str,
        prefix: str,
        *,
        as_of: int | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> list[Child]:
        return self.read(
            namespace,
            lambda reader: reader.children(kind, prefix, as_of=as_of, after=after, limit=limit),
            snapshot=as_of is not None or limit is not None,
        )

    def history(self, namespace: Namespace, kind: str, key: str) -> list[Revision]:
        return self.read(namespace, lambda reader: reader.history(kind, key))

    def state(self, namespace: Namespace, kind: str, key: str, revision: int) -> Entry | None:
        return self.read(namespace, lambda reader: reader.state(kind, key, revision))

    def former(self, namespace: Namespace, as_of: int, filter: Filter) -> list[Entry]:
        """The states that were valid at a time and have ended since."""
        states = self.read(namespace, lambda reader: reader.states(States(former_at=as_of)))
        return [state for state in states if filter.matches(state)]

    def end_expired(self, namespace: Namespace) -> bool:
        """End some entries that have expired, so that history and the feed show it; returns whether there were any."""
        # Every transaction first ends what has expired.
        return (
            self.read(namespace, lambda reader: reader.has_expired(), snapshot=False)
            and self.write(namespace, lambda transaction: None)[1] is not None
        )

    def changes(self, namespace: Namespace, after: int = 0, limit: int = 1_000) -> list[Change]:
        """The feed after a commit number, as `Reader.changes`; first ends what has expired."""
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")
        self.end_expired(namespace)
        return self.read(namespace, lambda reader: reader.changes(after, limit))

    def commits(
        self, namespace: Namespace, numbers: Sequence[int], limit: int, *, skip: int = 0
    ) -> list[tuple[int, list[Change]]]:
        return self.read(namespace, lambda reader: reader.commits(numbers, limit, skip=skip))

    def namespace_stats(self, namespace: Namespace) -> NamespaceStats:
        return self.read(namespace, lambda reader: reader.stats())

    def last_commit(self, namespace: Namespace) -> int:
        return self.read(namespace, lambda reader: reader.last_commit(), snapshot=False)

    @abstractmethod
    def namespaces(
        self,
        prefix: Namespace = (),
        *,
        after: Namespace | None = None,
        limit: int = 1_000,
        holding: Sequence[str] | None = None,
        history: bool = False,
    ) -> list[Namespace]:
        """The namespaces at or below a prefix, in order.

        With `holding`, only those with a live entry of one of these kinds; `()` means of any kind. With `history`,
        entries without history do not count.
        """

    @abstractmethod
    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        """The best live entries by BM25 with the namespace's own counts; a score is a share of the ceiling, 0..1.

        Entries in `also`, which pass the filter, are scored and added if any term occurs in them.
        """

    @abstractmethod
    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        """The best live entries by cosine, among vectors of exactly this model."""

    def search(
        self, namespace: Namespace, query: SearchQuery, choose: Choose, *, unless_pending: bool = False
    ) -> Candidates | None:
        """The candidates by keywords and by vectors, and the chosen entries.

        With `unless_pending`, None if vectors are pending. This default calls the other methods. A backend with costly
        round trips overrides it with fewer queries.
        """
        if unless_pending and self.indexing(namespace).pending:
            return None
        by_words, by_meaning, near = [], [], []
        if query.meaning is not None:
            model, vector = query.meaning
            by_meaning = self.search_vectors(namespace, model, vector, query.filter, query.limit)
            near = [candidate.entry_id for candidate in by_meaning]
        if query.terms:
            by_words = self.search_text(namespace, query.terms, query.filter, query.limit, near)
        if query.meaning is not None:
            # Each candidate is scored by keywords and by vectors; with half a score it would rank too low.
            missing = {candidate.entry_id for candidate in by_words}.difference(near)
            states = [(entry_id, LIVE) for entry_id in missing]
            by_meaning += [
                Candidate(entry_id, float(value @ vector), start, end)
                for entry_id, start, end, value in (self.passage_vectors(namespace, model, states) if states else ())
            ]
        return Candidates(by_words, by_meaning, self.load(namespace, choose(by_words, by_meaning)))

    @abstractmethod
    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        """What BM25 needs to score a text that is not in the index."""

    @abstractmethod
    def passage_vectors(
        self, namespace: Namespace, model: str, states: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, NDArray[float32]]]:
        """The vectors of states, named by entry id and the commit they had: entry id, start, end, vector."""

    @abstractmethod
    def models(self) -> tuple[str | None, str | None]:
        """The identities of the serving and of the target model."""

    @abstractmethod
    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        """The progress of embedding in a namespace, or in the whole store."""

    @abstractmethod
    def set_target_model(self, model: str, dimensions: int) -> None:
        """Make a model the target; every passage without its vector becomes pending."""

    @abstractmethod
    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        """Lease pending passages to embed, newest first; other workers skip them until the lease ends."""

    @abstractmethod
    def pending(
        self, namespace: Namespace, limit: int, *, among: Sequence[tuple[int, int]] | None = None
    ) -> list[Pending]:
        """The newest pending passages of a namespace, leased or not: a waiting search does not wait for a lease.

        With `among`, entries' ids and where a passage of theirs starts: the first pending ones of these.
        """

    @abstractmethod
    def index(self, model: str, vectors: Sequence[tuple[int, NDArray[float32]]]) -> None:
        """Store vectors by passage. A vector whose passage has ended is dropped."""

    def maintain(self) -> bool:
        """Do a small step of background maintenance; returns whether there was something to do."""
        return False

    @abstractmethod
    def waker(self) -> Waker:
        """A way to wait for commits. The caller closes it."""

    @abstractmethod
    def system_rows(self, part: str, key: str | None = None) -> dict[str, JSON]:
        """Rows that the program stores apart from the entries, such as API keys: all rows of a part, or one, by key."""

    def system_get(self, part: str, key: str) -> JSON | None:
        return self.system_rows(part, key).get(key)

    def system_list(self, part: str) -> dict[str, JSON]:
        return self.system_rows(part)

    @abstractmethod
    def system_put(self, part: str, key: str, value: JSON | None, *, only_new: bool = False) -> bool:
        """Write a row durably, or remove it if the value is None; returns whether a row was changed.

        With `only_new`, an existing row is not changed.
        """

    def system_delete(self, part: str, key: str) -> bool:
        return self.system_put(part, key, None)

    def usage(self, prefix: Namespace) -> Usage:
        """The total usage of the namespaces at and below a prefix. The cost grows with their number."""
        total, after = NOTHING, None
        while page := self.namespaces(prefix, after=after):
            for after in page:
                total += self.read(after, lambda reader: reader.usage())
        return total

    @abstractmethod
    def stats(self) -> StoreStats: ...

    @abstractmethod
    def purge(
        self,
        namespace: Namespace,
        *,
        kind: str | None = None,
        key: str | None = None,
        prefix: str | None = None,
        history_before: int | None = None,
        revision: int | None = None,
        parts: Sequence[Part] = (),
    ) -> int:
        """Erase permanently, with the history: one entry, the entries of a kind with a key prefix, or a namespace.

        With `history_before`, only the history that ended before that time; with `revision`, only that former state of
        the entry. `parts` are erased in the same commit.
        """

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        """Copy the whole store while it is in use."""
        raise ConfigurationError("this kind of book has no backup command; use the tools of its database")

    @property
    def is_damaged(self) -> bool:
        """Whether a read or a write in this process has met damage; `verify` checks everything."""
        return False

    @abstractmethod
    def verify(self, progress: Progress | None = None) -> list[str]:
        """Look for damage, and for indexes that differ from the rows; an empty list means that none was found."""

    @abstractmethod
    def rebuild_keywords(self, progress: Progress | None = None) -> None:
        """Rebuild all passages and keywords from the texts, after damage or with another tokenizer."""

    @abstractmethod
    def export(self, namespaces: Sequence[Namespace] | None = None) -> Generator[NamespaceHead | State, None, None]:
        """Everything in one snapshot, or some namespaces: each head, then its states by entry, the newest first."""

    def salvage(
        self, unreadable: Callable[[str], object], namespaces: Sequence[Namespace] | None = None
    ) -> Generator[NamespaceHead | State, None, None]:
        """Like `export`, for a damaged store: everything that can be read. `unreadable` is called with the rest."""
        yield from self.export(namespaces)

    @abstractmethod
    def adopt(self, head: NamespaceHead, read: ReadStates, check: CheckUsage | None = None) -> int:
        """Import a namespace with all its history, as another store exported it, completely or not at all; returns how
        many states.

        `check` is called with the imported usage before the commit, and may raise. Entries get new ids in the same
        order. Raises Conflict if the namespace holds anything.
        """

    @abstractmethod
    def close(self) -> None: ...
