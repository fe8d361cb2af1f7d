"""Posting lists in memory, for any backend: what BM25 needs to know about the live passages of one namespace.

Passages are numbered from 0 in the order in which they were read. A posting is such a number with the frequency level
of the term in that passage. Terms are known by a hash, so that a backend can store and send the terms of a passage as
a few bytes. Lists are kept in segments, each sorted by term. A new segment is merged with its neighbours when it is not
much smaller than they are, so that there are few segments however the passages came.

Like a matrix of vectors, this holds nothing that is not stored, and it only proposes passages.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commonplace.backends.ranking import HASH_BYTES, LEVELS, Counts, Ranking, score_places, term_hash
from commonplace.language.passages import LENGTH_STEPS
from commonplace.language.tokenizer import present_weight

STALE_ROWS = 1_000
STALE_SHARE = 4
"""Ended passages are dropped when they are more than STALE_ROWS and more than 1 in STALE_SHARE."""
MERGED_SHARE = 4
"""A segment is merged with the one before it unless that one is at least this many times as long."""

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Members = NDArray[np.uint32]

_NONE: Members = np.empty(0, np.uint32)


class Passages(NamedTuple):
    """Some live passages: their postings, how many bytes the terms of each take, and these bytes together."""

    postings: Integers
    sizes: Integers
    terms: bytes

    def marked(self) -> tuple[Hashes, NDArray[np.intp]]:
        """The terms of all passages, each with its level, and the place of the passage that each belongs to."""
        places = np.arange(len(self.postings)).repeat(self.sizes // HASH_BYTES)
        return np.frombuffer(self.terms, ">u8").astype(np.uint64), places


class Keywords:
    """The posting lists of one namespace. Hold `lock` to use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self._chunks: Integers = np.empty(0, np.int64)
        self._steps: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._is_live: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._ended = 0
        self._segments: list[_Segment] = []

    @property
    def held_bytes(self) -> int:
        held = self._chunks.nbytes + self._steps.nbytes + self._is_live.nbytes
        return held + sum(segment.held_bytes for segment in self._segments)

    # Catching up

    def extend(self, added: Passages) -> None:
        """Add passages that are not here yet."""
        first = len(self._chunks)
        self._chunks = np.concatenate([self._chunks, added.postings // LENGTH_STEPS])
        self._steps = np.concatenate([self._steps, (added.postings % LENGTH_STEPS).astype(np.uint8)])
        self._is_live = np.concatenate([self._is_live, np.ones(len(added.postings), np.bool_)])
        marked, places = added.marked()
        if not len(marked):
            return
        levels = (marked & np.uint64(LEVELS - 1)).astype(np.uint32)
        members = (places + first).astype(np.uint32) * np.uint32(LEVELS) + levels
        self._segments.append(_Segment.of(marked & ~np.uint64(LEVELS - 1), members))
        self._merge()

    def _merge(self) -> None:
        start = len(self._segments) - 1
        size = len(self._segments[start].members)
        while start and len(self._segments[start - 1].members) < MERGED_SHARE * size:
            start -= 1
            size += len(self._segments[start].members)
        if start < len(self._segments) - 1:
            merged = self._segments[start:]
            terms = np.concatenate([segment.terms.repeat(segment.lengths) for segment in merged])
            members = np.concatenate([segment.members for segment in merged])
            self._segments[start:] = [_Segment.of(terms, members)]

    def end(self, chunks: Integers) -> None:
        """Leave out passages that ended. Those that are not here are ignored."""
        if not len(chunks):
            return
        ended = np.isin(self._chunks, chunks) & self._is_live
        self._is_live &= ~ended
        self._ended += int(ended.sum())
        if self._ended > max(STALE_ROWS, len(self._chunks) // STALE_SHARE):
            self._drop_ended()

    def _drop_ended(self) -> None:
        numbers = (np.cumsum(self._is_live) - 1).astype(np.uint32)
        self._segments = [segment.kept(self._is_live, numbers) for segment in self._segments]
        self._chunks, self._steps = self._chunks[self._is_live], self._steps[self._is_live]
        self._is_live = np.ones(len(self._chunks), np.bool_)
        self._ended = 0

    # Searching

    def rank(self, counts: Counts, terms: Mapping[str, float]) -> Ranking:
        """All passages that contain any of the terms, scored by BM25."""
        weighed = []
        for term, weight in terms.items():
            members = self._members(term)
            places = members // LEVELS
            codes = (members % LEVELS) * LENGTH_STEPS + self._steps[places]
            weighed.append((present_weight(term, weight, len(members)), places, codes))
        return score_places(counts, weighed, np.zeros(len(self._chunks))).numbered(self._chunks)

    def counted(self, terms: Iterable[str]) -> dict[str, int]:
        """How many passages contain each term."""
        return {term: len(self._members(term)) for term in terms}

    def _members(self, term: str) -> Members:
        wanted = term_hash(term)
        found: Members = np.concatenate([_NONE, *(segment.find(wanted) for segment in self._segments)])
        return found[self._is_live[found // LEVELS]] if self._ended else found


class _Segment(NamedTuple):
    """Posting lists, one after the other, in the order of their terms."""

    terms: Hashes
    starts: Integers
    members: Members

    @classmethod
    def of(cls, terms: Hashes, members: Members) -> _Segment:
        """From a term for each posting, in any order. Postings of a term stay in their order."""
        order = np.argsort(terms, kind="stable")
        ordered = terms[order]
        first = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), ordered[1:] != ordered[:-1]]))
        return cls(ordered[first], np.append(first, len(ordered)), members[order])

    @property
    def lengths(self) -> Integers:
        return np.diff(self.starts)

    @property
    def held_bytes(self) -> int:
        return self.terms.nbytes + self.starts.nbytes + self.members.nbytes

    def find(self, term: int) -> Members:
        place = int(self.terms.searchsorted(np.uint64(term)))
        if place == len(self.terms) or int(self.terms[place]) != term:
            return self.members[:0]
        return self.members[self.starts[place] : self.starts[place + 1]]

    def kept(self, is_live: NDArray[np.bool_], numbers: Members) -> _Segment:
        """Without the postings of ended passages, and with the new numbers of the others."""
        places, levels = self.members // LEVELS, self.members % LEVELS
        is_kept = is_live[places]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_kept)])[self.starts]
        has_any = np.diff(starts) > 0
        members = numbers[places[is_kept]] * np.uint32(LEVELS) + levels[is_kept]
        return _Segment(self.terms[has_any], np.append(starts[:-1][has_any], len(members)), members)
