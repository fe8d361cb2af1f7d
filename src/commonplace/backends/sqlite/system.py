"""What stands beside the entries: the program's own rows, operations already done, and the wait for a commit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from commonplace.backends.paging import after_prefix
from commonplace.backends.sqlite.checksums import check_row, damaged_row, row_sum
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.states import dump
from commonplace.checks import JSON, Namespace
from commonplace.store import FORMER_STATE_BYTES, NOTHING, Usage, Waker

LOOK_SECONDS = 0.05
FORGOTTEN_AT_ONCE = 20
"""Expired operations that a write takes away: more than it adds, so that they do not pile up."""


def rows_of(connection: Connection, part: str, key: str | None) -> dict[str, JSON]:
    """The rows of a part, or the one with a key."""
    where, parameters = ("part = ?", (part,)) if key is None else ("part = ? AND key = ?", (part, key))
    rows = connection.execute(f"SELECT key, value, checksum FROM system WHERE {where} ORDER BY key", parameters)
    return {found: _value(part, found, value, checksum) for found, value, checksum in rows.fetchall()}


def _value(part: str, key: str, value: str, checksum: int | None) -> JSON:
    check_row(f"a row of {part}", checksum, part, key, value)
    found: JSON = json.loads(value)
    return found


def put(connection: Connection, part: str, key: str, value: JSON | None, *, only_new: bool) -> bool:
    """Write a row, or remove it if the value is None; whether a row was changed."""
    before = connection.total_changes()
    if value is None:
        connection.execute("DELETE FROM system WHERE part = ? AND key = ?", (part, key))
    else:
        verb, text = "INSERT OR IGNORE" if only_new else "INSERT OR REPLACE", dump(value)
        connection.execute(
            f"{verb} INTO system (part, key, value, checksum) VALUES (?, ?, ?, ?)",
            (part, key, text, row_sum(part, key, text)),
        )
    return connection.total_changes() > before


_BYTES = "octet_length(value) + coalesce(octet_length(text), 0) + octet_length(attributes)"
MEASURED = (
    "SELECT namespace, sum(entries), sum(bytes), sum(former_states), sum(former_bytes) FROM ("
    f"SELECT namespace, 1 AS entries, {_BYTES} AS bytes, 0 AS former_states, 0 AS former_bytes FROM entry"
    f" UNION ALL SELECT namespace, 0, 0, 1, {FORMER_STATE_BYTES} + {_BYTES} FROM history) GROUP BY namespace"
)
"""What the triggers of `usage` keep, worked out again."""


def usage(connection: Connection, namespace_id: int) -> Usage:
    rows = connection.execute(
        "SELECT entries, bytes, former_states, former_bytes FROM usage WHERE namespace = ?", (namespace_id,)
    ).fetchall()
    if rows and not all(type(number) is int for number in rows[0]):
        raise damaged_row("a row of measured use")
    return Usage(*rows[0]) if rows else NOTHING


def usage_below(connection: Connection, prefix: Namespace) -> Usage:
    """What the namespaces at and below a prefix hold together."""
    path = "/".join(prefix)
    where = "path = ? OR (path >= ? AND path < ?)" if prefix else "?1 = '' AND ?2 <> ?3"
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in ("entries", "bytes", "former_states", "former_bytes"))
    rows = connection.execute(
        f"SELECT {sums} FROM namespace AS n JOIN usage AS u ON u.namespace = n.id WHERE {where}",
        (path, path + "/", after_prefix(path + "/")),
    ).fetchall()
    return Usage(*rows[0])


def operation(connection: Connection, namespace_id: int, key: str, now: int) -> JSON | None:
    rows = connection.execute(
        "SELECT value, expires_at, checksum FROM operation WHERE namespace = ? AND key = ? AND expires_at > ?",
        (namespace_id, key, now),
    ).fetchall()
    if not rows:
        return None
    value, expires_at, checksum = rows[0]
    check_row("a remembered operation", checksum, namespace_id, key, value, expires_at)
    found: JSON = json.loads(value)
    return found


def record_operation(
    connection: Connection, namespace_id: int, key: str, value: JSON, *, expires_at: int, now: int
) -> None:
    connection.execute(
        "DELETE FROM operation WHERE namespace = ?1 AND key IN"
        f" (SELECT key FROM operation WHERE namespace = ?1 AND expires_at <= ?2 LIMIT {FORGOTTEN_AT_ONCE})",
        (namespace_id, now),
    )
    text = dump(value)
    connection.execute(
        "INSERT OR REPLACE INTO operation (namespace, key, value, expires_at, checksum) VALUES (?, ?, ?, ?, ?)",
        (namespace_id, key, text, expires_at, row_sum(namespace_id, key, text, expires_at)),
    )


class FileWaker(Waker):
    """Looks at a connection's `data_version` (3 µs), which changes with every commit of any other connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        self._seen = self._version()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchall()[0][0])

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._mutex:
                if self._closed.is_set():
                    return False
                version = self._version()
            if version != self._seen:
                self._seen = version
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self._closed.wait(min(left, LOOK_SECONDS)):
                return False

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            self._connection.close()


class MemoryWaker(Waker):
    """Looks at how many rows the one connection of a database in memory has changed."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._closed = threading.Event()
        self._seen = count()

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while not self._closed.is_set():
            count = self._count()
            if count != self._seen:
                self._seen = count
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._closed.wait(min(left, LOOK_SECONDS))
        return False

    def close(self) -> None:
        self._closed.set()
