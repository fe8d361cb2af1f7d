"""Passages and keywords made anew from the texts, keeping every vector whose passage stays the same."""

from __future__ import annotations

from commonplace.backends.ranking import posting
from commonplace.backends.sqlite import keywords
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.group import Group
from commonplace.backends.sqlite.indexed import HEADING
from commonplace.language.passages import Passage, passage, passages
from commonplace.store import Progress

ROWS_A_STEP = 500


def rebuild_keywords(connection: Connection, group: Group, progress: Progress | None) -> None:
    """All in one transaction: a book is never without its keywords."""
    execute = connection.execute
    execute("INSERT INTO keywords (keywords) VALUES ('delete-all')").fetchall()
    total = execute("SELECT count(*) FROM entry").fetchall()[0][0]
    entries = execute("SELECT id FROM entry ORDER BY id").fetchall()
    for done, (entry_id,) in enumerate(entries, 1):
        namespace_id, commit, heading, text = execute(
            "SELECT namespace, commit_number, heading, coalesce(text, iif(is_json, '', value)) FROM entry WHERE id = ?",
            (entry_id,),
        ).fetchall()[0]
        _rebuild_entry(connection, group, (namespace_id, entry_id, commit), heading, text)
        if progress is not None and (done % ROWS_A_STEP == 0 or done == total):
            progress(done, total, "entries")
    execute(
        "UPDATE namespace SET chunks_ended = chunks_ended + 1, (chunk_count, term_total) = ("
        " SELECT count(*), coalesce(sum(c.length), 0) FROM entry AS e JOIN chunk AS c ON c.entry = e.id"
        " WHERE e.namespace = namespace.id AND c.ended_commit IS NULL)"
    )


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
            connection.execute("UPDATE chunk SET length = ? WHERE id = ?", (found.length, chunk))
        connection.execute(
            "INSERT INTO keywords (rowid, terms) VALUES (?, ?)",
            (posting(chunk, found.length), keywords.tokens(namespace_id, found.terms)),
        )
    for chunk in known.values():
        connection.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
        connection.execute("DELETE FROM pending WHERE chunk = ?", (chunk,))
        connection.execute("DELETE FROM chunk WHERE id = ?", (chunk,))
