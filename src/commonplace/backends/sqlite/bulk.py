"""Changes of a whole range of keys, by statements over the range: a tree of 100,000 files in seconds, not minutes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.backends.paging import after_prefix
from commonplace.backends.sqlite.connection import Connection
from commonplace.backends.sqlite.indexed import EntryIndex
from commonplace.backends.states import labels
from commonplace.entry import INDEXED_ATTRIBUTES

IDS_A_STEP = 1_000

_KEEP_FORMER = """
    INSERT INTO history (
        entry, namespace, kind, key, identity, is_json, attributes, revision, commit_number, valid_from, begun_by,
        created_at, updated_at, expires_at, actor, ended_commit, valid_to, ended_by, ended_actor, heading, text, value
    )
    SELECT
        id, namespace, kind, key, identity, is_json, attributes, revision, commit_number, valid_from, begun_by,
        created_at, updated_at, expires_at, actor, :commit, :time, :ended_by, :actor, heading, {text}, {value}
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


def delete_range(connection: Connection, index: EntryIndex, keys: Range) -> int:
    """End every state in the range; how many there were."""
    found = connection.execute(f"SELECT id, attributes FROM entry WHERE {_IN_RANGE}", keys.parameters()).fetchall()
    connection.execute(_KEEP_FORMER.format(text="text", value="value"), keys.parameters(ended_by="deleted"))
    for entry_id, attributes in found:
        index.remove_labels(entry_id, labels(json.loads(attributes), INDEXED_ATTRIBUTES))
    for ids in _steps([entry_id for entry_id, _ in found]):
        index.end_chunks(index.chunks_of(ids))
    connection.execute(f"DELETE FROM entry WHERE {_IN_RANGE}", keys.parameters())
    return len(found)


def move_range(
    connection: Connection,
    index: EntryIndex,
    keys: Range,
    new_prefix: str,
    heading_of: Callable[[str], str | None],
) -> int:
    """Put another prefix before every key in the range; each stays the same entry. How many there were."""
    found = connection.execute(
        f"SELECT id, key FROM entry WHERE {_IN_RANGE} ORDER BY key", keys.parameters()
    ).fetchall()
    connection.execute(
        _KEEP_FORMER.format(text="iif(text IS NULL, NULL, -1)", value="-1"), keys.parameters(ended_by="moved_away")
    )
    connection.execute(
        f"""
        UPDATE entry SET key = :new || substr(key, :length + 1), commit_number = :commit, valid_from = :time,
            begun_by = 'moved_here', actor = :actor, updated_at = :time,
            revision = max(revision + 1, coalesce((SELECT max(h.revision) + 2 FROM history AS h
                WHERE h.namespace = entry.namespace AND h.kind = entry.kind
                    AND h.key = :new || substr(entry.key, :length + 1)), 1))
        WHERE {_IN_RANGE}
        """,
        keys.parameters(new=new_prefix, length=len(keys.prefix)),
    )
    for some in _steps(found):
        index.end_chunks(index.chunks_of([entry_id for entry_id, _ in some], only_headings=True))
        headings = [(entry_id, heading_of(new_prefix + key[len(keys.prefix) :])) for entry_id, key in some]
        connection.execute(
            "UPDATE entry SET heading = j.value ->> 1 FROM json_each(?) AS j WHERE entry.id = j.value ->> 0",
            (json.dumps(headings),),
        )
        index.add_headings(keys.commit, headings)
    return len(found)


def _steps(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + IDS_A_STEP] for start in range(0, len(items), IDS_A_STEP)]
