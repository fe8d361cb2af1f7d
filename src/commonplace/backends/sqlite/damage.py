"""Finds damage in the file, names the damaged entries, and adds missing checksums.

SQLite checks the structure of pages and indexes. Rows are compared with their checksums. Derived rows (labels,
passages, keywords, counts) are rebuilt and compared. A read that fails does not stop the search.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import apsw

from commonplace.backends.deltas import DAMAGE
from commonplace.backends.entry_index import HEADING, heading_passage
from commonplace.backends.ranking import posting
from commonplace.backends.rows import entry_of, labels
from commonplace.backends.sqlite.backlog import NOT_WAITING
from commonplace.backends.sqlite.checksums import (
    FORMER,
    LIVE,
    check_former,
    check_live,
    former_row,
    former_sum,
    live_sum,
    namespace_number,
    row_sum,
    vector_sum,
)
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.index import damaged_vectors, tokens
from commonplace.backends.sqlite.migrate import wrong_names
from commonplace.backends.sqlite.reader import MEASURED, former_entry
from commonplace.backends.sqlite.writer import MOST_IDS, NAMESPACE_COLUMNS, check_namespace_row, namespace_sum
from commonplace.checks import Namespace
from commonplace.entry import INDEXED_ATTRIBUTES, SEPARATOR
from commonplace.errors import Corrupt
from commonplace.language.passages import frequency_level, passages
from commonplace.language.tokenizer import STEM
from commonplace.store import Progress

ROWS_A_STEP = 500
MOST_PROBLEMS = 20
"""How many findings of one kind are reported; a torn page may hold hundreds of entries."""

UNREADABLE = (apsw.Error, *DAMAGE, Corrupt)
"""What reading damaged rows raises."""

RAISED = (*DAMAGE, LookupError, AttributeError, RecursionError)
"""What readers of damaged rows raise if no checksum has caught the damage."""

_OPCODES_A_LOOK = 10_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding.

    `namespace` is that of the entry that it names, which other namespaces must not see. A vague finding has neither an
    entry nor a page.
    """

    text: str
    namespace: Namespace | None = None
    is_vague: bool = False


# Rows, however damaged


def read_rows(
    connection: Connection, columns: str, table: str, key: str = "id", *, first: int = 0, last: int = MOST_IDS
) -> Iterator[tuple[int, Sequence[Any] | None]]:
    """Every row in the order of an integer key, with its key; None for one that cannot be read."""
    sql = f"SELECT {columns}, {key} FROM {table} WHERE {key} >= ? AND {key} <= ? ORDER BY {key} LIMIT {ROWS_A_STEP}"
    ids = f"SELECT {key} FROM {table} WHERE {key} >= ? AND {key} <= ? ORDER BY {key} LIMIT {ROWS_A_STEP}"
    while first <= last:
        try:
            rows = connection.execute(sql, (first, last)).fetchall()
        except UNREADABLE:
            rows = [
                (one, number)
                for (number,) in connection.execute(ids, (first, last)).fetchall()
                for one in (read_row(connection, columns, table, key, number),)
            ]
            for row, number in rows:
                yield number, row
        else:
            for row in rows:
                yield row[-1], row[:-1]
        if len(rows) < ROWS_A_STEP:
            return
        first = rows[-1][-1] + 1


def read_row(connection: Connection, columns: str, table: str, key: str, number: int) -> Sequence[Any] | None:
    try:
        rows = connection.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", (number,)).fetchall()
    except UNREADABLE:
        return None
    return cast("Sequence[Any]", rows[0]) if rows else None


def paths_of(connection: Connection) -> dict[int, str]:
    """Namespaces by number, from the table and from its index, since one of them may be damaged."""
    found: dict[int, str] = {}
    for source in ("namespace NOT INDEXED", "namespace INDEXED BY sqlite_autoindex_namespace_1"):
        for order in ("ASC", "DESC"):
            try:
                for number, path in connection.execute(f"SELECT id, path FROM {source} ORDER BY rowid {order}"):
                    if isinstance(path, str) and isinstance(number, int):
                        found.setdefault(number, path)
            except UNREADABLE:
                continue
    return found


def name_of(
    connection: Connection, table: str, number: int, paths: dict[int, str], namespace: Namespace | None = None
) -> tuple[str, Namespace | None]:
    """The name of a row that cannot be read, as far as it is known. `namespace` is that of the row, if known."""
    raw = read_row(connection, "CAST(kind AS BLOB), CAST(key AS BLOB), namespace", table, "id", number)
    if raw is None:
        return f"{'entry' if table == 'entry' else 'former state'} {number}", None
    kind, key, place = raw
    texts = [part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in (kind, key)]
    path = "/".join(namespace) if namespace else paths.get(place, "?") if isinstance(place, int) else "?"
    shown = f"{texts[0]} {texts[1].replace(SEPARATOR, '/')} of namespace {path}"
    return shown, None if path == "?" else tuple(path.split("/"))


# The search for damage


def problems(connection: Connection, progress: Progress | None = None) -> Iterator[Problem]:
    """All findings, primary data first. Derived rows are compared only if the primary data is undamaged."""
    is_whole = True
    for problem in losses(connection, progress):
        is_whole = False
        yield problem
    if is_whole:
        for stage in (_vector_problems, _count_problems, _label_problems, _passage_problems):
            yield from _guarded(connection, stage, progress)


def losses(connection: Connection, progress: Progress | None = None) -> Iterator[Problem]:
    """Damage to what cannot be rebuilt. This is twenty times as fast as rebuilding and comparing all passages."""
    for stage in (_schema_problems, _entry_problems, _history_problems, _row_problems, _file_problems):
        yield from _guarded(connection, stage, progress)


Stage = Callable[[Connection, Progress | None], Iterator[Problem]]


def _guarded(connection: Connection, stage: Stage, progress: Progress | None) -> Iterator[Problem]:
    count = 0
    try:
        for problem in stage(connection, progress):
            count += 1
            if count > MOST_PROBLEMS:
                yield Problem(f"{problem.text.partition(':')[0]}: and more like these")
                return
            yield problem
    except apsw.InterruptError as error:
        raise TimeoutError from error
    except UNREADABLE as error:
        yield Problem(f"file: {error}", is_vague=True)


def _schema_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    for name in wrong_names(connection):
        yield Problem(f"file: the schema on page 1 is damaged at {name}")


def _ranges(connection: Connection, part: str) -> list[tuple[int, int]]:
    return connection.execute("SELECT first, last FROM unchecked WHERE part = ?", (part,)).fetchall()


def _is_expected(ranges: Sequence[tuple[int, int]], number: int) -> bool:
    return any(first <= number <= last for first, last in ranges)


def _entry_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    yield from _state_problems(connection, progress, "entry")


def _history_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    yield from _state_problems(connection, progress, "history")


def _state_problems(connection: Connection, progress: Progress | None, table: str) -> Iterator[Problem]:
    paths, ranges = paths_of(connection), _ranges(connection, table)
    total = connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
    columns = LIVE if table == "entry" else FORMER
    for done, (number, row) in enumerate(read_rows(connection, columns, table), 1):
        if progress is not None and done % ROWS_A_STEP == 0:
            progress(done, total, "states")
        if row is None:
            shown, namespace = name_of(connection, table, number, paths)
            yield Problem(f"entry: {shown} cannot be read", namespace)
            continue
        place = namespace_number(row)
        namespace = tuple(paths.get(place, "?").split("/"))
        try:
            check_state(connection, table, namespace, row)
            if row[-1] is None and not _is_expected(ranges, number):
                raise Corrupt("it has lost its checksum")
        except UNREADABLE:
            shown, _ = name_of(connection, table, number, paths)
            was = f", revision {former_row(row).revision}," if table == "history" else ""
            yield Problem(f"entry: {shown}{was} is not what was written", namespace if place in paths else None)


def check_state(connection: Connection, table: str, namespace: Namespace, row: Sequence[Any]) -> None:
    if table == "entry":
        check_live(namespace, row)
        entry_of(namespace, row)
    elif row[-1] is None:
        former_entry(connection, namespace, row)
    else:
        check_former(namespace, row)


def _row_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    ranges = _ranges(connection, "namespace")
    columns = f"path, {NAMESPACE_COLUMNS}, checksum"
    for number, row in read_rows(connection, columns, "namespace"):
        try:
            if row is None:
                raise Corrupt("it cannot be read")
            path, *counters, checksum = row
            if checksum is None and not _is_expected(ranges, number):
                raise Corrupt("it has no checksum")
            check_namespace_row(path, counters, checksum)
        except UNREADABLE:
            path = paths_of(connection).get(number, str(number))
            yield Problem(f"entry: the row of namespace {path} is damaged", tuple(path.split("/")))
    stored = connection.execute("SELECT * FROM next_id").fetchall()
    if len(stored) != 1 or not all(type(one) is int and 0 <= one < MOST_IDS for one in stored[0]):
        yield Problem("entry: the row of counters is damaged")
    waits = bool(_ranges(connection, "system"))
    for part, key, value, checksum in connection.execute("SELECT part, key, value, checksum FROM system"):
        if (checksum is None and not waits) or (checksum is not None and checksum != row_sum(part, key, value)):
            yield Problem(f"entry: a row of {part} is damaged")
    for *operation, checksum in connection.execute("SELECT namespace, key, value, expires_at, checksum FROM operation"):
        if checksum is not None and checksum != row_sum(*operation):
            yield Problem("entry: a remembered operation is damaged")


def _file_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    # FTS5 checks the segments that it cached at the last search on this connection. A search makes it read them again.
    connection.execute("SELECT rowid FROM keywords WHERE keywords MATCH 'x'").fetchall()
    for (message,) in connection.execute(f"PRAGMA integrity_check({MOST_PROBLEMS})").fetchall():
        if message != "ok":
            yield Problem(f"file: {message}")


def _vector_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    ranges = _ranges(connection, "vector")
    for chunk in damaged_vectors(connection):
        yield Problem(f"index: the vector of passage {chunk} is damaged; `commonplace reindex` rebuilds it")
    if not ranges:
        lost = connection.execute("SELECT count(*) FROM vector WHERE checksum IS NULL").fetchall()[0][0]
        if lost:
            yield Problem(f"index: {lost:,} vectors have lost their checksum; `commonplace reindex` rebuilds them")


_MUST_BE_ZERO = {
    "live passages without a live entry": (
        "SELECT count(*) FROM chunk AS c WHERE ended_commit IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM entry AS e WHERE e.id = c.entry)"
    ),
    "live passages with neither a vector nor a pending mark": (
        "SELECT count(*) FROM chunk AS c WHERE ended_commit IS NULL AND number >= 0 AND length > 0"
        " AND NOT EXISTS (SELECT 1 FROM vector AS v WHERE v.chunk = c.id)"
        " AND NOT EXISTS (SELECT 1 FROM pending AS p WHERE p.chunk = c.id)"
    ),
    "vectors without a passage": (
        "SELECT count(*) FROM vector AS v WHERE NOT EXISTS (SELECT 1 FROM chunk AS c WHERE c.id = v.chunk)"
    ),
    "vectors of ended passages among the live ones": (
        "SELECT count(*) FROM vector AS v JOIN chunk AS c ON c.id = v.chunk WHERE v.former = (c.ended_commit IS NULL)"
    ),
    "vectors with another length than their model's; `commonplace reindex` rebuilds them": (
        "SELECT count(*) FROM vector AS v JOIN model AS m ON m.id = v.model WHERE length(v.value) <> 2 * m.dimensions"
    ),
    "vectors of an unknown model or namespace": (
        "SELECT count(*) FROM vector AS v WHERE NOT EXISTS (SELECT 1 FROM model AS m WHERE m.id = v.model)"
        " OR NOT EXISTS (SELECT 1 FROM namespace AS n WHERE n.id = v.namespace)"
    ),
    "pending marks without a live passage": (
        "SELECT count(*) FROM pending AS p WHERE NOT EXISTS"
        " (SELECT 1 FROM chunk AS c JOIN entry AS e ON e.id = c.entry"
        " WHERE c.id = p.chunk AND ended_commit IS NULL AND e.namespace = p.namespace)"
        " OR typeof(ready_at) <> 'integer' OR typeof(attempts) <> 'integer'"
    ),
    "labels without an entry": (
        "SELECT count(*) FROM label AS l WHERE NOT EXISTS (SELECT 1 FROM entry AS e WHERE e.id = l.entry)"
    ),
    "entries of an unknown namespace": (
        "SELECT count(*) FROM entry AS e WHERE NOT EXISTS (SELECT 1 FROM namespace AS n WHERE n.id = e.namespace)"
    ),
    "namespaces whose passage counts are wrong": (
        "SELECT count(*) FROM namespace AS n WHERE (n.chunk_count, n.term_total) <> ("
        " SELECT count(*), coalesce(sum(c.length), 0) FROM entry AS e JOIN chunk AS c ON c.entry = e.id"
        " WHERE e.namespace = n.id AND c.ended_commit IS NULL)"
    ),
    "namespaces whose count of waiting entries is wrong": (
        "SELECT count(*) FROM namespace AS n WHERE n.waiting_entry IS NOT NULL AND n.waiting_count <> ("
        " SELECT count(*) FROM entry AS e WHERE e.namespace = n.id AND e.commit_number >= n.waiting_commit"
        " AND e.id > n.waiting_entry)"
    ),
    "passages of entries that wait for them": (
        "SELECT count(*) FROM namespace AS n JOIN entry AS e ON e.namespace = n.id"
        " AND e.commit_number >= n.waiting_commit AND e.id > n.waiting_entry"
        " JOIN chunk AS c ON c.entry = e.id WHERE n.waiting_entry IS NOT NULL"
    ),
    "entries newer than their namespace's commit": (
        "SELECT count(*) FROM entry AS e JOIN namespace AS n ON n.id = e.namespace"
        " WHERE e.commit_number > n.commit_number"
    ),
    # Those of entries and passages may be: see `begin_group`.
    "counters below the ids in use": (
        "SELECT count(*) FROM next_id AS c WHERE c.namespace < (SELECT coalesce(max(id), 0) FROM namespace)"
        " OR c.vector < (SELECT coalesce(max(sequence), 0) FROM vector)"
    ),
    "namespaces whose usage is wrong": (
        "SELECT count(*) FROM (SELECT namespace, entries, bytes, former_states, former_bytes FROM usage"
        " WHERE entries OR bytes OR former_states OR former_bytes"
        f" EXCEPT {MEASURED.replace('FROM entry', f'FROM entry WHERE {NOT_WAITING}')})"
    ),
}


def _count_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    for name, sql in _MUST_BE_ZERO.items():
        count = connection.execute(sql).fetchall()[0][0]
        if count:
            yield Problem(f"index: {count:,} {name}")


def _waiting_ids(connection: Connection) -> frozenset[int]:
    """The entries that have no derived rows yet. If one has some after all, they are found to be too many."""
    rows = connection.execute(f"SELECT id FROM entry WHERE NOT ({NOT_WAITING})")
    return frozenset(number for (number,) in rows)


def _label_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    expected = stored = 0
    waiting = _waiting_ids(connection)
    for number, row in read_rows(connection, f"{LIVE}", "entry"):
        assert row is not None
        if number in waiting:
            continue
        entry = entry_of((), row)
        for name, value in labels(entry.attributes, INDEXED_ATTRIBUTES):
            expected ^= hash((namespace_number(row), name, value, entry.id))
    for label in connection.execute("SELECT namespace, name, value, entry FROM label"):
        stored ^= hash(tuple(label))
    if expected != stored:
        yield Problem("index: the labels do not agree with the entries; run `commonplace reindex --keywords`")


def _passage_problems(connection: Connection, progress: Progress | None) -> Iterator[Problem]:
    """Rebuild the passages and their postings, and compare them by count and by sum of hashes."""
    connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.posting USING fts5vocab(main, keywords, instance)")
    stored, expected, stored_sum, expected_sum = 0, 0, 0, 0
    stored_stems, expected_stems = array("q"), array("q")
    for term, row in connection.execute("SELECT term, doc FROM temp.posting"):
        if STEM in term:
            stored_stems.append(hash((term, row)))
            continue
        stored += 1
        stored_sum ^= hash((term, row))
    total = connection.execute("SELECT count(*) FROM entry").fetchall()[0][0]
    waiting = _waiting_ids(connection)
    for done, (entry_id, found) in enumerate(
        read_rows(connection, "namespace, heading, coalesce(text, iif(is_json, '', value))", "entry"), 1
    ):
        assert found is not None
        namespace_id, heading, text = found
        if entry_id in waiting:
            continue
        made = list(enumerate(passages(text)))
        wanted = [(number, one.start, one.end, one.length, one.terms) for number, one in made]
        if heading:
            name = heading_passage(heading)
            wanted.insert(0, (HEADING, 0, 0, name.length, name.terms))
        chunks = connection.execute(
            "SELECT id, number, start, stop, length FROM chunk WHERE entry = ? AND ended_commit IS NULL"
            " ORDER BY number",
            (entry_id,),
        ).fetchall()
        if [tuple(row[1:]) for row in chunks] != [one[:4] for one in wanted]:
            yield Problem(
                f"index: the passages of entry {entry_id} do not match its text; run `commonplace reindex --keywords`"
            )
            return
        for (chunk, *_), (_, _, _, length, terms) in zip(chunks, wanted, strict=True):
            for term, count in terms.items():
                key = hash((tokens(namespace_id, {term: frequency_level(count)}), posting(chunk, length)))
                if term.startswith(STEM):
                    expected_stems.append(key)
                    continue
                expected += 1
                expected_sum ^= key
        if progress is not None and done % ROWS_A_STEP == 0:
            progress(done, total, "entries")
    # A program from before the stems of other languages wrote none, and that is not damage.
    if (stored, stored_sum) != (expected, expected_sum) or not frozenset(stored_stems) <= frozenset(expected_stems):
        yield Problem(
            f"index: the keyword index holds {stored:,} postings, the texts give {expected:,} and they differ; "
            "run `commonplace reindex --keywords`"
        )


def first_problem(connection: Connection, seconds: float) -> Problem | None:
    """The first finding that names an entry or a page, for an error that a read met. Raises TimeoutError if that takes
    too long.
    """
    deadline = time.monotonic() + seconds

    def is_late(*_: object) -> bool:
        return time.monotonic() > deadline

    def look(*_: object) -> None:
        if is_late():
            raise TimeoutError

    driver = cast("apsw.Connection", connection)
    driver.set_progress_handler(is_late, _OPCODES_A_LOOK)
    vague: Problem | None = None
    try:
        for problem in problems(connection, look):
            if not problem.is_vague:
                return problem
            vague = problem
        return vague
    finally:
        driver.set_progress_handler(None)


# Missing checksums


def fill(connection: Connection) -> bool:
    """Give some rows their checksums; returns whether there were any to check. A row that cannot be read gets none."""
    left = ROWS_A_STEP
    ranges = connection.execute("SELECT rowid, part, first, last FROM unchecked LIMIT ?", (ROWS_A_STEP,)).fetchall()
    paths = paths_of(connection) if ranges else {}
    for rowid, part, first, last in ranges:
        if part == "system":
            next_one = _fill_system(connection, last)
        elif part == "vector":
            next_one = _fill_vectors(connection, first, last)
        else:
            next_one = _fill_range(connection, part, first, last, left, paths)
        left -= min(next_one, last) - first + 1
        if next_one > last:
            connection.execute("DELETE FROM unchecked WHERE rowid = ?", (rowid,))
        else:
            connection.execute("UPDATE unchecked SET first = ? WHERE rowid = ?", (next_one, rowid))
        if left <= 0:
            break
    return bool(ranges)


def _fill_range(connection: Connection, part: str, first: int, last: int, most: int, paths: dict[int, str]) -> int:
    """The first row that is still to do."""
    done = 0
    for number, row in read_rows(connection, _FILLED[part], part, first=first, last=last):
        if done >= most:
            return number
        done += 1
        if row is None or row[-1] is not None:
            continue
        try:
            checksum = _checksum_of(connection, part, row, paths)
        except UNREADABLE:
            continue
        connection.execute(f"UPDATE {part} SET checksum = ? WHERE id = ?", (checksum, number))
    return last + 1


_FILLED = {"namespace": f"path, {NAMESPACE_COLUMNS}, checksum", "entry": LIVE, "history": FORMER}


def _checksum_of(connection: Connection, part: str, row: Sequence[Any], paths: dict[int, str]) -> int:
    if part == "namespace":
        path, *counters, _ = row
        check_namespace_row(path, counters, None)
        return namespace_sum(path, counters)
    namespace = tuple(paths.get(namespace_number(row), "?").split("/"))
    check_state(connection, part, namespace, row)
    return live_sum(row) if part == "entry" else former_sum(row)


def _fill_vectors(connection: Connection, first: int, last: int) -> int:
    rows = connection.execute(
        "SELECT v.chunk, v.model, v.value, c.start, c.stop, c.length, c.commit_number FROM vector AS v"
        " JOIN chunk AS c ON c.id = v.chunk WHERE v.chunk BETWEEN ? AND ? AND v.checksum IS NULL ORDER BY v.chunk"
        f" LIMIT {ROWS_A_STEP}",
        (first, last),
    ).fetchall()
    for chunk, model, value, *place in rows:
        connection.execute(
            "UPDATE vector SET checksum = ? WHERE chunk = ? AND model = ?",
            (vector_sum((chunk, *place), value), chunk, model),
        )
    return int(rows[-1][0]) if len(rows) == ROWS_A_STEP else last + 1  # the last chunk may have another model's vector


def _fill_system(connection: Connection, last: int) -> int:
    for part, key, value in connection.execute("SELECT part, key, value FROM system WHERE checksum IS NULL").fetchall():
        checksum = row_sum(part, key, value)
        connection.execute("UPDATE system SET checksum = ? WHERE part = ? AND key = ?", (checksum, part, key))
    return last + 1
