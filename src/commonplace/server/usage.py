"""Usage of each namespace, day by day: searches, their latency, how many found nothing good, and writes.

Searches are counted in memory and added to rows of the store once a minute and at the end, in a thread: a search never
writes, and no count becomes a commit. The rows stand apart from the namespaces, as keys do. They hold no query, and a
hash instead of the name of a namespace. Each server writes rows of its own, so that several servers of one book add up
without waiting for each other. Writes are not counted: the commits of the history are.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from threading import Event, Lock, Thread
from typing import Any, cast

from commonplace.checks import JSON, Namespace, moment
from commonplace.entry import SearchSeen
from commonplace.errors import CommonplaceError, Conflict
from commonplace.language.relevance import GOOD
from commonplace.space.space import Space
from commonplace.store import Store, Usage

FLUSH_SECONDS = 60.0
KEPT_DAYS = 90
MAX_COUNTED = 10_000
"""How many namespaces and days are counted in memory. Above it, the counts of the one idle longest are dropped."""

ROWS_A_FLUSH = 200
"""How many rows one flush writes; the rest waits for the next. Each is a commit of the store for which writers wait."""

FLUSHES_AT_END = 5
"""A stop does not wait for more. What is left then is lost: counts, and nothing that was remembered."""

GOOD_SCORE = 0.25
"""The least score of a good hit, for a model without a calibration. With one, its relevance decides."""

MAX_KNOWN_DAYS = 10_000
_BUCKETS_AN_OCTAVE = 4
_FIRST_BUCKET_SECONDS = 0.000_25
_MAX_BUCKET = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SearchCounts:
    """Searches of one namespace on one day. `latency` has how many took how long, by bucket."""

    searches: int = 0
    without_good_hit: int = 0
    latency: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: SearchSeen) -> SearchCounts:
        return cls(1, int(not is_good(seen.best, seen.relevance)), {bucket_of(seen.seconds): 1})

    def __add__(self, other: SearchCounts) -> SearchCounts:
        latency = dict(self.latency)
        for bucket, count in other.latency.items():
            latency[bucket] = latency.get(bucket, 0) + count
        return SearchCounts(
            self.searches + other.searches,
            self.without_good_hit + other.without_good_hit,
            dict(sorted(latency.items())),
        )

    def percentile(self, share: float) -> float | None:
        """The seconds that this share of the searches took at most, to a tenth; None without searches."""
        left = math.ceil(share * self.searches)
        for bucket, count in sorted(self.latency.items()):
            left -= count
            if left <= 0:
                return seconds_of(bucket)
        return None


def is_good(score: float, relevance: float | None) -> bool:
    """Whether a hit matches well."""
    return score >= GOOD_SCORE if relevance is None else relevance >= GOOD


NO_SEARCHES = SearchCounts()


def bucket_of(seconds: float) -> int:
    """The bucket of a latency. Each bucket is a quarter of an octave wide, so its middle is at most 9 % off."""
    if seconds <= _FIRST_BUCKET_SECONDS:
        return 0
    return min(_MAX_BUCKET, 1 + int(_BUCKETS_AN_OCTAVE * math.log2(seconds / _FIRST_BUCKET_SECONDS)))


def seconds_of(bucket: int) -> float:
    """The middle of a bucket."""
    return _FIRST_BUCKET_SECONDS * math.exp2((bucket - 0.5) / _BUCKETS_AN_OCTAVE)


@dataclass(frozen=True, slots=True)
class DayOfSearches:
    """What is known of one day: the counts, and how much the namespace held when they were last stored."""

    day: date
    counts: SearchCounts = NO_SEARCHES
    size: Usage | None = None
    stored_at: int = 0


class SearchCounters:
    """The searches of one store's namespaces, counted in this process and stored for all servers of the store."""

    def __init__(self, store: Store, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._clock = clock
        self._server = secrets.token_hex(4)
        self._lock = Lock()
        self._flushing = Lock()
        self._counted: OrderedDict[tuple[Namespace, date], SearchCounts] = OrderedDict()
        self._end = Event()
        self._thread: Thread | None = None

    def count(self, seen: SearchSeen) -> None:
        """Count a search. It takes microseconds and never waits for the store."""
        self._add((seen.namespace, self.today()), SearchCounts.of(seen))

    def today(self) -> date:
        """The day by which everything is counted, in UTC."""
        return self._clock().date()

    def start(self) -> None:
        """Store what was counted every minute, in a thread."""
        self._end.clear()
        self._thread = Thread(target=self._run, name="commonplace-usage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and store the rest."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        for _ in range(FLUSHES_AT_END):
            if not self._flush_or_warn():
                break

    def flush(self) -> int:
        """Store what was counted, the longest waiting first; return how many rows were written."""
        with self._flushing:
            with self._lock:
                taken = [self._counted.popitem(last=False) for _ in range(min(ROWS_A_FLUSH, len(self._counted)))]
            for number, ((namespace, day), counts) in enumerate(taken):
                try:
                    self._store_row(namespace, day, counts)
                except CommonplaceError:
                    for key, kept in taken[number:]:
                        self._add(key, kept)
                    raise
            return len(taken)

    def days(self, namespace: Namespace, first: date) -> dict[date, DayOfSearches]:
        """The counts of all servers since a day, with those of this server that are not stored yet."""
        found: dict[date, DayOfSearches] = {}
        for key, row in self._store.system_list(_part(namespace)).items():
            day = date.fromisoformat(key.partition(" ")[0])
            if day >= first:
                found[day] = _joined(found.get(day), _parsed(day, row))
        with self._lock:
            waiting = [(day, counts) for (other, day), counts in self._counted.items() if other == namespace]
        for day, counts in waiting:
            found[day] = _joined(found.get(day), DayOfSearches(day, counts))
        return found

    def forget(self, namespace: Namespace) -> None:
        """Drop the counts of a namespace, which was erased."""
        with self._lock:
            for counted in [one for one in self._counted if one[0] == namespace]:
                del self._counted[counted]
        for key in self._store.system_list(_part(namespace)):
            self._store.system_delete(_part(namespace), key)

    def _add(self, key: tuple[Namespace, date], counts: SearchCounts) -> None:
        with self._lock:
            self._counted[key] = self._counted.get(key, NO_SEARCHES) + counts
            if len(self._counted) > MAX_COUNTED:
                self._counted.popitem(last=False)

    def _run(self) -> None:
        while not self._end.wait(FLUSH_SECONDS):
            self._flush_or_warn()

    def _flush_or_warn(self) -> int:
        try:
            return self.flush()
        except CommonplaceError as error:
            _log.warning("cannot store the usage now: %s", error)
            return 0

    def _store_row(self, namespace: Namespace, day: date, counts: SearchCounts) -> None:
        part, key = _part(namespace), f"{day.isoformat()} {self._server}"
        row = self._store.system_get(part, key)
        if row is None:
            self._remove_old(part)
        else:
            counts += _parsed(day, row).counts
        size = self._store.read(namespace, lambda reader: reader.usage())
        value: dict[str, JSON] = {
            "searches": counts.searches,
            "without_good_hit": counts.without_good_hit,
            "latency": {str(bucket): count for bucket, count in counts.latency.items()},
            "entries": size.entries,
            "bytes": size.bytes,
            "former_bytes": size.former_bytes,
            "at": round(self._clock().timestamp() * 1_000_000),
        }
        self._store.system_put(part, key, value)

    def _remove_old(self, part: str) -> None:
        oldest = (self.today() - timedelta(days=KEPT_DAYS)).isoformat()
        for key in self._store.system_list(part):
            if key < oldest:
                self._store.system_delete(part, key)


def _part(namespace: Namespace) -> str:
    # Hashed, so that the name of an erased namespace does not stay behind.
    return "usage " + hashlib.sha256("/".join(namespace).encode()).hexdigest()[:32]


def _parsed(day: date, value: JSON) -> DayOfSearches:
    row = cast("Mapping[str, Any]", value)
    latency = {int(bucket): count for bucket, count in row["latency"].items()}
    size = Usage(row["entries"], row["bytes"], former_bytes=row["former_bytes"])
    return DayOfSearches(day, SearchCounts(row["searches"], row["without_good_hit"], latency), size, row["at"])


def _joined(one: DayOfSearches | None, other: DayOfSearches) -> DayOfSearches:
    if one is None:
        return other
    last = max(one, other, key=lambda day: day.stored_at)
    return replace(last, counts=one.counts + other.counts)


# Writes


class CommitDays:
    """How many commits a namespace had on each day.

    The number of the last commit before a day is found by bisection of the feed, because commit numbers and times rise
    together. That of a past day never changes, so it is remembered.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[tuple[Namespace, date], int] = OrderedDict()

    def counts(self, space: Space, days: Sequence[date], last: int) -> list[int]:
        """The number of commits on each of some successive days; `last` is the namespace's last commit.

        Commits whose history was purged are not counted.
        """
        numbers = self._before(_Feed(space, last), days, 0, last)
        return [after - before for before, after in pairwise([*numbers, last])]

    def _before(self, feed: _Feed, days: Sequence[date], low: int, high: int) -> list[int]:
        """The number of the last commit before each day; it is between `low` and `high`."""
        if low == high or not days:
            return [low] * len(days)
        middle = len(days) // 2
        number = self._last_before(feed, days[middle], low, high)
        return [
            *self._before(feed, days[:middle], low, number),
            number,
            *self._before(feed, days[middle + 1 :], number, high),
        ]

    def _last_before(self, feed: _Feed, day: date, low: int, high: int) -> int:
        key = (feed.space.namespace, day)
        with self._lock:
            known = self._known.get(key)
        if known is not None and low <= known <= high:
            return known
        found = feed.last_before(datetime(day.year, day.month, day.day, tzinfo=UTC), low, high)
        if found < feed.last:  # a commit of this day or a later one exists, so no more can come before it
            with self._lock:
                self._known[key] = found
                if len(self._known) > MAX_KNOWN_DAYS:
                    self._known.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class _Feed:
    """The feed of a namespace up to its last commit."""

    space: Space
    last: int
    _read: dict[int, tuple[int, datetime | None]] = field(default_factory=dict)

    def last_before(self, time: datetime, low: int, high: int) -> int:
        """The number of the last commit before a time, by bisection, which begins at `low`: often nothing is older."""
        middle = low
        while low < high:
            commit, at = self._after(middle)
            if at is None or at < time:
                low = commit
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def _after(self, number: int) -> tuple[int, datetime | None]:
        """The first commit after a number and its time; None if it was purged."""
        if number not in self._read:
            try:
                change = self.space.changes(number, 1)[0]
                self._read[number] = change.commit, moment(change.at)
            except Conflict:  # the feed begins at a later commit
                self._read[number] = number + 1, None
        return self._read[number]


def last_days(today: date, count: int) -> list[date]:
    return [today - timedelta(days=ago) for ago in range(count - 1, -1, -1)]


def total(days: Iterable[DayOfSearches]) -> SearchCounts:
    return sum((day.counts for day in days), NO_SEARCHES)
