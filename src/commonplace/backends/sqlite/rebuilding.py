"""Passages and keywords made anew from the texts, keeping every vector whose passage stays the same."""

from __future__ import annotations

from commonplace.backends.ranking import posting
from commonplace.backends.sqlite import keywords
from commonplace.backends.sqlite.checksums import LIVE, live_entry, vector_sum
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import Group, read_namespace
from commonplace.backends.sqlite.indexed import HEADING
from commonplace.backends.sqlite.system import MEASURED
from commonplace.backends.states import labels
from commonplace.entry import INDEXED_ATTRIBUTES
from commonplace.language.passages import Passage, passage, passages
from commonplace.store import Progress

ROWS_A_STEP = 500


def rebuild_keywords(connection: Connection, group: Group, progress: Progress | None) -> None:
    """All in one transaction: a book is never without its keywords."""
    execute = connection.execute
    execute("INSERT INTO keywords (keywords) VALUES ('delete-all')").fetchall()
    execute("DELETE FROM label")
    total = execute("SELECT count(*) FROM entry").fetchall()[0][0]
    entries = execute("SELECT id FROM entry ORDER BY id").fetchall()
    for done, (entry_id,) in enumerate(entries, 1):
        row = execute(f"SELECT {LIVE} FROM entry WHERE id = ?", (entry_id,)).fetchall()[0]
        namespace_id, commit, heading = row[18], row[7], row[13]
        entry = live_entry((f"number {namespace_id}",), row)
        text = entry.text
        for name, value in sorted(labels(entry.attributes, INDEXED_ATTRIBUTES)):
            execute("INSERT INTO label VALUES (?, ?, ?, ?)", (namespace_id, name, value, entry_id))
        _rebuild_entry(connection, group, (namespace_id, entry_id, commit), heading, text)
        if progress is not None and (done % ROWS_A_STEP == 0 or done == total):
            progress(done, total, "entries")
    execute("DELETE FROM usage")
    execute(f"INSERT INTO usage {MEASURED}")
    for (path,) in execute("SELECT path FROM namespace").fetchall():
        namespace = tuple(path.split("/"))
        row = group.namespaces.get(namespace) or read_namespace(connection, namespace)
        assert row is not None
        row.chunks_ended += 1
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
    wanted: list[tuple[int, Passage]] = list(enumerate(passages(text)))
    if heading:
        found = passage(heading, 0, len(heading))
        wanted.append((HEADING, Passage(0, 0, found.length, found.terms)))
    for number, found in wanted:
        chunk = known.pop((number, found.start, found.end), None)
        if chunk is None:
            chunk = group.next_id("chunk")
            connection.execute(
                "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                (chunk, entry_id, number, found.start, found.end, found.length, commit),
            )
            if number != HEADING and found.terms:
                connection.execute("INSERT INTO pending VALUES (?, ?, 0, 0)", (chunk, namespace_id))
        else:
            _set_length(connection, chunk, found.length)
        connection.execute(
            "INSERT INTO keywords (rowid, terms) VALUES (?, ?)",
            (posting(chunk, found.length), keywords.tokens(namespace_id, found.terms)),
        )
    for chunk in known.values():
        connection.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
        connection.execute("DELETE FROM pending WHERE chunk = ?", (chunk,))
        connection.execute("DELETE FROM chunk WHERE id = ?", (chunk,))


def _set_length(connection: Connection, chunk: int, length: int) -> None:
    """The length of a passage by the present tokenizer; the checksums of its vectors are of it too."""
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
