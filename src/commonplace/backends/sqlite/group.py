"""What the jobs of one commit share: id counters and namespaces' rows, read once and written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from commonplace.backends.sqlite.checksums import damaged_row, row_sum
from commonplace.backends.sqlite.connection import Connection
from commonplace.checks import Namespace

Counter = Literal["namespace", "entry", "chunk", "vector"]
MOST_IDS = 1 << 56
"""A posting is an id times 64, and has to fit into 63 bits."""
COUNTERS: tuple[Counter, ...] = ("namespace", "entry", "chunk", "vector")


NAMESPACE_COLUMNS = "id, commit_number, commit_time, history_floor, chunk_count, term_total, chunks_ended"


@dataclass(slots=True)
class NamespaceRow:
    """The namespace's counters as they will be written with the group."""

    id: int
    commit_number: int
    commit_time: int
    history_floor: int
    chunk_count: int
    term_total: int
    chunks_ended: int
    is_new: bool = False
    is_changed: bool = False

    def copy(self) -> NamespaceRow:
        return NamespaceRow(
            self.id,
            self.commit_number,
            self.commit_time,
            self.history_floor,
            self.chunk_count,
            self.term_total,
            self.chunks_ended,
            self.is_new,
            self.is_changed,
        )

    @property
    def columns(self) -> tuple[int, ...]:
        """In the order of NAMESPACE_COLUMNS."""
        counts = (self.chunk_count, self.term_total, self.chunks_ended)
        return self.id, self.commit_number, self.commit_time, self.history_floor, *counts


def check_namespace_row(path: str, columns: Sequence[int], checksum: int | None) -> None:
    """Refuse counters that are not those that were written, in the order of NAMESPACE_COLUMNS."""
    is_right = all(type(number) is int for number in columns)
    if not is_right or (checksum is not None and checksum != row_sum(path, *columns)):
        raise damaged_row(f"the row of namespace {path}")


def read_namespace(connection: Connection, namespace: Namespace) -> NamespaceRow | None:
    path = "/".join(namespace)
    rows = connection.execute(f"SELECT {NAMESPACE_COLUMNS}, checksum FROM namespace WHERE path = ?", (path,)).fetchall()
    if not rows:
        return None
    *columns, checksum = rows[0]
    check_namespace_row(path, columns, checksum)
    return NamespaceRow(*columns)


def write_namespace(connection: Connection, namespace: Namespace, row: NamespaceRow) -> None:
    path, columns = "/".join(namespace), row.columns
    checksum = row_sum(path, *columns)
    if row.is_new:
        connection.execute(
            f"INSERT INTO namespace ({NAMESPACE_COLUMNS}, path, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*columns, path, checksum),
        )
    else:
        connection.execute(
            "UPDATE namespace SET commit_number = ?, commit_time = ?, history_floor = ?, chunk_count = ?,"
            " term_total = ?, chunks_ended = ?, checksum = ? WHERE id = ? AND checksum IS NOT ?",
            (*columns[1:], checksum, row.id, checksum),
        )


@dataclass(slots=True)
class Group:
    """What the jobs of one commit share: the counters, read once and written once."""

    counters: dict[Counter, int]
    stored_counters: tuple[int, ...]
    namespaces: dict[Namespace, NamespaceRow] = field(default_factory=dict)

    def next_id(self, name: Counter) -> int:
        self.counters[name] += 1
        return self.counters[name]


def begin_group(connection: Connection) -> Group:
    stored = connection.execute("SELECT namespace, entry, chunk, vector FROM next_id").fetchall()[0]
    if not all(type(number) is int and 0 <= number < MOST_IDS for number in stored):
        raise damaged_row("the row of counters")
    return Group(dict(zip(COUNTERS, stored, strict=True)), stored)


def flush_group(connection: Connection, group: Group) -> None:
    counters = tuple(group.counters.values())
    if counters != group.stored_counters:
        connection.execute("UPDATE next_id SET namespace = ?, entry = ?, chunk = ?, vector = ?", counters)
    for namespace, row in group.namespaces.items():
        if row.is_new or row.is_changed:
            write_namespace(connection, namespace, row)
