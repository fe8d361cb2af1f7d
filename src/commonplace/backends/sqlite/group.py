"""What the jobs of one commit share: id counters and namespaces' rows, read once and written once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from commonplace.backends.sqlite.connection import Connection
from commonplace.checks import Namespace

Counter = Literal["namespace", "entry", "chunk", "vector"]
COUNTERS: tuple[Counter, ...] = ("namespace", "entry", "chunk", "vector")


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

    def copy(self) -> NamespaceRow:
        return NamespaceRow(
            self.id,
            self.commit_number,
            self.commit_time,
            self.chunk_count,
            self.term_total,
            self.chunks_ended,
            self.is_new,
            self.is_changed,
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
    return Group(dict(zip(COUNTERS, stored, strict=True)), stored)


def flush_group(connection: Connection, group: Group) -> None:
    counters = tuple(group.counters.values())
    if counters != group.stored_counters:
        connection.execute("UPDATE next_id SET namespace = ?, entry = ?, chunk = ?, vector = ?", counters)
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
