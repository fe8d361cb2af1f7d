"""Rows derived from live entries: labels, passages, keywords, models and vectors.

FTS5 only stores posting lists. A term is prefixed with its namespace's number and followed by its frequency level, and
a rowid includes its passage's length step, so a score needs no row (see decision 002). Each statement releases
the interpreter's lock to other writers, so everything of one kind goes into one statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from commonplace.backends.entry_index import HEADING, BaseEntryIndex, Numbered, match_passages
from commonplace.backends.ranking import Counts, posting
from commonplace.backends.rows import labels
from commonplace.backends.sqlite.backlog import (
    BULK,
    LONG_CHARACTERS,
    MOST_WAITING,
    SETTLED_AT_ONCE,
    WAITING,
    of_waiting_id,
    passages_of,
    waiting_entries,
)
from commonplace.backends.sqlite.checksums import (
    LIVE,
    damaged_row,
    damaged_vector,
    live_entry,
    namespace_number,
    vector_sum,
)
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.reader import BYTES, MEASURED
from commonplace.backends.sqlite.writer import MOST_IDS, Group, NamespaceRow, NewEntry, read_namespace
from commonplace.checks import Namespace, stored_namespace
from commonplace.entry import INDEXED_ATTRIBUTES, Entry
from commonplace.errors import ConfigurationError, Corrupt
from commonplace.language.passages import LENGTH_STEPS, LEVEL_FREQUENCY, Passage
from commonplace.store import Indexing, Pending, Progress

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

ROWS_A_STATEMENT = 50
ENTRIES_A_STEP = 500
RETIRED_A_STEP = 2_000
LONGEST_LEASE_SECONDS = 3_600
MOST_DOUBLINGS = 20  # of a lease; more would overflow a float

# FTS5's ascii tokenizer splits at ASCII punctuation. Mapped to the private-use area, it is not split.
_PUNCTUATION = {code: 0xE100 + code for code in range(0x21, 0x7F) if not chr(code).isalnum()}
_AFTER_NAMESPACE = "\ue000"
_LEVEL_MARKS = {2: "\ue002"}
_MANY = "\ue003"
_LISTED = "(SELECT value FROM json_each(?))"
_LISTS, _SOME_LISTS = (
    f"SELECT (SELECT json_group_array(rowid) FROM keywords WHERE keywords MATCH phrase.value{later})"
    " FROM json_each(?1) AS phrase ORDER BY phrase.key"
    for later in ("", " AND rowid >= ?2")
)


def tokens(namespace_id: int, terms: Mapping[str, int]) -> str:
    """The terms of a passage in the form that FTS5 indexes."""
    prefix = f"{namespace_id}{_AFTER_NAMESPACE}"
    marked = [term if count == 1 else term + _LEVEL_MARKS.get(count, _MANY) for term, count in terms.items()]
    if not "".join(terms).isalnum():
        marked = [term.translate(_PUNCTUATION) for term in marked]
    return prefix + f" {prefix}".join(marked) if marked else ""


class EntryIndex(BaseEntryIndex):
    """Writes the derived rows of entries in one namespace, as part of a transaction."""

    def __init__(self, connection: Connection, group: Group, row: NamespaceRow, namespace: Namespace) -> None:
        super().__init__(row)
        self._connection = connection
        self._group = group
        self._row = row
        self._namespace = namespace
        self._added: list[NewEntry] = []

    # New entries

    def add(self, entry: Entry, text_passages: Sequence[Passage] | None) -> None:
        """The derived rows of a new entry wait; see backlog.py."""
        self._row.wait(entry.commit, entry.id)
        new = _new_entry(entry, text_passages)
        self._added.append(new)
        if self._row.memory.new is not None:
            self._row.memory.new.append(new)
        if len(self._added) >= SETTLED_AT_ONCE:
            self.settle()

    def settle_if_many(self) -> None:
        """At the end of a transaction: the derived rows of many new entries, or of a long one, are written now."""
        added = self._added
        if added and (
            len(added) >= BULK
            or (self._row.waiting_count or 0) >= MOST_WAITING
            or any(len(new.text) > LONG_CHARACTERS for new in added)
        ):
            self.settle()

    def settle(self) -> None:
        """Write the derived rows of all entries that wait."""
        row = self._row
        if row.waiting_entry is None:
            return
        added, self._added = self._added, []
        if row.memory.new is None:
            before = added[0].id if added else MOST_IDS
            earlier = waiting_entries(self._connection, self._namespace, row.id, row.waiting, before)
            self._write([*(_new_entry(one.entry, None) for one in earlier), *added])
        else:
            self._write(row.memory.new)
        _count_usage(self._connection, row)
        row.wait_no_more()

    def _write(self, added: Sequence[NewEntry]) -> None:
        rows = [(self._row.id, name, value, new.id) for new in added for name, value in new.labels]
        _insert(self._connection, "label", 4, sorted(rows))
        found = [(new.commit, new.id, number, passage) for new in added for number, passage in passages_of(new)]
        _insert_chunks(self._connection, self._group, self._row.id, found)
        self._row.chunk_count += len(found)
        self._row.term_total += sum(passage.length for *_, passage in found)

    # Changes

    def chunks_of(self, entry_ids: Sequence[int], *, only_headings: bool = False) -> list[tuple[int, int]]:
        which = f" AND c.number = {HEADING}" if only_headings else ""
        return self._connection.execute(
            "SELECT c.id, c.length FROM json_each(?) AS j CROSS JOIN chunk AS c ON c.entry = j.value"
            f" WHERE c.ended_commit IS NULL{which}",
            (json.dumps(entry_ids),),
        ).fetchall()

    def _text_chunks(self, entry_id: int) -> list[tuple[int, int, int, int]]:
        return self._connection.execute(
            "SELECT id, length, start, stop FROM chunk"
            " WHERE entry = ? AND ended_commit IS NULL AND number >= 0 ORDER BY number",
            (entry_id,),
        ).fetchall()

    def _insert_chunks(self, commit: int, added: Sequence[Numbered]) -> None:
        _insert_chunks(self._connection, self._group, self._row.id, [(commit, *one) for one in added])

    def _end_chunk_rows(self, ended: Sequence[tuple[int, int]]) -> int:
        """Only the passages that have a vector are kept, since a search with `as_of` reads no others."""
        chunks = json.dumps([chunk for chunk, _ in ended])
        rows = json.dumps([posting(chunk, length) for chunk, length in ended])
        execute, changes = self._connection.execute, self._connection.total_changes
        execute(f"DELETE FROM keywords WHERE rowid IN {_LISTED}", (rows,))
        execute(f"DELETE FROM pending WHERE chunk IN {_LISTED}", (chunks,))
        before = changes()
        execute(f"UPDATE vector SET former = 1 WHERE chunk IN {_LISTED}", (chunks,))
        if changes() == before:
            execute(f"DELETE FROM chunk WHERE id IN {_LISTED}", (chunks,))
            kept = 0
        else:
            has_vector = "EXISTS (SELECT 1 FROM vector AS v WHERE v.chunk = chunk.id)"
            before = changes()
            execute(
                f"UPDATE chunk SET ended_commit = ? WHERE id IN {_LISTED} AND {has_vector}",
                (self._row.commit_number, chunks),
            )
            kept = changes() - before
            execute(f"DELETE FROM chunk WHERE id IN {_LISTED} AND NOT {has_vector}", (chunks,))
        self._group.note_erased_chunk(max(chunk for chunk, _ in ended))
        return kept

    def _insert_labels(self, entry_id: int, added: set[tuple[str, str]]) -> None:
        _insert(self._connection, "label", 4, [(self._row.id, name, value, entry_id) for name, value in sorted(added)])

    def remove_labels(self, entry_id: int, removed: set[tuple[str, str]]) -> None:
        for name, value in removed:
            self._connection.execute(
                "DELETE FROM label WHERE namespace = ? AND name = ? AND value = ? AND entry = ?",
                (self._row.id, name, value, entry_id),
            )


def _new_entry(entry: Entry, text_passages: Sequence[Passage] | None) -> NewEntry:
    found = labels(entry.attributes, INDEXED_ATTRIBUTES)
    return NewEntry(entry.commit, entry.id, entry.text, entry.heading, found, text_passages)


def _count_usage(connection: Connection, row: NamespaceRow) -> None:
    """Count the entries that wait, also those that are damaged."""
    waiting = WAITING.format(namespace="?1", commit="?2", entry="?3")
    connection.execute(
        f"INSERT INTO usage (namespace, entries, bytes) SELECT ?1, count(*), coalesce(sum({BYTES}), 0)"
        f" FROM entry AS e INDEXED BY entry_commit WHERE {waiting} HAVING count(*)"
        " ON CONFLICT (namespace) DO UPDATE SET entries = entries + excluded.entries, bytes = bytes + excluded.bytes",
        (row.id, row.waiting_commit, row.waiting_entry),
    )


def settle(connection: Connection, namespaces: Sequence[Namespace], group: Group) -> None:
    """Write the derived rows of the entries of some namespaces that wait for them."""
    for namespace in namespaces:
        row = group.namespaces.get(namespace) or read_namespace(connection, namespace)
        if row is not None and row.waiting is not None:
            EntryIndex(connection, group, row, namespace).settle()
            group.namespaces[namespace] = row


def namespaces_waiting(connection: Connection, after: int, limit: int) -> dict[int, Namespace]:
    """The first namespaces with entries that wait, by number, after that of another one."""
    rows = connection.execute(
        "SELECT id, path FROM namespace INDEXED BY namespace_waiting WHERE waiting_entry IS NOT NULL AND id > ?"
        " ORDER BY id LIMIT ?",
        (after, limit),
    ).fetchall()
    return {number: stored_namespace(path) for number, path in rows}


def _insert_chunks(
    connection: Connection, group: Group, namespace_id: int, added: Sequence[tuple[int, int, int, Passage]]
) -> None:
    """Passages with the commit, the entry and the number of each."""
    numbered = [(group.next_id("chunk"), *one) for one in added]
    # Records of the same type and tags have the very same passage of their heading.
    headings = {id(found): found for *_, number, found in added if number == HEADING}
    written = {name: tokens(namespace_id, found.terms) for name, found in headings.items()}
    _insert(
        connection,
        "chunk",
        8,
        [
            (chunk, entry_id, number, found.start, found.end, found.length, commit, None)
            for chunk, commit, entry_id, number, found in numbered
        ],
    )
    _insert(
        connection,
        "keywords (rowid, terms)",
        2,
        [
            (posting(chunk, found.length), written.get(id(found)) or tokens(namespace_id, found.terms))
            for chunk, *_, found in numbered
        ],
    )
    _insert(
        connection,
        "pending",
        4,
        [(chunk, namespace_id, 0, 0) for chunk, _, _, number, found in numbered if number != HEADING and found.terms],
    )


def _insert(connection: Connection, table: str, width: int, rows: Sequence[Sequence[Any]]) -> None:
    for start in range(0, len(rows), ROWS_A_STATEMENT):
        some = rows[start : start + ROWS_A_STATEMENT]
        connection.execute(_insertion(table, width, len(some)), [value for row in some for value in row])


@cache
def _insertion(table: str, width: int, rows: int) -> str:
    marks = ", ".join([f"({', '.join('?' * width)})"] * rows)
    return f"INSERT INTO {table} VALUES {marks}"


# Reading


def posting_lists(connection: Connection, namespace_id: int, terms: Sequence[str], *, after: int = 0) -> Iterator[str]:
    """The postings of each term and frequency level, as a JSON array; of passages with ids above `after`."""
    phrases = [f'"{tokens(namespace_id, {term: level})}"' for term in terms for level in LEVEL_FREQUENCY]
    rows = connection.execute(
        _SOME_LISTS if after else _LISTS,
        (json.dumps(phrases), (after + 1) * LENGTH_STEPS)[: 2 if after else 1],
    )
    return (listed for (listed,) in rows)


def check_containing(containing: int, counts: Counts) -> None:
    if containing > counts.passages:  # BM25 is not defined for this
        raise damaged_keywords()


def damaged_keywords() -> Corrupt:
    return Corrupt("the keyword index is damaged; run `commonplace reindex --keywords`")


def ended_chunks(connection: Connection, namespace_id: int, after: int) -> list[int]:
    """The passages that ended with a commit above `after`, without those that were erased since."""
    rows = connection.execute(
        "SELECT c.id FROM (SELECT DISTINCT entry FROM history WHERE namespace = ? AND ended_commit > ?) AS h"
        " CROSS JOIN chunk AS c ON c.entry = h.entry WHERE c.ended_commit > ?",
        (namespace_id, after, after),
    )
    return [chunk for (chunk,) in rows]


# Rebuilding


def rebuild_keywords(connection: Connection, group: Group, progress: Progress | None) -> None:
    """Rebuild passages and keywords from the texts, and keep every vector whose passage stays the same.

    It is one transaction, so that a book is never without its keywords.
    """
    execute = connection.execute
    group.has_erased = True
    settle(connection, list(group.namespaces), group)  # those that this commit creates have no row yet
    execute("INSERT INTO keywords (keywords) VALUES ('delete-all')").fetchall()
    execute("DELETE FROM label")
    total = execute("SELECT count(*) FROM entry").fetchall()[0][0]
    entries = execute("SELECT id FROM entry ORDER BY id").fetchall()
    for done, (entry_id,) in enumerate(entries, 1):
        row = execute(f"SELECT {LIVE} FROM entry WHERE id = ?", (entry_id,)).fetchall()[0]
        namespace_id = namespace_number(row)
        entry = live_entry((f"number {namespace_id}",), row)
        for name, value in sorted(labels(entry.attributes, INDEXED_ATTRIBUTES)):
            execute("INSERT INTO label VALUES (?, ?, ?, ?)", (namespace_id, name, value, entry_id))
        _rebuild_entry(connection, group, (namespace_id, entry_id, entry.commit), entry.heading, entry.text)
        if progress is not None and (done % ENTRIES_A_STEP == 0 or done == total):
            progress(done, total, "entries")
    execute("DELETE FROM usage")
    execute(f"INSERT INTO usage {MEASURED}")
    for (path,) in execute("SELECT path FROM namespace").fetchall():
        namespace = tuple(path.split("/"))
        row = group.namespaces.get(namespace) or read_namespace(connection, namespace)
        assert row is not None
        row.chunks_ended += 1
        row.wait_no_more()
        row.chunk_count, row.term_total = execute(
            "SELECT count(*), coalesce(sum(c.length), 0) FROM entry AS e JOIN chunk AS c ON c.entry = e.id"
            " WHERE e.namespace = ? AND c.ended_commit IS NULL",
            (row.id,),
        ).fetchall()[0]
        row.is_changed = True
        group.namespaces[namespace] = row


def _rebuild_entry(
    connection: Connection, group: Group, place: tuple[int, int, int], heading: str | None, text: str
) -> None:
    namespace_id, entry_id, commit = place
    known = {
        (number, start, stop): chunk
        for chunk, number, start, stop in connection.execute(
            "SELECT id, number, start, stop FROM chunk WHERE entry = ? AND ended_commit IS NULL", (entry_id,)
        )
    }
    kept, new, gone = match_passages(text, heading, known)
    for chunk, found in kept:
        _set_length(connection, chunk, found.length)
        connection.execute(
            "INSERT INTO keywords (rowid, terms) VALUES (?, ?)",
            (posting(chunk, found.length), tokens(namespace_id, found.terms)),
        )
    _insert_chunks(connection, group, namespace_id, [(commit, entry_id, *numbered) for numbered in new])
    for chunk in gone:
        connection.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
        connection.execute("DELETE FROM pending WHERE chunk = ?", (chunk,))
        connection.execute("DELETE FROM chunk WHERE id = ?", (chunk,))


def _set_length(connection: Connection, chunk: int, length: int) -> None:
    """Store the length of a passage by the current tokenizer. The checksums of its vectors include it."""
    connection.execute("UPDATE chunk SET length = ? WHERE id = ?", (length, chunk))
    for model, value, start, stop, commit in connection.execute(
        "SELECT v.model, v.value, c.start, c.stop, c.commit_number FROM vector AS v JOIN chunk AS c ON c.id = v.chunk"
        " WHERE v.chunk = ?",
        (chunk,),
    ).fetchall():
        connection.execute(
            "UPDATE vector SET checksum = ? WHERE chunk = ? AND model = ?",
            (vector_sum((chunk, start, stop, length, commit), value), chunk, model),
        )


# Models and vectors


def models(connection: Connection) -> tuple[str | None, str | None]:
    roles = dict(connection.execute("SELECT role, identity FROM model WHERE role <> 'retired'").fetchall())
    serving = roles.get("serving")
    return serving, roles.get("target", serving)


def indexing(connection: Connection, namespace_id: int | None) -> Indexing:
    if namespace_id is None:
        waiting = connection.execute("SELECT count(*) FROM pending").fetchall()[0][0]
    else:
        waiting = connection.execute("SELECT count(*) FROM pending WHERE namespace = ?", (namespace_id,)).fetchall()[0][
            0
        ]
    return Indexing(*models(connection), waiting)


def set_target_model(connection: Connection, model: str, dimensions: int) -> None:
    """Make `model` the target. A book's first model serves at once, a later one when all passages have been embedded
    with it.
    """
    for (stored,) in connection.execute("SELECT dimensions FROM model WHERE identity = ?", (model,)).fetchall():
        if stored != dimensions:
            raise ConfigurationError(
                f"model {model} gives {dimensions} dimensions, but this book holds vectors of it with {stored}; "
                "give the changed model another identity"
            )
    found = connection.execute("SELECT id, identity FROM model WHERE role = 'serving'").fetchall()
    serving = {identity: number for number, identity in found}
    connection.execute("UPDATE model SET role = 'retired' WHERE role = 'target'")
    model_id = serving.get(model)
    if model_id is None:
        role = "target" if serving else "serving"
        connection.execute(
            "INSERT INTO model (identity, dimensions, role) VALUES (?, ?, ?)"
            " ON CONFLICT (identity) DO UPDATE SET role = excluded.role",
            (model, dimensions, role),
        )
        model_id = connection.execute("SELECT id FROM model WHERE identity = ?", (model,)).fetchall()[0][0]
    # A damaged vector, or one with the wrong length, would make every search of its namespace fail.
    for chunk in list(damaged_vectors(connection)):
        connection.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
    connection.execute(
        "DELETE FROM vector WHERE length(value) <> 2 * (SELECT m.dimensions FROM model AS m WHERE m.id = vector.model)"
    )
    connection.execute(
        """
        INSERT OR IGNORE INTO pending (chunk, namespace, ready_at, attempts)
        SELECT c.id, e.namespace, 0, 0 FROM chunk AS c JOIN entry AS e ON e.id = c.entry
        WHERE c.ended_commit IS NULL AND c.number >= 0 AND c.length > 0
            AND NOT EXISTS (SELECT 1 FROM vector AS v WHERE v.chunk = c.id AND v.model = ?)
        """,
        (model_id,),
    )
    connection.execute(
        "DELETE FROM pending WHERE EXISTS (SELECT 1 FROM vector AS v WHERE v.chunk = pending.chunk AND v.model = ?)",
        (model_id,),
    )
    _promote_when_done(connection)


def damaged_vectors(connection: Connection) -> Iterator[int]:
    """The chunks whose vector, or whose own row, is damaged."""
    for chunk, value, checksum, *place in connection.execute(
        "SELECT v.chunk, v.value, v.checksum, c.start, c.stop, c.length, c.commit_number"
        " FROM vector AS v LEFT JOIN chunk AS c ON c.id = v.chunk"
    ):
        if checksum is not None and (type(value) is not bytes or checksum != vector_sum((chunk, *place), value)):
            yield chunk


def claim(connection: Connection, limit: int, lease_seconds: float, now: int, *, even_leased: bool) -> list[Pending]:
    """Lease the newest passages, because the next search most likely asks for what was written last."""
    # A namespace that another write of the same group creates has no row yet. Its passages wait for the next call.
    chosen = connection.execute(
        "SELECT chunk, attempts FROM pending WHERE (ready_at <= ? OR ?)"
        " AND EXISTS (SELECT 1 FROM namespace AS n WHERE n.id = pending.namespace) ORDER BY chunk DESC LIMIT ?",
        (now, even_leased, limit),
    ).fetchall()
    for chunk, attempts in chosen:
        if type(attempts) is not int:
            raise damaged_row("the mark of a passage")
        seconds = min(lease_seconds * 2 ** min(attempts, MOST_DOUBLINGS), LONGEST_LEASE_SECONDS)
        connection.execute(
            "UPDATE pending SET ready_at = ?, attempts = attempts + 1 WHERE chunk = ?",
            (now + int(seconds * 1e6), chunk),
        )
    return _passages(connection, [chunk for chunk, _ in chosen])


def pending(
    connection: Connection, namespace_id: int, limit: int, among: Sequence[tuple[int, int]] | None
) -> list[Pending]:
    """The newest waiting passages of a namespace, leased or not, or the first of those named by entry and start."""
    if among is None:
        chosen = connection.execute(
            "SELECT chunk FROM pending WHERE namespace = ? ORDER BY chunk DESC LIMIT ?", (namespace_id, limit)
        ).fetchall()
    else:
        chosen = connection.execute(
            "SELECT p.chunk FROM json_each(?) AS j CROSS JOIN chunk AS c"
            " ON c.entry = j.value ->> 0 AND c.ended_commit IS NULL AND c.number >= 0 AND c.start = j.value ->> 1"
            " CROSS JOIN pending AS p ON p.chunk = c.id WHERE p.namespace = ? ORDER BY j.key LIMIT ?",
            (json.dumps(among), namespace_id, limit),
        ).fetchall()
    return _passages(connection, [chunk for (chunk,) in chosen])


def _passages(connection: Connection, chunks: Sequence[int]) -> list[Pending]:
    try:
        rows = connection.execute(
            "SELECT c.id, n.path, substr(coalesce(e.text, e.value), c.start + 1, c.stop - c.start)"
            " FROM json_each(?) AS j CROSS JOIN chunk AS c ON c.id = j.value CROSS JOIN entry AS e ON e.id = c.entry"
            " CROSS JOIN namespace AS n ON n.id = e.namespace",
            (json.dumps(chunks),),
        ).fetchall()
        return [Pending(chunk, stored_namespace(path), text) for chunk, path, text in rows]
    except (UnicodeDecodeError, TypeError):
        if len(chunks) == 1:
            return []  # it stays pending; reading its entry reports the damage
        return [found for chunk in chunks for found in _passages(connection, [chunk])]


def store_vectors(
    connection: Connection, group: Group, model: str, vectors: Sequence[tuple[int, NDArray[float32]]]
) -> None:
    """Store vectors of the target model. Vectors of ended passages and of other models are dropped."""
    from commonplace.backends.vectors import pack

    roles = {role: (id, identity) for id, identity, role in connection.execute("SELECT id, identity, role FROM model")}
    model_id, identity = roles.get("target") or roles.get("serving") or (0, None)
    if identity != model:
        return
    # In order, since they are claimed with the newest first: so the pages of their index become full.
    for chunk, vector in sorted(_with_rows(connection, group, vectors), key=itemgetter(0)):
        waiting = connection.execute(
            "SELECT p.namespace, c.start, c.stop, c.length, c.commit_number FROM pending AS p"
            " JOIN chunk AS c ON c.id = p.chunk WHERE p.chunk = ?",
            (chunk,),
        ).fetchall()
        if not waiting:
            continue
        namespace_id, *place = waiting[0]
        packed = pack(vector)
        connection.execute(
            "INSERT OR REPLACE INTO vector (namespace, model, former, sequence, chunk, value, checksum)"
            " VALUES (?, ?, 0, ?, ?, ?, ?)",
            (namespace_id, model_id, group.next_id("vector"), chunk, packed, vector_sum((chunk, *place), packed)),
        )
        connection.execute("DELETE FROM pending WHERE chunk = ?", (chunk,))
    _promote_when_done(connection)


def _with_rows(
    connection: Connection, group: Group, vectors: Sequence[tuple[int, NDArray[float32]]]
) -> Iterator[tuple[int, NDArray[float32]]]:
    """The vectors by the ids of their passages' rows, which are written now for those that were waiting."""
    for chunk, vector in vectors:
        if chunk >= 0:
            yield chunk, vector
            continue
        commit, entry_id, number = of_waiting_id(chunk)
        place = "SELECT n.path FROM entry AS e JOIN namespace AS n ON n.id = e.namespace WHERE e.id = ?"
        for (path,) in connection.execute(place, (entry_id,)).fetchall():
            settle(connection, [stored_namespace(path)], group)
        for (row,) in connection.execute(
            "SELECT id FROM chunk WHERE entry = ? AND ended_commit IS NULL AND number = ? AND commit_number = ?",
            (entry_id, number, commit),
        ).fetchall():
            yield row, vector


def passage_vectors(
    connection: Connection, model: str, states: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int, NDArray[float32]]]:
    """A state's passages are those that had begun with its commit or before and ended after it."""
    from commonplace.backends.vectors import unpack

    rows = connection.execute(
        "SELECT c.entry, c.start, c.stop, v.value, m.dimensions, c.id, v.checksum, c.length, c.commit_number"
        " FROM model AS m CROSS JOIN json_each(?) AS j"
        " CROSS JOIN chunk AS c ON c.entry = j.value ->> 0 CROSS JOIN vector AS v ON v.chunk = c.id AND v.model = m.id"
        " WHERE m.identity = ? AND c.commit_number <= j.value ->> 1"
        " AND (c.ended_commit IS NULL OR c.ended_commit > j.value ->> 1)",
        (json.dumps(states), model),
    ).fetchall()
    if not rows:
        return []
    for _, start, stop, value, dimensions, chunk, checksum, length, commit in rows:
        is_right = checksum is None or checksum == vector_sum((chunk, start, stop, length, commit), value)
        if not is_right or len(value) != 2 * dimensions:
            raise damaged_vector()
    vectors = unpack([value for _, _, _, value, *_ in rows], dimensions)
    return [(entry, start, stop, vector) for (entry, start, stop, *_), vector in zip(rows, vectors, strict=True)]


def _promote_when_done(connection: Connection) -> None:
    target = connection.execute("SELECT id FROM model WHERE role = 'target'").fetchall()
    if target and not connection.execute("SELECT 1 FROM pending LIMIT 1").fetchall():
        connection.execute("UPDATE model SET role = 'retired' WHERE role = 'serving'")
        connection.execute("UPDATE model SET role = 'serving' WHERE id = ?", target[0])


def drop_retired(connection: Connection) -> bool:
    """Remove some vectors of models that no longer serve; returns whether there may be more."""
    for (model_id,) in connection.execute("SELECT id FROM model WHERE role = 'retired'").fetchall():
        rows = connection.execute(
            "SELECT chunk FROM vector WHERE model = ? LIMIT ?", (model_id, RETIRED_A_STEP)
        ).fetchall()
        for (chunk,) in rows:
            connection.execute("DELETE FROM vector WHERE chunk = ? AND model = ?", (chunk, model_id))
        if rows:
            return True
        connection.execute("DELETE FROM model WHERE id = ?", (model_id,))
    return False
