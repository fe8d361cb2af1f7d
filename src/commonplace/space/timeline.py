"""The commits of one namespace in time: pages of them, the one at a moment, how busy it was, and what differs between
two.

Everything is bounded, however many commits there are. A commit is found by its number, because numbers count up with
time; a moment is found by comparing the times of some commits, then of some between the nearest two.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

from commonplace.checks import check_number, microseconds, moment
from commonplace.entry import Change, Entry
from commonplace.errors import NotFound
from commonplace.space.history import UndoPreview, preview_undo
from commonplace.space.names import DIRECTORY, FILE, THREAD, name_of_key, stored_key_of
from commonplace.space.space import Space
from commonplace.store import LIVE, States

LABEL_CHARACTERS = 80
COUNTED = 500
"""The changes of a commit are counted up to this number."""

SAMPLES = 150
MOST_GONE = 50
"""How many deleted entries get a label. Each is looked up by itself."""

_WAYS = 16
_SPREAD = 8
_LOSSES = ("deleted", "expired", "moved_away")
_SCANNED_COMMITS = 200
_SCANNED_CHANGES = 200
_AT_ONCE = 25


KnownStates: TypeAlias = dict[tuple[str, str], Entry | None]
"""Entries by kind and name; None does not exist."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit with its first changes. `count` is how many it has, at most `COUNTED + 1`."""

    number: int
    at: int
    actor: str | None
    changes: tuple[Change, ...]
    count: int

    @property
    def time(self) -> datetime:
        return moment(self.at)


@dataclass(frozen=True, slots=True)
class CommitPage:
    commits: tuple[Commit, ...]
    older: int | None
    """The number of the next commit, or None at the end."""


@dataclass(frozen=True, slots=True)
class Activity:
    """About how many commits there were in each of equal parts of the time from the first commit to the last."""

    first: Commit
    last: Commit
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that is not the same at two commits; None is a state in which it does not exist."""

    kind: str
    key: str
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class DifferencePage:
    differences: tuple[Difference, ...]
    cursor: tuple[int, int] | None
    """Where to go on: a commit, and how many of its changes were seen. None at the end."""


class Timeline:
    """The commits of a space. Reading them changes nothing, not even what has expired."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._handle = space._handle

    # Commits

    def latest(self) -> Commit | None:
        return self._found([LIVE], 1)[0]

    def last_number(self) -> int:
        """The number of the last commit, also if nothing is left of it; quicker than `latest`."""
        return self._handle.store.last_commit(self._space.namespace)

    def commit(self, number: int, *, limit: int = COUNTED, skip: int = 0) -> Commit:
        """A commit with its changes, a page of them."""
        found = self._found([check_number("commit", number)], limit, skip)[0]
        if found is None or found.number != number:
            raise NotFound(f"there is no commit {number} here; the history lists those there are")
        return found

    def page(self, before: int | None = None, limit: int = 25) -> CommitPage:
        """Commits, the newest first, from a number down."""
        top = self._number(LIVE if before is None else before)
        numbers = range(top, max(top - limit, 0), -1)
        commits = {found.number: found for found in self._found(numbers, COUNTED + 1) if found is not None}
        lowest = min((*numbers, *commits), default=1)  # a purge leaves gaps, so it may be below all numbers
        return CommitPage(tuple(commits.values()), self._number(lowest - 1) or None)

    def neighbours(self, commit: Commit) -> tuple[Commit | None, Commit | None]:
        """The commit before, and the commit after."""
        before, after = self._found([commit.number - 1, commit.number + 1], 1)
        if after is None or after.number == commit.number:  # the last one, or a purge left a gap
            farther = self._found([commit.number + 2**power for power in range(1, 40)], 1)
            after = next((one for one in farther if one is not None and one.number > commit.number), None)
        return before, after

    def at(self, when: datetime | str) -> Commit | None:
        """The last commit at or before a time."""
        wanted = microseconds("as_of", when)
        assert wanted is not None
        low, high = 0, self._number(LIVE)
        while low < high:
            step = max(1, (high - low) // _WAYS)
            numbers = range(low + step, high + 1, step)
            for number, found in zip(numbers, self._found(numbers, 1), strict=True):
                if found is not None and found.at > wanted:
                    high = number - 1
                    break
                low = number
        return self._found([low], 1)[0]

    def activity(self, parts: int) -> Activity | None:
        """How busy it was, from the times of at most `SAMPLES` commits; None without commits."""
        last = self.latest()
        if last is None:
            return None
        count = min(SAMPLES, last.number)
        numbers = [1 + (last.number - 1) * place // max(count - 1, 1) for place in range(count)]
        known = {found.number: found for found in self._found(numbers, 1) if found is not None}
        samples = [*known.values(), *([] if last.number in known else [last])]
        return Activity(samples[0], last, _spread(samples, parts))

    def _number(self, most: int) -> int:
        """The number of the last commit at or before one; 0 if there is none."""
        [(number, _)] = self._handle.store.commits(self._space.namespace, [most], 1)
        return number

    def _found(self, numbers: Sequence[int], limit: int, skip: int = 0) -> list[Commit | None]:
        """The commits at or before some numbers; None where there is none, or nothing is left of it."""
        found = self._handle.store.commits(self._space.namespace, numbers, limit, skip=skip)
        return [_commit(number, changes) for number, changes in found]

    # States

    def state(self, kind: str, key: str, commit: int) -> Entry | None:
        """An entry as a commit left it; None if it did not exist then."""
        lines = [line for line in self._space.history(kind, key) if line.commit <= commit]
        if not lines or lines[-1].action in _LOSSES:
            return None
        return self._space.state(kind, key, lines[-1].revision)

    def state_at(self, kind: str, key: str, when: datetime | str | None) -> Entry | None:
        """An entry at a time, or now."""
        stored = self._space._stored_key(kind, key)
        found = self._handle.get(*stored, as_of=microseconds("as_of", when))
        return found and replace(found, key=key)

    def labels(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """How the texts begin of those entries that have no name that says something; of deleted ones, the last."""
        states = self._states((kind, key) for kind, key in places if kind not in (FILE, DIRECTORY))
        gone = [place for place, state in states.items() if state is None][:MOST_GONE]
        if gone:
            wanted = [States(kind, stored_key_of(kind, key), newest=True) for kind, key in gone]
            last = self._handle.store.read(self._space.namespace, lambda reader: [*map(reader.states, wanted)])
            states |= {place: found[0] for place, found in zip(gone, last, strict=True) if found}
        found = {place: label_of(state) for place, state in states.items() if state is not None}
        return {place: label for place, label in found.items() if label}

    def around(self, changes: Iterable[Change]) -> list[Difference]:
        """The entries of some changes, each once, just before and just after."""
        times: dict[int, dict[tuple[str, str], None]] = {}
        for change in changes:
            times.setdefault(change.at, {})[change.kind, change.key] = None
        found = []
        for at, places in times.items():
            before, after = self._states(places, at - 1), self._states(places, at)
            found += [Difference(*place, before[place], after[place]) for place in places]
        return found

    def preview_undo(self, *commits: int) -> UndoPreview:
        """What undoing commits would change, the last one first."""
        now, numbers = time.time_ns() // 1_000, [check_number("commit", commit) for commit in commits]
        return self._handle.store.read(self._space.namespace, lambda reader: preview_undo(reader, numbers, now))

    # Differences

    def differences(
        self, first: int, last: int, cursor: tuple[int, int] | None = None, limit: int = 50
    ) -> DifferencePage:
        """The entries that are not the same after the commit `last` as after `first`, those changed last before others.

        A page may be short and still have a cursor: only so many changes are read for it.
        """
        number, skip = cursor or (last, 0)
        until = self.commit(last, limit=1)
        since = self._found([first], 1)[0] if first else None
        numbers = range(number, max(number - _SCANNED_COMMITS, first), -1)
        found: list[Difference] = []
        seen = 0
        for commits in self._changes_down(numbers, skip):
            states = self._states_at(commits, since, until)
            for commit in commits:
                if len(found) >= limit or seen >= _SCANNED_CHANGES:
                    return DifferencePage(tuple(found), (commit.number, skip))
                seen += commit.count
                found += self._differing(commit, until, *states)
                if commit.count > _SCANNED_CHANGES:
                    return DifferencePage(tuple(found), (commit.number, skip + _SCANNED_CHANGES))
                skip = 0
        rest = numbers[-1] - 1 if numbers else first
        return DifferencePage(tuple(found), (rest, 0) if rest > first else None)

    def _changes_down(self, numbers: range, skip: int) -> Iterator[list[Commit]]:
        """The commits with these numbers, some at a time; of the first one, what comes after `skip` changes."""
        yield [found for found in self._found(numbers[:1], _SCANNED_CHANGES + 1, skip) if found is not None]
        for start in range(1, len(numbers), _AT_ONCE):
            few = numbers[start : start + _AT_ONCE]
            pairs = zip(few, self._found(few, _SCANNED_CHANGES + 1), strict=True)
            yield [commit for number, commit in pairs if commit is not None and commit.number == number]

    def _states_at(
        self, commits: Sequence[Commit], since: Commit | None, until: Commit
    ) -> tuple[KnownStates, KnownStates]:
        """The entries that some commits changed, before and after all of them."""
        places = dict.fromkeys(
            (change.kind, change.key) for commit in commits for change in commit.changes[:_SCANNED_CHANGES]
        )
        before = dict.fromkeys(places) if since is None else self._states(places, since.at)
        return before, self._states(places, until.at)

    def _differing(self, commit: Commit, until: Commit, before: KnownStates, after: KnownStates) -> list[Difference]:
        """Of the entries that a commit changed, those that no later commit did and that are not as they were."""
        found = []
        for place in dict.fromkeys((change.kind, change.key) for change in commit.changes[:_SCANNED_CHANGES]):
            old, new = before[place], after[place]
            if (old, new) == (None, None) or (old and new and _content(old) == _content(new)):
                continue
            if self._is_last(commit, until, *place, new):
                found.append(Difference(*place, old, new))
        return found

    def _is_last(self, commit: Commit, until: Commit, kind: str, key: str, new: Entry | None) -> bool:
        if new is not None:
            return new.commit == commit.number
        lines = self._space.history(kind, key)
        return not any(commit.number < line.commit <= until.number for line in lines)

    def _states(self, places: Iterable[tuple[str, str]], at: int | None = None) -> KnownStates:
        """Entries at a time, or now."""
        found: KnownStates = dict.fromkeys(places)
        for kind in dict.fromkeys(kind for kind, _ in found):
            names = [name for one, name in found if one == kind]
            stored = [stored_key_of(kind, name) for name in names]
            states = self._handle.store.get(self._space.namespace, kind, stored, as_of=at)
            found |= {(kind, name): state for name, state in zip(names, states, strict=True)}
        return found


def _commit(number: int, changes: Sequence[Change]) -> Commit | None:
    if not changes:
        return None
    named = tuple(replace(change, key=name_of_key(change.kind, change.key)) for change in changes)
    return Commit(number, changes[0].at, changes[0].actor, named, len(named))


def label_of(state: Entry) -> str:
    """How the text of an entry begins, or the title of a thread."""
    title = state.value.get("title") if isinstance(state.value, dict) and state.kind == THREAD else None
    text = title if isinstance(title, str) and title else state.text
    label = " ".join(text[: 4 * LABEL_CHARACTERS].split())
    is_whole = len(label) <= LABEL_CHARACTERS and len(text) <= 4 * LABEL_CHARACTERS
    return label if is_whole else label[:LABEL_CHARACTERS].rstrip() + "…"


def _content(state: Entry) -> tuple[object, ...]:
    return state.value, state.attributes, state.expires_at


def _spread(samples: Sequence[Commit], parts: int) -> tuple[float, ...]:
    """The commits between two samples are counted as if they came evenly."""
    counts = [0.0] * parts
    start, length = samples[0].at, max(samples[-1].at - samples[0].at, 1)

    def count(at: float, commits: float) -> None:
        place = int((at - start) * parts / length)
        counts[min(max(place, 0), parts - 1)] += commits

    count(start, 1)
    for one, other in pairwise(samples):
        between = other.number - one.number
        steps = min(between, _SPREAD)
        for step in range(1, steps + 1):
            count(one.at + (other.at - one.at) * step / steps, between / steps)
    return tuple(counts)
