"""Changes of a whole range of keys, by statements over the range: a tree of 100,000 files in seconds, not minutes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.backends.paging import after_prefix
from commonplace.backends.sqlite.checksums import FORMER, HEAD, LIVE, changed_sum, check_live_head
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.index import EntryIndex
from commonplace.backends.states import labels
from commonplace.checks import Namespace
from commonplace.entry import INDEXED_ATTRIBUTES

IDS_A_STEP = 1_000

_ENDING = ":ended_by, :commit, :time, :actor"
_KEEP_FORMER = f"""
    INSERT INTO history ({FORMER})
    SELECT {", ".join(LIVE.split(", ")[:14])}, {{text}}, {{value}}, begun_by, namespace, {_ENDING},
        kept_sum({LIVE}, {{text}}, {{value}}, {_ENDING})
    FROM entry WHERE namespace = :namespace AND kind = :kind AND key >= :prefix AND key < :stop
"""


@dataclass(frozen=True, slots=True)
class Range:
    """The keys of one kind that begin with a prefix, and the commit that changes them."""

    namespace: int
    kind: str
    prefix: str
    commit: int
    time: int
    actor: str | None

    def parameters(self, **more: Any) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "kind": self.kind,
            "prefix": self.prefix,
            "stop": after_prefix(self.prefix),
            "commit": self.commit,
            "time": self.time,
            "actor": self.actor,
            **more,
        }


_IN_RANGE = "namespace = :namespace AND kind = :kind AND key >= :prefix AND key < :stop"


def delete_range(connection: Connection, namespace: Namespace, index: EntryIndex, keys: Range) -> int:
    """End every state in the range; how many there were."""
    found = [(row[0], row[5]) for row in _heads(connection, namespace, keys)]
    connection.execute(_KEEP_FORMER.format(text="text", value="value"), keys.parameters(ended_by="deleted"))
    for entry_id, attributes in found:
        index.remove_labels(entry_id, labels(json.loads(attributes), INDEXED_ATTRIBUTES))
    for ids in _steps([entry_id for entry_id, _ in found]):
        index.end_chunks(index.chunks_of(ids))
    connection.execute(f"DELETE FROM entry WHERE {_IN_RANGE}", keys.parameters())
    return len(found)


def _heads(connection: Connection, namespace: Namespace, keys: Range) -> list[Sequence[Any]]:
    """The heads of the rows in the range, each checked."""
    rows = connection.execute(f"SELECT {HEAD} FROM entry WHERE {_IN_RANGE} ORDER BY key", keys.parameters()).fetchall()
    for row in rows:
        check_live_head(namespace, row)
    return rows


def move_range(
    connection: Connection,
    namespace: Namespace,
    index: EntryIndex,
    keys: Range,
    new_prefix: str,
    heading_of: Callable[[str], str | None],
) -> int:
    """Put another prefix before every key in the range; each stays the same entry. How many there were."""
    checksums = {row[0]: row[-1] for row in _heads(connection, namespace, keys)}
    connection.execute(
        _KEEP_FORMER.format(text="iif(text IS NULL, NULL, -1)", value="-1"), keys.parameters(ended_by="moved_away")
    )
    connection.execute(
        f"""
        UPDATE entry SET key = :new || substr(key, :length + 1), commit_number = :commit, valid_from = :time,
            begun_by = 'moved_here', actor = :actor, updated_at = :time, checksum = NULL,
            revision = max(revision + 1, coalesce((SELECT max(h.revision) + 2 FROM history AS h
                WHERE h.namespace = entry.namespace AND h.kind = entry.kind
                    AND h.key = :new || substr(entry.key, :length + 1)), 1))
        WHERE {_IN_RANGE}
        """,
        keys.parameters(new=new_prefix, length=len(keys.prefix)),
    )
    for ids in _steps(list(checksums)):
        index.end_chunks(index.chunks_of(ids, only_headings=True))
        changed, headings = [], []
        for *head, _ in connection.execute(
            f"SELECT {HEAD} FROM entry WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),)
        ).fetchall():
            head[13] = heading_of(head[2])
            headings.append((head[0], head[13]))
            changed.append((head[0], head[13], changed_sum(head, checksums[head[0]])))
        connection.execute(
            "UPDATE entry SET heading = j.value ->> 1, checksum = j.value ->> 2 FROM json_each(?) AS j"
            " WHERE entry.id = j.value ->> 0",
            (json.dumps(changed),),
        )
        index.add_headings(keys.commit, headings)
    return len(checksums)


def _steps(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + IDS_A_STEP] for start in range(0, len(items), IDS_A_STEP)]
