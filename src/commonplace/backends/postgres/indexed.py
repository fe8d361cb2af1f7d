"""What is derived from a live entry and kept beside it: labels, passages with their tokens, and pending marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commonplace.backends.postgres import keywords
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.migrate import IDS_AT_ONCE
from commonplace.backends.ranking import posting
from commonplace.backends.states import labels
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.language.edits import common_prefix
from commonplace.language.passages import Passage, Span, passage, passages, resume

HEADING = -1
"""The number of the passage that holds an entry's heading: found by keywords, never embedded."""

_CHUNK_COLUMNS = "tenant, id, namespace, entry, number, start, stop, length, posting, commit_number, tokens, repeated"
_INSERT_CHUNK = f"INSERT INTO chunk ({_CHUNK_COLUMNS}) VALUES ({', '.join(['%s'] * 12)})"


@dataclass(slots=True)
class NamespaceRow:
    """The namespace's counters as they will be written with the transaction."""

    id: int
    commit_number: int
    commit_time: int
    chunk_count: int
    term_total: int
    chunks_ended: int
    entry_count: int
    byte_count: int
    expires_next: int | None
    former_states: int = 0
    former_bytes: int = 0
    former_commit: int = 0


class Identifiers:
    """Ids from the database's sequence, a block at a time."""

    def __init__(self, session: Session, first: int | None = None) -> None:
        self._session = session
        self._next = first or 0
        self._stop = self._next + IDS_AT_ONCE if first else 0

    def take(self) -> int:
        if self._next == self._stop:
            self._next = self._session.rows("SELECT nextval('identifier')")[0][0]
            self._stop = self._next + IDS_AT_ONCE
        self._next += 1
        return self._next - 1


class EntryIndex:
    """Writes the derived rows of entries in one namespace, as part of a transaction."""

    def __init__(self, session: Session, tenant: str, row: NamespaceRow, ids: Identifiers) -> None:
        self._session = session
        self._tenant = tenant
        self._row = row
        self._ids = ids

    def add(self, entry: Entry, text_passages: Sequence[Passage]) -> None:
        self._add_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        added = [(entry.id, *numbered) for numbered in enumerate(text_passages)]
        if entry.heading:
            added.append((entry.id, HEADING, heading_passage(entry.heading)))
        self._add_chunks(entry.commit, added)

    def change(self, before: Entry, after: Entry) -> None:
        """From one state to the next; passages before the first difference of the texts stay as they are."""
        old, new = labels(before.attributes, INDEXED_ATTRIBUTES), labels(after.attributes, INDEXED_ATTRIBUTES)
        self.remove_labels(after.id, old - new)
        self._add_labels(after.id, new - old)
        if before.heading != after.heading:
            self.end_chunks(self.chunks_of([after.id], only_headings=True))
            self.add_headings(after.commit, [(after.id, after.heading)])
        if before.text != after.text:
            chunks = self._session.rows(
                "SELECT id, length, start, stop FROM chunk"
                " WHERE tenant = %s AND entry = %s AND ended_commit IS NULL AND number >= 0 ORDER BY number",
                (self._tenant, after.id),
            )
            shared = common_prefix(before.text, after.text)
            kept, restart = resume([Span(start, stop) for _, _, start, stop in chunks], shared)
            self.end_chunks([(chunk, length) for chunk, length, _, _ in chunks[len(kept) :]])
            added = enumerate(passages(after.text, restart), len(kept))
            self._add_chunks(after.commit, [(after.id, *numbered) for numbered in added])

    def remove(self, entry: Entry) -> None:
        self.remove_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        self.end_chunks(self.chunks_of([entry.id]))

    def remove_labels(self, entry_id: int, removed: set[tuple[str, str]]) -> None:
        if removed:
            names, values = zip(*sorted(removed), strict=True)
            self._session.send(
                "DELETE FROM label AS l USING unnest(%s::text[], %s::text[]) AS gone (name, value)"
                " WHERE l.tenant = %s AND l.namespace = %s AND l.name = gone.name AND l.value = gone.value"
                " AND l.entry = %s",
                (list(names), list(values), self._tenant, self._row.id, entry_id),
            )

    def chunks_of(self, entry_ids: Sequence[int], *, only_headings: bool = False) -> list[tuple[int, int]]:
        """The ids and lengths of the live passages of some entries."""
        which = f" AND number = {HEADING}" if only_headings else ""
        rows = self._session.rows(
            f"SELECT id, length FROM chunk WHERE tenant = %s AND entry = ANY(%s) AND ended_commit IS NULL{which}",
            (self._tenant, list(entry_ids)),
        )
        return [(chunk, length) for chunk, length in rows]

    def add_headings(self, commit: int, headings: Sequence[tuple[int, str | None]]) -> None:
        added = [(entry_id, HEADING, heading_passage(heading)) for entry_id, heading in headings if heading]
        self._add_chunks(commit, added)

    def end_chunks(self, ended: Sequence[tuple[int, int]]) -> None:
        """Take passages, given by id and length, out of the live index; `as_of` still finds them."""
        if not ended:
            return
        chunks = [chunk for chunk, _ in ended]
        place = (self._tenant, chunks)
        # The pending mark first: whoever stores a vector holds it, so that afterwards the vector is there to be marked.
        self._session.send("DELETE FROM pending WHERE tenant = %s AND chunk = ANY(%s)", place)
        self._session.send(
            "UPDATE chunk SET ended_commit = %s, tokens = NULL, repeated = NULL WHERE tenant = %s AND id = ANY(%s)",
            (self._row.commit_number, *place),
        )
        self._session.send("UPDATE embedding SET former = true WHERE tenant = %s AND chunk = ANY(%s)", place)
        self._row.term_total -= sum(length for _, length in ended)
        self._row.chunk_count -= len(ended)
        self._row.chunks_ended += len(ended)

    def _add_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None:
        if added:
            names, values = zip(*sorted(added), strict=True)
            self._session.send(
                "INSERT INTO label (tenant, namespace, name, value, entry)"
                " SELECT %s, %s, new.name, new.value, %s FROM unnest(%s::text[], %s::text[]) AS new (name, value)",
                (self._tenant, self._row.id, entry_id, list(names), list(values)),
            )

    def _add_chunks(self, commit: int, added: Sequence[tuple[int, int, Passage]]) -> None:
        """Add passages, each with its entry and its number there."""
        waiting = []
        for entry_id, number, found in added:
            chunk = self._ids.take()
            self._session.send(
                _INSERT_CHUNK,
                (
                    self._tenant,
                    chunk,
                    self._row.id,
                    entry_id,
                    number,
                    found.start,
                    found.end,
                    found.length,
                    posting(chunk, found.length),
                    commit,
                    *keywords.tokens(self._row.id, found.terms),
                ),
            )
            if number != HEADING and found.terms:
                waiting.append(chunk)
        if waiting:
            self._session.send(
                "INSERT INTO pending (tenant, chunk, namespace) SELECT %s, new.chunk, %s"
                " FROM unnest(%s::bigint[]) AS new (chunk)",
                (self._tenant, self._row.id, waiting),
            )
        self._row.chunk_count += len(added)
        self._row.term_total += sum(found.length for _, _, found in added)


def heading_passage(heading: str) -> Passage:
    found = passage(heading, 0, len(heading))
    return Passage(0, 0, found.length, found.terms)
