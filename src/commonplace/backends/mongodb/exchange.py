"""Export and import of whole namespaces: every state, live and former, without loss.

An import of any size is atomic although a transaction is bounded: its documents are written under a number that no
namespace has yet, and then one small transaction gives that number to the namespace. What an interrupted import leaves
is removed later, because it is listed in `adoption` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pymongo import errors
from pymongo.database import Database

from commonplace.backends.mongodb.connection import OF_TENANTS, Document, Location, Session, tenant_of
from commonplace.backends.mongodb.documents import (
    divide,
    former_bytes,
    former_document,
    former_owner,
    former_row,
    live_bytes,
    live_document,
    live_owner,
    live_row,
    whole_documents,
)
from commonplace.backends.mongodb.index import EntryIndex, Identifiers
from commonplace.backends.mongodb.reader import NamespaceRow, namespace_query, namespace_row
from commonplace.backends.rows import (
    NO_CONTENT,
    Former,
    Live,
    adopt_states,
    former_state,
    live_state,
)
from commonplace.checks import Namespace, stored_namespace
from commonplace.entry import Entry
from commonplace.errors import Conflict, InvalidInput
from commonplace.language.passages import passages
from commonplace.store import NamespaceHead, State

ENTRIES_A_READ = 200
ADOPTION_SECONDS = 86_400
"""Documents of an import that was begun longer ago are removed: its program has ended or given up."""

# Out


def export(session: Session, namespaces: Sequence[Namespace] | None) -> Iterator[NamespaceHead | State]:
    query: Document = {}
    if namespaces is not None:
        query["_id"] = {"$in": ["/".join(namespace) for namespace in namespaces]}
        query["tenant"] = {"$in": sorted(set(map(tenant_of, namespaces)))}
    for document in session.find("namespace", query, sort=[("_id", 1)]):
        namespace = stored_namespace(document["_id"])
        row = namespace_row(document)
        place = Location(namespace, tenant_of(namespace), row.number)
        yield NamespaceHead(namespace, row.commit_number, row.commit_time, row.history_floor)
        last = 0
        while ids := _next_ids(session, place, last):
            yield from _states(session, place, ids)
            last = ids[-1]


def _next_ids(session: Session, place: Location, last: int) -> list[int]:
    live = session.find("entry", {**place.mine, "_id": {"$gt": last}}, ["_id"], sort=[("_id", 1)], limit=ENTRIES_A_READ)
    former = session.aggregate(
        "history",
        [
            {"$match": {**place.mine, "entry": {"$gt": last}}},
            {"$group": {"_id": "$entry"}},
            {"$sort": {"_id": 1}},
            {"$limit": ENTRIES_A_READ},
        ],
    )
    return sorted({one["_id"] for one in (*live, *former)})[:ENTRIES_A_READ]


def _states(session: Session, place: Location, ids: Sequence[int]) -> Iterator[State]:
    live = {one["_id"]: one for one in session.find_ids("entry", ids, place.mine)}
    former: dict[int, list[Document]] = {}
    order = [("entry", 1), ("revision", -1)]
    for one in session.find_ids("history", ids, place.mine, by="entry", sort=order):
        former.setdefault(one["entry"], []).append(one)
    for entry_id in ids:
        newer = NO_CONTENT
        if entry_id in live:
            [document] = whole_documents(session, place, [live[entry_id]])
            state, newer = live_state(place.namespace, live_row(document))
            yield state
        for document in whole_documents(session, place, former.get(entry_id, ())):
            state, newer = former_state(place.namespace, former_row(document), newer)
            yield state


# In


class Incoming:
    """Writes the documents of one namespace under a number of its own, not in a transaction."""

    def __init__(self, session: Session, place: Location, row: NamespaceRow, ids: Identifiers) -> None:
        self._session = session
        self._place = place
        self._row = row
        self._ids = ids
        self._index = EntryIndex(session, place, row, ids)

    def next_id(self) -> int:
        return self._ids.take(self._row)

    def add_live(self, row: Live, entry: Entry) -> None:
        document = live_document(self._place, row)
        self._add("entry", document, divide(self._place, document, live_owner(row)))
        self._index.add(entry, passages(entry.text))
        self._row.entries += 1
        self._row.bytes += live_bytes(row)
        expires_at = row.expires_at
        if expires_at is not None and (self._row.expires_next is None or expires_at < self._row.expires_next):
            self._row.expires_next = expires_at

    def add_former(self, row: Former) -> None:
        document = former_document(self._place, row)
        self._add("history", document, divide(self._place, document, former_owner(row)))
        self._row.former_states += 1
        self._row.former_bytes += former_bytes(row)

    def _add(self, name: str, document: Document, parts: Sequence[Document]) -> None:
        for part in parts:
            self._session.insert("part", part)
        self._session.insert(name, document)


def stage(session: Session, head: NamespaceHead, states: Iterable[State], row: NamespaceRow, ids: Identifiers) -> int:
    """Write the states under the row's number; returns how many."""
    place = Location(head.namespace, tenant_of(head.namespace), row.number)
    try:
        count = adopt_states(head, states, Incoming(session, place, row, ids))
        session.flush()
    except errors.BulkWriteError as error:
        if not any(one.get("code") == 11000 for one in error.details.get("writeErrors", ())):
            raise
        raise InvalidInput(
            f"two states of namespace {'/'.join(head.namespace)} claim the same place; nothing was imported"
        ) from error
    return count


def check_empty(session: Session, namespace: Namespace) -> Document | None:
    """The namespace's document, or None; raises Conflict if it holds anything."""
    found = session.find("namespace", namespace_query(namespace))
    if not found:
        return None
    place = Location(namespace, tenant_of(namespace), found[0]["number"])
    if any(session.find(name, place.mine, ["_id"], limit=1) for name in ("entry", "history")):
        raise Conflict(
            f"namespace {'/'.join(namespace)} holds entries or history already; import into an empty one, or merge"
        )
    return found[0]


def give_number(session: Session, head: NamespaceHead, row: NamespaceRow, count: int) -> int:
    """In a transaction: let the namespace have the staged documents; returns how many states these are.

    Readers of an older feed would miss what was imported below their cursor. The floor tells them to read everything
    again.
    """
    if not session.find("adoption", {"_id": row.number, "is_purged": None}, ["_id"]):
        raise Conflict(
            f"namespace {'/'.join(head.namespace)} was purged during the import, or the import took more than a day; "
            "nothing was imported: import it again"
        )
    known = check_empty(session, head.namespace)
    before = NamespaceRow() if known is None else namespace_row(known)
    floor = before.commit_number + 1 if before.commit_number and count else 0
    row.commit_number = max(before.commit_number, head.commit, floor)
    row.commit_time = max(before.commit_time, head.commit_time)
    row.history_floor = max(before.history_floor, head.history_floor, floor)
    row.chunks_ended = before.chunks_ended
    row.last_id = max(row.last_id, before.last_id)
    query = namespace_query(head.namespace)
    turn = 1 if known is None else int(known.get("turn", 0)) + 1
    session.replace("namespace", query, {**query, **row.fields, "turn": turn}, upsert=True)
    if known is not None:
        session.delete_all("operation", {"tenant": query["tenant"], "ns": before.number})
    session.delete("adoption", {"_id": row.number})
    session.flush()
    return count


def discard(database: Database[Document], number: int) -> None:
    """Remove the documents of an import that did not succeed."""
    _erase_staged(database, number)
    database["adoption"].delete_one({"_id": number})


def discard_all(database: Database[Document], namespace: Namespace) -> None:
    """Remove what unfinished imports into a namespace have written so far; one that is under way will not succeed."""
    for one in list(database["adoption"].find({"path": "/".join(namespace)})):
        # It stays listed, because its program may still be writing.
        if database["adoption"].update_one({"_id": one["_id"]}, {"$set": {"is_purged": True}}).matched_count:
            _erase_staged(database, one["_id"])


def _erase_staged(database: Database[Document], number: int) -> None:
    if database["namespace"].find_one({"number": number}, {"_id": 1}) is None:
        for name in OF_TENANTS:
            if name != "namespace":
                which = {"_id": number} if name == "sequence" else {"ns": number}
                # While a cluster moves documents to another shard, one deletion may miss some of them.
                while database[name].delete_many(which).deleted_count:
                    continue
