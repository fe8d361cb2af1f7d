"""Calls of a store as its tests make them, in short: one change or one question each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from commonplace.checks import Namespace
from commonplace.entry import Draft, Entry
from commonplace.filters import Filter
from commonplace.language.tokenizer import query_terms
from commonplace.store import Scan, Store

HERE: Namespace = ("user", "u1")
THERE: Namespace = ("user", "u10")
BELOW: Namespace = (*HERE, "sub")
"""Of the same tenant as HERE, so that on PostgreSQL no row-level security is between them."""
NOWHERE: Namespace = ("user",)
SECOND = 1_000_000


def put(store: Store, key: str, value: Any = "text", *, namespace: Namespace = HERE, **fields: Any) -> Entry:
    fields.setdefault("kind", "file")
    actor = fields.pop("actor", None)
    return store.write(
        namespace, lambda transaction: transaction.put(Draft(key=key, value=value, **fields)), actor=actor
    )[0]


def delete(store: Store, key: str, *, kind: str = "file", namespace: Namespace = HERE) -> Entry | None:
    return store.write(namespace, lambda transaction: transaction.delete(kind, key))[0]


def embed_all(store: Store, vectors: Mapping[str, Any], model: str = "m") -> None:
    claimed = store.claim(100, 60)
    store.index(model, [(pending.chunk_id, vectors[pending.text]) for pending in claimed])


def move(store: Store, key: str, new_key: str, heading: str | None = None) -> Entry:
    return store.write(HERE, lambda transaction: transaction.move("file", key, new_key, heading))[0]


def get(store: Store, key: str, *, namespace: Namespace = HERE, as_of: int | None = None) -> Entry | None:
    return store.get(namespace, "file", [key], as_of=as_of)[0]


def pages(store: Store, scan: Scan, namespace: Namespace = HERE) -> list[Entry]:
    """All pages of a scan, one after the other."""
    found: list[Entry] = []
    cursor = scan.after
    while True:
        page = store.scan(namespace, Scan(scan.filter, scan.order, scan.descending, scan.limit, cursor, scan.as_of))
        assert len(page.entries) <= scan.limit
        found += page.entries
        cursor = page.cursor
        if cursor is None:
            return found


def found_keys(store: Store, query: str, filter: Filter | None = None, *, namespace: Namespace = HERE) -> list[str]:
    candidates = store.search_text(namespace, query_terms(query), filter or Filter(), 100)
    entries = store.load(namespace, [candidate.entry_id for candidate in candidates])
    return [entries[candidate.entry_id].key for candidate in candidates]


def unit(*numbers: float) -> Any:
    vector = np.zeros(8, np.float32)
    vector[: len(numbers)] = numbers
    return vector / np.linalg.norm(vector)
