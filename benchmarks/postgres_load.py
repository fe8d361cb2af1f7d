"""Fills the databases of the PostgreSQL benchmark: the same texts and vectors for both, in the same order, unmeasured.

Adding a million entries one by one would take hours for either. Ours are imported (`Store.adopt`), with vectors by
COPY. The peer's rows are copied into the tables that its own `setup` created, and its vector index is built again at
the end as `setup` defined it. Both are on disk in the order of namespaces.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg

import commonplace
from commonplace.backends.postgres import index
from commonplace.backends.postgres.connection import Halfvec, Vector
from commonplace.entry import Entry
from commonplace.store import NamespaceHead, State
from postgres_worker import DIMENSIONS, Embedder, text_of, vector

NAMESPACES = 1_000
MADE_AT = 1_700_000_000_000_000
ROWS_A_READ = 2_000
_COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"


def load(target: str, url: str, entries: int, peer_python: str) -> None:
    if target == "ours":
        _load_ours(url, entries // NAMESPACES)
    else:
        _load_peer(url, entries // NAMESPACES, peer_python)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _load_ours(url: str, each: int) -> None:
    commonplace.open(url, embedder=Embedder(), background=False).close()
    half = NAMESPACES // 2
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        list(processes.map(_adopt, [url] * 2, [each] * 2, [range(half), range(half, NAMESPACES)]))
    index.MARKED_A_STEP = 2 * each * NAMESPACES  # all in one step: the vectors are written to where the marks are
    with commonplace.open(url, embedder=Embedder(), background=False) as book:
        book.store.set_target_model(Embedder.identity, DIMENSIONS)
    # As the owner of the database, because row-level security does not apply to it.
    with psycopg.connect(url) as reading, psycopg.connect(url, autocommit=True) as writing:
        row = writing.execute("SELECT id FROM commonplace.model WHERE role = 'serving'").fetchone()
        assert row is not None
        with reading.cursor("waiting") as waiting:
            waiting.itersize = ROWS_A_READ
            waiting.execute(
                "SELECT p.tenant, p.namespace, p.chunk, coalesce(e.text, e.value) FROM commonplace.pending AS p"
                " JOIN commonplace.chunk AS c ON c.tenant = p.tenant AND c.id = p.chunk"
                " JOIN commonplace.entry AS e ON e.tenant = c.tenant AND e.id = c.entry ORDER BY p.chunk"
            )
            _copy(
                writing,
                "commonplace.embedding (tenant, namespace, model, chunk, former, value)",
                (
                    (tenant.encode(), _int8(namespace), _int8(row[0]), _int8(chunk), b"\0", Halfvec.of(vector(text)))
                    for tenant, namespace, chunk, text in waiting
                ),
            )
        reading.rollback()
        writing.execute("TRUNCATE commonplace.pending")


def _adopt(url: str, each: int, places: range) -> None:
    with commonplace.open(url, embedder=Embedder(), background=False) as book:
        known = set(book.namespaces(limit=NAMESPACES))
        for place in places:
            namespace = ("user", f"u{place}")
            if namespace in known:  # a former run was interrupted
                continue
            states = list(_states(namespace, place, each))
            book.store.adopt(NamespaceHead(namespace, each, MADE_AT + each, 0), lambda states=states: states)  # type: ignore[misc]


def _states(namespace: tuple[str, ...], place: int, each: int) -> Iterator[State]:
    for number in range(each):
        text = text_of(place + NAMESPACES * number)
        entry = Entry(
            id=number + 1,
            namespace=namespace,
            kind="record",
            key=f"k{number}",
            value={"text": text},
            text=text,
            heading=None,
            attributes={},
            identity=None,
            revision=1,
            commit=number + 1,
            created_at=MADE_AT + number,
            updated_at=MADE_AT + number,
            expires_at=None,
            actor=None,
        )
        yield State(entry, "created", MADE_AT + number, None)


def _load_peer(url: str, each: int, python: str) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import postgres_worker as w; w.LangGraph(sys.argv[2]).setup()"
    subprocess.run([python, "-W", "ignore", "-c", code, str(Path(__file__).parent), url], check=True)
    numbers = [(place, number) for place in range(NAMESPACES) for number in range(each)]
    with psycopg.connect(url, autocommit=True) as connection:
        index = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'store_vectors' AND indexdef LIKE '%hnsw%'"
        ).fetchone()
        assert index is not None
        connection.execute(f'DROP INDEX "{index[0]}"')
        for part in _stretches(numbers):
            texts = [text_of(place + NAMESPACES * number) for place, number in part]
            places = [(f"user.u{place}".encode(), f"k{number}".encode()) for place, number in part]
            rows = list(zip(places, texts, strict=True))
            _copy(
                connection,
                "store (prefix, key, value)",
                ((*place, b"\1" + json.dumps({"text": text}).encode()) for place, text in rows),
            )
            _copy(
                connection,
                "store_vectors (prefix, key, field_name, embedding)",
                ((*place, b"text", Vector.of(vector(text))) for place, text in rows),
            )
        connection.execute(index[1].encode())


def _stretches(numbers: list[tuple[int, int]], size: int = 50_000) -> Iterator[list[tuple[int, int]]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _copy(connection: psycopg.Connection[Any], into: str, rows: Iterable[tuple[bytes, ...]]) -> None:
    """Rows in PostgreSQL's binary form: a count of fields, and each field's length before it."""
    with connection.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN (FORMAT binary)".encode()) as copy:
        copy.write(_COPY_BEGIN)
        for row in rows:
            fields = b"".join(struct.pack(">i", len(field)) + field for field in row)
            copy.write(struct.pack(">h", len(row)) + fields)
        copy.write(_COPY_END)


def _int8(number: int) -> bytes:
    return struct.pack(">q", number)


if __name__ == "__main__":
    load(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
