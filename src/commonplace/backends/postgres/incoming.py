"""Many rows into the tables at once: gathered, copied to tables of this transaction, and from there to ours.

COPY does not go straight into a table with row-level security, so it goes by way of a temporary one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.backends.entry_index import HEADING, heading_passage
from commonplace.backends.postgres import kept
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.index import Identifiers, NamespaceRow, tokens
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.postgres.transaction import former_bytes, row_bytes
from commonplace.backends.ranking import posting
from commonplace.backends.states import COLUMNS, FORMER_COLUMNS, Former, Live, labels
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.language.passages import Passage, passages

ROWS_A_COPY = 5_000
ROWS_FOR_A_TABLE = 500
"""Fewer are inserted one by one: with temporary tables for 10 rows each, 1,000 namespaces took twice as long."""
_COLUMNS = {
    "entry": f"tenant, namespace, {COLUMNS}, begun_by, deltas",
    "history": f"tenant, namespace, {FORMER_COLUMNS}, begun_by, ended_by, ended_commit, valid_to, ended_actor",
    "label": "tenant, namespace, entry, name, value",
    "chunk": "tenant, namespace, id, entry, number, start, stop, length, posting, commit_number, tokens, repeated",
    "pending": "tenant, namespace, chunk, ready_at, attempts",
}


class Incoming:
    """Rows of one namespace on their way into the tables."""

    def __init__(self, session: Session, spot: Spot, row: NamespaceRow) -> None:
        self._session = session
        self._spot = spot
        self._row = row
        self._ids = Identifiers(session)
        self._gathered: dict[str, list[Sequence[Any]]] = {table: [] for table in _COLUMNS}
        self._made: set[str] = set()

    def next_id(self) -> int:
        return self._ids.take()

    def add_live(self, row: Live, entry: Entry) -> None:
        self._add("entry", row)
        self._add_passages(entry, passages(entry.text))
        self._row.entry_count += 1
        self._row.byte_count += row_bytes(row)
        expires_at = row.expires_at
        if expires_at is not None and (self._row.expires_next is None or expires_at < self._row.expires_next):
            self._row.expires_next = expires_at

    def add_former(self, row: Former) -> None:
        text, value = None if row.text is None else kept.pack(row.text), kept.pack(row.value)
        self._add("history", row._replace(text=text, value=value))
        self._row.former_states += 1
        self._row.former_bytes += former_bytes(row.attributes, text, value)

    def _add_passages(self, entry: Entry, found: Sequence[Passage]) -> None:
        for name, value in sorted(labels(entry.attributes, INDEXED_ATTRIBUTES)):
            self._add("label", (entry.id, name, value))
        numbered = list(enumerate(found))
        if entry.heading:
            numbered.append((HEADING, heading_passage(entry.heading)))
        for number, one in numbered:
            chunk = self._ids.take()
            place = (chunk, entry.id, number, one.start, one.end, one.length, posting(chunk, one.length), entry.commit)
            self._add("chunk", (*place, *tokens(self._spot.id, one.terms)))
            if number != HEADING and one.terms:
                self._add("pending", (chunk, 0, 0))
            self._row.chunk_count += 1
            self._row.term_total += one.length

    def _add(self, table: str, columns: Sequence[Any]) -> None:
        gathered = self._gathered[table]
        gathered.append((self._spot.tenant, self._spot.id, *columns))
        if len(gathered) >= ROWS_A_COPY:
            self._flush(table)

    def _flush(self, table: str) -> None:
        names = _COLUMNS[table]
        rows, self._gathered[table] = self._gathered[table], []
        if len(rows) < ROWS_FOR_A_TABLE:
            self._session.insert_all(f"INSERT INTO {table} ({names}) VALUES ({_marks(names)})", rows)
            return
        if table not in self._made:
            self._made.add(table)
            self._session.send(
                f"CREATE TEMPORARY TABLE incoming_{table} ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA"
            )
        self._session.copy_in(f"COPY incoming_{table} ({names}) FROM STDIN", rows)
        self._session.send(f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming_{table}")
        self._session.send(f"TRUNCATE incoming_{table}")

    def finish(self) -> None:
        """Write what is gathered and the namespace's counters."""
        for table in _COLUMNS:
            self._flush(table)
        row = self._row
        self._session.send(
            "UPDATE namespace SET chunk_count = %s, term_total = %s, entry_count = %s, byte_count = %s,"
            " expires_next = %s, former_states = %s, former_bytes = %s, former_commit = commit_number"
            " WHERE tenant = %s AND path = %s",
            (
                row.chunk_count,
                row.term_total,
                row.entry_count,
                row.byte_count,
                row.expires_next,
                row.former_states,
                row.former_bytes,
                self._spot.tenant,
                "/".join(self._spot.namespace),
            ),
        )


def _marks(names: str) -> str:
    return ", ".join(["%s"] * len(names.split(", ")))
