"""The rows that are derived from an entry, on every backend: labels, passages with keywords, marks of pending vectors.

What changes with an entry is decided here. A backend writes the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

from commonplace.backends.rows import labels
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.language.edits import common_prefix
from commonplace.language.passages import Passage, Span, passage, passages, resume

HEADING = -1
"""The number of the passage that holds an entry's heading, which is found by keywords and never embedded."""

LAST_COMMIT = (1 << 63) - 1

Numbered = tuple[int, int, Passage]
"""A passage with its entry and its number there."""


class PassageCounts(Protocol):
    """The passage counts of a namespace's row, as the transaction will write them."""

    chunk_count: int
    term_total: int
    chunks_ended: int


class BaseEntryIndex(ABC):
    """Writes the derived rows of entries in one namespace, as part of a transaction."""

    def __init__(self, counts: PassageCounts) -> None:
        self._counts = counts

    def add(self, entry: Entry, text_passages: Sequence[Passage] | None) -> None:
        if text_passages is None:
            text_passages = passages(entry.text)
        self._insert_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        added = [(entry.id, *numbered) for numbered in enumerate(text_passages)]
        if entry.heading:
            added.append((entry.id, HEADING, heading_passage(entry.heading)))
        self._add_chunks(entry.commit, added)

    def change(self, before: Entry, after: Entry) -> None:
        """Update the rows from one state to the next. Passages before the first difference of the texts stay."""
        old, new = labels(before.attributes, INDEXED_ATTRIBUTES), labels(after.attributes, INDEXED_ATTRIBUTES)
        self.remove_labels(after.id, old - new)
        self._insert_labels(after.id, new - old)
        if before.heading != after.heading:
            self.end_chunks(self.chunks_of([after.id], only_headings=True))
            self.add_headings(after.commit, [(after.id, after.heading)])
        if before.text != after.text:
            chunks = self._text_chunks(after.id)
            shared = common_prefix(before.text, after.text)
            kept, restart = resume([Span(start, stop) for _, _, start, stop in chunks], shared)
            self.end_chunks([(chunk, length) for chunk, length, _, _ in chunks[len(kept) :]])
            added = enumerate(passages(after.text, restart), len(kept))
            self._add_chunks(after.commit, [(after.id, *numbered) for numbered in added])

    def remove(self, entry: Entry) -> None:
        self.remove_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        self.end_chunks(self.chunks_of([entry.id]))

    def add_headings(self, commit: int, headings: Sequence[tuple[int, str | None]]) -> None:
        added = [(entry_id, HEADING, heading_passage(heading)) for entry_id, heading in headings if heading]
        self._add_chunks(commit, added)

    def end_chunks(self, ended: Sequence[tuple[int, int]]) -> None:
        """Remove passages, given by id and length, from the live index. A search with `as_of` reads their vectors."""
        if ended:
            self._counts.chunks_ended += self._end_chunk_rows(ended)
            self._counts.term_total -= sum(length for _, length in ended)
            self._counts.chunk_count -= len(ended)

    def _add_chunks(self, commit: int, added: Sequence[Numbered]) -> None:
        self._insert_chunks(commit, added)
        self._counts.chunk_count += len(added)
        self._counts.term_total += sum(found.length for _, _, found in added)

    # Rows

    @abstractmethod
    def chunks_of(self, entry_ids: Sequence[int], *, only_headings: bool = False) -> list[tuple[int, int]]:
        """The ids and lengths of the live passages of some entries."""

    @abstractmethod
    def _text_chunks(self, entry_id: int) -> Sequence[tuple[int, int, int, int]]:
        """The live passages of an entry's text in order: id, length, start and stop."""

    @abstractmethod
    def _insert_chunks(self, commit: int, added: Sequence[Numbered]) -> None:
        """Add passages with their keywords. A passage of a text with terms also gets a pending mark for its vector."""

    @abstractmethod
    def _end_chunk_rows(self, ended: Sequence[tuple[int, int]]) -> int:
        """Take passages out of the live index; returns how many rows of them are kept."""

    @abstractmethod
    def _insert_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None: ...

    @abstractmethod
    def remove_labels(self, entry_id: int, removed: set[tuple[str, str]]) -> None: ...


@lru_cache(maxsize=512)  # records of the same type and tags have the same heading
def heading_passage(heading: str) -> Passage:
    found = passage(heading, 0, len(heading))
    return Passage(0, 0, found.length, found.terms)


def passages_alone(begun: int, ended: int, others: Iterable[int]) -> tuple[int, int]:
    """When passages began at the earliest and ended at the latest that only an erased state of an entry had.

    `others` are the commits that the entry's other former states began with. States share passages that do not change.
    """
    known = sorted(others)
    first = max((commit for commit in known if commit < begun), default=0) + 1
    return first, min((commit for commit in known if commit >= ended), default=LAST_COMMIT)


def match_passages(
    text: str, heading: str | None, rows: dict[tuple[int, int, int], int]
) -> tuple[list[tuple[int, Passage]], list[tuple[int, Passage]], list[int]]:
    """Compare the passages that an entry should have with its rows, which are chunks by number, start and stop.

    Return the passages that have a chunk, with it; those without, with their numbers; and the chunks without a passage.
    """
    numbered = [*enumerate(passages(text)), *([(HEADING, heading_passage(heading))] if heading else ())]
    kept, new = [], []
    for number, found in numbered:
        chunk = rows.pop((number, found.start, found.end), None)
        if chunk is None:
            new.append((number, found))
        else:
            kept.append((chunk, found))
    return kept, new, [*rows.values()]
