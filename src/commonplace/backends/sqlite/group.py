"""What the jobs of one commit share: id counters and namespaces' rows, read once and written once."""

from __future__ import annotations

from dataclasses import dataclass, field

from commonplace.backends.sqlite.connection import Connection
from commonplace.checks import Namespace


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


@dataclass(slots=True)
class Group:
    """What the jobs of one commit share: the counters, read once and written once."""

    counters: dict[str, int]
    stored_counters: dict[str, int]
    namespaces: dict[Namespace, NamespaceRow] = field(default_factory=dict)
    swept: set[Namespace] = field(default_factory=set)

    def next_id(self, name: str) -> int:
        self.counters[name] += 1
        return self.counters[name]


def begin_group(connection: Connection) -> Group:
    counters = dict(connection.execute("SELECT name, value FROM counter").fetchall())
    return Group(counters, dict(counters))


def flush_group(connection: Connection, group: Group) -> None:
    for name, value in group.counters.items():
        if value != group.stored_counters[name]:
            connection.execute("UPDATE counter SET value = ? WHERE name = ?", (value, name))
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
