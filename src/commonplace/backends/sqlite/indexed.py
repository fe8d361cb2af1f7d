"""What is derived from a live entry and kept beside it: labels, passages, keywords and pending marks.

A statement hands the interpreter's lock to the other writers, so everything of one kind goes into one statement.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from commonplace.backends.ranking import posting
from commonplace.backends.sqlite import keywords
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import Group, NamespaceRow
from commonplace.backends.states import labels
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.language.edits import common_prefix
from commonplace.language.passages import Passage, Span, passage, passages, resume

HEADING = -1
"""The number of the passage that holds an entry's heading: found by keywords, never embedded."""

ROWS_A_STATEMENT = 50
_LISTED = "(SELECT value FROM json_each(?))"


class EntryIndex:
    """Writes the derived rows of entries in one namespace, as part of a transaction."""

    def __init__(self, connection: Connection, group: Group, row: NamespaceRow) -> None:
        self._connection = connection
        self._group = group
        self._row = row

    def add(self, entry: Entry, text_passages: Sequence[Passage]) -> None:
        self._add_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        added = [(entry.id, *numbered) for numbered in enumerate(text_passages)]
        if entry.heading:
            added.append((entry.id, HEADING, _heading(entry.heading)))
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
            chunks = self._connection.execute(
                "SELECT id, length, start, stop FROM chunk"
                " WHERE entry = ? AND ended_commit IS NULL AND number >= 0 ORDER BY number",
                (after.id,),
            ).fetchall()
            shared = common_prefix(before.text, after.text)
            kept, restart = resume([Span(start, stop) for _, _, start, stop in chunks], shared)
            self.end_chunks([(chunk, length) for chunk, length, _, _ in chunks[len(kept) :]])
            added = enumerate(passages(after.text, restart), len(kept))
            self._add_chunks(after.commit, [(after.id, *numbered) for numbered in added])

    def remove(self, entry: Entry) -> None:
        self.remove_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        self.end_chunks(self.chunks_of([entry.id]))

    def remove_labels(self, entry_id: int, removed: set[tuple[str, str]]) -> None:
        for name, value in removed:
            self._connection.execute(
                "DELETE FROM label WHERE namespace = ? AND name = ? AND value = ? AND entry = ?",
                (self._row.id, name, value, entry_id),
            )

    def chunks_of(self, entry_ids: Sequence[int], *, only_headings: bool = False) -> list[tuple[int, int]]:
        """The ids and lengths of the live passages of some entries."""
        which = f" AND c.number = {HEADING}" if only_headings else ""
        return self._connection.execute(
            "SELECT c.id, c.length FROM json_each(?) AS j CROSS JOIN chunk AS c ON c.entry = j.value"
            f" WHERE c.ended_commit IS NULL{which}",
            (json.dumps(entry_ids),),
        ).fetchall()

    def add_headings(self, commit: int, headings: Sequence[tuple[int, str | None]]) -> None:
        self._add_chunks(commit, [(entry_id, HEADING, _heading(heading)) for entry_id, heading in headings if heading])

    def end_chunks(self, ended: Sequence[tuple[int, int]]) -> None:
        """Take passages, given by id and length, out of the live index; `as_of` still finds them."""
        if not ended:
            return
        chunks = json.dumps([chunk for chunk, _ in ended])
        rows = json.dumps([posting(chunk, length) for chunk, length in ended])
        execute = self._connection.execute
        execute(f"UPDATE chunk SET ended_commit = ? WHERE id IN {_LISTED}", (self._row.commit_number, chunks))
        execute(f"DELETE FROM keywords WHERE rowid IN {_LISTED}", (rows,))
        execute(f"DELETE FROM pending WHERE chunk IN {_LISTED}", (chunks,))
        execute(f"UPDATE vector SET former = 1 WHERE chunk IN {_LISTED}", (chunks,))
        self._row.term_total -= sum(length for _, length in ended)
        self._row.chunk_count -= len(ended)
        self._row.chunks_ended += len(ended)

    def _add_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None:
        self._insert("label", 4, [(self._row.id, name, value, entry_id) for name, value in sorted(added)])

    def _add_chunks(self, commit: int, added: Sequence[tuple[int, int, Passage]]) -> None:
        """Add passages, each with its entry and its number there."""
        numbered = [(self._group.next_id("chunk"), *one) for one in added]
        self._insert(
            "chunk",
            8,
            [
                (chunk, entry_id, number, found.start, found.end, found.length, commit, None)
                for chunk, entry_id, number, found in numbered
            ],
        )
        self._insert(
            "keywords (rowid, terms)",
            2,
            [
                (posting(chunk, found.length), keywords.tokens(self._row.id, found.terms))
                for chunk, _, _, found in numbered
            ],
        )
        self._insert(
            "pending",
            4,
            [(chunk, self._row.id, 0, 0) for chunk, _, number, found in numbered if number != HEADING and found.terms],
        )
        self._row.chunk_count += len(numbered)
        self._row.term_total += sum(found.length for _, _, _, found in numbered)

    def _insert(self, table: str, width: int, rows: Sequence[Sequence[Any]]) -> None:
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            some = rows[start : start + ROWS_A_STATEMENT]
            self._connection.execute(_insertion(table, width, len(some)), [value for row in some for value in row])


@cache
def _insertion(table: str, width: int, rows: int) -> str:
    marks = ", ".join([f"({', '.join('?' * width)})"] * rows)
    return f"INSERT INTO {table} VALUES {marks}"


def _heading(heading: str) -> Passage:
    found = passage(heading, 0, len(heading))
    return Passage(0, 0, found.length, found.terms)
