"""What is derived from a live entry and kept beside it: labels, passages, keywords and pending marks.

A statement hands the interpreter's lock to the other writers, so everything of one kind goes into one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.backends.sqlite import deltas, keywords
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import Group, NamespaceRow
from commonplace.backends.sqlite.rows import labels
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.language.chunks import Span, resume
from commonplace.language.passages import Passage, passage, passages

HEADING = -1
"""The number of the passage that holds an entry's heading: found by keywords, never embedded."""

ROWS_A_STATEMENT = 50


class EntryIndex:
    """Writes the derived rows of entries in one namespace, as part of a transaction."""

    def __init__(self, connection: Connection, group: Group, row: NamespaceRow) -> None:
        self._connection = connection
        self._group = group
        self._row = row

    def add(self, entry: Entry, text_passages: Sequence[Passage]) -> None:
        self._add_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        self._add_chunks(entry, [*enumerate(text_passages), *_heading(entry.heading)])

    def change(self, before: Entry, after: Entry) -> None:
        """From one state to the next; passages before the first difference of the texts stay as they are."""
        old, new = labels(before.attributes, INDEXED_ATTRIBUTES), labels(after.attributes, INDEXED_ATTRIBUTES)
        self._remove_labels(after.id, old - new)
        self._add_labels(after.id, new - old)
        if before.text == after.text and before.heading == after.heading:
            return
        ended: list[Any] = []
        added: list[tuple[int, Passage]] = []
        chunks = self._chunks(after.id)
        if before.heading != after.heading:
            ended += [chunk for chunk in chunks if chunk[1] == HEADING]
            added += _heading(after.heading)
        if before.text != after.text:
            of_text = [chunk for chunk in chunks if chunk[1] != HEADING]
            shared = deltas.common_prefix(before.text, after.text)
            kept, restart = resume([Span(start, stop) for _, _, start, stop, _ in of_text], shared)
            ended += of_text[len(kept) :]
            added += enumerate(passages(after.text, restart), len(kept))
        self._end_chunks(ended)
        self._add_chunks(after, added)

    def remove(self, entry: Entry) -> None:
        self._remove_labels(entry.id, labels(entry.attributes, INDEXED_ATTRIBUTES))
        self._end_chunks(self._chunks(entry.id))

    def _add_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None:
        self._insert("label", 4, [(self._row.id, name, value, entry_id) for name, value in sorted(added)])

    def _remove_labels(self, entry_id: int, removed: set[tuple[str, str]]) -> None:
        for name, value in removed:
            self._connection.execute(
                "DELETE FROM label WHERE namespace = ? AND name = ? AND value = ? AND entry = ?",
                (self._row.id, name, value, entry_id),
            )

    def _chunks(self, entry_id: int) -> list[Any]:
        return self._connection.execute(
            "SELECT id, number, start, stop, length FROM chunk"
            " WHERE entry = ? AND ended_commit IS NULL ORDER BY number",
            (entry_id,),
        ).fetchall()

    def _add_chunks(self, entry: Entry, added: Sequence[tuple[int, Passage]]) -> None:
        numbered = [(self._group.next_id("chunk"), number, found) for number, found in added]
        self._insert(
            "chunk",
            8,
            [
                (chunk, entry.id, number, found.start, found.end, found.length, entry.commit, None)
                for chunk, number, found in numbered
            ],
        )
        self._insert(
            "keywords (rowid, terms)",
            2,
            [
                (keywords.rowid(chunk, found.length), keywords.tokens(self._row.id, found.terms))
                for chunk, _, found in numbered
            ],
        )
        self._insert(
            "pending",
            4,
            [(chunk, self._row.id, 0, 0) for chunk, number, found in numbered if number != HEADING and found.terms],
        )
        self._row.chunk_count += len(numbered)
        self._row.term_total += sum(found.length for _, _, found in numbered)

    def _end_chunks(self, ended: Sequence[Any]) -> None:
        execute = self._connection.execute
        for chunk, _, _, _, length in ended:
            execute("UPDATE chunk SET ended_commit = ? WHERE id = ?", (self._row.commit_number, chunk))
            execute("DELETE FROM keywords WHERE rowid = ?", (keywords.rowid(chunk, length),))
            execute("DELETE FROM pending WHERE chunk = ?", (chunk,))
            execute("UPDATE vector SET former = 1 WHERE chunk = ?", (chunk,))
            self._row.term_total -= length
        self._row.chunk_count -= len(ended)
        self._row.chunks_ended += len(ended)

    def _insert(self, table: str, width: int, rows: Sequence[Sequence[Any]]) -> None:
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            some = rows[start : start + ROWS_A_STATEMENT]
            marks = ", ".join([f"({', '.join('?' * width)})"] * len(some))
            self._connection.execute(f"INSERT INTO {table} VALUES {marks}", [value for row in some for value in row])


def _heading(heading: str | None) -> list[tuple[int, Passage]]:
    if not heading:
        return []
    found = passage(heading, 0, len(heading))
    return [(HEADING, Passage(0, 0, found.length, found.terms))]
