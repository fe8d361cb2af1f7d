"""One atomic change of one namespace: states, their history, labels, passages, keywords and pending marks together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from commonplace.backends.sqlite import deltas, keywords, reading
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.rows import COLUMNS, dump, entry_of, labels
from commonplace.checks import Namespace, check_key
from commonplace.entry import INDEXED_ATTRIBUTES, Draft, Entry, Revision
from commonplace.errors import Conflict, NotFound
from commonplace.language.chunks import Span, resume
from commonplace.language.passages import Passage, passage, passages
from commonplace.store import Child, Page, Scan, Transaction

SWEEP_LIMIT = 500
_WRITTEN = f"{COLUMNS}, namespace, begun_by, deltas".split(", ")
_MARKS = [f"?{number}" for number in range(1, len(_WRITTEN) + 1)]
_INSERT = f"INSERT INTO entry ({', '.join(_WRITTEN)}) VALUES ({', '.join(_MARKS)})"
_ASSIGNMENTS = [f"{name} = {mark}" for name, mark in zip(_WRITTEN, _MARKS, strict=True)]
_UPDATE = f"UPDATE entry SET {', '.join(_ASSIGNMENTS[3:])} WHERE id = ?1 AND kind = ?2 AND key = ?3"

HEADING = -1
"""The number of the passage that holds an entry's heading: found by keywords, never embedded."""


@dataclass(slots=True)
class NamespaceRow:
    """The namespace's counters as they will be written with the group."""

    id: int
    commit_number: int
    commit_time: int
    chunk_count: int
    term_total: int
    chunks_ended: int
    is_new: bool = False
    is_changed: bool = False


@dataclass(slots=True)
class Group:
    """What the jobs of one commit share: the counters, read once and written once."""

    counters: dict[str, int]
    stored_counters: dict[str, int]
    namespaces: dict[Namespace, NamespaceRow] = field(default_factory=dict)

    def next_id(self, name: str) -> int:
        self.counters[name] += 1
        return self.counters[name]


def begin_group(connection: Connection) -> Group:
    counters = dict(connection.execute("SELECT name, value FROM counter").fetchall())
    return Group(counters, dict(counters))


def flush_group(connection: Connection, group: Group) -> None:
    for name, value in group.counters.items():
        if value != group.stored_counters[name]:
            connection.execute("UPDATE counter SET value = ? WHERE name = ?", (value, name))
    for namespace, row in group.namespaces.items():
        if row.is_new:
            connection.execute(
                "INSERT INTO namespace (id, path, commit_number, commit_time, history_floor,"
                " chunk_count, term_total, chunks_ended) VALUES (?, ?, ?, ?, 0, ?, ?, ?)",
                (
                    row.id,
                    "/".join(namespace),
                    row.commit_number,
                    row.commit_time,
                    row.chunk_count,
                    row.term_total,
                    row.chunks_ended,
                ),
            )
        elif row.is_changed:
            connection.execute(
                "UPDATE namespace SET commit_number = ?, commit_time = ?, chunk_count = ?, term_total = ?,"
                " chunks_ended = ? WHERE id = ?",
                (
                    row.commit_number,
                    row.commit_time,
                    row.chunk_count,
                    row.term_total,
                    row.chunks_ended,
                    row.id,
                ),
            )


class SQLiteTransaction(Transaction):
    """Takes a commit number with its first change; a transaction that changes nothing leaves no trace."""

    def __init__(
        self,
        connection: Connection,
        group: Group,
        namespace: Namespace,
        now: Callable[[], int],
        actor: str | None,
    ) -> None:
        self._connection = connection
        self._group = group
        self._namespace = namespace
        self._actor = actor
        row = group.namespaces.get(namespace) or self._read_namespace()
        self._row = replace(row)
        self._time = max(now(), row.commit_time + 1)
        self._has_commit = False
        self._sweep()

    def _read_namespace(self) -> NamespaceRow:
        rows = self._connection.execute(
            "SELECT id, commit_number, commit_time, chunk_count, term_total, chunks_ended"
            " FROM namespace WHERE path = ?",
            ("/".join(self._namespace),),
        ).fetchall()
        return NamespaceRow(*rows[0]) if rows else NamespaceRow(0, 0, 0, 0, 0, 0, is_new=True)

    def finish(self) -> int | None:
        """Hand the counters back to the group; the commit's number, or None when nothing was changed."""
        if not self._has_commit:
            return None
        self._group.namespaces[self._namespace] = self._row
        return self._row.commit_number

    @property
    def namespace_id(self) -> int:
        return self._row.id

    @property
    def time(self) -> int:
        return self._time

    @property
    def _commit(self) -> int:
        """This change's commit number, taken on first use."""
        if not self._has_commit:
            self._has_commit = True
            if not self._row.id:
                self._row.id = self._group.next_id("namespace")
            self._row.commit_number += 1
            self._row.commit_time = self._time
            self._row.is_changed = True
        return self._row.commit_number

    # Reads

    def get(self, kind: str, key: str) -> Entry | None:
        return reading.get(self._connection, self._namespace, self._row.id, kind, key, self._time)

    def find(self, kind: str, identity: str) -> Entry | None:
        return reading.find(self._connection, self._namespace, self._row.id, kind, identity, self._time)

    def scan(self, scan: Scan) -> Page:
        return reading.scan(self._connection, self._namespace, self._row.id, scan, self._time)

    def children(self, kind: str, prefix: str) -> list[Child]:
        return reading.children(self._connection, self._namespace, self._row.id, kind, prefix, self._time)

    def history(self, kind: str, key: str) -> list[Revision]:
        return reading.history(self._connection, self._row.id, kind, key, self._time)

    def state(self, kind: str, key: str, revision: int) -> Entry | None:
        return reading.state(self._connection, self._namespace, self._row.id, kind, key, revision)

    def begun(self, commit: int) -> list[Entry]:
        return reading.begun(self._connection, self._namespace, self._row.id, commit)

    def ended(self, commit: int) -> list[Entry]:
        return reading.ended(self._connection, self._namespace, self._row.id, commit)

    # Writes

    def put(self, draft: Draft) -> Entry:
        is_json = not isinstance(draft.value, str)
        value = dump(draft.value) if is_json else draft.value
        assert isinstance(value, str)
        text = None if not is_json and draft.searchable == value else draft.searchable
        former = self._live_row(draft.kind, draft.key)
        commit = self._commit
        if draft.identity is not None:
            self._check_identity(draft, former)
        if former is None:
            entry_id, begun_by, in_a_row = self._group.next_id("entry"), "created", 0
            revision = self._next_revision(draft.kind, draft.key)
            created_at = self._time if draft.created_at is None else draft.created_at
        else:
            entry_id, begun_by = former[0], "updated"
            revision, created_at = former[6] + 1, former[9] if draft.created_at is None else draft.created_at
            in_a_row = self._keep_former(former, text, value, ended_by="updated", valid_to=self._time)
        updated_at = self._time if draft.updated_at is None else draft.updated_at
        row = (
            entry_id,
            draft.kind,
            draft.key,
            draft.identity,
            int(is_json),
            dump(draft.attributes),
            revision,
            commit,
            self._time,
            created_at,
            updated_at,
            draft.expires_at,
            self._actor,
            draft.heading,
            text,
            value,
        )
        self._connection.execute(_INSERT if former is None else _UPDATE, (*row, self._row.id, begun_by, in_a_row))
        entry = entry_of(self._namespace, row)
        before = None if former is None else entry_of(self._namespace, former)
        self._relabel(entry_id, before, entry)
        self._reindex(before, entry, draft)
        return entry

    def delete(self, kind: str, key: str) -> Entry | None:
        row = self._live_row(kind, key)
        return None if row is None else self._end(row, ended_by="deleted", valid_to=self._time)

    def move(self, kind: str, key: str, new_key: str, heading: str | None) -> Entry:
        row = self._live_row(kind, key)
        if row is None:
            raise NotFound(f"no {kind} with this key to move")
        if self._live_row(kind, check_key(new_key)) is not None:
            raise Conflict(f"a {kind} with the new key exists already")
        commit = self._commit
        revision = max(row[6] + 1, self._next_revision(kind, new_key))
        in_a_row = self._keep_former(row, row[14], row[15], ended_by="moved_away", valid_to=self._time)
        self._connection.execute(
            "UPDATE entry SET key = ?, heading = ?, revision = ?, commit_number = ?, valid_from = ?,"
            " begun_by = 'moved_here', actor = ?, deltas = ?, updated_at = ? WHERE id = ?",
            (new_key, heading, revision, commit, self._time, self._actor, in_a_row, self._time, row[0]),
        )
        if heading != row[13]:
            self._replace_heading(row[0], heading)
        moved = self.get(kind, new_key)
        assert moved is not None
        return moved

    def touch(self, kind: str, key: str) -> None:
        self._connection.execute(
            "UPDATE entry SET updated_at = ? WHERE namespace = ? AND kind = ? AND key = ?",
            (self._time, self._row.id, kind, key),
        )

    # States and their history

    def _live_row(self, kind: str, key: str) -> Sequence[Any] | None:
        """The live row of a key; one that has expired is ended on the way."""
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM entry WHERE namespace = ? AND kind = ? AND key = ?",
            (self._row.id, kind, key),
        ).fetchall()
        if rows and rows[0][11] is not None and rows[0][11] <= self._time:
            self._end(rows[0], ended_by="expired", valid_to=rows[0][11])
            return None
        return rows[0] if rows else None

    def _sweep(self) -> None:
        """End what has expired, so that history and the feed tell of it."""
        if not self._row.id:
            return
        for row in self._connection.execute(
            f"SELECT {COLUMNS} FROM entry WHERE namespace = ? AND expires_at <= ? LIMIT {SWEEP_LIMIT}",
            (self._row.id, self._time),
        ).fetchall():
            self._end(row, ended_by="expired", valid_to=max(row[11], row[8]))

    def _end(self, row: Sequence[Any], *, ended_by: str, valid_to: int) -> Entry:
        self._keep_former(row, None, None, ended_by=ended_by, valid_to=valid_to)
        entry = entry_of(self._namespace, row)
        self._connection.execute("DELETE FROM entry WHERE id = ?", (entry.id,))
        for name, value in labels(entry.attributes, INDEXED_ATTRIBUTES):
            self._remove_label(name, value, entry.id)
        for chunk_id, _, _, _, length in self._chunks(entry.id):
            self._end_chunk(chunk_id, length)
        return entry

    def _keep_former(
        self, row: Sequence[Any], new_text: str | None, new_value: str | None, *, ended_by: str, valid_to: int
    ) -> int:
        """Write a live row to history as a delta to what replaces it; how many splices in a row that makes."""
        commit = self._commit
        in_a_row, begun_by = self._connection.execute(
            "SELECT deltas, begun_by FROM entry WHERE id = ?", (row[0],)
        ).fetchall()[0]
        allow_splice = in_a_row < deltas.MAX_DELTAS
        text, value = row[14], row[15]
        kept_value = (
            deltas.whole(value) if new_value is None else deltas.encode(value, new_value, allow_splice=allow_splice)
        )
        kept_text: deltas.Stored | None
        if text is None:
            kept_text = None
        elif new_text is None:
            kept_text = deltas.whole(text)
        else:
            kept_text = deltas.encode(text, new_text, allow_splice=allow_splice)
        self._connection.execute(
            "INSERT INTO history (entry, namespace, kind, key, identity, is_json, attributes, revision, commit_number,"
            " valid_from, begun_by, created_at, updated_at, expires_at, actor, ended_commit, valid_to, ended_by,"
            " ended_actor, heading, text, value)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row[0],
                self._row.id,
                *row[1:9],
                begun_by,
                *row[9:13],
                commit,
                valid_to,
                ended_by,
                None if ended_by == "expired" else self._actor,
                row[13],
                kept_text,
                kept_value,
            ),
        )
        if deltas.is_splice(kept_value) or (kept_text is not None and deltas.is_splice(kept_text)):
            return int(in_a_row) + 1
        return 0 if deltas.is_whole(kept_value) else int(in_a_row)

    def _next_revision(self, kind: str, key: str) -> int:
        """Above all that the key ever had; the loss of its last state took a number too."""
        rows = self._connection.execute(
            "SELECT revision FROM history WHERE namespace = ? AND kind = ? AND key = ? ORDER BY revision DESC LIMIT 1",
            (self._row.id, kind, key),
        ).fetchall()
        return rows[0][0] + 2 if rows else 1

    def _check_identity(self, draft: Draft, former: Sequence[Any] | None) -> None:
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM entry WHERE namespace = ? AND kind = ? AND identity = ?",
            (self._row.id, draft.kind, draft.identity),
        ).fetchall()
        if not rows or (former is not None and rows[0][0] == former[0]):
            return
        if rows[0][11] is not None and rows[0][11] <= self._time:
            self._end(rows[0], ended_by="expired", valid_to=rows[0][11])
            return
        raise Conflict(f"another {draft.kind} has the identity {draft.identity} already")

    # Labels, passages, keywords

    def _relabel(self, entry_id: int, before: Entry | None, after: Entry) -> None:
        old = labels(before.attributes, INDEXED_ATTRIBUTES) if before else set()
        new = labels(after.attributes, INDEXED_ATTRIBUTES)
        for name, value in old - new:
            self._remove_label(name, value, entry_id)
        for name, value in new - old:
            self._connection.execute("INSERT INTO label VALUES (?, ?, ?, ?)", (self._row.id, name, value, entry_id))

    def _remove_label(self, name: str, value: str, entry_id: int) -> None:
        self._connection.execute(
            "DELETE FROM label WHERE namespace = ? AND name = ? AND value = ? AND entry = ?",
            (self._row.id, name, value, entry_id),
        )

    def _reindex(self, before: Entry | None, after: Entry, draft: Draft) -> None:
        """Bring the passages from one state to the next; those before the first difference stay as they are."""
        if before is None:
            self._add_passages(after.id, 0, draft.passages)
        elif before.text != after.text:
            chunks = [chunk for chunk in self._chunks(after.id) if chunk[1] != HEADING]
            shared = deltas.common_prefix(before.text, after.text)
            kept, restart = resume([Span(start, stop) for _, _, start, stop, _ in chunks], shared)
            for chunk_id, _, _, _, length in chunks[len(kept) :]:
                self._end_chunk(chunk_id, length)
            self._add_passages(after.id, len(kept), passages(after.text, restart))
        if (before.heading if before else None) != after.heading:
            self._replace_heading(after.id, after.heading)

    def _chunks(self, entry_id: int) -> list[Any]:
        return self._connection.execute(
            "SELECT id, number, start, stop, length FROM chunk"
            " WHERE entry = ? AND ended_commit IS NULL ORDER BY number",
            (entry_id,),
        ).fetchall()

    def _add_passages(self, entry_id: int, number: int, added: Sequence[Passage]) -> None:
        for passage_number, found in enumerate(added, number):
            chunk_id = self._add_chunk(entry_id, passage_number, found)
            if found.terms:
                self._connection.execute("INSERT INTO pending VALUES (?, ?, 0, 0)", (chunk_id, self._row.id))

    def _replace_heading(self, entry_id: int, heading: str | None) -> None:
        for chunk_id, number, _, _, length in self._chunks(entry_id):
            if number == HEADING:
                self._end_chunk(chunk_id, length)
        if heading:
            found = passage(heading, 0, len(heading))
            self._add_chunk(entry_id, HEADING, Passage(0, 0, found.length, found.terms))

    def _add_chunk(self, entry_id: int, number: int, found: Passage) -> int:
        chunk_id = self._group.next_id("chunk")
        self._connection.execute(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
            (chunk_id, entry_id, number, found.start, found.end, found.length, self._commit),
        )
        keywords.add(self._connection, self._row.id, chunk_id, found)
        self._row.chunk_count += 1
        self._row.term_total += found.length
        return chunk_id

    def _end_chunk(self, chunk_id: int, length: int) -> None:
        execute = self._connection.execute
        execute("UPDATE chunk SET ended_commit = ? WHERE id = ?", (self._commit, chunk_id))
        keywords.remove(self._connection, chunk_id, length)
        execute("DELETE FROM pending WHERE chunk = ?", (chunk_id,))
        execute("UPDATE vector SET former = 1 WHERE chunk = ?", (chunk_id,))
        self._row.chunk_count -= 1
        self._row.term_total -= length
        self._row.chunks_ended += 1
