"""Changes of a whole range of keys, by statements over the range: a tree of 100,000 files in seconds, not minutes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.backends.paging import after_prefix
from commonplace.backends.postgres.connection import Session
from commonplace.backends.postgres.index import EntryIndex
from commonplace.backends.states import labels
from commonplace.entry import INDEXED_ATTRIBUTES
from commonplace.store import FORMER_STATE_BYTES

IDS_A_STEP = 1_000
_IN_RANGE = (
    "tenant = %(tenant)s AND namespace = %(namespace)s AND kind = %(kind)s AND key >= %(prefix)s AND key < %(stop)s"
)
_KEEP_FORMER = f"""
    INSERT INTO history (
        tenant, entry, namespace, kind, key, identity, is_json, attributes, revision, commit_number, valid_from,
        begun_by, created_at, updated_at, expires_at, actor, ended_commit, valid_to, ended_by, ended_actor, heading,
        text, value
    )
    SELECT
        tenant, id, namespace, kind, key, identity, is_json, attributes, revision, commit_number, valid_from,
        begun_by, created_at, updated_at, expires_at, actor, %(commit)s, %(time)s, %(ended_by)s, %(actor)s, heading,
        {{text}}, {{value}}
    FROM entry WHERE {_IN_RANGE}
"""
FORMER_BYTES = (
    f"{FORMER_STATE_BYTES} + octet_length(attributes) + coalesce(octet_length(text), 0) + octet_length(value)"
)
_WHOLE = "convert_to('t' || {0}, 'UTF8')"


@dataclass(frozen=True, slots=True)
class Range:
    """The keys of one kind that begin with a prefix, and the commit that changes them."""

    tenant: str
    namespace: int
    kind: str
    prefix: str
    commit: int
    time: int
    actor: str | None

    def parameters(self, **more: Any) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "namespace": self.namespace,
            "kind": self.kind,
            "prefix": self.prefix,
            "stop": after_prefix(self.prefix),
            "commit": self.commit,
            "time": self.time,
            "actor": self.actor,
            **more,
        }


def _keep_former(session: Session, keys: Range, ended_by: str, text: str, value: str) -> int:
    """Write every state of the range to history; what they count for there."""
    kept = _KEEP_FORMER.format(text=text, value=value)
    rows = session.rows(
        f"WITH kept AS ({kept} RETURNING {FORMER_BYTES} AS bytes) SELECT coalesce(sum(bytes), 0)::bigint FROM kept",
        keys.parameters(ended_by=ended_by),
    )
    return int(rows[0][0])


def delete_range(session: Session, index: EntryIndex, keys: Range) -> tuple[int, int, int]:
    """End every state in the range; how many there were, their bytes, and what they count for in history."""
    former = _keep_former(session, keys, "deleted", _WHOLE.format("text"), _WHOLE.format("value"))
    found = session.rows(
        f"DELETE FROM entry WHERE {_IN_RANGE} RETURNING id, attributes, octet_length(value)"
        " + coalesce(octet_length(text), 0) + octet_length(attributes)",
        keys.parameters(),
    )
    for entry_id, attributes, _ in found:
        index.remove_labels(entry_id, labels(json.loads(attributes), INDEXED_ATTRIBUTES))
    for ids in steps([entry_id for entry_id, _, _ in found]):
        index.end_chunks(index.chunks_of(ids))
    return len(found), sum(size for _, _, size in found), former


def move_range(
    session: Session,
    index: EntryIndex,
    keys: Range,
    new_prefix: str,
    heading_of: Callable[[str], str | None],
) -> tuple[int, int]:
    """Put another prefix before every key in the range; each stays the same entry. How many, their bytes in history."""
    same = "'n-1'::bytea"
    former = _keep_former(session, keys, "moved_away", f"CASE WHEN text IS NOT NULL THEN {same} END", same)
    found = session.rows(
        f"""
        UPDATE entry SET key = %(new)s || substr(key, %(length)s::int + 1), commit_number = %(commit)s,
            valid_from = %(time)s, begun_by = 'moved_here', actor = %(actor)s, updated_at = %(time)s,
            revision = greatest(revision + 1, coalesce((SELECT max(h.revision) + 2 FROM history AS h
                WHERE h.tenant = %(tenant)s AND h.namespace = entry.namespace AND h.kind = entry.kind
                    AND h.key = %(new)s || substr(entry.key, %(length)s::int + 1)), 1))
        WHERE {_IN_RANGE} RETURNING id, key
        """,
        keys.parameters(new=new_prefix, length=len(keys.prefix)),
    )
    for some in steps(sorted(found)):
        index.end_chunks(index.chunks_of([entry_id for entry_id, _ in some], only_headings=True))
        headings = [(entry_id, heading_of(key)) for entry_id, key in some]
        session.send(
            "UPDATE entry SET heading = new.heading FROM unnest(%s::bigint[], %s::text[]) AS new (id, heading)"
            " WHERE entry.tenant = %s AND entry.id = new.id",
            ([entry_id for entry_id, _ in headings], [heading for _, heading in headings], keys.tenant),
        )
        index.add_headings(keys.commit, headings)
    return len(found), former


def steps(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + IDS_A_STEP] for start in range(0, len(items), IDS_A_STEP)]
