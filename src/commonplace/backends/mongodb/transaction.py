"""One atomic change of one namespace: states, their history, passages, keywords and pending marks together.

The rules are in `ledger`; this writes their documents. The transaction begins with a change of the namespace's
document, so nothing that is read here changes until the commit: another transaction of the namespace is refused and
tries again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from commonplace.backends.ledger import Ledger, commit_time, next_revision
from commonplace.backends.mongodb.connection import Location, Session, tenant_of
from commonplace.backends.mongodb.documents import (
    HEAD,
    divide,
    former_bytes,
    former_document,
    former_owner,
    is_divided,
    live_bytes,
    live_document,
    live_owner,
    live_row,
    owners_of,
    whole_documents,
)
from commonplace.backends.mongodb.index import EntryIndex, Identifiers
from commonplace.backends.mongodb.reader import (
    MongoReader,
    NamespaceRow,
    keys_below,
    namespace_query,
    namespace_row,
)
from commonplace.backends.rows import Former, Live, dump, entry_of
from commonplace.checks import JSON, Namespace, check_key
from commonplace.errors import Conflict
from commonplace.store import Usage

FORGOTTEN_AT_ONCE = 20
"""How many expired operations a write removes: more than it adds, so that they do not accumulate."""

ENTRIES_A_STEP = 500


class MongoTransaction(Ledger, MongoReader):
    """The ledger in a session whose namespace is locked."""

    def __init__(self, session: Session, namespace: Namespace, now: int, actor: str | None, ids: Identifiers) -> None:
        self._actor = actor
        self._ids = ids
        self._has_commit = False
        self._is_marked = False
        locked = session.take("namespace", namespace_query(namespace), {"$inc": {"turn": 1}})
        self._is_new = locked is None
        self._row = NamespaceRow() if locked is None else namespace_row(locked)
        if locked is None:
            self._row.number = ids.take(self._row)
        self.time = commit_time(now, self._row.commit_time)
        super().__init__(session, Location(namespace, tenant_of(namespace), self._row.number), self.time)
        self._index: EntryIndex = EntryIndex(session, self._spot, self._row, ids)
        self._sweep()

    def finish(self) -> int | None:
        """Write the counters; returns the commit's number, or None if no state was changed."""
        query, row = namespace_query(self._namespace), self._row
        if self._has_commit and self._is_new:
            self._session.insert("namespace", {**query, **row.fields})
        elif self._has_commit or self._is_marked:
            self._session.update("namespace", query, {"$set": row.fields})
        self._session.flush()
        return row.commit_number if self._has_commit else None

    @property
    def place(self) -> Location:
        return self._spot

    @property
    def row(self) -> NamespaceRow:
        return self._row

    @property
    def is_changed(self) -> bool:
        """Whether there is something to commit. A namespace without writes is not created."""
        return self._has_commit or (self._is_marked and not self._is_new)

    def mark_changed(self) -> None:
        """Commit this transaction although it has no commit number, because it changed something other than states."""
        self._is_marked = True

    # Rows

    def _take_commit(self) -> int:
        if not self._has_commit:
            self._has_commit = True
            self._row.commit_number += 1
            self._row.commit_time = self.time
        return self._row.commit_number

    def _new_id(self) -> int:
        return self._ids.take(self._row)

    def _rows(self, query: dict[str, Any], **options: Any) -> list[Live]:
        if self._is_new and not self._has_commit:
            return []
        found = self._session.find("entry", {**self._spot.mine, **query}, **options)
        return [live_row(document) for document in whole_documents(self._session, self._spot, found)]

    def _live_row(self, kind: str, key: str) -> tuple[Live | None, int | None]:
        if self._is_new and not self._has_commit:
            return None, None
        place = {"kind": kind, "key": key}
        for row in self._rows(place):
            return row, None  # its own revision is the highest
        mine = {**self._spot.mine, **place}
        for document in self._session.find("history", mine, ["revision"], sort=[("revision", -1)], limit=1):
            return None, int(document["revision"])
        return None, None

    def _identity_row(self, kind: str, identity: str) -> Live | None:
        return next(iter(self._rows({"kind": kind, "identity": identity})), None)

    def _expired_rows(self, limit: int) -> Sequence[Live]:
        if self._row.expires_next is None or self._row.expires_next > self.time:
            return ()
        order = [("expires_at", 1), ("_id", 1)]
        return self._rows({"expires_at": {"$lte": self.time}}, sort=order, limit=limit)

    def _sweep(self) -> int:
        ended = super()._sweep()
        if ended:
            query = {**self._spot.mine, "expires_at": {"$gt": 0}}
            found = self._session.find("entry", query, ["expires_at"], sort=[("expires_at", 1)], limit=1)
            self._row.expires_next = found[0]["expires_at"] if found else None
        return ended

    def _insert_row(self, row: Live) -> None:
        document = live_document(self._spot, row)
        for part in divide(self._spot, document, live_owner(row)):
            self._session.insert("part", part)
        self._session.insert("entry", document)
        self._row.entries += 1
        self._row.bytes += live_bytes(row)
        self._expect(row.expires_at)

    def _update_row(self, row: Live, former: Live) -> None:
        if (row.text, row.value) == (former.text, former.value):
            self._set_head(row)
        else:
            self._erase_parts(former)
            document = live_document(self._spot, row)
            for part in divide(self._spot, document, live_owner(row)):
                self._session.insert("part", part)
            self._session.replace("entry", {"_id": row.id, "tenant": self._spot.tenant}, document)
        self._row.bytes += live_bytes(row) - live_bytes(former)
        self._expect(row.expires_at)

    def _move_row(self, row: Live) -> None:
        self._set_head(row)

    def _set_head(self, row: Live) -> None:
        """Replace everything of a live row but its text and value, which may be large."""
        document = live_document(self._spot, row._replace(text=None, value=""))
        kept = {name: value for name, value in document.items() if name not in ("_id", "tenant", "ns", "value")}
        gone = dict.fromkeys({*HEAD, "labels"} - kept.keys(), "")
        change: dict[str, Any] = {"$set": kept, **({"$unset": gone} if gone else {})}
        self._session.update("entry", {"_id": row.id, "tenant": self._spot.tenant}, change)

    def _delete_row(self, row: Live) -> None:
        self._erase_parts(row)
        self._session.delete("entry", {"_id": row.id, "tenant": self._spot.tenant})
        self._row.entries -= 1
        self._row.bytes -= live_bytes(row)

    def _erase_parts(self, row: Live) -> None:
        """Remove the parts of a live state. After a move, they have the name that the state had before."""
        document = {"text": row.text, "value": row.value}
        if divide(self._spot, document, "") and is_divided(document):
            stored = self._session.find("entry", {"_id": row.id, "tenant": self._spot.tenant}, ["text", "value"])
            owners = sorted({owner for one in stored for owner in owners_of(one)})
            self._session.delete_all("part", {**self._spot.mine, "owner": {"$in": owners}})

    def _keep_row(self, row: Former) -> None:
        document = former_document(self._spot, row)
        for part in divide(self._spot, document, former_owner(row)):
            self._session.insert("part", part)
        self._session.insert("history", document)
        self._row.former_states += 1
        self._row.former_bytes += former_bytes(row)

    def _expect(self, expires_at: int | None) -> None:
        """Note that something expires at this time."""
        if expires_at is not None and (self._row.expires_next is None or expires_at < self._row.expires_next):
            self._row.expires_next = expires_at

    def touch(self, kind: str, key: str) -> None:
        self.mark_changed()
        place = {**self._spot.mine, "kind": kind, "key": key}
        self._session.update("entry", place, {"$set": {"updated_at": self.time}})

    # Usage and operations

    def usage(self) -> Usage:
        self._sweep_all()
        return self._row.usage

    def operation(self, key: str) -> JSON | None:
        query = {**self._spot.mine, "key": key, "expires_at": {"$gt": self.time}}
        found = self._session.find("operation", query)
        return json.loads(found[0]["value"]) if found else None

    def record_operation(self, key: str, value: JSON, *, expires_at: int) -> None:
        self.mark_changed()
        mine = self._spot.mine
        expired = self._session.find(
            "operation", {**mine, "expires_at": {"$lte": self.time}}, ["_id"], limit=FORGOTTEN_AT_ONCE
        )
        if expired:
            ids = [one["_id"] for one in expired]
            self._session.delete_all("operation", {"tenant": self._spot.tenant, "_id": {"$in": ids}})
        self._session.delete("operation", {**mine, "key": key})
        self._session.insert("operation", {**mine, "key": key, "value": dump(value), "expires_at": expires_at})

    def forget_operations(self) -> None:
        self._session.delete_all("operation", self._spot.mine)

    # Ranges of keys: some hundred entries at a time, instead of one

    def delete_range(self, kind: str, prefix: str) -> int:
        self._sweep_all()
        check_key(prefix)
        count = 0
        while rows := self._rows({"kind": kind, "key": keys_below(prefix)}, sort=[("key", 1)], limit=ENTRIES_A_STEP):
            self._take_commit()
            for row in rows:
                self._end_row(row, "deleted", self.time)
            self._index.end_chunks(self._index.chunks_of([row.id for row in rows]))
            count += len(rows)
        return count

    def move_range(self, kind: str, prefix: str, new_prefix: str, heading_of: Callable[[str], str | None]) -> int:
        self._sweep_all()
        check_key(new_prefix)
        check_key(prefix)
        below = {"kind": kind, "key": keys_below(prefix)}
        ids = [row["_id"] for row in self._session.find("entry", {**self._spot.mine, **below}, ["_id"])]
        if ids and self._rows({"kind": kind, "key": keys_below(new_prefix)}, limit=1):
            raise Conflict(f"there are {kind} entries with the new prefix already")
        for start in range(0, len(ids), ENTRIES_A_STEP):
            rows = self._rows({"_id": {"$in": ids[start : start + ENTRIES_A_STEP]}}, sort=[("key", 1)])
            self._move_rows(kind, rows, len(prefix), new_prefix, heading_of)
        return len(ids)

    def _move_rows(
        self, kind: str, rows: Sequence[Live], length: int, new_prefix: str, heading_of: Callable[[str], str | None]
    ) -> None:
        keys = {row.id: new_prefix + row.key[length:] for row in rows}
        last = self._last_revisions(kind, [check_key(key) for key in keys.values()])
        headings: list[tuple[int, str | None]] = []
        for row in rows:
            new_key = keys[row.id]
            moved = self._move(row, new_key, heading_of(new_key), next_revision(last.get(new_key)))
            if entry_of(self._namespace, row).heading != moved.heading:
                headings.append((row.id, moved.heading))
        self._index.end_chunks(self._index.chunks_of([entry_id for entry_id, _ in headings], only_headings=True))
        self._index.add_headings(self._take_commit(), headings)

    def _last_revisions(self, kind: str, keys: Sequence[str]) -> dict[str, int]:
        """The highest revisions of the former states of keys."""
        query = {**self._spot.mine, "kind": kind, "key": {"$in": list(keys)}}
        found = self._session.aggregate(
            "history", [{"$match": query}, {"$group": {"_id": "$key", "last": {"$max": "$revision"}}}]
        )
        return {one["_id"]: one["last"] for one in found}
