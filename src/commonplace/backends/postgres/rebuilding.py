"""Passages and tokens made anew from the texts, keeping every vector whose passage stays the same."""

from __future__ import annotations

from collections.abc import Callable

from commonplace.backends.postgres import keywords
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.indexed import HEADING, Identifiers, heading_passage
from commonplace.backends.postgres.reading import tenant_of
from commonplace.backends.ranking import posting
from commonplace.checks import Namespace
from commonplace.language.passages import Passage, passages

ENTRIES_A_STEP = 500


def rebuild_keywords(session: Session, namespace: Namespace, report: Callable[[int], None]) -> None:
    """One namespace, while nobody writes to it; tells how many more entries are done."""
    tenant, path = tenant_of(namespace), "/".join(namespace)
    namespace_id = session.rows("SELECT id FROM namespace WHERE tenant = %s AND path = %s FOR UPDATE", (tenant, path))[
        0
    ][0]
    ids = Identifiers(session)
    last = 0
    while rows := session.rows(
        "SELECT id, commit_number, heading, coalesce(text, CASE WHEN is_json THEN '' ELSE value END) FROM entry"
        f" WHERE tenant = %s AND namespace = %s AND id > %s ORDER BY id LIMIT {ENTRIES_A_STEP}",
        (tenant, namespace_id, last),
    ):
        known: dict[int, dict[tuple[int, int, int], int]] = {}
        for entry_id, number, start, stop, chunk in session.rows(
            "SELECT entry, number, start, stop, id FROM chunk WHERE tenant = %s AND entry = ANY(%s)"
            " AND ended_commit IS NULL",
            (tenant, [row[0] for row in rows]),
        ):
            known.setdefault(entry_id, {})[number, start, stop] = chunk
        for entry_id, commit, heading, text in rows:
            wanted: list[tuple[int, Passage]] = list(enumerate(passages(text)))
            if heading:
                wanted.append((HEADING, heading_passage(heading)))
            _rebuild_entry(session, (tenant, namespace_id, entry_id, commit), wanted, known.get(entry_id, {}), ids)
        last = rows[-1][0]
        report(len(rows))
    session.send(
        "UPDATE namespace SET chunks_ended = chunks_ended + 1, (chunk_count, term_total) = ("
        " SELECT count(*), coalesce(sum(c.length), 0) FROM chunk AS c"
        " WHERE c.tenant = namespace.tenant AND c.namespace = namespace.id AND c.ended_commit IS NULL)"
        " WHERE tenant = %s AND path = %s",
        (tenant, path),
    )


def _rebuild_entry(
    session: Session,
    place: tuple[str, int, int, int],
    wanted: list[tuple[int, Passage]],
    known: dict[tuple[int, int, int], int],
    ids: Identifiers,
) -> None:
    tenant, namespace_id, entry_id, commit = place
    for number, found in wanted:
        chunk = known.pop((number, found.start, found.end), None)
        tokens = keywords.tokens(namespace_id, found.terms)
        if chunk is not None:
            session.send(
                "UPDATE chunk SET length = %s, posting = %s, tokens = %s, repeated = %s WHERE tenant = %s AND id = %s",
                (found.length, posting(chunk, found.length), *tokens, tenant, chunk),
            )
            continue
        chunk = ids.take()
        session.send(
            "INSERT INTO chunk (tenant, id, namespace, entry, number, start, stop, length, posting, commit_number,"
            " tokens, repeated) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                tenant,
                chunk,
                namespace_id,
                entry_id,
                number,
                found.start,
                found.end,
                found.length,
                posting(chunk, found.length),
                commit,
                *tokens,
            ),
        )
        if number != HEADING and found.terms:
            session.send(
                "INSERT INTO pending (tenant, chunk, namespace) VALUES (%s, %s, %s)", (tenant, chunk, namespace_id)
            )
    gone = (tenant, list(known.values()))
    if known:
        session.send("DELETE FROM pending WHERE tenant = %s AND chunk = ANY(%s)", gone)
        session.send("DELETE FROM embedding WHERE tenant = %s AND chunk = ANY(%s)", gone)
        session.send("DELETE FROM chunk WHERE tenant = %s AND id = ANY(%s)", gone)
