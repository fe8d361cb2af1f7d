"""Maintenance: purge, counts, and checks of what is derived against the entries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pymongo.database import Database

from commonplace.backends.deltas import is_whole, whole
from commonplace.backends.entry_index import HEADING, heading_passage, passages_alone
from commonplace.backends.mongodb.connection import OF_TENANTS, SCHEMA, Document, Location, Session, tenant_of
from commonplace.backends.mongodb.documents import (
    FORMER_HEAD,
    divide,
    former_bytes,
    former_document,
    former_owner,
    former_row,
    live_bytes,
    live_document,
    live_row,
    owners_of,
    whole_documents,
)
from commonplace.backends.mongodb.index import LIVE_CHUNK, EntryIndex, Identifiers, erase_chunks, term_fields
from commonplace.backends.mongodb.reader import NamespaceRow, decode_former, keys_below, namespace_query, namespace_row
from commonplace.backends.mongodb.transaction import MongoTransaction
from commonplace.backends.ranking import posting
from commonplace.backends.rows import entry_of
from commonplace.checks import Namespace, stored_namespace
from commonplace.language.passages import passage, passages
from commonplace.language.tokenizer import STEM
from commonplace.store import Progress, StoreStats

STATES_A_STEP = 500


# Purge


def purge(
    session: Session,
    transaction: MongoTransaction,
    kind: str | None,
    key: str | None,
    prefix: str | None,
    history_before: int | None,
    revision: int | None = None,
) -> int:
    """Erase the named states, live and former; returns how many there were."""
    place = transaction.place
    named: Document = dict(place.mine)
    if kind is not None:
        named["kind"] = kind
    if key is not None:
        named["key"] = key
    elif prefix is not None:
        named["key"] = keys_below(prefix)
    fields = ["entry", "revision", "commit", "ended_commit"]
    if revision is not None:
        rows = session.find("history", {**named, "revision": revision}, fields)
    elif history_before is None:
        for live in session.find("entry", named, ["kind", "key"]):
            transaction.delete(live["kind"], live["key"])
        rows = session.find("history", named, fields)
        # An entry that ended here is erased under its earlier names too; one that moved away is erased only here.
        ended_here = {**named, "ended_by": {"$in": ["deleted", "expired"]}}
        ended = sorted({one["entry"] for one in session.find("history", ended_here, ["entry"])})
        known = {one["_id"] for one in rows}
        others = session.find_ids("history", ended, place.mine, fields, by="entry")
        rows += [one for one in others if one["_id"] not in known]
        if kind is None:
            transaction.mark_changed()
            transaction.forget_operations()
    else:
        rows = session.find("history", {**named, "valid_to": {"$lt": history_before}}, fields)
    if not rows:
        return 0
    transaction.mark_changed()
    _erase_states(session, transaction, [(one["entry"], one["revision"]) for one in rows])
    if revision is None:
        erased = [(one["entry"], 0, one["ended_commit"]) for one in rows]
    else:
        erased = []
        for one in rows:
            others = session.find_ids("history", [one["entry"]], place.mine, ["commit"], by="entry")
            alone = passages_alone(one["commit"], one["ended_commit"], (other["commit"] for other in others))
            erased.append((one["entry"], *alone))
    _erase_ended_chunks(session, place, erased)
    row = transaction.row
    row.history_floor = max(row.history_floor, *(one["ended_commit"] for one in rows))
    return len(rows)


def _erase_states(session: Session, transaction: MongoTransaction, states: Sequence[tuple[int, int]]) -> None:
    """Remove states of history. One whose delta depends on one of them is first stored whole."""
    place, row = transaction.place, transaction.row
    gone = set(states)
    entries = sorted({entry_id for entry_id, _ in states})
    for start in range(0, len(entries), STATES_A_STEP):
        chains: dict[int, list[Document]] = {}
        some = entries[start : start + STATES_A_STEP]
        order = [("entry", 1), ("revision", 1)]
        for one in session.find_ids("history", some, {"tenant": place.tenant}, by="entry", sort=order):
            chains.setdefault(one["entry"], []).append(one)
        for entry_id, chain in chains.items():
            for older, newer in pairwise(chain):
                is_orphan = (entry_id, newer["revision"]) in gone and (entry_id, older["revision"]) not in gone
                if is_orphan and not _is_kept_whole(older):
                    _store_whole(session, place, row, older)
            for one in chain:
                if (entry_id, one["revision"]) in gone:
                    _erase_state(session, place, row, one)


def _is_kept_whole(document: Document) -> bool:
    return all(
        name not in document or isinstance(document[name], dict) or is_whole(document[name])
        for name in ("text", "value")
    )


def _store_whole(session: Session, place: Location, row: NamespaceRow, document: Document) -> None:
    text, value = decode_former(session, place, document["entry"], document["revision"])
    _erase_state(session, place, row, document)
    [joined] = whole_documents(session, place, [dict(document)])
    kept = former_row(joined)._replace(text=None if text is None else whole(text), value=whole(value))
    stored = former_document(place, kept)
    for part in divide(place, stored, former_owner(kept)):
        session.insert("part", part)
    session.insert("history", stored)
    row.former_states += 1
    row.former_bytes += former_bytes(kept)


def _erase_state(session: Session, place: Location, row: NamespaceRow, document: Document) -> None:
    [joined] = whole_documents(session, place, [dict(document)])
    row.former_states -= 1
    row.former_bytes -= former_bytes(former_row(joined))
    owners = sorted(owners_of(document))
    if owners:
        session.delete_all("part", {**place.mine, "owner": {"$in": owners}})
    session.delete("history", {"_id": document["_id"], "tenant": place.tenant})


def _erase_ended_chunks(session: Session, place: Location, ended: Sequence[tuple[int, int, int]]) -> None:
    """Remove the passages, with their vectors, that began and ended between two commits, both included."""
    ranges: dict[int, tuple[int, int]] = {}
    for entry_id, first, last in ended:
        ranges[entry_id] = (first, max(last, ranges.get(entry_id, (first, last))[1]))
    query = {**place.mine, "ended": {"$gt": 0}}
    found = session.find_ids("chunk", sorted(ranges), query, ["entry", "commit", "ended"], by="entry")
    gone = [
        one["_id"]
        for one in found
        if ranges[one["entry"]][0] <= one["commit"] and one["ended"] <= ranges[one["entry"]][1]
    ]
    erase_chunks(session, place.tenant, gone)


def rebuild_keywords(session: Session, namespace: Namespace, ids: Identifiers, last: int) -> tuple[int, int]:
    """In a transaction: rebuild the passages of the entries after one; returns the last of them and their number."""
    query = namespace_query(namespace)
    locked = session.take("namespace", query, {"$inc": {"turn": 1}})
    if locked is None:
        return last, 0
    row = namespace_row(locked)
    place = Location(namespace, tenant_of(namespace), row.number)
    rebuilt = EntryIndex(session, place, row, ids).rebuild_after(last)
    session.update("namespace", query, {"$set": row.fields})
    return rebuilt


# Counts


def stats(session: Session, database: Database[Document]) -> StoreStats:
    kinds = session.aggregate("entry", [{"$group": {"_id": "$kind", "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    serving = session.find("model", {"role": "serving"})
    sizes = database.command("dbStats")
    return StoreStats(
        SCHEMA,
        session.count("namespace", {}),
        {one["_id"]: one["count"] for one in kinds},
        session.count("history", {}),
        session.count("chunk", LIVE_CHUNK),
        session.count("vector", {"former": False}),
        session.count("pending", {}),
        serving[0]["_id"] if serving else None,
        int(sizes["storageSize"] + sizes["indexSize"]),
    )


# Checks


def verify(session: Session, progress: Progress | None) -> list[str]:
    """Every mismatch between the entries and what is derived from them, one namespace at a time."""
    found = []
    documents = session.find("namespace", {}, sort=[("_id", 1)])
    models = {one["number"]: one["dimensions"] for one in session.find("model", {})}
    for done, document in enumerate(documents, 1):
        namespace = stored_namespace(document["_id"])
        row = namespace_row(document)
        place = Location(namespace, tenant_of(namespace), row.number)
        found += [
            f"index: namespace {document['_id']} {problem}"
            for problem in _Check(session, place, row, models).problems()
        ]
        if progress is not None:
            progress(done, len(documents), "namespaces")
    known = {document["number"] for document in documents}
    known.update(one["_id"] for one in session.find("adoption", {}, ["_id"]))
    for name in OF_TENANTS:
        if name in ("namespace", "sequence"):
            continue
        numbers = {one["_id"] for one in session.aggregate(name, [{"$group": {"_id": "$ns"}}])}
        if numbers - known:
            found.append(f"index: the collection {name} has documents of {len(numbers - known):,} unknown namespaces")
    return found


class _Check:
    """Computes again what is derived from the entries of one namespace."""

    def __init__(self, session: Session, place: Location, row: NamespaceRow, models: dict[int, int]) -> None:
        self._session = session
        self._place = place
        self._row = row
        self._models = models

    def problems(self) -> list[str]:
        found: list[str] = []
        chunks: dict[int, dict[tuple[int, int, int], Document]] = {}
        live: dict[int, bool] = {}
        total = 0
        for one in self._session.iterate("chunk", {**self._place.mine}):
            live[one["_id"]] = "ended" not in one
            if "ended" not in one:
                chunks.setdefault(one["entry"], {})[one["number"], one["start"], one["stop"]] = one
                total += one["length"]
        count = sum(live.values())
        if (count, total) != (self._row.chunk_count, self._row.term_total):
            found.append("has wrong passage counts")
        wanted = {one["_id"] for of in chunks.values() for one in of.values() if _embeds(one)}
        found += self._entries(chunks)
        found += self._history()
        found += self._vectors(live, wanted)
        if chunks:
            found.append(f"has live passages of {len(chunks):,} entries that do not exist")
        return found

    def _entries(self, chunks: dict[int, dict[tuple[int, int, int], Document]]) -> list[str]:
        found: list[str] = []
        entries = size = 0
        expires: int | None = None
        wrong_passages = wrong_labels = too_new = 0
        documents = self._session.iterate("entry", self._place.mine)
        for document in whole_documents(self._session, self._place, documents):
            row = live_row(document)
            entry = entry_of(self._place.namespace, row)
            entries += 1
            size += live_bytes(row)
            if row.expires_at is not None:
                expires = row.expires_at if expires is None else min(expires, row.expires_at)
            too_new += row.commit > self._row.commit_number
            wrong_labels += document.get("labels") != live_document(self._place, row).get("labels")
            wrong_passages += not _has_passages(entry.text, entry.heading, chunks.pop(row.id, {}))
        if (entries, size) != (self._row.entries, self._row.bytes):
            found.append("has a wrong usage")
        if expires is not None and (self._row.expires_next is None or self._row.expires_next > expires):
            found.append("has a wrong next expiry")
        if too_new:
            found.append(f"has {too_new:,} entries newer than its last commit")
        if wrong_labels:
            found.append(f"has {wrong_labels:,} entries with wrong labels")
        if wrong_passages:
            found.append(
                f"has {wrong_passages:,} entries whose passages do not match their texts; run "
                "`commonplace reindex --keywords`"
            )
        return found

    def _history(self) -> list[str]:
        states = size = 0
        documents = self._session.iterate("history", self._place.mine, [*FORMER_HEAD, "text", "value"])
        for document in whole_documents(self._session, self._place, documents):
            states += 1
            size += former_bytes(former_row(document))
        is_right = (states, size) == (self._row.former_states, self._row.former_bytes)
        return [] if is_right else ["has a wrong usage by history"]

    def _vectors(self, live: dict[int, bool], wanted: set[int]) -> list[str]:
        found: list[str] = []
        pending = {one["_id"] for one in self._session.iterate("pending", self._place.mine, ["_id"])}
        lost = misplaced = misshapen = 0
        covered = set(pending)
        for one in self._session.iterate("vector", self._place.mine):
            covered.add(one["chunk"])
            lost += one["chunk"] not in live
            misplaced += one["former"] is live.get(one["chunk"], False)
            misshapen += len(one["value"]) != 2 * self._models.get(one["model"], 0)
        for count, problem in (
            (lost, "vectors without a passage"),
            (misplaced - lost if misplaced > lost else misplaced, "vectors of ended passages among the live ones"),
            (misshapen, "vectors with another length than their model's; `commonplace reindex` rebuilds them"),
            (len([chunk for chunk in pending if not live.get(chunk)]), "pending marks without a live passage"),
            (len(wanted - covered), "live passages with neither a vector nor a pending mark"),
        ):
            if count:
                found.append(f"has {count:,} {problem}")
        return found


def _embeds(chunk: Document) -> bool:
    return bool(chunk["number"] >= 0 and chunk["length"] > 0)


def _has_passages(text: str, heading: str | None, known: dict[tuple[int, int, int], Document]) -> bool:
    """Whether an entry has exactly the passages that its text and heading give."""
    wanted = [(number, one) for number, one in enumerate(passages(text))]
    if heading:
        wanted.append((HEADING, heading_passage(heading)))
    if len(wanted) != len(known):
        return False
    for number, one in wanted:
        chunk = known.get((number, one.start, one.end))
        if chunk is None:
            return False
        made = one if number == HEADING else passage(text[one.start : one.end], 0, one.end - one.start)
        fields: dict[str, Any] = term_fields(made.terms)
        same = (made.length, posting(chunk["_id"], made.length)) == (chunk["length"], chunk["posting"])
        if not same or not _agree(chunk.get("terms", ()), fields["terms"]):
            return False
        if not _agree(chunk.get("repeated", ()), fields.get("repeated", ())):
            return False
    return True


def _agree(stored: Sequence[str], expected: Sequence[str]) -> bool:
    """Whether the terms of a passage are those of its text. Stems of other languages may be missing: a program from
    before them wrote none.
    """
    has, wants = set(stored), set(expected)
    return has <= wants and not any(STEM not in term for term in wants - has)
