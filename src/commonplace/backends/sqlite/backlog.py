"""New entries whose derived rows (labels, passages, keywords, pending marks, usage) are not written yet.

A new entry only gets its own row, so that a commit writes half as many pages. Its namespace's row says from which
commit and which id on entries wait. A later write adds the derived rows of all of them at once: when there are enough,
before one of them is changed, or when vectors are asked for. Until then readers derive them in memory, so a search
finds what was written before it, also in a file that cannot be written. An entry that waits is as it was created: the
first change of any older state in its namespace settles those that wait first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from commonplace.backends.deltas import DAMAGE
from commonplace.backends.entry_index import HEADING, heading_passage
from commonplace.backends.ranking import Located, Page, posting
from commonplace.backends.rows import labels
from commonplace.backends.sqlite.checksums import LIVE, live_entry, live_row
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.writer import MOST_IDS, NamespaceRow, NewEntry
from commonplace.checks import Namespace, stored_namespace
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.errors import Corrupt
from commonplace.filters import Filter
from commonplace.language.passages import Passage, frequency_level, passages
from commonplace.store import Pending

MOST_WAITING = 48
"""How many entries of a namespace wait at most. Their terms take a search 26 to 60 µs each, once a process."""
LONG_CHARACTERS = 4_000
"""A text longer than this does not wait."""
BULK = 8
"""A transaction with this many new entries settles them itself."""
SETTLED_AT_ONCE = 500
"""How many entries of one transaction are settled together."""
REMEMBERED_TEXTS = 256
COUNTED_EXACTLY = 256
"""After this many entries, counts over all namespaces take one passage for each."""

Place = tuple[int, int]
"""The first commit of the entries that wait, and the id that theirs are above; see `NamespaceRow.waiting`."""

NOT_WAITING = (
    "NOT EXISTS (SELECT 1 FROM namespace AS n WHERE n.id = entry.namespace AND n.waiting_entry IS NOT NULL"
    " AND entry.commit_number >= n.waiting_commit AND entry.id > n.waiting_entry)"
)
"""The entries whose derived rows are written, as a condition on `entry`."""
WAITING = "e.namespace = {namespace} AND e.commit_number >= {commit} AND e.id > {entry}"
_READ = (
    "SELECT {} FROM entry AS e INDEXED BY entry_commit"
    f" WHERE {WAITING.format(namespace='?', commit='?', entry='?')} AND e.id < ? ORDER BY e.id"
)
_UNREADABLE = (*DAMAGE, LookupError, AttributeError)


class WaitingEntry(NamedTuple):
    entry: Entry
    valid_from: int


def waiting_entries(
    connection: Connection, namespace: Namespace, number: int, place: Place | None, before: int = MOST_IDS
) -> list[WaitingEntry]:
    """The entries of a namespace that wait, with ids below `before`.

    A damaged one must not stop searches and writes of the others: its text is taken as it is, or it
    is left out. Reading that entry reports the damage.
    """
    if place is None:
        return []
    parameters = (number, *place, before)
    try:
        rows = connection.execute(_READ.format(LIVE), parameters).fetchall()
        return [WaitingEntry(live_entry(namespace, row), live_row(row).valid_from) for row in rows]
    except (Corrupt, *_UNREADABLE):
        numbers = connection.execute(_READ.format("e.id"), parameters).fetchall()
        return [one for (entry_id,) in numbers for one in _as_it_is(connection, namespace, entry_id)]


def _as_it_is(connection: Connection, namespace: Namespace, entry_id: int) -> Iterator[WaitingEntry]:
    try:
        [row] = connection.execute(f"SELECT {LIVE} FROM entry WHERE id = ?", (entry_id,)).fetchall()
        yield WaitingEntry(live_entry(namespace, (*row[:-1], None)), live_row(row).valid_from)
    except (Corrupt, *_UNREADABLE):
        return


def waiting_place(connection: Connection, number: int) -> Place | None:
    for commit, entry in connection.execute(
        "SELECT waiting_commit, waiting_entry FROM namespace WHERE id = ? AND waiting_entry IS NOT NULL", (number,)
    ).fetchall():
        return commit, entry
    return None


text_passages = lru_cache(maxsize=REMEMBERED_TEXTS)(passages)
"""The passages of a text that waits: each search needs them, and in the end the write that settles it."""


def passages_of(entry: Entry | NewEntry) -> list[tuple[int, Passage]]:
    """The passages of an entry by number; that of its heading comes last."""
    made = entry.passages if isinstance(entry, NewEntry) else None
    if made is None:
        made = text_passages(entry.text) if len(entry.text) <= LONG_CHARACTERS else passages(entry.text)
    found = list(enumerate(made))
    if entry.heading:
        found.append((HEADING, heading_passage(entry.heading)))
    return found


class Waiting:
    """The passages of entries that wait, with numbers above those of all rows."""

    def __init__(self, entries: Sequence[WaitingEntry]) -> None:
        self._found = [(one, number, passage) for one in entries for number, passage in passages_of(one.entry)]
        self.passages = len(self._found)
        self.total_length = sum(passage.length for _, _, passage in self._found)

    @classmethod
    def of(cls, connection: Connection, namespace: Namespace, row: NamespaceRow) -> Waiting:
        return cls(waiting_entries(connection, namespace, row.id, row.waiting)) if row.waiting else NONE

    @property
    def pending(self) -> int:
        """How many of them will wait for a vector."""
        return sum(number != HEADING and bool(passage.terms) for _, number, passage in self._found)

    def pending_passages(self, namespace: Namespace, among: Sequence[tuple[int, int]] | None) -> list[Pending]:
        """Those that will wait for a vector, the newest first, or those named by entry and start."""
        found = {
            (one.entry.id, passage.start): Pending(
                waiting_id(one.entry, number), namespace, one.entry.text[passage.start : passage.end]
            )
            for one, number, passage in reversed(self._found)
            if number != HEADING and passage.terms
        }
        return list(found.values()) if among is None else [found[name] for name in among if name in found]

    def postings(self, term: str, level: int) -> list[int]:
        return [
            posting(MOST_IDS + place, passage.length)
            for place, (_, _, passage) in enumerate(self._found)
            if frequency_level(passage.terms.get(term, 0)) == level
        ]

    def located(self, entry_ids: Sequence[int]) -> dict[int, Located]:
        """The passages of some entries by their postings."""
        wanted = set(entry_ids)
        return {
            posting(chunk, passage.length): Located(chunk, one.entry.id, *_span(number, passage))
            for chunk, (one, number, passage) in enumerate(self._found, MOST_IDS)
            if one.entry.id in wanted
        }

    def selected(self, page: Page, chunks: Sequence[int] | None = None) -> dict[int, tuple[int, int, int]]:
        """The passages, or those among some, whose entry passes the filter: entry id, start and stop."""
        places = range(self.passages) if chunks is None else [chunk - MOST_IDS for chunk in chunks if chunk >= MOST_IDS]
        found = {}
        for place in places:
            one, number, passage = self._found[place]
            if _passes(one, page):
                found[MOST_IDS + place] = (one.entry.id, *_span(number, passage))
        return found


NONE = Waiting(())


# A passage that waits has no id yet. A search embeds it nevertheless, without waiting for other writers. Until its
# vector is stored, it has a negative id, which says what it is: commit, entry and number.


def waiting_id(entry: Entry, number: int) -> int:
    return -((entry.commit << 96 | entry.id << 32 | number) + 1)


def of_waiting_id(chunk_id: int) -> tuple[int, int, int]:
    """The commit that the entry began with, its id, and the number of the passage."""
    packed = -chunk_id - 1
    return packed >> 96, packed >> 32 & (1 << 64) - 1, packed & (1 << 32) - 1


def _span(number: int, passage: Passage) -> tuple[int, int]:
    return (0, 0) if number == HEADING else (passage.start, passage.end)


def _passes(one: WaitingEntry, page: Page) -> bool:
    expires_at, since = one.entry.expires_at, page.filter.unchanged_since
    return (
        (expires_at is None or page.now is None or expires_at > page.now)
        and (since is None or one.valid_from <= since)
        and page.filter.matches(one.entry)
    )


def waiting_counts(connection: Connection) -> tuple[int, int]:
    """How many passages wait in all namespaces, and how many for a vector. Beyond some entries it is a guess."""
    passages = pending = 0
    left = COUNTED_EXACTLY
    for number, path, commit, entry_id, count in connection.execute(
        "SELECT id, path, waiting_commit, waiting_entry, waiting_count FROM namespace INDEXED BY namespace_waiting"
        " WHERE waiting_entry IS NOT NULL"
    ).fetchall():
        if left <= 0:
            passages, pending = passages + count, pending + count
            continue
        left -= count
        waiting = Waiting(waiting_entries(connection, stored_namespace(path), number, (commit, entry_id)))
        passages, pending = passages + waiting.passages, pending + waiting.pending
    return passages, pending


def waiting_labels(entries: Sequence[WaitingEntry]) -> dict[tuple[str, str], list[int]]:
    """The ids of the entries with each label."""
    found: dict[tuple[str, str], list[int]] = {}
    for entry, _ in entries:
        for label in labels(entry.attributes, INDEXED_ATTRIBUTES):
            found.setdefault(label, []).append(entry.id)
    return found


def has_labels(filter: Filter) -> bool:
    return bool(filter.types or filter.all_tags or filter.any_tags or filter.resource is not None)
